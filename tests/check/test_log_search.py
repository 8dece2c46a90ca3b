"""Test the search through the files of a stopped broker: with tables of keys, without, and where they are not sound."""

import pytest

from journal import check
from journal.errors import CorruptSegment, StorageUnavailable
from journal.formats import frame
from journal.formats.compression import compressor
from journal.log.search import Wanted
from journal.message_headers import ID_HEADER
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import write_fully
from journal.walks import log_search
from tests.support.broker_room import Room
from txbroker.wire import messages as commands


@pytest.fixture
def room():
    room = Room()
    [partition] = room.topic(segment_bytes=64 << 10)
    peer = room.peer()
    for number in range(8):
        data = frame.encode(bytes(30_000), 1, b"k%d" % (number % 3), {ID_HEADER: b"id-%d" % number})
        peer.ask(commands.Send, partition, data=data)
        room.flush()
    room.engine.housekeeping.checkpoint_inline()
    return room


def with_tables(room):
    offset = 0
    while offset < 8:
        offset = room.peer().ask(commands.FindMessages, 1, offset, key=b"k1").next_offset
        room.engine.housekeeping.run_inline()
    return room.filesystem


def found(filesystem, start=0, **wanted):
    [store] = [each for each in check.newest_checkpoint(filesystem).stores if each.topic == "orders"]
    return [each.offset for each in check.search_log(filesystem, store, Wanted(**wanted), start)]


def tables(filesystem):
    return [path for path in filesystem.list_directory("partitions/orders-0.1") if path.endswith(".keys")]


@pytest.mark.parametrize("has_tables", [False, True])
def test_messages_are_found_and_nothing_is_written(room, has_tables):
    filesystem = with_tables(room) if has_tables else room.filesystem
    before = tables(filesystem)
    assert len(before) == (3 if has_tables else 0)
    assert found(filesystem, key=b"k1") == [1, 4, 7]
    assert found(filesystem, 2, key=b"k1") == [4, 7]
    assert found(filesystem, key=b"k1", id=b"id-4") == [4]
    assert found(filesystem, key=b"k2", id=b"id-4") == []
    assert found(filesystem, id=b"nobody's") == []
    assert tables(filesystem) == before


def test_a_segment_whose_table_has_nothing_is_not_read(room, monkeypatch):
    filesystem, read = with_tables(room), []
    read_run = log_search.read_run
    monkeypatch.setattr(
        log_search,
        "read_run",
        lambda reads, segment, *more: read.append(segment.base_offset) or read_run(reads, segment, *more),
    )
    assert found(filesystem, id=b"id-3") == [3]
    assert sorted(set(read)) == [2, 6], "the one that has it, and the newest, which has no table"


def test_a_table_that_is_not_sound_is_not_believed(room):
    filesystem = with_tables(room)
    for name in tables(filesystem):
        file = filesystem.open(f"partitions/orders-0.1/{name}")
        write_fully(file, file.size() - 8, [bytes(8)])
    assert found(filesystem, key=b"k1") == [1, 4, 7]
    assert found(filesystem, id=b"id-5") == [5]


def test_damage_ends_the_search_where_it_is(room):
    [store] = [each for each in check.newest_checkpoint(room.filesystem).stores if each.topic == "orders"]
    file = room.filesystem.open(f"partitions/orders-0.1/{2:032d}.log")
    write_fully(file, 200, [b"damage"])
    messages = check.search_log(room.filesystem, store, Wanted(key=b"k1"))
    assert next(messages).offset == 1
    with pytest.raises(CorruptSegment) as caught:
        next(messages)
    assert (caught.value.first_offset, caught.value.last_offset) == (2, 2)


def test_compressed_batches_are_searched_a_piece_at_a_time(room, monkeypatch):
    made, partition = compressor("zstd"), room.topic("packed")[0]
    for number in range(3):
        inner = frame.encode_inner(0, bytes(1000), 1, b"k") + frame.encode_inner(1, bytes(1000), 1, b"other")
        data = frame.encode_wrapper(made.pack(inner), 2, 1, made.number)
        assert room.peer().ask(commands.Send, partition, data=data).base_offset == 2 * number
    room.flush()
    room.engine.housekeeping.checkpoint_inline()
    monkeypatch.setattr("journal.log.search.MOST_OPENED", 1)
    [store] = [each for each in check.newest_checkpoint(room.filesystem).stores if each.topic == "packed"]
    assert [each.offset for each in check.search_log(room.filesystem, store, Wanted(key=b"k"))] == [0, 2, 4]


def test_a_directory_without_a_checkpoint_is_refused():
    with pytest.raises(StorageUnavailable, match="no sound checkpoint"):
        check.newest_checkpoint(MemoryFilesystem())


def test_tables_are_known_to_a_verification_and_a_dump(room):
    filesystem = with_tables(room)
    assert [each.problem for each in check.verify(filesystem.kill_clone())] == []
    assert check.kind_of(tables(filesystem)[0]) is None, "there is nothing in it for people"
