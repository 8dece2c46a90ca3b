"""Test what requests about queues may cost others: space on the disk, answers, turns, names."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from journal.constants import KIB, MIB
from journal.records.queue_entries import Binding, ExchangeKind
from journal.settings import TopicSettings
from journal.testing import MemoryFile
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import SELF, Scene, framed
from tests.support.broker_room import refused
from tests.support.counted_calls import calls
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches.stepwise_answers import MOST_AT_ONCE
from txbroker.broker.queues.takes import QUEUES_AT_ONCE, SERVED_AT_ONCE
from txbroker.queues.further_keys import MAX_KEYS
from txbroker.queues.publishing import MAX_COPIES
from txbroker.wire import messages
from txbroker.wire.queues import KEYS

XID = Xid(1, b"g", b"b")


def fan_out(scene: Scene, queues: int) -> int:
    """An exchange that leads to so many queues."""
    address = scene.exchange("e", ExchangeKind.FANOUT)
    for number in range(queues):
        scene.queue(f"q{number}")
        scene.bind("e", "", f"q{number}")
    return address


def leave_room(scene: Scene, size: int) -> None:
    """Let the disk have that much room for new work."""
    keeping = scene.room.engine.housekeeping
    scene.room.filesystem.free_bytes = lambda: keeping.reserve_bytes + size  # type: ignore[method-assign]
    keeping.watch_space()
    assert not scene.room.engine.full


def test_queues_that_come_and_go_are_no_partitions_of_topics():
    scene = Scene()
    limit = scene.room.engine.catalog.max_partitions = 3
    for number in range(20):
        made = scene.queue(f"q{number}", durable=number % 2 == 0, max_priority=number % 3)
        assert isinstance(scene.peer.ask(messages.DeleteQueue, f"q{number}", made), messages.Counted)
    scene.peer.ask(messages.CreateTopic, "t", limit, TopicSettings())
    assert scene.peer.ask(messages.AskStatus).values["partitions"] == limit
    refused(scene.peer.ask(messages.CreateTopic, "u", 1, TopicSettings()), "LimitExceeded")


def test_what_goes_to_many_queues_needs_its_room_in_each_of_them():
    scene = Scene()
    address = fan_out(scene, 20)
    leave_room(scene, 15 * MIB)
    text = refused(scene.publish("", b"x" * MIB, to=address), "DiskFull")
    assert "the messages go to several queues" in text
    assert isinstance(scene.publish("q0", b"x" * 100, to=SELF), messages.Sent), "one place is room enough"
    scene.room.engine.housekeeping.watch_space()
    assert isinstance(scene.publish("", b"x" * 100 * KIB, to=address), messages.Sent)
    assert scene.counts("q19")[0] == 1


def test_a_prepared_transaction_has_the_room_that_its_commit_takes():
    scene = Scene()
    address = fan_out(scene, 20)
    leave_room(scene, 45 * MIB)
    kept, data = 0, framed("", b"x" * 600 * KIB)
    for serial in range(1, 9):
        scene.room.clock.advance(200_000)
        scene.room.engine.housekeeping.watch_space()
        runs = [(address, len(data))]
        answer = scene.peer.ask(
            messages.Prepare, serial, Xid(1, b"%d" % serial, b""), Totals(0, 0, 0), runs=runs, data=data
        )
        kept += isinstance(answer, messages.Done)
        if not isinstance(answer, messages.Done):
            refused(answer, "DiskFull")
    assert 1 <= kept <= 3, "each takes 12 MB"


def test_an_answer_has_no_more_bytes_than_any_other():
    scene = Scene(max_fetch=64 * KIB)
    queue = scene.queue()
    for _ in range(4):
        scene.publish("q", b"x" * 40 * KIB)
    answer = scene.take(queue, max_bytes=1 << 40)
    assert answer.runs == [(0, 1)]
    assert scene.counts() == (4, 3, 1, 0)


def test_what_the_runs_of_a_request_look_at_counts_together():
    scene = Scene()
    address = fan_out(scene, 0)
    scene.queue("q")
    for number in range(257):
        scene.peer.tell(messages.Bind, Binding("e", str(number), "q"))
    data = framed("", b"x")
    runs = [(address, len(data))] * 300
    answer = scene.peer.ask(messages.Commit, serial=1, runs=runs, data=data * 300)
    assert "Send fewer in one request" in refused(answer, "LimitExceeded")


def test_bindings_with_the_same_pattern_count_each():
    scene = Scene()
    scene.queue()
    address = scene.exchange("e", ExchangeKind.TOPIC)
    for number in range(300):
        scene.peer.tell(messages.Bind, Binding("e", "#", "q", arguments=(("n", number),)))
    data = b"".join(framed(f"{number}", b"x") for number in range(300))
    assert "Send fewer in one request" in refused(
        scene.peer.ask(messages.Send, address, data=data), "LimitExceeded"
    )


def test_those_that_wait_are_served_over_several_turns():
    scene = Scene()
    queue = scene.queue()
    waiting = [
        scene.other.tell(messages.TakeMessages, queue, 1, 1000, 60_000_000) for _ in range(3 * SERVED_AT_ONCE)
    ]

    def answered() -> int:
        scene.room.engine.sync()
        return sum(scene.other.answer(each) is not None for each in waiting)

    scene.publish("q", *[b"x"] * 100)
    assert answered() == SERVED_AT_ONCE
    scene.room.timers.advance(0)
    assert answered() == 3 * SERVED_AT_ONCE
    assert scene.counts()[2] == 3 * SERVED_AT_ONCE


def test_a_session_that_was_congested_gets_what_it_waits_for():
    scene = Scene()
    queue = scene.queue()
    waiting = scene.other.tell(messages.TakeMessages, queue, 9, 1000, 60_000_000)
    scene.other.session.congested = True
    scene.publish("q", b"x")
    assert scene.other.answer(waiting) is None
    scene.other.session.congested = False
    scene.room.engine.sync()
    assert scene.other.answer(waiting).runs == [(0, 1)]


@pytest.mark.parametrize("most", [0, 3])
def test_a_congested_session_is_not_asked_again_and_again_when_a_message_is_due(most):
    scene = Scene()
    queue = scene.queue(max_priority=most)
    scene.publish("q", b"x")
    scene.taken(queue)
    scene.give_up(queue, 0, after=1_000_000)
    scene.other.tell(messages.TakeMessages, queue, 9, 1000, 60_000_000)
    scene.other.session.congested = True
    scene.room.clock.advance(2_000_000)
    calls = itertools.count()
    looked = scene.room.broker.queues.takes._is_due

    def counted(number: Any) -> None:
        next(calls)
        looked(number)

    scene.room.broker.queues.takes._is_due = counted
    for _ in range(50):
        scene.room.timers.advance(0.1)
    assert next(calls) <= 2


class Named:
    """Rights on what has these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def allows(self, right: Any, resource: Any, thing: Any) -> bool:
        return thing.name in self.names


