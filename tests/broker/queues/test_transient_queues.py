"""Test that nothing of a transient queue is in the journal, and that all else of a record is (decision 0068).

Seen to fail: with records of transient queues journaled whole, with a prepared transaction's part for one kept in a
checkpoint, with what an exchange takes counted for messages that only they got, with their messages shown before the
force of those that durable queues got with them, with their memory kept after the acknowledgement, with their files
forced, kept after their end, or left by a start, and with a full disk ending the process.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c

from journal.check.verification import Level, verify
from journal.engine.disk_space import under_way
from journal.engine.engine import Engine
from journal.folds.table import client_folds
from journal.formats.filenames import TRANSIENT_DIRECTORY
from journal.records.queue_entries import QUEUE_GROUP, Binding, ExchangeKind, QueueSettings
from journal.records.transient import is_transient
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem
from journal.testing.memory import MemoryFile
from journal.transaction_states import Totals
from journal.transactions.state import TransactionRow
from journal.xid import Xid
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    SELF_OR_NOWHERE,
    Scene,
    acknowledged,
    framed,
    settled,
    values_of,
)
from tests.support.broker_room import Room, refused
from tests.support.builders import small_files
from txbroker.wire import messages

KIB = 1024


def xid(name: str = "order 7") -> Xid:
    return Xid(1, name.encode(), b"")


def journaled(scene: Scene) -> tuple[int, int]:
    """The LSN of the last record, and the bytes that the journal has taken."""
    return scene.room.engine.last_lsn, scene.room.engine.journaled_bytes


def prepare(scene: Scene, serial: int, data: bytes, to: int = SELF, **more: Any) -> Any:
    runs = [(to, len(data))] if data else []
    return scene.peer.ask(
        messages.Prepare, serial, xid(str(serial)), Totals(0, 0, 0), runs=runs, data=data, **more
    )


def facts_of(engine: Engine) -> list[tuple[str, list[Any]]]:
    """All that a checkpoint would have of each fold, and the ends of the logs that it would have."""
    rows = [(fold.name, [repr(row) for row in fold.snapshot()]) for fold in engine.folds]
    logs = [(each.number, each.start_offset, each.end_offset) for each in engine.catalog.durable_stores()]
    return [*rows, ("logs", logs)]


def replayed(disk: MemoryFilesystem) -> Engine:
    """Return the engine of a start on what a kill has left, as it is before the start's own record."""
    settings = small_files(outcome_archive=True)
    return recover(disk, ManualClock(monotonic=1_000_000), settings, folds=client_folds())


# -- what the journal has ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{"durable": False}, {"exclusive": True}], ids=["not durable", "exclusive"])
def test_a_queues_whole_life_writes_nothing(kind: dict[str, Any]):
    scene = Scene()
    scene.exchange("e", ExchangeKind.TOPIC)
    before = journaled(scene)
    queue = scene.queue(max_priority=3, **kind)
    assert is_transient(queue)
    scene.bind("e", "a.#", "q")
    scene.publish("q", b"a", b"b", b"c")
    assert scene.taken(queue, 2) == [b"a", b"b"]
    scene.acknowledge(queue, 0)
    scene.give_up(queue, 1)
    scene.peer.ask(messages.PurgeQueue, "q")
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    assert journaled(scene) == before
    assert scene.peer.ask(messages.ListQueues).queues == []


def test_a_message_for_it_alone_is_there_without_a_force():
    scene = Scene()
    queue = scene.queue(durable=False)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    group = engine.take()
    assert group is not None
    assert (group.count, group.length) == (0, 0)
    assert engine.write(group) == 0.0
    engine.publish(group)
    assert scene.taken(queue) == [b"a"]


def test_one_that_a_durable_queue_gets_too_is_shown_in_none_before_the_force():
    scene = Scene()
    passing, lasting = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, to, data=framed("", b"a"))
    waits = scene.peer.tell(messages.TakeMessages, passing, 1, max_wait=SECOND)
    assert scene.peer.answer(waits) is None
    group = engine.take()
    assert group is not None
    assert group.count
    engine.write(group)
    assert scene.peer.answer(waits) is None
    engine.publish(group)
    assert scene.peer.answer(waits).runs == [(0, 1)]
    assert scene.taken(lasting) == [b"a"]


def test_messages_sent_to_it_later_are_not_shown_before_such_a_one():
    scene = Scene()
    passing, _ = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, to, data=framed("", b"a"))
    group = engine.take()
    scene.peer.tell(messages.Send, SELF, data=framed("passing", b"b"))
    assert engine.take() is None, "the first is under way, and nothing overtakes it"
    assert group is not None
    engine.write(group)
    engine.publish(group)
    engine.sync()
    assert scene.taken(passing) == [b"a", b"b"]


