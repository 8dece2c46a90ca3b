"""Test frames: cuts do not matter, contents come in turn, and hostile bytes give one error, in bounded memory and time.

The judge of the frames themselves is pamqp.
"""

import itertools
import struct
import time
import tracemalloc

import pamqp.frame
import pytest
from hypothesis import example, given, settings
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
from txbroker.amqp.methods import BasicAck, BasicPublish, ConfirmSelect
from txbroker.amqp.reply_codes import AmqpError, Reply

pytestmark = pytest.mark.slow

PUBLISH = BasicPublish(0, "e", "k", False, False)
ACK = BasicAck(7, False)
BEGUN = method_frame(1, PUBLISH)


def header_of(size, channel=1, properties=props.NONE, kind=60):
    return frame_of(HEADER, channel, struct.pack(">HHQ", kind, 0, size) + properties)


def body_of(octets, channel=1):
    return frame_of(BODY, channel, octets)


@st.composite
def streams(draw, most=4):
    """Frames of several channels in turn, and what they are once they are all there."""
    sent = [
        [(channel, each) for each in draw(st.lists(ANY_METHOD | PUBLISHED, max_size=most))]
        for channel in draw(st.lists(st.integers(0, 65535), min_size=1, max_size=3, unique=True))
    ]
    queues = [
        [
            (frame, channel, each if last else None)
            for channel, each in one
            for frame, last in marked(frames_of(channel, each))
        ]
        for one in sent
    ]
    frames, wanted = [], []
    while queues := [each for each in queues if each]:
        frame, channel, whole = draw(st.sampled_from(queues)).pop(0)
        frames.append(frame)
        if draw(st.integers(0, 9)) == 0:
            frames.append(HEARTBEAT_FRAME)
        if isinstance(whole, tuple):
            wanted.append((channel, *whole))
        elif whole is not None:
            wanted.append((channel, whole, props.NONE, b""))
    return frames, wanted


def marked(frames):
    return [(frame, n == len(frames) - 1) for n, frame in enumerate(frames)]


def cut(stream, cuts):
    edges = [0, *sorted(each % (len(stream) + 1) for each in cuts), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)


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


def is_over(decoder):
    """It keeps nothing, and takes nothing more."""
    assert (decoder.held, decoder.uncut, decoder.missing) == (0, 0, OVERHEAD)
    decoder.add(method_frame(1, ACK))
    assert decoder.take() == decoder.feed(method_frame(1, ACK)) == []
    assert (decoder.held, decoder.uncut, decoder.taken) == (0, 0, 0)
    return True


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


# -- hostile bytes -----------------------------------------------------------------------------------


def outcome_of(pieces, decoder=None):
    """Whatever the bytes are: things in their order, at most one error that ends the connection, and it is the last."""
    decoder = decoder or greeted()
    found = []
    for piece in pieces:
        some = decoder.feed(piece)
        assert decoder.missing > 0
        assert decoder.held <= 20 * decoder.came + 20_000
        found += some
    errors = [arrived.method for arrived, _ in found if isinstance(arrived.method, AmqpError)]
    ends = [each.reply.ends_connection for each in errors]
    assert True not in ends[:-1]
    if True in ends:
        assert found[-1][0].method is errors[-1]
        assert is_over(decoder)
    return found


@given(st.binary(max_size=100), CUTS)
@example(bytes(50), [])
@example(b"\xff" * 50, [])
def test_garbage_is_an_error_or_waits_for_more(data, cuts):
    outcome_of(cut(data, cuts))
    outcome_of(cut(data, cuts), AmqpDecoder(MAX_BODY))
    for kind in (METHOD, HEADER, BODY, HEARTBEAT):
        outcome_of([BEGUN, *cut(frame_of(kind, 1, data), cuts)])
        outcome_of(cut(frame_of(kind, 2, data), cuts))


@given(streams(most=2), CUTS, st.data())
def test_changed_bytes_make_an_error_or_other_things(stream, cuts, data):
    octets = bytearray(b"".join(stream[0]) or HEARTBEAT_FRAME)
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    outcome_of(cut(bytes(octets), cuts))


@given(streams(most=2), CUTS, st.data())
def test_bytes_put_in_or_left_out_make_an_error_or_other_things(stream, cuts, data):
    octets = b"".join(stream[0])
    start = data.draw(st.integers(0, len(octets)))
    end = data.draw(st.integers(start, len(octets)))
    outcome_of(cut(octets[:start] + data.draw(st.binary(max_size=10)) + octets[end:], cuts))


@given(streams(most=2), st.data())
def test_frames_left_out_or_said_twice_make_an_error_or_other_things(stream, data):
    frames = stream[0]
    chosen = data.draw(st.lists(st.sampled_from(frames), max_size=12)) if frames else []
    outcome_of(chosen)


# -- bounded memory and time -------------------------------------------------------------------------


def kept_by(feed):
    """The bytes that are allocated when the call has returned, and the most in between."""
    tracemalloc.start()
    try:
        feed()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


LONG = "a" * 251 + "\U0001f600"
UNFINISHED = {
    "short strings": (BasicPublish(0, "", "", False, False), b""),
    "the widest strings": (BasicPublish(0, LONG, LONG, False, False), b""),
    "properties": (
        PUBLISH,
        props.made_of({props.TYPE: "a" * 255, props.APP_ID: "b" * 255}, {"c": "d" * 2_000}),
    ),
}


