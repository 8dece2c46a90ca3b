"""Test tables of keys: what was put in is found again, and only a whole table of the very segment is taken."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from journal.formats import key_table
from journal.formats.key_table import (
    HEADER_BYTES,
    KeyEntries,
    Source,
    hash_of_id,
    hash_of_key,
    hash_of_tag,
    open_table,
)

SOURCE = Source(100, 1 << 20, 5_000, 0xDEADBEEF, 77)


def table_of(pairs, source=SOURCE):
    entries = KeyEntries(source.base_offset)
    for hashed, offset in pairs:
        entries.add(hashed, offset)
    return entries.packed(source)


HASHES = st.one_of(st.sampled_from([0, 5, (1 << 32) - 1]), st.integers(0, (1 << 32) - 1))


@given(st.lists(st.tuples(HASHES, st.integers(100, 1 << 20)), max_size=50))
def test_all_offsets_of_a_hash_are_found_in_their_order(pairs):
    table = open_table(table_of(pairs), SOURCE)
    assert len(table) == len(pairs)
    for hashed in {0, 5, *(each for each, _ in pairs)}:
        expected = sorted(offset for each, offset in pairs if each == hashed)
        assert table.offsets(hashed) == expected
        assert table.offsets(hashed, most=2) == expected[:2]
        assert table.end(hashed) == (expected[-1] + 1 if expected else 0)
        for first in (0, 100, 5_000, *expected):
            assert table.offsets(hashed, first) == [offset for offset in expected if offset >= first]


def test_a_key_an_id_and_a_tag_of_the_same_bytes_are_told_apart():
    assert len({hash_of_key(b"42"), hash_of_id(b"42"), hash_of_tag(b"42")}) == 3


def test_a_table_without_the_tags_is_not_taken():
    data = bytearray(table_of([(1, 100)]))
    data[36:40] = bytes(4)
    data[8:12] = crc32c(bytes(data[12:]), SOURCE.seed).to_bytes(4)
    assert open_table(bytes(data), SOURCE) is None


@pytest.mark.parametrize("position", range(HEADER_BYTES + 16))
def test_a_table_with_any_wrong_byte_is_not_taken(position):
    data = bytearray(table_of([(1, 100), (2, 200)]))
    data[position] ^= 1
    assert open_table(bytes(data), SOURCE) is None


def test_a_table_is_not_taken_at_any_other_length():
    data = table_of([(1, 100), (2, 200)])
    for length in range(len(data)):
        assert open_table(data[:length], SOURCE) is None
    assert open_table(data + bytes(8), SOURCE) is None
    assert open_table(bytes(len(data)), SOURCE) is None


@pytest.mark.parametrize("field", ["end_offset", "size", "checksum", "seed"])
def test_a_table_of_another_segment_or_of_another_state_of_it_is_not_taken(field):
    data = table_of([(1, 100)])
    assert open_table(data, SOURCE) is not None
    assert open_table(data, SOURCE._replace(**{field: getattr(SOURCE, field) + 1})) is None


def test_more_entries_than_a_table_has_make_one_that_says_nothing(monkeypatch):
    monkeypatch.setattr(key_table, "MOST_ENTRIES", 3)
    assert open_table(table_of([(1, 100)] * 3), SOURCE).is_complete
    table = open_table(table_of([(1, 100)] * 4), SOURCE)
    assert (table.is_complete, len(table)) == (False, 0)


def test_offsets_farther_apart_than_an_entry_can_say_make_one_that_says_nothing():
    far = SOURCE._replace(end_offset=SOURCE.base_offset + (1 << 32))
    assert open_table(table_of([(1, far.end_offset - 1)], far), far).offsets(1) == [far.end_offset - 1]
    too_far = SOURCE._replace(end_offset=SOURCE.base_offset + (1 << 32) + 1)
    assert not open_table(table_of([(1, 100)], too_far), too_far).is_complete