def test_what_an_exchange_has_taken_is_the_same_after_a_start():
    scene = Scene()
    scene.queue("passing", durable=False)
    scene.queue("lasting")
    for name in ("passing", "lasting", "passing", "lasting"):
        scene.publish(name, b"x")
    scene.restart()
    assert scene.publish("lasting", b"y").base_offset == 2
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    assert scene.publish("lasting", b"z").base_offset == 3


def test_a_producers_sequence_is_known_after_a_start_though_only_such_a_queue_got_the_message():
    scene = Scene()
    queue = scene.queue(durable=False)
    opened = scene.peer.ask(messages.OpenProducer, "p")
    more = {"producer_id": opened.producer_id, "epoch": opened.epoch}
    scene.publish("q", b"a", sequence=0, **more)
    assert scene.taken(queue) == [b"a"]
    scene.room.restart()
    peer = scene.peer = scene.peer.again()
    again = scene.queue(durable=False)
    scene.publish("q", b"a", sequence=0, **more)
    assert scene.taken(again, peer=peer) == [], "it came before, and went with the queue of then"
    scene.publish("q", b"b", sequence=1, **more)
    assert scene.taken(again, peer=peer) == [b"b"]


def test_numbers_of_an_earlier_process_mean_no_queue_of_this_one():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.restart()
    again = scene.queue(durable=False)
    scene.publish("q", b"b")
    scene.taken(again)
    assert again != queue
    assert "is no queue's" in refused(scene.acknowledge(queue, 0), "InvalidSetting")
    assert scene.counts() == (1, 0, 1, 0)


# -- transactions --------------------------------------------------------------------------------------


def scene_with_both() -> tuple[Scene, int, int, int]:
    scene = Scene()
    passing, lasting = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    return scene, passing, lasting, to


def test_a_transaction_brings_messages_to_both_at_once():
    scene, passing, lasting, to = scene_with_both()
    data = framed("", b"a", b"b")
    assert isinstance(prepare(scene, 1, data, to), messages.Done)
    assert scene.taken(passing) == []
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert [each.partition for each in committed.placements] == [lasting]
    assert scene.taken(passing) == scene.taken(lasting) == [b"a", b"b"]


def test_after_a_start_a_prepared_one_brings_what_lasts():
    scene, passing, lasting, to = scene_with_both()
    scene.publish("passing", b"old")
    scene.publish("lasting", b"old")
    scene.taken(passing)
    scene.taken(lasting)
    what = [*acknowledged(passing, 0), *acknowledged(lasting, 0)]
    assert isinstance(prepare(scene, 1, framed("", b"new"), to, positions=what), messages.Done)
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    again = scene.queue("passing", durable=False)
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert [each.partition for each in committed.placements] == [lasting]
    assert scene.taken(lasting) == [b"new"]
    assert scene.taken(again) == []
    scene.restart()
    assert scene.counts("lasting") == (1, 1, 0, 0)


def test_one_that_only_had_to_do_with_transient_queues_can_still_be_ended_after_a_start():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"old")
    scene.taken(queue)
    data = framed("q", b"new")
    scene.peer.tell(messages.Add, 1, SELF, data=data)
    scene.peer.tell(messages.AddOffsets, 1, QUEUE_GROUP, [], settled=[settled(queue, 0)])
    said = Totals(1, 2, crc32c(data))
    assert isinstance(scene.peer.ask(messages.Prepare, 1, xid("1"), said), messages.Done)
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert committed.placements == []
    assert verified(scene) == []


def test_the_group_of_queues_is_the_same_though_its_first_record_was_of_a_transient_queue():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"a")
    scene.taken(queue)
    assert isinstance(prepare(scene, 1, b"", positions=acknowledged(queue, 0)), messages.Done)
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid("1")), messages.Committed)
    scene.queue("lasting")
    scene.room.engine.housekeeping.checkpoint_inline()
    assert verified(scene) == []


def test_dead_letters_go_from_one_kind_to_the_other():
    scene = Scene()
    lasting = scene.queue("lasting", delivery_limit=0, dead_letter_exchange="", dead_letter_key="passing")
    passing = scene.queue(
        "passing", durable=False, delivery_limit=0, dead_letter_exchange="", dead_letter_key="end"
    )
    end = scene.queue("end")
    scene.publish("lasting", b"a")
    scene.taken(lasting)
    scene.give_up(lasting, 0, dead=True)
    turns(scene)
    assert scene.taken(passing) == [b"a"]
    scene.give_up(passing, 0, dead=True)
    turns(scene)
    assert scene.taken(end) == [b"a"]
    scene.restart()
    assert scene.counts("lasting") == (0, 0, 0, 0)
    assert scene.taken(end) == [b"a"]
    assert verified(scene) == []


def turns(scene: Scene) -> None:
    for _ in range(5):
        scene.room.timers.advance(0.01)
        scene.room.broker.dead_letters.try_again()
        scene.room.engine.sync()


