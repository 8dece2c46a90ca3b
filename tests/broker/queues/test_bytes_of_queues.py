"""Test queues whose bytes are bounded: what counts, who has to go, and that a start counts the same; and that a large
message for many queues is in memory once.
"""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from journal.constants import MIB
from journal.errors import CorruptSegment
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.records.queue_entries import ExchangeKind, Overflow
from journal.testing import MemoryFile
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    ReadingRoom,
    Scene,
    acknowledged,
    expiring,
    framed,
    pass_time,
    values_of,
)
from tests.support.broker_room import Room, refused
from tests.support.builders import small_files
from tests.support.engine_room import damage
from txbroker.queues import measurement
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY

XID = Xid(1, b"order", b"")


def bounded(scene: Scene, size: int, **more: Any) -> int:
    return scene.queue(max_length_bytes=size, **more)


def rejecting(scene: Scene, size: int, **more: Any) -> int:
    return bounded(scene, size, overflow=Overflow.REJECT_PUBLISH, **more)


def sent(answer: Any) -> None:
    assert isinstance(answer, messages.Sent), answer


def prioritised(priority: int, *values: bytes) -> bytes:
    return framed("q", *values, headers={PRIORITY: b"%d" % priority})


# -- dropping the oldest -------------------------------------------------------------------------------


def test_the_oldest_are_dropped_until_the_bodies_that_can_be_got_fit():
    scene = Scene()
    queue = bounded(scene, 10)
    scene.publish("q", b"1234", b"56", b"7890")
    pass_time(scene, 1000)
    assert scene.info().ready_bytes == 10, "as many as there may be"
    scene.publish("q", b"a")
    pass_time(scene, 1000)
    assert scene.taken(queue) == [b"56", b"7890", b"a"], "one goes, though it has more than is too much"
    assert scene.room.broker.queues.gauges()["queue_dropped"] == 1


def test_only_bodies_count():
    scene = Scene()
    bounded(scene, 4)
    scene.peer.ask(messages.Send, SELF, data=framed("q", b"12", b"34", headers={"a": b"x" * 1000}))
    pass_time(scene, 1000)
    assert (scene.counts()[1], scene.info().ready_bytes) == (2, 4)


def test_a_body_that_is_too_large_by_itself_goes_and_empty_ones_need_no_room():
    scene = Scene()
    queue = bounded(scene, 2)
    scene.publish("q", b"1", b"", b"123", b"", b"")
    pass_time(scene, 1000)
    assert scene.taken(queue) == [b"", b""]


def test_what_a_session_has_is_not_counted_and_counts_again_when_it_comes_back():
    scene = Scene()
    queue = bounded(scene, 4)
    scene.publish("q", b"12", b"34")
    assert scene.taken(queue) == [b"12", b"34"]
    scene.publish("q", b"56", b"78")
    pass_time(scene, 1000)
    assert (scene.counts(), scene.info().ready_bytes) == ((4, 2, 2, 0), 4)
    scene.give_up(queue, 1)
    pass_time(scene, 1000)
    assert scene.counts() == (3, 2, 1, 0)
    assert scene.taken(queue) == [b"56", b"78"], "what has come back was the oldest"


def test_what_is_returned_for_later_counts_when_it_is_due():
    scene = Scene()
    queue = bounded(scene, 3)
    scene.publish("q", b"12")
    scene.taken(queue)
    scene.give_up(queue, 0, after=SECOND)
    scene.publish("q", b"34")
    pass_time(scene, 1000)
    assert (scene.counts()[0], scene.info().ready_bytes) == (2, 2)
    pass_time(scene, SECOND)
    assert scene.counts() == (1, 1, 0, 0)
    assert scene.taken(queue) == [b"34"]


@pytest.mark.parametrize(("count", "size", "left"), [(2, 100, 2), (100, 5, 2), (3, 4, 2), (1, 8, 1)])
def test_of_two_bounds_the_one_counts_that_is_reached_first(count, size, left):
    scene = Scene()
    bounded(scene, size, max_length=count)
    scene.publish("q", b"12", b"34", b"56")
    pass_time(scene, 1000)
    assert scene.counts() == (left, left, 0, 0)


