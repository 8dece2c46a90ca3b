"""Test that hostile bytes give one error, in bounded memory and time."""

import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.amqp.amqp_bytes import (
    FRAME_MAX,
    MAX_BODY,
    greeted,
    packed,
)
from tests.amqp.frame_streams import (
    ACK,
    BEGUN,
    CUTS,
    PUBLISH,
    body_of,
    cut,
    header_of,
    is_over,
    outcome_of,
    streams,
)
from tests.support.processor_time import least_time
from txbroker.amqp import properties as props
from txbroker.amqp.framing import (
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    OVERHEAD,
    AmqpDecoder,
    frame_of,
    method_frame,
)
from txbroker.amqp.methods import BasicPublish

pytestmark = pytest.mark.slow


# -- hostile bytes -----------------------------------------------------------------------------------


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


def test_asking_what_is_missing_takes_no_longer_with_a_content_on_every_channel():
    few, many = greeted(), greeted()
    for channel in range(50_000):
        (few if channel < 2 else many).feed(method_frame(channel, PUBLISH) + header_of(9, channel))

    def ask(decoder):
        return lambda: [(decoder.missing, decoder.held) for _ in range(1_000)]

    assert least_time(ask(many)) < 10 * least_time(ask(few)) + 0.01


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
    assert least_time(taking(2 * count)) < 2.5 * least_time(taking(count)) + 0.02


def test_a_large_frame_that_comes_in_small_pieces_takes_twice_the_time_for_twice_the_size():
    def taking(size):
        data = BEGUN + header_of(size) + body_of(bytes(size))

        def call():
            decoder = greeted(max_body=size, frame_max=size + OVERHEAD)
            found = [each for n in range(0, len(data), 16) for each in decoder.feed(data[n : n + 16])]
            assert [len(body) for _, body in found] == [size]

        return call

    assert least_time(taking(2 << 20)) < 2.5 * least_time(taking(1 << 20)) + 0.02


def test_a_body_in_many_frames_takes_twice_the_time_for_twice_the_size():
    def taking(size):
        data = BEGUN + header_of(size) + body_of(bytes(64)) * (size // 64)

        def call():
            [(_, body)] = greeted(max_body=size).feed(data)
            assert len(body) == size

        return call

    assert least_time(taking(2 << 20)) < 2.5 * least_time(taking(1 << 20)) + 0.02
