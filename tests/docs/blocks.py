"""The code blocks of the documents: where each stands, in which language, and its text.

docs/contributing.md says what the tests do with a block of each language.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from tests.support.repository import DOCS, ROOT

LANGUAGES = {"python", "sh", "hex", "mermaid", "text", "{toctree}"}
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:\\\n|[^\n])+")


class Block(NamedTuple):
    """A fenced block. ``name`` is what stands behind the language; ``line`` counts from 1."""

    page: str
    line: int
    language: str
    name: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page that a reader may come to."""
    others = [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "packaging").rglob("*.md")),
    ]
    return [*others, *sorted(DOCS.rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    written = page.read_text()
    found = []
    for fence in _FENCE.finditer(written):
        language, _, name = fence[2].strip().partition(" ")
        line = written.count("\n", 0, fence.start()) + 1
        found.append(
            Block(page.relative_to(ROOT).as_posix(), line, language, name, textwrap.dedent(fence[3]))
        )
    return found


def indented(page: Path) -> list[str]:
    """The first lines of blocks that are made by indenting: they have no language, so no test would run them."""
    found, in_list, before = [], False, ""
    for line in _FENCE.sub("", page.read_text()).splitlines():
        if line.strip() and not line.startswith(" "):
            in_list = re.match(r"[-*] |\d+\. ", line) is not None
        elif line.startswith("    ") and not before and not in_list:
            found.append(line)
        before = line.strip()
    return found


def in_language(language: str) -> list[Block]:
    """All blocks of one language."""
    return [block for page in pages() for block in blocks_of(page) if block.language == language]


def commands(block: Block) -> list[str]:
    """The commands of a shell block: a line each, or several that end with a backslash."""
    return [command.replace("\\\n", " ") for command in _COMMAND.findall(block.text) if command.strip()]