def test_too_many_bytes_go_to_the_dead_letters():
    scene = Scene()
    dead = scene.queue("dead")
    bounded(scene, 1, dead_letter_exchange="", dead_letter_key="dead")
    scene.publish("q", b"ab", b"c")
    pass_time(scene, 1000)
    answer = scene.take(dead)
    assert values_of(answer, scene.peer) == [b"ab"]
    data = bytes(scene.peer.data[scene.peer.answers.index(answer)])
    assert b'[["q","maxlen",1,' in data
    assert scene.info().ready_bytes == 1


def test_the_lowest_priority_goes_first_and_all_count():
    scene = Scene()
    queue = bounded(scene, 4, max_priority=3)
    for priority, value in ((3, b"1"), (0, b"23"), (1, b"4"), (0, b"56"), (3, b"7")):
        scene.peer.ask(messages.Send, SELF, data=prioritised(priority, value))
    pass_time(scene, 1000)
    assert scene.info().ready_bytes == 3
    assert [value for _ in range(2) for value in scene.taken(queue)] == [b"1", b"7", b"4"]


def test_what_ends_otherwise_is_not_counted_any_more():
    scene = Scene()
    bounded(scene, 10)
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"123"))
    scene.publish("q", b"45")
    pass_time(scene, 2 * SECOND)
    assert scene.info().ready_bytes == 2
    scene.peer.ask(messages.PurgeQueue, "q")
    pass_time(scene, 0)
    assert scene.info().ready_bytes == 0
    scene.publish("q", b"1234567890")
    assert scene.info().ready_bytes == 10


# -- refusing ------------------------------------------------------------------------------------------


def test_a_queue_refuses_bytes_that_are_too_many_and_other_queues_get_nothing_of_it():
    scene = Scene()
    queue = rejecting(scene, 4)
    scene.queue("other")
    to = scene.exchange("all", ExchangeKind.FANOUT)
    for name in ("q", "other"):
        scene.bind("all", "", name)
    sent(scene.publish("", b"12", to=to))
    text = refused(scene.publish("", b"3", b"45", to=to), "QueueFull")
    assert "queue 'q' may have 4 bytes in the bodies" in text
    assert scene.counts("other") == (1, 1, 0, 0)
    sent(scene.publish("", b"3", b"4", to=to))
    refused(scene.publish("", b"5", to=to), "QueueFull")
    sent(scene.publish("", b"", to=to))
    scene.taken(queue, 1)
    sent(scene.publish("", b"56", to=to))


def test_the_bytes_of_one_request_and_of_one_force_count_together():
    scene = Scene()
    rejecting(scene, 4)
    answers = [scene.peer.tell(messages.Send, SELF, data=framed("q", b"12")) for _ in range(3)]
    scene.room.engine.sync()
    sent(scene.peer.answer(answers[1]))
    refused(scene.peer.answer(answers[2]), "QueueFull")


@pytest.mark.parametrize(("count", "size"), [(1, 100), (100, 2)])
def test_a_queue_refuses_at_either_bound(count, size):
    scene = Scene()
    rejecting(scene, size, max_length=count)
    sent(scene.publish("q", b"12"))
    refused(scene.publish("q", b"3"), "QueueFull")


