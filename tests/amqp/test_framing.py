"""Test frames: cuts do not matter, contents come in turn, and what breaks the protocol is one error.

The judge of the frames themselves is pamqp.
"""

import struct

import pamqp.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.amqp_bytes import (
    ANY_METHOD,
    FRAME_MAX,
    MAX_BODY,
    PUBLISHED,
    frames_of,
    greeted,
    packed,
    shown,
)
from tests.amqp.frame_streams import ACK, BEGUN, CUTS, PUBLISH, body_of, cut, header_of, is_over, streams
from tests.support.thoroughness import examples
from txbroker.amqp import properties as props
from txbroker.amqp.connection_methods import ChannelCloseOk
from txbroker.amqp.framing import (
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    LEAST_FRAME,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    AmqpDecoder,
    content_frames,
    frame_of,
    method_frame,
)
from txbroker.amqp.method_codec import encode_method
from txbroker.amqp.methods import BasicPublish, ConfirmSelect
from txbroker.amqp.reply_codes import AmqpError, Reply

pytestmark = pytest.mark.slow


@given(streams(), CUTS)
def test_contents_of_several_channels_in_turn_come_out_whole_however_they_are_cut(stream, cuts):
    frames, wanted = stream
    decoder = greeted()
    found = []
    for piece in cut(b"".join(frames), cuts):
        found += shown(decoder.feed(piece))
        assert decoder.missing > 0
    assert found == wanted
    assert (decoder.held, decoder.uncut) == (0, 0)
    assert decoder.came == len(PROTOCOL_HEADER) + sum(map(len, frames))


@settings(max_examples=examples(20))
@given(streams(most=2))
def test_bytes_that_come_one_by_one_give_the_same(stream):
    frames, wanted = stream
    decoder = AmqpDecoder(MAX_BODY)
    data = PROTOCOL_HEADER + b"".join(frames)
    found = [each for n in range(len(data)) for each in shown(decoder.feed(data[n : n + 1]))]
    assert found == [(0, None, props.NONE, b""), *wanted]
    assert decoder.held == 0


@given(st.integers(0, 65535), ANY_METHOD)
def test_a_methods_frame_is_one_to_pamqp_which_makes_the_same_bytes_of_it(channel, method):
    octets = method_frame(channel, method)
    assert octets[-1:] == b"\xce"
    assert pamqp.frame.frame_parts(octets) == (METHOD, channel, len(encode_method(method)))
    if type(method).__name__ != "BasicRecoverAsync":
        count, number, found = pamqp.frame.unmarshal(octets)
        assert (count, number, found.name.replace(".", "")) == (len(octets), channel, type(method).__name__)


@given(PUBLISHED, st.sampled_from([LEAST_FRAME, 9, 100, 131_072]))
def test_a_content_is_to_pamqp_a_header_and_bodies_within_the_largest_frame(published, frame_max):
    _, properties, body = published
    stream = b"".join(content_frames(9, properties, body, frame_max))
    assert stream == b"".join(content_frames(9, properties, memoryview(body), frame_max))
    count, channel, header = pamqp.frame.unmarshal(stream)
    assert (channel, header.class_id, header.body_size) == (9, 60, len(body))
    parts, position = [], count
    while position < len(stream):
        count, channel, part = pamqp.frame.unmarshal(stream[position : position + frame_max])
        assert (channel, count <= frame_max) == (9, True)
        parts.append(part.value)
        position += count
    assert b"".join(parts) == body
    assert len(parts) == -(-len(body) // (frame_max - OVERHEAD))


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(0, []), (1, [1]), (92, [92]), (93, [92, 1]), (184, [92, 92]), (185, [92, 92, 1])],
)
def test_a_body_is_in_frames_as_large_as_they_may_be(size, sizes):
    pieces = content_frames(1, props.NONE, bytes(size), 100)
    assert [len(each) for each in pieces[4::3]] == sizes
    assert shown(greeted(frame_max=100).feed(BEGUN + b"".join(pieces))) == [
        (1, PUBLISH, props.NONE, bytes(size))
    ]


