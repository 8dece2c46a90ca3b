"""Test what becomes of messages that clients of AMQP publish: confirms, returns, refusals, and their properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.constants import KIB, MIB
from journal.formats import frame
from journal.records.queue_entries import DEFAULT_EXCHANGE, QueueSettings, address_of
from tests.channels.talk import House, Talker, declare, published
from tests.support.broker_room import recorded
from tests.support.builders import small_files
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.fields import long_text, short_text, timestamp
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.publishing import MOST
from txbroker.wire import messages
from txbroker.wire.queues import AMQP_PROPERTIES, DEATHS, EXCHANGE, EXPIRATION

SELF = address_of(DEFAULT_EXCHANGE, mandatory=True)


@pytest.fixture
def house() -> House:
    return House(small_files(low_water_bytes=MIB))


@pytest.fixture
def talker(house) -> Talker:
    talker = house.talker()
    talker.queue()
    return talker


def fill(house: House, is_full: bool = True) -> None:
    """Have the disk be full, or not any more."""
    house.filesystem.free_bytes = lambda: 0 if is_full else 1 << 40
    house.engine.housekeeping.watch_space()
    assert bool(house.engine.full) is is_full


def short(which: int, text: str) -> bytes:
    return props.made_of({which: text}, {})


def acked(talker: Talker) -> dict[int, bool]:
    """Return which tags were confirmed, and whether they were taken; each once."""
    found, low = {}, getattr(talker, "low", 1)
    for each in talker.methods():
        assert isinstance(each, m.BasicAck | m.BasicNack), each
        tags = [each.delivery_tag]
        if each.multiple:
            tags = [tag for tag in range(low, each.delivery_tag + 1) if tag not in found]
        for tag in tags:
            assert tag not in found, f"{tag} is confirmed twice"
            found[tag] = isinstance(each, m.BasicAck)
    return found


# -- confirms -------------------------------------------------------------------------------------


def test_what_is_read_together_is_one_record_and_one_confirm(house, talker):
    talker.confirm()
    records = recorded(house)
    talker.publish("q", b"a", b"b", b"c")
    assert talker.methods() == [m.BasicAck(3, True)]
    assert [type(each).__name__ for each in records] == ["Published"]
    talker.publish("q", b"d")
    assert talker.methods() == [m.BasicAck(4, False)]
    assert talker.all_of() == [b"a", b"b", b"c", b"d"]


def test_a_confirm_waits_for_the_force_and_what_was_confirmed_outlives_a_kill(house, talker):
    talker.confirm()
    talker.publish("q", b"a")
    assert talker.heard == []
    house.engine.sync()
    house.timers.advance(0)  # the turn ends
    assert [each.method for each in talker.heard] == [m.BasicAck(1, False)]
    house.kill()
    assert house.talker().all_of() == [b"a"]


def test_messages_for_several_exchanges_are_confirmed_and_stay_in_their_order(house, talker):
    talker.exchange("x", "fanout")
    talker.bind("q", "x")
    talker.confirm()
    bodies = [b"%d" % n for n in range(30)]
    talker.feed(
        b"".join(published(1, "q", each, exchange="x" if n % 3 else "") for n, each in enumerate(bodies))
    )
    assert acked(talker) == dict.fromkeys(range(1, 31), True)
    assert talker.all_of() == bodies


def test_more_than_one_request_may_have_is_several(house, talker):
    talker.confirm()
    records = recorded(house)
    talker.publish("q", *[b"x"] * (2 * MOST + 5))
    assert acked(talker) == dict.fromkeys(range(1, 2 * MOST + 6), True)
    talker.publish("q", *[b"x" * 100 * KIB] * 7)
    assert talker.methods() == [m.BasicAck(2 * MOST + 12, True)]
    assert len([each for each in records if type(each).__name__ == "Published"]) == 3 + 3
    assert house.counts("q")[0] == 2 * MOST + 12


def test_confirms_are_of_what_is_published_after_they_were_asked_for(house, talker):
    talker.feed(published(1, "q", b"a") + method_frame(1, m.ConfirmSelect(True)) + published(1, "q", b"b"))
    assert talker.methods() == [m.BasicAck(1, False)]
    talker.confirm()
    talker.publish("q", b"c")
    assert talker.methods() == [m.BasicAck(2, False)], "a second time changes nothing"
    assert "cannot switch" in talker.refused(m.TxSelect(), Reply.PRECONDITION_FAILED)


def test_without_confirms_nothing_is_answered(house, talker):
    talker.publish("q", b"a", b"b")
    talker.publish("nowhere", b"c")
    assert talker.methods() == []
    assert talker.all_of() == [b"a", b"b"]


# -- returns --------------------------------------------------------------------------------------


def test_a_mandatory_message_that_finds_no_queue_comes_back_before_its_confirm(house, talker):
    talker.confirm()
    properties = props.made_of({props.MESSAGE_ID: "7"}, {"n": 1})
    talker.feed(
        published(1, "q", b"a", mandatory=True)
        + published(1, "none", b"b", mandatory=True, properties=properties)
        + published(1, "none", b"c", exchange="amq.topic", mandatory=True)
        + published(1, "none", b"d")
        + published(1, "q", b"e", mandatory=True)
    )
    told = talker.taken()
    returned = [each for each in told if isinstance(each.method, m.BasicReturn)]
    assert [each.method for each in returned] == [
        m.BasicReturn(312, "NO_ROUTE", "", "none"), m.BasicReturn(312, "NO_ROUTE", "amq.topic", "none")
    ]  # fmt: skip
    assert [(each.body, each.properties) for each in returned] == [(b"b", properties), (b"c", props.NONE)]
    kinds = [(type(each.method), getattr(each.method, "delivery_tag", 0)) for each in told]
    for tag in (2, 3):
        place = next(n for n, each in enumerate(kinds) if each[0] is m.BasicAck and each[1] >= tag)
        assert [each[0] for each in kinds[:place]].count(m.BasicReturn) >= tag - 1
    talker.heard = told
    assert acked_of(told) == {1, 2, 3, 4, 5}
    talker.heard.clear()
    assert talker.all_of() == [b"a", b"e"]


def test_a_large_mandatory_message_goes_alone_too(house, talker):
    large = b"x" * 300 * KIB
    talker.publish("q", b"a", large, mandatory=True)
    talker.publish("none", large, mandatory=True)
    [returned] = talker.told(m.BasicReturn)
    assert returned.body == large
    assert talker.all_of() == [b"a", large]


def acked_of(told) -> set[int]:
    low, found = 1, set()
    for each in told:
        if isinstance(each.method, m.BasicAck):
            found |= (
                set(range(low, each.method.delivery_tag + 1))
                if each.method.multiple
                else {each.method.delivery_tag}
            )
    return found


def test_nothing_is_returned_or_confirmed_behind_the_end_of_the_channel(talker):
    talker.confirm()
    talker.feed(
        published(1, "none", b"a", mandatory=True)
        + published(1, "q", b"b")
        + published(1, "q", b"c", exchange="none")
    )
    told = [type(each).__name__ for each in talker.methods()]
    assert told.count("ChannelClose") == 1
    assert told[-1] == "ChannelClose"


def test_what_is_confirmed_in_one_turn_is_told_together_behind_what_comes_back(house, talker):
    talker.bind("q", "amq.direct", "q")
    talker.queue("few", {"x-max-length": 0, "x-overflow": "reject-publish"})
    talker.confirm()
    alternating = [published(1, "q", b"x", "amq.direct" if n % 2 else "") for n in range(400)]
    talker.feed(b"".join(alternating))
    assert talker.methods() == [m.BasicAck(400, True)]
    talker.feed(
        published(1, "q", b"a", mandatory=True) + published(1, "none", b"b", mandatory=True)
        + published(1, "few", b"c") + published(1, "q", b"d", "amq.direct") + published(1, "q", b"e")
    )  # fmt: skip
    told = talker.methods()
    assert [type(each) for each in told[:1]] == [m.BasicReturn]
    assert told[1:] == [m.BasicAck(402, True), m.BasicNack(403, False, False), m.BasicAck(405, True)]
    assert house.counts("q") == (403, 0)


def test_confirms_of_a_turn_are_told_before_its_channel_ends(house, talker):
    for _ in range(2):
        talker.open(2)
        talker.confirm(on=2)
        talker.publish("q", b"a", on=2)
        house.engine.sync()
        talker.say(c.ChannelClose(200, "", 0, 0), on=2)
        assert talker.methods(on=2) == [m.BasicAck(1, False), c.ChannelCloseOk()]
    talker.open(2)
    talker.confirm(on=2)
    talker.publish("q", b"a", on=2)
    house.engine.sync()
    talker.say(m.BasicGet(0, "none", True), on=2)
    assert [type(each) for each in talker.methods(on=2)] == [m.BasicAck, c.ChannelClose]


def test_immediate_ends_the_connection_with_540(talker):
    talker.refused(published(1, "q", b"a", immediate=True), Reply.NOT_IMPLEMENTED)


# -- refusals -------------------------------------------------------------------------------------


def test_an_unknown_exchange_is_404_and_what_was_published_before_is_there(house, talker):
    talker.confirm()
    text = talker.refused(published(1, "q", b"a") + published(1, "q", b"b", exchange="none"), Reply.NOT_FOUND)
    assert text == "NOT_FOUND - no exchange 'none' in vhost '/'"
    assert talker.all_of() == [b"a"]


def test_a_message_that_is_too_large_is_311(house):
    house = House(max_frame=10_000)
    talker = house.talker()
    talker.queue()
    talker.refused(published(1, "q", b"x" * 10_001), Reply.CONTENT_TOO_LARGE)
    talker.refused(
        published(1, "q", b"x" * 9_999, properties=short(props.TYPE, "t" * 200)), Reply.CONTENT_TOO_LARGE
    )
    talker.publish("q", b"x" * 9_000)
    assert len(talker.get().body) == 9_000


def test_a_full_queue_takes_those_that_fit_in_their_order_and_no_others(house, talker):
    talker.queue("few", {"x-max-length": 5, "x-overflow": "reject-publish"})
    talker.confirm()
    talker.publish("few", *[b"%d" % n for n in range(8)])
    talker.publish("few", b"8", b"9")
    assert acked(talker) == {tag: tag <= 5 for tag in range(1, 11)}
    assert talker.all_of("few") == [b"0", b"1", b"2", b"3", b"4"]


def test_what_can_be_taken_is_not_overtaken_by_what_was_published_later(house, talker):
    talker.queue("few", {"x-max-length": 10, "x-overflow": "reject-publish"})
    talker.publish("few", *[b"first"] * 5)
    talker.taken()
    talker.confirm()
    talker.publish("few", *[b"%d" % n for n in range(6)])
    talker.publish("few", b"6", b"7", b"8")
    assert acked(talker) == {tag: tag <= 5 for tag in range(1, 10)}
    assert talker.all_of("few")[5:] == [b"0", b"1", b"2", b"3", b"4"]


def test_without_confirms_too_many_are_dropped(house, talker):
    talker.queue("few", {"x-max-length": 5, "x-overflow": "reject-publish"})
    talker.publish("few", *[b"%d" % n for n in range(8)])
    assert talker.methods() == []
    assert talker.all_of("few") == [b"0", b"1", b"2", b"3", b"4"]


def test_one_of_several_queues_that_is_full_refuses_for_all(house, talker):
    talker.queue("few", {"x-max-length": 0, "x-overflow": "reject-publish"})
    talker.bind("q", "amq.fanout")
    talker.bind("few", "amq.fanout")
    talker.confirm()
    talker.publish("", b"a", exchange="amq.fanout")
    assert talker.methods() == [m.BasicNack(1, False, False)]
    assert talker.all_of() == []


def test_a_full_disk_nacks_and_the_client_is_told_until_there_is_room(house, talker):
    deaf = house.talker(client={})
    talker.confirm()
    deaf.confirm()
    fill(house)
    talker.publish("q", b"a", b"b")
    talker.publish("q", b"c")
    deaf.publish("q", b"d")
    told = talker.methods()
    assert [type(each).__name__ for each in told] == ["ConnectionBlocked", "BasicNack", "BasicNack"]
    assert told[0].reason == "free space on the broker's disk is below the low-water mark"
    assert [type(each).__name__ for each in deaf.methods()] == ["BasicNack"]
    talker.connection.check(1, True, 5)
    assert talker.methods() == []
    fill(house, False)
    for each in (talker, deaf):
        each.connection.check(2, True, 5)
        each.connection.check(3, True, 5)
    assert [type(each).__name__ for each in talker.methods()] == ["ConnectionUnblocked"]
    assert deaf.methods() == []
    talker.publish("q", b"e")
    assert talker.methods() == [m.BasicAck(4, False)]
    assert talker.all_of() == [b"e"]


def test_messages_for_several_queues_on_a_full_disk_are_refused_together(house, talker):
    talker.queue("few", {"x-max-length": 5, "x-overflow": "reject-publish"})
    for each in ("q", "few"):
        talker.bind(each, "amq.fanout")
    talker.confirm()
    fill(house)
    talker.publish("", b"a", b"b", exchange="amq.fanout")
    assert [type(each).__name__ for each in talker.methods()] == ["ConnectionBlocked", "BasicNack"]


def test_what_goes_to_too_many_places_is_refused(house, talker, monkeypatch):
    talker.queue("p")
    for each in ("q", "p"):
        talker.bind(each, "amq.fanout")
    monkeypatch.setattr("txbroker.queues.publishing.MAX_COPIES", 1)
    talker.refused(published(1, "", b"a", exchange="amq.fanout"), Reply.RESOURCE_ERROR)
    talker.confirm()
    talker.publish("", b"a", exchange="amq.fanout")
    assert talker.methods() == [m.BasicNack(1, False, False)]


def test_a_request_has_no_more_bytes_than_it_may(house, talker, monkeypatch):
    monkeypatch.setattr("txbroker.channels.publishing.MAX_REQUEST_DATA", 1000)
    records = recorded(house)
    talker.publish("q", b"x" * 600, b"y" * 600)
    house.settle()
    assert [type(each).__name__ for each in records] == ["Published"] * 2


def test_a_queue_that_refuses_is_known_from_its_declaration_to_its_end(house, talker):
    declarations = house.broker.queues.declarations
    assert not declarations.may_refuse
    talker.queue("few", {"x-overflow": "reject-publish"})
    assert declarations.may_refuse
    talker.ask(m.QueueDelete(0, "few", False, False, False))
    assert not declarations.may_refuse


def test_a_full_disk_refuses_declarations_with_506(house, talker):
    fill(house)
    talker.refused(declare("more"), Reply.RESOURCE_ERROR)
    talker.publish("q", b"a")
    assert [type(each).__name__ for each in talker.methods()] == ["ConnectionBlocked"], (
        "without confirms, too"
    )


@pytest.mark.parametrize("said", ["", "-1", "1.5", " 1", "1e3", "x", "9" * 21, "\u0661"])
def test_an_expiration_that_is_none_is_406(talker, said):
    talker.refused(
        published(1, "q", b"a", properties=short(props.EXPIRATION, said)), Reply.PRECONDITION_FAILED
    )


def test_a_message_expires(house, talker):
    for said in ("1000", "0005000", "9" * 20):
        talker.publish("q", said.encode(), properties=short(props.EXPIRATION, said))
    talker.publish("q", b"for ever")
    house.pass_time(0.9)
    assert house.counts("q")[0] == 4
    house.pass_time(0.2)
    assert house.counts("q")[0] == 3
    house.pass_time(4)
    assert talker.all_of() == [b"9" * 20, b"for ever"]
    talker.publish("q", b"now", properties=short(props.EXPIRATION, "0"))
    assert talker.get() is None


def test_who_says_to_be_another_user_is_refused_with_406(talker):
    for said in ("guest", "anonymous"):
        talker.publish("q", b"a", properties=short(props.USER_ID, said))
    assert len(talker.all_of()) == 2
    text = talker.refused(
        published(1, "q", b"a", properties=short(props.USER_ID, "root")), Reply.PRECONDITION_FAILED
    )
    assert "user_id property set to 'root' but authenticated user was 'guest'" in text


@pytest.mark.parametrize(
    "properties",
    [b"", b"\0", b"\0\1\0\0", b"\x80\0", b"\x80\0\5abc", b"\0\0\0", b"\x20\0\0\0\0\5abcde", b"\x20\0\0\0\0\3\1a?",
     b"\x20\0\0\0\0\2\1a", b"\x20\0\0\0\0\3\1\xffV", b"\x20\0\0\0\0\7\1aF\0\0\0\1", b"\x00\x10\1\xff", b"\x01\0\1\xff"],
)  # fmt: skip
def test_properties_that_are_none_end_the_connection_with_502(talker, properties):
    talker.refused(published(1, "q", b"a", properties=properties), Reply.SYNTAX_ERROR)


# -- what is published is seen --------------------------------------------------------------------


def test_who_has_published_finds_it_with_the_next_method_of_the_same_read(house, talker):
    talker.feed(
        published(1, "q", b"a") + published(1, "q", b"b") + method_frame(1, declare())
        + method_frame(1, m.BasicGet(0, "q", True)) + method_frame(1, m.QueuePurge(0, "q", False))
        + published(1, "q", b"c") + method_frame(1, m.QueueDelete(0, "q", False, False, False))
    )  # fmt: skip
    told = talker.taken()
    assert told[0].method == m.QueueDeclareOk("q", 2, 0)
    assert (told[1].body, told[1].method.message_count) == (b"a", 1)
    assert [each.method for each in told[2:]] == [m.QueuePurgeOk(1), m.QueueDeleteOk(1)]


# -- properties -----------------------------------------------------------------------------------

VALUES = {
    props.CONTENT_TYPE: short_text("text/plain"), props.CONTENT_ENCODING: short_text("utf-8"),
    props.HEADERS: long_text(
        short_text("s") + b"S" + long_text(b"text") + short_text("i") + b"I\xff\xff\xff\xff" + short_text("b") + b"B\7"
        + short_text("t") + b"t\1" + short_text("nested") + b"F" + long_text(
            short_text("a") + b"A" + long_text(b"V" + b"D\2\0\0\1\0" + b"x" + long_text(b"\xff"))
        ) + short_text("when") + timestamp(1_700_000_000) + short_text("f") + b"f\0\0\0\0" + short_text("u") + b"u\0\1"
    ),
    props.DELIVERY_MODE: b"\2", props.PRIORITY: b"\5", props.CORRELATION_ID: short_text("c-1"),
    props.REPLY_TO: short_text("replies"), props.EXPIRATION: short_text("60000"), props.MESSAGE_ID: short_text("m-1"),
    props.TIMESTAMP: (1_700_000_000).to_bytes(8), props.TYPE: short_text("t"), props.USER_ID: short_text("guest"),
    props.APP_ID: short_text("shop"), props.CLUSTER_ID: short_text("c"),
}  # fmt: skip
WHOLE = House()
"""One for all examples."""
PERSON = WHOLE.talker()
PERSON.queue()


@given(st.sets(st.sampled_from(sorted(VALUES))), st.binary(max_size=20))
def test_properties_come_back_byte_for_byte(which, body):
    properties = props.replaced(props.NONE, {}, {each: VALUES[each] for each in which})
    PERSON.publish("q", body, properties=properties)
    found = PERSON.get(no_ack=True)
    assert (found.properties, found.body, found.method.routing_key) == (properties, body, "q")


def test_the_exchange_and_the_key_of_a_message_come_with_it(house, talker):
    talker.bind("q", "amq.topic", "#")
    talker.publish("a.ü.€", b"", exchange="amq.topic")
    found = talker.get(no_ack=True).method
    assert (found.exchange, found.routing_key) == ("amq.topic", "a.ü.€")
    talker.publish("k" * 255, b"x", exchange="amq.topic")
    assert talker.get().method.routing_key == "k" * 255


def test_large_properties_come_back(talker):
    properties = props.made_of({}, {f"h{n}": "x" * 1000 for n in range(60)})
    talker.publish("q", b"x" * 300_000, properties=properties)
    found = talker.get()
    assert (len(found.body), found.properties) == (300_000, properties)


# -- the broker's own clients ---------------------------------------------------------------------


def sent(house: House, key: str, value: bytes, headers=None) -> None:
    """Have a client of the broker's own protocol send a message."""
    answer = house.peer().ask(messages.Send, SELF, data=frame.encode(value, 1, key.encode(), headers))
    assert isinstance(answer, messages.Sent), answer


