"""Delayed exchanges: messages wait there until their time has come, and go where bindings lead then (decision 0066)."""

from __future__ import annotations

import pytest

from journal.constants import MAX_ATTRIBUTE
from journal.formats import frame
from journal.formats.envelope import Clock, seal
from journal.message_headers import last_value
from journal.records.queue_entries import (
    Binding,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    QueueSettings,
    waiting_queue_of,
)
from journal.records.record import Due, Published, TransactionCommitted
from journal.scheduled_id import State
from journal.transaction_states import Totals
from journal.transactions.limits import TransactionLimits
from journal.xid import Xid
from tests.broker.queues.delays import Delays, delayed
from tests.broker.queues.scene import SECOND, SELF, Scene, acknowledged, framed, pass_time, settled
from tests.support.broker_room import Room, recorded, refused
from tests.support.builders import small_files
from txbroker.wire import messages

DAY = 24 * 3600 * SECOND
TEN_YEARS = 3653 * DAY


def headers_of(scene: Scene, answer: messages.Taken) -> list[dict[str, bytes]]:
    data = scene.peer.data[scene.peer.answers.index(answer)]
    return [dict(each.headers) for piece, _ in frame.decode_pieces(data, 0) for each in piece]


def test_a_message_waits_as_long_as_its_header_says():
    scene = Delays()
    assert isinstance(scene.wait(5_000, b"later"), messages.Sent)
    scene.peer.ask(messages.Send, scene.to, data=framed("k", b"now"))
    assert scene.taken(scene.q) == [b"now"]
    pass_time(scene, 4 * SECOND)
    assert scene.taken(scene.q) == []
    pass_time(scene, SECOND + 20_000)
    answer = scene.take(scene.q)
    assert headers_of(scene, answer) == [{"x-delay": b"-5000"}]
    assert scene.scheduled() == 0
    pass_time(scene, DAY)
    assert scene.taken(scene.q) == []


@pytest.mark.parametrize("said", [0, -5, "", "soon", "1.5", "0x10", "9" * 21, "+0"])
def test_what_is_no_delay_goes_on_at_once_as_it_came(said: object):
    scene = Delays()
    scene.wait(said, b"a")
    answer = scene.take(scene.q)
    assert headers_of(scene, answer) == [{"x-delay": str(said).encode()}]


def test_messages_come_in_the_order_in_which_they_are_due():
    scene = Delays()
    for number, after in enumerate((3_000, 1_000, 2_000, 1_000)):
        scene.wait(after, b"%d" % number)
    pass_time(scene, 3 * SECOND + 20_000)
    assert scene.taken(scene.q) == [b"1", b"3", b"2", b"0"]


def test_ways_are_found_when_a_message_is_due():
    scene = Delays()
    scene.wait(1_000, b"a")
    scene.peer.ask(messages.Unbind, Binding("d", "k", "q"))
    other = scene.queue("other")
    scene.bind("d", "k", "other")
    pass_time(scene, 2 * SECOND)
    assert (scene.taken(scene.q), scene.taken(other)) == ([], [b"a"])


def test_one_that_finds_no_way_when_it_is_due_is_dropped_also_if_it_must_not_be():
    scene = Delays()
    mandatory = scene.to + 1
    refused(scene.peer.ask(messages.Send, mandatory, data=framed("x", b"now")), "Unroutable")
    answer = scene.peer.ask(messages.Send, mandatory, data=delayed("x", 1_000, b"a"))
    assert isinstance(answer, messages.Sent)
    pass_time(scene, 2 * SECOND)
    assert scene.room.broker.queues.publishing.unrouted == 1
    assert scene.scheduled() == 0


@pytest.mark.parametrize(
    ("kind", "key", "arguments"),
    [
        (ExchangeKind.FANOUT, "", ()),
        (ExchangeKind.TOPIC, "a.#", ()),
        (ExchangeKind.HEADERS, "", (("colour", b"red"),)),
    ],
)
def test_each_kind_routes_as_it_does_without_delays(
    kind: ExchangeKind, key: str, arguments: tuple[tuple[str, bytes], ...]
):
    scene = Delays(kind)
    other = scene.queue("other")
    scene.bind("d", key, "other", arguments=arguments)
    scene.peer.ask(messages.Send, scene.to, data=delayed("a.b", 1_000, b"a", colour=b"red"))
    pass_time(scene, 0)
    assert scene.taken(other) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(other) == [b"a"]


