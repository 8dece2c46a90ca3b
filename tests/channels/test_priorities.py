"""Test that messages of a queue with x-max-priority are delivered by their priority."""

import pytest

from tests.broker.queues.scene import SELF, framed
from tests.channels.talk import House, declare
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.reply_codes import Reply
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY


@pytest.fixture
def house():
    return House()


@pytest.fixture
def talker(house):
    return house.talker()


def publish(talker, *each, queue="p"):
    """(body, priority); None for none."""
    for body, priority in each:
        given = {} if priority is None else {props.PRIORITY: bytes([priority])}
        talker.publish(queue, body, properties=props.made_of(given, {}))


def priority_of(heard):
    spans = props.spans_of(heard.properties)
    return heard.properties[spans[props.PRIORITY][0]] if props.PRIORITY in spans else None


def test_a_consumer_gets_the_highest_first_and_acknowledges_all_with_one_tag(house, talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    publish(
        talker, (b"none", None), (b"three", 3), (b"nine", 9), (b"zero", 0), (b"five", 5), (b"three too", 3)
    )
    talker.consume("p")
    came = talker.told(m.BasicDeliver)
    assert [each.body for each in came] == [b"nine", b"five", b"three", b"three too", b"none", b"zero"]
    assert [priority_of(each) for each in came] == [9, 5, 3, 3, None, 0]
    talker.say(m.BasicAck(came[-1].method.delivery_tag, True))
    house.settle()
    assert house.counts("p") == (0, 0)


def test_with_a_prefetch_of_one_each_that_comes_later_may_come_first(house, talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    talker.qos(1)
    talker.consume("p")
    talker.taken()
    publish(talker, (b"low", 1))
    house.settle()
    publish(talker, (b"lower", 0), (b"high", 5))
    found = []
    while came := talker.told(m.BasicDeliver):
        [each] = came
        found.append(each.body)
        talker.taken()
        talker.say(m.BasicAck(each.method.delivery_tag, False))
        house.settle()
    assert found == [b"low", b"high", b"lower"]


def test_what_is_rejected_for_good_or_returned_is_that_of_its_priority(house, talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    publish(talker, (b"a", 5), (b"b", 1))
    first, second = talker.get("p"), talker.get("p")
    assert (first.body, second.body, first.method.message_count) == (b"a", b"b", 1)
    talker.say(
        m.BasicNack(first.method.delivery_tag, False, True), m.BasicReject(second.method.delivery_tag, False)
    )
    house.settle()
    again = talker.get("p")
    assert (again.body, again.method.redelivered, talker.get("p")) == (b"a", True, None)


def test_a_message_of_a_client_of_the_broker_has_its_priority_among_the_properties(house, talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    peer = house.peer()
    for body, said in ((b"low", b"1"), (b"high", b"4")):
        peer.ask(messages.Send, SELF, data=framed("p", body, headers={PRIORITY: said}))
    came = [talker.get("p") for _ in range(2)]
    assert [(each.body, priority_of(each), each.headers) for each in came] == [
        (b"high", 4, {}),
        (b"low", 1, {}),
    ]


def test_a_queue_with_other_priorities_is_another_one(talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    told = talker.refused(declare("p"), Reply.PRECONDITION_FAILED)
    assert (
        "inequivalent arg 'x-max-priority' for queue 'p' in vhost '/': received none but current is" in told
    )


def test_a_transaction_of_amqp_publishes_and_acknowledges_of_several_priorities(house, talker):
    talker.queue("p", arguments={"x-max-priority": 5})
    publish(talker, (b"a", 5), (b"b", 1))
    talker.ask(m.TxSelect())
    first, second = talker.get("p"), talker.get("p")
    publish(talker, (b"c", 2), (b"d", 4))
    talker.say(m.BasicAck(second.method.delivery_tag, True))
    house.settle()
    assert house.counts("p") == (0, 2)
    talker.ask(m.TxCommit())
    house.settle()
    assert first.body == b"a"
    assert talker.all_of("p") == [b"d", b"c"]
