"""Test blocks with compressed batches: the same messages as without, at the same places, however many they are.

Seen to fail: with places of the opened block told as those of the one that was read, reading went on amid a frame; with
no bound on what is opened, a block of 8 KiB made columns of 40 MB at once.
"""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.constants import KIB, MIB
from journal.errors import CompressionUnavailable
from journal.formats import frame
from journal.formats.compression import CODECS, SIZE, compressor
from spark.source import blocks
from spark.source.blocks import read_block
from spark.source.columns import Columns
from spark.source.message_heads import UnsoundBlock
from tests.spark.source.test_message_heads import MESSAGES, NAMES, TIMES, as_rows, is_time, stamp_each
from tests.support.thoroughness import examples

PACKERS = {codec.number: compressor(codec.name)._pack for codec in CODECS.values()}
RUNS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, *PACKERS]), st.lists(MESSAGES, min_size=1, max_size=30)),
        MESSAGES,
        st.integers(17, 60),
    ),
    min_size=1,
    max_size=8,
)


def wrapper(number, messages, count=None):
    run = b"".join(frame.encode_inner(n, v, t, k, h) for n, (v, t, k, h) in enumerate(messages))
    payload = SIZE.pack(len(run)) + PACKERS[number](run) if number else run
    return frame.encode_wrapper(payload, len(messages) if count is None else count, 7, number)


def block(runs, base=0):
    """Frames of these messages: a codec's number and a list make a wrapper, a number so many frames of one length."""
    found = []
    for run in runs:
        if isinstance(run, int):
            found += [frame.encode(b"%03d" % n, n) for n in range(run)]
        elif len(run) == 2:
            found.append(wrapper(*run))
        else:
            found.append(frame.encode(*run))
    return stamped(b"".join(found), base)


def stamped(frames, base=0):
    data = bytearray(frames)
    stamp_each(data, base)
    return bytes(data)


def rows(data, base=0):
    heads, taken, after = read_block(data, base)
    batch = Columns(NAMES, "orders", 3).batch(heads)
    batch.validate(full=True)
    batch = batch.drop_columns(list(TIMES))  # a flipped bit may make a time of them that Python does not know
    return batch.to_pylist(), taken, after


@given(RUNS, st.integers(0, 1 << 60))
@settings(max_examples=examples(150))
def test_a_block_gives_the_messages_that_are_decoded_of_it_one_by_one(runs, base):
    data = block(runs, base)
    expected = frame.decode_run(data)
    assert rows(data, base) == (as_rows(expected), len(data), base + len(expected))
    heads = read_block(data, base)[0]
    assert heads.timestamp.tolist() == [m.timestamp for m in expected]
    assert heads.appended.tolist() == [m.appended for m in expected]


@given(RUNS, st.data())
@settings(max_examples=examples(150))
def test_a_block_that_ends_amid_a_frame_gives_the_whole_ones_before_it(runs, data):
    whole = block(runs)
    ends = [position + length for position, length, _, _ in frame.walk(whole)]
    cut = data.draw(st.integers(0, len(whole)))
    least = max((end for end in ends if end <= cut), default=0)
    expected = frame.decode_run(whole[:least])
    assert rows(whole[:cut]) == (as_rows(expected), least, len(expected))


@given(RUNS, st.data())
@settings(max_examples=examples(300))
@pytest.mark.slow
def test_no_flipped_bit_passes(runs, data):
    whole = block(runs)
    at = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at // 8] ^= 1 << at % 8
    damaged = bytes(damaged)
    try:
        found, taken, _ = rows(damaged)
    except UnsoundBlock as fault:
        found, taken, _ = rows(damaged[: fault.position])
    assert found == as_rows(frame.decode_run(whole[:taken]))
    assert taken <= at // 8 or is_time(whole, at // 8), (
        "what lies before the damage is sound, and no more is given"
    )


MANY = [(b"x" * 100, n, None, None) for n in range(50)]


