"""Test writing the journal's files: groups on blocks, rolls, forces, poison, spares, and reading back.

Seen to fail: with the old file not forced at a roll a cut loses what was acknowledged before it; with a failed force
forgotten the next write "succeeds"; with the group's place noted before it is written a reader finds the old one.
"""

import errno
import os

import pytest

from journal.constants import BLOCK, GROUP_BYTES, MIB
from journal.errors import CorruptJournal, JournalPoisoned
from journal.formats import filenames
from journal.formats.filenames import JOURNAL_DIRECTORY, SPARE_NEXT, journal_file
from journal.records import record
from journal.records.journal_headers import FIRST_GROUP, unpack_file_header
from journal.records.record import Mark
from journal.testing import Fault, FaultFilesystem, FaultPlan, MemoryFilesystem, Operation
from journal.vfs.filesystem import OSFilesystem
from journal.vfs.force_calls import FORCING, WRITING
from journal.wal.writer import ALONE_BYTES, RECYCLED_FILES, Forced, Journal, JournalGroup
from tests.support.journal_bytes import lsns_of, scan_of

START, SALT, FIRST = 3, 0xC0FFEE, 1 << 36
FILE_BYTES = 16 * BLOCK


class Writer:
    """A journal with what an engine does to it: groups of MARKs with data, numbered on."""

    def __init__(self, filesystem=None, file_bytes=FILE_BYTES, **faults):
        self.memory = filesystem or MemoryFilesystem()
        if filesystem is None:
            self.memory.make_directory(JOURNAL_DIRECTORY)
            self.memory.force_directory("")
        self.plan = FaultPlan(**faults)
        self.filesystem = FaultFilesystem(self.memory, self.plan)
        self.journal = Journal(self.filesystem, file_bytes)
        self.journal.open_first(START, SALT, FIRST, 1)
        self.next = FIRST
        self.forced = FIRST - 1

    def group(self, *sizes):
        group = JournalGroup(self.next, self.forced)
        for size in sizes:
            data = bytes([self.next % 251]) * size
            packed = record.pack(Mark(self.next), data, record.seed(SALT, self.next))
            group.pieces += [packed, data] if size else [packed]
            group.length += len(packed) + size
            group.count += 1
            self.next += 1
        return group

    def write(self, *sizes):
        group = self.group(*sizes)
        self.journal.write(group)
        return group

    def write_and_force(self, *sizes):
        self.write(*sizes)
        self.force()

    def roll(self, size=3 * BLOCK):
        """Write until the next file has begun."""
        before = self.newest
        while self.newest == before:
            self.write(size)

    @property
    def newest(self):
        return files(self.memory)[-1][0].first_lsn

    def force(self):
        self.journal.force()
        self.forced = self.next - 1


def files(filesystem):
    found = []
    for name in filesystem.list_directory(JOURNAL_DIRECTORY):
        first = filenames.parse_journal_file(name)
        if first is not None:
            file = filesystem.open(journal_file(first))
            data = file.read(0, file.size())
            found.append((unpack_file_header(data, name), data))
    return found


def lsns(filesystem):
    """What recovery would find, file by file."""
    headers = files(filesystem)
    ends = [header.previous_end for header, _ in headers[1:]] + [None]
    return [
        lsn for (header, data), end in zip(headers, ends, strict=True) for lsn in lsns_of(data, header, end)
    ]


def forces(writer):
    return writer.plan.counts[Operation.FORCE]


def test_what_was_written_is_found_and_groups_begin_on_blocks():
    writer = Writer()
    groups = [writer.write(0, 100), writer.write(5000), writer.write(0)]
    header, data = files(writer.memory)[0]
    assert (header.first_lsn, header.start, header.salt, header.previous_end) == (FIRST, START, SALT, 1)
    found = scan_of(data, header)
    assert [g.position % BLOCK for g in found.groups] == [0, 0, 0]
    assert [g.header.records for g in found.groups] == [group.count for group in groups]
    assert lsns(writer.memory) == list(range(FIRST, writer.next))


@pytest.mark.parametrize(
    "sizes", [[0] * 3000, [2000] * 10, [MIB], [3 * MIB, 0, 2 * MIB]], ids=["tiny", "larger", "one", "mixed"]
)
def test_groups_of_any_shape_are_written_as_they_are(sizes):
    writer = Writer(file_bytes=64 * MIB)
    writer.write(*sizes)
    assert lsns(writer.memory) == list(range(FIRST, writer.next))


def test_a_group_that_came_after_a_force_says_so():
    writer = Writer()
    writer.write(0)
    writer.force()
    writer.write(0)
    _, data = files(writer.memory)[0]
    assert scan_of(data, unpack_file_header(data, "f")).end.proven == FIRST


def test_what_was_forced_survives_any_power_cut_over_files_too():
    writer = Writer()
    for _ in range(12):
        writer.write(3 * BLOCK)
    writer.force()
    writer.write(0)
    for seed in range(20):
        found = lsns(writer.memory.crash_clone(seed))
        assert found[: writer.next - 1 - FIRST] == list(range(FIRST, writer.next - 1))


