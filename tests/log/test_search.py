"""Test the search for messages by key or id in a run of frames."""

import pytest

from journal.errors import InvalidFrame
from journal.formats import compression, frame
from journal.log import search
from journal.log.search import Wanted, examine
from journal.message_headers import ID_HEADER, TAG_HEADER


def inner(*messages):
    """Frames for a wrapper, of (key, id, value)."""
    return b"".join(
        frame.encode_inner(place, value, 1, key, () if id is None else ((ID_HEADER, id),))
        for place, (key, id, value) in enumerate(messages)
    )


def stamped(*runs, base=0):
    whole = bytearray(b"".join(runs))
    frame.stamp(memoryview(whole), base, 1)
    return bytes(whole)


def single(key=None, id=None, value=b""):
    return frame.encode_alone(inner((key, id, value)))


def compressed(name, *messages):
    made = compression.compressor(name)
    return frame.encode_wrapper(made.pack(inner(*messages)), len(messages), 1, made.number)


RUN = stamped(
    single(b"a", b"1", b"first"),
    single(b"b"),
    frame.encode_wrapper(inner((b"a", None, b""), (b"c", b"2", b""), (None, b"2", b"")), 3, 1),
    single(b"a", b"2", b"last"),
    base=10,
)


def offsets(run, wanted, offset=0):
    examined = examine(run, offset, wanted)
    return [each.offset for each in examined.found]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(key=b"a"), [10, 12, 15]),
        (Wanted(id=b"2"), [13, 14, 15]),
        (Wanted(key=b"a", id=b"2"), [15]),
        (Wanted(key=b"first"), []),
        (Wanted(id=b"a"), []),
        (Wanted(key=b""), []),
        (Wanted(key=b"nowhere"), []),
    ],
)
def test_what_has_the_key_and_the_id_is_found_in_frames_and_in_batches(wanted, expected):
    assert offsets(RUN, wanted) == expected
    assert examine(RUN, 0, wanted).end == 16


def test_messages_below_the_offset_are_left_out_also_in_a_batch():
    assert offsets(RUN, Wanted(key=b"a"), 11) == [12, 15]
    assert offsets(RUN, Wanted(id=b"2"), 14) == [14, 15]
    assert examine(RUN, 16, Wanted(id=b"2")) == ([], 16)


def tagged(*tags, key=None):
    return frame.encode(b"", 1, key, [(TAG_HEADER, tag) for tag in tags])


def test_a_message_is_found_by_each_of_its_tags_and_by_nothing_else_that_says_the_same():
    run = stamped(
        tagged(b"eu", b"new"),
        tagged(b"us"),
        frame.encode(b"eu", 1, b"eu", {"eu": b"eu"}),
        tagged(b"eu", key=b"k"),
    )
    assert offsets(run, Wanted(tag=b"eu")) == [0, 3]
    assert offsets(run, Wanted(tag=b"new")) == [0]
    assert offsets(run, Wanted(key=b"k", tag=b"eu")) == [3]
    assert offsets(run, Wanted(key=b"k", tag=b"us")) == []


def test_an_empty_key_is_a_key():
    run = stamped(single(b""), single(None), single(b"x"))
    assert offsets(run, Wanted(key=b"")) == [0]


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_compressed_batches_are_opened_a_piece_at_a_time(name, monkeypatch):
    batches = [
        compressed(name, (b"k%d" % n, b"id", bytes(1000)), (b"same", None, bytes(1000))) for n in range(5)
    ]
    run = stamped(*batches)
    assert offsets(run, Wanted(key=b"k3")) == [6]
    assert offsets(run, Wanted(key=b"same")) == [1, 3, 5, 7, 9]
    monkeypatch.setattr(search, "MOST_OPENED", 4_000)
    examined = examine(run, 0, Wanted(key=b"same"))
    assert ([each.offset for each in examined.found], examined.end) == ([1, 3], 4)
    examined = examine(run, examined.end, Wanted(key=b"same"))
    assert ([each.offset for each in examined.found], examined.end) == ([5, 7], 8)


def test_a_batch_that_cannot_be_opened_is_named():
    broken = bytearray(compressed("zstd", (b"k", None, b"v" * 1000)))
    broken[-3:] = b"xyz"
    run = stamped(bytes(broken), base=7)
    with pytest.raises(InvalidFrame, match="the wrapper at offset 7"):
        examine(run, 0, Wanted(key=b"k"))
