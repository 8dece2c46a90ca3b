"""Test read-only walks: they return what was written, name every damage, and change nothing.

Seen to fail: with either checksum not compared, the tests of flipped bits; with `end` ignored, that of the log beyond
the checkpoint; with a walk that opens files for writing, the last one.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from journal import check
from journal.check import FileKind, Finding, FrameEntry, JournalEntry, walk_any
from journal.checkpoints.rows import typed_rows
from journal.engine.settings import JournalSettings
from journal.formats import filenames
from journal.records.record import Mark, Messages, Started, TopicCreated, TransactionCommitted
from journal.testing import Fault, FaultFilesystem, FaultPlan, Operation
from journal.transaction_states import Cause
from journal.walks import findings
from tests.support.builders import Place, frames, number, totals
from tests.support.damage.forged_records import scene
from tests.support.engine_room import checkpoint_path
from txbroker.cli.directory.dump_lines import line_json

RUN = frames(b"a", b"b")


@pytest.fixture
def place():
    """Four messages in partition 1, two of them by a transaction, and a checkpoint that has flushed them."""
    place = Place(JournalSettings(file_bytes=1 << 18, low_water_bytes=0))
    store = place.engine.catalog.stores[1]
    place.engine.append(store, RUN, 2)
    place.transactions.add(number(1), 1, RUN, 2)
    place.transactions.commit(number(1), Cause.CLIENT, totals(RUN))
    place.engine.sync()
    place.checkpoint()
    return place


def segment_path(place):
    [(_, directory)] = [each for each in check.partitions(place.filesystem) if each[0].number == 1]
    [(_, path)] = check.segments(place.filesystem, directory)
    return path


def flip(place, path, position):
    file = place.filesystem.open(path)
    [byte] = file.read(position, 1)
    file.write_some(position, [bytes([byte ^ 0x10])])


@given(st.binary(max_size=2000), st.integers(0, 0xFFFFFFFF))
def test_both_implementations_of_the_checksum_agree(data, seed):
    assert check.second_crc32c(data, seed) == crc32c(data, seed)


def test_where_they_do_not_it_is_told_of_the_groups_and_records_concerned(place, monkeypatch):
    def wrong_of_the_third(data, seed=0):
        return check.second_crc32c(data, seed) ^ (1 if data == third else 0)

    entries = list(check.walk_journal(place.filesystem))
    rest = entries[2]
    file = place.filesystem.open(rest.path)
    third = file.read(rest.position + 8, rest.length - 8)
    monkeypatch.setattr(findings, "second_crc32c", wrong_of_the_third)
    found = list(check.walk_journal(place.filesystem))
    told = [each for each in found if isinstance(each, check.Finding)]
    assert [(each.position, each.problem) for each in told] == [
        (rest.position, f"the two implementations disagree on the checksum of LSN {rest.lsn}")
    ]
    assert len(found) == len(entries) + 1


def test_the_journal_is_walked_in_order_with_the_data_of_each_record(place):
    entries = list(check.walk_journal(place.filesystem))
    assert all(isinstance(entry, JournalEntry) for entry in entries)
    kinds = [type(entry.record) for entry in entries]
    assert kinds[:3] == [Started, TopicCreated, Messages]
    assert TransactionCommitted in kinds
    assert kinds[-1] is Mark
    assert [entry.lsn for entry in entries] == list(range(entries[0].lsn, entries[0].lsn + len(entries)))
    assert len(bytes(entries[2].data)) == len(RUN)
    assert [e.lsn for e in check.walk_journal(place.filesystem, entries[3].lsn)] == [
        e.lsn for e in entries[3:]
    ]


def test_each_record_is_found_at_the_position_that_is_told(place):
    data = place.filesystem.open(check.journal_files(place.filesystem)[0]).read(0, 1 << 18)
    for entry in check.walk_journal(place.filesystem):
        length = int.from_bytes(data[entry.position : entry.position + 4], "big")
        assert data[entry.position + length - len(entry.data) : entry.position + length] == bytes(entry.data)


def test_a_walk_goes_on_over_files_and_starts(place):
    before = len(list(check.walk_journal(place.filesystem)))
    place.restart()
    entries = list(check.walk_journal(place.filesystem))
    assert len(check.journal_files(place.filesystem)) == 2
    assert len(entries) == before + 1
    assert isinstance(entries[-1].record, Started)


def test_the_frames_of_a_segment_have_dense_offsets(place):
    found = list(check.walk_segment(place.filesystem, segment_path(place), 0))
    assert [(f.offset, f.messages) for f in found] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert all(isinstance(frame, FrameEntry) for frame in found)


def test_a_frame_larger_than_one_read_is_walked_whole(place):
    big = frames(bytes(3 << 20), b"after")
    place.engine.append(place.engine.catalog.stores[2], big, 2)
    place.engine.sync()
    place.checkpoint()
    directory = filenames.partition_directory("t", 1, 2)
    [(base, path)] = check.segments(place.filesystem, directory)
    assert [frame.messages for frame in check.walk_segment(place.filesystem, path, base)] == [1, 1]


def test_a_sound_directory_has_no_findings(place):
    assert list(check.verify(place.filesystem)) == []
    place.restart()
    assert list(check.verify(place.filesystem)) == []


def test_every_flipped_bit_of_a_segment_is_found_and_the_file_is_named(place):
    path = segment_path(place)
    for position in range(place.filesystem.open(path).size()):
        flip(place, path, position)
        findings = list(check.verify(place.filesystem))
        assert findings, f"byte {position}"
        assert {finding.path for finding in findings} == {path}
        assert not any(finding.harmless for finding in findings)
        flip(place, path, position)
    assert list(check.verify(place.filesystem)) == []


def test_every_flipped_bit_of_a_proven_group_is_found_at_the_group(place):
    path = check.journal_files(place.filesystem)[0]
    first = next(check.walk_journal(place.filesystem))
    second = list(check.walk_journal(place.filesystem))[1]
    for position in range(first.position, first.position + 20):
        flip(place, path, position)
        [finding] = check.verify(place.filesystem)
        assert (finding.path, finding.harmless) == (path, False)
        assert finding.position < second.position
        assert "had been forced" in finding.problem
        flip(place, path, position)


def test_the_torn_end_of_the_journal_is_told_to_be_harmless(place):
    place.engine.append(place.engine.catalog.stores[2], RUN, 2)
    place.engine.append(place.engine.catalog.stores[2], RUN, 2)
    place.engine.sync()
    last = list(check.walk_journal(place.filesystem))[-1]
    flip(place, last.path, last.position + 20)
    [finding] = check.verify(place.filesystem)
    assert (finding.path, finding.harmless) == (last.path, True)


def test_a_missing_segment_is_named_with_its_offsets(place):
    place.filesystem.unlink(segment_path(place))
    [finding] = check.verify(place.filesystem)
    assert (finding.affects.first_offset, finding.affects.last_offset) == (0, 3)


def test_a_segment_that_is_too_short_is_found(place):
    path = segment_path(place)
    place.filesystem.open(path).truncate(len(RUN))
    assert [finding.path for finding in check.verify(place.filesystem)] == [path]


def test_what_was_flushed_after_the_checkpoint_is_not_judged(place):
    path = segment_path(place)
    file = place.filesystem.open(path)
    file.write_some(file.size(), [b"torn"])
    assert list(check.verify(place.filesystem)) == []
    assert isinstance(list(check.walk_segment(place.filesystem, path, 0))[-1], Finding)


def test_a_damaged_checkpoint_is_harmless_beside_a_sound_one(place):
    place.checkpoint()
    names = place.filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
    flip(place, f"{filenames.CHECKPOINT_DIRECTORY}/{names[0]}", 20)
    assert [finding.harmless for finding in check.verify(place.filesystem)] == [True]
    flip(place, f"{filenames.CHECKPOINT_DIRECTORY}/{names[1]}", 20)
    assert len(list(check.checkpoints(place.filesystem))) == 2


def test_a_damaged_file_header_is_found_and_the_other_files_are_walked_on(place):
    place.restart()
    path = check.journal_files(place.filesystem)[0]
    for copy in (0, 4096):
        flip(place, path, copy + 20)
    finding, *rest = check.walk_journal(place.filesystem)
    assert (finding.path, "both copies" in finding.problem) == (path, True)
    assert [type(entry.record) for entry in rest] == [Started]


def test_nothing_is_ever_written(place):
    forbidden = [
        Fault(kind, times=1 << 30) for kind in (Operation.WRITE, Operation.TRUNCATE, Operation.RENAME)
    ]
    readonly = FaultFilesystem(place.filesystem, FaultPlan(forbidden))
    assert list(check.verify(readonly)) == []
    assert list(check.walk_journal(readonly))
    assert readonly.plan.counts[Operation.WRITE] == 0


def test_the_rows_of_a_checkpoint_are_dumped_with_the_names_of_their_fields():
    at = scene(checkpoint=True)
    path = checkpoint_path(at.room.checkpoints()[-1])
    lines = [line_json(each) for each in walk_any(at.room.inner, path, FileKind.CHECKPOINT)]
    rows = {line["fold"]: line["rows"] for line in lines if line["section"] == "Rows"}
    assert rows["catalog"][0] == {"next_partition": 3, "wall_offset": rows["catalog"][0]["wall_offset"]}
    [undecided, *_] = rows["transactions"][1:]
    assert (undecided["number"], undecided["xid"]) == (str(at.prepared), "1:p:")
    assert undecided["entries"][0]["partition"] == 1
    assert rows["groups"][1]["name"] == "g"
    assert "number" in rows["starts"][0]


def test_rows_that_their_fold_does_not_know_are_dumped_as_they_are():
    assert typed_rows("starts", [[1, b"n" * 16], ["another form"]])[1] == ["another form"]
    assert typed_rows("a fold of somebody else", [[1, 2]]) == [[1, 2]]
