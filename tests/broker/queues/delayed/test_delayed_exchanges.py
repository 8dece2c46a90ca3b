"""Delayed exchanges: messages wait there until their time has come, and go where bindings lead then (decision 0066)."""

from __future__ import annotations

import pytest

from journal.formats import frame
from journal.records.queue_entries import (
    Binding,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    QueueSettings,
    waiting_queue_of,
)
from journal.records.record import Due, Published, TransactionCommitted
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.delayed.delays import Delays, delayed
from tests.broker.queues.scene import SECOND, SELF, Scene, acknowledged, framed, pass_time, settled
from tests.support.broker_room import recorded, refused
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