def restarted_later(scene: Delays, micros: int) -> None:
    """Stop the broker, and start it again so much later; nothing is done by itself yet."""
    scene.room.engine.sync()
    scene.room.engine.close()
    scene.room.clock.advance(micros)
    scene.room.start()
    scene.peer = scene.room.peer()


def test_a_delay_outlives_a_start_and_the_time_of_the_stop_counts():
    scene = Delays()
    scene.wait(10_000, b"a")
    scene.wait(60_000, b"b")
    scene.room.broker.passes[-1].stop()
    scene.wait(10_000, b"not yet scheduled")
    assert scene.scheduled() == 2
    restarted_later(scene, 11 * SECOND)
    for each in scene.room.broker.passes:
        each.wake()
    pass_time(scene, 0)
    assert sorted(scene.taken(scene.q)) == [b"a", b"not yet scheduled"]
    pass_time(scene, 50 * SECOND)
    assert scene.taken(scene.q) == [b"b"]


def test_records_are_two_for_each_part_of_what_waits():
    scene = Delays()
    records = recorded(scene.room)
    data = b"".join(delayed("k", 1_000 + number, b"%d" % number) for number in range(300))
    scene.peer.ask(messages.Send, scene.to, data=data)
    pass_time(scene, 0)
    assert [type(each) for each in records if isinstance(each, TransactionCommitted | Published)] == [
        Published, TransactionCommitted, TransactionCommitted,
    ]  # fmt: skip
    records.clear()
    pass_time(scene, 2 * SECOND)
    assert [type(each) for each in records if isinstance(each, Due | Published)] == [Published]
    assert len(scene.taken(scene.q, 500)) == 300


def test_due_messages_of_topics_and_of_several_exchanges_keep_their_order():
    scene = Delays()
    other = scene.exchange("e", ExchangeKind.FANOUT, mandatory=False, delayed=True)
    scene.bind("e", "", "q")
    for number in range(6):
        to = scene.to if number % 2 else other
        scene.peer.ask(messages.Send, to, data=delayed("k", 1_000 + number * 10, b"%d" % number))
        pass_time(scene, 0)
    pass_time(scene, 3 * SECOND)
    assert scene.taken(scene.q) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_message_for_several_queues_is_in_all_of_them_by_one_record():
    scene = Delays(ExchangeKind.FANOUT)
    others = [scene.queue(f"q{number}") for number in range(3)]
    for number in range(3):
        scene.bind("d", "", f"q{number}")
    scene.wait(1_000, b"a")
    records = recorded(scene.room)
    pass_time(scene, 2 * SECOND)
    assert len([each for each in records if isinstance(each, Published)]) == 1
    assert [scene.taken(each) for each in (scene.q, *others)] == [[b"a"]] * 4


def test_the_exchange_counts_a_message_once():
    scene = Delays()
    scene.wait(1_000, b"a", b"b")
    assert (scene.shown().taken, scene.shown().waiting) == (2, 2)
    pass_time(scene, 2 * SECOND)
    assert (scene.shown().taken, scene.shown().waiting) == (2, 0)


def test_a_repeated_send_waits_once():
    scene = Delays()
    opened = scene.peer.ask(messages.OpenProducer, "")
    for _ in range(2):
        answer = scene.wait(1_000, b"a", producer_id=opened.producer_id, epoch=opened.epoch, sequence=0)
        assert answer.base_offset == 0
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


# -- what they are beside other exchanges ------------------------------------------------------------


def test_a_message_waits_at_a_delayed_exchange_that_another_one_sends_it_to():
    scene = Delays()
    to = scene.exchange("e", ExchangeKind.FANOUT)
    at_once = scene.queue("at once")
    scene.bind("e", "", "d", to_exchange=True)
    scene.bind("e", "", "at once")
    scene.peer.ask(messages.Send, to, data=delayed("k", 1_000, b"a"))
    pass_time(scene, 0)
    assert scene.taken(at_once) == [b"a"]
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]
    assert scene.taken(at_once) == []


def test_a_message_that_has_waited_passes_the_next_delayed_exchange_at_once():
    scene = Delays()
    scene.exchange("e", ExchangeKind.FANOUT, delayed=True)
    scene.bind("d", "k", "e", to_exchange=True)
    other = scene.queue("other")
    scene.bind("e", "", "other")
    scene.wait(1_000, b"a")
    pass_time(scene, SECOND + 20_000)
    assert (scene.taken(scene.q), scene.taken(other)) == ([b"a"], [b"a"])


