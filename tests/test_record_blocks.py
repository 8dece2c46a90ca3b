"""Many records at once are the records that unpacking each gives, however alike they look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import CorruptJournal
from journal.record import Mark, Messages, pack, unpack
from journal.record_blocks import BLOCK_RECORDS, FEWEST_EVEN, Block, EvenSends, blocks


def packed(records):
    return b"".join(pack(each, data, 0) + data for each, data in records)


def read(body, count):
    """Every record with its data, and how many came as even sends."""
    found, even = [], 0
    for block in blocks(body, count, "f", 0):
        if isinstance(block, Block):
            assert len(block.records) == len(block.data) <= BLOCK_RECORDS
            found += zip(block.records, block.data, strict=True)
        else:
            assert FEWEST_EVEN <= len(block.rows) <= BLOCK_RECORDS
            found += [(Messages(*row[:-1]), row[-1]) for row in block.rows]
            even += len(block.rows)
    return found, even


def sends(count, first=0, at=10**15, data=b"frames", partition=1, producer=0):
    return [(Messages(partition, first + n, 1, at + n, producer, 1, first + n), data) for n in range(count)]


def test_sends_that_look_alike_come_as_rows():
    records = sends(2 * BLOCK_RECORDS, first=70_000, producer=9)
    assert read(packed(records), len(records)) == (records, len(records))


NUMBERS = st.one_of(*(st.integers(1 << bits >> 1, (1 << bits) + 1) for bits in (0, 7, 8, 16, 32, 63)))
SENDS = st.builds(Messages, *[NUMBERS] * 7)


@given(
    st.lists(
        st.tuples(
            st.one_of(SENDS, st.builds(Mark, NUMBERS)),
            st.sampled_from([b"", b"x", b"a longer run of frames"]),
            st.integers(1, 3 * FEWEST_EVEN),
            st.integers(0, 70_000),
        ),
        max_size=8,
    )
)
def test_whatever_they_are_they_are_what_unpacking_each_gives(stretches):
    """Stretches of sends whose offsets and times count up, over the edges of the widths of msgpack's integers."""
    records = []
    for first, data, count, step in stretches:
        for number in range(count):
            each = first
            if isinstance(first, Messages):
                each = Messages(
                    first.partition, first.base_offset + number * step, first.count, first.at + number,
                    first.producer_id, first.epoch, first.sequence + number,
                )  # fmt: skip
            records.append((each, data))
    body = packed(records)
    found, _ = read(body, len(records))
    one_by_one, position = [], 0
    for _ in records:
        unpacked = unpack(memoryview(body), position, 0, "f")
        one_by_one.append((unpacked.record, bytes(unpacked.data)))
        position += unpacked.length
    assert found == one_by_one == records


@pytest.mark.parametrize("edge", [128, 256, 65_536, 1 << 32])
def test_a_number_that_grows_wider_ends_what_looks_alike(edge):
    records = sends(100, first=edge - 50)
    found, even = read(packed(records), 100)
    assert found == records
    assert even == 100


def test_a_wider_number_that_hides_in_a_head_of_the_same_length_is_noticed():
    """One number has grown, another has shrunk by as much: only their first bytes tell."""
    records = [
        *sends(20, first=1000, at=100),
        *[(Messages(1, 100, 1, 1000 + n, 0, 1, 1000), b"frames") for n in range(20)],
    ]
    assert len({len(packed([each])) for each in records}) == 1
    assert read(packed(records), 40) == (records, 40)


def test_a_wider_number_whose_value_looks_like_the_next_ones_first_byte_is_noticed():
    """5, 1000 is 05 cd 03 e8; 205, 200 is cc cd cc c8: only that no small number begins with cc tells them apart."""
    records = [
        *[(Messages(5, 1000, 1, 10**15 + n), b"frames") for n in range(20)],
        *[(Messages(205, 200, 1, 10**15 + n), b"frames") for n in range(20)],
    ]
    assert read(packed(records), 40) == (records, 40)


def test_few_or_other_records_come_as_they_are():
    few = sends(FEWEST_EVEN - 1)
    assert read(packed(few), len(few)) == (few, 0)
    marks = [(Mark(1000), b"")] * 100
    assert read(packed(marks), 100) == (marks, 0)
    [block] = blocks(packed(sends(FEWEST_EVEN)), FEWEST_EVEN, "f", 0)
    assert isinstance(block, EvenSends)


def test_a_record_of_an_unknown_kind_is_refused_with_its_place():
    known = packed(sends(1))
    unknown = bytearray(known)
    unknown[13] = 99  # the tag
    with pytest.raises(CorruptJournal, match=rf"the record at {100 + len(known)} is of a kind") as caught:
        list(blocks(known + bytes(unknown), 2, "f", 100))
    assert caught.value.position == 100 + len(known)


@pytest.mark.parametrize("count", [1, 3, FEWEST_EVEN, 40])
@pytest.mark.parametrize(("more", "extra"), [(1, b""), (0, b"x"), (1, b"xxxx"), (0, bytes(12))])
def test_the_records_must_be_just_as_many_as_the_group_says(count, more, extra):
    with pytest.raises(CorruptJournal, match="is of a kind or form that is not known here"):
        list(blocks(packed(sends(count)) + extra, count + more, "f", 0))
