"""Test what clients of AMQP consume and get, and what prefetches, priorities and cancellations do to that."""

from __future__ import annotations

import pytest

from tests.channels.talk import House, Talker, consume, declare, published
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def talker(house) -> Talker:
    talker = house.talker()
    talker.queue()
    return talker


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def ack(tag: int, multiple: bool = False) -> m.BasicAck:
    return m.BasicAck(tag, multiple)


# -- consuming ------------------------------------------------------------------------------------


def test_the_answer_comes_before_the_deliveries(talker):
    talker.publish("q", *numbered(3))
    talker.say(consume())
    told = talker.taken()
    assert told[0].method == m.BasicConsumeOk("c")
    assert [each.method for each in told[1:]] == [m.BasicDeliver("c", n, False, "", "q") for n in (1, 2, 3)]
    talker.publish("q", b"3")
    assert talker.bodies() == [b"3"]


def test_a_consumer_without_a_tag_gets_one_and_one_without_an_answer_gets_messages(talker):
    talker.publish("q", b"a", b"b")
    talker.qos(1)
    talker.taken()
    talker.say(consume(tag=""))
    told = talker.methods()
    assert told[0].consumer_tag.startswith("amq.ctag-")
    assert told[1].consumer_tag == told[0].consumer_tag
    talker.say(consume(tag="quiet", no_wait=True))
    assert [each.consumer_tag for each in talker.methods()] == ["quiet"]


def test_a_tag_is_one_consumers_of_its_channel(talker):
    talker.consume()
    talker.open(2)
    talker.consume(on=2)
    talker.refused(consume(), Reply.NOT_ALLOWED)


def test_consumers_of_a_queue_share_its_messages(house, talker):
    others = [house.talker() for _ in range(2)]
    for each in (talker, *others):
        each.consume()
    talker.publish("q", *numbered(9))
    found = [each.bodies() for each in (talker, *others)]
    assert sorted(one for each in found for one in each) == numbered(9)
    assert all(each == sorted(each) for each in found)


def test_without_acknowledgements_messages_are_done_once_they_are_delivered(house, talker):
    talker.qos(1)
    talker.publish("q", *numbered(5))
    talker.consume(no_ack=True)
    assert talker.bodies() == numbered(5), "a prefetch does not bound it"
    assert house.counts("q") == (0, 0)
    talker.refused(ack(1), Reply.PRECONDITION_FAILED)
    house.restart()
    assert house.talker().all_of() == []


def test_an_exclusive_consumer_is_the_only_one(house, talker):
    other = house.talker()
    talker.consume(exclusive=True)
    assert other.refused(consume(), Reply.ACCESS_REFUSED).endswith("queue 'q' in vhost '/' in exclusive use")
    talker.ask(m.BasicCancel("c", False))
    other.consume()
    talker.refused(consume(exclusive=True), Reply.ACCESS_REFUSED)
    talker.consume("q", "c")


def test_consumers_of_a_higher_priority_come_first(house, talker):
    other = house.talker()
    talker.qos(1)
    talker.taken()
    talker.consume("q", "low")
    other.qos(2)
    other.taken()
    other.consume("q", "high", arguments={"x-priority": 5})
    talker.publish("q", *numbered(4))
    assert (other.bodies(), talker.bodies()) == ([b"0", b"1"], [b"2"])


@pytest.mark.parametrize(("prefetch", "no_ack"), [(20, False), (1, False), (0, False), (0, True)])
def test_a_higher_priority_gets_all_as_long_as_it_takes_all_however_fast_they_come(
    house, talker, prefetch, no_ack
):
    other = house.talker()
    talker.consume("q", "low")
    other.qos(prefetch)
    other.taken()
    other.consume("q", "high", arguments={"x-priority": 5}, no_ack=no_ack)
    for number in range(20):
        talker.publish("q", b"%d" % number)
        house.engine.sync()  # and others are served before this one has its next turn
        if prefetch == 1:
            other.say(ack(number + 1))
    assert other.bodies() == numbered(20)
    assert talker.bodies() == []


