"""Frames: what is written is read back, and whatever is not a frame is refused in one way.

Seen to fail: without the guard for nesting RecursionError escapes `check_run`; with the length check of inner
frames removed `struct.error` does; with `count` believed instead of counted, the offsets after a wrapper jump.
"""

import contextlib
from collections import UserDict

import pytest
from crc32c import crc32c
from hypothesis import assume, example, given
from hypothesis import strategies as st

from journal.constants import MAX_ATTRIBUTE
from journal.errors import InvalidFrame, MessageTooLarge
from journal.formats import frame
from journal.formats.frame import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER,
    INNER_HEADER_BYTES,
    TOMBSTONE,
    VERSION,
    WRAPPER,
)
from journal.formats.frame_check import check_run

TIME, APPENDED = 1_357_034_400_000_000, 1_357_034_400_000_777
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
HEADERS = st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3)
BODIES = st.tuples(
    st.none() | st.binary(max_size=40), TIMES, st.none() | st.binary(max_size=10), st.none() | HEADERS
)
BATCHES = st.lists(st.lists(BODIES, min_size=1, max_size=4), min_size=1, max_size=5)


def made(flag=VERSION, attribute=b"", payload=b"", count=1, length=None, attribute_length=None, stamp=(0, 0)):
    """A frame whose checksum is right, whatever else it says."""
    length = HEADER_BYTES + len(attribute) + len(payload) if length is None else length
    claimed = len(attribute) if attribute_length is None else attribute_length
    packed = HEADER.pack(length, 0, *stamp, TIME, count, flag, claimed) + attribute + payload
    return packed[:4] + crc32c(packed[CRC_START:]).to_bytes(4, "big") + packed[8:]


def inner(*values):
    return b"".join(frame.encode_inner(n, value, TIME) for n, value in enumerate(values))


def wrapped(payload, count):
    return frame.encode_wrapper(payload, count, TIME)


def run_of(batches):
    """Batches of one as plain frames, larger ones as wrappers."""
    parts = []
    for batch in batches:
        if len(batch) == 1:
            parts.append(frame.encode(*batch[0]))
        else:
            inside = b"".join(frame.encode_inner(n, *body) for n, body in enumerate(batch))
            parts.append(frame.encode_wrapper(inside, len(batch), TIME))
    return b"".join(parts)


def stamped(run, base):
    copy = bytearray(run)
    assert frame.stamp(memoryview(copy), base, APPENDED) - base == check_run(run)
    return bytes(copy)


@given(BATCHES, st.integers(0, 1 << 40))
def test_what_was_encoded_is_decoded_with_dense_offsets(batches, base):
    found = frame.decode_run(stamped(run_of(batches), base))
    bodies = [body for batch in batches for body in batch]
    assert [(m.value, m.timestamp, m.key, m.headers) for m in found] == [
        (value, time, key, tuple((headers or {}).items())) for value, time, key, headers in bodies
    ]
    assert [m.offset for m in found] == list(range(base, base + len(bodies)))
    assert {m.appended for m in found} == {APPENDED}


@given(BATCHES, st.integers(0, 1 << 40))
def test_what_a_log_stamps_is_outside_of_the_checksum_and_can_be_taken_off_again(batches, base):
    run = run_of(batches)
    whole = stamped(run, base)
    assert frame.unstamped(whole) == run
    assert all(frame.is_sound(whole[at : at + length]) for at, length, _, _ in frame.walk(whole))
    for (at, *_), (_, length, offset, _) in zip(frame.walk(run), frame.walk(whole), strict=True):
        stamp = offset.to_bytes(8) + APPENDED.to_bytes(8)
        assert whole[at : at + length] == run[at : at + 8] + stamp + run[at + 24 : at + length]


def test_inner_frames_are_those_of_single_messages_without_the_append_time():
    alone = frame.encode(b"value", TIME, b"key", {"h": b"v"})
    inside = frame.encode_inner(0, b"value", TIME, b"key", {"h": b"v"})
    assert (len(alone), alone[CRC_START:]) == (len(inside) + 8, inside[16:])
    assert frame.encode_alone(inside) == alone
    two = inside + frame.encode_inner(1, b"other", TIME, b"another key")
    assert frame.bytes_beside_values(two) == len(two) - len(b"value" + b"other")


