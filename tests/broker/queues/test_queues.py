"""Queues over requests: what is published, taken, acknowledged, returned."""

from __future__ import annotations

import itertools

import pytest
from crc32c import crc32c

from journal.formats.offset_set_bytes import encode_offsets
from journal.records.group_entries import GroupPositions
from journal.records.queue_entries import QUEUE_GROUP, Binding, ExchangeKind, address_of
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import (
    SELF,
    SELF_OR_NOWHERE,
    Scene,
    acknowledged,
    framed,
    offsets,
    settled,
    values_of,
)
from tests.support.broker_room import refused
from txbroker.broker.queues.takes import SERVED_AT_ONCE
from txbroker.queues.level import MAX_RUNS
from txbroker.wire import messages

XID = Xid(1, b"order 7", b"")


def test_a_message_is_taken_acknowledged_and_gone():
    scene = Scene()
    queue = scene.queue()
    assert isinstance(scene.publish("q", b"one", b"two"), messages.Sent)
    assert scene.counts() == (2, 2, 0, 0)
    assert scene.taken(queue) == [b"one", b"two"]
    assert scene.counts() == (2, 0, 2, 0)
    assert scene.taken(queue) == []
    assert isinstance(scene.acknowledge(queue, 0), messages.Done)
    assert scene.counts() == (1, 0, 1, 0)
    scene.restart()
    assert scene.taken(queue) == [b"two"]


def test_two_sessions_share_a_queue_and_neither_acknowledges_what_the_other_has():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b", b"c")
    assert scene.taken(queue, 2) == [b"a", b"b"]
    assert scene.taken(queue, 2, scene.other) == [b"c"]
    text = refused(scene.acknowledge(queue, 0, 2), "DeliveryLost")
    assert "message 2 of queue 'q' is not delivered to this session" in text
    assert scene.counts() == (3, 0, 3, 0), "nothing of it has changed"
    refused(scene.acknowledge(queue, 0, peer=scene.other), "DeliveryLost")
    assert isinstance(scene.acknowledge(queue, 0, 1), messages.Done)
    assert isinstance(scene.acknowledge(queue, 0), messages.Done), "a repetition, whose answer was lost"


def test_a_message_that_goes_to_three_queues_is_in_the_journal_once():
    scene = Scene()
    queues = [scene.queue(name) for name in ("a", "b", "c")]
    address = scene.exchange("all", ExchangeKind.FANOUT)
    for name in ("a", "b", "c"):
        scene.bind("all", "", name)
    before = scene.room.engine.journaled_bytes
    scene.publish("any", b"x" * 8192, to=address)
    grown = scene.room.engine.journaled_bytes - before
    assert 8192 < grown < 2 * 8192, "three copies would be more"
    scene.restart()
    for queue in queues:
        assert scene.taken(queue) == [b"x" * 8192]


def test_each_message_of_a_request_goes_its_own_way():
    scene = Scene()
    one, two = scene.queue("one"), scene.queue("two")
    address = scene.exchange("t", ExchangeKind.TOPIC, mandatory=False)
    scene.bind("t", "a.*", "one")
    scene.bind("t", "#", "two")
    data = framed("a.b", b"1") + framed("a.c", b"2") + framed("b", b"3") + framed("a.d", b"4")
    assert scene.peer.ask(messages.Send, address, data=data).base_offset == 0
    assert scene.taken(one) == [b"1", b"2", b"4"]
    assert scene.taken(two) == [b"1", b"2", b"3", b"4"]


def test_what_finds_no_queue_is_refused_or_dropped_as_the_sender_wants():
    scene = Scene()
    queue = scene.queue()
    text = refused(scene.publish("nobody", b"x"), "Unroutable")
    assert "the default exchange finds no queue for a message with routing key 'nobody'" in text
    data = framed("q", b"kept") + framed("nobody", b"dropped") + framed("q", b"kept, too")
    refused(scene.peer.ask(messages.Send, SELF, data=data), "Unroutable")
    assert scene.counts() == (0, 0, 0, 0), "all or none"
    assert isinstance(scene.peer.ask(messages.Send, SELF_OR_NOWHERE, data=data), messages.Sent)
    assert scene.taken(queue) == [b"kept", b"kept, too"]
    assert scene.room.broker.queues.publishing.unrouted == 1


