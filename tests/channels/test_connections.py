"""Test how connections of AMQP begin and end, by RabbitMQ 3.13's rabbit_reader.erl."""

from __future__ import annotations

import re

import pytest

import txbroker
from tests.broker.access.gate import BY_SOCKET
from tests.channels.doors import PLAIN, GateHouse, closed_by, start, tuning
from tests.channels.talk import CAPABLE, SECOND, House, Talker, declare, published
from tests.login.login_room import TLS
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.fields import entries_of
from txbroker.amqp.framing import (
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    Arrived,
    content_frames,
    frame_of,
    method_frame,
)
from txbroker.amqp.method_codec import encode_method
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.connection import CHANNEL_MAX, FRAME_MAX, State
from txbroker.channels.server_properties import server_properties
from txbroker.wire import messages
from txbroker.wire.codec import encode


@pytest.fixture
def house() -> House:
    return House()


# -- the first bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HTTP/1.1\r\n", b"AMQP\0\0\x09\2", b"AMQX"]
)
def test_another_protocol_is_answered_with_the_header_of_this_one_and_the_end(said):
    talker = Talker(House())
    talker.feed(said)
    assert [each.method for each in talker.heard] == [PROTOCOL_HEADER]
    assert len(talker.closed) == 1


def test_the_header_is_taken_in_any_pieces():
    talker = Talker(House())
    for each in PROTOCOL_HEADER:
        assert not talker.heard
        talker.feed(bytes((each,)))
    [first] = talker.methods()
    assert isinstance(first, c.ConnectionStart)
    assert (first.version_major, first.version_minor, first.locales) == (0, 9, b"en_US")
    assert first.server_properties == server_properties()


def test_the_server_says_to_be_rabbitmq_3_13_whose_ways_it_has_and_which_program_it_is():
    """Clients decide by these what they use: what is said and not done breaks them, and so does what is left out."""
    properties = dict(server_properties())
    assert properties.pop("capabilities") == dict.fromkeys(
        (
            "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
            "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
            "direct_reply_to",
        ),
        True,
    )  # fmt: skip
    assert properties.pop("product") == "RabbitMQ"
    assert re.fullmatch(r"3\.13\.\d+", properties.pop("version"))
    assert properties.pop("information").startswith(f"txbroker {txbroker.__version__}, ")
    assert properties.pop("txbroker_version") == txbroker.__version__
    assert properties.pop("platform").startswith("Python 3.")
    assert properties == {}


# -- logins ---------------------------------------------------------------------------------------


def test_where_no_login_is_demanded_anybody_comes_in_by_any_name():
    house = House()
    table = entries_of({"LOGIN": "guest", "PASSWORD": "wrong"})
    for mechanism, response in (("PLAIN", b"\0guest\0x"), ("AMQPLAIN", table), ("ANONYMOUS", b"")):
        talker = start(house, mechanism, response)
        assert [type(each) for each in talker.methods()] == [c.ConnectionTune]
        assert talker.start.mechanisms == b"PLAIN AMQPLAIN ANONYMOUS"
        assert talker.session.principal == "anonymous"


def test_a_user_comes_in_by_a_password_in_either_way():
    house = GateHouse()
    table = entries_of({"LOGIN": "alice", "PASSWORD": "pencil"})
    for mechanism, response in (("PLAIN", PLAIN), ("AMQPLAIN", table)):
        talker = start(house, mechanism, response, TLS)
        assert talker.start.mechanisms.split()[:2] == [b"PLAIN", b"AMQPLAIN"]
        assert [type(each) for each in talker.methods()] == [c.ConnectionTune]
        assert (talker.session.principal, talker.connection.user) == ("alice", "alice")


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_wrong_password_is_refused_with_403_and_the_end(mechanism):
    house = GateHouse()
    table = entries_of({"LOGIN": "alice", "PASSWORD": "wrong"})
    talker = start(house, mechanism, b"\0alice\0wrong" if mechanism == "PLAIN" else table, TLS)
    assert closed_by(talker, Reply.ACCESS_REFUSED).class_id == 10
    assert talker.closed
    assert talker.connection.state is State.CLOSED