def test_an_internal_one_takes_what_others_send_it():
    scene = Scene()
    scene.exchange("d", ExchangeKind.FANOUT, delayed=True, internal=True)
    to = scene.exchange("e", ExchangeKind.FANOUT)
    queue = scene.queue()
    scene.bind("e", "", "d", to_exchange=True)
    scene.bind("d", "", "q")
    scene.peer.ask(messages.Send, to, data=delayed("k", 1_000, b"a"))
    pass_time(scene, 0)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(queue) == [b"a"]


def test_the_alternate_exchange_gets_what_finds_no_way_when_it_is_due():
    scene = Scene()
    scene.exchange("rest", ExchangeKind.FANOUT)
    to = scene.exchange("d", ExchangeKind.DIRECT, delayed=True, alternate="rest")
    queue = scene.queue()
    scene.bind("rest", "", "q")
    scene.peer.ask(messages.Send, to, data=delayed("k", 1_000, b"a"))
    pass_time(scene, 0)
    assert scene.taken(queue) == [], "it waits, which is a way"
    pass_time(scene, 2 * SECOND)
    assert scene.taken(queue) == [b"a"]


def test_a_delayed_exchange_as_the_alternate_one():
    scene = Delays()
    to = scene.exchange("e", ExchangeKind.DIRECT, alternate="d")
    scene.peer.ask(messages.Send, to, data=delayed("k", 1_000, b"a"))
    pass_time(scene, 0)
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_dead_letters_wait_at_a_delayed_exchange_if_they_have_not_waited():
    scene = Delays()
    first = scene.queue("first", dead_letter_exchange="d", dead_letter_key="k")
    for header in ({"x-delay": b"1000"}, {"x-delay": b"-1000"}):
        scene.peer.ask(messages.Send, SELF, data=framed("first", b"a", headers=header))
    scene.take(first)
    scene.give_up(first, 0, 1, dead=True)
    pass_time(scene, 0)
    assert scene.taken(scene.q) == [b"a"], "it has waited before"
    assert scene.scheduled() == 1
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_the_default_exchange_leads_to_no_queue_of_what_waits():
    scene = Delays()
    name = waiting_queue_of(scene.shown().number)
    refused(scene.publish(name, b"x"), "Unroutable")


def test_nobody_sees_or_uses_the_queue_of_what_waits():
    scene = Delays()
    name = waiting_queue_of(scene.shown().number)
    number = scene.room.broker.queues.declarations.fold.queues[name].partition
    for kind, *fields in (
        (messages.DeclareQueue, name, scene.info().settings), (messages.DeleteQueue, name, number),
        (messages.DeclareQueue, name, scene.info().settings, True), (messages.PurgeQueue, name),
        (messages.TakeMessages, number), (messages.Consume, number, 1), (messages.ListQueues, [name]),
        (messages.Bind, Binding("d", "k", name)),
    ):  # fmt: skip
        answer = scene.peer.ask(kind, *fields)
        assert isinstance(answer, messages.Refused), (kind, answer)
        assert answer.error in ("UnknownQueue", "InvalidName"), answer
    listed = scene.peer.ask(messages.ListQueues)
    assert [each.name for each in listed.queues] == ["q"]
    assert scene.room.broker.queues.gauges()["queues"] == 1
    refused(
        scene.peer.ask(messages.CommitOffsets, "txbroker.queues", [], settled=[settled(number, 0)]),
        "DeliveryLost",
    )


# -- queues --------------------------------------------------------------------------------------------


def test_a_message_expires_from_when_it_is_in_its_queue():
    scene = Delays()
    headers = {"x-delay": b"10000", "txbroker.expiration": b"%d" % (2 * SECOND)}
    scene.peer.ask(messages.Send, scene.to, data=framed("k", b"a", b"b", headers=headers))
    pass_time(scene, 0)
    pass_time(scene, 10 * SECOND + 20_000)
    assert scene.taken(scene.q, 1) == [b"a"]
    pass_time(scene, 3 * SECOND)
    assert scene.taken(scene.q, 1) == []


