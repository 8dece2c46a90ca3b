"""Test what each level of verification proves: it misses nothing wrong, and names what was damaged.

Seen to fail: with the comparison of bytes, the density of places, the totals, the staged files, the levels, or the
indexes' entries taken out, the test that is named after it.
"""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from crc32c import crc32c

from journal import check
from journal.check import Level, Tally
from journal.check.effects import AppendTimes, effect_of
from journal.check.log_check import CrossCheck
from journal.check.verification import needed_from, reaches_back, unbroken
from journal.engine.settings import JournalSettings
from journal.errors import Irreparable
from journal.formats import filenames, frame
from journal.formats.filenames import SegmentKind
from journal.formats.index import MAX_GAP, OFFSET_ENTRY
from journal.formats.segment_header import seed_of
from journal.records.journal_headers import FileHeader
from journal.records.record import (
    Messages,
    Placement,
    Run,
    Started,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.repair import diagnose
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause, Totals
from journal.transactions.unsent import Unsent
from journal.wal.reader import JournalEntry
from journal.walks.checkpoint_walk import checkpoint_lsns
from journal.walks.journal_walk import JournalFile
from tests.repair.repair_scene import all_files
from tests.support.builders import SESSION, Place, frames, number, totals, xid

DEEP = Level.DEEP


@pytest.fixture
def place():
    """Sends and transactions in two partitions, a prepared transaction with a staged file, checkpoints between."""
    place = Place(JournalSettings(file_bytes=1 << 20, low_water_bytes=0), segment_bytes=65_536)
    store = place.engine.catalog.stores[1]
    place.transactions.add(number(9), 1, frames(b"in doubt"), 1)
    place.transactions.add(number(9), 2, frames(b"in doubt too"), 1)
    place.transactions.prepare(number(9), xid("doubt"), totals(frames(b"in doubt"), frames(b"in doubt too")))
    for serial in range(1, 6):
        for _ in range(10):
            place.engine.append(store, frames(bytes(5000)), 1)
        place.transactions.add(number(serial), 1, frames(b"committed"), 1)
        place.transactions.add(number(serial), 2, frames(b"committed", b"too"), 2)
        run = [frames(b"committed"), frames(b"committed", b"too")]
        if serial == 3:
            place.transactions.rollback(number(serial), Cause.CLIENT)
        else:
            place.transactions.commit(number(serial), Cause.CLIENT, totals(*run))
        place.engine.sync()
        place.checkpoint()
    return place


def paths(place, kind=SegmentKind.LOG, partition=1):
    directory = filenames.partition_directory("t", partition - 1, partition)
    return [
        f"{directory}/{name}"
        for name in place.filesystem.list_directory(directory)
        if name.endswith(kind.value)
    ]


def damages(place, level=DEEP, tally=None):
    return [f for f in check.verify(place.filesystem, level, tally) if not f.harmless]


def test_a_prepared_transaction_that_is_committed_with_its_content_said_again_is_sound(place):
    """As a client does that has lost the answer, and does not know that it was prepared."""
    added, run = frames(b"added"), frames(b"with", b"the prepare")
    unsent = Unsent([(2, 2, run, ())])
    place.transactions.add(number(7), 1, added, 1)
    place.transactions.prepare(number(7), xid("again"), totals(added), unsent=unsent)
    place.transactions.commit(number(7), Cause.CLIENT, totals(added), unsent=unsent)
    place.engine.sync()
    assert damages(place) == []
    assert [f for f in check.verify(place.filesystem, DEEP, records=True) if not f.harmless] == []


def test_a_transaction_that_goes_on_after_its_first_messages_went_to_a_file_is_sound():
    """Their checksums were compared with those of the later messages alone, and the directory called damaged."""
    place = Place(JournalSettings(file_bytes=1 << 20, low_water_bytes=0), segment_bytes=65_536)
    runs = [frames(b"in the file"), frames(b"after it"), frames(b"with the commit")]
    place.transactions.add(number(1), 1, runs[0], 1)
    [first_file] = [path for path in all_files(place.filesystem) if path.endswith(".journal")]
    for _ in range(3):
        place.engine.append(place.engine.catalog.stores[1], frames(bytes(900_000)), 1)
        place.engine.sync()
        place.checkpoint()
    assert place.transactions.live[number(1)].staged.file_entries == 1
    assert first_file not in all_files(place.filesystem)
    place.transactions.add(number(1), 1, runs[1], 1)
    later = Unsent([(1, 1, runs[2], ()), (2, 1, runs[2], ())])
    place.transactions.commit(number(1), Cause.CLIENT, totals(*runs[:2]), unsent=later)
    place.engine.sync()
    assert damages(place) == []


def change(place, path, position, data):
    place.filesystem.open(path).write_some(position, [data])


def read(place, path):
    file = place.filesystem.open(path)
    return file.read(0, file.size())


def seed(place, log):
    """What the checksums in the indexes of a log are seeded with: from the salt in its header."""
    return seed_of(int.from_bytes(read(place, log)[48:56], "big"))


def base_of(path):
    return filenames.parse_segment_file(path.rpartition("/")[2]).base_offset


def put_in(place, path, entry):
    """Another frame in the place of one of a log: as long, of the same offset, and sound by itself."""
    other = bytearray(frame.encode(b"\x01" * (entry.length - frame.HEADER_BYTES), 1))
    frame.stamp(memoryview(other), entry.offset, entry.appended)
    change(place, path, entry.position, bytes(other))


def test_a_sound_directory_is_counted_through(place):
    tally = Tally()
    assert list(check.verify(place.filesystem, DEEP, tally)) == []
    assert (tally.checkpoints, tally.partitions, tally.staged_files, tally.undecided) == (2, 2, 1, 1)
    assert (tally.committed, tally.compared, tally.rolled_back) == (4, 4, 1)
    assert tally.messages == tally.placed == 50 + 4 * 3
    assert tally.segments == len(paths(place)) + len(paths(place, partition=2)) > 3
    assert tally.bytes >= check.planned_bytes(place.filesystem, DEEP)


def opening(place, monkeypatch, before):
    """Have ``before`` called with the path and how often that has been opened before, whenever a file is opened."""
    opened, opens = Counter(), place.filesystem.open

    def watched(path, *arguments, **options):
        before(path, opened[path])
        opened[path] += 1
        return opens(path, *arguments, **options)

    monkeypatch.setattr(place.filesystem, "open", watched)


@pytest.mark.parametrize("opens", range(3))
def test_a_checkpoint_that_a_broker_at_work_removes_meanwhile_is_none(place, monkeypatch, opens):
    older = filenames.checkpoint_file(checkpoint_lsns(place.filesystem)[0])
    removed = []

    def remove(path, count):
        if path == older and count == opens:
            removed.append(path)
            place.filesystem.unlink(path)

    opening(place, monkeypatch, remove)
    tally = Tally()
    assert list(check.verify(place.filesystem, DEEP, tally)) == []
    assert removed
    assert (tally.checkpoints, tally.compared) == (1 if opens == 0 else 2, 4)


@pytest.mark.parametrize("which", [slice(0, 2), slice(0, 1), slice(1, 2)])
def test_checkpoints_that_are_gone_altogether_or_are_listed_and_not_there_are_no_few(
    place, monkeypatch, which
):
    paths_of_all = [filenames.checkpoint_file(lsn) for lsn in checkpoint_lsns(place.filesystem)]
    missing = paths_of_all[which]

    def remove(path, count):
        if path in missing:
            if len(missing) == 2 and count == 0:
                place.filesystem.unlink(path)
            raise FileNotFoundError(errno.ENOENT, "gone", path)

    opening(place, monkeypatch, remove)
    with pytest.raises(FileNotFoundError):
        list(check.verify(place.filesystem, DEEP))


def test_bytes_that_differ_from_the_journal_s_are_found_though_they_are_sound(place):
    path = paths(place)[1]
    places = list(check.walk_segment(place.filesystem, path, base_of(path)))
    put_in(place, path, places[2])
    [block] = damages(place, Level.FULL)
    assert "fail their checksum, though every frame fulfils its own" in block.problem
    assert block.affects.first_offset <= places[2].offset <= block.affects.last_offset
    [found] = [each for each in damages(place) if each != block]
    assert "the log does not hold what LSN" in found.problem
    affects = found.affects
    assert (affects.topic, affects.partition, affects.first_offset) == ("t", 0, places[2].offset)


@pytest.mark.parametrize("level", list(Level))
def test_the_levels_differ_in_what_they_see_of_a_segment_s_middle(place, level):
    path = paths(place)[0]
    change(place, path, 100, b"\xff\xff")
    assert bool(damages(place, level)) == (level is not Level.QUICK)


@pytest.mark.parametrize("level", list(Level))
def test_every_level_sees_a_missing_or_shorter_segment(place, level):
    path = paths(place)[0]
    file = place.filesystem.open(path)
    file.truncate(file.size() - 10)
    assert damages(place, level)
    place.filesystem.unlink(path)
    assert damages(place, level)


def test_a_segment_of_another_partition_is_told_from_the_right_one(place):
    first, second = paths(place)[0], paths(place, partition=2)[0]
    mine, others = read(place, first), read(place, second)
    change(place, first, 0, others)
    assert any(
        "it is the segment of partition number 2 from offset 0 on" in f.problem
        for f in damages(place, Level.FULL)
    )
    change(place, first, 0, mine)
    assert damages(place) == []


@pytest.mark.parametrize("entry", [0, 1])
def test_an_index_entry_that_points_elsewhere_is_found_and_harmless(place, entry):
    index, log = paths(place, SegmentKind.INDEX)[0], paths(place)[0]
    data, size = read(place, index), OFFSET_ENTRY.size
    assert len(data) >= 2 * size
    offset, position, running, _ = OFFSET_ENTRY.unpack_from(data, entry * size)
    key = OFFSET_ENTRY.pack(offset, position + 36, running, 0)[:-4]
    change(place, index, entry * size, key + check.second_crc32c(key, seed(place, log)).to_bytes(4, "big"))
    [found] = check.verify(place.filesystem, Level.FULL)
    assert (found.path, found.position, found.harmless) == (index, entry * size, True)
    assert "is not of this log" in found.problem
    assert diagnose(place.filesystem).lost == []


def test_damaged_and_missing_indexes_are_harmless_and_named(place):
    index = paths(place, SegmentKind.INDEX)[0]
    change(place, index, 3, b"\x05")
    [found] = check.verify(place.filesystem)
    assert (found.path, found.harmless) == (index, True)
    place.filesystem.unlink(index)
    [found] = check.verify(place.filesystem)
    assert (found.path, "is missing" in found.problem) == (index, True)


def test_a_segment_within_one_gap_may_be_without_index_files_but_not_without_one_of_the_two(place):
    [log] = paths(place, partition=2)
    assert place.filesystem.open(log).size() < MAX_GAP
    assert paths(place, SegmentKind.INDEX, 2) == paths(place, SegmentKind.TIME, 2) == []
    assert list(check.verify(place.filesystem)) == []
    index, time = log.removesuffix("log") + "index", log.removesuffix("log") + "time"
    place.filesystem.open(time, create=True)
    [found] = check.verify(place.filesystem)
    assert (found.path, found.harmless, "is missing" in found.problem) == (index, True, True)


def test_a_time_that_goes_back_is_found(place):
    time = paths(place, SegmentKind.TIME)[0]
    data = read(place, time)
    assert len(data) >= 40
    key = (-5).to_bytes(8, "big", signed=True) + data[28:36]
    key_seed = seed(place, paths(place)[0])
    change(place, time, 20, key + check.second_crc32c(key, key_seed).to_bytes(4, "big"))
    [found] = check.verify(place.filesystem)
    assert (found.path, found.position, found.harmless) == (time, 20, True)
    assert "its time goes back" in found.problem


def test_a_damaged_or_shortened_index_of_times_is_named_itself_and_not_the_one_of_offsets_beside_it(place):
    time = paths(place, SegmentKind.TIME)[0]
    assert len(read(place, time)) >= 40
    change(place, time, 21, b"\x05")
    [found] = check.verify(place.filesystem)
    assert (found.path, found.position, found.harmless) == (time, 20, True)
    place.filesystem.open(time).truncate(20)
    [found] = check.verify(place.filesystem)
    assert (found.path, found.position, found.harmless) == (time, 20, True)
    assert "it has 1 entries, the offset index at least" in found.problem


def test_staged_frames_that_are_missing_or_damaged_are_told_with_the_transaction(place):
    [path] = [f"staged/{name}" for name in place.filesystem.list_directory("staged")]
    data = read(place, path)
    change(place, path, len(data) - 1, b"\xff")
    [found] = damages(place, Level.QUICK)
    assert (found.path, found.affects.transaction, found.affects.xid) == (path, number(9), xid("doubt"))
    assert "only rolled back" in found.problem
    place.filesystem.unlink(path)
    [found] = damages(place, Level.QUICK)
    assert "is missing" in found.problem


def test_what_no_part_of_the_broker_made_is_named_and_harmless(place):
    for path in ("notes.txt", "journal/copy.journal", "partitions/readme", "checkpoints/x", "staged/y"):
        place.filesystem.open(path, create=True)
    found = list(check.verify(place.filesystem))
    assert {f.path for f in found} == {
        "notes.txt", "journal/copy.journal", "partitions/readme", "checkpoints/x", "staged/y",
    }  # fmt: skip
    assert all(f.harmless for f in found)


def test_a_journal_that_lost_its_newest_file_is_damaged(place):
    place.restart()
    place.engine.append(place.engine.catalog.stores[1], frames(b"after"), 1)
    place.engine.sync()
    newest = check.journal_files(place.filesystem)[-1]
    place.filesystem.unlink(newest)
    [found] = damages(place, Level.QUICK)
    assert (found.path, "is missing" in found.problem) == (newest, True)


# -- the journal against the logs, record by record --------------------------------------------------


class Records:
    """Entries as a walk gives them, over no files: only what records say of each other is looked at."""

    def __init__(self):
        self.filesystem = MemoryFilesystem()
        self.filesystem.make_directory("journal")
        self._file = self.filesystem.open("journal/x", create=True)
        self._lsn = self._end = 0
        self.tally = Tally()
        self.check = CrossCheck(self.filesystem, None, None, self.tally)

    def follow(self, record, data=b""):
        self._lsn += 1
        self._file.write_some(self._end, [data or b"\0"])
        entry = JournalEntry("journal/x", self._end, self._lsn, record, memoryview(data), False, len(data))
        self._end += len(data)
        return [f.problem for f in self.check.follow(entry, effect_of(entry))]

    def sent(self, base, *values, count=None, stamped=None, at=0, appended=1):
        run = bytearray(frames(*values))
        frame.stamp(memoryview(run), base if stamped is None else stamped, appended)
        return self.follow(Messages(1, base, count or len(values), at), bytes(run))

    def added(self, serial, *values, count=None):
        return self.follow(TransactionAdded(SESSION, serial, 1, count or len(values), 0, 0), frames(*values))

    def committed(self, serial, base, count, said=None):
        placed = [Placement(1, base, count)]
        return self.follow(TransactionCommitted(SESSION, serial, placed, 0, Cause.CLIENT, totals=said))


@pytest.fixture
def records():
    return Records()


def test_places_that_follow_each_other_are_right(records):
    assert records.sent(5, b"a", b"b") == []
    assert records.added(1, b"c", b"d") == []
    assert records.sent(7, b"e") == []
    assert records.committed(1, 8, 2, totals(frames(b"c", b"d"))) == []
    assert records.sent(10, b"f") == []
    assert (records.tally.committed, records.tally.compared) == (1, 1)


def test_an_append_time_that_is_not_the_records_is_found(records):
    assert records.follow(Started(1, 5, 1005, bytes(16))) == []
    assert records.sent(0, b"a", b"b", at=7, appended=1007) == []
    [problem] = records.sent(2, b"c", at=8, appended=1007)
    assert "has append time 1007, not 1008" in problem
    run = bytearray(frames(b"d"))
    frame.stamp(memoryview(run), 3, 1010)
    for appended, problems in ((1009, 0), (1010, 1)):
        frame.stamp(memoryview(run), 3, appended)
        placed = [Placement(1, 3, 1)]
        commit = TransactionCommitted(
            SESSION, appended, placed, 9, Cause.CLIENT, runs=[Run(1, 1, 0, crc32c(frames(b"d")))],
            checksum=crc32c(frames(b"d")),
        )  # fmt: skip
        found = records.follow(commit, bytes(run))
        assert len([each for each in found if "append time" in each]) == problems


def test_without_the_record_of_a_start_its_sends_must_agree_about_the_clock(records):
    assert records.sent(0, b"a", at=7, appended=1007) == []
    assert records.sent(1, b"b", at=8, appended=1008) == []
    assert "has append time 1008, not 1009" in records.sent(2, b"c", at=9, appended=1008)[0]


def test_of_a_start_whose_clock_nothing_tells_the_logs_times_are_taken(place, monkeypatch):
    monkeypatch.setattr(AppendTimes, "of", lambda *_: None)
    assert damages(place) == []


@pytest.mark.parametrize("base", [6, 8])
def test_a_place_that_overlaps_the_one_before_or_leaves_a_gap_is_found(records, base):
    records.sent(5, b"a", b"b")
    [problem] = records.sent(base, b"c")
    assert f"from offset {base} on, the record before it ended at 7" in problem


def test_a_message_placed_twice_is_found(records):
    records.added(1, b"a")
    assert records.committed(1, 0, 1) == []
    [problem] = records.sent(0, b"b")
    assert "the record before it ended at 1" in problem


def test_a_commit_of_other_counts_than_were_added_is_found(records):
    records.added(1, b"a")
    [problem] = records.committed(1, 0, 2)
    assert "what was sent in it is {1: 1}" in problem


def test_a_commit_of_a_transaction_that_was_rolled_back_is_found(records):
    records.added(1, b"a")
    records.follow(TransactionRolledBack(SESSION, 1, 0, Cause.CLIENT))
    [problem] = records.committed(1, 0, 1)
    assert "what was sent in it is {}" in problem


def test_a_commit_of_what_a_restart_rolled_back_is_found_and_one_of_what_was_prepared_is_right(records):
    records.added(1, b"a")
    records.added(2, b"b")
    records.follow(TransactionPrepared(SESSION, 2, xid("x"), totals(frames(b"b")), 0, 0))
    records.follow(Started(2, 0, 0, bytes(16)))
    assert records.committed(2, 0, 1) == []
    assert records.committed(1, 1, 1) != []


def test_totals_that_are_not_what_arrived_are_found(records):
    records.added(1, b"a")
    [problem] = records.follow(TransactionPrepared(SESSION, 1, xid("x"), Totals(1, 1, 7), 0, 0))
    assert "it says 1 messages" in problem
    records.added(2, b"a")
    assert records.committed(2, 0, 1, Totals(2, 2, 0)) != []


def test_frames_that_are_not_as_their_record_says_are_found(records):
    assert records.sent(0, b"a", b"b", count=3) != []
    assert records.sent(3, b"a", stamped=4) != []
    assert records.added(1, b"a", count=2) != []


def test_after_missing_records_nothing_is_held_against_what_follows(records):
    records.sent(5, b"a")
    records.added(1, b"a")
    records.check.interrupted(0)
    assert records.sent(9, b"b") == []
    assert records.committed(1, 10, 3) == []


def test_transactions_of_starts_whose_records_are_missing_are_not_known_whole(records):
    start = SESSION >> 32
    records.check.interrupted(start)
    assert records.committed(7, 10, 3) == []
    records.check.interrupted(start - 1)
    assert "what was sent in it is {}" in records.committed(8, 20, 3)[0]


def test_files_before_the_one_that_is_needed_are_not_whatever_became_of_the_headers_between():
    def file(lsn, previous_end):
        header = FileHeader(lsn, 1, 0, 0, previous_end) if previous_end else None
        return JournalFile(f"journal/{lsn}", lsn, header)

    files = [file(10, 1), file(20, None), file(30, 30), file(40, 40)]
    assert [needed_from(files, lsn) for lsn in (5, 29, 30, 39, 40, 99)] == [0, 0, 2, 2, 3, 3]


def test_an_index_entry_of_a_damaged_message_may_be_right(place):
    log, index = paths(place)[0], paths(place, SegmentKind.INDEX)[0]
    position = int.from_bytes(read(place, index)[8:12], "big")
    change(place, log, position + 50, b"\xff")
    [found] = check.verify(place.filesystem)
    assert (found.path, found.position) == (log, position)


def test_bytes_of_another_log_are_found_behind_a_damaged_message_too(place):
    path = paths(place)[1]
    places = list(check.walk_segment(place.filesystem, path, base_of(path)))
    change(place, path, places[2].position + 60, b"\xff")
    put_in(place, path, places[4])
    found = sorted(damages(place), key=lambda each: each.position)
    [block] = [each for each in found if "every frame fulfils its own" in each.problem]
    first, second = [each for each in found if each != block]
    assert block.affects.first_offset <= places[4].offset <= block.affects.last_offset
    assert (first.position, first.affects.first_offset) == (places[2].position, places[2].offset)
    assert "the log does not hold what LSN" in second.problem
    assert second.affects.first_offset == places[4].offset


class Unreadable:
    """A disk that does not give one file, from its opening on or from a position on."""

    def __init__(self, inner, path, from_position):
        self.inner, self.path, self.from_position = inner, path, from_position

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def open(self, path, **options):
        if path != self.path:
            return self.inner.open(path, **options)
        if self.from_position is None:
            raise OSError(errno.EIO, "Input/output error", path)
        return BadSectors(self.inner.open(path, **options), self.from_position)


class BadSectors:
    def __init__(self, file, from_position):
        self.file, self.from_position = file, from_position

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read(self, position, length):
        if position + length > self.from_position < self.file.size():
            raise OSError(errno.EIO, "Input/output error", self.file.path)
        return self.file.read(position, length)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("from_position", [None, 0, 9000], ids=["not opened", "no byte", "not from 9000 on"])
def test_a_file_that_cannot_be_read_is_a_finding_and_all_others_are_looked_at(place, from_position):
    """Any file of the directory, while another is damaged: that is found as if both had been readable."""
    [other] = paths(place, partition=2)
    change(place, other, 64 + 60, b"\x55")
    [known] = damages(place)
    for path in all_files(place.filesystem):
        # That the file with the version says nothing is a note: a start writes it anew.
        needless = path in ("lock", "ballast", filenames.VERSION) or path.endswith(("next", ".recycled"))
        unneeded = needless or path == other
        if unneeded or place.filesystem.open(path).size() <= (from_position or 0):
            continue
        disk = Unreadable(place.filesystem, path, from_position)
        found = [f for f in check.verify(disk, DEEP) if not f.harmless]
        assert check.planned_bytes(disk, DEEP)
        assert known in found, path
        assert {f.path for f in found if f.unreadable} == {path}, (path, found)
        with pytest.raises(Irreparable, match="cannot be read"):
            diagnose(disk)


def test_files_before_a_gap_do_not_make_a_journal_reach_back():
    """A power cut may undo the removal of some of them."""

    def file(lsn, previous_first, previous_end, known=True):
        header = FileHeader(lsn, 1, 0, previous_first, previous_end) if known else None
        return JournalFile(f"journal/{lsn}", lsn, header)

    first, second, fourth, fifth = file(10, 0, 1), file(20, 10, 20), file(40, 30, 40), file(50, 40, 50)
    assert unbroken([first, second]) == [first, second]
    assert unbroken([first, second, fourth, fifth]) == [fourth, fifth]
    assert unbroken([first, file(20, 10, 20, known=False), fourth]) == [fourth]
    assert [reaches_back([fourth, fifth], lsn) for lsn in (39, 40, 41)] == [False, True, True]
    assert not reaches_back([], 1)