def test_a_repeated_publish_is_answered_as_the_first_time_whatever_is_bound_since():
    scene = Scene()
    queue = scene.queue()
    producer = scene.peer.ask(messages.OpenProducer)
    named = {"producer_id": producer.producer_id, "epoch": producer.epoch, "sequence": 0}
    first = scene.publish("q", b"x", to=SELF, **named)
    second = scene.publish("q", b"y", to=SELF, **(named | {"sequence": 1}))
    assert (first.base_offset, second.base_offset) == (0, 1)
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    again = scene.publish("q", b"x", to=SELF, **named)
    assert again.base_offset == 0
    queue = scene.queue()
    scene.restart()
    assert scene.counts() == (0, 0, 0, 0), f"of queue {queue}"


def test_returned_messages_come_first_and_their_attempts_are_counted():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b", b"c")
    scene.taken(queue, 2)
    assert isinstance(scene.give_up(queue, 0), messages.Done)
    answer = scene.take(queue)
    assert (answer.runs, answer.attempts, answer.redelivered) == ([(0, 1), (2, 1)], [(0, 1)], [(0, 1)])
    scene.restart()
    answer = scene.take(queue)
    assert (answer.runs, answer.attempts) == ([(0, 3)], [(0, 1)])
    assert answer.redelivered == [(0, 3)], "nobody knows what had been delivered"


def test_what_is_given_back_counts_no_attempt():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b")
    scene.taken(queue)
    scene.peer.ask(messages.GiveBack, queue, encode_offsets(offsets(1), 0), 0)
    answer = scene.take(queue)
    assert (answer.runs, answer.attempts, answer.redelivered) == ([(1, 1)], [], [(1, 1)])


def test_a_message_that_is_returned_for_later_comes_then():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.give_up(queue, 0, after=5_000_000)
    assert scene.counts() == (1, 0, 0, 0)
    waiting = scene.peer.tell(messages.TakeMessages, queue, 1, 1000, 60_000_000)
    scene.room.clock.advance(4_000_000)
    scene.room.timers.advance(4)
    assert scene.peer.answer(waiting) is None
    scene.room.clock.advance(1_100_000)
    scene.room.timers.advance(1.1)
    scene.room.engine.sync()
    assert values_of(scene.peer.answer(waiting), scene.peer) == [b"a"]


def test_whoever_waits_gets_the_next_message_in_the_order_of_asking():
    scene = Scene()
    queue = scene.queue()
    first = scene.peer.tell(messages.TakeMessages, queue, 1, 1000, 60_000_000)
    second = scene.other.tell(messages.TakeMessages, queue, 1, 1000, 60_000_000)
    scene.room.engine.sync()
    assert scene.peer.answer(first) is scene.other.answer(second) is None
    scene.publish("q", b"a", b"b")
    assert values_of(scene.peer.answer(first), scene.peer) == [b"a"]
    assert values_of(scene.other.answer(second), scene.other) == [b"b"]


def test_a_wait_that_ends_is_answered_with_nothing():
    scene = Scene()
    queue = scene.queue()
    waiting = scene.peer.tell(messages.TakeMessages, queue, 1, 1000, 2_000_000)
    scene.room.timers.advance(2.1)
    assert scene.peer.answer(waiting).runs == []
    scene.publish("q", b"a")
    assert scene.counts() == (1, 1, 0, 0)


