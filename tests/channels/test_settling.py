"""Test what clients of AMQP say of deliveries: acknowledged, returned, rejected, or nothing before they are gone."""

from __future__ import annotations

import pytest

from journal.formats import offset_set_bytes
from tests.channels.talk import House, Talker, consume, published
from tests.support.broker_room import recorded
from tests.support.counted_calls import calls
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply
from txbroker.channels import settling


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


def nack(tag: int, multiple: bool = False, requeue: bool = True) -> m.BasicNack:
    return m.BasicNack(tag, multiple, requeue)


def delivered(talker: Talker, count: int) -> None:
    """Have that many messages be delivered, with tags from 1 on."""
    talker.publish("q", *numbered(count))
    talker.consume()
    assert len(talker.bodies()) == count


# -- acknowledging --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "left"),
    [([ack(2)], 5), ([ack(2), ack(1)], 4), ([ack(3, True)], 3), ([ack(0, True)], 0),
     ([ack(6), ack(1), ack(0, True)], 0),
     ([ack(2), ack(5, True)], 1), ([ack(0, True), ack(0, True)], 0)],
)  # fmt: skip
def test_what_is_acknowledged_is_gone(house, talker, said, left):
    delivered(talker, 6)
    talker.say(*said)
    assert talker.taken() == []
    assert house.counts("q") == (0, left)
    house.kill()
    assert house.counts("q") == (left, 0)


@pytest.mark.parametrize("method", [ack, nack, lambda tag, _=False: m.BasicReject(tag, True)])
@pytest.mark.parametrize("said", [(9,), (9, True), (0,), (2, True), (2,)])
def test_a_tag_that_is_not_there_any_more_or_was_never_is_406(house, talker, method, said):
    delivered(talker, 3)
    talker.say(ack(2))
    talker.taken()
    assert "unknown delivery tag" in talker.refused(method(*said) if len(said) < 2 else method(said[0], said[1]),
                                                    Reply.PRECONDITION_FAILED)  # fmt: skip
    assert house.counts("q") == (2, 0), "the others are back"


def test_acknowledgements_of_a_read_are_one_record_for_each_queue(house, talker):
    talker.queue("p")
    talker.publish("p", *numbered(3))
    talker.consume("p", "d")
    talker.taken()
    delivered(talker, 5)
    records = recorded(house)
    talker.say(*[ack(tag) for tag in (1, 3, 4, 5, 6, 8)])
    house.settle()
    assert [type(each).__name__ for each in records] == ["OffsetsCommitted"] * 2
    assert (house.counts("p"), house.counts("q")) == ((0, 1), (0, 1))


def test_acknowledgements_are_said_before_what_follows_them(house, talker):
    delivered(talker, 2)
    talker.say(ack(1), c.ChannelClose(200, "", 0, 0))
    assert talker.methods() == [c.ChannelCloseOk()]
    assert house.counts("q") == (1, 0)
    assert house.attempts("q") == {1: 1}


def test_messages_that_lie_far_apart_are_acknowledged_together(house, talker, monkeypatch):
    monkeypatch.setattr(offset_set_bytes, "MAX_SPAN", 16)
    delivered(talker, 40)
    for tags, count in (((40, 1, 18, 19), 3), ((2, 35), 2)):
        records = recorded(house)
        talker.say(*[ack(tag) for tag in tags])
        house.settle()
        assert len(records) == count
    assert house.counts("q") == (0, 34)


# -- returning and rejecting ----------------------------------------------------------------------


def test_what_is_returned_is_delivered_again_with_its_count(house, talker):
    delivered(talker, 3)
    talker.say(nack(2))
    [again] = talker.taken()
    assert again.method == m.BasicDeliver("c", 4, True, "", "q")
    assert (again.body, again.headers) == (b"1", {"x-delivery-count": 1})
    talker.say(m.BasicReject(4, True))
    assert talker.taken()[0].headers == {"x-delivery-count": 2}
    talker.say(nack(3, True))
    assert [(each.body, each.method.redelivered) for each in talker.taken()] == [(b"0", True), (b"2", True)]
    talker.say(nack(0, True))
    assert len(talker.bodies()) == 3
    assert house.attempts("q") == {0: 2, 1: 3, 2: 2}