def test_one_that_waits_does_not_expire_however_late_it_is_scheduled():
    scene = Delays()
    headers = {"x-delay": b"10000", "txbroker.expiration": b"%d" % SECOND}
    scene.room.broker.passes[-1].stop()
    scene.peer.ask(messages.Send, scene.to, data=framed("k", b"a", headers=headers))
    restarted_later(scene, 5 * SECOND)
    scene.room.broker.removal_passes.wake()
    pass_time(scene, 0)
    for each in scene.room.broker.passes:
        each.wake()
    pass_time(scene, 6 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_a_queue_that_refuses_takes_what_was_accepted_to_wait():
    scene = Delays()
    full = scene.queue("full", max_length=1, overflow=Overflow.REJECT_PUBLISH)
    scene.bind("d", "k", "full")
    scene.wait(1_000, b"a", b"b")
    refused(scene.peer.ask(messages.Send, SELF, data=framed("full", b"x", b"y")), "QueueFull")
    pass_time(scene, 2 * SECOND)
    assert scene.taken(full) == [b"a", b"b"]
    refused(scene.peer.ask(messages.Send, SELF, data=framed("full", b"x", b"y")), "QueueFull")


def test_priorities_are_looked_at_when_it_is_due():
    scene = Delays()
    queue = scene.queue("p", max_priority=5)
    scene.bind("d", "k", "p")
    for value, priority in ((b"low", b"1"), (b"high", b"5")):
        headers = {"x-delay": b"1000", "txbroker.priority": priority}
        scene.peer.ask(messages.Send, scene.to, data=framed("k", value, headers=headers))
    pass_time(scene, 0)
    pass_time(scene, 2 * SECOND)
    assert (scene.taken(queue, 1), scene.taken(queue, 1)) == ([b"high"], [b"low"])


# -- transactions --------------------------------------------------------------------------------------


def test_in_a_transaction_the_delay_begins_with_the_commit():
    scene = Delays()
    data, xid = delayed("k", 5_000, b"a"), Xid(1, b"order 7", b"")
    ready = scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(scene.to, len(data))], data=data)
    assert isinstance(ready, messages.Done), ready
    pass_time(scene, 10 * SECOND)
    assert scene.scheduled() == 0
    scene.restart()
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    pass_time(scene, 4 * SECOND)
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_what_is_rolled_back_waits_nowhere():
    scene = Delays()
    data, xid = delayed("k", 5_000, b"a"), Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(scene.to, len(data))], data=data)
    assert isinstance(scene.peer.ask(messages.Rollback, xid=xid), messages.Done)
    pass_time(scene, DAY)
    assert (scene.scheduled(), scene.taken(scene.q)) == (0, [])


def test_an_acknowledgement_and_what_waits_are_one():
    scene = Delays()
    scene.publish("q", b"task")
    scene.take(scene.q)
    data = delayed("k", 1_000, b"again")
    answer = scene.peer.ask(
        messages.Commit, serial=1, runs=[(scene.to, len(data))], positions=acknowledged(scene.q, 0), data=data
    )
    assert isinstance(answer, messages.Committed), answer
    pass_time(scene, 0)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"again"]


# -- ends ------------------------------------------------------------------------------------------------


def test_with_the_exchange_goes_what_waits_at_it():
    scene = Delays()
    scene.wait(1_000, b"scheduled")
    number = scene.shown().number
    scene.peer.tell(messages.Send, scene.to, data=delayed("k", 1_000, b"new"))
    assert isinstance(scene.peer.ask(messages.DeleteExchange, "d", number), messages.Done)
    scene.exchange("d", ExchangeKind.DIRECT, delayed=True)
    scene.bind("d", "k", "q")
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == []
    assert scene.scheduled() == 0
    assert scene.room.broker.scheduling.schedule.gone == 1
    assert not scene.room.broker.queues.declarations.fold.ownerless


def test_a_delayed_exchange_that_an_undecided_transaction_needs_is_not_deleted():
    scene = Delays()
    data, xid = delayed("k", 1_000, b"a"), Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(scene.to, len(data))], data=data)
    why = refused(scene.peer.ask(messages.DeleteExchange, "d", scene.shown().number), "QueueInUse")
    assert "order 7" in why
    assert "'d'" in why
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    assert isinstance(scene.peer.ask(messages.DeleteExchange, "d", scene.shown().number), messages.Done)


def test_one_that_ends_by_itself_goes_at_once_and_what_it_had_after_the_transaction():
    scene = Scene()
    to = scene.exchange("d", ExchangeKind.FANOUT, delayed=True, auto_delete=True)
    scene.queue()
    scene.bind("d", "", "q")
    data, xid = delayed("k", 1_000, b"a"), Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(to, len(data))], data=data)
    scene.peer.ask(messages.Unbind, Binding("d", "", "q"))
    refused(scene.peer.ask(messages.ListExchanges, ["d"]), "UnknownExchange")
    fold = scene.room.broker.queues.declarations.fold
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert len(fold.ownerless) == 1
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    pass_time(scene, 0)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not fold.ownerless
    assert scene.room.broker.scheduling.schedule.waiting() == 0


