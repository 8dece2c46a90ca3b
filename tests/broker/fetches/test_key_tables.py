"""Test the tables of keys that searches make of segments: where they come from, and what they save.

A table that is missing, torn, another's or of another state costs a search its speed and never its answer.
"""

import errno

import pytest

from journal import check
from journal.check import Level
from journal.formats import frame
from journal.formats.compression import compressor
from journal.log import key_tables
from journal.log.key_tables import read_table
from journal.message_headers import ID_HEADER
from journal.records.record import LogStartMoved
from journal.vfs.filesystem import write_fully
from tests.support.broker_room import Room, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches import message_search
from txbroker.wire import messages as commands

SEGMENTS = 4


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    """A partition with sealed segments of two messages each, of keys k0 to k2, and two in the newest segment."""
    [partition] = room.topic(segment_bytes=64 << 10)
    peer = room.peer()
    for number in range(2 * SEGMENTS + 2):
        message = frame.encode(bytes(30_000), 1, b"k%d" % (number % 3), {ID_HEADER: b"id-%d" % number})
        peer.ask(commands.Send, partition, data=message)
        room.flush()
    assert len(room.engine.catalog.stores[partition].sealed_segments) == SEGMENTS
    return partition


@pytest.fixture
def made(monkeypatch):
    """The paths of the segments of which a table was made, oldest first."""
    found, make = [], key_tables.make_table

    def noted(read, segment):
        found.append(segment.path)
        return make(read, segment)

    monkeypatch.setattr(key_tables, "make_table", noted)
    return found


def find(room, partition, offset=0, **wanted):
    """All offsets that are found, over as many requests as it takes."""
    found = []
    while True:
        answer = room.peer().ask(commands.FindMessages, partition, offset, **(wanted or {"key": b"k1"}))
        found += answer.offsets
        offset = answer.next_offset
        if offset >= answer.high_watermark:
            run_jobs(room)
            return found


def run_jobs(room):
    room.engine.housekeeping.run_inline()


def sealed(room, partition):
    return room.engine.catalog.stores[partition].sealed_segments


EXPECTED = [1, 4, 7]


def test_the_first_search_makes_tables_and_later_ones_use_them_also_after_a_start(room, partition, made):
    assert find(room, partition) == EXPECTED
    assert made == [segment.path for segment in sealed(room, partition)]
    assert find(room, partition) == EXPECTED
    assert find(room, partition, id=b"id-5") == [5]
    room.engine.housekeeping.checkpoint_inline()
    room.restart()
    assert find(room, partition, id=b"id-9") == [9], "in the newest segment, which has no table"
    assert find(room, partition, key=b"k1", id=b"id-5") == []
    assert len(made) == SEGMENTS


def test_a_segment_that_has_nothing_is_not_read(room, partition, monkeypatch):
    find(room, partition)
    sizes = []
    examine = message_search.examine
    monkeypatch.setattr(
        message_search, "examine", lambda data, *more: sizes.append(len(data)) or examine(data, *more)
    )
    assert find(room, partition, id=b"id-5") == [5]
    assert len(sizes) == 2, "the frame that has it, and the newest segment"