def test_what_a_lost_session_had_is_ready_again_with_an_attempt():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b")
    scene.taken(queue, 1)
    waiting = scene.other.tell(messages.TakeMessages, queue, 9, 1000, 60_000_000)
    assert values_of(scene.other.answer(waiting), scene.other) == [b"b"]
    waiting = scene.other.tell(messages.TakeMessages, queue, 9, 1000, 60_000_000)
    scene.peer.leave()
    scene.room.engine.sync()
    scene.room.timers.advance(0)
    scene.room.engine.sync()
    answer = scene.other.answer(waiting)
    assert (answer.runs, answer.attempts, answer.redelivered) == ([(0, 1)], [(0, 1)], [(0, 1)])


def test_an_acknowledgement_commits_with_the_transaction():
    scene = Scene()
    queue, target = scene.queue(), scene.queue("next")
    scene.publish("q", b"task")
    scene.taken(queue)
    data = framed("next", b"follow-up")
    done = scene.peer.ask(
        messages.Commit, serial=1, runs=[(SELF, len(data))], positions=acknowledged(queue, 0), data=data
    )
    assert isinstance(done, messages.Committed), done
    assert [(each.partition, each.count) for each in done.placements] == [(target, 1)]
    assert scene.counts() == (0, 0, 0, 0)
    assert scene.taken(target) == [b"follow-up"]


def test_a_prepared_acknowledgement_holds_the_message_until_the_outcome():
    for decision, left in ((messages.Commit, 0), (messages.Rollback, 1)):
        scene = Scene()
        queue = scene.queue()
        scene.publish("q", b"task")
        scene.taken(queue)
        ready = scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
        assert isinstance(ready, messages.Done), ready
        assert scene.counts() == (1, 0, 0, 1)
        scene.peer.leave()
        scene.restart()
        assert scene.counts() == (1, 0, 0, 1), "it is the transaction's, whatever becomes of the session"
        assert scene.taken(queue) == []
        text = refused(scene.peer.ask(messages.DeleteQueue, "q", queue), "QueueInUse")
        assert str(XID) in text
        waiting = scene.other.tell(messages.TakeMessages, queue, 9, 1000, 60_000_000)
        assert isinstance(scene.peer.ask(decision, xid=XID), (messages.Committed, messages.Done))
        answer = scene.other.answer(waiting)
        assert (answer is None) == (not left)
        if answer is not None:
            assert (answer.runs, answer.attempts, answer.redelivered) == ([(0, 1)], [(0, 1)], [(0, 1)])
        assert scene.counts()[0] == left


def test_what_a_prepared_transaction_has_acknowledged_is_gone_with_its_commit_and_nothing_else_is():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b", b"c")
    scene.taken(queue)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 1))
    scene.room.engine.sync()
    scene.peer.ask(messages.Commit, xid=XID)
    assert scene.counts() == (2, 0, 2, 0)
    assert scene.taken(queue) == []
    scene.restart()
    assert scene.taken(queue) == [b"a", b"c"]


def test_a_worker_whose_session_has_ended_cannot_commit_its_rows():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"task")
    scene.taken(queue)
    again = scene.peer.again()
    text = refused(
        again.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0)), "DeliveryLost"
    )
    assert "What was done for it must not count" in text
    assert scene.room.engine.transactions.prepared == {}


def test_what_was_added_to_a_transaction_is_judged_again_when_it_is_decided():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"task")
    scene.taken(queue)
    scene.peer.tell(messages.AddOffsets, 1, QUEUE_GROUP, [], settled=[settled(queue, 0)])
    scene.peer.ask(messages.GiveBack, queue, encode_offsets(offsets(0), 0), 0)
    text = refused(scene.peer.ask(messages.Commit, serial=1, totals=Totals(0, 1, 0)), "DeliveryLost")
    assert "has been rolled back" in text
    assert scene.taken(queue) == [b"task"]


