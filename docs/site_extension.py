"""What the documentation site needs of Sphinx beside its extensions: help texts, references by public names, lexers.

The directive ``command-help`` shows what ``txbroker COMMAND --help`` prints, for every command: the reference of the
command line has no text of its own. The directive ``room-diagram`` draws which room of the source imports which.
"""

import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from docutils import nodes
from docutils.parsers.rst import Directive
from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

from tests.support.overview.room_diagram import drawn, room_imports
from txbroker import Resolver
from txbroker.cli import command_line
from txbroker.coordinator import Coordinator

WIDTH = 100
PLAIN_BLOCKS = ("hex", "mermaid")
"""Languages of code blocks that are shown as they stand."""

OPERATION = re.compile(r"~?(?:[\w.]+\.)?(?:Coroutine\[.*, ~?None, |Awaitable\[)(.*)\]")
"""The type of an operation, and what it ends with."""


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield the context of the command itself, then those of the commands below it, in the order of the help."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, click.Context(inner, context, name, max_content_width=WIDTH))


class CommandHelp(Directive):
    """One section for each command, with its help as it is printed."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        made: list[nodes.Node] = []
        top = click.Context(command_line, info_name="txbroker", terminal_width=WIDTH, max_content_width=WIDTH)
        for context in commands(command_line, top):
            section = nodes.section(ids=[nodes.make_id(f"help-{context.command_path}")])
            section += nodes.title(text=context.command_path)
            section += nodes.literal_block(text=context.command.get_help(context), language="text")
            made.append(section)
        return made


class RoomDiagram(Directive):
    """The imports between the rooms of the source, drawn as text."""

    def run(self) -> list[nodes.Node]:
        """Return the diagram."""
        text = "\n".join(drawn(room_imports()))
        return [nodes.literal_block(text, text, language="text")]


def refer_by_last_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """Resolve a reference to a class or function by its last name, where exactly one is documented under it.

    A docstring says ``:class:`OutcomeUnknown```, an annotation the module that defines a class, and the reference has
    it under the name by which programs import it. A type in a signature that is not documented (of the standard
    library, or internal) stays plain text. What a docstring refers to must be documented: else Sphinx warns.
    """
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    found = {
        (entry.docname, entry.node_id)
        for name, entry in env.domains.python_domain.objects.items()
        if name.rpartition(".")[2] == last and entry.objtype in ("class", "exception", "function")
    }
    if len(found) == 1:
        [(page, anchor)] = found
        return make_refnode(app.builder, node["refdoc"], page, anchor, content)
    return content if in_signature(node) else None


def shown_signature(
    app: Sphinx,  # noqa: ARG001
    what: str,
    name: str,
    shown: Any,
    options: Any,  # noqa: ARG001
    arguments: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Show of a signature what a program needs.

    The arguments of a class that only this library makes are left out; a program gets its objects from calls. A method
    that all clients share is a coroutine of their core: it is shown with what the client at hand makes of that.
    """
    if what == "class":
        is_made_here = not issubclass(shown, (tuple, dict, msgspec.Struct, Coordinator, Resolver))
        return ("" if arguments and is_made_here else arguments), result
    ends_with = OPERATION.fullmatch(result or "")
    if what == "method" and (ends_with or hasattr(shown, "__wrapped__")):
        return arguments, given_by(name).format(ends_with[1] if ends_with else result)
    return arguments, result


def given_by(name: str) -> str:
    """Return the type that a client gives for an operation, with a place for what the operation ends with."""
    for client, given in (("asyncio", "Future[{}]"), ("twisted", "Deferred[{}]")):
        if name.startswith(f"txbroker.client.{client}."):
            return given
    return "{}"


def link_pages(app: Sphinx, what: str, name: str, shown: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Make links of the pages that a docstring names by their files."""
    lines[:] = [re.sub(r"(`{0,2})docs/(\w+)\.md\1", r":doc:`/docs/\2`", line) for line in lines]


def name_in_full(app: Sphinx, page: nodes.document) -> None:  # noqa: ARG001
    """Give the types in a function's signature the names that its own module has for them.

    Sphinx leaves a signature as it is written where one of its types is imported for type checkers only. Three
    clients have a class ``Connection`` each, and the reference has to lead to the one that is meant. Python's own
    types are no references, or ``bytes`` would lead to an attribute of that name.
    """
    for signature in page.findall(addnodes.desc_signature):
        shown = getattr(sys.modules.get(signature.get("module")), signature.get("fullname", ""), None)
        home = sys.modules.get(getattr(shown, "__module__", ""))
        for reference in signature.findall(addnodes.pending_xref):
            if hasattr(builtins, reference["reftarget"]):
                reference.replace_self(reference.children)
                continue
            kind = getattr(home, reference["reftarget"], None)
            if isinstance(kind, type):
                reference["reftarget"] = f"{kind.__module__}.{kind.__qualname__}"


def in_signature(node: nodes.Node | None) -> bool:
    """Tell whether a node is a part of what autodoc makes of a signature, an annotation or a list of bases."""
    while node is not None:
        if isinstance(node, addnodes.desc_signature):
            return True
        node = node.parent
    return False


def lead_to_the_first_page(app: Sphinx, failure: Exception | None) -> None:
    """Put an ``index.html`` into the folder of the site, whose first page is ``docs/index.html``."""
    if failure is None:
        page = f"<!doctype html><meta http-equiv='refresh' content='0; url={app.config.root_doc}.html'>"
        Path(app.outdir, "index.html").write_text(page)


def setup(app: Sphinx) -> dict[str, Any]:
    """Make all of it known to Sphinx."""
    app.add_directive("command-help", CommandHelp)
    app.add_directive("room-diagram", RoomDiagram)
    app.connect("autodoc-process-signature", shown_signature)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("doctree-read", name_in_full)
    app.connect("missing-reference", refer_by_last_name)
    app.connect("build-finished", lead_to_the_first_page)
    for language in PLAIN_BLOCKS:
        app.add_lexer(language, TextLexer)
    return {"parallel_read_safe": True}