def test_a_transaction_is_refused_and_what_it_acknowledges_frees_its_bytes():
    scene = Scene()
    queue = rejecting(scene, 4)
    sent(scene.publish("q", b"1234"))
    scene.taken(queue)
    frames = framed("q", b"5678")
    answer = scene.peer.ask(
        messages.Commit, scene.peer.session.number, 1, runs=[(SELF, len(frames))],
        positions=acknowledged(queue, 0), data=frames,
    )  # fmt: skip
    assert isinstance(answer, messages.Committed)
    assert scene.info().ready_bytes == 4
    more = framed("q", b"9")
    text = refused(
        scene.peer.ask(
            messages.Commit, scene.peer.session.number, 2, seen=1, runs=[(SELF, len(more))], data=more
        ),
        "QueueFull",
    )
    assert "4 bytes" in text


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_what_a_prepared_transaction_holds_is_not_counted_until_it_is_rolled_back(commits, restarts):
    scene = Scene()
    queue = rejecting(scene, 4)
    sent(scene.publish("q", b"12", b"34"))
    scene.taken(queue, 1)
    answer = scene.peer.ask(messages.Prepare, 1, XID, positions=acknowledged(queue, 0))
    assert isinstance(answer, messages.Done), answer
    if restarts:
        scene.restart()
    assert (scene.counts()[3], scene.info().ready_bytes) == (1, 2)
    scene.peer.ask(messages.Commit if commits else messages.Rollback, xid=XID)
    pass_time(scene, 1000)
    assert scene.info().ready_bytes == (2 if commits else 4)


# -- a start -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("overflow", list(Overflow))
def test_a_start_counts_the_same(is_flushed, overflow):
    scene = Scene()
    queue = bounded(scene, 100, overflow=overflow)
    scene.publish("q", *[b"x" * length for length in range(10)])
    scene.taken(queue, 8)
    scene.acknowledge(queue, 0, 1, 3, 4)
    scene.give_up(queue, 5, after=60 * SECOND)
    scene.give_up(queue, 6, dead=True)
    scene.restart()
    if is_flushed:
        scene.room.flush()
    assert scene.info().ready_bytes == 2 + 7 + 8 + 9
    pass_time(scene, 61 * SECOND)
    assert scene.info().ready_bytes == 2 + 5 + 7 + 8 + 9
    scene.publish("q", b"y" * 50)
    scene.taken(queue, 1)
    assert scene.info().ready_bytes == 5 + 7 + 8 + 9 + 50


def slow_start(monkeypatch: pytest.MonkeyPatch, size: int, **settings: Any) -> tuple[Scene, ReadingRoom, int]:
    """A scene after a start, of a queue with two messages of 10 and 20 bytes that have to be read from a slow disk."""
    room = ReadingRoom()
    scene = Scene(room)
    queue = bounded(scene, size, **settings)
    scene.publish("q", b"a" * 10)
    scene.publish("q", b"b" * 20)
    scene.restart()
    room.flush()
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    return scene, room, queue


def test_a_queue_that_refuses_is_full_until_it_knows_that_it_is_not(monkeypatch):
    scene, room, _ = slow_start(monkeypatch, 100, overflow=Overflow.REJECT_PUBLISH)
    assert scene.info().ready_bytes is None
    refused(scene.publish("q", b"c" * 70), "QueueFull")
    room.read()
    assert scene.info().ready_bytes == 30
    sent(scene.publish("q", b"c" * 70))
    refused(scene.publish("q", b"d"), "QueueFull")


def test_a_queue_that_may_have_all_of_its_log_refuses_nothing_meanwhile(monkeypatch):
    scene, room, _ = slow_start(monkeypatch, 1000, overflow=Overflow.REJECT_PUBLISH)
    sent(scene.publish("q", b"c"))
    assert scene.info().ready_bytes is None
    room.read()
    assert scene.info().ready_bytes == 31


def test_a_queue_that_drops_waits_until_it_knows_how_much_it_has(monkeypatch):
    scene, room, _ = slow_start(monkeypatch, 30)
    scene.publish("q", b"c" * 10)
    assert scene.counts()[1] == 3
    for _ in range(5):
        pass_time(scene, 1000)
        room.read()
    assert (scene.counts()[1], scene.info().ready_bytes) == (2, 30)


