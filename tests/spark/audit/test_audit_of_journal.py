"""Test an audit's use of the journal: how far its records prove the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.formats.frame import HEADER_BYTES
from journal.records.journal_headers import FIRST_GROUP, FileHeader
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import Messages
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import JournalEntry, journal_files
from journal.walks.journal_walk import walk_file, walk_journal
from spark.audit.claims.directory import look
from spark.audit.claims.facts import What
from spark.audit.claims.journal_fold import journal_facts
from spark.audit.claims.journal_reader import JournalFile, records, unbroken_from
from spark.audit.claims.journal_reader import journal_files as read_by_audit
from tests.spark.audit.audited import audited, violations
from tests.spark.damages.forger import altered, flip, holding, refold, store_of, write
from tests.spark.world import World


def test_a_send_below_the_checkpoint_is_compared_whole_though_others_follow_it_behind(tmp_path):
    made = World(tmp_path / "data")
    made.put("a", 0, b"before")
    made.put("a", 0, b"to be forged")
    made.checkpoint()
    made.put("a", 0, b"behind")
    path = made.kill()
    assert violations(path) == []
    found = holding(path, "a", 0, b"to be forged")
    write(path, found.segment, found.entry.position, altered(bytes(found.entry.frame), HEADER_BYTES, b"TO"))
    [told] = [fact for fact in violations(path) if fact.kind == "send"]
    assert (told.topic, told.path) == ("a", found.segment)
    assert told.first <= found.entry.offset <= told.last


def test_sends_whose_records_are_damaged_are_not_taken_for_undecided(tmp_path):
    made = World(tmp_path / "data")
    for number in range(10):
        made.put("a", 0, b"sent %d" % number)
    made.checkpoint()
    made.put("a", 0, b"behind the checkpoint")
    made.engine.want_flush(list(made.engine.catalog.stores.values()))
    made.engine.housekeeping.run_inline()
    path = made.kill()
    assert violations(path) == []
    record = [each for each in _sends(path) if each.record.partition == store_of(path, "a").number][3]
    flip(path, record.path, record.position + 20)
    assert {fact.kind for fact in violations(path)} == {"journal"}


def test_a_journal_file_that_goes_away_while_it_is_read_is_a_gap(tmp_path):
    made = World(tmp_path / "data")
    made.among(("a", 0, b"t"), ("orders", 1, b"t"))
    made.put("a", 0, b"sent")
    path = made.close()
    [file] = journal_files(OSFilesystem(path))
    facts = journal_facts(str(path), file, look(str(path)).ground)
    assert next(facts).what != What.GAP
    (path / file).unlink()
    assert What.GAP in {fact.what for fact in facts}


@pytest.mark.parametrize(("checkpoints", "known_then"), [((), 6), ((1,), 5), ((0, 2), 6)])
def test_partitions_that_a_topic_got_later_are_proven_as_others_are(tmp_path, checkpoints, known_then):
    made = World(tmp_path / "data")
    made.put("orders", 0, b"before")
    acts = (
        lambda: made.grow("orders", 5),
        lambda: (made.put("orders", 4, b"sent"), made.among(("orders", 3, b"one"), ("a", 0, b"step"))),
        lambda: (made.grow("quiet", 2), made.put("quiet", 1, b"quiet, later"), made.grow("orders", 6)),
        lambda: made.among(("orders", 5, b"two"), ("orders", 0, b"phases"), end="two"),
    )
    for number, act in enumerate(acts):
        act()
        if number in checkpoints:
            made.checkpoint()
    made.engine.want_flush(list(made.engine.catalog.stores.values()))
    made.engine.housekeeping.run_inline()
    path = made.kill()
    assert violations(path) == []
    known = [index for topic, index in look(str(path)).ground.names.values() if topic == "orders"]
    assert sorted(known) == list(range(known_then))
    if checkpoints:
        found = holding(path, "orders", 4, b"sent")
        forged = altered(bytes(found.entry.frame), HEADER_BYTES, b"S")
        write(path, found.segment, found.entry.position, forged)
        assert {(fact.topic, fact.partition) for fact in violations(path)} == {("orders", 4)}


def test_an_entry_that_waited_at_the_checkpoint_and_is_in_the_journal_since_is_told_once(tmp_path):
    made = World(tmp_path / "data")
    made.among(("a", 0, b"archived"))
    made.checkpoint()
    made.among(("a", 0, b"waited"), ("orders", 1, b"waited"))
    path = made.kill()
    archive = store_of(path, OUTCOMES_TOPIC)
    [waited] = [
        bytes(each.data)
        for each in _sends(path)
        if (each.record.partition, each.record.base_offset) == (archive.number, archive.flushed_offset)
    ]
    refold(path, "archive", lambda rows: [[rows[0][0], rows[0][1] + 1, *rows[0][2:]], *rows[1:], waited])
    entries = [fact.first for fact in audited(path) if fact.what == What.ENTRY]
    assert entries == [0, 1]


def test_records_prove_the_logs_from_behind_the_last_place_where_some_are_missing():
    def file(lsn, start, previous_end):
        header = FileHeader(lsn, start, 0, 0, previous_end) if start else None
        return JournalFile(f"journal/{lsn}", lsn, header)

    whole = [file(10, 1, 1), file(20, 1, 20), file(50, 2, 31)]
    assert [unbroken_from(files) for files in ([], whole[:1], whole)] == [0, 10, 10]
    assert unbroken_from([*whole, file(70, 2, 60), file(80, 2, 80)]) == 70
    assert unbroken_from([*whole, file(70, 4, 51)]) == 70
    assert unbroken_from([*whole, file(70, 0, 0)]) == 70


@pytest.mark.slow
def test_the_audits_own_reader_finds_the_records_that_the_journals_finds(tmp_path):
    """Also of files that are cut, zeroed or turned over anywhere: then both miss records, or neither."""
    made = World(tmp_path / "data")
    for number in range(12):
        made.put("a", 0, b"sent %d" % number)
        made.among(("a", 0, b"t"), ("orders", 1, b"t"))
    path = made.kill()
    filesystem = OSFilesystem(path)
    [file] = read_by_audit(filesystem)
    whole = (path / file.path).read_bytes()
    end = len(whole.rstrip(b"\0"))
    for at in range(FIRST_GROUP, end, 997):
        flipped = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        for damaged in (flipped, whole[:at] + bytes(len(whole) - at)):
            (path / file.path).write_bytes(damaged)
            mine = list(records(filesystem, file, None))
            assert file.header is not None
            others = list(walk_file(filesystem, file.path, file.header))
            entries = [each for each in others if isinstance(each, JournalEntry)]
            assert [each.lsn for each in mine if each] == [each.lsn for each in entries]
            assert [each.record for each in mine if each] == [each.record for each in entries]
            assert (None in mine) == any(not each.harmless for each in others if each not in entries)


def _sends(path: Path) -> list[JournalEntry]:
    """The records of the journal that carry messages of one log."""
    return [
        each
        for each in walk_journal(OSFilesystem(path))
        if isinstance(each, JournalEntry) and isinstance(each.record, Messages)
    ]