def verified(scene: Scene) -> list[str]:
    """Return what a deep verification finds in what a kill leaves now."""
    disk = scene.room.filesystem.kill_clone()
    return [str(each) for each in verify(disk, Level.DEEP) if not each.harmless]


# -- memory and files ------------------------------------------------------------------------------------


def scene_with_little_memory(**settings: Any) -> Scene:
    journal = small_files(pool_bytes=1024 * KIB, **settings)
    return Scene(Room(journal))


def filled(scene: Scene, count: int, name: str = "q") -> list[bytes]:
    """Publish more than fits into memory, flushing whenever that is wanted; return the values."""
    values = [b"%07d" % n + bytes(8 * KIB) for n in range(count)]
    for value in values:
        asked = scene.peer.tell(messages.Send, SELF, data=framed(name, value))
        scene.room.engine.sync()
        while (answer := scene.peer.answer(asked)) is None:
            flush(scene)
            scene.room.engine.sync()
        assert isinstance(answer, messages.Sent), answer
    return values


def flush(scene: Scene) -> None:
    engine = scene.room.engine
    engine.want_flush()
    for _ in range(3):
        for job in engine.jobs(engine.now()):
            job.run()
            engine.finish(job)


def files(scene: Scene) -> list[str]:
    disk = scene.room.filesystem
    if not disk.exists(TRANSIENT_DIRECTORY):
        return []
    folders = disk.list_directory(TRANSIENT_DIRECTORY)
    return [name for each in folders for name in disk.list_directory(f"{TRANSIENT_DIRECTORY}/{each}")]


def all_of(scene: Scene, queue: int) -> Iterator[bytes]:
    """Take and acknowledge everything."""
    while runs := (taken := scene.take(queue, 10)).runs:
        yield from values_of(taken, scene.peer)
        scene.acknowledge(queue, *[offset for first, count in runs for offset in range(first, first + count)])


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
    for _ in range(3):
        scene.publish("", b"x", to=SELF_OR_NOWHERE)
        scene.queue("lasting")
        scene.publish("lasting", b"x")
        scene.room.engine.housekeeping.checkpoint_inline()
    assert files(scene) == []


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
    assert files(scene) == [], "what begun work may need is left to it"
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


def test_their_memory_and_copies_take_no_room_that_begun_work_needs():
    scene = Scene()
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("a", "b", "c"):
        scene.queue(name, durable=False)
        scene.bind("e", "", name)
    engine = scene.room.engine
    before = under_way(engine, 0), engine.reserved_bytes
    scene.publish("", bytes(64 * KIB), to=to)
    assert (under_way(engine, 0), engine.reserved_bytes) == before
    scene.queue("lasting")
    scene.queue("lasting too")
    for name in ("lasting", "lasting too"):
        scene.bind("e", "", name)
    scene.publish("", bytes(64 * KIB), to=to)
    assert 64 * KIB < engine.reserved_bytes - before[1] < 65 * KIB, "that of the second durable one"


def test_they_are_not_compacted():
    scene = Scene()
    passing, lasting = scene.queue(durable=False), scene.queue("lasting")
    stores, unread = scene.room.engine.catalog.stores, scene.room.broker.queues.takes.deliveries.unread
    assert unread(stores[passing]) is None
    assert unread(stores[lasting]) is not None


# -- live and replayed -----------------------------------------------------------------------------------

NAMES = ("l1", "l2", "t1", "t2")