def test_lower_priorities_get_what_one_has_no_room_for_until_it_has(house, talker):
    other = house.talker()
    talker.consume("q", "low")
    other.qos(2)
    other.taken()
    other.consume("q", "high", arguments={"x-priority": 5})
    for number in range(5):
        talker.publish("q", b"%d" % number)
        house.engine.sync()
    assert (other.bodies(), talker.bodies()) == (numbered(2), numbered(3, 2))
    other.say(ack(2, multiple=True))
    house.settle()
    talker.publish("q", b"5")
    assert (other.bodies(), talker.bodies()) == ([b"5"], [])


@pytest.mark.parametrize("end", ["cancelled", "closed", "lost"])
def test_lower_priorities_get_what_comes_once_a_higher_one_has_ended(house, talker, end):
    other = house.talker()
    talker.consume("q", "low")
    other.consume("q", "high", arguments={"x-priority": 5})
    talker.publish("q", b"0")
    house.engine.sync()  # it is given this, and has not had a turn to ask for more
    talker.publish("q", b"1")
    house.engine.sync()
    if end == "cancelled":
        other.say(m.BasicCancel("high", False))
    elif end == "closed":
        other.say(c.ChannelClose(200, "", 0, 0))
    else:
        other.lose()
    assert b"1" in talker.bodies()


def test_who_gets_one_message_is_behind_no_consumer(house, talker):
    other = house.talker()
    other.consume("q", "high", arguments={"x-priority": 5})
    talker.publish("q", b"0")
    house.engine.sync()
    talker.publish("q", b"1")
    assert talker.get().body == b"1"
    assert other.bodies() == [b"0"]


@pytest.mark.parametrize("value", ["5", True, 1.5, 1 << 31, [1]])
def test_a_priority_is_a_number(talker, value):
    talker.refused(consume(arguments={"x-priority": value}), Reply.PRECONDITION_FAILED)


def test_of_a_queue_with_a_single_active_consumer_one_gets_all_until_it_ends(house, talker):
    other = house.talker()
    talker.queue("one", {"x-single-active-consumer": True})
    talker.consume("one")
    other.consume("one")
    talker.publish("one", *numbered(2))
    assert (talker.bodies(), other.bodies()) == ([b"0", b"1"], [])
    talker.say(ack(1), m.BasicCancel("c", False))
    assert talker.methods() == [m.BasicCancelOk("c")]
    talker.publish("one", b"2")
    assert other.bodies() == [b"2"]


# -- prefetches -----------------------------------------------------------------------------------


def test_a_prefetch_bounds_what_each_consumer_has(house, talker):
    talker.qos(2)
    assert talker.methods() == [m.BasicQosOk()]
    talker.queue("p")
    talker.publish("q", *numbered(5))
    talker.publish("p", *numbered(5, 10))
    talker.consume("q", "one")
    talker.consume("p", "two")
    told = talker.told(m.BasicDeliver)
    assert [each.body for each in told] == [b"0", b"1", b"10", b"11"]
    talker.say(ack(told[0].method.delivery_tag))
    assert talker.bodies() == [b"2"]
    talker.say(ack(told[3].method.delivery_tag, True))
    assert sorted(talker.bodies()) == [b"12", b"13", b"3"]
    assert house.counts("q") == (1, 2)


def test_a_prefetch_of_the_channel_bounds_what_all_have(house, talker):
    talker.queue("p")
    talker.publish("q", *numbered(5))
    talker.publish("p", *numbered(5, 10))
    talker.qos(3, is_global=True)
    talker.qos(2)
    talker.taken()
    talker.consume("q", "one")
    talker.consume("p", "two")
    assert talker.bodies() == [b"0", b"1", b"10"]
    talker.say(ack(1))
    [more] = talker.bodies()
    assert more in (b"2", b"11")
    talker.say(ack(0, True))
    assert len(talker.bodies()) == 3
    assert sum(house.counts("q") + house.counts("p")) == 10 - 4