def test_what_cannot_be_read_for_now_stops_nothing_else_and_is_measured_later(monkeypatch):
    scene, room, _ = slow_start(monkeypatch, 30)
    passes = room.broker.removal_passes
    passes._run_blocking = lambda work, done, failed: failed(OSError("no disk"))
    scene.queue("other", max_length=0)
    scene.publish("q", b"c")
    scene.publish("other", b"x")
    pass_time(scene, 1000)
    assert scene.counts("other") == (0, 0, 0, 0)
    passes._run_blocking = lambda work, done, failed: done(work())
    assert (scene.counts()[1], scene.info().ready_bytes) == (3, None)
    pass_time(scene, 2 * SECOND)
    assert (scene.counts()[1], scene.info().ready_bytes) == (2, 21)


def test_damaged_messages_have_no_bytes_and_hold_nothing_up(monkeypatch):
    scene, room, queue = slow_start(monkeypatch, 30)
    [segment] = room.engine.catalog.stores[queue].segments
    damage(room.filesystem, segment.path, SEGMENT_HEADER_BYTES + 3)

    def blocking(work: Any, done: Any, failed: Any) -> None:
        try:
            found = work()
        except CorruptSegment as error:
            failed(error)
        else:
            done(found)

    room.broker.removal_passes._run_blocking = blocking
    scene.publish("q", b"c")
    pass_time(scene, 1000)
    assert scene.info().ready_bytes == 1
    scene.publish("q", b"d" * 30)
    pass_time(scene, 1000)
    assert scene.info().ready_bytes == 30, "what cannot be read is dropped as any"


def test_many_messages_of_before_a_start_are_measured_in_turns(monkeypatch):
    monkeypatch.setattr(measurement, "AT_ONCE", 200)
    monkeypatch.setattr(measurement, "PIECE", 100)
    scene = Scene()
    bounded(scene, 1000)
    for _ in range(20):
        scene.publish("q", b"x" * 10)
    scene.restart()
    assert scene.info().ready_bytes is None
    for _ in range(10):
        scene.info()
    assert scene.info().ready_bytes == 200


# -- in memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_committed", [False, True], ids=["published", "committed"])
def test_a_large_message_for_many_queues_is_in_memory_once_also_in_a_replay(is_committed: bool):
    """Fifty copies would not fit: the record would be applied in slices, with a flush before each next one."""
    scene, value = Scene(Room(small_files(pool_bytes=8 * MIB))), b"large" * (MIB // 5)
    fan = scene.exchange("fan", ExchangeKind.FANOUT)
    queues = [scene.queue(f"q{number}") for number in range(50)]
    for number in range(50):
        scene.bind("fan", "", f"q{number}")
    if is_committed:
        data = framed("", value)
        scene.peer.tell(messages.Add, 1, fan, data=data)
        answer = scene.peer.ask(
            messages.Commit, scene.peer.session.number, 1, totals=Totals(1, 1, crc32c(data))
        )
        assert isinstance(answer, messages.Committed), answer
    else:
        sent(scene.publish("", value, to=fan))
    for _ in range(2):
        assert scene.room.engine.allocator.usage().used < 3 * MIB
        stores = scene.room.engine.catalog.stores
        assert min(stores[queue].unflushed_bytes for queue in queues) > len(value)
        assert {tuple(scene.taken(queue)) for queue in queues} == {(value,)}
        scene.restart()


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "all but one transient"])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_who_waits_for_memory_gets_it_though_all_flushes_but_the_last_free_nothing(count: int, durable: bool):
    scene = Scene(Room(small_files(pool_bytes=8 * MIB)))
    engine, fan = scene.room.engine, scene.exchange("fan", ExchangeKind.FANOUT)
    for number in range(count):
        scene.queue(f"q{number}", durable=durable or not number)
        scene.bind("fan", "", f"q{number}")
    line = scene.room.broker.parked_requests.line
    while not line:
        asked = scene.peer.tell(messages.Send, fan, data=framed("", bytes(100 << 10)))
        engine.sync()
    for job in engine.jobs(engine.now()):
        job.run()
        engine.finish(job)
    engine.sync()
    sent(scene.peer.answer(asked))