def test_the_pages_of_a_list_name_nothing_that_must_not_be_seen():
    scene = Scene()
    for name in ("a-secret", "b", "c-secret", "d", "e-secret"):
        scene.queue(name)
    queues = scene.room.broker.queues.listing
    scene.peer.session.rights = Named("b", "d", "amq.default", "amq.topic")  # type: ignore[assignment]
    session, nothing = scene.peer.session, memoryview(b"")
    first = queues.list_queues(session, messages.ListQueues(1, limit=1), nothing)
    assert ([each.name for each in first.queues], first.next) == (["b"], "b")
    last = queues.list_queues(session, messages.ListQueues(1, after="b", limit=1), nothing)
    assert ([each.name for each in last.queues], last.next) == (["d"], None)
    found = queues.list_exchanges(session, messages.ListExchanges(1, limit=1), nothing)
    assert ([each.name for each in found.exchanges], found.next) == ([""], "")


def test_what_is_ready_is_taken_while_others_publish_much():
    scene = Scene()
    queue = scene.queue()
    for number in range(300):
        scene.queue(f"q{number}")
    scene.publish("q", b"ready")
    scene.peer.tell(messages.Send, SELF, data=b"".join(framed(f"q{number}", b"x") for number in range(300)))
    assert scene.room.engine.busy
    taking = scene.other.tell(messages.TakeMessages, queue, 1, 1000, 0)
    listing = scene.other.tell(messages.ListQueues, ["q"])
    assert not scene.other.session.parked
    scene.room.engine.sync()
    assert scene.other.answer(taking).runs == [(0, 1)]
    assert scene.other.answer(listing).queues[0].unacknowledged == 1


def test_a_dead_letter_that_dies_again_has_what_was_said_of_it_last():
    scene = Scene()
    queue = scene.queue(dead_letter_exchange="")
    scene.publish("q", b"x" * 10)
    sizes = []
    for offset in range(4):
        answer = scene.take(queue)
        assert answer.runs == [(offset, 1)]
        sizes.append(len(scene.peer.data[scene.peer.answers.index(answer)]))
        scene.give_up(queue, offset, dead=True)
        scene.room.engine.sync()
    assert sizes[1] == sizes[2] == sizes[3] > sizes[0]


