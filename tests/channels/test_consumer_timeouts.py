"""Test ``x-consumer-timeout``: the channel that holds a delivery for too long is closed, and it alone."""

import pytest

from tests.channels.talk import House, Talker
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.contents import LEASE_FIELD
from txbroker.wire import messages

TEXT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 3200 ms. This timeout "
    "value can be configured, see consumers doc guide to learn more"
)
"""RabbitMQ's words."""


@pytest.fixture
def house():
    return House()


@pytest.fixture
def talker(house):
    talker = house.talker()
    talker.open(2)
    talker.queue("q", {"x-consumer-timeout": 3200})
    return talker


def acknowledge(talker: Talker, tag: int, multiple: bool = False) -> None:
    talker.say(m.BasicAck(tag, multiple))


def is_closed(talker: Talker) -> list[str]:
    return [each.method.reply_text for each in talker.told(c.ChannelClose)]


def test_a_channel_that_is_late_is_closed_and_all_that_it_has_is_returned(house, talker):
    talker.publish("q", b"a", b"b", b"c")
    talker.consume()
    talker.taken()
    acknowledge(talker, 1)
    house.pass_time(3.1)
    assert is_closed(talker) == []
    house.pass_time(0.3)
    [heard] = talker.told(c.ChannelClose)
    assert (heard.channel, heard.method.reply_code, heard.method.reply_text) == (
        1,
        Reply.PRECONDITION_FAILED,
        TEXT,
    )
    assert (heard.method.class_id, heard.method.method_id) == (0, 0), "it answers no method"
    assert house.counts("q") == (2, 0)
    assert house.attempts("q") == {1: 1, 2: 1}
    assert house.broker.queues.gauges()["queue_timed_out"] == 2
    talker.say(c.ChannelCloseOk())
    talker.open(1)
    assert [talker.get().headers["x-delivery-count"] for _ in range(2)] == [1, 1]


def test_the_other_channels_of_the_connection_and_other_consumers_go_on(house, talker):
    talker.publish("q", b"a", b"b")
    talker.get(on=1)
    house.pass_time(2)
    talker.get(on=2)
    other = house.talker()
    other.consume()
    house.pass_time(1.4)
    assert [each.channel for each in talker.told(c.ChannelClose)] == [1]
    assert other.bodies() == [b"a"]
    house.pass_time(1)
    assert house.counts("q") == (0, 2), "the second channel has its message still"


@pytest.mark.parametrize("no_ack", [False, True])
def test_what_is_got_is_late_too_but_not_what_needs_no_acknowledgement(house, talker, no_ack):
    talker.publish("q", b"a")
    talker.get(no_ack=no_ack)
    house.pass_time(4)
    assert is_closed(talker) == ([] if no_ack else [TEXT])


def test_what_is_returned_in_time_is_not_late(house, talker):
    talker.publish("q", b"a")
    for _ in range(3):
        talker.get()
        house.pass_time(3)
        talker.say(m.BasicNack(0, True, True))
        house.settle()
    house.pass_time(4)
    assert is_closed(talker) == []


def test_an_acknowledgement_that_waits_for_a_commit_is_late(house, talker):
    talker.ask(m.TxSelect())
    talker.publish("q", b"a")
    talker.ask(m.TxCommit())
    talker.get()
    acknowledge(talker, 1)
    house.pass_time(4)
    assert is_closed(talker) == [TEXT]
    assert house.counts("q") == (1, 0)


def test_who_has_taken_a_delivery_over_is_late_and_not_the_channel(house, talker):
    talker.publish("q", b"a")
    talker.consume(arguments={LEASE_FIELD: True})
    [delivered] = talker.taken()
    lease = bytes.fromhex(delivered.headers[LEASE_FIELD])
    child = house.peer()
    assert isinstance(child.ask(messages.TakeOver, lease), messages.TakenOver)
    house.pass_time(3)
    assert house.counts("q") == (0, 1)
    house.pass_time(0.4)
    [again] = talker.taken()
    assert (type(again.method), again.body) == (m.BasicDeliver, b"a"), "what it had was not its any more"
    assert house.broker.queues.gauges()["queue_timed_out"] == 1


def test_a_lease_ends_with_the_channel(house, talker):
    talker.publish("q", b"a")
    talker.consume(arguments={LEASE_FIELD: True})
    [delivered] = talker.taken()
    house.pass_time(4)
    lease = bytes.fromhex(delivered.headers[LEASE_FIELD])
    assert house.peer().ask(messages.TakeOver, lease).error == "DeliveryLost"


def test_a_channel_with_very_many_late_deliveries_returns_them_all(house, talker):
    talker.publish("q", *[b"x"] * 3000)
    talker.consume()
    talker.taken()
    house.pass_time(4)
    for _ in range(20):
        house.settle()
    assert house.counts("q") == (3000, 0)
    assert is_closed(talker) == [TEXT]
    assert house.broker.queues.gauges()["queue_timed_out"] == 3000


def test_a_connection_that_is_to_be_closed_has_its_late_deliveries_returned(house, talker):
    talker.publish("q", b"a")
    talker.get()
    talker.say(m.BasicQos(1, 0, False))
    assert [each.method.reply_code for each in talker.told(c.ConnectionClose)] == [Reply.NOT_IMPLEMENTED]
    house.pass_time(4)
    assert house.counts("q") == (1, 0)
