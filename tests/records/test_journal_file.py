"""Test the headers of journal files and groups.

Seen to fail: with only one copy of the header read a torn first block refuses a start.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.constants import BLOCK
from journal.errors import CorruptJournal
from journal.records.journal_headers import (
    FIRST_GROUP,
    FileHeader,
    blocks,
    pack_file_header,
    pack_group_header,
    unpack_file_header,
    unpack_group_header,
)

SALT, FIRST = 0xFFFFFFFE, 1 << 36
HEADER = FileHeader(FIRST, 3, SALT, 1, 77)


def changed(data, position, size=1):
    spoilt = bytes(byte ^ 0x55 for byte in data[position : position + size])
    return data[:position] + spoilt + data[position + size :]


def test_a_file_header_is_read_from_either_copy():
    packed = pack_file_header(HEADER)
    assert len(packed) == FIRST_GROUP
    for spoilt in (packed, changed(packed, 0, BLOCK), changed(packed, BLOCK, BLOCK), packed[:60]):
        assert unpack_file_header(spoilt, "f") == HEADER


@given(st.binary(max_size=100))
def test_without_a_sound_copy_the_file_is_corrupt(data):
    with pytest.raises(CorruptJournal, match="both copies of its header"):
        unpack_file_header(data, "f")


def test_each_bit_of_a_file_header_counts():
    packed = pack_file_header(HEADER)[:48]
    for position in range(48):
        for bit in range(8):
            spoilt = bytearray(packed)
            spoilt[position] ^= 1 << bit
            with pytest.raises(CorruptJournal):
                unpack_file_header(bytes(spoilt), "f")


def test_each_bit_of_a_group_header_counts_and_so_does_its_start():
    packed = pack_group_header(80, 2, FIRST, FIRST - 1, 7, SALT)
    assert unpack_group_header(memoryview(packed), 0, SALT) == (80, 2, FIRST, FIRST - 1, 7)
    assert unpack_group_header(memoryview(packed), 0, SALT + 1) is None
    assert unpack_group_header(memoryview(packed[:-1]), 0, SALT) is None
    for position in range(len(packed)):
        for bit in range(8):
            spoilt = bytearray(packed)
            spoilt[position] ^= 1 << bit
            assert unpack_group_header(memoryview(spoilt), 0, SALT) is None


def test_an_empty_group_and_zero_bytes_are_none():
    for data in (
        pack_group_header(0, 0, FIRST, 0, 0, SALT),
        pack_group_header(9, 0, FIRST, 0, 0, SALT),
        bytes(BLOCK),
    ):
        assert unpack_group_header(memoryview(data), 0, SALT) is None


@pytest.mark.parametrize(("length", "rounded"), [(0, 0), (1, 4096), (4096, 4096), (4097, 8192)])
def test_lengths_are_rounded_up_to_blocks(length, rounded):
    assert blocks(length) == rounded