def test_one_that_is_not_durable_goes_with_the_brokers_process():
    scene = Scene()
    to = scene.exchange("d", ExchangeKind.DIRECT, delayed=True, durable=False)
    queue = scene.queue()
    scene.bind("d", "k", "q")
    scene.peer.ask(messages.Send, to, data=delayed("k", 1_000, b"a"))
    pass_time(scene, 0)
    scene.restart()
    for each in scene.room.broker.passes:
        each.wake()
    pass_time(scene, 2 * SECOND)
    assert scene.taken(queue) == []
    assert scene.room.broker.scheduling.schedule.waiting() == 0
    assert not scene.room.broker.queues.declarations.fold.ownerless


def test_a_declaration_that_ended_halfway_leaves_nothing_behind_the_next_start():
    scene = Scene()
    declarations = scene.room.broker.queues.declarations
    name = waiting_queue_of(declarations.fold.next_exchange)
    declarations._make_queue(name, QueueSettings(), None)
    assert list(declarations.fold.ownerless) == [name]
    scene.restart()
    assert scene.room.broker.queues.declarations.fold.queues == {}
    scene.exchange("d", ExchangeKind.DIRECT, delayed=True)
    assert list(scene.room.broker.queues.declarations.fold.queues) == [name]


def test_a_delayed_exchange_and_one_without_delays_are_not_the_same():
    scene = Delays()
    plain = ExchangeSettings(ExchangeKind.DIRECT)
    why = refused(scene.peer.ask(messages.DeclareExchange, "d", plain), "DeclaredOtherwise")
    assert "delayed True, not False" in why
    assert scene.exchange("d", ExchangeKind.DIRECT, mandatory=False, delayed=True) == scene.to


# -- the schedule ----------------------------------------------------------------------------------------


def test_what_waits_is_listed_shown_and_taken_back():
    scene = Delays()
    [topic] = scene.room.topic()
    scene.wait(5_000, b"a")
    scene.wait(6_000, b"b")
    first, second = scene.listed()
    assert (first.topic, first.exchange, first.partition) == ("", "d", scene.to)
    assert scene.listed(exchange="d") == [first, second]
    assert scene.listed(exchange="other") == scene.listed(topic="orders") == []
    shown = scene.peer.ask(messages.ShowScheduled, [first.id], True)
    assert (shown.states[0].state, shown.states[0].exchange) == (State.WAITS, "d")
    [message] = frame.decode_run(scene.peer.data[scene.peer.answers.index(shown)])
    assert (message.key, message.value, last_value(message.headers, "x-delay")) == (b"k", b"a", b"-5000")
    taken_back = scene.peer.ask(messages.CancelScheduled, [first.id])
    assert [each.state for each in taken_back.states] == [State.CANCELLED]
    pass_time(scene, 10 * SECOND)
    assert scene.taken(scene.q) == [b"b"]
    sent = scene.peer.ask(messages.CancelScheduled, [first.id, second.id])
    assert [(each.state, each.offset) for each in sent.states] == [(State.CANCELLED, -1), (State.SENT, -1)]
    assert topic


def test_what_waits_is_taken_back_in_a_transaction():
    scene = Delays()
    scene.wait(5_000, b"a")
    [waits] = scene.listed()
    xid = Xid(1, b"order 7", b"")
    scene.peer.ask(messages.ShowScheduled, [waits.id])
    ready = scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), cancels=[waits.id])
    assert isinstance(ready, messages.Done), ready
    scene.restart()
    pass_time(scene, 10 * SECOND)
    assert scene.taken(scene.q) == [], "it is held"
    assert isinstance(scene.peer.ask(messages.Rollback, xid=xid), messages.Done)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_a_client_schedules_nothing_for_an_exchange_by_itself():
    scene = Delays()
    told = scene.peer.ask(messages.AskSchedule)
    sealed = seal(framed("k", b"x"), scene.to, Clock.ELAPSED, told.now + 1)
    refused(scene.peer.ask(messages.Send, told.partitions[0], data=sealed), "UnknownPartition")