def test_what_pamqp_sends_is_a_content():
    stream = b"".join(
        pamqp.frame.marshal(each, 5)
        for each in (
            pamqp.commands.Basic.Publish(exchange="e", routing_key="k", mandatory=True),
            pamqp.header.ContentHeader(0, 5, pamqp.commands.Basic.Properties(message_type="t")),
            pamqp.body.ContentBody(b"ab"),
            pamqp.heartbeat.Heartbeat(),
            pamqp.body.ContentBody(b"cde"),
        )
    )
    stream = stream.replace(b"\x08\0\5\0", b"\x08\0\0\0")
    wanted = BasicPublish(0, "e", "k", True, False)
    assert shown(greeted().feed(stream)) == [(5, wanted, packed({props.TYPE: "t"}), b"abcde")]
    assert pamqp.header.ProtocolHeader().marshal() == PROTOCOL_HEADER
    assert pamqp.heartbeat.Heartbeat().marshal() == HEARTBEAT_FRAME


@pytest.mark.parametrize("flags", range(4))
def test_the_bits_of_what_is_published_are_in_their_places(flags):
    method = BasicPublish(0, "é", "", bool(flags & 1), bool(flags & 2))
    [(arrived, _)] = greeted().feed(method_frame(1, method) + header_of(0))
    assert arrived.method == method
    assert all(isinstance(each, bool) for each in (arrived.method.mandatory, arrived.method.immediate))


def test_bodies_stay_as_they_were_however_much_follows():
    decoder = greeted()
    first = b"".join(frames_of(1, (PUBLISH, props.NONE, b"first")))
    second = b"".join(frames_of(1, (PUBLISH, props.NONE, b"2" * 9_000)))
    bodies = []
    for data in (first[:9], first[9:] + second[:5_000], second[5_000:] + first[:20]):
        bodies += [body for _, body in decoder.feed(data)]
    for _ in range(3):
        bodies += [body for _, body in decoder.feed(first[20:] + first[:20])]
    assert [bytes(each) for each in bodies] == [b"first", b"2" * 9_000, b"first", b"first", b"first"]


def test_an_empty_body_needs_no_frame_and_frames_of_a_body_may_be_empty():
    assert shown(greeted().feed(BEGUN + header_of(0))) == [(1, PUBLISH, props.NONE, b"")]
    stream = BEGUN + header_of(2) + body_of(b"") + body_of(b"a") + body_of(b"") + body_of(b"b")
    assert shown(greeted().feed(stream)) == [(1, PUBLISH, props.NONE, b"ab")]


# -- what breaks the protocol ------------------------------------------------------------------------

