"""Test messages found all at once: the same as one by one, and nothing of a block that is not sound.

Seen to fail: with checksums not compared, and with offsets not compared, a flipped bit passes.
"""

import random
from datetime import UTC, datetime
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.errors import InvalidFrame
from journal.formats import frame
from journal.formats.frame_check import check_run
from spark.source.columns import ORIGIN, TYPES, Columns
from spark.source.message_heads import UnsoundBlock, read_heads
from tests.support.thoroughness import examples

NAMES = [name for name in TYPES if name not in ORIGIN]
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 30))
MESSAGES = st.tuples(
    VALUES,
    st.integers(0, 1 << 50),
    st.one_of(st.none(), st.binary(max_size=10), st.just(b"k" * 300)),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=2),
)
RUNS = st.lists(
    st.one_of(st.lists(MESSAGES, min_size=1, max_size=30), MESSAGES, st.integers(17, 90)),
    min_size=1,
    max_size=8,
)


def block(runs, base=0):
    """Frames of these messages; a list makes a wrapper, a number so many frames of one length."""
    found = []
    for run in runs:
        if isinstance(run, int):
            found += [frame.encode(b"%03d" % n, n) for n in range(run)]
        elif isinstance(run, list):
            inner = [frame.encode_inner(n, v, t, k, h) for n, (v, t, k, h) in enumerate(run)]
            found.append(frame.encode_wrapper(b"".join(inner), len(inner), 7))
        else:
            found.append(frame.encode(*run))
    data = bytearray(b"".join(found))
    stamp_each(data, base)
    return bytes(data)


def test_a_gap_holds_no_message_and_counts_for_those_that_were_there():
    data = block([3, 2])
    frames = [data[at : at + length] for at, length, *_ in frame.walk(data)]
    gapped = b"".join(
        [frames[0], frame.encode_gap(1, 2), frames[3], frame.encode_gap(4, frame.MOST_IN_GAP + 5)]
    )
    heads, taken, after = read_heads(gapped, 0)
    assert (heads.offset.tolist(), taken, after) == ([0, 3], len(gapped), frame.MOST_IN_GAP + 9)
    assert [each.offset for each in frame.decode_run(gapped)] == [0, 3]
    with pytest.raises(UnsoundBlock, match="no frame of offset 1"):
        read_heads(frames[0] + frame.encode_gap(2, 1), 0)


def stamp_each(data, base):
    """As a log does with runs of one frame each, appended at different times."""
    for number, (position, length, _, _) in enumerate(frame.walk(bytes(data)), 1):
        base = frame.stamp(memoryview(data)[position : position + length], base, 10**15 + number)


def rows(data, base=0):
    heads, taken, after = read_heads(data, base)
    batch = Columns(NAMES, "orders", 3).batch(heads)
    batch.validate(full=True)
    return batch.to_pylist(), taken, after


def as_rows(messages):
    return [
        {"topic": "orders", "partition": 3, "offset": m.offset, "key": m.key, "value": m.value}
        | {"headers": [{"key": k, "value": v} for k, v in m.headers] or None, "timestampType": 0}
        for m in messages
    ]


TIMES = ("timestamp", "appended")


def without_time(found):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in found]


@given(RUNS, st.integers(0, 1 << 60))
@settings(max_examples=examples(150))
def test_a_block_gives_the_messages_that_are_decoded_of_it_one_by_one(runs, base):
    data = block(runs, base)
    expected = frame.decode_run(data)
    found, taken, after = rows(data, base)
    assert without_time(found) == as_rows(expected)
    heads = read_heads(data, base)[0]
    assert heads.timestamp.tolist() == [m.timestamp for m in expected]
    assert heads.appended.tolist() == [m.appended for m in expected]
    assert (taken, after) == (len(data), base + len(expected))


def test_an_append_time_is_shown_to_the_microsecond_and_null_where_it_is_not_known():
    inner = [frame.encode_inner(n, b"in a wrapper", n) for n in range(2)]
    data = bytearray(
        frame.encode(b"v", 1) + frame.encode_wrapper(b"".join(inner), 2, 1) + frame.encode(b"v", 1)
    )
    stamp_each(data, 0)
    first, second = (datetime(2001, 9, 9, 1, 46, 40, n, tzinfo=UTC) for n in (1, 2))
    [*found, last] = [row["appended"] for row in rows(bytes(data))[0]]
    assert found == [first, second, second]
    assert last == datetime(2001, 9, 9, 1, 46, 40, 3, tzinfo=UTC)
    assert [row["appended"] for row in rows(frame.encode(b"v", 1))[0]] == [None]


@given(RUNS, st.data())
@settings(max_examples=examples(150))
def test_a_block_that_ends_amid_a_frame_gives_the_whole_ones_before_it(runs, data):
    whole = block(runs)
    ends = [position + length for position, length, _, _ in frame.walk(whole)]
    cut = data.draw(st.integers(0, len(whole)))
    least = max((end for end in ends if end <= cut), default=0)
    found, taken, after = rows(whole[:cut])
    expected = frame.decode_run(whole[:least])
    assert without_time(found) == as_rows(expected)
    assert (taken, after) == (least, len(expected))