def test_consumers_that_wait_at_once_have_no_more_than_the_channel_may(house, talker):
    talker.queue("p")
    talker.qos(1, is_global=True)
    talker.taken()
    talker.consume("q", "one")
    talker.consume("p", "two")
    talker.feed(published(1, "q", b"a") + published(1, "p", b"b") + published(1, "q", b"c"))
    assert len(talker.told(m.BasicDeliver)) == 1
    assert sum(house.counts(each)[1] for each in "qp") == 1
    for tag in (1, 2):
        talker.say(ack(tag))
        assert len(talker.told(m.BasicDeliver)) == 1
    talker.say(ack(3))
    assert talker.taken() == []
    assert house.attempts("q") == house.attempts("p") == {}


def test_a_prefetch_that_is_changed_later_holds_for_the_channel_and_for_new_consumers(talker):
    talker.publish("q", *numbered(10))
    talker.qos(2)
    talker.taken()
    talker.consume("q", "one")
    assert len(talker.bodies()) == 2
    talker.qos(4)
    assert talker.bodies() == [], "it is of consumers that begin later"
    talker.consume("q", "two")
    assert len(talker.bodies()) == 4
    talker.qos(7, is_global=True)
    assert talker.bodies() == []
    talker.say(ack(1, False))
    assert len(talker.bodies()) == 1
    talker.qos(0, is_global=True)
    talker.say(ack(0, True))
    assert len(talker.bodies()) == 3


def test_a_prefetch_that_grows_lets_more_come(talker):
    talker.publish("q", *numbered(5))
    talker.qos(1, is_global=True)
    talker.taken()
    talker.consume()
    assert talker.bodies() == [b"0"]
    talker.qos(3, is_global=True)
    assert talker.bodies() == [b"1", b"2"]
    talker.qos(1, is_global=True)
    talker.say(ack(1, False))
    talker.say(ack(2, False))
    assert talker.bodies() == []
    talker.say(ack(3, False))
    assert talker.bodies() == [b"3"]


def test_a_consumer_that_does_not_acknowledge_takes_nothing_of_the_channels_prefetch(talker):
    talker.queue("p")
    talker.publish("p", *numbered(3, 10))
    talker.qos(2)
    talker.qos(1, is_global=True)
    talker.taken()
    talker.consume("p", "one")
    assert talker.bodies() == [b"10"]
    talker.consume("q", "all", no_ack=True)
    talker.publish("q", *numbered(9))
    assert talker.bodies() == numbered(9)
    talker.say(ack(1))
    assert talker.bodies() == [b"11"]


def test_a_consumer_waits_at_the_broker_with_one_request(house, talker):
    talker.qos(10)
    talker.publish("q", *numbered(4))
    talker.consume()
    assert len(talker.bodies()) == 4
    for tag in range(1, 5):
        talker.say(ack(tag))
        house.settle()
    partition = house.broker.queues.declarations.queue("q").partition
    assert house.broker.queues.takes.waiting_at(partition) == 1


def test_what_is_got_does_not_count(house, talker):
    talker.publish("q", *numbered(3))
    talker.qos(1)
    talker.taken()
    assert talker.get().body == b"0"
    talker.consume()
    assert talker.bodies() == [b"1"]
    talker.say(ack(1))
    assert talker.bodies() == []


def test_a_prefetch_in_bytes_ends_the_connection_with_540(talker):
    talker.refused(m.BasicQos(1, 0, False), Reply.NOT_IMPLEMENTED)


# -- cancelling -----------------------------------------------------------------------------------