class Walk:
    """Random requests about durable and transient queues, with checkpoints, kills and restarts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.scene = Scene(Room(small_files(outcome_archive=True)))
        self.to = self.scene.exchange("e", ExchangeKind.FANOUT)
        self.serial = 0
        self.prepared: list[Xid] = []
        self.delivered: dict[str, list[int]] = {}

    def step(self) -> None:
        kind = self.random.choice(
            ("declare", "declare", "publish", "publish", "take", "take", "settle", "prepare", "prepare", "decide",
             "decide", "commit", "delete", "checkpoint", "restart", "rebind")
        )  # fmt: skip
        getattr(self, kind)()

    def settings(self, name: str) -> QueueSettings:
        other = NAMES[(NAMES.index(name) + 1) % len(NAMES)]
        return QueueSettings(1, "", other, durable=name.startswith("l"), max_priority=int(name == "t2"))

    def number(self, name: str) -> int:
        found = self.scene.room.broker.queues.declarations.known_queue(name)
        return 0 if found is None else found.partition

    def declare(self) -> None:
        name = self.random.choice(NAMES)
        self.scene.peer.ask(messages.DeclareQueue, name, self.settings(name))

    def rebind(self) -> None:
        kind = self.random.choice((messages.Bind, messages.Unbind))
        self.scene.peer.ask(kind, Binding("e", "", self.random.choice(NAMES)))

    def target(self) -> tuple[int, bytes]:
        count = self.random.randint(1, 3)
        if self.random.random() < 0.5:
            return self.to - 1, framed("", *[b"x"] * count)  # address of those that need no queue
        name = self.random.choice(NAMES)
        return SELF_OR_NOWHERE, framed(name, *[b"y"] * count)

    def publish(self) -> None:
        to, data = self.target()
        self.scene.peer.ask(messages.Send, to, data=data)

    def take(self) -> None:
        name = self.random.choice(NAMES)
        if number := self.number(name):
            answer = self.scene.peer.ask(messages.TakeMessages, number, self.random.randint(1, 3))
            if isinstance(answer, messages.Taken) and answer.partition == number:
                found = [offset for first, count in answer.runs for offset in range(first, first + count)]
                self.delivered.setdefault(name, []).extend(found)

    def some(self) -> tuple[str, list[int]]:
        name = self.random.choice(NAMES)
        has = self.delivered.get(name, [])
        most = self.random.randint(1, 3)
        self.delivered[name] = has[most:]
        return name, has[:most]

    def settle(self) -> None:
        name, offsets = self.some()
        if offsets and (number := self.number(name)):
            if self.random.random() < 0.4:
                self.scene.give_up(number, *offsets, dead=self.random.random() < 0.5)
            else:
                self.scene.acknowledge(number, *offsets)
            turns(self.scene)

    def contents(self) -> dict[str, Any]:
        runs, data, positions = [], b"", []
        for _ in range(self.random.randint(0, 2)):
            to, more = self.target()
            runs.append((to, len(more)))
            data += more
        for _ in range(self.random.randint(0, 2)):
            name, offsets = self.some()
            if offsets and (number := self.number(name)):
                positions += acknowledged(number, *offsets)
        return {"runs": runs, "data": data, "positions": positions}

    def prepare(self) -> None:
        self.serial += 1
        name = xid(f"{self.serial}")
        contents = self.contents()
        answer = self.scene.peer.ask(messages.Prepare, self.serial, name, Totals(0, 0, 0), **contents)
        if isinstance(answer, messages.Done):
            self.prepared.append(name)

    def decide(self) -> None:
        if self.prepared:
            kind = self.random.choice((messages.Commit, messages.Rollback))
            answer = self.scene.peer.ask(kind, xid=self.prepared.pop(0))
            assert isinstance(answer, messages.Committed | messages.Done), answer
            turns(self.scene)

    def commit(self) -> None:
        self.serial += 1
        self.scene.peer.ask(messages.Commit, self.serial, totals=Totals(0, 0, 0), **self.contents())

    def delete(self) -> None:
        name = self.random.choice(NAMES)
        if number := self.number(name):
            self.scene.peer.ask(messages.DeleteQueue, name, number)
            self.delivered.pop(name, None)

    def checkpoint(self) -> None:
        self.scene.room.engine.housekeeping.checkpoint_inline()

    def restart(self) -> None:
        if self.random.random() < 0.3:
            self.check()
            self.scene.room.filesystem = self.scene.room.filesystem.kill_clone()
            self.scene.room.start()
            self.scene.peer = self.scene.room.peer()
            self.serial = 0
            self.delivered.clear()
            assert not [name for name in NAMES[2:] if self.number(name)]

    def check(self) -> None:
        """Compare what a checkpoint would have now with what a replay makes."""
        engine = self.scene.room.engine
        engine.sync()
        disk = self.scene.room.filesystem.kill_clone()
        again = replayed(disk)
        again.sync()
        for (name, wanted), (_, found) in zip(facts_of(engine), facts_of(again), strict=True):
            if name not in (
                "catalog",
                "starts",
                "transactions",
            ):  # these have the new start, and what it ended
                assert found == wanted, name
        prepared = {str(each.xid): each for each in engine.transactions.prepared.values()}
        kept = {str(each.xid): each for each in again.transactions.prepared.values()}
        assert kept.keys() == prepared.keys()
        for name, each in kept.items():
            row, was = TransactionRow.of(each), TransactionRow.of(prepared[name])
            assert (row.entries, row.checksums, row.totals, row.settled) == (
                was.entries, was.checksums, was.totals, was.settled
            )  # fmt: skip
        outcomes = engine.transactions.outcomes.by_number
        for number, outcome in again.transactions.outcomes.by_number.items():
            if number in outcomes:
                assert outcome.placements == outcomes[number].placements
        again.close()
        assert [str(each) for each in verify(disk, Level.DEEP) if not each.harmless] == []


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(40))
def test_a_replay_makes_what_a_checkpoint_would_have_had(seed: int):
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
    walk.check()


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_thousands_of_replays_do(first: int):
    for seed in range(first, first + 1_000):
        walk = Walk(seed)
        for _ in range(60):
            walk.step()
        walk.check()