def test_the_count_of_deliveries_stands_among_the_headers_of_the_message(talker):
    properties = props.made_of({props.TYPE: "t"}, {"a": 1, "x-delivery-count": 77})
    talker.publish("q", b"a", properties=properties)
    talker.consume()
    talker.taken()
    for _ in range(2):
        talker.say(nack(0, True))
        [again] = talker.taken()
    assert again.headers == {"a": 1, "x-delivery-count": 2}
    assert again.properties.count(b"x-delivery-count") == 1
    assert props.decoded(again.properties)["type"] == "t"


def test_what_is_rejected_is_gone_or_a_dead_letter(house, talker):
    delivered(talker, 4)
    talker.say(nack(1, requeue=False), m.BasicReject(2, False), nack(4, True, requeue=False))
    assert talker.taken() == []
    assert house.counts("q") == (0, 0)


def test_recovering_returns_everything(house, talker):
    delivered(talker, 3)
    talker.say(m.BasicRecover(True))
    told = talker.taken()
    assert [each.method for each in told if isinstance(each.method, m.BasicRecoverOk)] == [m.BasicRecoverOk()]
    again = [each for each in told if isinstance(each.method, m.BasicDeliver)]
    assert [(each.body, each.method.redelivered) for each in again] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
    ]
    talker.say(m.BasicRecoverAsync(True))
    assert len(talker.bodies()) == 3
    talker.refused(m.BasicRecover(False), Reply.NOT_IMPLEMENTED)


# -- dead letters ---------------------------------------------------------------------------------


def dying(talker: Talker, **arguments) -> None:
    talker.queue("dead")
    talker.exchange("dlx", "fanout")
    talker.bind("dead", "dlx")
    said = {name.replace("_", "-"): value for name, value in arguments.items()}
    talker.queue("sick", {"x-dead-letter-exchange": "dlx"} | said)
    talker.bind("sick", "amq.topic", "#")


def test_a_dead_letter_says_of_what_it_died(house, talker):
    dying(talker, x_dead_letter_routing_key="post")
    given = {props.MESSAGE_ID: "1", props.EXPIRATION: "60000"}
    properties = props.made_of(given, {"mine": 1, "x-death": "forged"})
    talker.publish("some.key", b"a", exchange="amq.topic", properties=properties)
    talker.consume("sick")
    talker.taken()
    talker.say(m.BasicReject(1, False))
    house.settle()
    found = talker.get("dead")
    assert (found.method.exchange, found.method.routing_key, found.body) == ("dlx", "post", b"a")
    seconds = house.clock.wall() // 1_000_000
    assert found.headers == {
        "mine": 1,
        "x-death": [
            {"count": 1, "reason": "rejected", "queue": "sick", "exchange": "amq.topic", "routing-keys": ["some.key"],
             "time": seconds}
        ],
        "x-first-death-exchange": "amq.topic",
        "x-first-death-queue": "sick",
        "x-first-death-reason": "rejected",
    }  # fmt: skip
    assert props.decoded(found.properties)["message_id"] == "1"
    assert found.properties.count(b"x-death") == 1


def test_expired_ones_lose_their_expiration_and_say_what_it_was(house, talker):
    dying(talker)
    talker.publish("k", b"a", exchange="amq.topic", properties=props.made_of({props.EXPIRATION: "100"}, {}))
    house.pass_time(1)
    house.settle()
    found = talker.get("dead")
    [death] = found.headers["x-death"]
    assert (death["reason"], death["original-expiration"], death["count"]) == ("expired", "100", 1)
    assert "expiration" not in props.decoded(found.properties)
    house.pass_time(10)
    assert house.counts("dead") == (0, 1)


