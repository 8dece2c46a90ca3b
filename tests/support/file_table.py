"""Every module and what it owns, as its first line says: ``make files``, or ``python -m tests.support.file_table``."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT

FOLDERS = ("journal", "txbroker", "spark", "pyspark_txbroker", "demo", "benchmarks", "models", "examples")


def rooms() -> Iterator[tuple[Path, list[Path]]]:
    """Each folder with modules in it, and these."""
    for top in FOLDERS:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            yield folder, sorted(folder.glob("*.py"))


@functools.cache
def owned(module: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    said = ast.get_docstring(ast.parse(module.read_text())) or ""
    return said.partition("\n\n")[0].replace("\n", " ")


def lines() -> Iterator[str]:
    """The table, a room after the other."""
    for folder, modules in rooms():
        yield f"{folder.relative_to(ROOT)}/"
        for module in modules:
            if said := owned(module):
                yield f"    {module.name:<28} {said}"
        yield ""


if __name__ == "__main__":
    print("\n".join(lines()))