# -- rolling ----------------------------------------------------------------------------------------


def test_a_full_file_is_forced_before_the_next_one_is_begun():
    writer = Writer()
    writer.roll()
    (first, _), (second, _) = files(writer.memory)
    assert (second.previous_first, second.previous_end) == (first.first_lsn, writer.next - 1)
    for seed in range(20):
        clone = writer.memory.crash_clone(seed)
        assert len(files(clone)) == 2
        assert lsns(clone)[: writer.next - 1 - FIRST] == list(range(FIRST, writer.next - 1))


def test_a_record_larger_than_a_file_gets_a_file_of_its_own():
    writer = Writer()
    writer.write(0)
    writer.write(2 * FILE_BYTES)
    writer.write(0)
    assert lsns(writer.memory) == [FIRST, FIRST + 1, FIRST + 2]
    assert [header.first_lsn for header, _ in files(writer.memory)] == [FIRST, FIRST + 1, FIRST + 2]


def test_a_group_that_just_fits_does_not_roll_and_one_block_more_does():
    for spare, rolled in ((0, 1), (1, 2)):
        writer = Writer()
        head = 40 + len(record.pack(Mark(FIRST), b"x", 0))
        writer.write(FILE_BYTES - FIRST_GROUP - BLOCK - head)
        writer.write(BLOCK - head + spare)
        assert len(files(writer.memory)) == rolled


def test_a_spare_that_lies_ready_is_taken():
    writer = Writer()
    writer.journal.fill_spare()
    assert writer.journal.spare_exists()
    writer.roll()
    assert not writer.journal.spare_exists()
    assert len(files(writer.memory)[1][1]) == FILE_BYTES


def test_a_spare_is_all_zeros_and_forced_before_it_has_its_name():
    writer = Writer()
    writer.journal.fill_spare()
    writer.memory.force_directory(JOURNAL_DIRECTORY)
    for seed in range(10):
        clone = writer.memory.crash_clone(seed, survive=0)
        file = clone.open(SPARE_NEXT)
        assert file.read(0, file.size()) == bytes(FILE_BYTES)


# -- forcing ----------------------------------------------------------------------------------------


def test_nothing_written_means_nothing_forced():
    writer = Writer()
    before = forces(writer)
    writer.force()
    writer.write(0)
    writer.force()
    writer.force()
    assert forces(writer) == before + 1


def test_never_more_than_a_group_lies_unforced():
    writer = Writer(file_bytes=64 * MIB)
    before = forces(writer)
    for _ in range(9):
        writer.write(MIB)
    assert forces(writer) == before + 2
    assert GROUP_BYTES == 4 * MIB


# -- poison -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", [Operation.WRITE, Operation.FORCE])
def test_a_failure_poisons_the_journal_and_nothing_is_tried_again(kind, error):
    writer = Writer()
    writer.write(0)
    writer.plan.faults.append(Fault(kind, error=error))
    with pytest.raises(JournalPoisoned, match="the next start recovers"):
        writer.write_and_force(0)
    writer.plan.faults.clear()
    counts = writer.plan.counts.copy()
    for attempt in (lambda: writer.write(0), writer.force, lambda: writer.write(0)):
        with pytest.raises(JournalPoisoned):
            attempt()
    assert writer.plan.counts == counts
    assert writer.journal.poisoned


@pytest.mark.parametrize("kind", [Operation.RENAME, Operation.FORCE_DIRECTORY, Operation.FORCE])
def test_a_failure_while_rolling_poisons_too(kind):
    writer = Writer()
    writer.write(3 * BLOCK)
    writer.force()
    writer.plan.faults.append(Fault(kind, error=errno.EIO))
    with pytest.raises(JournalPoisoned):
        writer.roll()
    writer.plan.faults.clear()
    with pytest.raises(JournalPoisoned):
        writer.write(0)


# -- cleaning up ------------------------------------------------------------------------------------


def test_files_below_what_is_needed_go_and_some_are_kept_to_be_spares():
    writer = Writer()
    for _ in range(3):
        writer.journal.fill_spare()
        writer.roll()
    first, second, third, last = (header.first_lsn for header, _ in files(writer.memory))
    assert writer.journal.take_dead(second - 1) == []
    dead = writer.journal.take_dead(third)
    assert dead == [journal_file(first), journal_file(second)]
    writer.journal.remove(dead, keep=1)
    assert [header.first_lsn for header, _ in files(writer.memory)] == [third, last]
    assert not writer.journal.spare_exists()
    assert recycled(writer) == [f"{second:032d}.recycled"]  # the first was made without a spare: too short
    writer.journal.fill_spare()
    assert (writer.journal.spare_exists(), recycled(writer)) == (True, [])
    assert writer.journal.take_dead(last) == [journal_file(third)]


def recycled(writer):
    return [name for name in writer.memory.list_directory("journal") if name.endswith(".recycled")]