BIG = 1 << 16
LIES = {
    "a method within a content": (BEGUN + method_frame(1, ACK), Reply.UNEXPECTED_FRAME, 1),
    "another publish within a content": (BEGUN + header_of(1) + BEGUN, Reply.UNEXPECTED_FRAME, 1),
    "a header that no method came with": (header_of(0, 3), Reply.UNEXPECTED_FRAME, 3),
    "a body that no method came with": (body_of(b"a", 3), Reply.UNEXPECTED_FRAME, 3),
    "a header on another channel": (BEGUN + header_of(0, 2), Reply.UNEXPECTED_FRAME, 2),
    "a body on another channel": (BEGUN + header_of(1) + body_of(b"a", 2), Reply.UNEXPECTED_FRAME, 2),
    "a body before its header": (BEGUN + body_of(b"a"), Reply.UNEXPECTED_FRAME, 1),
    "an empty body before its header": (BEGUN + body_of(b""), Reply.UNEXPECTED_FRAME, 1),
    "a second header": (BEGUN + header_of(1) + header_of(1), Reply.UNEXPECTED_FRAME, 1),
    "a body longer than announced": (BEGUN + header_of(1) + body_of(b"ab"), Reply.UNEXPECTED_FRAME, 1),
    "more bodies than announced": (
        BEGUN + header_of(2) + body_of(b"a") + body_of(b"bc"), Reply.UNEXPECTED_FRAME, 1,
    ),
    "a content of another class": (BEGUN + header_of(0, kind=50), Reply.FRAME_ERROR, 1),
    "a header that is cut": (BEGUN + frame_of(HEADER, 1, bytes(11)), Reply.SYNTAX_ERROR, 1),
    "an empty header": (BEGUN + frame_of(HEADER, 1, b""), Reply.SYNTAX_ERROR, 1),
    "a frame that does not end there": (BEGUN[:-1] + b"\0", Reply.FRAME_ERROR, 1),
    "a frame that is longer than it says": (BEGUN[:-1] + b"\0\xce", Reply.FRAME_ERROR, 1),
    "a frame one too large": (
        BEGUN + header_of(BIG) + body_of(bytes(FRAME_MAX - OVERHEAD + 1)), Reply.FRAME_ERROR, 1,
    ),
    "a frame of 4 GiB": (struct.pack(">BHIB", BODY, 5, 0xFFFFFFFF, 0), Reply.FRAME_ERROR, 5),
    "a frame of a type that is none": (frame_of(4, 1, b"abcd"), Reply.FRAME_ERROR, 1),
    "a frame of type 0": (bytes(8)[:-1] + b"\xce", Reply.FRAME_ERROR, 0),
    "a heartbeat of a channel": (frame_of(HEARTBEAT, 1, b""), Reply.FRAME_ERROR, 1),
    "a heartbeat with something in it": (frame_of(HEARTBEAT, 0, b"a"), Reply.FRAME_ERROR, 0),
    "a method of no class": (frame_of(METHOD, 1, b"\0\1\0\1"), Reply.COMMAND_INVALID, 1),
    "an empty method": (frame_of(METHOD, 1, b""), Reply.SYNTAX_ERROR, 1),
    "half of the numbers of a method": (frame_of(METHOD, 1, b"\0\x3c\0"), Reply.SYNTAX_ERROR, 1),
    "only the numbers of basic.publish": (frame_of(METHOD, 1, b"\0\x3c\0\x28"), Reply.SYNTAX_ERROR, 1),
    "basic.publish without its bits": (
        frame_of(METHOD, 1, encode_method(PUBLISH)[:-1]), Reply.SYNTAX_ERROR, 1,
    ),
    "basic.publish and more": (frame_of(METHOD, 1, encode_method(PUBLISH) + b"\0"), Reply.SYNTAX_ERROR, 1),
    "an exchange longer than it is": (
        frame_of(METHOD, 1, b"\0\x3c\0\x28\0\0\xff" + b"a" * 9), Reply.SYNTAX_ERROR, 1,
    ),
    "a key longer than it is": (frame_of(METHOD, 1, b"\0\x3c\0\x28\0\0\0\xffa\0"), Reply.SYNTAX_ERROR, 1),
    "an exchange that is no UTF-8": (
        frame_of(METHOD, 1, b"\0\x3c\0\x28\0\0\1\xff\0\0"), Reply.SYNTAX_ERROR, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("size", [1, 7, BIG])
def test_a_lie_is_the_last_thing_that_is_found_and_nothing_is_kept_after_it(name, size):
    data, reply, channel = LIES[name]
    decoder = greeted()
    data = method_frame(9, ACK) + method_frame(8, PUBLISH) + data + method_frame(9, ACK)
    found = [each for n in range(0, len(data), size) for each in decoder.feed(data[n : n + size])]
    assert shown(found)[0] == (9, ACK, props.NONE, b"")
    [(arrived, body)] = found[1:]
    assert isinstance(arrived.method, AmqpError)
    assert (arrived.method.reply, arrived.channel, bytes(body)) == (reply, channel, b"")
    assert arrived.method.reply.ends_connection
    assert is_over(decoder)


def test_what_was_taken_before_an_error_is_counted():
    decoder = greeted()
    good = method_frame(1, ACK)
    decoder.feed(good * 3 + b"x" * 8)
    assert decoder.taken == 3 * len(good)
    decoder.take()
    assert decoder.taken == 0


@pytest.mark.parametrize(
    "begin", [b"G", b"GET / HTTP/1.1\r\n", b"AMQP\0\0\x09\0", b"AMQP\1\1\0\x09", b"AMQQ\0\0\x09\1", bytes(9)]
)
@pytest.mark.parametrize("size", [1, 100])
def test_another_protocol_is_told_by_its_first_bytes(begin, size):
    decoder = AmqpDecoder(MAX_BODY)
    found = [each for n in range(0, len(begin), size) for each in decoder.feed(begin[n : n + size])]
    [(arrived, _)] = found
    assert (arrived.channel, arrived.method.reply) == (0, Reply.FRAME_ERROR)
    assert "not AMQP 0-9-1" in arrived.method.text
    assert is_over(decoder)


def test_the_protocols_header_may_come_in_pieces_and_with_what_follows():
    decoder = AmqpDecoder(MAX_BODY)
    for n in range(7):
        assert (decoder.held, decoder.missing) == (n, 8 - n)
        assert decoder.feed(PROTOCOL_HEADER[n : n + 1]) == []
    found = decoder.feed(PROTOCOL_HEADER[7:] + method_frame(1, ACK))
    assert [each.method for each, _ in found] == [None, ACK]


def test_a_frame_of_the_largest_size_passes_and_one_of_another_once_it_is_allowed():
    decoder = greeted(frame_max=LEAST_FRAME)
    body = bytes(LEAST_FRAME - OVERHEAD)
    assert len(decoder.feed(BEGUN + header_of(len(body)) + body_of(body))) == 1
    decoder.frame_max += 1
    assert len(decoder.feed(BEGUN + header_of(len(body) + 1) + body_of(body + b"1"))) == 1


def test_a_frame_that_is_too_large_is_refused_by_its_head_not_when_all_has_come():
    decoder = greeted()
    head = struct.pack(">BHI", BODY, 1, FRAME_MAX - OVERHEAD + 1)
    [(arrived, _)] = decoder.feed(head + b"a")
    assert arrived.method.reply is Reply.FRAME_ERROR


def test_a_body_of_the_largest_size_passes_and_a_larger_one_costs_its_channel_only():
    decoder = greeted(max_body=10)
    largest = BEGUN + header_of(10) + body_of(bytes(10))
    assert shown(decoder.feed(largest)) == [(1, PUBLISH, props.NONE, bytes(10))]
    other = method_frame(2, PUBLISH)
    [(arrived, _)] = decoder.feed(BEGUN + header_of(11, properties=packed({props.TYPE: "t"})))
    assert (arrived.channel, arrived.method.reply) == (1, Reply.CONTENT_TOO_LARGE)
    assert not arrived.method.reply.ends_connection
    before = decoder.held
    assert (
        decoder.feed(body_of(bytes(5)) + other + header_of(2, 2) + body_of(b"ab", 2) + body_of(bytes(5)))
        != []
    )
    assert decoder.held == before
    assert decoder.missing == OVERHEAD
    assert decoder.feed(body_of(b"1")) == []
    assert decoder.held == 0
    assert len(decoder.feed(BEGUN + header_of(0))) == 1, "the channel goes on"


def test_a_client_may_answer_the_close_of_its_channel_in_the_middle_of_a_body_that_is_dropped():
    decoder = greeted(max_body=10)
    decoder.feed(BEGUN + header_of(11) + body_of(b"a"))
    assert shown(decoder.feed(method_frame(1, ChannelCloseOk()))) == [(1, ChannelCloseOk(), props.NONE, b"")]
    assert (decoder.held, decoder.missing) == (0, OVERHEAD)
    assert len(decoder.feed(BEGUN + header_of(0))) == 1
    decoder.feed(BEGUN + header_of(11))
    [(arrived, _)] = decoder.feed(method_frame(1, ChannelCloseOk()) + body_of(b"a"))[1:]
    assert arrived.method.reply is Reply.UNEXPECTED_FRAME


def test_more_than_announced_of_a_body_that_is_dropped_is_an_error_still():
    decoder = greeted(max_body=10)
    found = decoder.feed(BEGUN + header_of(11) + body_of(bytes(12)))
    assert [arrived.method.reply for arrived, _ in found] == [Reply.CONTENT_TOO_LARGE, Reply.UNEXPECTED_FRAME]
    assert is_over(decoder)


def test_a_channel_that_is_forgotten_leaves_nothing_of_its_content():
    for begun in (
        BEGUN,
        BEGUN + header_of(9),
        BEGUN + header_of(9) + body_of(b"abc"),
        BEGUN + header_of(MAX_BODY + 1),
    ):
        decoder = greeted()
        decoder.feed(begun + method_frame(2, PUBLISH) + header_of(7, 2))
        decoder.forget(1)
        left = decoder.held
        decoder.forget(1)
        decoder.forget(3)
        assert decoder.held == left > 0
        assert decoder.missing == OVERHEAD
        assert shown(decoder.feed(BEGUN + header_of(0))) == [(1, PUBLISH, props.NONE, b"")]
        decoder.forget(2)
        assert (decoder.held, decoder.missing) == (0, OVERHEAD)


# -- work by parts -----------------------------------------------------------------------------------


@given(streams(), CUTS, st.integers(1, 20_000), st.integers(0, 5_000))
def test_work_that_is_taken_in_parts_gives_the_same(stream, cuts, work, each):
    frames, wanted = stream
    decoder, found, taken = greeted(), [], 0
    for piece in cut(b"".join(frames), cuts):
        decoder.add(piece)
        while decoder.uncut:
            some = decoder.take(work, each)
            taken += decoder.taken
            assert decoder.taken + each * len(some) <= work + FRAME_MAX + each
            assert decoder.missing > 0
            found += shown(some)
    assert (found, taken, decoder.held) == (wanted, sum(map(len, frames)), 0)


def test_taking_stops_at_the_bound_of_work_and_goes_on_there():
    frame = method_frame(1, ACK)
    decoder = greeted()
    assert len(decoder.feed(frame * 10, 2 * len(frame) + 1)) == 3
    assert (decoder.taken, decoder.uncut) == (3 * len(frame), 7 * len(frame))
    assert len(decoder.take(3 * (len(frame) + 100), 100)) == 3
    assert decoder.take(0) == []
    assert (decoder.taken, decoder.uncut) == (0, 4 * len(frame))
    decoder.add(frame)
    assert len(decoder.take()) == 5
    assert (decoder.taken, decoder.uncut, decoder.take()) == (5 * len(frame), 0, [])
    assert decoder.taken == 0


def test_only_what_is_found_is_work_beside_its_bytes():
    ack, decoder = method_frame(1, ACK), greeted()
    begins = BEGUN + header_of(1)
    stream = ack + HEARTBEAT_FRAME * 9 + begins + body_of(b"a") + ack * 2
    found = decoder.feed(stream, len(stream) - 2 * len(ack) + 2 * 1_000, 1_000)
    assert len(found) == 2
    assert decoder.uncut == 2 * len(ack)


def test_a_method_that_is_not_about_a_content_needs_none():
    assert shown(greeted().feed(method_frame(1, ConfirmSelect(True)))) == [
        (1, ConfirmSelect(True), props.NONE, b"")
    ]
