"""Test every method in every state of a connection and of a channel, by RabbitMQ 3.13's rabbit_reader.erl."""

from __future__ import annotations

from itertools import product

import pytest

from tests.channels.doors import PLAIN, GateHouse
from tests.channels.talk import House, Talker, consume, declare, published
from tests.login.login_room import TLS
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.framing import (
    PROTOCOL_HEADER,
    content_frames,
    method_frame,
)
from txbroker.amqp.method_codec import BY_INDEX
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.connection import State

# -- every method in every state ------------------------------------------------------------------


def any_of(kind: type[Method]) -> Method:
    """Return a method of that kind with arguments that mean nothing."""
    empty = {"str": "", "bytes": b"", "bool": False, "int": 0}
    known = {
        "Octet": 0, "Short": 0, "Long": 0, "LongLong": 0, "ShortText": "", "LongText": b"", "Bit": False, "Fields": {}
    } | empty  # fmt: skip
    kinds = [str(each) for each in kind.__annotations__.values()][1:]
    return kind(*[known[each] for each in kinds])


def reached(state: State) -> Talker:
    """Return a client whose connection is in that state."""
    house = House() if state is not State.LOGGING_IN else GateHouse()
    talker = Talker(house, facts=TLS if state is State.LOGGING_IN else None)
    talker.session.hold = bool  # the service reads nothing while a password is judged
    if state is not State.AWAITING_HEADER:
        talker.feed(PROTOCOL_HEADER)
    if state not in (State.AWAITING_HEADER, State.STARTING):
        talker.say(c.ConnectionStartOk({}, "PLAIN", PLAIN, "en_US"), on=0)
    if state not in (State.AWAITING_HEADER, State.STARTING, State.LOGGING_IN):
        house.settle()
    if state in (State.OPENING, State.OPEN, State.CLOSING, State.CLOSED):
        talker.say(c.ConnectionTuneOk(0, 0, 0), on=0)
    if state in (State.OPEN, State.CLOSING, State.CLOSED):
        talker.say(c.ConnectionOpen("/"), on=0)
        talker.say(c.ChannelOpen(), on=1)
    if state is State.CLOSING:
        talker.say(c.ChannelOpen(), on=1)
    if state is State.CLOSED:
        talker.say(c.ConnectionClose(200, "", 0, 0), on=0)
    assert talker.connection.state is state, talker.connection.state
    talker.heard.clear()
    return talker


GOES_ON = {
    (State.STARTING, c.ConnectionStartOk),
    (State.LOGGING_IN, c.ConnectionSecureOk),
    (State.TUNING, c.ConnectionTuneOk),
    (State.OPENING, c.ConnectionOpen),
    (State.OPEN, c.ConnectionUpdateSecret),
}
METHODS = sorted(BY_INDEX.values(), key=lambda each: each.index)


@pytest.mark.parametrize("state", list(State)[1:], ids=lambda each: each.value)
def test_a_method_about_the_connection_out_of_its_state_ends_it_with_504(state):
    for kind in METHODS:
        if (state, kind) in GOES_ON or kind is m.BasicPublish:
            continue
        talker = reached(state)
        if talker.closed:
            assert state is State.CLOSED
            continue
        talker.feed(method_frame(0, any_of(kind)))
        told = [each.method for each in talker.heard]
        if kind is c.ConnectionClose and state is not State.STARTING:
            assert told == [c.ConnectionCloseOk()], (state, kind)
            assert talker.closed == [""]
        elif state is State.CLOSING:
            assert told == [], (state, kind)
            assert bool(talker.closed) is (kind is c.ConnectionCloseOk)
        else:
            assert [type(each) for each in told] == [c.ConnectionClose], (state, kind)
            assert told[0].reply_code == Reply.CHANNEL_ERROR, (state, kind)
            assert (told[0].class_id, told[0].method_id) == kind.index


@pytest.mark.parametrize("state", list(State)[1:], ids=lambda each: each.value)
def test_a_method_on_a_channel_before_the_connection_is_open_ends_it_with_505_behind_it_says_nothing(state):
    if state is State.OPEN:
        return
    for kind in METHODS:
        talker = reached(state)
        talker.feed(method_frame(5, any_of(kind)) if kind is not m.BasicPublish else published(5, "q"))
        told = [each.method for each in talker.heard]
        if state in (State.CLOSING, State.CLOSED):
            assert told == []
        else:
            assert [type(each) for each in told] == [c.ConnectionClose], (state, kind)
            assert told[0].reply_code == Reply.UNEXPECTED_FRAME, (state, kind)


def test_a_content_on_channel_0_ends_the_connection():
    talker = House().talker()
    talker.refused(published(0, "q"), Reply.CHANNEL_ERROR, on=0)


@pytest.mark.parametrize("kind", METHODS, ids=lambda each: each.__name__)
def test_no_method_on_a_channel_breaks_anything_and_what_only_servers_say_ends_the_connection(kind):
    house = House()
    talker, other = house.talker(), house.talker()
    talker.feed(method_frame(1, any_of(kind)) if kind is not m.BasicPublish else published(1, ""))
    told = talker.taken()
    is_servers = kind.__name__.endswith(("Ok", "Empty", "Deliver", "Return")) or kind.index[0] == 10
    if is_servers and kind is not c.ChannelFlowOk:
        assert [type(each.method) for each in told] == [c.ConnectionClose], told
        assert told[0].method.reply_code == Reply.COMMAND_INVALID
    assert other.queue("alive").message_count == 0