@given(BATCHES, st.integers(0, 20))
def test_decoding_from_an_offset_leaves_out_what_is_below_it(batches, start):
    run = stamped(run_of(batches), 0)
    assert frame.decode_run(run, start) == frame.decode_run(run)[start:]


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
def test_any_kind_of_bytes_will_do(kind):
    run = run_of([[(b"a", TIME, b"k", None)], [(b"b", TIME, None, None), (None, TIME, b"k", {"h": b"1"})]])
    assert check_run(kind(run)) == 3
    decoded = frame.decode_run(kind(stamped(run, 4)))
    assert [m.value for m in decoded] == [b"a", b"b", None]
    assert {type(m.value) for m in decoded} == {bytes, type(None)}


@pytest.mark.parametrize("kind", [list, tuple, lambda pairs: dict(enumerate(pairs)).values()])
def test_a_header_may_come_twice_and_keeps_its_place(kind):
    pairs = (("a", b"1"), ("", b"2"), ("a", b"3"), ("b", b""), ("", b""))
    (message,) = frame.decode_run(frame.encode(b"v", TIME, None, kind(pairs)))
    assert message.headers == pairs
    assert dict(message.headers) == {"a": b"3", "": b"", "b": b""}
    assert [message.header(name) for name in ("a", "", "b", "c")] == [b"3", b"", b"", None]
    assert check_run(frame.encode(b"v", TIME, None, kind(pairs))) == 1


def test_headers_given_as_a_mapping_are_its_pairs():
    given = frame.encode(b"v", TIME, b"k", {"a": b"1", "b": b"2"})
    assert given == frame.encode(b"v", TIME, b"k", [("a", b"1"), ("b", b"2")])
    assert given == frame.encode(b"v", TIME, b"k", UserDict({"a": bytearray(b"1"), "b": memoryview(b"2")}))
    assert (
        frame.encode(b"v", TIME, None, []) == frame.encode(b"v", TIME, None, {}) == frame.encode(b"v", TIME)
    )


def test_decoding_skips_the_checksums_of_what_is_not_asked_for_only():
    first, second = frame.encode(b"a", TIME), frame.encode(b"b", TIME)
    run = bytearray(first + second)
    frame.stamp(memoryview(run), 10, APPENDED)
    run[len(first) - 5] ^= 1
    assert [m.offset for m in frame.decode_run(run, 11)] == [11]
    with pytest.raises(InvalidFrame, match=r"at 0 \(offset 10\) fails its checksum"):
        frame.decode_run(run, 10)


NESTED = b"\x93\xc0\x90" + b"\x91" * 100_000 + b"\x01"
"""An attribute with a third field, as a later version might have, that nests deeper than any decoder goes."""