def test_what_is_added_goes_through_the_exchange_when_it_arrives():
    scene = Scene()
    one = scene.queue("one")
    address = scene.exchange("e", ExchangeKind.FANOUT)
    scene.bind("e", "", "one")
    data = framed("k", b"first", b"second")
    scene.peer.tell(messages.Add, 1, address, data=data)
    two = scene.queue("two")
    scene.bind("e", "", "two")
    rest = framed("k", b"third")
    totals = Totals(2, 1, crc32c(data))
    done = scene.peer.ask(messages.Commit, serial=1, totals=totals, runs=[(address, len(rest))], data=rest)
    assert isinstance(done, messages.Committed), done
    assert scene.taken(one) == [b"first", b"second", b"third"]
    assert scene.taken(two) == [b"third"], "it was bound after the others had arrived"
    again = scene.peer.ask(messages.Commit, serial=1, totals=totals, runs=[(address, len(rest))], data=rest)
    assert again == done.__class__(again.correlation, done.placements, done.heuristic)
    scene.restart()
    assert scene.taken(one) == [b"first", b"second", b"third"]


def test_dead_letters_go_through_the_exchange_of_their_queue():
    scene = Scene()
    dead = scene.queue("dead")
    queue = scene.queue(dead_letter_exchange="", dead_letter_key="dead", delivery_limit=1)
    scene.publish("q", b"a", b"b")
    scene.taken(queue)
    scene.give_up(queue, 0)
    scene.give_up(queue, 1, dead=True)
    assert scene.taken(dead) == [b"b"]
    scene.taken(queue)
    scene.give_up(queue, 0)
    assert scene.counts() == (0, 0, 0, 0)
    assert scene.taken(dead) == [b"a"]


def test_a_rejected_message_without_a_dead_letter_exchange_is_dropped():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.give_up(queue, 0, dead=True)
    assert scene.counts() == (0, 0, 0, 0)


def test_a_purge_leaves_what_sessions_and_transactions_have():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", *[b"%d" % number for number in range(10)])
    scene.taken(queue, 3)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 1))
    answer = scene.peer.ask(messages.PurgeQueue, "q")
    assert answer.messages == 7
    assert scene.counts() == (3, 0, 2, 1)
    scene.publish("q", b"new")
    assert scene.taken(queue) == [b"new"]


def test_a_queue_is_declared_again_as_it_is_or_not_at_all():
    scene = Scene()
    queue = scene.queue(delivery_limit=3)
    assert scene.queue(delivery_limit=3) == queue
    text = refused(scene.peer.ask(messages.DeclareQueue, "q"), "DeclaredOtherwise")
    assert "delivery_limit 3, not None" in text
    assert scene.peer.ask(messages.DeclareQueue, "q", passive=True).partition == queue
    refused(scene.peer.ask(messages.DeclareQueue, "other", passive=True), "UnknownQueue")
    refused(scene.peer.ask(messages.DeclareQueue, "é" * 128), "InvalidName")
    refused(scene.peer.ask(messages.DeclareQueue, "amq.mine"), "InvalidName")
    assert isinstance(scene.queue("ü/\\ \x00" + "é" * 100), int)


def test_the_group_of_the_queues_is_nobodys():
    scene = Scene()
    queue = scene.queue()
    group = scene.room.broker.groups.groups[QUEUE_GROUP]
    refused(scene.peer.ask(messages.DeleteGroup, QUEUE_GROUP, group.id), "InvalidName")
    refused(scene.peer.ask(messages.ClaimPartitions, QUEUE_GROUP, "m", [queue]), "InvalidName")
    assert QUEUE_GROUP not in [each.name for each in scene.peer.ask(messages.ListGroups).groups]
    positions = [GroupPositions(QUEUE_GROUP, b"", [], [settled(queue, 0)])]
    refused(scene.peer.ask(messages.Commit, serial=1, positions=positions), "DeliveryLost")


def test_nobody_sends_past_the_exchange():
    scene = Scene()
    queue = scene.queue()
    assert "txbroker.queue" in scene.peer.send(queue, b"x").message
    refused(
        scene.peer.ask(messages.Send, address_of(99, mandatory=True), data=framed("q", b"x")),
        "UnknownExchange",
    )


