"""The findings of a verification or a repair, for people. All of it is pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from journal.check import Finding
from txbroker.cli.output import UNCUT, table, visible

_ROOM = {"file": UNCUT, "affects": UNCUT, "what": 44, "why": 44}
"""The least width of a file name's and a sentence's column: with less there are paragraphs instead of a table."""


def findings_shown(findings: Sequence[Finding], empty: str) -> RenderableType:
    """Return a table, or a paragraph for each."""
    rows = [(f.path, f.position, severity(f), f.problem, str(f.affects) or None) for f in findings]
    narrow = [
        _paragraph(
            f"{severity(f)}: {f.path} at byte {f.position:,}",
            [f.problem, f"affects {f.affects}" if str(f.affects) else ""],
        )
        for f in findings
    ]
    return table(("file", "byte", "damage", "what", "affects"), rows, empty, narrow, _ROOM)


def severity(finding: Finding) -> str:
    """Return how bad a finding is, in a word or two."""
    if finding.unreadable:
        return "UNREADABLE"
    return "no damage" if finding.harmless else "DAMAGED"


def changes_shown(changes: Sequence[tuple[str, str, str]]) -> RenderableType:
    """Return (file, action, why) of a repair's changes, as a table or paragraphs."""
    narrow = [_paragraph(f"{action}: {file}", [why]) for file, action, why in changes]
    return table(("file", "action", "why"), changes, "no file", narrow, _ROOM)


def _paragraph(first: str, rest: Sequence[str]) -> RenderableType:
    below = Text("\n".join(visible(line) for line in rest if line))
    return Group(Text(visible(first)), Padding(below, (0, 0, 0, 2)))