def test_nothing_is_delivered_behind_the_answer_and_what_its_client_has_stays_so(house, talker):
    talker.qos(1)
    talker.taken()
    talker.consume()
    talker.publish("q", *numbered(4))
    assert talker.bodies() == [b"0"]
    talker.say(m.BasicCancel("c", False), ack(1))
    talker.publish("q", b"4")
    assert talker.taken() == [(1, m.BasicCancelOk("c"), b"", b"")]
    assert house.counts("q") == (4, 0)
    assert house.attempts("q") == {}
    found = talker.get()
    assert (found.body, found.method.redelivered) == (b"1", False)


def test_what_was_taken_for_a_consumer_that_is_cancelled_comes_back_without_an_attempt(house, talker):
    talker.consume()
    talker.feed(published(1, "q", b"a") + method_frame(1, m.BasicCancel("c", True)))
    told = talker.taken()
    for each in told:
        assert each.method == m.BasicDeliver("c", 1, False, "", "q")
        talker.say(m.BasicNack(1, False, True))
        house.settle()
    if not told:
        assert house.attempts("q") == {}
    assert talker.get(no_ack=True).body == b"a"


def test_one_that_is_not_there_is_cancelled(talker):
    assert talker.ask(m.BasicCancel("none", False)) == m.BasicCancelOk("none")
    talker.say(m.BasicCancel("none", True))
    assert talker.methods() == []


def test_an_auto_delete_queue_ends_with_its_last_consumer(house, talker):
    other = house.talker()
    talker.queue("short", auto_delete=True)
    talker.consume("short")
    other.consume("short")
    talker.ask(m.BasicCancel("c", False))
    assert talker.ask(declare("short", passive=True)) == m.QueueDeclareOk("short", 0, 1)
    other.ask(c.ChannelClose(200, "", 0, 0))
    talker.refused(declare("short", passive=True), Reply.NOT_FOUND)


# -- a queue ends ---------------------------------------------------------------------------------


def test_a_consumer_whose_queue_is_deleted_is_told_if_it_can_be(house, talker):
    deaf = house.talker(client={"capabilities": {"consumer_cancel_notify": False}})
    for each in (talker, deaf):
        each.consume("q", "c")
    talker.say(m.QueueDelete(0, "q", False, False, False))
    assert talker.methods() == [m.QueueDeleteOk(0), m.BasicCancel("c", True)], "behind its own answer"
    assert deaf.methods() == []
    for each in (talker, deaf):
        each.queue()
        each.consume("q", "c")


def test_a_consumer_that_may_have_no_more_is_told_when_it_may(talker):
    talker.qos(1)
    talker.publish("q", b"a")
    talker.consume()
    talker.taken()
    assert talker.ask(m.QueueDelete(0, "q", False, False, False)) == m.QueueDeleteOk(1)
    talker.say(ack(1))
    assert talker.methods() == [m.BasicCancel("c", True)]


def test_what_is_said_of_messages_of_a_deleted_queue_is_passed_over(talker):
    talker.publish("q", *numbered(6))
    talker.consume()
    talker.taken()
    assert talker.ask(m.QueueDelete(0, "q", False, False, True)) == m.BasicCancel("c", True)
    talker.say(ack(1), m.BasicNack(2, False, False), m.BasicNack(3, False, True), m.BasicReject(4, True))
    talker.say(m.BasicRecover(True))
    assert [type(each) for each in talker.methods()] == [m.BasicRecoverOk]
    talker.ask(c.ChannelClose(200, "", 0, 0))


# -- time -----------------------------------------------------------------------------------------


def test_a_consumer_waits_on_for_as_long_as_it_takes(house, talker):
    talker.consume()
    for _ in range(4):
        house.pass_time(61)
        assert talker.taken() == []
        talker.publish("q", b"a")
        assert talker.bodies() == [b"a"]


def test_a_consumer_that_was_refused_for_now_asks_again(house, talker):
    class Full:
        holds_fetches = True

    talker.publish("q", b"a")
    talker.taken()
    talker.session.allowance = Full()
    talker.consume()
    assert talker.taken() == []
    talker.refused(m.BasicGet(0, "q", False), Reply.RESOURCE_ERROR)
    talker.publish("q", b"b")
    talker.consume()
    talker.session.allowance = None
    house.pass_time(0.2)
    assert talker.bodies() == [b"a", b"b"]