def test_too_many_and_those_that_were_tried_too_often_say_so(house, talker):
    dying(talker, x_max_length=1, x_delivery_limit=1)
    talker.publish("k", b"a", b"b", exchange="amq.topic")
    house.settle()
    assert talker.get("dead", no_ack=True).headers["x-first-death-reason"] == "maxlen"
    talker.consume("sick")
    talker.taken()
    for _ in range(3):
        talker.say(nack(0, True))
        house.settle()
    talker.taken()
    letter = talker.get("dead")
    assert letter.headers["x-first-death-reason"] == "delivery_limit"


def test_a_message_that_dies_again_and_again_counts_its_deaths(house, talker):
    talker.queue(
        "wait", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 100}
    )
    talker.queue("work", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    talker.publish("work", b"a")
    for _ in range(3):
        found = talker.get("work")
        talker.say(m.BasicReject(found.method.delivery_tag, False))
        house.settle()
        house.pass_time(1)
    found = talker.get("work")
    deaths = [(each["queue"], each["reason"], each["count"]) for each in found.headers["x-death"]]
    assert deaths == [("wait", "expired", 3), ("work", "rejected", 3)]
    assert found.headers["x-first-death-queue"] == "work"


def test_what_cannot_be_rejected_for_now_goes_back_and_ends_the_channel(house):
    house = House(max_parked=2)
    talker = house.talker()
    talker.queue("sick", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"})
    talker.queue("full", {"x-max-length": 0, "x-overflow": "reject-publish"})
    talker.publish("sick", *numbered(5))
    talker.consume("sick")
    talker.taken()
    talker.say(*[m.BasicReject(tag, False) for tag in range(1, 5)])
    assert [each.reply_code for each in talker.methods()] == [Reply.RESOURCE_ERROR]
    house.settle()
    assert house.counts("sick") == (3, 0), "two wait for room"


# -- who has messages goes away -------------------------------------------------------------------


@pytest.mark.parametrize("end", ["channel", "error", "connection", "lost"])
def test_what_was_not_acknowledged_comes_back_with_an_attempt_counted(house, talker, end):
    other = house.talker()
    delivered(talker, 3)
    talker.say(ack(2))
    talker.taken()
    if end == "channel":
        talker.ask(c.ChannelClose(200, "", 0, 0))
    elif end == "error":
        talker.refused(ack(9), Reply.PRECONDITION_FAILED)
    else:
        if end == "connection":
            talker.ask(c.ConnectionClose(200, "", 0, 0), on=0)
        talker.lose()
    house.settle(20)
    assert house.attempts("q") == {0: 1, 2: 1}
    other.consume()
    again = other.told(m.BasicDeliver)
    assert [(each.body, each.method.redelivered) for each in again] == [(b"0", True), (b"2", True)]


def test_after_a_kill_what_was_delivered_is_delivered_again_without_an_attempt(house, talker):
    delivered(talker, 2)
    talker.say(ack(1))
    house.settle()
    house.kill()
    talker = house.talker()
    talker.consume()
    [again] = talker.taken()
    assert (again.body, again.method.redelivered, again.properties) == (b"1", True, props.NONE)


def test_a_message_that_comes_when_its_channel_has_just_been_closed_goes_to_others(house, talker):
    other = house.talker()
    talker.consume()
    other.feed(published(1, "q", b"a"))
    talker.say(c.ChannelClose(200, "", 0, 0))
    other.say(consume())
    told = [each.body for each in other.taken() if each.body]
    assert told == [b"a"]
    assert house.attempts("q") in ({}, {0: 1})


# -- very many ------------------------------------------------------------------------------------


def many(talker: Talker, count: int) -> None:
    for first in range(0, count, 10_000):
        talker.publish("q", *[b"x"] * min(10_000, count - first))
        talker.house.settle(2)
    talker.say(consume())
    for _ in range(count // 4096 + 20):
        talker.house.settle(1)
    assert talker.house.counts("q") == (0, count)
    assert len([each for each in talker.heard if isinstance(each.method, m.BasicDeliver)]) == count
    talker.heard.clear()


STEPS = 100_000
"""Most calls and returns of one turn of the reactor, beside others' requests: 5 ms."""


def test_a_channel_with_very_many_deliveries_is_acknowledged_at_once_and_closed_in_turns(house, talker):
    count = 8192
    many(talker, count)
    assert len(list(talker.connection._channels[1].settling.deliveries)) < 20, "they are runs"
    assert len(calls(lambda: talker.say(ack(count // 2, True)))) < STEPS / 10
    house.settle()
    assert house.counts("q") == (0, count // 2)
    closing = [m.BasicCancel("c", True), c.ChannelClose(200, "", 0, 0)]
    assert len(calls(lambda: talker.say(*closing))) < STEPS
    house.engine.sync()
    assert [each.method for each in talker.heard] == [c.ChannelCloseOk()]
    left = house.counts("q")[1]
    while left:
        call = house.timers.calls.pop(0)
        assert len(calls(lambda: call.func(*call.args, **call.kw))) < STEPS  # noqa: B023  (called at once)
        house.engine.sync()
        before, left = left, house.counts("q")[1]
        assert before - left == settling.RETURNED_AT_ONCE
    assert house.counts("q") == (count // 2, 0)


def test_many_that_lie_apart_are_returned_together(house, talker):
    delivered(talker, 2000)
    talker.say(*[ack(tag) for tag in range(1, 2001, 2)])
    house.settle()
    records = recorded(house)
    talker.ask(c.ChannelClose(200, "", 0, 0))
    house.settle()
    assert house.counts("q") == (1000, 0)
    assert len(records) == -(-1000 // settling.RETURNED_AT_ONCE)


def test_those_of_several_queues_are_returned(house, talker, monkeypatch):
    monkeypatch.setattr(settling, "MAX_SPAN", 4)
    talker.queue("p")
    for _ in range(5):
        talker.publish("q", b"x")
        talker.publish("p", b"y")
        talker.get("q")
        talker.get("p")
    talker.ask(c.ChannelClose(200, "", 0, 0))
    house.settle()
    assert (house.counts("q"), house.counts("p")) == ((5, 0), (5, 0))
    assert house.attempts("q") == house.attempts("p") == dict.fromkeys(range(5), 1)


def test_acknowledgements_on_many_channels_of_one_read_are_all_said(house, talker):
    talker.open(2, 3)
    talker.publish("q", *numbered(3))
    for each in (1, 2, 3):
        assert talker.get(on=each) is not None
    talker.feed(b"".join(method_frame(each, ack(1)) for each in (1, 2, 3)))
    house.settle()
    assert house.counts("q") == (0, 0)


# -- messages with hardly a time to live ----------------------------------------------------------


@pytest.mark.parametrize(("arguments", "own"), [({"x-message-ttl": 0}, None), ({}, "0"), ({}, "1")])
def test_a_consumer_that_has_room_gets_a_message_with_hardly_a_time_to_live(house, talker, arguments, own):
    """As in RabbitMQ's own tests of a time to live of zero: without a consumer it ends, and so does what comes back."""

    def publish(body):
        given = {} if own is None else {props.EXPIRATION: own}
        talker.publish("short", body, properties=props.made_of(given, {}))
        house.clock.advance(2000)
        house.settle()

    talker.queue("short", arguments=arguments)
    publish(b"a")
    house.pass_time(0.1)
    assert talker.get("short") is None
    talker.consume("short")
    for body in (b"b", b"c"):
        publish(body)
        [found] = talker.taken()
        assert found.body == body
    talker.say(m.BasicReject(found.method.delivery_tag, True))
    house.pass_time(0.1)
    assert talker.taken() == []