@pytest.mark.parametrize("many", [1, 300])
def test_a_large_fan_out_is_applied_in_slices_and_shown_at_once(many):
    scene = Scene()
    scene.room.engine.transactions.table.application.small_bytes = 4096
    scene.room.engine.transactions.table.application.slice_bytes = 4096
    address = scene.exchange("e", ExchangeKind.FANOUT)
    queues = [scene.queue(f"q{number}") for number in range(many)]
    for number in range(many):
        scene.bind("e", "", f"q{number}")
    scene.publish("k", b"x" * 2000, to=address)
    for queue in queues:
        assert scene.room.engine.catalog.stores[queue].high_watermark == 1
    assert not scene.room.engine.busy
    scene.restart()
    for queue in queues:
        assert scene.taken(queue) == [b"x" * 2000]


def test_a_request_that_waited_in_line_gives_nothing_to_a_session_that_has_ended():
    scene = Scene()
    application = scene.room.engine.transactions.table.application
    application.small_bytes = application.slice_bytes = 4096
    address = scene.exchange("e", ExchangeKind.FANOUT)
    for number in range(40):
        scene.queue(f"q{number}")
        scene.bind("e", "", f"q{number}")
    queue = scene.queue()
    victim = scene.room.peer("10.0.0.9:9")
    scene.peer.tell(messages.Send, address, data=framed("k", b"x" * 2000))
    victim.tell(messages.TakeMessages, queue, 10, max_wait=60_000_000)
    assert scene.room.engine.busy, "it waits in line"
    victim.leave()
    scene.room.engine.sync()
    scene.publish("q", b"v")
    assert scene.taken(queue) == [b"v"]


def test_messages_whose_reading_fails_are_ready_again():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b")
    scene.room.flush()
    store = scene.room.engine.catalog.stores[queue]
    plan_read = store.plan_read

    def broken(*_):
        raise OSError("no")

    store.plan_read = broken
    assert scene.peer.ask(messages.TakeMessages, queue, 10) is None or scene.peer.closed
    store.plan_read = plan_read
    assert scene.taken(queue, peer=scene.other) == [b"a", b"b"]


def test_what_went_to_the_dead_letters_leaves_nothing_behind():
    scene = Scene()
    scene.queue("dead")
    queue = scene.queue(dead_letter_exchange="", dead_letter_key="dead")
    for _ in range(50):
        scene.publish("q", b"v")
        [(offset, _)] = scene.take(queue, 1).runs
        scene.give_up(queue, offset, dead=True)
    assert scene.room.broker.queues.takes.deliveries.at(queue)._later == []
    assert scene.info("dead").messages == 50


