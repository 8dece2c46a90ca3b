"""Test how connections and channels of AMQP begin and end, by RabbitMQ 3.13's rabbit_reader.erl."""

from __future__ import annotations

from itertools import product

import pytest

from tests.broker.access.gate import BY_SOCKET, Gate
from tests.channels.talk import CAPABLE, SECOND, House, Talker, consume, declare, published
from tests.login.login_room import TLS
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.connection_methods import Method
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
from txbroker.amqp.method_codec import BY_INDEX, encode_method
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.connection import CHANNEL_MAX, FRAME_MAX, State
from txbroker.channels.directory import Directory
from txbroker.wire import messages
from txbroker.wire.codec import encode

PLAIN = b"\0alice\0pencil"


@pytest.fixture
def house() -> House:
    return House()


class GateHouse(Gate, House):
    """A house whose door is locked: alice comes in by "pencil"."""

    def made_broker(self):
        broker = Gate.made_broker(self)
        self.directory = Directory(broker)
        return broker

    def settle(self, turns: int = 6) -> None:
        for _ in range(turns):
            while self.worker.work:
                self.worker.step()
            self.timers.advance(1)
            super().settle(1)


def start(house: House, mechanism: str = "PLAIN", response: bytes = PLAIN, facts=None, client=None) -> Talker:
    """Return a client that has said its first."""
    talker = Talker(house, facts=facts, client=client)
    talker.feed(PROTOCOL_HEADER)
    [talker.start] = talker.methods()
    talker.say(c.ConnectionStartOk(talker.client, mechanism, response, "en_US"), on=0)
    house.settle()
    return talker


def tuning(house: House) -> Talker:
    talker = start(house)
    assert talker.methods() == [c.ConnectionTune(CHANNEL_MAX, FRAME_MAX, 60)]
    return talker


def closed_by(talker: Talker, reply: Reply) -> c.ConnectionClose:
    [close] = [each for each in talker.methods() if isinstance(each, c.ConnectionClose)]
    assert close.reply_code == reply, close
    return close


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
    assert first.server_properties["capabilities"]["basic.nack"] is True


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
    frame = talker._frame
    talker._frame = lambda kind, channel, payload: (
        sizes.append(len(payload) + 8),
        frame(kind, channel, payload),
    )
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


def test_every_state_is_one_that_a_test_reaches():
    assert all(reached(each).connection.state is each for each in State)
    assert len(list(product(State, METHODS))) == len(State) * len(METHODS)
