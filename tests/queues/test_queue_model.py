"""Test the model of queues by what RabbitMQ's and our documents say, so that it is wrong in no way of its own."""

from __future__ import annotations

import pytest

from tests.queues.model import message_model, topology_model, transaction_model
from tests.queues.model.message_model import Retry
from tests.queues.model.queue_model import DONE, ROLLED_BACK, Model, QueueRules, refused
from tests.queues.model.routing_model import DIRECT, FANOUT, HEADERS, TOPIC, Message, Rule

SELF = -2
"""The address of the default exchange."""


def model_with(*queues: str, **rules: QueueRules) -> Model:
    model = Model()
    for name in queues:
        topology_model.declare_queue(model, name, rules.get(name, QueueRules()), 0)
    return model


def publish(model: Model, *values: bytes, key: str = "a") -> None:
    answer = message_model.publish(model, SELF, [Message(value, key) for value in values])
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
    exchange = model.topology.declare("t", TOPIC, False)
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
    exchange = model.topology.declare("h", HEADERS, False)
    model.topology.rules.append(Rule("h", "", "a", arguments=arguments))
    assert bool(model.ways(exchange, Message(b"", "", headers))) == fits


def test_exchanges_lead_to_exchanges_each_once_and_in_a_circle():
    model = model_with("a", "b")
    for name in ("e", "f"):
        model.topology.declare(name, FANOUT, False)
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
    message_model.publish(model, SELF, [Message(b"1", "a")])
    assert taken(model) == []
    after = model.kept()
    assert [each.seen for each in after.queues["a"].copies.values()] == [2]
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
    assert [copy.attempts for copy in model.queues["a"].copies.values()] == [1]
    assert taken(model, "t") == [b"2"]


def test_a_message_is_returned_as_often_as_the_limit_says_and_is_then_a_dead_letter():
    model = model_with("a", "d", a=QueueRules(1, "", "d"))
    publish(model, b"1")
    for attempts in (0, 1):
        assert taken(model) == [b"1"]
        assert message_model.settle(model, "s", 1, [], [Retry(0, attempts)], 0) == DONE
        assert len(model.queues["a"].copies) == 1
        model.forced(0)
    assert model.queues["a"].copies == {}
    assert taken(model, partition=2) == [b"1"]


def test_what_is_prepared_is_nobodys_and_after_a_rollback_an_attempt_is_counted():
    model = model_with("a")
    publish(model, b"1")
    taken(model)
    assert transaction_model.prepare(model, "s", 1, "x", [], [(1, 0)]) == DONE
    message_model.leave(model, "s", 0)
    assert taken(model) == []
    assert topology_model.delete_queue(model, "a", 1) == refused("QueueInUse")
    assert transaction_model.decide(model, "x", False) == DONE
    assert taken(model) == []
    model.return_some = lambda now: message_model.return_some(model, now)
    model.forced(0)
    assert model.held_by(ROLLED_BACK) == {}
    assert [copy.attempts for copy in model.queues["a"].copies.values()] == [1]
    assert taken(model) == [b"1"]


def test_a_commit_is_whole_or_refused_and_then_nothing_of_it_is_left():
    model = model_with("a", "b")
    publish(model, b"1")
    taken(model)
    runs = [(SELF, [Message(b"2", "b")])]
    lost = transaction_model.commit(model, "t", 1, runs, [(1, 0)])
    assert lost == refused("DeliveryLost")
    assert model.queues["b"].end == 0
    assert transaction_model.commit(model, "s", 1, runs, [(1, 0)]) == ("Committed", {2: (0, 1)})
    model.forced(0)
    assert model.queues["a"].copies == {}
    assert taken(model, partition=2) == [b"2"]


def test_a_direct_exchange_compares_keys():
    model = model_with("a")
    exchange = model.topology.declare("d", DIRECT, False)
    model.topology.rules.append(Rule("d", "k", "a"))
    assert model.ways(exchange, Message(b"", "k")) == (1,)
    assert model.ways(exchange, Message(b"", "l")) == ()