REFUSED = {
    "nothing": (b"", "no frames"),
    "zero bytes": (bytes(4096), "says 0 bytes"),
    "a header cut short": (frame.encode(b"a", TIME)[:43], "43 bytes at 0 are too few"),
    "a payload cut short": (frame.encode(b"abc", TIME)[:-1], "says 47 bytes, 46 are there"),
    "a second one cut short": (frame.encode(b"a", TIME) * 2 + b"\0", "1 bytes at 90"),
    "a length below the header": (made(length=43), "says 43 bytes"),
    "one with an offset": (made(stamp=(1, 0)), "has offset 1 and append time 0"),
    "one with an append time": (made(stamp=(0, -1)), "has offset 0 and append time -1"),
    "a flipped bit": (frame.encode(b"abc", TIME)[:-1] + b"b", "fails its checksum"),
    "no version": (made(flag=0), "flag 0x0"),
    "the next version": (made(flag=VERSION + 0x01000000), f"flag {VERSION + 0x01000000:#x}"),
    "compression": (made(flag=VERSION | 0x10), f"flag {VERSION | 0x10:#x}"),
    "an unknown flag": (made(flag=VERSION | 0x4), f"flag {VERSION | 0x4:#x}"),
    "no message": (made(count=0), "says 0 messages"),
    "two messages": (made(count=2), "says 2 messages"),
    "a tombstone with a value": (made(flag=VERSION | TOMBSTONE, payload=b"v"), "tombstone with a value"),
    "an attribute beyond the frame": (made(attribute_length=1), "says 1 attribute bytes"),
    "a key of 2 GiB in 10 bytes": (made(attribute=b"\x92\xc6\x80\0\0\0" + b"k" * 4), "key and headers"),
    "2^32 headers in 10 bytes": (made(attribute=b"\x92\xc0\xdd\xff\xff\xff\xff\xa1aa"), "key and headers"),
    "an attribute of another type": (made(attribute=b"\x01"), "key and headers"),
    "a header name that is no UTF-8": (made(attribute=b"\x92\xc0\x91\x92\xa1\xff\xc4\0"), "key and headers"),
    "a header that is no pair": (made(attribute=b"\x92\xc0\x91\x91\xa1a"), "key and headers"),
    "a header of three": (made(attribute=b"\x92\xc0\x91\x93\xa1a\xc4\0\xc4\0"), "key and headers"),
    "a header without a name": (made(attribute=b"\x92\xc0\x91\x92\xc0\xc4\0"), "key and headers"),
    "a header whose value is text": (made(attribute=b"\x92\xc0\x91\x92\xa1a\xa1a"), "key and headers"),
    "a header whose value is nil": (made(attribute=b"\x92\xc0\x91\x92\xa1a\xc0"), "key and headers"),
    "headers as a map, as in version 1": (made(attribute=b"\x92\xc0\x81\xa1a\xc4\0"), "key and headers"),
    "nesting without end": (made(attribute=NESTED), "key and headers"),
    "bytes after the attribute": (made(attribute=b"\x92\xc0\x90\0"), "key and headers"),
    "an empty wrapper": (wrapped(b"", 0), "holds no frames"),
    "a wrapper that says too many": (wrapped(inner(b"a"), 2), "says 2 messages, it holds 1"),
    "a wrapper that says too few": (wrapped(inner(b"a", b"b"), 1), "says 1 messages, it holds 2"),
    "a wrapper with a key": (made(WRAPPER | VERSION, b"\x92\xc0\x90", inner(b"a")), "wrapper at 0"),
    "a wrapper as a tombstone": (made(WRAPPER | TOMBSTONE | VERSION, b"", inner(b"a")), "wrapper at 0"),
    "a wrapper in a wrapper": (
        wrapped(made(WRAPPER | VERSION, b"", inner(b"a")), 1),
        "frame 0 in the wrapper",
    ),
    "an inner header cut short": (wrapped(inner(b"a")[:20], 1), "has only 20 bytes"),
    "an inner frame cut short": (wrapped(inner(b"abc")[:-1], 1), "says 39 bytes, 38 are there"),
    "an inner one with a checksum": (wrapped(frame.encode(b"a", TIME), 1), "frame 0 in the wrapper"),
    "inner ones out of order": (wrapped(inner(b"a", b"b")[37:] + inner(b"a"), 2), "number 1"),
    "an inner one of two messages": (wrapped(INNER_HEADER.pack(36, 0, 0, TIME, 2, VERSION, 0), 1), "count 2"),
    "an inner attribute that goes on into the next": (
        wrapped(
            INNER_HEADER.pack(39, 0, 0, TIME, 1, VERSION, 4) + b"\x93\xc0\x90" + inner(b"", b"b")[36:], 2
        ),
        "frame 0 in the wrapper at 0 says 39 bytes",
    ),
    "an inner length of zero": (wrapped(bytes(40), 1), "frame 0 in the wrapper"),
    "an inner tombstone with a value": (
        wrapped(INNER_HEADER.pack(37, 0, 0, TIME, 1, VERSION | TOMBSTONE, 0) + b"v", 1),
        f"flag {VERSION | TOMBSTONE:#x} and 1 bytes of value",
    ),
    "an inner key that nests": (
        wrapped(
            INNER_HEADER.pack(INNER_HEADER_BYTES + len(NESTED), 0, 0, TIME, 1, VERSION, len(NESTED)) + NESTED,
            1,
        ),
        "key and headers of frame 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_is_not_sound_is_refused_and_the_position_named(name):
    data, words = REFUSED[name]
    with pytest.raises(InvalidFrame, match=words.replace("^", r"\^")) as caught:
        check_run(data)
    assert "nothing was stored" in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_after_a_sound_frame_and_out_of_the_middle_of_a_view(name):
    sound = frame.encode(b"a", TIME)
    data = sound + REFUSED[name][0]
    if name != "nothing":
        with pytest.raises(InvalidFrame):
            check_run(memoryview(b"xx" + data + b"xx")[2:-2])


def test_a_frame_over_the_limit_is_too_large_and_one_at_it_is_not():
    data = frame.encode(b"x" * 56, TIME)
    assert check_run(data, 100) == 1
    with pytest.raises(MessageTooLarge, match=r"100 bytes at 0, the limit is 99"):
        check_run(data, 99)


def attribute_of(size):
    return b"\x92\xc6" + (size - 7).to_bytes(4, "big") + b"k" * (size - 7) + b"\x90"


@pytest.mark.parametrize("excess", [0, 1])
def test_key_and_headers_have_a_limit_for_every_way_to_send_them(excess):
    attribute = attribute_of(MAX_ATTRIBUTE + excess)
    size = len(attribute)
    header = INNER_HEADER.pack(INNER_HEADER_BYTES + size, 0, 0, TIME, 1, VERSION, size)
    plain, batch = made(attribute=attribute), wrapped(header + attribute, 1)
    if excess:
        with pytest.raises(MessageTooLarge, match="the limit is 1048576"):
            frame.encode(b"", TIME, key=attribute[6:-1])
        for data in (plain, batch):
            with pytest.raises(InvalidFrame, match="1048577 attribute bytes"):
                check_run(data)
    else:
        assert frame.encode(b"", TIME, key=attribute[6:-1])[HEADER_BYTES:] == attribute
        assert check_run(plain) == check_run(batch) == 1


def check_either_way(data):
    """Whatever the bytes are: they are refused by name, or are what a later reader takes them for."""
    try:
        count = check_run(data, 2000)
    except (InvalidFrame, MessageTooLarge):
        return None
    found = frame.decode_run(stamped(data, 1000))
    assert [m.offset for m in found] == list(range(1000, 1000 + count))
    assert sum(entry[3] for entry in frame.walk(data)) == count
    return count


U32 = st.sampled_from([0, 1, 2, 3, 35, 36, 37, 43, 44, 45, 72, 88, 0x7FFFFFFF, 0xFFFFFFFF]) | st.integers(
    0, 60
)
FLAGS = st.sampled_from([VERSION, VERSION | TOMBSTONE, VERSION | WRAPPER, 0]) | st.integers(0, 0xFFFFFFFF)
ATTRIBUTES = st.sampled_from(
    [b"", b"\x92\xc0\x90", b"\x92\xc4\x01k\x90", b"\x92\xc0\x91\x92\xa1h\xc4\0", b"\x90"]
)


@st.composite
def hostile_frames(draw, depth=1):
    """Frames with any field lying, inner frames too, whose checksum is right all the same."""
    attribute = draw(ATTRIBUTES | st.binary(max_size=6))
    flag = draw(FLAGS)
    if depth and flag & WRAPPER:
        payload = b"".join(draw(st.lists(hostile_frames(depth=0), max_size=3)))
    else:
        payload = draw(st.binary(max_size=8))
    true = (HEADER_BYTES if depth else INNER_HEADER_BYTES) + len(attribute) + len(payload)
    length = draw(st.just(true) | st.just(true) | U32)
    claimed = draw(st.just(len(attribute)) | st.just(len(attribute)) | U32)
    count, offset = draw(st.sampled_from([1, 1, 2, 3, 0]) | U32), draw(st.sampled_from([0, 0, 1, 2]))
    content = attribute + payload
    if not depth:
        return INNER_HEADER.pack(length, 0, offset, 0, count, flag, claimed) + content
    appended = draw(st.sampled_from([0, 0, 0, 1]))
    packed = HEADER.pack(length, 0, offset, appended, 0, count, flag, claimed) + content
    return packed[:4] + crc32c(packed[CRC_START:]).to_bytes(4, "big") + packed[8:]


@given(st.lists(hostile_frames(), min_size=1, max_size=4).map(b"".join))
def test_frames_that_lie_under_a_right_checksum_are_refused_or_true(data):
    check_either_way(data)


@given(st.binary(max_size=200))
@example(bytes(44))
@example(b"\xff" * 100)
def test_garbage_is_refused_or_true(data):
    check_either_way(data)


@given(BATCHES, st.data())
def test_a_changed_byte_anywhere_in_a_run_is_found(batches, data):
    run = bytearray(run_of(batches))
    position = data.draw(st.integers(0, len(run) - 1))
    run[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises((InvalidFrame, MessageTooLarge)):
        check_run(bytes(run))


@given(BATCHES, st.data())
def test_a_run_cut_anywhere_but_between_frames_is_refused(batches, data):
    run = run_of(batches)
    cut = data.draw(st.integers(1, len(run)))
    assume(cut not in {position for position, _, _, _ in frame.walk(run)} | {len(run)})
    with pytest.raises(InvalidFrame):
        check_run(run[:cut])


def with_right_checksums(run):
    """As far as its lengths go, the run as a broker with a fault, or a later one, might have stored it."""
    mended, position = bytearray(run), 0
    while len(mended) - position >= HEADER_BYTES:
        length = max(HEADER_BYTES, min(HEADER.unpack_from(mended, position)[0], len(mended) - position))
        crc = crc32c(mended[position + CRC_START : position + length])
        mended[position + 4 : position + 8] = crc.to_bytes(4, "big")
        position += length
    return bytes(mended)


@given(
    st.lists(hostile_frames(), min_size=1, max_size=4).map(b"".join) | st.binary(max_size=120), st.booleans()
)
def test_a_reader_of_unchecked_bytes_gets_messages_or_one_kind_of_error(data, mend):
    for reader in (frame.decode_run, lambda run: list(frame.walk(run))):
        with contextlib.suppress(InvalidFrame):
            reader(with_right_checksums(data) if mend else data)


BORROWING = made(attribute_length=4, payload=b"\x93\xc0\x90") + made()
"""Its attribute would be whole with the first byte of the next frame."""
UNREADABLE = (
    "nesting without end",
    "an inner header cut short",
    "an inner key that nests",
    "the next version",
)


@pytest.mark.parametrize("data", [BORROWING, *(REFUSED[name][0] for name in UNREADABLE)])
def test_a_reader_refuses_what_no_broker_would_have_stored(data):
    with pytest.raises(InvalidFrame):
        frame.decode_run(data)


@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_compares_a_wrappers_count_with_what_it_holds(count):
    with pytest.raises(InvalidFrame, match=f"says {count} messages, it holds 2"):
        frame.decode_run(wrapped(inner(b"a", b"b"), count))


def test_one_frame_is_sound_or_not():
    data = frame.encode(b"abc", TIME)
    assert frame.is_sound(data)
    assert not frame.is_sound(data[:-1])
    assert not frame.is_sound(data[:20])
    assert not frame.is_sound(bytes(44)[:-1] + b"\1")


@pytest.mark.parametrize(
    ("key", "headers", "says"),
    [
        ("42", None, "^key is of type str; it must be bytes"),
        (None, {"kind": "new"}, "^the value of header 'kind' is of type str; it must be bytes"),
        (b"42", {b"kind": b"new"}, "^the name of a header is b'kind', of type bytes; it must be a str"),
        (None, [("kind", "new")], "^the value of header 'kind' is of type str; it must be bytes"),
        (None, [(b"kind", b"new")], "^the name of a header is b'kind', of type bytes; it must be a str"),
        (None, ["ab"], "^one of headers is of type str, and no pair; headers must be a dict"),
        (None, [("a", b"b", b"c")], "^one of headers is of type tuple, and no pair"),
        (
            None,
            iter([("a", b"b")]),
            "^headers is an iterator, of type list_iterator; it must be what can be gone through again",
        ),
        (None, "ab", "^headers is of type str; it must be a dict"),
        (None, 5, "^headers is of type int; it must be a dict"),
    ],
)
def test_text_is_no_key_and_no_header(key, headers, says):
    for encode in (
        lambda: frame.encode(b"a", TIME, key, headers),
        lambda: frame.encode_inner(0, b"a", TIME, key, headers),
    ):
        with pytest.raises(TypeError, match=says):
            encode()