# -- getting --------------------------------------------------------------------------------------


def test_getting_says_how_many_are_left(house, talker):
    assert talker.get() is None
    talker.publish("q", *numbered(3))
    found = talker.get()
    assert (found.body, found.method) == (b"0", m.BasicGetOk(1, False, "", "q", 2))
    assert talker.get(no_ack=True).method.message_count == 1
    assert house.counts("q") == (1, 1)
    talker.say(ack(1))
    house.settle()
    assert house.counts("q") == (1, 0)


def test_getting_says_what_was_delivered_before(house, talker):
    talker.publish("q", b"a", b"b")
    assert talker.get().method.redelivered is False
    talker.say(m.BasicNack(1, False, True))
    found = talker.get()
    assert (found.body, found.method.redelivered, found.headers) == (b"a", True, {"x-delivery-count": 1})
    house.kill()
    found = house.talker().get()
    assert (found.body, found.method.redelivered) == (b"a", True)


def test_a_large_message_and_an_empty_one_are_delivered(talker):
    talker.consume()
    bodies = [b"", b"x" * 131_064, b"x" * 131_065, b"y" * 500_000]
    talker.publish("q", *bodies)
    assert talker.bodies() == bodies


# -- replies without a queue ----------------------------------------------------------------------

REPLIES = "amq.rabbitmq.reply-to"


def asking(text: str = REPLIES) -> bytes:
    return props.made_of({props.REPLY_TO: text, props.CORRELATION_ID: "7"}, {})


def test_a_reply_goes_straight_to_who_has_asked(house, talker):
    asker, records = house.talker(), []
    asker.consume(REPLIES, "r", no_ack=True)
    asker.publish("q", b"question", properties=asking())
    question = talker.get(no_ack=True)
    told = props.decoded(question.properties)
    assert told["correlation_id"] == "7"
    assert told["reply_to"].startswith(f"{REPLIES}.")
    talker.confirm()
    talker.publish(told["reply_to"], b"answer", properties=props.made_of({props.CORRELATION_ID: "7"}, {}))
    assert talker.methods() == [m.BasicAck(1, False)]
    [answer] = asker.taken()
    assert answer.method == m.BasicDeliver("r", 1, False, "", told["reply_to"])
    assert (answer.body, props.decoded(answer.properties)) == (b"answer", {"correlation_id": "7"})
    assert records == []
    for gone in (m.BasicCancel("r", False), None):
        if gone is not None:
            asker.ask(gone)
        talker.publish(told["reply_to"], b"late", mandatory=True)
        returned, confirmed = talker.methods()
        assert isinstance(returned, m.BasicReturn)
        assert isinstance(confirmed, m.BasicAck)
    talker.publish(told["reply_to"], b"late")
    assert [type(each) for each in talker.methods()] == [m.BasicAck], "it is dropped"


def test_a_key_that_looks_like_an_address_of_replies_is_one_of_the_default_exchange_alone(talker):
    talker.bind("q", "amq.topic", "#")
    talker.publish(f"{REPLIES}.x", b"a", exchange="amq.topic")
    assert talker.all_of() == [b"a"]


def test_replies_among_messages_are_confirmed_with_their_own_tags(talker):
    talker.confirm()
    talker.feed(
        published(1, "q", b"a")
        + published(1, f"{REPLIES}.x", b"b")
        + published(1, "q", b"c")
        + published(1, "q", b"d")
    )
    assert [(each.delivery_tag, each.multiple) for each in talker.methods()] == [
        (2, False),
        (4, True),
    ]


