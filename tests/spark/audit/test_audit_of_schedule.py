"""Test an audit of scheduled messages: each ``Due`` proves what it has placed, as a send does."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from journal.formats.frame import HEADER_BYTES
from journal.records.record import Due
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.spark.audit.audited import violations
from tests.spark.damages.forger import altered, flip, holding, rerecord, write
from tests.spark.world import World


def scheduled(path: Path) -> World:
    """Messages were placed in two topics before and behind a checkpoint, some wait, and one was taken back."""
    made = World(path)
    for number in range(4):
        made.log.schedule("a" if number % 2 else "orders", b"due %d" % number, after=0.0)
    made.put("a", 0, b"between")
    made.log.fire_due()
    made.log.schedule("a", b"waits", after=3600.0)
    taken = made.log.schedule("a", b"taken back", after=3600.0)
    made.log.cancel(taken)
    made.checkpoint()
    made.log.schedule("a", b"last", after=0.0)
    made.log.fire_due()
    return made


@pytest.mark.parametrize("ends", [World.kill, World.close])
def test_a_directory_with_placed_messages_audits_clean(tmp_path, ends):
    assert violations(ends(scheduled(tmp_path / "data"))) == []


def test_a_placed_message_that_is_another_in_its_log_is_a_violation(tmp_path):
    made = scheduled(tmp_path / "data")
    made.engine.want_flush(list(made.engine.catalog.stores.values()))
    made.engine.housekeeping.run_inline()
    made.checkpoint()
    path = made.kill()
    found = holding(path, "a", 0, b"due 1")
    write(path, found.segment, found.entry.position, altered(bytes(found.entry.frame), HEADER_BYTES, b"DUE"))
    told = violations(path)
    assert ("send", "a") in {(fact.kind, fact.topic) for fact in told}
    assert any(fact.first <= found.entry.offset <= fact.last for fact in told if fact.kind == "send")


def test_a_due_that_is_damaged_proves_nothing(tmp_path):
    made = scheduled(tmp_path / "data")
    made.put("a", 0, b"behind")  # a last record that is damaged looks as if it had not been written whole
    path = made.kill()
    entries = [each for each in walk_journal(OSFilesystem(path)) if isinstance(each, JournalEntry)]
    due = next(each for each in entries if isinstance(each.record, Due))
    flip(path, due.path, due.position + 20)
    assert {fact.kind for fact in violations(path)} == {"journal"}


def test_a_forged_due_is_a_violation(tmp_path):
    path = scheduled(tmp_path / "data").kill()

    def moved(due):
        first, *others = due.placements
        return replace(due, placements=[replace(first, base_offset=first.base_offset + 1), *others])

    rerecord(path, lambda each: isinstance(each, Due), moved)
    assert {fact.kind for fact in violations(path)} & {"journal", "send"}