@pytest.mark.slow
@given(RUNS, st.data())
@settings(max_examples=examples(300))
def test_no_flipped_bit_passes(runs, data):
    whole = block(runs)
    at = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at // 8] ^= 1 << at % 8
    begins = [
        position for position, length, _, _ in frame.walk(whole) if position <= at // 8 < position + length
    ]
    damaged = bytes(damaged)
    if is_time(whole, at // 8):
        heads, taken, _ = read_heads(damaged, 0)
        assert (heads.offset.tolist(), taken) == ([m.offset for m in frame.decode_run(whole)], len(whole))
        return
    fault, found, taken = tried(damaged)
    if fault is not None:
        assert fault.position <= at // 8, "what lies before the damage is sound"
        found, taken, _ = rows(damaged[: fault.position])
    else:
        # A length that leads out of the block is taken for that of a frame that is cut off.
        assert taken == begins[0]
    assert without_time(found) == as_rows(frame.decode_run(whole[:taken]))


def is_time(whole, byte):
    """Whether that byte is of an append time, which a segment's running checksum covers, and no frame's."""
    return any(position + 16 <= byte < position + 24 for position, *_ in frame.walk(whole))


def tried(data):
    try:
        return None, *rows(data)[:2]
    except UnsoundBlock as fault:
        return fault, [], 0


def test_frames_are_not_taken_from_another_place_of_the_log():
    data = block([20, 20])
    with pytest.raises(UnsoundBlock, match="no frame of offset 7 is there") as caught:
        read_heads(data, 7)
    assert (caught.value.position, caught.value.offset) == (0, 7)
    length = len(data) // 40
    with pytest.raises(UnsoundBlock, match="no frame of offset 5 is there"):
        read_heads(data[: 5 * length] + data[6 * length :], 0)


@pytest.mark.parametrize("what", ["number", "count", "short", "crc", "nested", "too many"])
def test_a_wrapper_with_a_good_checksum_is_refused_if_what_it_holds_cannot_be(what):
    inner = bytearray(b"".join(frame.encode_inner(n, b"x" * 9, n) for n in range(4)))
    at, length, count = 2 * (36 + 9), 36 + 9, 4
    if what == "number":
        pack_into(">Q", inner, at + 8, 1)
    elif what == "count":
        pack_into(">I", inner, at + 24, 2)
    elif what == "short":
        pack_into(">I", inner, 3 * length, length + 9)
        inner += frame.encode(b"", 1)[:9]
        inner = inner[: 4 * length]
    elif what == "crc":
        pack_into(">I", inner, at + 4, 1)
    elif what == "nested":
        pack_into(">I", inner, at + 28, frame.VERSION | frame.WRAPPER)
    else:
        count = 5
    data = bytearray(frame.encode_wrapper(bytes(inner), count, 1) + frame.encode(b"next", 1))
    pack_into(">Q", data, len(data) - 48 + 8, 4)
    with pytest.raises(UnsoundBlock):
        read_heads(bytes(data), 0)
    with pytest.raises(InvalidFrame):
        check_run(frame.encode_wrapper(bytes(inner), count, 1))


@pytest.mark.parametrize(
    ("flag", "attribute"), [(0, 0), (0x02000008, 0), (0x01000000, 0), (0x03000000, 0), (0x02000000, 200)]
)
def test_frames_of_a_form_that_is_not_known_here_are_refused(flag, attribute):
    from crc32c import crc32c

    data = bytearray(frame.encode(b"x" * 50, 1))
    pack_into(">II", data, 36, flag, attribute)
    pack_into(">I", data, 4, crc32c(bytes(data[frame.CRC_START :])))
    with pytest.raises(UnsoundBlock, match="cannot be read here"):
        read_heads(bytes(data), 0)


def test_the_place_of_messages_that_a_repair_found_lost_is_damage_that_says_so():
    data = block([3]) + frame.encode_lost(3, 5, 200) + block([2], 8)
    with pytest.raises(UnsoundBlock, match=r"lost before a repair, see repairs\.json") as caught:
        read_heads(data, 0)
    assert (caught.value.offset, caught.value.end, caught.value.position) == (3, 8, 3 * 47)


def test_a_key_that_another_client_has_packed_otherwise_is_read_all_the_same():
    from crc32c import crc32c

    def packed(attribute):
        tail = (1).to_bytes(8, "big") + (1).to_bytes(4, "big") + frame.VERSION.to_bytes(4, "big")
        tail += len(attribute).to_bytes(4, "big") + attribute
        return (len(tail) + 24).to_bytes(4, "big") + crc32c(tail).to_bytes(4, "big") + bytes(16) + tail

    wide = b"\x92\xc6\x00\x00\x00\x02ab\x90"
    short = b"\x91\xc4\x02ab"
    longer = b"\x92\xc5\x00\x02ab\x91\x92\xa1h\xc4\x01v"
    for attributes in ([wide], [short], [longer], [wide, short, longer, b"\x92\xc4\x02ab\x90"]):
        data = bytearray(b"".join(map(packed, attributes)))
        frame.stamp(memoryview(data), 0, 1)
        found, _, _ = rows(bytes(data))
        assert [row["key"] for row in found] == [b"ab"] * len(attributes)
        expected = [[{"key": "h", "value": b"v"}] if each is longer else None for each in attributes]
        assert [row["headers"] for row in found] == expected


def test_many_messages_of_any_lengths_are_all_found():
    drawn = random.Random(5)
    messages = [(bytes(drawn.randint(0, 200)), n, None, {}) for n in range(20_000)]
    data = block([*messages[:9000], messages[9000:15000], 3000, *messages[15000:]])
    heads, taken, after = read_heads(data, 0)
    assert (taken, after) == (len(data), 23_000)
    assert heads.offset.tolist() == list(range(23_000))
    assert (heads.end - heads.content).tolist() == [
        len(m.value) for m in frame.decode_run(data) if m.value is not None
    ]
