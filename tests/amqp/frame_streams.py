"""Streams of frames, cut anywhere, and what must be so of whatever a decoder finds in bytes."""

import itertools
import struct

from hypothesis import strategies as st

from tests.amqp.amqp_bytes import (
    ANY_METHOD,
    PUBLISHED,
    frames_of,
    greeted,
)
from txbroker.amqp import properties as props
from txbroker.amqp.framing import (
    BODY,
    HEADER,
    HEARTBEAT_FRAME,
    OVERHEAD,
    frame_of,
    method_frame,
)
from txbroker.amqp.methods import BasicAck, BasicPublish
from txbroker.amqp.reply_codes import AmqpError

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


def is_over(decoder):
    """It keeps nothing, and takes nothing more."""
    assert (decoder.held, decoder.uncut, decoder.missing) == (0, 0, OVERHEAD)
    decoder.add(method_frame(1, ACK))
    assert decoder.take() == decoder.feed(method_frame(1, ACK)) == []
    assert (decoder.held, decoder.uncut, decoder.taken) == (0, 0, 0)
    return True


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
