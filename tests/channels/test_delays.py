"""Test exchanges of type x-delayed-message, as RabbitMQ's plugin has them (decision 0066).

The cases are those of the plugin's plugin_SUITE.erl, and of what its README says.
"""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from tests.channels.talk import House, Talker, declare, declare_exchange, published
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.fields import entries_of, long_text, short_text
from txbroker.amqp.reply_codes import Reply

DELAYED = "x-delayed-message"


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def talker(house) -> Talker:
    talker = house.talker()
    delayed(talker)
    talker.queue()
    talker.bind("q", "d", "k")
    return talker


def delayed(talker: Talker, name: str = "d", kind: str = "direct", **flags: bool) -> None:
    talker.exchange(name, DELAYED, {"x-delayed-type": kind}, **flags)


def waits(talker: Talker, milliseconds: object, *bodies: bytes, exchange: str = "d", **more: bool) -> None:
    properties = props.made_of({props.MESSAGE_ID: "m-1"}, {"x-delay": milliseconds, "other": "kept"})
    talker.publish("k", *bodies, exchange=exchange, properties=properties, **more)


def raw(kind: bytes, packed: bytes) -> bytes:
    """Return properties whose header x-delay has that type and value."""
    return props.made_of({props.HEADERS: long_text(short_text("x-delay") + kind + packed)}, {})


def test_a_message_waits_and_is_delivered_with_its_delay_negated(house, talker):
    waits(talker, 5_000, b"later")
    talker.publish("k", b"now", exchange="d")
    assert talker.all_of() == [b"now"]
    house.pass_time(4.5)
    assert talker.all_of() == []
    house.pass_time(1)
    came = talker.get()
    assert (came.body, came.method.exchange, came.method.routing_key) == (b"later", "d", "k")
    assert came.headers == {"x-delay": -5_000, "other": "kept"}
    assert props.decoded(came.properties)["message_id"] == "m-1"


@pytest.mark.parametrize(
    ("kind", "packed", "seconds"),
    [
        (b"b", struct.pack(">b", 100), 0.1),
        (b"B", struct.pack(">B", 200), 0.2),
        (b"s", struct.pack(">h", 2_000), 2),
        (b"u", struct.pack(">H", 40_000), 40),
        (b"I", struct.pack(">i", 2_000), 2),
        (b"i", struct.pack(">I", 3_000_000_000), 3_000_000),
        (b"l", struct.pack(">q", 2_000), 2),
        (b"d", struct.pack(">d", 2_000.9), 2),
        (b"f", struct.pack(">f", 2_000.5), 2),
        (b"S", long_text(b"2000"), 2),
        (b"x", long_text(b"2000"), 2),
        (b"l", struct.pack(">q", 400 * 24 * 3600 * 1000), 400 * 24 * 3600),
    ],
)
def test_a_delay_may_be_any_number_or_the_text_of_one(house, talker, kind, packed, seconds):
    talker.publish("k", b"a", exchange="d", properties=raw(kind, packed))
    house.pass_time(seconds - 0.05)
    assert talker.all_of() == []
    house.pass_time(0.1)
    assert talker.get().headers == {"x-delay": -round(seconds * 1_000)}


@pytest.mark.parametrize(
    "value",
    [0, -5_000, True, None, "soon", "", [5_000], {"ms": 5_000}, Decimal(5_000), float("nan"), float("inf")],
)
def test_what_is_no_delay_goes_on_at_once_with_its_headers_as_they_were(talker, value):
    properties = props.made_of({}, {"x-delay": value})
    talker.publish("k", b"a", exchange="d", properties=properties)
    assert talker.get().properties == properties


def test_a_time_is_no_delay(talker):
    talker.publish("k", b"a", exchange="d", properties=raw(b"T", struct.pack(">Q", 1_700_000_000)))
    assert talker.all_of() == [b"a"]


def test_the_shorter_delay_comes_first(house, talker):
    waits(talker, 3_000, b"3")
    waits(talker, 1_000, b"1")
    waits(talker, 2_000, b"2")
    house.pass_time(4)
    assert talker.all_of() == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("arguments", "reply"),
    [
        ({}, Reply.PRECONDITION_FAILED),
        ({"x-delayed-type": DELAYED}, Reply.PRECONDITION_FAILED),
        ({"x-delayed-type": 1}, Reply.PRECONDITION_FAILED),
        ({"x-delayed-type": "round"}, Reply.COMMAND_INVALID),
        ({"x-delayed-type": ""}, Reply.COMMAND_INVALID),
    ],
)
def test_what_it_is_beside_its_delays_must_be_an_exchange_type(house, arguments, reply):
    talker = house.talker()
    words = talker.refused(declare_exchange("e", DELAYED, arguments), reply)
    assert ("x-delayed-type" in words) == (reply is Reply.PRECONDITION_FAILED)
    assert house.broker.queues.declarations.known_exchange("e") is None


def test_a_declaration_of_another_type_is_refused(talker):
    delayed(talker)
    words = talker.refused(declare_exchange("d", "direct"), Reply.PRECONDITION_FAILED)
    assert "inequivalent arg 'type' for exchange 'd' in vhost '/': received 'direct' but" in words
    assert words.endswith(f"current is '{DELAYED}'")
    other = declare_exchange("d", DELAYED, {"x-delayed-type": "topic"})
    words = talker.refused(other, Reply.PRECONDITION_FAILED)
    assert "inequivalent arg 'x-delayed-type'" in words