@pytest.mark.parametrize("kind", METHODS, ids=lambda each: each.__name__)
def test_a_method_on_a_channel_that_is_not_open_ends_the_connection_with_504(kind):
    if kind is c.ChannelOpen:
        return
    talker = House().talker()
    talker.refused(
        method_frame(9, any_of(kind)) if kind is not m.BasicPublish else published(9, "q"),
        Reply.CHANNEL_ERROR,
        on=9,
    )


@pytest.mark.parametrize("kind", METHODS, ids=lambda each: each.__name__)
def test_a_channel_that_the_server_has_closed_passes_all_over_but_its_end(kind):
    talker = House().talker()
    talker.say(declare("missing", passive=True))
    assert [type(each) for each in talker.methods()] == [c.ChannelClose]
    talker.feed(method_frame(1, any_of(kind)) if kind is not m.BasicPublish else published(1, "q"))
    told = talker.methods()
    if kind is c.ChannelOpen:
        assert told[0].reply_code == Reply.CHANNEL_ERROR, "as a second one"
    elif kind is c.ChannelClose:
        assert told == [c.ChannelCloseOk()]
        talker.say(c.ChannelCloseOk())
        talker.open(1)
    elif kind is c.ChannelCloseOk:
        assert told == []
        talker.open(1)
    else:
        assert told == []
        talker.say(c.ChannelCloseOk())
        talker.open(1)


# -- channels -------------------------------------------------------------------------------------


def test_a_second_opening_of_a_channel_ends_the_connection_with_504():
    talker = House().talker()
    assert "second 'channel.open' seen" in talker.refused(c.ChannelOpen(), Reply.CHANNEL_ERROR)


def test_the_number_of_a_closed_channel_is_used_again_with_nothing_of_the_first():
    house = House()
    talker = house.talker()
    talker.queue()
    talker.confirm()
    talker.publish("q", b"a", b"b")
    talker.consume()
    talker.taken()
    assert talker.ask(c.ChannelClose(200, "", 0, 0)) == c.ChannelCloseOk()
    talker.open(1)
    assert house.counts("q") == (2, 0)
    assert "no previously declared queue" in talker.refused(m.QueuePurge(0, "", False), Reply.NOT_FOUND)
    talker.publish("q", b"c")
    assert talker.methods() == [], "it is not confirmed"
    talker.consume(tag="c")
    told = talker.told(m.BasicDeliver)
    assert [each.method.delivery_tag for each in told] == [1, 2, 3]


def test_the_other_channels_do_not_notice():
    house = House()
    talker = house.talker(name="a")
    talker.open(2)
    talker.queue()
    talker.consume(on=2)
    talker.refused(declare("nowhere", passive=True), Reply.NOT_FOUND)
    talker.publish("q", b"a")
    assert talker.bodies() == [b"a"]


def test_a_content_that_is_on_its_way_on_a_channel_that_is_closed_goes_nowhere():
    house = House()
    talker = house.talker()
    talker.queue()
    body = published(1, "q", b"x" * 100)
    talker.feed(method_frame(1, declare("nowhere", passive=True)) + body[:60])
    talker.feed(body[60:] + body)
    assert [type(each) for each in talker.methods()] == [c.ChannelClose]
    talker.say(c.ChannelCloseOk())
    talker.open(1)
    talker.publish("q", b"later")
    assert talker.all_of() == [b"later"]


def test_a_message_that_is_too_large_closes_its_channel_whose_client_need_not_send_the_rest():
    house = House(max_frame=10_000)
    talker = house.talker()
    talker.queue()
    pieces = b"".join(content_frames(1, b"\0\0", b"x" * 10_001, 4096))
    begun = method_frame(1, m.BasicPublish(0, "", "q", False, False)) + pieces[: 30 + 2000]
    talker.feed(begun)
    assert [each.reply_code for each in talker.methods()] == [Reply.CONTENT_TOO_LARGE]
    talker.feed(pieces[30 + 2000 : 22 + 4096])
    talker.say(c.ChannelCloseOk())
    talker.open(1)
    talker.publish("q", b"small")
    assert talker.all_of() == [b"small"]


def test_channels_take_contents_in_turn():
    house = House()
    talker = house.talker()
    talker.open(2)
    talker.queue()
    one, two = [
        [
            method_frame(n, m.BasicPublish(0, "", "q", False, False)),
            *_frames(content_frames(n, b"\0\0", body, 20)),
        ]
        for n, body in ((1, b"a" * 30), (2, b"b" * 30))
    ]
    for first, second in zip(one, two, strict=True):
        talker.feed(first + second)
    assert sorted(talker.all_of()) == [b"a" * 30, b"b" * 30]


def _frames(pieces):
    return [b"".join(pieces[n : n + 3]) for n in range(0, len(pieces), 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_what_is_said_is_the_same_in_whatever_pieces_it_comes(size):
    said = b"".join(
        [
            method_frame(1, declare("q")),
            method_frame(1, m.ConfirmSelect(False)),
            published(1, "q", b"abc", mandatory=True),
            published(1, "nowhere", b"def", mandatory=True),
            published(1, "q", b""),
            method_frame(1, consume()),
        ]
    )

    def heard(parts):
        talker = House().talker()
        for each in parts:
            talker.feed(each)
        return [each for each in talker.taken() if not isinstance(each.method, m.BasicAck)]

    whole = heard([said])
    assert len(whole) == 6
    assert heard([said[n : n + size] for n in range(0, len(said), size)]) == whole


def test_every_state_is_one_that_a_test_reaches():
    assert all(reached(each).connection.state is each for each in State)
    assert len(list(product(State, METHODS))) == len(State) * len(METHODS)