def test_a_mechanism_that_is_not_offered_is_refused_and_so_is_a_response_that_is_none():
    talker = start(GateHouse(), "ANONYMOUS", b"", TLS)
    closed_by(talker, Reply.ACCESS_REFUSED)
    talker = start(House(), "SHIBBOLETH", b"")
    talker.house.pass_time(2)  # failures are answered late
    closed_by(talker, Reply.ACCESS_REFUSED)
    for response in (b"\5LOGIN", entries_of({"LOGIN": "a"}), entries_of({"LOGIN": "a", "PASSWORD": 1})):
        closed_by(start(House(), "AMQPLAIN", response), Reply.SYNTAX_ERROR)


def test_a_user_who_is_known_comes_in_as_that_where_anybody_may():
    house = GateHouse()
    house.admin.ask(messages.SwitchAccess, messages.Switch.DISABLE)
    for response, principal in ((PLAIN, "alice"), (b"\0bob\0x", "anonymous")):
        talker = start(house, "PLAIN", response, TLS)
        assert [type(each) for each in talker.methods()] == [c.ConnectionTune]
        assert talker.session.principal == principal


def test_an_administrator_comes_in_by_the_socket_itself():
    talker = start(GateHouse(), "EXTERNAL", b"", BY_SOCKET)
    assert [type(each) for each in talker.methods()] == [c.ConnectionTune]
    assert talker.connection.user == talker.session.principal != ""


def test_what_comes_of_a_login_after_its_connection_was_closed_is_not_told():
    for response in (PLAIN, b"\0alice\0wrong"):
        house = GateHouse()
        talker = Talker(house, facts=TLS)
        talker.session.hold = bool
        talker.feed(PROTOCOL_HEADER)
        talker.say(c.ConnectionStartOk({}, "PLAIN", response, "en_US"), c.ConnectionOpen("/"), on=0)
        talker.feed(method_frame(3, c.ChannelOpen()))
        house.settle()
        kinds = [type(each) for each in talker.methods()]
        assert kinds in ([c.ConnectionStart, c.ConnectionClose],), kinds
        assert talker.connection.state in (State.CLOSING, State.CLOSED)


def test_a_client_says_what_it_is_called():
    properties = {"product": "shop", "version": "1", "connection_name": "till 3"}
    assert start(House(), client=properties).session.client == "till 3 shop 1"
    assert start(House(), client=properties | {"product": "a\nb"}).session.client == "till 3 1"
    assert start(House(), client={"product": b"\xff", "version": 7}).session.client == "amqp"


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "frame"), [(CHANNEL_MAX + 1, FRAME_MAX), (10, FRAME_MAX + 1), (10, 4095), (65535, 0)]
)
def test_limits_beyond_those_that_were_offered_are_refused_with_530(channels, frame):
    talker = tuning(House())
    talker.say(c.ConnectionTuneOk(channels, frame, 0), on=0)
    closed_by(talker, Reply.NOT_ALLOWED)


def test_limits_that_a_client_leaves_open_are_the_brokers():
    talker = tuning(House())
    talker.say(c.ConnectionTuneOk(0, 0, 0), c.ConnectionOpen("/"), on=0)
    talker.say(c.ChannelOpen(), on=CHANNEL_MAX)
    assert talker.methods() == [c.ConnectionOpenOk(), c.ChannelOpenOk()]
    assert talker.connection.frame_max == FRAME_MAX


def test_a_channel_more_than_there_may_be_is_refused_with_530_whatever_its_number():
    talker = tuning(House())
    talker.say(c.ConnectionTuneOk(2, 4096, 0), c.ConnectionOpen("/"), on=0)
    talker.say(c.ChannelOpen(), on=65_535)
    talker.say(c.ChannelOpen(), on=1)
    assert talker.methods() == [c.ConnectionOpenOk(), c.ChannelOpenOk(), c.ChannelOpenOk()]
    talker.say(c.ChannelOpen(), on=2)
    closed_by(talker, Reply.NOT_ALLOWED)


def test_frames_are_as_large_as_was_agreed():
    house = House()
    talker = Talker(house)
    talker.enter(frame_max=4096)
    talker.queue()
    body = b"x" * 10_000
    pieces = content_frames(1, b"\0\0", body, 4096)
    talker.feed(method_frame(1, m.BasicPublish(0, "", "q", False, False)) + b"".join(pieces))
    sizes = []
    frame = talker._hearing._frame

    def measured(kind, channel, payload):
        sizes.append(len(payload) + 8)
        return frame(kind, channel, payload)

    talker._hearing._frame = measured
    assert talker.get().body == body
    assert max(sizes) == 4096
    talker.feed(frame_of(METHOD, 1, encode_method(declare()) + b"\0" * 4096))
    closed_by(talker, Reply.FRAME_ERROR)


