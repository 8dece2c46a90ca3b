"""Test what proves that messages were sent: the archive, the journal, the checkpoint, or nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from journal.engine.settings import JournalSettings
from journal.formats.frame import HEADER_BYTES
from spark.audit.claims.facts import By, What
from tests.spark.audit.audited import MINUTE, START, audited
from tests.spark.damages.forger import altered, holding, write
from tests.spark.world import World

NO_ARCHIVE = JournalSettings(file_bytes=1 << 20, low_water_bytes=0)


def filled(made: World) -> World:
    """3 messages by sends, 4 by transactions, and the journal of them gone; then 2 by sends and 2 by transactions."""
    made.put("orders", 0, b"old", b"old")
    made.wrapped("orders", 0, b"in a batch")
    made.among(("orders", 0, b"once"), ("a", 0, b"too"))
    made.among(("orders", 0, b"two"), ("orders", 1, b"three"), end="two")
    made.among(("orders", 0, b"never"), end="rollback")
    made.turn_over()
    made.put("orders", 0, b"new", b"new")
    made.among(("orders", 0, b"four"), ("a", 0, b"five"))
    return made


def proofs(path, slice_bytes=20_000):
    """By what how many messages of these topics are proven; those that nobody claims."""
    found: Counter[str] = Counter()
    for fact in audited(path, slice_bytes):
        if fact.topic in ("orders", "a"):
            if fact.what == What.PROOF:
                found[fact.kind] += fact.messages
            elif fact.what == What.WINDOW:
                found["unclaimed"] += fact.checksum
    return +found


@pytest.mark.parametrize("slice_bytes", [100, 20_000])
def test_the_archive_proves_transactions_and_the_journal_the_sends_that_it_still_holds(tmp_path, slice_bytes):
    path = filled(World(tmp_path / "data")).close()
    assert proofs(path, slice_bytes) == {By.ARCHIVE: 6, By.JOURNAL: 2, "unclaimed": 3}


def test_without_an_archive_the_checkpoint_proves_what_the_journal_has_no_more(tmp_path):
    path = filled(World(tmp_path / "data", NO_ARCHIVE)).close()
    assert proofs(path) == {By.CHECKPOINT: 4, By.JOURNAL: 4, "unclaimed": 3}


def test_what_is_not_as_it_was_claimed_is_proven_by_nothing(tmp_path):
    path = filled(World(tmp_path / "data")).close()
    found = holding(path, "orders", 0, b"two")
    forged = altered(bytes(found.entry.frame), HEADER_BYTES, b"TWO")
    write(path, found.segment, found.entry.position, forged)
    assert proofs(path) == {By.ARCHIVE: 5, By.JOURNAL: 2, "unclaimed": 3}


def test_windows_say_how_many_of_their_messages_nobody_claims(tmp_path):
    made = World(tmp_path / "data")
    made.put("orders", 0, b"old")
    made.turn_over()
    made.time = START + 10 * MINUTE
    made.put("orders", 0, b"new")
    made.wrapped("orders", 0, b"in", b"a batch")
    rows = [
        (fact.messages, fact.checksum) for fact in audited(made.close())
        if fact.what == What.WINDOW and fact.topic == "orders"
    ]  # fmt: skip
    assert rows == [(1, 1), (3, 0)]
