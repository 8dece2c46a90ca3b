"""Test that frames made by the column are those made one by one, and go to the same partitions."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from journal.constants import MAX_ATTRIBUTE
from journal.formats import frame
from spark.sink.key_hash import murmur2
from spark.sink.row_frames import BYTES, Columns, Places, split
from txbroker.client.core import partitioner
from txbroker.errors import MessageTooLarge

NOW = 1_770_000_000_000_000
RUN = 1000

keys = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([bytes(size) for size in (255, 256)]))
headers = st.one_of(
    st.none(),
    st.lists(st.tuples(st.sampled_from("ab") | st.text(max_size=20), st.binary(max_size=20)), max_size=3).map(
        tuple
    ),
)
times = st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))
row = st.tuples(
    st.one_of(st.none(), st.binary(max_size=300)),
    keys,
    headers,
    times,
    st.one_of(st.none(), st.integers(-1, 9)),
)


def columns(rows):
    values, keys, headers, times, partitions = (list(each) for each in zip(*rows, strict=True))
    return Columns(
        "t", pa.array(values, BYTES), pa.array(keys, BYTES), headers, pa.array(partitions, pa.int64()),
        pa.array(times, pa.int64()),
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example([(b"v", bytes(size), None, None, None) for size in (65535, 65536)], 1, 0)
@given(st.lists(row, min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 400))
def test_frames_are_those_of_each_message_by_itself_in_the_order_of_the_rows(rows, count, position):
    found = {}
    for index, frames in split(columns(rows), Places(0, True, RUN), count, NOW):
        found[index] = frames
    expected = {}
    for value, key, header, time, partition in rows:
        if partition is not None:
            index = partition
        elif count == 1:
            index = 0
        elif key is None:
            continue
        else:
            index = partitioner.by_key(key, count)
        expected.setdefault(index, []).append((value, NOW if time is None else time, key, header))
    turning = any(row[1] is None and row[4] is None for row in rows) and count > 1
    for index, messages in {} if turning else expected.items():
        inner = [frame.encode_inner(position + n, *message) for n, message in enumerate(messages)]
        frames = found.pop(index)
        assert len(frames) == len(messages)
        assert bytes(frames.packed(0, len(messages), position)) == b"".join(inner)
        middle = len(messages) // 2
        assert bytes(frames.packed(middle, middle + 1, 7))[16:] == inner[middle][16:]
        for room in (0, len(inner[0]), sum(map(len, inner)), sum(map(len, inner)) - 1):
            fit = sum(sum(map(len, inner[: n + 1])) <= room for n in range(len(inner)))
            assert frames.fitting(0, room) == fit
    assert turning or not found


def test_rows_without_a_key_go_round_by_so_many_bytes_and_keep_their_order():
    """And the next ones begin where the last ones ended."""
    places, values = Places(1, True, 10 * (36 + 64)), [b"%064d" % n for n in range(25)]
    rows = Columns("t", pa.array(values, BYTES))
    for turns in ([1, 2, 0], [1, 2, 0]):  # 9, 10 and 6 of them each
        found = dict(split(rows, places, 3, NOW))
        assert sorted(found) == [0, 1, 2]
        assert [len(found[index]) for index in turns] == [9, 10, 6]
    other = Places(0, False, 1 << 20)
    keyed = Columns("t", pa.array(values, BYTES), pa.array(values, BYTES))
    assert [[index for index, _ in split(keyed, other, 3, NOW)] for _ in range(4)] == [[0], [1], [2], [0]]


@given(st.lists(st.binary(max_size=70)))
def test_keys_are_hashed_as_one_by_one(some):
    expected = list(map(partitioner.murmur2, some))
    assert murmur2(pa.array(some, BYTES)).tolist() == expected
    assert murmur2(pa.array([b"abc", *some, b"x"], BYTES)[1:-1]).tolist() == expected


def test_columns_that_are_slices_are_taken_from_where_they_begin():
    every = pa.array([b"%d" % n for n in range(100)], BYTES)
    part = Columns("t", every[10:20], every[30:40])
    [(_, frames)] = split(part, Places(0, True, RUN), 1, NOW)
    inner = [frame.encode_inner(n, b"%d" % (10 + n), NOW, b"%d" % (30 + n)) for n in range(10)]
    assert bytes(frames.packed(0, 10, 0)) == b"".join(inner)


def test_frames_are_packed_in_their_order_at_any_position_and_again_at_another():
    """A send that is repeated goes into another wrapper, and what was packed before stays as it is."""
    values = [b"%d" % number for number in range(600)]
    places = pa.array([number % 2 for number in range(600)], pa.int64())
    for index, frames in split(
        Columns("t", pa.array(values, BYTES), partitions=places), Places(0, True, RUN), 2, NOW
    ):
        packed = [(position, frames.packed(0, 300, position)) for position in (0, 65_000)]
        for position, found in packed:
            inner = [frame.encode_inner(position + n, value, NOW) for n, value in enumerate(values[index::2])]
            assert bytes(found) == b"".join(inner)


def test_no_rows_are_no_frames():
    assert (
        list(split(Columns("t", pa.array([], BYTES), pa.array([], BYTES)), Places(0, True, RUN), 3, NOW))
        == []
    )


def test_key_and_headers_beyond_the_limit_are_refused():
    fits = bytes(MAX_ATTRIBUTE - 7)
    [(_, frames)] = split(
        Columns("t", pa.array([b""], BYTES), pa.array([fits], BYTES)), Places(0, True, RUN), 1, NOW
    )
    assert bytes(frames.packed(0, 1, 0)) == frame.encode_inner(0, b"", NOW, fits)
    with pytest.raises(
        MessageTooLarge, match=f"take {MAX_ATTRIBUTE + 1} bytes, the limit is {MAX_ATTRIBUTE}"
    ):
        list(
            split(
                Columns("t", pa.array([b""], BYTES), pa.array([fits + b"x"], BYTES)),
                Places(0, True, RUN),
                1,
                NOW,
            )
        )


def test_what_a_column_without_keys_hashes_is_nothing():
    assert murmur2(pa.array([], BYTES)).dtype == np.uint32