def test_an_unknown_virtual_host_is_refused_with_530():
    talker = tuning(House())
    talker.say(c.ConnectionTuneOk(0, 0, 0), c.ConnectionOpen("/shop"), on=0)
    close = closed_by(talker, Reply.NOT_ALLOWED)
    assert "vhost /shop not found" in close.reply_text
    assert (close.class_id, close.method_id) == c.ConnectionOpen.index


# -- the end --------------------------------------------------------------------------------------


def test_a_client_closes_the_connection_and_what_it_has_published_before_is_there():
    house = House()
    talker, other = house.talker(), house.talker()
    other.queue()
    talker.feed(
        published(1, "q", b"a")
        + method_frame(0, c.ConnectionClose(200, "bye", 0, 0))
        + published(1, "q", b"b")
    )
    assert talker.methods() == [c.ConnectionCloseOk()]
    assert talker.closed == [""]
    talker.lose()
    assert other.all_of() == [b"a"]


def test_methods_behind_the_servers_close_are_passed_over_and_nothing_is_delivered():
    house = House()
    talker, other = house.talker(), house.talker()
    talker.queue()
    talker.consume()
    talker.publish("q", b"a")
    talker.refused(c.ChannelOpen(), Reply.CHANNEL_ERROR)
    talker.publish("q", b"lost")
    talker.say(declare("lost"), m.BasicAck(0, True))
    other.publish("q", b"b")
    assert talker.taken() == []
    assert other.all_of() == [b"b"], "the closed one takes nothing"
    talker.say(c.ConnectionCloseOk(), on=0)
    assert talker.closed == [""]
    talker.lose()
    assert other.all_of() == [b"a"], "what it had is there again"


def test_nothing_is_told_behind_the_end(house):
    talker = house.talker()
    declared, closed = method_frame(1, declare("a")), method_frame(0, c.ConnectionClose(200, "", 0, 0))
    talker.feed(declared + method_frame(1, c.ChannelClose(200, "", 0, 0)) + closed)
    talker.feed(declared)
    assert [each.method for each in talker.heard] == [c.ConnectionCloseOk()]
    house.settle()
    assert [each.method for each in talker.heard] == [c.ConnectionCloseOk()]
    talker.connection.received(talker.session, Arrived(0, c.ConnectionClose(200, "", 0, 0)), memoryview(b""))
    assert len(talker.heard) == 1


def test_a_close_is_said_once(house):
    talker = house.talker()
    talker.refused(c.ChannelOpen(), Reply.CHANNEL_ERROR)
    talker.connection.answered(encode(messages.Refused(0, "PeerViolation", "missed heartbeats")))
    talker.connection.answered(encode(messages.GoingAway(0, "the broker stops", SECOND)))
    talker.feed(frame_of(9, 0, b""))
    assert talker.methods() == []


def test_what_was_published_before_an_error_of_the_connection_is_there(house):
    talker, other = house.talker(), house.talker()
    other.queue()
    talker.feed(published(1, "q", b"a") + frame_of(9, 1, b""))
    assert talker.closed
    assert other.all_of() == [b"a"]


def test_who_may_stop_sending_is_told(house):
    talker = house.talker()
    assert talker.ask(c.ChannelFlow(True)) == c.ChannelFlowOk(True)
    talker.refused(c.ChannelFlow(False), Reply.NOT_IMPLEMENTED)


def test_both_sides_close_at_once():
    talker = House().talker()
    talker.say(c.ChannelOpen(), on=1)
    talker.say(c.ConnectionClose(200, "", 0, 0), on=0)
    assert [type(each) for each in talker.methods()] == [c.ConnectionClose, c.ConnectionCloseOk]
    assert talker.closed == [""]


def test_both_sides_close_a_channel_at_once():
    talker = House().talker()
    talker.say(declare("nowhere", passive=True), c.ChannelClose(200, "", 0, 0))
    assert [type(each) for each in talker.methods()] == [c.ChannelClose, c.ChannelCloseOk]
    talker.say(c.ChannelCloseOk())
    talker.open(1)
    assert talker.connection.state is State.OPEN