@pytest.mark.parametrize("end", ["channel", "connection", "error"])
def test_the_address_of_replies_ends_with_its_channel(house, talker, end):
    asker = house.talker()
    asker.consume(REPLIES, "r", no_ack=True)
    asker.publish("q", b"", properties=asking())
    address = props.decoded(talker.get(no_ack=True).properties)["reply_to"]
    if end == "channel":
        asker.ask(c.ChannelClose(200, "", 0, 0))
    elif end == "connection":
        asker.lose()
    else:
        asker.refused(c.ChannelOpen(), Reply.CHANNEL_ERROR)
    talker.refused(declare(address, passive=True), Reply.NOT_FOUND)
    talker.publish(address, b"late")
    assert asker.heard == []


def test_replies_are_taken_without_acknowledgement_once_and_by_an_address_of_ones_own(house, talker):
    talker.refused(consume(REPLIES, "r"), Reply.PRECONDITION_FAILED)
    talker.refused(published(1, "q", b"", properties=asking()), Reply.PRECONDITION_FAILED)
    talker.consume(REPLIES, "r", no_ack=True)
    talker.refused(consume(REPLIES, "s", no_ack=True), Reply.PRECONDITION_FAILED)
    talker.consume(REPLIES, "r", no_ack=True)
    talker.publish("q", b"", properties=asking("my.queue"))
    assert props.decoded(talker.get().properties)["reply_to"] == "my.queue"
    talker.refused(consume(REPLIES, "r", no_ack=True), Reply.NOT_ALLOWED)
    quiet = house.talker()
    quiet.say(consume(REPLIES, "r", no_ack=True, no_wait=True))
    assert quiet.methods() == []


# -- methods in one read --------------------------------------------------------------------------


def test_methods_of_one_read_are_answered_in_their_order(house, talker):
    talker.publish("q", b"a", b"b", b"c")
    talker.say(
        declare(), m.BasicQos(0, 1, True), consume(), m.BasicQos(0, 2, True), m.BasicGet(0, "q", False),
        m.BasicRecover(True), m.BasicCancel("none", False), m.TxSelect(), m.TxCommit(), m.TxRollback(),
        declare("p"), m.TxCommit(), c.ChannelClose(200, "", 0, 0),
    )  # fmt: skip
    answers = [type(each) for each in talker.methods() if not isinstance(each, m.BasicDeliver | m.BasicGetOk)]
    assert answers[:2] == [m.QueueDeclareOk, m.BasicQosOk]
    assert [each for each in answers[2:] if each is not m.BasicConsumeOk] == [
        m.BasicQosOk, m.BasicRecoverOk, m.BasicCancelOk, m.TxSelectOk, m.TxCommitOk, m.TxRollbackOk, m.QueueDeclareOk,
        m.TxCommitOk, c.ChannelCloseOk,
    ]  # fmt: skip
    assert house.counts("q") == (3, 0)


def test_an_error_is_told_behind_the_answers_before_it(talker):
    talker.say(declare("new"), m.BasicQos(0, 1, False), declare("none", passive=True), declare("later"))
    assert [type(each) for each in talker.methods()] == [m.QueueDeclareOk, m.BasicQosOk, c.ChannelClose]


def test_a_changed_prefetch_begins_no_consumer_before_its_answer(talker):
    talker.publish("q", b"a")
    talker.say(declare("new"), consume(), m.BasicQos(0, 0, False))
    kinds = [type(each) for each in talker.methods()]
    assert set(kinds) == {m.QueueDeclareOk, m.BasicConsumeOk, m.BasicQosOk, m.BasicDeliver}
    assert kinds.index(m.BasicDeliver) > kinds.index(m.BasicConsumeOk)


def test_what_is_recovered_comes_again_behind_the_answer(house, talker):
    talker.publish("q", b"a")
    talker.consume()
    talker.taken()
    talker.say(declare("new"), m.BasicRecover(True))
    kinds = [type(each) for each in talker.methods()]
    assert kinds == [m.QueueDeclareOk, m.BasicRecoverOk, m.BasicDeliver]