def test_no_more_dead_files_are_kept_than_a_checkpoint_leaves():
    writer = Writer()
    for _ in range(RECYCLED_FILES + 3):
        writer.journal.fill_spare()
        writer.roll()
    for _ in range(2):
        writer.journal.remove(writer.journal.take_dead(writer.newest))
        assert len(recycled(writer)) == RECYCLED_FILES


def test_a_file_that_is_not_of_full_size_is_not_kept():
    writer = Writer()
    writer.write(0)
    writer.roll(FILE_BYTES)
    writer.journal.remove(writer.journal.take_dead(writer.newest))
    assert recycled(writer) == []


def test_the_file_being_written_is_never_dead():
    writer = Writer()
    writer.write(0)
    assert writer.journal.take_dead(1 << 60) == []


def test_what_a_recycled_file_held_does_not_come_back():
    writer = Writer()
    for _ in range(2):
        writer.journal.fill_spare()
        writer.roll()
    writer.journal.remove(writer.journal.take_dead(writer.newest))
    writer.journal.fill_spare()
    assert writer.journal.spare_exists()
    writer.roll()
    assert not writer.journal.spare_exists()
    writer.write(0)
    assert lsns(writer.memory) == list(range(files(writer.memory)[0][0].first_lsn, writer.next))


# -- reading back -----------------------------------------------------------------------------------


def test_any_written_record_is_read_back_with_its_data():
    writer = Writer()
    sizes = [(1, 2, 3), (5000,), (0, 0), (3 * BLOCK,), (4 * BLOCK,), (7, 7)]
    for each in sizes:
        writer.write(*each)
    flat = [size for each in sizes for size in each]
    for lsn, size in enumerate(flat, FIRST):
        first, records = writer.journal.group_records(lsn)
        assert records[lsn - first].record == Mark(lsn)
        assert bytes(records[lsn - first].data) == bytes([lsn % 251]) * size


@pytest.mark.parametrize("position", [FIRST_GROUP, FIRST_GROUP + 50])
def test_bytes_that_are_no_longer_what_was_written_are_corrupt(position):
    writer = Writer()
    writer.write(10)
    file = writer.memory.open(journal_file(FIRST))
    file.write_some(position, [b"\xff"])
    with pytest.raises(CorruptJournal, match=journal_file(FIRST)):
        writer.journal.group_records(FIRST)


# -- groups that are written and forced past their file ---------------------------------------------


class OnDisk(Writer):
    """The same over the system's files; ``alone`` writes a group past its file, as a thread does."""

    def __init__(self, root, file_bytes=FILE_BYTES):
        self.memory = self.filesystem = OSFilesystem(root)
        self.memory.make_directory(JOURNAL_DIRECTORY)
        self.journal = Journal(self.memory, file_bytes)
        self.journal.open_first(START, SALT, FIRST, 1)
        self.next, self.forced = FIRST, FIRST - 1

    def alone(self, *sizes, error=0, stage=FORCING):
        group = self.group(*sizes)
        placed = self.journal.place(group)
        if placed is None:
            self.journal.write(group)
            self.force()
            return False
        if not error:
            os.pwritev(placed.descriptor, placed.pieces, placed.position)
            os.fdatasync(placed.descriptor)
        self.journal.forced_alone(group, Forced(error, stage, 1, 2, 3))
        self.forced = self.next - 1
        return True


def test_groups_written_past_the_file_stand_among_the_others(tmp_path):
    writer = OnDisk(tmp_path, 4 * MIB)
    ways = [writer.alone(*sizes) for sizes in [(0,), (5000, 10), (ALONE_BYTES,), (1,)] * 3]
    assert ways == [True, True, False, True] * 3
    writer.write_and_force(70)
    assert lsns(writer.memory) == list(range(FIRST, writer.next))
    for group in range(FIRST, writer.next):
        assert writer.journal.group_records(group)


def test_a_file_that_is_full_is_rolled_by_the_writer(tmp_path):
    writer = OnDisk(tmp_path)
    ways = [writer.alone(3 * BLOCK) for _ in range(30)]
    assert ways.count(False) == len(files(writer.memory)) - 1 > 3
    assert lsns(writer.memory) == list(range(FIRST, writer.next))


def test_nothing_is_placed_behind_unforced_groups_nor_past_files_that_have_no_descriptor(tmp_path):
    writer = OnDisk(tmp_path)
    writer.write(10)
    assert writer.journal.place(writer.group(1)) is None
    writer.journal.force()
    assert writer.journal.place(writer.group(1)) is not None
    assert Writer().journal.place(writer.group(1)) is None


@pytest.mark.parametrize(("stage", "doing"), [(WRITING, "writing"), (FORCING, "forcing")])
def test_a_failure_past_the_file_poisons_the_journal_too(tmp_path, stage, doing):
    writer = OnDisk(tmp_path)
    writer.alone(10)
    with pytest.raises(JournalPoisoned, match=rf"{doing} journal/.* failed: .*No space left"):
        writer.alone(10, error=errno.ENOSPC, stage=stage)
    assert writer.journal.place(writer.group(1)) is None
    with pytest.raises(JournalPoisoned):
        writer.write(1)
    with pytest.raises(JournalPoisoned):
        writer.force()