def test_no_more_messages_wait_than_may():
    scene = Delays(max_scheduled=3)
    assert isinstance(scene.wait(5_000, b"a", b"b"), messages.Sent)
    answer = scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"c", b"d"))
    assert "max_scheduled" in refused(answer, "LimitExceeded")
    assert isinstance(scene.wait(5_000, b"c"), messages.Sent)
    refused(scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"d")), "LimitExceeded")
    assert isinstance(scene.peer.ask(messages.Send, scene.to, data=framed("k", b"now")), messages.Sent)
    pass_time(scene, 6 * SECOND)
    assert sorted(scene.taken(scene.q)) == [b"a", b"b", b"c", b"now"]
    assert isinstance(scene.wait(5_000, b"d"), messages.Sent)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_nothing_comes_early_because_the_wall_clock_has_jumped_before_a_crash(checkpoint: bool):
    scene = Delays()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"a")
    if checkpoint:
        scene.room.engine.housekeeping.checkpoint_inline()
    scene.room.clock.set_wall(scene.room.clock.wall() + 3600 * SECOND)
    scene.room.broker.passes[
        0
    ].wake()  # the journal is told of it: it is no time in which the broker was stopped
    pass_time(scene, 0)
    scene.restart()
    assert scene.scheduled() == 1
    pass_time(scene, 59 * SECOND)
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_nothing_comes_early_that_has_waited_since_a_run_before_that_of_the_checkpoint():
    scene = Delays()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"a")
    scene.room.clock.set_wall(scene.room.clock.wall() + 3600 * SECOND)
    scene.room.broker.passes[0].wake()  # it tells the journal of that
    pass_time(scene, 0)
    scene.room.restart()
    scene.room.broker.passes[-1].stop()
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    assert scene.scheduled() == 1
    pass_time(scene, 59 * SECOND)
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_limits_of_transactions_hold_back_nothing_that_was_accepted():
    limits = TransactionLimits(messages=2, bytes=1000, partitions=1, total_messages=2, total_bytes=1000)
    scene = Delays(room=Room(small_files(limits=limits)))
    values = [b"%d" % number * 500 for number in range(9)]
    assert isinstance(scene.wait(5_000, *values), messages.Sent)
    assert scene.scheduled() == 9
    pass_time(scene, 6 * SECOND)
    assert scene.taken(scene.q) == values


def test_unscheduled_ones_count_too_and_what_a_transaction_brings_does_not():
    scene = Delays(max_scheduled=2)
    data, xid = delayed("k", 5_000, b"a", b"b"), Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(scene.to, len(data))], data=data)
    scene.peer.tell(messages.Send, scene.to, data=delayed("k", 5_000, b"c", b"d"))
    refused(scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"e")), "LimitExceeded")
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    pass_time(scene, 0)
    assert scene.scheduled() == 4


def test_a_message_without_room_for_what_is_said_of_it_is_refused_before_it_waits():
    scene = Delays()
    big = b"x" * (MAX_ATTRIBUTE - 200)
    data = framed("k", b"a", headers={"x-delay": b"1000", "big": big})
    refused(scene.peer.ask(messages.Send, scene.to, data=data), "MessageTooLarge")
    data = framed("k", b"a", headers={"x-delay": b"-1000", "big": big})
    assert isinstance(scene.peer.ask(messages.Send, scene.to, data=data), messages.Sent)


def test_the_longest_delay_is_ten_years():
    scene = Delays()
    scene.wait(10**15, b"a")
    [waits] = scene.listed()
    told = scene.peer.ask(messages.AskSchedule)
    assert TEN_YEARS - SECOND <= waits.due - told.now <= TEN_YEARS


def test_a_full_disk_lets_what_waits_wait_on():
    scene = Delays()
    scene.wait(1_000, b"a")
    scene.peer.tell(messages.Send, scene.to, data=delayed("k", 1_000, b"b"))
    full_at, scene.room.engine.full_at = scene.room.engine.full_at, 0
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == []
    scene.room.engine.full_at = full_at
    pass_time(scene, 2 * SECOND)
    assert sorted(scene.taken(scene.q)) == [b"a", b"b"]


def test_one_that_leads_to_too_many_queues_is_tried_again_and_others_go_on(monkeypatch: pytest.MonkeyPatch):
    scene = Delays()
    for number in range(5):
        scene.queue(f"q{number}")
        scene.bind("d", "many", f"q{number}")
    scene.wait(1_000, b"many", key="many")
    scene.wait(1_000, b"one")
    monkeypatch.setattr("txbroker.queues.publishing.MAX_COPIES", 4)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"one"]
    assert scene.scheduled() == 1
    monkeypatch.undo()
    pass_time(scene, 61 * SECOND)
    pass_time(scene, SECOND)
    assert scene.scheduled() == 0