def test_more_queues_than_a_session_may_read_at_once_are_read_one_after_the_other(monkeypatch):
    scene = Scene()
    queues = [scene.queue(f"q{number}") for number in range(20)]
    for number in range(20):
        scene.publish(f"q{number}", b"x" * 2000, b"y" * 2000)
    scene.room.flush()
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    pool = ManualWorker()
    scene.room.broker.stepwise._run_blocking = pool.submit
    asked = [scene.peer.tell(messages.TakeMessages, each, 2, 10_000, 10_000_000) for each in queues]
    assert len(pool.work) == MOST_AT_ONCE
    for _ in range(20):
        while pool.work:
            pool.step()
        scene.room.timers.advance(0.001)
        scene.room.engine.sync()
    assert [scene.peer.answer(each).runs for each in asked] == [[(0, 2)]] * 20


def test_who_does_not_read_its_answers_gets_no_more_until_it_has():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b")
    scene.peer.session.congested = True
    waiting = scene.peer.tell(messages.TakeMessages, queue, 1, 1000, 60_000_000)
    scene.room.engine.sync()
    assert scene.peer.answer(waiting) is None
    assert scene.taken(queue, 1, peer=scene.other) == [b"a"], "others are served"
    scene.peer.session.congested = False
    scene.room.engine.sync()
    assert scene.peer.answer(waiting).runs == [(1, 1)]


def test_to_declare_and_delete_a_queue_costs_the_same_with_many_others():
    counts = []
    for others in (10, 1000):
        scene = Scene()
        for number in range(others):
            scene.peer.tell(messages.DeclareQueue, f"other{number}")
        scene.room.engine.sync()

        def work() -> None:
            queue = scene.queue()  # noqa: B023 - called at once
            scene.publish("q", b"a")  # noqa: B023
            scene.peer.ask(messages.DeleteQueue, "q", queue)  # noqa: B023

        counts.append(len(calls(work)))
    assert counts[1] < 1.1 * counts[0]


def test_what_one_force_brings_to_many_queues_is_handed_out_in_turns():
    scene, count = Scene(), 2 * QUEUES_AT_ONCE + 5
    address = fan_out(scene, count)
    peers = [scene.room.peer(f"10.0.3.{number}:1") for number in range(count)]
    numbers = [each.partition for each in scene.peer.ask(messages.ListQueues).queues]
    asked = [
        peer.tell(messages.TakeMessages, number, 1, max_wait=1_000_000)
        for peer, number in zip(peers, numbers, strict=True)
    ]

    def answered() -> int:
        return sum(each.answer(number) is not None for each, number in zip(peers, asked, strict=True))

    takes, counts = scene.room.broker.queues.takes, list[int]()
    serve_some = takes._serve_backlog

    def counted() -> None:
        counts.append(answered())
        serve_some()

    takes._serve_backlog = counted  # type: ignore[method-assign]
    scene.peer.ask(messages.Send, address, data=framed("", b"x"))
    get = scene.other.tell(messages.TakeMessages, numbers[-1], 1)
    for _ in range(3):
        scene.room.timers.advance(0)
    assert [*counts, answered()] == [QUEUES_AT_ONCE, 2 * QUEUES_AT_ONCE, count]
    scene.room.engine.sync()
    assert scene.other.answer(get).runs == [], "who waited longer has it"


@pytest.mark.parametrize("kind", [ExchangeKind.FANOUT, ExchangeKind.TOPIC])
def test_further_keys_of_a_message_are_looked_up_as_far_as_a_request_may_look(kind: ExchangeKind):
    scene = Scene()
    address = scene.exchange("e", kind)
    for number in range(100):
        scene.queue(f"q{number}")
        scene.bind("e", "#", f"q{number}")
    fold = scene.room.broker.queues.declarations._fold
    before = fold.steps
    keys = msgspec.json.encode([["x"] * MAX_KEYS, ["y"] * MAX_KEYS])
    data = framed("k", b"a", headers={KEYS: keys})
    told = refused(scene.peer.ask(messages.Send, address, data=data), "LimitExceeded")
    assert "nothing was sent" in told
    assert fold.steps - before < 1.1 * MAX_COPIES
    assert scene.publish("k", b"a", to=address).base_offset == 0
