"""The scene of message stores: a partition's log by itself, in memory or on a disk."""

from itertools import count

import msgspec

from journal.constants import MIB
from journal.formats.frame import decode_run, encode, walk
from journal.formats.store_state import StoreState
from journal.log.message_store import MessageStore
from journal.log.segment_origin import SegmentOrigin
from journal.log.start_history import Starts
from journal.records.record import Started
from journal.settings import TopicSettings
from journal.vfs.open_files import OpenFiles

DIRECTORY = "partitions/orders-0.17"
BUDGET = 8 * MIB


def origin():
    """That of segments made in start 3, with salts that differ."""
    starts = Starts()
    starts.apply(1, Started(3, 0, 0, bytes(range(16))), b"")
    numbers = count(1)
    return SegmentOrigin(starts, lambda length: next(numbers).to_bytes(length, "big"))


def with_directory(filesystem):
    """The same, with the directory in which partitions have theirs."""
    filesystem.make_directory("partitions")
    filesystem.force_directory("")
    return filesystem


def make(filesystem, allocator, **settings):
    settings = TopicSettings(**{"segment_bytes": 1_000, **settings})
    return MessageStore(17, "orders", 0, settings, OpenFiles(filesystem), allocator, origin())


def frame(size=100):
    return encode(b"v" * (size - 44), 1)


def fill(store, count, size=100):
    for _ in range(count):
        store.append(frame(size), 1, store.last_time + 10)
    store.publish(store.end_offset)


def flush(store):
    job = store.begin_flush()
    job.run()
    store.finish_flush(job)


def in_memory_and_on_disk(store):
    yield
    flush(store)
    yield


def offsets(data):
    return [offset for _, _, offset, _ in walk(data)]


def drain(store, max_bytes=450):
    offset, found = store.start_offset, []
    while data := store.read(offset, max_bytes):
        found += [message.offset for message in decode_run(data, offset)]
        offset = found[-1] + 1
    return found


def reopened(store, filesystem, allocator):
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(store.state()), type=StoreState)
    again = MessageStore.restore(state, OpenFiles(filesystem), allocator, origin())
    again.compare()
    return again
