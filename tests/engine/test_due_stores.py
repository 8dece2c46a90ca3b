"""Test which tails are due: the same as by looking at all of them, without doing so."""

import gc
import random
import weakref

import pytest

from journal.engine import due_stores
from journal.engine.due_stores import DueStores
from journal.engine.jobs import FlushStore
from journal.log.force_policy import ForcePolicy
from journal.log.message_store import MessageStore
from journal.records.record import TopicDeleted
from tests.support.engine_room import SMALL, Room

INTERVAL = 50_000


def flushes(room):
    """The flushes that are due now; other jobs are done."""
    found = []
    for job in room.engine.jobs(room.engine.now()):
        if isinstance(job, FlushStore):
            found.append(job)
        else:
            carry_out(room, job)
    return found


def carry_out(room, job):
    job.run()
    room.engine.finish(job)


def by_looking_at_all(room):
    now = room.engine.now()
    return {
        store.number
        for store in room.engine.catalog.stores.values()
        if store.unflushed_messages and not store.is_flushing
        if ForcePolicy.of(store.settings).due(store.unflushed_messages, now - store.oldest_unflushed_time)
    }


@pytest.mark.parametrize("seed", range(20))
def test_what_is_due_is_what_a_look_at_every_store_finds(seed):
    choose = random.Random(seed)
    room = Room()
    room.topic("slow", partitions=12, force_messages=6, force_interval=10 * INTERVAL)
    room.topic("fast", partitions=12, force_messages=9, force_interval=INTERVAL)
    under_way, seen = [], 0
    for _ in range(300):
        action = choose.random()
        if action < 0.6:
            number = min(choose.randint(1, 24), choose.randint(1, 24))
            room.send(*[b"message"] * choose.choice((1, 1, 2, 7)), number=number)
        elif action < 0.75:
            room.clock.advance(choose.randint(1, INTERVAL // 2))
        elif action < 0.85 and under_way:
            carry_out(room, under_way.pop(choose.randrange(len(under_way))))
        elif action < 0.87 and any(not store.is_flushing for store in room.engine.dirty):
            room.engine.housekeeping.want_flush()
            under_way += flushes(room)
        else:
            expected = by_looking_at_all(room)
            found = flushes(room)
            assert [job.store.number for job in found] == sorted(expected)
            under_way += found
            seen += len(found)
    assert seen > 10


def test_a_store_is_not_looked_at_before_its_time(monkeypatch):
    room = Room()
    room.topic(partitions=100, force_messages=5, force_interval=INTERVAL)
    for number in range(1, 101):
        room.send(b"message", number=number)
    looks = []
    oldest = MessageStore.oldest_unflushed_time.fget
    monkeypatch.setattr(
        MessageStore,
        "oldest_unflushed_time",
        property(lambda store: looks.append(store.number) or oldest(store)),
    )
    assert not flushes(room)
    assert sorted(looks) == [*range(1, 101)]
    for _ in range(10):
        room.send(b"message", number=7)
        if room.store(7).unflushed_messages < 5:
            assert not flushes(room)
    assert len(looks) == 100, "what comes in does not make anybody look either"
    assert [job.store.number for job in flushes(room)] == [7], "enough messages do"
    room.clock.advance(INTERVAL)
    assert len(flushes(room) + flushes(room)) == 99
    assert len(looks) == 199
    for number in range(1, 101):
        room.send(b"message", number=number)
    assert not flushes(room)
    assert len(looks) == 199, "nor at one that is in line to be flushed, when more has come to it"


def test_what_came_during_a_flush_is_due_when_that_is_over():
    room = Room()
    room.topic(partitions=1, force_messages=3, force_interval=INTERVAL)
    room.send(*[b"message"] * 3)
    [flush] = flushes(room)
    room.send(*[b"message"] * 3)
    assert not flushes(room)
    carry_out(room, flush)
    [flush] = flushes(room)
    carry_out(room, flush)
    assert room.store().flushed_offset == 6


def test_what_a_start_found_in_the_journal_is_due_by_number_and_by_age():
    room = Room()
    room.topic(partitions=3, force_messages=4, force_interval=INTERVAL)
    for number, messages in ((1, 3), (2, 4)):
        room.send(*[b"message"] * messages, number=number)
    after = room.crashed()
    assert [job.store.number for job in flushes(after)] == [2]
    after.clock.advance(INTERVAL)
    assert [job.store.number for job in flushes(after)] == [1]


def test_what_is_shown_and_no_longer_in_memory_is_forgotten_until_more_comes():
    room = Room()
    store = room.topic(partitions=1, force_messages=4, force_interval=INTERVAL)[0]
    dirty, filled = {store}, set()
    due = DueStores(dirty, filled)
    assert not due.due(0)
    assert not dirty
    room.send(b"message")
    dirty.add(store)
    assert due.due(room.engine.now() + INTERVAL) == [store]


def test_a_deleted_topic_leaves_nothing_behind():
    room = Room()
    room.topic(force_messages=10)
    room.send(b"message")
    assert not flushes(room)
    gone = weakref.ref(room.store())
    room.engine.accept(TopicDeleted("t", room.engine.now()))
    room.engine.sync()
    for number in range(3):
        room.topic(f"t{number}")
        room.checkpoint()
    gc.collect()
    assert gone() is None


def test_the_disk_is_full_to_the_byte_of_what_waits_in_memory():
    room = Room()
    room.topic(partitions=3)
    room.engine.housekeeping.run_inline()  # the next journal file is there, and needs no room any more
    for number in (1, 3):
        room.send(b"message" * 100, number=number)
    waiting = sum(store.unflushed_bytes for store in room.engine.catalog.stores.values())
    assert waiting > 1_400
    for free, full in ((waiting - 1, True), (waiting, False), (SMALL.pool_bytes, False)):
        room.plan.free_bytes = SMALL.low_water_bytes + SMALL.file_bytes + free
        room.engine.housekeeping.watch_space()
        assert room.engine.full is full


def test_those_whose_time_comes_in_one_moment_are_found_some_at_a_time_the_oldest_first(monkeypatch):
    monkeypatch.setattr(due_stores, "LOOKS_AT_ONCE", 4)
    room = Room()
    room.topic(partitions=10, force_interval=INTERVAL)
    for number in range(10, 0, -1):
        room.clock.advance(1)
        room.send(b"message", number=number)
    assert not flushes(room)
    room.clock.advance(INTERVAL)
    found = []
    while jobs := flushes(room):
        found.append([job.store.number for job in jobs])
    assert found == [[7, 8, 9, 10], [3, 4, 5, 6], [1, 2]]