@pytest.mark.parametrize(
    ("kind", "key", "arguments"),
    [("fanout", "", None), ("topic", "*", None), ("headers", "", {"x-match": "any", "other": "kept"})],
)
def test_it_routes_by_the_type_that_it_has_beside_its_delays(house, talker, kind, key, arguments):
    delayed(talker, "e", kind)
    talker.bind("q", "e", key, arguments)
    waits(talker, 1_000, b"a", exchange="e")
    assert talker.all_of() == []
    house.pass_time(2)
    assert talker.all_of() == [b"a"]


def test_it_is_confirmed_once_it_is_forced_and_returned_never_when_it_waits(house, talker):
    talker.confirm()
    waits(talker, 1_000, b"a", mandatory=True)
    assert talker.heard == []
    assert talker.methods() == [m.BasicAck(1, False)]
    talker.ask(m.QueueUnbind(0, "q", "d", "k", {}))
    house.pass_time(2)
    assert talker.methods() == []
    talker.publish("k", b"b", exchange="d", mandatory=True)
    assert [type(each) for each in talker.methods()] == [m.BasicReturn, m.BasicAck]


def test_it_outlives_the_broker(house, talker):
    waits(talker, 2_000, b"a")
    waits(talker, 60_000, b"b")
    talker.taken()
    house.kill()
    for each in house.broker.passes:
        each.wake()
    again = house.talker()
    house.pass_time(3)
    assert again.all_of() == [b"a"]
    house.pass_time(60)
    assert again.all_of() == [b"b"]


def test_in_a_transaction_it_waits_from_the_commit_on(house, talker):
    assert talker.ask(m.TxSelect()) == m.TxSelectOk()
    waits(talker, 2_000, b"a", b"b")
    house.pass_time(3)
    assert talker.ask(m.TxCommit()) == m.TxCommitOk()
    waits(talker, 2_000, b"never")
    assert talker.ask(m.TxRollback()) == m.TxRollbackOk()
    house.pass_time(1)
    assert house.talker().all_of() == []
    house.pass_time(2)
    assert house.talker().all_of() == [b"a", b"b"]


def test_what_may_not_wait_is_nacked_or_ends_the_channel():
    house = House(max_scheduled=2)
    talker = house.talker()
    delayed(talker)
    talker.queue()
    talker.bind("q", "d", "k")
    talker.confirm()
    waits(talker, 1_000, b"a", b"b", b"c")
    assert talker.methods() == [m.BasicAck(2, True), m.BasicNack(3, False, False)]
    other = house.talker()
    data = published(1, "k", b"d", "d", props.made_of({}, {"x-delay": 1_000}))
    assert "max_scheduled" in other.refused(data, Reply.RESOURCE_ERROR)
    house.pass_time(2)
    assert talker.all_of() == [b"a", b"b"]


def test_a_dead_letter_waits_and_keeps_its_deaths(house, talker):
    talker.queue("work", {"x-dead-letter-exchange": "d", "x-dead-letter-routing-key": "k"})
    talker.publish("work", b"a", properties=props.made_of({}, {"x-delay": 1_000}))
    talker.say(m.BasicReject(talker.get("work").method.delivery_tag, False))
    house.settle()
    assert talker.all_of() == []
    house.pass_time(2)
    came = talker.get()
    assert (came.body, came.headers["x-delay"]) == (b"a", -1_000)
    assert [(each["queue"], each["reason"]) for each in came.headers["x-death"]] == [("work", "rejected")]


def test_further_keys_count_when_it_is_due(house, talker):
    talker.queue("other")
    talker.bind("other", "d", "k2")
    properties = props.made_of({}, {"x-delay": 1_000, "BCC": ["k2"]})
    talker.publish("none", b"a", exchange="d", properties=properties)
    house.pass_time(2)
    came = talker.get("other")
    assert (came.body, came.headers) == (b"a", {"x-delay": -1_000})


def test_what_waits_is_dropped_with_the_exchange(house, talker):
    waits(talker, 1_000, b"a")
    house.settle()
    assert talker.ask(m.ExchangeDelete(0, "d", False, False)) == m.ExchangeDeleteOk()
    delayed(talker)
    talker.bind("q", "d", "k")
    house.pass_time(2)
    assert talker.all_of() == []


def test_the_queue_of_what_waits_is_nobodys(house, talker):
    name = f"amq.delayed.{house.broker.queues.declarations.exchange('d').number}"
    talker.refused(declare(name, passive=True), Reply.NOT_FOUND)
    talker.refused(m.BasicGet(0, name, True), Reply.NOT_FOUND)
    talker.refused(declare(name), Reply.ACCESS_REFUSED)


def test_hostile_headers_hurt_nobody(house, talker):
    fields = entries_of({"x-delay": 1_000}) * 50
    talker.publish("k", b"a", exchange="d", properties=props.made_of({props.HEADERS: long_text(fields)}, {}))
    talker.publish("k", b"b", exchange="d", properties=raw(b"S", long_text(b"9" * 5_000)))
    assert talker.all_of() == [b"b"]
    house.pass_time(2)
    came = talker.get()
    assert (came.body, came.headers) == (b"a", {"x-delay": -1_000})
