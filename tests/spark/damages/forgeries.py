"""The tables of forgeries in docs/spark.md: what is changed with valid checksums, and what finds it, or why nothing
does.

``python -m tests.spark.damages.forgeries`` does each of them to a directory, and writes the tables anew. Each test of
a damage
looks into its table for what must find it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tests.support.repository import DOCS

PAGE: Final = DOCS / "spark.md"
HEAD: Final = "| found | by what, or why not | what is done, each by itself |\n|---|---|---|\n"
Row = tuple[str, str]
"""The kind of what finds a damage ("" if nothing does), and by what, or why not."""


class Table(NamedTuple):
    """One table: the line above it, the tests of its damages, and by the kind of a finding what has found it."""

    title: str
    modules: tuple[str, ...]
    by: dict[str, str]
    not_found: Mapping[str, Row] = MappingProxyType({})
    """By the test that shows it: what nothing finds, and why."""


_RECORDS: Final = "the newest checkpoint against what the records of the journal lead to"
_EACH_OTHER: Final = "the records of the journal against each other"

TABLES: Final = (
    Table(
        "To messages and outcomes",
        ("forged", "outcomes"),
        {
            "archive": "the outcome archive against the journal, or against itself",
            "checkpoint": "the newest checkpoint against the outcome archive, or against the records of the journal",
            "damaged frame": "the form of frames, whose checksum says nothing of it",
            "rolled back": "what the archive says of the transaction that had just these bytes",
            "send": "the record of the send in the journal",
            "shifted": "claims behind it, which are fulfilled at other offsets",
            "time": "the time itself: a notice, for a broker takes it",
            "torn": "the checkpoint, which does not know it: a notice, for a crash may leave it so",
            "transaction": "the claim of the transaction's entry in the archive",
            "undecided": "no record and no transaction decides what stands there",
        },
        {
            "test_another_value_in_a_send_that_no_journal_holds_any_more": (
                "another value in a message outside of transactions whose record the journal no longer holds",
                "nobody has said what was sent: `--reports` and `--expect` are for that",
            ),
            "test_committed_messages_once_more_where_such_sends_stand": (
                "committed messages once more, where such sends stand",
                "nobody has said how many there are",
            ),
            "test_such_sends_that_are_gone_from_the_end_of_a_log_as_from_all_checkpoints": (
                "such sends are gone from the end of a log, and all checkpoints were changed with it",
                "nobody has said that they were there",
            ),
        },
    ),
    Table(
        "To what producers sent last, and to groups' positions and claims",
        ("clients",),
        {"checkpoint": _RECORDS, "journal": _EACH_OTHER},
    ),
    Table(
        "To a young directory, whose journal goes back to its first record",
        ("young",),
        {
            "archive": "the outcome archive against the journal",
            "checkpoint": f"{_RECORDS}, the form of the file, or that none is left (a file of nobody is a notice)",
            "damaged frame": "the segment's file, which cannot be read as one",
            "journal": _EACH_OTHER,
            "witness": "the file itself, which cannot be read",
        },
    ),
    Table(
        "To a checkpoint's rows and to files",
        ("rows",),
        {
            "checkpoint": "the form of the row, or of the file",
            "damaged frame": "the segment's file, which cannot be read as one",
            "partition": "the newest checkpoint, which says what a log has (a notice where a crash leaves it so)",
        },
    ),
    Table(
        "To a write of Spark",
        ("decisions",),
        {
            "decision": "the decisions in `spark.decisions` against the ends of the branches that archive, journal and "
            "checkpoint tell (a notice as long as it may end well, and where an operator has forgotten it)"
        },
        {
            "test_of_what_ended_before_the_oldest_decision_that_is_kept_nothing_is_told": (
                "a branch was committed that no decision listed, before the oldest decision that retention has kept",
                "a decision that is gone may have listed it",
            ),
        },
    ),
)  # fmt: skip


@cache
def documented() -> dict[str, Row]:
    """Of all tables: by what is done, what finds it."""
    return {what: row for table in TABLES for what, row in documented_in(table).items()}


def documented_in(table: Table) -> dict[str, Row]:
    """Of one table."""
    text = PAGE.read_text().partition(_before(table))[2].partition("\n\n")[0]
    lines = re.findall(r"^\| (?:\*(.+?)\*|no) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {what: (kind, why) for kind, why, those in lines for what in those.split("; ")}


def rows(table: Table, kinds: dict[str, str]) -> dict[str, Row]:
    """The rows as they are to be, from what has found each damage."""
    found = {what: (kind, table.by[kind]) for what, kind in kinds.items()}
    return found | {what: ("", why) for what, why in table.not_found.values()}


def written(rows: dict[str, Row]) -> str:
    """A table as it stands in the document, what is found in the same way in one row."""
    lines = [
        f"| {f'*{kind}*' if kind else 'no'} | {why} | {'; '.join(_of(rows, (kind, why)))} |"
        for kind, why in sorted(set(rows.values()), key=lambda row: (not row[0], row))
    ]
    return HEAD + "\n".join(lines)


def _of(rows: dict[str, Row], wanted: Row) -> Iterable[str]:
    return (what for what, row in rows.items() if row == wanted)


def _before(table: Table) -> str:
    return f"{table.title}:\n\n{HEAD}"


def tests_of(table: Table) -> list[Any]:
    """Its modules."""
    return [import_module(f"tests.spark.damages.test_damages_{name}") for name in table.modules]


def _kinds(table: Table, place: Path) -> dict[str, str]:
    """What has found each damage, done one by one."""
    kinds = {}
    for module in tests_of(table):
        make: Callable[[Path], Path] | None
        make = getattr(module, "filled", getattr(module, "everything", None))
        sound = None if make is None else make(place / module.__name__)
        for name in module.damage.done:
            data = place / "data"
            if sound is not None:
                shutil.copytree(sound, data)
            kinds[name] = module.damage.kind(name, data)
            shutil.rmtree(data)
    return kinds


def main() -> None:
    """Write the tables anew."""
    text = PAGE.read_text()
    for table in TABLES:
        with tempfile.TemporaryDirectory() as place:
            made = written(rows(table, _kinds(table, Path(place))))
        before, found, rest = text.partition(_before(table))
        assert found, f"docs/spark.md has no table under {table.title!r}"
        text = before + _before(table).removesuffix(HEAD) + made + rest[rest.index("\n\n") :]
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
