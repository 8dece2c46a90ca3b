"""Test the model of queues by what RabbitMQ's and our documents say, so that it is wrong in no way of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.model import message_model, topology_model, transaction_model
from tests.queues.model.endings_model import (
    AT_LEAST_ONCE,
    EXPIRED,
    LIMIT,
    REJECT_PUBLISH,
    REJECTED,
    TOO_MANY,
    QueueRules,
    died,
    goes_round,
)
from tests.queues.model.message_model import Retry
from tests.queues.model.queue_model import DONE, ROLLED_BACK, Model, refused
from tests.queues.model.routing_model import DIRECT, FANOUT, HEADERS, TOPIC, Died, Exchange, Message, Rule

SELF = -2
"""The address of the default exchange."""
SECOND = 1_000_000


def model_with(*queues: str, **rules: QueueRules) -> Model:
    model = Model()
    for name in queues:
        topology_model.declare_queue(model, name, rules.get(name, QueueRules()), 0)
    return model


def publish(model: Model, *values: bytes, key: str = "a") -> None:
    answer = message_model.publish(model, SELF, [Message(value, key) for value in values], 0)
    assert answer[0] == "Sent"
    model.forced(0)


def taken(model: Model, session: str = "s", most: int = 9, now: int = 0, partition: int = 1) -> list[bytes]:
    answer = message_model.take(model, session, partition, most, 0, now)
    assert isinstance(answer, tuple)
    return [each.value for each in answer[1]]


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("#", "", True), ("#", "a.b", True), ("*", "", False), ("*", "a", True), ("*", "a.b", False),
        ("a.*", "a", False), ("a.*", "a.b", True), ("a.#", "a", True), ("a.#.b", "a.b", True),
        ("a.#.b", "a.x.y.b", True), ("a.#.b", "a.x", False), ("*.#", "a.b.c", True), ("x.*.y", "x..y", True),
        ("", "", True), ("", "a", False),
    ],
)  # fmt: skip
def test_a_pattern_fits_words(pattern, key, fits):
    model = model_with("a")
    exchange = model.topology.declare(Exchange("t", 0, TOPIC))
    model.topology.rules.append(Rule("t", pattern, "a"))
    assert bool(model.ways(exchange, Message(b"", key))) == fits


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ((), (), True), ((("h", b"1"),), (("h", b"1"),), True), ((("h", b"1"),), (("h", b"2"),), False),
        ((("h", None),), (("h", b"2"),), True), ((("h", None),), (), False),
        ((("x-h", b"1"),), (), True), ((("x-h", b"1"), ("x-match", b"all-with-x")), (), False),
        ((("h", b"1"), ("x-match", b"any")), (), False), ((("x-match", b"any"),), (), False),
        ((("h", b"1"), ("i", b"1"), ("x-match", b"any")), (("i", b"1"),), True),
    ],
)  # fmt: skip
def test_arguments_fit_headers(arguments, headers, fits):
    model = model_with("a")
    exchange = model.topology.declare(Exchange("h", 0, HEADERS))
    model.topology.rules.append(Rule("h", "", "a", arguments=arguments))
    assert bool(model.ways(exchange, Message(b"", "", headers))) == fits


def test_exchanges_lead_to_exchanges_each_once_and_in_a_circle():
    model = model_with("a", "b")
    for name in ("e", "f"):
        model.topology.declare(Exchange(name, 0, FANOUT))
    for rule in (
        Rule("e", "", "f", True),
        Rule("f", "", "e", True),
        Rule("f", "", "a"),
        Rule("e", "", "a"),
        Rule("f", "", "b"),
    ):
        assert topology_model.bind(model, rule) == DONE
    assert model.ways(model.topology.exchanges["e"], Message(b"", "")) == (1, 2)
    topology_model.delete_exchange(model, "f", 8)
    assert model.topology.rules == [Rule("e", "", "a")]
    topology_model.delete_queue(model, "a", 1)
    assert model.topology.rules == []


def test_messages_are_there_once_they_are_forced_and_a_start_marks_them_as_delivered():
    model = model_with("a")
    message_model.publish(model, SELF, [Message(b"1", "a")], 0)
    assert taken(model) == []
    after = model.kept()
    assert [each.seen for each in after.queues["a"].copies] == [2]
    assert taken(after) == [b"1"]
    model.forced(0)
    assert taken(model) == [b"1"]
    assert taken(model, "t") == []


def test_only_who_has_a_message_settles_it_and_to_say_it_again_changes_nothing():
    model = model_with("a")
    publish(model, b"1", b"2")
    taken(model)
    assert message_model.settle(model, "t", 1, [0], [], 0) == refused("DeliveryLost")
    assert message_model.settle(model, "s", 1, [0], [Retry(1, 0)], 0) == DONE
    assert message_model.settle(model, "t", 1, [0], [Retry(1, 0)], 0) == DONE
    assert message_model.settle(model, "t", 1, [], [Retry(1, 0, dead=True)], 0) == refused("DeliveryLost")
    assert [copy.attempts for copy in model.queues["a"].copies] == [1]
    assert taken(model, "t") == [b"2"]


def test_a_message_is_returned_as_often_as_the_limit_says_and_is_then_a_dead_letter():
    model = model_with("a", "d", a=QueueRules(1, "", "d"))
    publish(model, b"1")
    for attempts in (0, 1):
        assert taken(model) == [b"1"]
        assert message_model.settle(model, "s", 1, [], [Retry(0, attempts)], 0) == DONE
        assert len(model.queues["a"].copies) == 1
        model.forced(0)
    assert model.queues["a"].copies == []
    assert taken(model, partition=2) == [b"1"]


def test_what_is_prepared_is_nobodys_and_after_a_rollback_an_attempt_is_counted():
    model = model_with("a")
    publish(model, b"1")
    taken(model)
    assert transaction_model.prepare(model, "s", 1, "x", [], [(1, 0)], 0) == DONE
    message_model.leave(model, "s", 0)
    assert taken(model) == []
    assert topology_model.delete_queue(model, "a", 1) == refused("QueueInUse")
    assert transaction_model.decide(model, "x", False, 0) == DONE
    assert taken(model) == []
    model.return_some = lambda now: message_model.return_some(model, now)
    model.forced(0)
    assert model.held_by(ROLLED_BACK) == {}
    assert [copy.attempts for copy in model.queues["a"].copies] == [1]
    assert taken(model) == [b"1"]


def test_a_commit_is_whole_or_refused_and_then_nothing_of_it_is_left():
    model = model_with("a", "b")
    publish(model, b"1")
    taken(model)
    runs = [(SELF, [Message(b"2", "b")])]
    lost = transaction_model.commit(model, "t", 1, runs, [(1, 0)], 0)
    assert lost == refused("DeliveryLost")
    assert model.queues["b"].levels[0].end == 0
    assert transaction_model.commit(model, "s", 1, runs, [(1, 0)], 0) == ("Committed", {2: (0, 1)})
    model.forced(0)
    assert model.queues["a"].copies == []
    assert taken(model, partition=2) == [b"2"]


def test_a_direct_exchange_compares_keys():
    model = model_with("a")
    exchange = model.topology.declare(Exchange("d", 0, DIRECT))
    model.topology.rules.append(Rule("d", "k", "a"))
    assert model.ways(exchange, Message(b"", "k")) == (1,)
    assert model.ways(exchange, Message(b"", "l")) == ()


def told(model: Model, queue: str) -> list[tuple[bytes, int | None, tuple[Died, ...]]]:
    """The messages of a queue that are not finished: value, expiration and deaths."""
    copies = [copy.message for copy in model.queues[queue].copies]
    return [(each.value, each.expiration, each.deaths) for each in copies]


def test_a_message_expires_by_the_shorter_of_two_times_and_at_the_head_alone():
    model = model_with("a", a=QueueRules(ttl=3 * SECOND))
    several = [Message(b"1", "a"), Message(b"2", "a", (), SECOND), Message(b"3", "a", (), 9 * SECOND)]
    message_model.publish(model, SELF, several, 0)
    model.forced(SECOND)
    assert len(model.queues["a"].copies) == 3
    assert taken(model, most=2, now=SECOND) == [b"1"], "what has expired is given to nobody, and ends"
    model.forced(3 * SECOND)
    assert [copy.holder for copy in model.queues["a"].copies] == ["s"], "what a session has does not end"
    message_model.give_back(model, "s", 1, [0], False, 3 * SECOND)
    model.forced(3 * SECOND)
    assert model.queues["a"].copies == []


def test_a_take_gets_the_next_ones_if_all_have_expired_and_who_waits_waits_on():
    model = model_with("a")
    message_model.publish(model, SELF, [Message(b"1", "a", (), 0), Message(b"2", "a")], 0)
    for queue in model.queues.values():
        for copy in queue.copies:
            copy.shown = True
    assert taken(model, most=1) == [b"2"]
    ticket = message_model.take(model, "s", 1, 1, SECOND, 0)
    assert not isinstance(ticket, tuple)
    message_model.publish(model, SELF, [Message(b"3", "a", (), 0)], 0)
    for copy in model.queues["a"].copies:
        copy.shown = True
    model.forced(0)
    assert ticket.answer is None, "it has come before"
    publish(model, b"4")
    assert ticket.answer is not None


def test_who_waits_for_messages_gets_what_expires_when_it_comes_and_who_asks_does_not():
    model = model_with("a", a=QueueRules(ttl=0))
    publish(model, b"1")
    assert model.queues["a"].copies == []
    ticket = message_model.take(model, "s", 1, 1, SECOND, 0)
    publish(model, b"2")
    assert [each.value for each in ticket.answer[1]] == [b"2"]
    message_model.give_back(model, "s", 1, [1], False, 0)
    model.forced(0)
    assert model.queues["a"].copies == []


def test_time_passes_while_the_broker_is_stopped():
    model = model_with("a", a=QueueRules(ttl=3 * SECOND))
    publish(model, b"1")
    after = model.kept()
    after.wall_offset = 3 * SECOND
    after.forced(0)
    assert after.queues["a"].copies == []


def test_the_oldest_that_can_be_got_end_and_what_sessions_have_does_not_count():
    model = model_with("a", "d", a=QueueRules(None, "", "d", most=1))
    publish(model, b"1", b"2")
    assert told(model, "d") == [(b"1", None, (Died("a", TOO_MANY, 1),))]
    assert taken(model) == [b"2"]
    publish(model, b"3")
    assert [each[0] for each in told(model, "a")] == [b"2", b"3"]
    message_model.give_back(model, "s", 1, [1], False, 0)
    model.forced(0)
    assert [each[0] for each in told(model, "a")] == [b"3"]


def test_a_queue_that_refuses_counts_all_of_a_request_and_what_can_be_got():
    model = model_with("a", "b", a=QueueRules(most=2, overflow=REJECT_PUBLISH))
    publish(model, b"1")
    run = (SELF, [Message(b"2", "a")])
    assert transaction_model.commit(model, "s", 1, [run, run], [], 0) == refused("QueueFull")
    assert transaction_model.commit(model, "s", 2, [run], [], 0)[0] == "Committed"
    assert message_model.publish(model, SELF, [Message(b"3", "a")], 0) == refused("QueueFull"), (
        "not forced yet"
    )
    model.forced(0)
    assert taken(model, most=1) == [b"1"]
    publish(model, b"4")


def test_a_queue_whose_bytes_are_bounded_counts_what_can_be_got():
    model = model_with(
        "a", "b", a=QueueRules(most_bytes=2, overflow=REJECT_PUBLISH), b=QueueRules(most_bytes=2)
    )
    publish(model, b"1")
    assert message_model.publish(model, SELF, [Message(b"22", "a")], 0) == refused("QueueFull")
    publish(model, b"3")
    for each in (b"1", b"22", b""):
        assert message_model.publish(model, SELF, [Message(each, "b")], 0)[0] == "Sent"
    model.forced(0)
    assert [each[0] for each in told(model, "b")] == [b"22", b""]


def test_a_dead_letter_tells_its_deaths_the_latest_first_and_has_no_expiration():
    one = died(Message(b"", "", (), 5), "a", EXPIRED)
    assert (one.expiration, one.deaths) == (None, (Died("a", EXPIRED, 1),))
    two = died(died(one, "b", REJECTED), "a", EXPIRED)
    assert two.deaths == (Died("a", EXPIRED, 2), Died("b", REJECTED, 1))


@pytest.mark.parametrize(
    ("deaths", "goes"),
    [
        ((), False), ((Died("b", EXPIRED, 1),), False), ((Died("a", EXPIRED, 1),), True),
        ((Died("a", REJECTED, 1),), False), ((Died("b", TOO_MANY, 1), Died("a", LIMIT, 1)), True),
        ((Died("b", REJECTED, 1), Died("a", EXPIRED, 1)), False),
        ((Died("a", EXPIRED, 2), Died("b", REJECTED, 1)), True),
    ],
)  # fmt: skip
def test_a_circle_is_one_without_a_consumer_that_rejects(deaths, goes):
    assert goes_round(Message(b"", "", deaths=deaths), "a") == goes


def test_a_message_that_expires_in_a_circle_is_dropped_and_one_that_is_rejected_is_not():
    model = model_with(
        "a", "b", a=QueueRules(None, "", "b", ttl=SECOND), b=QueueRules(None, "", "a", ttl=SECOND)
    )
    publish(model, b"1")
    for now in range(0, 5 * SECOND, SECOND):
        model.forced(now)
    assert told(model, "a") == told(model, "b") == []
    model = model_with("a", a=QueueRules(None, "", "a"))
    publish(model, b"1")
    assert taken(model) == [b"1"]
    assert message_model.settle(model, "s", 1, [], [Retry(0, 0, dead=True)], 0) == DONE
    model.forced(0)
    assert told(model, "a") == [(b"1", None, (Died("a", REJECTED, 1),))]


def test_a_dead_letter_waits_for_room_and_what_follows_is_in_the_order_of_the_logs():
    model = model_with(
        "a", "d",
        a=QueueRules(None, "", "d", ttl=0, overflow=REJECT_PUBLISH, strategy=AT_LEAST_ONCE),
        d=QueueRules(most=1, overflow=REJECT_PUBLISH),
    )  # fmt: skip
    message_model.publish(model, SELF, [Message(b"1", "a"), Message(b"2", "a")], 0)
    second = Message(b"2", "d", deaths=(Died("a", EXPIRED, 1),))
    model.forced(0, lambda partition, offset: second)
    assert [each[0] for each in told(model, "d")] == [b"2"]
    assert [copy.dead for copy in model.queues["a"].copies] == [True]
    taken(model, partition=2)
    model.forced(0)
    assert [each[0] for each in told(model, "d")] == [b"2", b"1"]


def test_a_dead_letter_that_is_refused_is_dropped_from_the_queue_that_is_full():
    model = model_with(
        "a", "d", "e",
        a=QueueRules(None, "amq.fanout", most=0), d=QueueRules(most=1, overflow=REJECT_PUBLISH),
    )  # fmt: skip
    for name in ("d", "e"):
        assert topology_model.bind(model, Rule("amq.fanout", "", name)) == DONE
    message_model.publish(model, SELF, [Message(b"1", "a"), Message(b"2", "a")], 0)
    model.forced(0)
    assert [[each[0] for each in told(model, name)] for name in "ade"] == [[], [b"1"], [b"1", b"2"]]


def test_keeping_dead_letters_needs_that_what_is_too_much_is_refused():
    model = model_with("a")
    rules = QueueRules(strategy=AT_LEAST_ONCE)
    assert topology_model.declare_queue(model, "b", rules, 0) == refused("InvalidSetting")
    rules = rules._replace(overflow=REJECT_PUBLISH)
    assert topology_model.declare_queue(model, "b", rules, 0)[0] == "QueueDeclared"


def test_an_alternate_exchange_gets_what_has_no_way_and_nothing_else():
    model = model_with("a", "b")
    model.topology.declare(Exchange("e", 0, DIRECT, alternate="f"))
    model.topology.declare(Exchange("f", 0, FANOUT, alternate="e"))
    model.topology.declare(Exchange("g", 0, DIRECT, alternate=""))
    model.topology.declare(Exchange("h", 0, DIRECT, alternate="gone"))
    for rule in (Rule("e", "k", "a"), Rule("f", "", "b")):
        assert topology_model.bind(model, rule) == DONE
    ways = [
        model.ways(model.topology.exchanges[name], Message(b"", key))
        for name, key in (("e", "k"), ("e", "x"), ("g", "a"), ("g", "x"), ("h", "a"))
    ]
    assert ways == [(1,), (2,), (1,), (), ()]


def test_exchanges_go_with_their_last_binding_one_after_another():
    model = model_with("a", "b")
    for name in ("e", "f", "g"):
        model.topology.declare(Exchange(name, 0, FANOUT, auto_delete=True))
    for rule in (Rule("e", "", "f", True), Rule("f", "", "a"), Rule("g", "", "a"), Rule("g", "", "b")):
        assert topology_model.bind(model, rule) == DONE
    topology_model.delete_queue(model, "a", 1)
    assert not {"e", "f"} & model.topology.exchanges.keys()
    assert topology_model.unbind(model, Rule("g", "", "b")) == DONE
    assert "g" not in model.topology.exchanges


def test_a_queue_is_used_by_who_declares_takes_waits_and_has_messages():
    model = model_with("a")
    queue = model.queues["a"]
    topology_model.declare_queue(model, "a", QueueRules(), 1)
    assert queue.used_at == 1
    message_model.take(model, "s", 1, 1, 2, 2)
    message_model.note_use(model, 9)
    assert queue.used_at == 4, "up to the end of the wait"
    publish(model, b"1")
    message_model.note_use(model, 20)
    assert queue.used_at == 20, "a session has its message"


def test_messages_of_a_higher_priority_are_first_and_the_lowest_go_first():
    model = model_with("a", "b", a=QueueRules(most=3, max_priority=2))
    assert model.queues["b"].partition == 4
    several = [Message(b"%d" % each, "a", priority=each) for each in (0, 1, 9, 1)]
    message_model.publish(model, SELF, several, 0)
    model.forced(0)
    assert [each[0] for each in told(model, "a")] == [b"1", b"1", b"9"]
    assert taken(model) == [b"9"], "an answer has messages of one priority"
    assert taken(model) == [b"1", b"1"]
    assert message_model.settle(model, "s", 3, [0], [], 0) == DONE
    assert message_model.settle(model, "s", 1, [0], [], 0) == DONE, "it is finished already"
    assert message_model.take(model, "s", 3, 1, 0, 0) == refused("UnknownQueue"), "a priority is no queue"


def test_each_priority_expires_at_its_own_head():
    model = model_with("a", a=QueueRules(max_priority=1))
    several = [Message(b"1", "a"), Message(b"2", "a", expiration=0), Message(b"3", "a", (), 0, (), 1)]
    message_model.publish(model, SELF, several, 0)
    model.forced(0)
    assert [each[0] for each in told(model, "a")] == [b"1", b"2"]


def test_a_session_loses_what_it_has_not_acknowledged_in_time_and_a_transaction_does_not():
    model = model_with("a", a=QueueRules(timeout=2 * SECOND))
    publish(model, b"1", b"2", b"3")
    assert taken(model, most=2) == [b"1", b"2"]
    assert taken(model, now=SECOND) == [b"3"]
    assert transaction_model.prepare(model, "s", 1, "x", [], [(1, 0)], SECOND) == DONE
    assert transaction_model.add_acknowledged(model, "s", 2, [(1, 1)]) is None
    message_model.time_passes(model, 2 * SECOND)
    assert [(each.holder, each.held, each.attempts) for each in model.queues["a"].copies] == [
        ("", "x", 0), ("", "", 1), ("s", "", 0),
    ]  # fmt: skip
    assert transaction_model.commit(model, "s", 2, [], [], 2 * SECOND) == refused("DeliveryLost")
    assert taken(model, "t", now=2 * SECOND) == [b"2"]
    message_model.time_passes(model, 3 * SECOND)
    assert [each.holder for each in model.queues["a"].copies] == ["", "t", ""], "its time began anew"


def delayed(model: Model, name: str = "w", **how: Any) -> int:
    """Have a delayed exchange; return its address."""
    kind, number = topology_model.declare_exchange(model, Exchange(name, 0, FANOUT, delayed=True, **how))
    assert kind == "ExchangeDeclared"
    return -2 * int(number) - 1


def test_what_waits_at_an_exchange_finds_its_queues_when_it_is_due():
    model = model_with("a", a=QueueRules(most=0, overflow=REJECT_PUBLISH))
    address = delayed(model)
    assert message_model.publish(model, address, [Message(b"1", "k", delay=1000)], 0) == ("Sent", 0)
    assert topology_model.bind(model, Rule("w", "", "a")) == DONE
    after = model.kept()
    for each in (model, after):
        each.forced(SECOND - 1)
        assert each.queues["a"].copies == []
        each.forced(SECOND)
        assert [(copy.message.value, copy.message.delay) for copy in each.queues["a"].copies] == [
            (b"1", -1000)
        ]
        assert each.rooms[7].messages == []


def test_what_has_waited_waits_nowhere_again_and_what_says_nothing_does_not():
    model = model_with("a")
    address = delayed(model)
    assert topology_model.bind(model, Rule("w", "", "a")) == DONE
    for delay in (None, 0, -5):
        assert message_model.publish(model, address, [Message(b"1", "k", delay=delay)], 0)[0] == "Sent"
    assert len(model.queues["a"].copies) == 3


def test_with_an_exchange_goes_what_waits_at_it_but_for_a_transaction_it_stays():
    model = model_with()
    address, waits = delayed(model), Message(b"1", "k", delay=1000)
    assert message_model.publish(model, address, [waits], 0)[0] == "Sent"
    assert transaction_model.prepare(model, "s", 1, "x", [(address, [waits])], [], 0) == DONE
    assert topology_model.delete_exchange(model, "w", 7) == refused("QueueInUse")
    assert transaction_model.decide(model, "x", True, 0) == ("Committed", {1: (1, 1)})
    assert len(model.rooms[7].messages) == 2
    assert topology_model.delete_exchange(model, "w", 7) == DONE
    model.forced(SECOND)
    assert model.rooms[7].messages == []