@pytest.mark.parametrize("number", PACKERS)
def test_what_is_wrong_first_is_told_at_its_place_with_what_is_known_of_its_end(number):
    parts = [block([5]), wrapper(number, MANY), wrapper(number, MANY), block([3])]
    data = bytearray(stamped(b"".join(parts)))
    begins = [sum(map(len, parts[:n])) for n in range(4)]
    data[begins[2] + 50] ^= 1
    with pytest.raises(UnsoundBlock, match="the frame of offset 55 fails its checksum") as caught:
        read_block(bytes(data), 0)
    assert (caught.value.position, caught.value.offset, caught.value.end) == (begins[2], 55, 105)
    data[begins[0] + 37] ^= 1  # and one before all that is compressed
    with pytest.raises(UnsoundBlock, match="the frame of offset 0 fails") as caught:
        read_block(bytes(data), 0)
    assert caught.value.position == 0


@pytest.mark.parametrize("number", PACKERS)
def test_damage_behind_what_was_opened_is_told_at_its_place_in_the_block(number):
    parts = [wrapper(number, MANY), wrapper(number, MANY), block([3])]
    data = bytearray(stamped(b"".join(parts)))
    place = sum(map(len, parts[:2]))
    data[place + 37] ^= 1
    with pytest.raises(UnsoundBlock, match="the frame of offset 100 fails its checksum") as caught:
        read_block(bytes(data), 0)
    assert (caught.value.position, caught.value.offset, caught.value.end) == (place, 100, 101)


@pytest.mark.parametrize("number", PACKERS)
@pytest.mark.parametrize("count", [49, 51])
def test_a_batch_that_was_stored_unopened_and_lies_is_damage(number, count):
    parts = [block([5]), wrapper(number, MANY), wrapper(number, MANY, count), wrapper(number, MANY)]
    data = stamped(b"".join(parts))
    with pytest.raises(UnsoundBlock) as caught:
        read_block(data, 0)
    place = sum(map(len, parts[:2]))
    assert (caught.value.position, caught.value.offset) == (place, 55)
    assert rows(data[:place])[1:] == (place, 55)


def test_what_cannot_be_opened_is_damage_with_a_known_end():
    broken = frame.encode_wrapper(SIZE.pack(100) + b"nothing that opens", 2, 7, 1)
    data = stamped(wrapper(1, MANY) + broken + wrapper(1, MANY))
    with pytest.raises(UnsoundBlock, match="the wrapper of offset 50 cannot be opened by zstd") as caught:
        read_block(data, 0)
    assert (caught.value.position, caught.value.offset, caught.value.end) == (len(wrapper(1, MANY)), 50, 52)


@pytest.mark.parametrize("number", PACKERS)
def test_so_much_is_opened_at_a_time_and_the_rest_with_the_next_block(number):
    large = wrapper(number, [(bytes(900 * KIB), 1, None, None)])
    data = stamped(large * 50 + block([3]))
    assert len(data) < MIB
    offset = begin = 0
    taken_at_once = []
    while begin < len(data):
        heads, taken, after = read_block(data[begin:], offset)
        assert len(heads.data) < blocks.OPENED_BYTES + MIB
        assert heads.offset.tolist() == list(range(offset, after))
        taken_at_once.append(after - offset)
        begin, offset = begin + taken, after
    assert offset == 53
    assert taken_at_once == [18, 18, 17]


def test_one_frame_is_opened_however_large_it_is(monkeypatch):
    monkeypatch.setattr(blocks, "OPENED_BYTES", 10)
    data = stamped(wrapper(1, MANY) * 2)
    assert rows(data)[1:] == (len(data) // 2, 50)


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_missing_package_is_no_damage(codec, monkeypatch):
    data = stamped(wrapper(codec.number, MANY))
    monkeypatch.setitem(sys.modules, codec.module, None)
    with pytest.raises(CompressionUnavailable, match=rf"the wrapper of offset 0 .*txbroker\[{codec.name}\]"):
        read_block(data, 0)