def test_a_message_of_the_brokers_own_protocol_has_its_headers_over_amqp(house, talker):
    sent(house, "q", b"a", {"colour": b"r\xc3\xb6t", "raw": b"\xff", EXPIRATION: b"1000000"})
    found = talker.get(no_ack=True)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"a", "", "q")
    assert found.headers == {"colour": "röt", "raw": b"\xff"}
    assert props.decoded(found.properties)["delivery_mode"] == 2


def test_a_message_over_amqp_has_its_properties_for_the_brokers_own_clients(house, talker):
    properties = props.made_of({props.EXPIRATION: "1000"}, {"n": 1})
    talker.publish("q", b"a", exchange="", properties=properties)
    house.settle()
    peer = house.peer()
    asked = peer.ask(messages.DeclareQueue, "q", QueueSettings())
    taken = peer.ask(messages.TakeMessages, asked.partition, 5)
    [[message]] = [piece for piece, _ in frame.decode_pieces(peer.data[peer.answers.index(taken)], 0)]
    assert (message.value, message.key) == (b"a", b"q")
    assert dict(message.headers) == {AMQP_PROPERTIES: properties, EXPIRATION: b"1000000"}


@pytest.mark.parametrize(
    "headers",
    [{AMQP_PROPERTIES: b"\xff\xff\xff"}, {AMQP_PROPERTIES: b""}, {EXCHANGE: b"\xff" * 300}, {EXCHANGE: b"e" * 300},
     {DEATHS: b"[["}, {DEATHS: b'[["q","why",1,5]]'},
     {AMQP_PROPERTIES: b"\x20\0\0\0\0\3\1a?", DEATHS: b'[["q","w",1,5]]'},
     {AMQP_PROPERTIES: b"\x01\0\1\xff", DEATHS: b'[["q","expired",1,5]]'}, {"n" * 300: b"x"}, {"a": b"x" * 70_000}],
    ids=lambda each: repr(each)[:40],
)  # fmt: skip
def test_no_header_of_another_client_breaks_what_is_told_of_a_message(house, talker, headers):
    sent(house, "q", b"a", headers)
    talker.consume()
    assert talker.bodies() == [b"a"]
    talker.say(m.BasicNack(0, True, True))
    [again] = talker.taken()
    assert again.body == b"a"
    assert again.headers["x-delivery-count"] == 1