@pytest.mark.parametrize("kind", UNFINISHED)
@pytest.mark.parametrize("body", [None, b"", b"ab", bytes(300)])
def test_every_byte_of_contents_on_2047_channels_is_counted(kind, body):
    method, properties = UNFINISHED[kind]
    decoder = greeted(frame_max=131_072)

    def feed():
        for channel in range(1, 2_048):
            data = method_frame(channel, method)
            if body is not None:
                data += header_of(1_000, channel, properties or props.NONE)
                data += body_of(body[:100], channel) + body_of(body[100:], channel)
            assert decoder.feed(data) == []

    kept, _ = kept_by(feed)
    assert kept < decoder.held < 4 * kept
    announced = 1_000 - len(body) if body is not None else 0
    assert decoder.missing == max(2_047 * announced, OVERHEAD)
    for channel in range(1, 2_048):
        decoder.forget(channel)
    assert (decoder.held, decoder.missing) == (0, OVERHEAD)


def test_bodies_that_are_dropped_take_little_and_are_counted():
    decoder = greeted(max_body=10)

    def feed():
        for channel in range(1, 2_048):
            decoder.feed(method_frame(channel, BasicPublish(0, LONG, LONG, False, False)))
            decoder.feed(
                header_of(1_000, channel, packed({props.TYPE: "a" * 255})) + body_of(bytes(500), channel)
            )

    kept, _ = kept_by(feed)
    assert kept < decoder.held < 2_048 * 1_000


def test_after_an_error_the_memory_of_contents_is_free():
    decoder = greeted()

    def feed():
        for channel in range(1, 1_000):
            decoder.feed(
                method_frame(channel, PUBLISH) + header_of(1_000, channel) + body_of(bytes(500), channel)
            )
        decoder.feed(bytes(8))

    assert kept_by(feed)[0] < 50_000
    assert is_over(decoder)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_body_in_tiny_frames_takes_no_more_than_its_size_and_a_half(size):
    count = (1 << 16) // size * (1 + (size > 2))
    decoder = greeted()
    decoder.feed(BEGUN + header_of((count + 1) * size))
    piece = b"".join(body_of(bytes((n % 256,)) * size) for n in range(256))

    def feed():
        for _ in range(count // 256):
            assert decoder.feed(piece) == []

    kept, most = kept_by(feed)
    assert kept < decoder.held * 1.2
    assert most < 1.5 * count * size + 100_000


def test_claiming_much_reserves_nothing():
    claims = (
        BEGUN + header_of(MAX_BODY) + struct.pack(">BHI", BODY, 1, FRAME_MAX - OVERHEAD),
        BEGUN + header_of((1 << 64) - 1),
        struct.pack(">BHI", METHOD, 1, FRAME_MAX - OVERHEAD),
    )
    for claim in claims:
        assert kept_by(lambda claim=claim: outcome_of([claim]))[1] < 100_000


def took(call):
    """The least processor time of several calls, in seconds."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def test_asking_what_is_missing_takes_no_longer_with_a_content_on_every_channel():
    few, many = greeted(), greeted()
    for channel in range(50_000):
        (few if channel < 2 else many).feed(method_frame(channel, PUBLISH) + header_of(9, channel))

    def ask(decoder):
        return lambda: [(decoder.missing, decoder.held) for _ in range(1_000)]

    assert took(ask(many)) < 10 * took(ask(few)) + 0.01


STREAMS = {
    "of acknowledgements": lambda n: method_frame(1, ACK),
    "of heartbeats": lambda n: HEARTBEAT_FRAME,
    "of contents": lambda n: BEGUN + header_of(2) + body_of(b"ab"),
    "of contents that begin": lambda n: method_frame(n, PUBLISH) + header_of(9, n),
    "of a body": lambda n: body_of(b"ab") if n else BEGUN + header_of(MAX_BODY),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("way", ["at once", "in parts", "byte by byte"])
def test_a_stream_of_twice_the_frames_takes_twice_the_time(kind, way):
    def taking(count):
        data = b"".join(STREAMS[kind](n) for n in range(count))

        def call():
            decoder = greeted()
            if way == "byte by byte":
                for n in range(len(data)):
                    decoder.feed(data[n : n + 1])
            else:
                decoder.add(data)
                while decoder.uncut:
                    decoder.take(500 if way == "in parts" else float("inf"), 10)

        return call

    count = 500 if way == "byte by byte" else 4_000
    assert took(taking(2 * count)) < 2.5 * took(taking(count)) + 0.02


def test_a_large_frame_that_comes_in_small_pieces_takes_twice_the_time_for_twice_the_size():
    def taking(size):
        data = BEGUN + header_of(size) + body_of(bytes(size))

        def call():
            decoder = greeted(max_body=size, frame_max=size + OVERHEAD)
            found = [each for n in range(0, len(data), 16) for each in decoder.feed(data[n : n + 16])]
            assert [len(body) for _, body in found] == [size]

        return call

    assert took(taking(2 << 20)) < 2.5 * took(taking(1 << 20)) + 0.02


def test_a_body_in_many_frames_takes_twice_the_time_for_twice_the_size():
    def taking(size):
        data = BEGUN + header_of(size) + body_of(bytes(64)) * (size // 64)

        def call():
            [(_, body)] = greeted(max_body=size).feed(data)
            assert len(body) == size

        return call

    assert took(taking(2 << 20)) < 2.5 * took(taking(1 << 20)) + 0.02


def test_a_method_that_is_not_about_a_content_needs_none():
    assert shown(greeted().feed(method_frame(1, ConfirmSelect(True)))) == [
        (1, ConfirmSelect(True), props.NONE, b"")
    ]