@pytest.mark.parametrize("damage", ["missing", "torn", "empty", "longer", "flipped", "another's", "foreign"])
def test_a_table_that_is_not_sound_is_made_again(room, partition, made, damage):
    find(room, partition)
    segments, filesystem = sealed(room, partition), room.filesystem
    path = segments[1].keys_path
    file = filesystem.open(path)
    if damage in ("torn", "empty"):
        file.truncate(file.size() // 2 if damage == "torn" else 0)
    elif damage == "longer":
        write_fully(file, file.size(), [bytes(80)])
    elif damage == "flipped":
        write_fully(file, file.size() - 3, [b"!"])
    elif damage == "another's":
        other = filesystem.open(segments[2].keys_path)
        write_fully(file, 0, [other.read(0, other.size())])
    elif damage == "foreign":
        write_fully(file, 0, [b"hello"])
    file.close()
    if damage == "missing":
        filesystem.unlink(path)
    findings = [each for each in check.verify(filesystem_of(room), Level.FULL) if each.path == path]
    assert [each.harmless for each in findings] == ([] if damage == "missing" else [True])
    del made[:]
    assert find(room, partition) == EXPECTED
    assert made == [segments[1].path]
    assert read_table(filesystem, segments[1]) is not None
    assert find(room, partition) == EXPECTED
    assert len(made) == 1


def filesystem_of(room):
    room.engine.housekeeping.checkpoint_inline()
    return room.filesystem.kill_clone()


def test_a_table_of_the_segment_in_an_earlier_life_is_not_used(room, partition, made):
    """As after a restored copy: the file beside the segment is of another one with the same name."""
    find(room, partition)
    other = Room()
    [twin] = other.topic(segment_bytes=64 << 10)
    peer = other.peer()
    for _ in range(4):
        peer.ask(commands.Send, twin, data=frame.encode(bytes(30_000), 1, b"other"))
        other.flush()
    find(other, twin)
    there, here = sealed(other, twin)[0], sealed(room, partition)[0]
    file = other.filesystem.open(there.keys_path)
    mine = room.filesystem.open(here.keys_path)
    write_fully(mine, 0, [file.read(0, file.size())])
    mine.truncate(file.size())
    del made[:]
    assert find(room, partition) == EXPECTED
    assert made == [here.path]


@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_a_search_finds_the_same_whatever_is_left_of_the_tables(room, partition, seed):
    """Also of tables whose segments no checkpoint has: a start makes these anew, with another salt."""
    if seed % 2:
        room.engine.housekeeping.checkpoint_inline()
    assert find(room, partition) == EXPECTED
    room.engine.sync()
    room.filesystem = room.filesystem.crash_clone(seed)
    room.start()
    for _ in range(2):
        assert find(room, partition) == EXPECTED
        assert find(room, partition, id=b"id-5") == [5]
    assert [each for each in check.verify(filesystem_of(room)) if not each.harmless] == []


def test_a_segment_that_is_damaged_gets_no_table_and_the_damage_is_told(room, partition, made):
    segment = sealed(room, partition)[1]
    file = room.filesystem.open(segment.path)
    write_fully(file, 200, [b"damage"])
    answer = room.peer().ask(commands.FindMessages, partition, 0, key=b"k1")
    assert (answer.offsets, answer.next_offset) == ([1], 2)
    assert "offset 2" in refused(
        room.peer().ask(commands.FindMessages, partition, 2, key=b"k1"), "CorruptSegment"
    )
    assert find(room, partition, 3) == [4, 7]
    assert not room.filesystem.exists(segment.keys_path)


def test_damage_of_a_message_that_a_table_names_is_told(room, partition):
    find(room, partition)
    segment = sealed(room, partition)[2]
    file = room.filesystem.open(segment.path)
    write_fully(file, 200, [b"damage"])
    answer = room.peer().ask(commands.FindMessages, partition, 0, key=b"k1")
    assert (answer.offsets, answer.next_offset) == ([1], 4)
    refused(room.peer().ask(commands.FindMessages, partition, 4, key=b"k1"), "CorruptSegment")
    assert find(room, partition, id=b"id-6") == [6], "the other segments are searched as before"


def test_a_table_that_cannot_be_written_is_done_without(room, partition, made, monkeypatch):
    opened = room.filesystem.open

    def full(path, create=False, writable=True):
        if create and path.endswith(".keys"):
            raise OSError(errno.ENOSPC, "no space")
        return opened(path, create, writable)

    monkeypatch.setattr(room.filesystem, "open", full)
    assert find(room, partition) == EXPECTED
    assert find(room, partition) == EXPECTED
    assert not room.engine.failed
    assert len(made) == 2 * SEGMENTS


@pytest.mark.parametrize("kept", [False, True])
def test_however_little_an_answer_examines_each_gets_on(room, partition, monkeypatch, kept):
    monkeypatch.setattr(message_search, "IN_AN_ANSWER", 1)
    if not kept:
        monkeypatch.setattr(room.engine.housekeeping, "keep_table", lambda segment, table: None)
    for _ in range(2):
        offset, found, answers = 0, [], 0
        while offset < 2 * SEGMENTS + 2:
            answer = room.peer().ask(commands.FindMessages, partition, offset, key=b"k1")
            assert answer.next_offset > offset
            found, offset, answers = found + answer.offsets, answer.next_offset, answers + 1
            run_jobs(room)
        assert found == EXPECTED
        assert answers > SEGMENTS


def test_many_messages_of_one_key_are_looked_up_some_at_a_time(room, same, monkeypatch):
    monkeypatch.setattr(key_tables, "MOST_AT_ONCE", 1)
    assert find(room, same) == [0, 1, 2, 3, 4, 5]
    assert find(room, same, 3) == [3, 4, 5]


def test_on_a_full_disk_none_is_made(room, partition, made):
    room.engine.full_at = -1
    assert room.engine.full
    answer = room.peer().ask(commands.FindMessages, partition, 0, key=b"k1")
    assert (answer.offsets, made) == (EXPECTED, [])


def test_a_segment_with_too_many_keys_is_searched_itself(room, partition, made, monkeypatch):
    monkeypatch.setattr("journal.formats.key_table.MOST_ENTRIES", 1)
    monkeypatch.setattr(key_tables, "MOST_ENTRIES", 1)
    assert find(room, partition) == EXPECTED
    assert len(made) == SEGMENTS
    assert find(room, partition) == EXPECTED
    assert len(made) == SEGMENTS, "that there are too many is in the table"


def test_a_table_goes_with_its_segment(room, partition):
    find(room, partition)
    gone, kept = sealed(room, partition)[:2], sealed(room, partition)[2:]
    room.engine.accept(LogStartMoved(partition, gone[-1].end_offset, room.engine.now()))
    room.engine.sync()
    for _ in range(3):
        room.engine.accept(LogStartMoved(partition, gone[-1].end_offset, room.engine.now()))
        room.engine.housekeeping.checkpoint_inline()
    assert [room.filesystem.exists(each.keys_path) for each in (*gone, *kept)] == [False, False, True, True]


def test_a_table_whose_segment_is_removed_before_it_is_written_is_not_written(room, partition):
    segment = sealed(room, partition)[0]
    room.engine.housekeeping.keep_table(segment, b"table")
    room.filesystem.unlink(segment.path)
    run_jobs(room)
    assert not room.filesystem.exists(segment.keys_path)


def test_a_table_that_a_crash_has_left_without_its_segment_is_removed_by_a_start(room, partition):
    find(room, partition)
    gone = sealed(room, partition)[0]
    room.engine.accept(LogStartMoved(partition, gone.end_offset, room.engine.now()))
    room.engine.sync()
    for _ in range(3):
        room.engine.accept(LogStartMoved(partition, gone.end_offset, room.engine.now()))
        room.engine.housekeeping.checkpoint_inline()
    room.filesystem.open(gone.keys_path, create=True).close()
    room.restart()
    for _ in range(3):
        room.engine.accept(LogStartMoved(partition, gone.end_offset, room.engine.now()))
        room.engine.housekeeping.checkpoint_inline()
    assert not room.filesystem.exists(gone.keys_path)


def test_a_segment_that_retention_takes_while_it_is_looked_up_is_left_out(room, partition):
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    peer, gone = room.peer(), sealed(room, partition)[0]
    asked = peer.tell(commands.FindMessages, partition, 0, b"k1")
    room.engine.accept(LogStartMoved(partition, gone.end_offset, room.engine.now()))
    room.engine.sync()
    for path in (gone.path, gone.index_path, gone.time_path):
        room.engine.open_files.forget(path)
        if room.filesystem.exists(path):
            room.filesystem.unlink(path)
    while worker.work:
        worker.step()
    answer = peer.answer(asked)
    assert answer.start_offset == gone.end_offset
    assert 1 not in answer.offsets


@pytest.fixture
def same(room):
    """A partition whose messages have all the same key, two in each of some sealed segments."""
    [partition] = room.topic("same", segment_bytes=64 << 10)
    for _ in range(6):
        room.peer().ask(commands.Send, partition, data=frame.encode(bytes(30_000), 1, b"k1"))
        room.flush()
    assert find(room, partition) == [0, 1, 2, 3, 4, 5]
    return partition


def test_what_follows_damage_is_not_told_before_it(room, same):
    file = room.filesystem.open(sealed(room, same)[1].path)
    write_fully(file, 200, [b"damage"])
    answer = room.peer().ask(commands.FindMessages, same, 0, key=b"k1")
    assert (answer.offsets, answer.next_offset) == ([0, 1], 2)
    assert find(room, same, 3) == [3, 4, 5]


def test_what_retention_takes_while_a_segment_is_read_by_its_table_is_left_out(room, same):
    worker = ManualWorker()
    room.broker.stepwise._run_blocking = worker.submit
    peer = room.peer()
    asked = peer.tell(commands.FindMessages, same, 0, b"k1")
    worker.step()  # the table; the read of message 0 is planned
    room.engine.accept(LogStartMoved(same, 3, room.engine.now()))
    room.engine.sync()
    while worker.work:
        worker.step()
    answer = peer.answer(asked)
    assert (answer.offsets, answer.start_offset, answer.next_offset) == ([0, 3, 4, 5], 3, 6)


def test_a_table_is_made_of_all_pieces_of_a_segment(room, same, monkeypatch):
    monkeypatch.setattr(key_tables, "_PIECE", 1)
    segment = sealed(room, same)[0]
    made = key_tables.make_table(room.filesystem.open(segment.path).read, segment)
    file = room.filesystem.open(segment.keys_path)
    assert made == file.read(0, file.size())


def test_an_answer_that_is_full_goes_on_behind_its_last_message(room, partition):
    for _ in range(2):  # without tables, and with them
        found, offset = [], 0
        for _ in range(20):
            answer = room.peer().ask(commands.FindMessages, partition, offset, key=b"k1", most=1)
            found += answer.offsets
            offset = answer.next_offset
            run_jobs(room)
        assert (found, offset) == (EXPECTED, 2 * SEGMENTS + 2)


def test_a_search_up_to_an_offset_ends_there(room, partition):
    for _ in range(2):
        assert find(room, partition, key=b"k1") == EXPECTED
        answer = room.peer().ask(commands.FindMessages, partition, 0, key=b"k1", until=5)
        assert (answer.offsets, answer.next_offset) == ([1, 4], 5)
        answer = room.peer().ask(commands.FindMessages, partition, 0, key=b"k2", until=5)
        assert (answer.offsets, answer.next_offset) == ([2], 5)


def test_batches_compressed_or_not_are_in_the_table_message_by_message(room):
    [partition] = room.topic(segment_bytes=64 << 10)
    peer = room.peer()
    for packed in (None, "zstd"):
        for start in (0, 3):
            inner = b"".join(
                frame.encode_inner(place, bytes(20_000), 1, b"k%d" % (start + place), {ID_HEADER: b"id"})
                for place in range(3)
            )
            made = None if packed is None else compressor(packed)
            run = inner if made is None else made.pack(inner)
            data = frame.encode_wrapper(run, 3, 1, 0 if made is None else made.number)
            assert peer.ask(commands.Send, partition, data=data).base_offset >= 0
            room.flush()
    for _ in range(2):
        assert find(room, partition, key=b"k4") == [4, 10]
        assert find(room, partition, id=b"id") == list(range(12))
        for first in (1, 4):
            assert find(room, partition, first, id=b"id") == list(range(first, 12))
        assert room.peer().ask(commands.FindMessages, partition, 0, id=b"id", until=4).offsets == [0, 1, 2, 3]
