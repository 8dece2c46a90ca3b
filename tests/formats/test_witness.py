"""Test the witness of the journal's end: the end cannot be lost unnoticed, and no crash makes the witness wrong.

Seen to fail: with the witness not asked, a removed newest file and an end of zeros pass for what never was; with it
written before the force that it tells of, a power cut is refused; with its checksum not compared, a turned bit.
"""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.check import Level, verify
from journal.constants import BLOCK
from journal.errors import CorruptJournal, UnprovenLog
from journal.formats import filenames
from journal.formats.witness import (
    WITNESS_INTERVAL,
    Witness,
    pack_witness,
    read_witness,
    unpack_witness,
    write_witness,
)
from journal.records.journal_headers import FIRST_GROUP
from journal.repair import diagnose, execute
from journal.testing import Fault, ManualClock, MemoryFilesystem, Operation
from journal.vfs.filesystem import write_fully
from tests.support.engine_room import SMALL, Room, checkpoint_path, damage, journal_path

NUMBERS = st.integers(0, (1 << 64) - 1)


@given(st.builds(Witness, NUMBERS, NUMBERS, NUMBERS, st.integers(0, (1 << 32) - 1)))
def test_what_was_packed_is_unpacked(witness):
    assert unpack_witness(pack_witness(witness)) == witness