@pytest.mark.slow
def test_many_requests_that_want_more_than_their_answer_takes_are_served_without_recursion():
    scene = Scene()
    queue = scene.queue()
    peers = [scene.room.peer(f"10.0.{number // 250}.{number % 250}:1") for number in range(1200)]
    for peer in peers:
        peer.tell(messages.TakeMessages, queue, 4096, max_bytes=1, max_wait=60_000_000)
    scene.publish("q", *[b"x"] * 2400)
    for _ in range(1200 // SERVED_AT_ONCE):
        scene.room.timers.advance(0.001)
        scene.room.engine.sync()
    assert not any(peer.closed for peer in peers)
    assert scene.counts() == (2400, 1200, 1200, 0)


def test_fragments_are_taken_in_runs_that_are_read_in_a_moment():
    scene = Scene()
    queue = scene.queue()
    for _ in range(3):
        scene.publish("q", *[b"x"] * 4000)
    for _ in range(3):
        scene.take(queue, 4000)
    scene.peer.ask(messages.GiveBack, queue, encode_offsets(offsets(*range(0, 12_000, 2)), 0), 0)
    answer = scene.take(queue, 4000)
    assert answer.runs == [(offset, 1) for offset in range(0, 2 * MAX_RUNS, 2)]
    assert scene.counts() == (12_000, 6_000 - MAX_RUNS, 6_000 + MAX_RUNS, 0)


def test_a_purge_ends_with_its_queue_whatever_is_made_under_its_name():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", *[b"x"] * 10)
    scene.room.broker.stepwise.goes_on = lambda: False
    waked: list[bool] = []
    scene.peer.session.wake = lambda: waked.append(True)
    purging = scene.peer.tell(messages.PurgeQueue, "q")
    scene.other.ask(messages.DeleteQueue, "q", queue)
    scene.queue()
    scene.peer.session.go_on()
    scene.room.engine.sync()
    assert scene.peer.answer(purging).messages <= 10
    assert queue not in scene.room.broker.groups.groups[QUEUE_GROUP].positions


def test_patterns_that_take_long_are_bounded():
    scene = Scene()
    queue = scene.queue()
    address = scene.exchange("e", ExchangeKind.TOPIC, mandatory=False)
    for ways in itertools.product("a*", repeat=9):
        scene.peer.tell(messages.Bind, Binding("e", ".".join(["#", *ways, "z"]), "q"))
    text = refused(scene.publish("a." * 120 + "b", b"x", to=address), "LimitExceeded")
    assert "more than 65536 nodes" in text
    assert isinstance(scene.publish("a.z", b"x", to=address), messages.Sent)
    many = scene.exchange("f", ExchangeKind.HEADERS, mandatory=False)
    for number in range(1000):
        scene.peer.tell(messages.Bind, Binding("f", "", "q", arguments=(("n", number),)))
    data = b"".join(framed(f"{number}", b"x") for number in range(100))
    text = refused(scene.peer.ask(messages.Send, many, data=data), "LimitExceeded")
    assert "Send fewer in one request" in text
    assert scene.counts() == (0, 0, 0, 0), f"of {queue}"
    refused(scene.peer.ask(messages.Bind, Binding("e", "#." * 9 + "a", "q")), "InvalidSetting")
    refused(
        scene.peer.ask(messages.Bind, Binding("f", "", "q", arguments=(("x-match", b"some"),))),
        "InvalidSetting",
    )


def test_a_message_for_many_queues_by_their_names_is_applied_in_slices():
    scene = Scene()
    for number in range(300):
        scene.queue(f"q{number}")
    data = b"".join(framed(f"q{number}", b"x") for number in range(300))
    scene.peer.tell(messages.Send, SELF, data=data)
    assert scene.room.engine.busy
    scene.room.engine.sync()
    assert all(each.messages == 1 for each in scene.peer.ask(messages.ListQueues).queues)


def test_nobody_decides_about_parked_messages_of_a_queue_but_who_has_them():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"x")
    scene.taken(queue)
    scene.give_up(queue, 0)
    group = scene.room.broker.groups.groups[QUEUE_GROUP]
    asked = scene.other.ask(messages.ReleaseParked, QUEUE_GROUP, group.id, queue, [0])
    refused(asked, "InvalidName")


def test_each_queue_has_its_own_time_at_which_a_message_is_due():
    scene = Scene()
    queues = {name: scene.queue(name) for name in ("soon", "late")}

    def pass_time(micros):
        scene.room.clock.advance(micros)
        scene.room.timers.advance(micros / 1e6)
        scene.room.engine.sync()

    for name, after in (("soon", 10_000_000), ("late", 1_000_000_000)):
        scene.publish(name, b"m")
        scene.take(queues[name], 1)
        scene.give_up(queues[name], 0, after=after)
    waiting = scene.other.tell(messages.TakeMessages, queues["soon"], 1, max_wait=60_000_000)
    pass_time(9_999_000)
    scene.room.clock.advance(1_500)  # it is due, and the loop is late
    scene.peer.tell(messages.TakeMessages, queues["late"], 1, max_wait=60_000_000)
    pass_time(10_000)
    assert scene.other.answer(waiting).runs == [(0, 1)]
