"""Test that methods keep their order while requests wait at the broker: while a large commit is applied."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from journal.constants import MIB
from journal.transaction_states import Totals
from tests.channels.talk import House, consume, declare, published
from tests.support.broker_room import frames
from tests.support.builders import small_files
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply
from txbroker.wire import messages

BIG = frames(*[b"x" * MIB] * 9)


@pytest.fixture
def house() -> House:
    return House(small_files(pool_bytes=128 * MIB))


def begin(house: House) -> None:
    """Have a large commit be accepted, which is applied from the next force on."""
    [partition] = house.topic()
    peer = house.peer()
    for _ in range(2):
        peer.ask(messages.Add, 1, partition, data=BIG)
    peer.tell(messages.Commit, serial=1, totals=Totals(18, 2, crc32c(BIG, crc32c(BIG))))
    assert house.engine.busy


def test_what_is_declared_is_there_for_the_methods_behind_it(house):
    talker = house.talker()
    begin(house)
    talker.feed(
        method_frame(1, declare("", exclusive=True))
        + method_frame(1, m.QueueBind(0, "", "amq.fanout", "", False, {}))
        + published(1, "k", b"a", exchange="amq.fanout")
        + published(1, "k", b"b", exchange="amq.fanout")
        + method_frame(1, consume("", "c"))
    )
    assert talker.heard == []
    told = talker.taken()
    kinds = [type(each.method) for each in told]
    assert kinds == [m.QueueDeclareOk, m.QueueBindOk, m.BasicConsumeOk, m.BasicDeliver, m.BasicDeliver]
    assert [each.body for each in told[3:]] == [b"a", b"b"]


def test_what_is_refused_then_ends_the_channel_and_what_follows_is_passed_over(house):
    talker = house.talker()
    talker.queue()
    begin(house)
    talker.say(declare("q", {"x-max-length": 3}), declare("later"))
    assert [type(each) for each in talker.methods()] == [c.ChannelClose]
    talker.say(c.ChannelCloseOk())
    talker.open(1)
    talker.refused(declare("later", passive=True), Reply.NOT_FOUND)


def test_what_is_published_meanwhile_is_confirmed_and_in_its_order(house):
    talker = house.talker()
    talker.queue("few", {"x-max-length": 3, "x-overflow": "reject-publish"})
    talker.confirm()
    begin(house)
    talker.publish("few", b"0", b"1")
    talker.publish("few", b"2", b"3")
    talker.publish("few", b"4")
    told = talker.methods()
    tags = {each.delivery_tag: type(each) for each in told}
    assert tags[5] is m.BasicNack
    assert talker.all_of("few") == [b"0", b"1", b"2"]


def test_what_was_published_before_its_channel_was_closed_is_taken_as_far_as_it_fits(house):
    talker, other = house.talker(), house.talker()
    talker.queue("few", {"x-max-length": 3, "x-overflow": "reject-publish"})
    other.publish("few", b"0")
    other.taken()
    begin(house)
    other.publish("few", b"1")
    talker.publish("few", b"2", b"3")
    talker.say(c.ChannelClose(200, "", 0, 0))
    assert talker.methods() == [c.ChannelCloseOk()]
    assert other.all_of("few") == [b"0", b"1", b"2"]


def test_consumers_begin_and_end_in_the_order_of_their_methods(house):
    talker, other = house.talker(), house.talker()
    talker.queue()
    other.publish("q", b"a")
    other.taken()
    begin(house)
    talker.say(consume(), m.BasicCancel("c", False), consume(tag="d"), c.ChannelClose(200, "", 0, 0))
    told = talker.methods()
    assert told.count(c.ChannelCloseOk()) == 1
    assert told[-1] == c.ChannelCloseOk() or m.BasicDeliver not in {type(each) for each in told}
    house.settle()
    assert house.counts("q") == (1, 0)
    assert house.attempts("q") == {}


def test_nothing_is_read_until_all_are_judged(house):
    talker = house.talker()
    talker.open(2)
    talker.queue()
    begin(house)
    holds, hold = [], talker.session.hold
    talker.session.hold = lambda held: (holds.append(held), hold(held))
    talker.feed(published(1, "q", b"a") + published(2, "q", b"b"))
    assert holds == [True]
    house.settle()
    assert holds == [True, False]
    assert house.counts("q") == (2, 0)


def test_a_connection_that_ends_meanwhile_leaves_nothing(house):
    talker, other = house.talker(), house.talker()
    talker.queue()
    other.publish("q", b"a")
    other.taken()
    talker.consume()
    begin(house)
    talker.say(m.BasicAck(1, False), declare("later"))
    talker.lose()
    house.settle()
    assert house.counts("q") == (0, 0)
    assert other.queue("more").consumer_count == 0
