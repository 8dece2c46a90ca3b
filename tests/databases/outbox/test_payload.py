"""Test the payload of a row: what was packed is read again, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker import errors
from txbroker.databases.outbox import payload

RUN = st.builds(
    payload.Run,
    topic=st.text(max_size=20),
    partition=st.integers(0, 1000),
    partitions=st.integers(1, 1000),
    size=st.integers(0, 20),
)


@given(st.integers(0, 1 << 60), st.lists(RUN, max_size=5))
def test_what_was_packed_is_read(at, runs):
    frames = bytes(sum(run.size for run in runs))
    found = payload.unpack(payload.pack(at, runs, frames), "x")
    assert (found.at, found.runs, bytes(found.frames)) == (at, runs, frames)


def test_a_payload_without_runs_is_a_mark():
    assert payload.unpack(payload.mark(7), "x").is_mark
    assert not payload.unpack(payload.pack(7, [payload.Run("t", 0, 1, 0)], b""), "x").is_mark


PACKED = payload.pack(7, [payload.Run("topic", 0, 1, 3)], b"abc")


@given(st.integers(0, len(PACKED) - 4), st.integers(1, 255))
def test_each_changed_byte_before_the_frames_is_noticed(at, change):
    data = bytearray(PACKED)
    data[at] ^= change
    with pytest.raises(errors.InvalidFrame, match="the payload of number 5"):
        payload.unpack(bytes(data), "number 5 of a stream")


@given(st.integers(0, len(PACKED) - 1))
def test_a_payload_that_is_cut_off_is_noticed(length):
    with pytest.raises(errors.InvalidFrame):
        payload.unpack(PACKED[:length], "x")


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data):
    with pytest.raises(errors.InvalidFrame):
        payload.unpack(data, "x")


def test_a_negative_size_is_refused():
    with pytest.raises(errors.InvalidFrame):
        payload.unpack(payload.pack(7, [payload.Run("t", 0, 1, 5), payload.Run("t", 0, 1, -2)], b"abc"), "x")
