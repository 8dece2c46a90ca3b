"""Test what transient queues take of memory and disk, and what is large for them (decision 0068).

Seen to fail: with their memory kept after an acknowledgement, also one during a flush, with a gap between two of their
segments, with their files forced, kept after their end, left by a start, or kept open, with a full disk ending the
process, with nobody served when memory is there without a flush, with their tails not flushed on a full disk, with
what is applied in slices without a record of its own, and with a failed removal ending the process.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from journal.engine.disk_space import under_way
from journal.formats.filenames import TRANSIENT_DIRECTORY
from journal.records.copies import SHARED_BYTES
from journal.records.queue_entries import ExchangeKind
from journal.testing.memory import MemoryFile
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    Scene,
    framed,
)
from tests.broker.queues.transient_scene import (
    KIB,
    MIB,
    all_of,
    files,
    filled,
    flush,
    prepare,
    scene_with_little_memory,
    verified,
    xid,
)
from tests.support.broker_room import Room, refused
from tests.support.builders import small_files
from txbroker.wire import messages

UNSHARED = SHARED_BYTES - 96
"""Bytes of a value that each queue has a copy of. Larger ones are in memory once."""


def test_what_is_acknowledged_takes_no_memory_and_no_file():
    scene = Scene()
    queue = scene.queue(durable=False)
    used = []
    for _ in range(3):
        filled(scene, 40)
        assert len(list(all_of(scene, queue))) == 40
        used.append(scene.room.engine.allocator.usage().used)
    assert used == [64 * KIB] * 3, "a cache keeps as much"
    assert not scene.room.filesystem.exists(TRANSIENT_DIRECTORY)


def test_what_memory_is_too_short_for_is_in_files_and_comes_in_order():
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    values = filled(scene, 200)
    flush(scene)
    assert files(scene)
    assert list(all_of(scene, queue)) == values


def test_such_files_go_with_what_is_acknowledged_and_with_the_queue():
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    filled(scene, 200)
    flush(scene)
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    flush(scene)
    assert files(scene) == []
    again = scene.queue(durable=False)
    filled(scene, 20)
    flush(scene)
    assert len(list(all_of(scene, again))) == 20
    filled(scene, 20)
    flush(scene)
    flush(scene)
    assert len([name for name in files(scene) if name.endswith(".log")]) == 1, "that of the last 20"


def test_a_start_removes_what_a_kill_has_left_of_them():
    scene = scene_with_little_memory()
    scene.queue(durable=False)
    filled(scene, 100)
    flush(scene)
    assert files(scene)
    scene.room.filesystem = scene.room.filesystem.kill_clone()
    scene.room.start()
    scene.peer = scene.room.peer()
    assert verified(scene) == []
    assert files(scene)
    checkpoints = scene.room.engine.housekeeping.checkpoint_lsn
    scene.room.engine.housekeeping.run_inline()
    assert files(scene) == [], "no checkpoint is needed, as none has ever referred to them"
    assert scene.room.engine.housekeeping.checkpoint_lsn == checkpoints


def test_they_are_never_forced(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    scene.queue(durable=False)
    filled(scene, 30)
    forced: list[str] = []
    kept = MemoryFile.force

    def force(file: MemoryFile) -> None:
        forced.append(file.path)
        kept(file)

    monkeypatch.setattr(MemoryFile, "force", force)
    flush(scene)
    scene.queue("lasting")
    scene.publish("lasting", b"x")
    scene.room.engine.housekeeping.checkpoint_inline()
    assert [path for path in forced if path.startswith("partitions/")]
    assert not [path for path in forced if path.startswith(TRANSIENT_DIRECTORY)]
    assert files(scene)


def test_a_full_disk_refuses_what_comes_and_loses_nothing_that_is_there():
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    values = filled(scene, 30)
    scene.room.filesystem.free = 10 * KIB
    flush(scene)
    assert files(scene), "their room was counted when they came"
    refused(scene.publish("q", b"more"), "DiskFull")
    scene.room.filesystem.free = 1 << 40
    scene.room.clock.advance(60 * SECOND)
    flush(scene)
    assert isinstance(scene.publish("q", b"more"), messages.Sent)
    assert list(all_of(scene, queue)) == [*values, b"more"]


def test_a_disk_that_is_full_when_they_are_written_ends_nothing(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    values = filled(scene, 30)
    engine = scene.room.engine
    engine.want_flush()
    jobs = engine.jobs(engine.now())
    with monkeypatch.context() as full:
        full.setattr(MemoryFile, "write_some", failing(errno.ENOSPC, TRANSIENT_DIRECTORY))
        for job in jobs:
            job.run()
            engine.finish(job)
    refused(scene.publish("q", b"more"), "DiskFull")
    scene.room.clock.advance(60 * SECOND)
    flush(scene)
    assert files(scene)
    assert isinstance(scene.publish("q", b"more"), messages.Sent)
    assert list(all_of(scene, queue)) == [*values, b"more"]


def test_a_failing_disk_ends_the_process_also_for_them(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    scene.queue(durable=False)
    filled(scene, 3)
    monkeypatch.setattr(MemoryFile, "write_some", failing(errno.EIO, TRANSIENT_DIRECTORY))
    with pytest.raises(OSError, match="out of order"):
        flush(scene)


def test_a_full_disk_ends_it_when_messages_are_written_that_last(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    scene.queue()
    filled(scene, 3)
    monkeypatch.setattr(MemoryFile, "write_some", failing(errno.ENOSPC, "partitions"))
    with pytest.raises(OSError, match="out of order"):
        flush(scene)


def failing(code: int, folder: str) -> Any:
    write_some = MemoryFile.write_some

    def fail(file: MemoryFile, *what: Any) -> int:
        if file.path.startswith(folder):
            raise OSError(code, "the disk is full or out of order")
        return write_some(file, *what)

    return fail


def test_the_disk_must_have_room_for_each_copy_in_their_files():
    scene = Scene()
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("a", "b", "c"):
        scene.queue(name, durable=False)
        scene.bind("e", "", name)
    engine = scene.room.engine
    before = under_way(engine, 0), engine.reserved_bytes
    scene.publish("", bytes(64 * KIB), to=to)
    assert 3 * 64 * KIB < under_way(engine, 0) - before[0] < 3 * 65 * KIB
    assert 3 * 64 * KIB < engine.reserved_bytes - before[1] < 3 * 65 * KIB
    scene.room.filesystem.free = engine.housekeeping.reserve_bytes + 100 * KIB
    engine.housekeeping.watch_space()
    assert engine.full
    refused(scene.publish("", bytes(64 * KIB), to=to), "DiskFull")


def test_a_second_shortage_of_memory_finds_what_was_acknowledged_between_them():
    scene = Scene()
    queue = scene.queue(durable=False)
    for value in (b"a", b"b", b"c"):
        scene.publish("q", value)
        flush(scene)
        scene.publish("q", value * 2)
        assert list(all_of(scene, queue)) == [value, value * 2]
    scene.publish("q", b"d")
    flush(scene)
    flush(scene)
    assert len([name for name in files(scene) if name.endswith(".log")]) == 1
    assert list(all_of(scene, queue)) == [b"d"]


def test_what_is_acknowledged_while_it_is_written_is_released_afterwards():
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    filled(scene, 10)
    engine = scene.room.engine
    engine.want_flush()
    jobs = engine.jobs(engine.now())
    filled(scene, 10)
    assert len(list(all_of(scene, queue))) == 20
    store = engine.catalog.stores[queue]
    assert store.unflushed_messages == 20
    for job in jobs:
        job.run()
        engine.finish(job)
    assert store.unflushed_messages == 0


def test_a_file_without_room_is_not_kept_open(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    filled(scene, 10)
    for _ in range(3):
        with monkeypatch.context() as full:
            full.setattr(MemoryFile, "write_some", failing(errno.ENOSPC, TRANSIENT_DIRECTORY))
            flush(scene)
    flush(scene)
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    flush(scene)
    pinned = scene.room.engine.open_files._pinned | scene.room.engine.open_files._forgotten
    assert [path for path in map(str, pinned) if path.startswith(TRANSIENT_DIRECTORY)] == []
    assert files(scene) == []


@pytest.mark.parametrize("end", ["acknowledged", "deleted"])
def test_who_waits_for_memory_is_served_when_it_is_there_without_a_flush(end: str):
    scene = scene_with_little_memory()
    queue, other = scene.queue(durable=False), scene.other
    while True:
        asked = scene.peer.tell(messages.Send, SELF, data=framed("q", bytes(100 * KIB)))
        scene.room.engine.sync()
        if scene.peer.answer(asked) is None:
            break
    if end == "deleted":
        assert isinstance(other.ask(messages.DeleteQueue, "q", queue), messages.Counted)
    while end == "acknowledged" and (runs := scene.take(queue, 10, other).runs):
        for first, count in runs:
            scene.acknowledge(queue, *range(first, first + count), peer=other)
    pass_turns(scene)
    answer = scene.peer.answer(asked)
    assert isinstance(answer, messages.Sent | messages.Refused), answer


def pass_turns(scene: Scene) -> None:
    for _ in range(5):
        scene.room.timers.advance(1)
        flush_if_wanted(scene)
        scene.room.engine.sync()


def flush_if_wanted(scene: Scene) -> None:
    engine = scene.room.engine
    for job in engine.jobs(engine.now()):
        job.run()
        engine.finish(job)


def test_a_prepared_transaction_is_committed_though_they_have_the_memory_and_the_disk_is_full():
    scene = Scene(Room(small_files(pool_bytes=32 * MIB)))
    scene.queue("passing", durable=False)
    scene.queue("l1")
    scene.queue("l2")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("l1", "l2"):
        scene.bind("e", "", name)
    assert isinstance(prepare(scene, 1, framed("", *[b"h" * UNSHARED] * 1048), to), messages.Done)
    while True:
        asked = scene.peer.tell(messages.Send, SELF, data=framed("passing", bytes(MIB)))
        scene.room.engine.sync()
        if scene.peer.answer(asked) is None:
            break
    scene.room.filesystem.free = 0
    scene.room.engine.housekeeping.watch_space()
    asked = scene.other.tell(messages.Commit, xid=xid("1"))
    for _ in range(100):
        scene.room.engine.sync()
        pass_turns(scene)
    assert isinstance(scene.other.answer(asked), messages.Committed)


def test_a_directory_that_a_read_fills_again_is_removed_later(monkeypatch: pytest.MonkeyPatch):
    scene = scene_with_little_memory()
    queue = scene.queue(durable=False)
    filled(scene, 10)
    flush(scene)
    remove = type(scene.room.filesystem).remove_directory

    def fail(*_: object) -> None:
        raise OSError(errno.ENOTEMPTY, "somebody reads there")

    scene.peer.ask(messages.DeleteQueue, "q", queue)
    with monkeypatch.context() as read:
        read.setattr(type(scene.room.filesystem), "remove_directory", fail)
        flush(scene)
    assert not scene.room.engine.failed
    assert type(scene.room.filesystem).remove_directory is remove
    again = scene.queue(durable=False)
    filled(scene, 10)
    flush(scene)
    scene.peer.ask(messages.DeleteQueue, "q", again)
    flush(scene)
    assert scene.room.filesystem.list_directory(TRANSIENT_DIRECTORY) == []


# -- what is large -----------------------------------------------------------------------------------------


def scene_with_fanout(**settings: Any) -> tuple[Scene, int, list[int]]:
    scene = Scene(Room(small_files(**settings)))
    queues = [scene.queue(name, durable=False) for name in "abcd"]
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in "abcd":
        scene.bind("e", "", name)
    return scene, to, queues


def test_much_for_them_alone_is_read_again_from_its_own_record():
    scene, to, queues = scene_with_fanout(pool_bytes=64 * MIB)
    scene.queue("l")
    assert isinstance(prepare(scene, 1, framed("l", *[b"h" * MIB] * 12)), messages.Done)
    values = [b"%d" % n + b"x" * (UNSHARED - 4) for n in range(1835)]
    asked = scene.peer.tell(messages.Send, to, data=framed("", *values))
    for _ in range(20):
        scene.room.engine.sync()
        flush(scene)
    assert isinstance(scene.peer.answer(asked), messages.Sent)
    for queue in queues:
        assert list(all_of(scene, queue)) == values


def test_it_is_shown_behind_what_came_before_it():
    scene, to, (queue, *_) = scene_with_fanout(pool_bytes=256 * MIB)
    scene.queue("l")
    engine = scene.room.engine
    scene.peer.tell(messages.Send, SELF, data=framed("l", b"x"))
    first = engine.take()
    scene.other.tell(messages.Send, SELF, data=framed("a", b"small"))
    scene.peer.tell(messages.Send, to, data=framed("", *[b"y" * UNSHARED] * 1310))
    for _ in range(100):
        if engine.busy:
            engine.continue_apply()
    assert engine.catalog.stores[queue].high_watermark == 0
    assert first is not None
    engine.write(first)
    engine.publish(first)
    engine.sync()
    assert next(all_of(scene, queue)) == b"small"


def test_what_is_applied_in_slices_is_counted_by_its_exchange_the_same_after_a_start():
    scene, to, _ = scene_with_fanout(pool_bytes=256 * MIB)
    scene.publish("", *[b"y" * UNSHARED] * 1310, to=to)
    scene.restart()
    scene.queue("l")
    scene.bind("e", "", "l")
    assert scene.publish("", b"z", to=to).base_offset == 1310


def test_they_are_not_compacted():
    scene = Scene()
    passing, lasting = scene.queue(durable=False), scene.queue("lasting")
    stores, unread = scene.room.engine.catalog.stores, scene.room.broker.queues.takes.deliveries.unread
    assert unread(stores[passing]) is None
    assert unread(stores[lasting]) is not None