def test_a_connection_that_goes_away_is_told_320():
    house = House()
    talker = house.talker()
    talker.connection.answered(encode(messages.GoingAway(0, "the broker stops", SECOND)))
    close = closed_by(talker, Reply.CONNECTION_FORCED)
    assert close.reply_text == "CONNECTION_FORCED - the broker stops"


def test_who_is_sent_away_by_an_operator_is_told_320():
    house = House()
    talker = house.talker()
    answer = house.peer().ask(messages.CloseSession, talker.session.number)
    assert not isinstance(answer, messages.Refused), answer
    talker.house.settle()
    assert [each.method.reply_code for each in talker.heard] == [Reply.CONNECTION_FORCED]
    assert talker.closed


def test_what_the_service_refuses_is_told():
    talker = House().talker()
    talker.connection.answered(encode(messages.Refused(0, "PeerViolation", "it has said nothing")))
    assert "it has said nothing" in closed_by(talker, Reply.NOT_ALLOWED).reply_text
    stranger = Talker(House())
    stranger.connection.answered(encode(messages.Refused(0, "PeerViolation", "it has not logged in")))
    assert stranger.heard == [], "who has said nothing may speak something else"


@pytest.mark.parametrize(
    "said",
    [
        frame_of(METHOD, 1, b"\0\x3c"),
        frame_of(METHOD, 1, b"\0\x3c\0\x63"),
        frame_of(METHOD, 1, b"\0\x63\0\x0a"),
        frame_of(9, 1, b""),
        frame_of(HEADER, 1, b""),
        method_frame(1, m.BasicPublish(0, "", "q", False, False)) + method_frame(1, declare()),
        method_frame(1, declare())[:-1] + b"\0",
        frame_of(8, 1, b""),
        frame_of(METHOD, 1, encode_method(declare())[:-6] + b"\0\0\0\2\1a"),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(said):
    talker = House().talker()
    talker.feed(said)
    [close] = talker.methods()
    assert isinstance(close, c.ConnectionClose)
    assert close.reply_code in (501, 502, 503, 505)
    assert bool(talker.closed) is (close.reply_code != Reply.COMMAND_INVALID), (
        "what follows can be read or not"
    )
    talker.feed(method_frame(1, declare()))
    assert talker.methods() == []


# -- time -----------------------------------------------------------------------------------------


def test_heartbeats_are_sent_when_nothing_else_was_and_missed_when_nothing_comes():
    house = House()
    talker = Talker(house)
    talker.enter(heartbeat=10)
    check = talker.connection.check
    said = [check(now, True, 5) for now in range(100, 111)]
    assert said == [""] * 11
    assert talker.heartbeats == 2
    talker.queue()
    assert check(111, True, 5) == ""
    assert check(113, True, 5) == ""
    assert talker.heartbeats == 2, "an answer was one"
    talker.feed(b"\x08\0\0\0\0\0\0\xce")
    assert check(120, True, 5) == ""
    assert check(139, False, 5) == "", "who is not read cannot be heard"
    assert check(159, True, 5) == ""
    assert "missed heartbeats: it has said nothing for 21 s" in check(160, True, 5)


def test_without_heartbeats_a_silent_client_may_stay():
    talker = House().talker()
    assert [talker.connection.check(now, True, 5) for now in (0, 1000, 2000)] == [""] * 3
    assert talker.heartbeats == 0


def test_a_client_that_does_not_answer_the_close_is_dropped():
    talker = House().talker()
    talker.refused(c.ChannelOpen(), Reply.CHANNEL_ERROR)
    assert talker.connection.check(100, True, 5) == ""
    assert talker.connection.check(105, True, 5) == ""
    assert "not answered connection.close" in talker.connection.check(106, True, 5)


def test_the_capabilities_of_a_client_are_what_it_says_and_nothing_else():
    house = House()
    for client, wanted in ((CAPABLE, True), ({}, False), ({"capabilities": 7}, False)):
        talker = house.talker(client=client)
        assert talker.connection.wants_cancels is wanted
        assert talker.connection.blocking.is_wanted is wanted
    assert not house.talker(client={"capabilities": {"consumer_cancel_notify": 1}}).connection.wants_cancels
