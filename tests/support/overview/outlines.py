"""What tests of the sources ask of a module: its docstring, functions and imports, parsed once for all that ask."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outline:
    """A module's docstring, its imports, and how many lines each function has; not its tree, which is large."""

    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    functions: tuple[tuple[str, int], ...]


@functools.cache
def outline(text: str) -> Outline:
    """Return the outline of a module's source."""
    tree = ast.parse(text)
    found = list(statements(tree))
    return Outline(
        ast.get_docstring(tree) or "",
        tuple(node for node in found if isinstance(node, ast.Import | ast.ImportFrom)),
        tuple(
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in found
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of a module, those in functions and classes too; no expressions, which are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, field, ())