def test_no_turned_bit_and_no_missing_byte_passes():
    packed = pack_witness(Witness(1 << 36, (1 << 36) + 5, 7, 0xCAFE))
    for bit in range(8 * len(packed)):
        turned = bytearray(packed)
        turned[bit // 8] ^= 1 << bit % 8
        assert unpack_witness(bytes(turned)) is None
    for length in range(len(packed)):
        assert unpack_witness(packed[:length]) is None
    assert unpack_witness(bytes(len(packed))) is None


def test_it_lies_in_one_sector_so_no_crash_leaves_a_mixture():
    assert len(pack_witness(Witness(1, 1, 1, 1))) < 512


def test_it_is_durable_when_it_was_asked_to_be():
    disk = MemoryFilesystem()
    write_witness(disk, Witness(1, 2, 3, 4), durably=True)
    assert read_witness(disk.crash_clone(0, survive=0)) == Witness(1, 2, 3, 4)


# -- in an engine ---------------------------------------------------------------------------------------------------


def worked():
    """An engine that has had the time to say how far it is."""
    room = Room()
    room.topic()
    room.send(b"0")
    room.send(b"1")
    passed(room)
    return room


def passed(room, microseconds=WITNESS_INTERVAL):
    room.clock.advance(microseconds)
    room.engine.housekeeping.run_inline()


def refused(disk, text):
    with pytest.raises(CorruptJournal, match=text) as caught:
        Room(disk)
    return caught.value


def test_a_newest_file_that_somebody_removed_is_missed_though_nothing_in_the_journal_tells_of_it():
    room = worked().stopped()
    room.send(b"2")
    disk = room.inner.crash_clone(0)
    path = journal_path(room.journals()[-1])
    disk.unlink(path)
    error = refused(disk, "is missing, though witness says that it was there")
    assert error.path == path


def test_a_journal_that_somebody_removed_is_missed_though_nothing_else_is_there_yet():
    room = worked()
    disk = room.inner.crash_clone(0)
    disk.unlink(journal_path(room.journals()[0]))
    refused(disk, "there is no journal file")


@pytest.mark.parametrize("kept", range(3))
def test_an_end_of_zeros_is_not_taken_for_a_tear(kept):
    room = worked()
    disk = room.inner.crash_clone(0)
    path = journal_path(room.journals()[0])
    position = FIRST_GROUP + (1 + kept) * 4096
    damage(disk, path, position, bytes(32 * 1024))
    error = refused(disk, "witness says that all up to LSN")
    assert (error.path, error.position) == (path, position)


def rushed():
    """Five sends, each forced in a group of its own, since the witness was written for the last time."""
    room = Room()
    room.topic()
    passed(room)
    before = room.engine.forced_lsn
    ends = [end_of_journal(room)]
    for number in range(5):
        room.send(b"%d" % number)
        ends.append(end_of_journal(room))
    assert read_witness(room.inner).forced == before
    return room, ends


def end_of_journal(room):
    """Where the next group goes, by the bytes of the newest file."""
    file = room.inner.open(journal_path(room.journals()[-1]))
    data = file.read(0, file.size()).rstrip(b"\0")
    return -(-len(data) // BLOCK) * BLOCK


@pytest.mark.parametrize("kept", range(6))
def test_groups_of_the_last_second_that_read_as_zeros_are_lost_in_silence_from_there_on_and_no_others(kept):
    room, ends = rushed()
    disk = room.inner.kill_clone()
    file = disk.open(journal_path(room.journals()[-1]))
    write_fully(file, ends[kept], [bytes(file.size() - ends[kept])])
    file.force()
    after = Room(disk)
    assert after.values() == [b"%d" % number for number in range(kept)]
    assert after.engine.report.notes == []


@pytest.mark.parametrize("kept", range(6))
def test_a_file_that_was_cut_in_the_last_second_is_refused_for_its_size(kept):
    room, ends = rushed()
    disk = room.inner.kill_clone()
    disk.open(journal_path(room.journals()[-1])).truncate(ends[kept])
    refused(disk, "with which it was begun")


@pytest.mark.parametrize("kept", range(6))
def test_a_file_that_was_begun_without_room_prepared_loses_its_last_second_to_a_cut_in_silence(kept):
    room = Room()
    room.topic(partitions=2)
    room.inner.unlink(filenames.SPARE_NEXT) if room.inner.exists(filenames.SPARE_NEXT) else None
    while len(room.journals()) < 2:
        room.send(b"v" * 20_000, number=2)
    passed(room)
    ends = [end_of_journal(room)]
    for number in range(5):
        room.send(b"%d" % number)
        ends.append(end_of_journal(room))
    disk = room.inner.kill_clone()
    disk.open(journal_path(room.journals()[-1])).truncate(ends[kept])
    after = Room(disk)
    assert after.values() == [b"%d" % number for number in range(kept)]
    assert after.engine.report.notes == []


@pytest.mark.parametrize("kept", range(5))
def test_groups_of_the_last_second_whose_messages_are_in_a_segment_are_missed_by_it(kept):
    room, ends = rushed()
    room.flush()
    assert read_witness(room.inner).forced < room.engine.forced_lsn
    disk = room.inner.kill_clone()
    file = disk.open(journal_path(room.journals()[-1]))
    write_fully(file, ends[kept], [bytes(file.size() - ends[kept])])
    with pytest.raises(UnprovenLog) as caught:
        Room(disk)
    assert (caught.value.first_offset, caught.value.last_offset) == (kept, 4)


def test_a_checkpoint_that_somebody_removed_is_made_up_for_and_told():
    room = worked()
    room.checkpoint()
    room.send(b"2")
    room.checkpoint()
    disk = room.inner.crash_clone(0)
    lost = checkpoint_path(room.checkpoints()[-1])
    disk.unlink(lost)
    after = Room(disk)
    assert after.values() == [b"0", b"1", b"2"]
    assert any(f"{lost} is missing" in note for note in after.engine.report.notes)


@pytest.mark.parametrize("how", ["missing", "empty", "a bit turned"])
def test_without_it_the_start_goes_on_and_tells(how):
    disk = worked().inner.crash_clone(0)
    if how == "missing":
        disk.unlink(filenames.WITNESS)
    elif how == "empty":
        disk.open(filenames.WITNESS).truncate(0)
    else:
        damage(disk, filenames.WITNESS, 20)
    after = Room(disk)
    assert after.values() == [b"0", b"1"]
    assert "witness is missing or damaged" in after.engine.report.notes[0]
    assert Room(after.inner.crash_clone(0)).engine.report.notes == []


def test_it_is_written_after_a_checkpoint_and_else_at_most_once_an_interval():
    room = worked()
    before = room.plan.counts[Operation.WRITE]
    for _ in range(5):
        room.accept(b"x")
        room.engine.sync()
        passed(room, WITNESS_INTERVAL // 10)
    assert room.plan.counts[Operation.WRITE] == before + 5, "the groups alone"
    assert read_witness(room.inner).forced < room.engine.forced_lsn
    room.checkpoint()
    assert read_witness(room.inner).checkpoint == room.checkpoints()[-1]
    room.send(b"y")
    passed(room)
    assert read_witness(room.inner).forced == room.engine.forced_lsn
    writes = room.plan.counts[Operation.WRITE]
    passed(room)
    assert room.plan.counts[Operation.WRITE] == writes, "nothing new, nothing to say"


def test_it_never_says_more_than_is_on_the_disk():
    room = worked()
    for seed in range(30):
        room.accept(b"x" * (100 * seed))
        group = room.engine.take()
        passed(room)
        room.engine.journal.write(group)
        passed(room)
        after = room.crashed(seed, survive=[0.0, 0.5, 1.0][seed % 3])
        assert len(after.values()) >= len(room.values())
        room.engine.journal.force()
        room.engine.publish(group)
        passed(room)
        assert room.crashed(seed).values() == room.values()


def test_on_a_full_disk_there_is_none_and_that_is_no_failure():
    room = worked()
    room.plan.faults.append(Fault(Operation.WRITE, path=filenames.WITNESS, error=errno.ENOSPC, times=100))
    room.send(b"x")
    passed(room)
    assert not room.engine.failed
    room.send(b"goes on")


# -- of another data directory ---------------------------------------------------------------------------------------


def twins(checkpoint=True):
    """Two directories with the same history but for their values: every number in them is the same."""
    rooms = []
    for value in (b"mine", b"theirs"):
        room = Room()
        room.topic("t")
        room.send(value * 10)
        if checkpoint:
            room.checkpoint()
        room.send(value * 20)
        rooms.append(room.inner.kill_clone())
    return rooms


def transplant(source, target, *directories):
    for directory in directories:
        for name in target.list_directory(directory):
            target.unlink(f"{directory}/{name}")
        for name in source.list_directory(directory):
            data = source.open(f"{directory}/{name}").read(0, 1 << 20)
            write_fully(target.open(f"{directory}/{name}", create=True), 0, [data])


@pytest.mark.parametrize(
    ("checkpoint", "witness"), [(True, "mine"), (True, "theirs"), (True, "none"), (False, "mine")]
)
def test_a_journal_of_another_data_directory_is_refused_though_every_number_fits(checkpoint, witness):
    """It was replayed onto what was here: wrong messages at offsets that had been acknowledged."""
    mine, theirs = twins(checkpoint)
    transplant(theirs, mine, "journal")
    if witness == "theirs":
        transplant_witness(theirs, mine)
    elif witness == "none":
        mine.unlink(filenames.WITNESS)
    before = mine.kill_clone()
    with pytest.raises(CorruptJournal, match=r"is of another data directory than (witness|checkpoints/)"):
        Room(mine)
    assert [f for f in verify(before, Level.QUICK) if "of another data directory" in f.problem]


def transplant_witness(source, target):
    write_witness(target, read_witness(source))


def test_a_witness_of_another_data_directory_is_told_and_written_anew():
    mine, theirs = twins()
    transplant_witness(theirs, mine)
    room = Room(mine)
    assert any("witness is of another data directory" in note for note in room.engine.report.notes)
    assert room.engine.journal.salt == read_witness(mine).salt


def test_a_repair_takes_a_journal_of_another_data_directory_for_none():
    mine, theirs = twins()
    transplant(theirs, mine, "journal")
    diagnosis = diagnose(mine)
    assert any(change.path.startswith("journal/") and change.pieces is None for change in diagnosis.changes)
    assert diagnosis.lost
    execute(mine, ManualClock(), mine.lock(filenames.LOCK), diagnosis, SMALL)
    room = Room(mine.kill_clone())
    assert [bytes(m) for m in room.values(1)] == [b"mine" * 10]


def test_of_checkpoints_that_are_gone_the_start_says_so_and_blames_no_journal_file():
    """The operator was sent to look for a journal file that had gone two checkpoints ago."""
    room = Room()
    room.topic("t")
    for _ in range(3):
        for _ in range(4):
            room.send(b"x" * 40_000)
        room.checkpoint()
    disk = room.inner.kill_clone()
    newest = max(room.checkpoints())
    for lsn in room.checkpoints():
        disk.unlink(filenames.checkpoint_file(lsn))
    path = filenames.checkpoint_file(newest)
    expected = f"^{path} is missing or damaged, though witness says .* Restore the checkpoint"
    with pytest.raises(CorruptJournal, match=expected):
        Room(disk)
