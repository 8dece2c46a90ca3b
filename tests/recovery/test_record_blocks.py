"""Test that unpacking many records at once gives the same as unpacking each, however alike they look."""

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from journal.errors import CorruptJournal
from journal.parties import Actor, Owner
from journal.records.group_entries import GroupPositions, PartitionOffset
from journal.records.record import (
    HEADER_BYTES,
    Mark,
    Messages,
    Placement,
    Run,
    TransactionCommitted,
    TransactionPrepared,
    pack,
    unpack,
)
from journal.recovery.record_batches import (
    BLOCK_RECORDS,
    FEWEST_EVEN,
    Block,
    Commits,
    EvenSends,
    blocks,
)
from journal.transaction_states import Cause, Totals
from journal.xid import Xid
from tests.support.thoroughness import examples


def packed(records):
    return b"".join(pack(each, data, 0) + data for each, data in records)


def read(body, count):
    """Every record with its data, and how many came with others that look alike."""
    found, even = [], 0
    for block in blocks(body, count, "f", 0):
        if isinstance(block, Block):
            assert len(block.records) == len(block.data) <= BLOCK_RECORDS
            found += zip(block.records, block.data, strict=True)
        elif isinstance(block, Commits):
            assert FEWEST_EVEN <= len(block.frames) <= BLOCK_RECORDS
            found += [(block.record(number), frames) for number, frames in enumerate(block.frames)]
            even += len(block.frames)
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


def commits(count, first=1, at=10**15, session=3, partition=1, **more):
    """Transactions of one message, each in one record; ``more`` is said otherwise."""
    frames = more.pop("frames", b"frames")
    found = []
    for n in range(first, first + count):
        record = TransactionCommitted(
            session, n, [Placement(partition, n, 1)], at + n, Cause.CLIENT, n - 1,
            runs=[Run(partition, 1, 0, 0xDEADBEEF - n)], checksum=0xDEADBEEF - n,
        )  # fmt: skip
        found.append((replace(record, **more), frames))
    return found


WHOSE = Owner("anonymous", "a client", "host:1")
RAGGED = [b"v" * length for length in (0, 1, 30, 5, 300, 6)]
"""Data of many lengths, one after the other."""


def ragged(records):
    """The same, but each has data of another length than the one before it."""
    return [(each, RAGGED[n % 6]) for n, (each, _) in enumerate(records)]


NUMBERS = st.one_of(*(st.integers(1 << bits >> 1, (1 << bits) + 1) for bits in (0, 7, 8, 16, 32, 63)))
SENDS = st.builds(Messages, NUMBERS, NUMBERS, NUMBERS.filter(bool), *[NUMBERS] * 4)


@given(
    st.lists(
        st.tuples(
            st.one_of(SENDS, st.builds(Mark, NUMBERS), st.just(None)),
            st.sampled_from([b"", b"x", b"a longer run of frames", None]),
            st.integers(1, 3 * FEWEST_EVEN),
            st.integers(1, 70_000),
        ),
        max_size=8,
    )
)
def test_whatever_they_are_they_are_what_unpacking_each_gives(stretches):
    """Stretches of sends, or transactions, whose numbers count up, over the edges of the widths of msgpack's own."""
    records = []
    for first, data, count, step in stretches:
        begin = len(records)
        if first is None:
            records += commits(count, first=step, frames=data or b"")
        for number in range(count if first else 0):
            each = first
            if isinstance(first, Messages):
                each = Messages(
                    first.partition, first.base_offset + number * step, first.count, first.at + number,
                    first.producer_id, first.epoch, first.sequence + number,
                )  # fmt: skip
            records.append((each, data or b""))
        if data is None:
            records[begin:] = ragged(records[begin:])
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


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"owner": WHOSE},
        {"why": "so"},
        {"by": Actor("a", "b")},
        {"frames": b""},
    ],
)
def test_commits_that_look_alike_come_by_columns(more):
    records = commits(BLOCK_RECORDS, first=70_000, **more)
    assert read(packed(records), len(records)) == (records, len(records))


@pytest.mark.parametrize("placed", [1, 2])
def test_commits_for_several_queues_are_read_one_by_one(placed):
    runs, placements = [Run(1, 1, 0, 7, [2])], [Placement(1, 5, 1), Placement(2, 6, 1)][:placed]
    records = commits(FEWEST_EVEN * 2, runs=runs, placements=placements)
    assert read(packed(records), len(records)) == (records, 0)


def test_one_for_several_queues_that_hides_in_a_head_of_the_same_length_is_noticed():
    """It has a partition more, and its offset takes a byte less."""
    records = [
        (replace(each, placements=[Placement(1, 200, 1)]), data) for each, data in commits(60, first=1000)
    ]
    odd, data = records[30]
    records[30] = (
        replace(odd, placements=[Placement(1, 20, 1)], runs=[replace(odd.runs[0], also=[2])]),
        data,
    )
    assert len({len(packed([each])) for each in records}) == 1
    assert read(packed(records), 60)[0] == records


def test_sends_and_commits_that_differ_in_their_lengths_come_by_columns_too():
    for records in (sends(BLOCK_RECORDS, first=70_000), commits(BLOCK_RECORDS, first=70_000)):
        records = ragged(records)
        assert len({len(data) for _, data in records}) > 4
        assert read(packed(records), len(records)) == (records, len(records))


OTHERS = [
    {"cause": Cause.OPERATOR},
    {"runs": [Run(2, 1, 0, 0xDEADBEEF)]},
    {"runs": [Run(1, 2, 0, 0xDEADBEEF)]},
    {"xid": Xid(1, b"x", b"y")},
    {"owner": Owner("anonymous", "another", "host:1")},
    {"by": Actor("ann", "ops")},
    {"why": "so"},
    {"totals": Totals(1, 1, 7)},
    {"session": 300},
    {"runs": [Run(1, 2, 0, 7)]},
    {"runs": [Run(2, 1, 0, 7)]},
    {"runs": []},
    {"runs": [Run(1, 1, 0, 7), Run(1, 1, 3, 8)]},
    {"settles": [GroupPositions("g", bytes(16), [PartitionOffset(1, 5)])]},
]


def test_among_records_of_many_lengths_one_of_another_kind_or_form_ends_what_looks_alike():
    others = [
        [(Mark(1000), b"")],
        sends(1, first=1000),
        *(commits(1, first=1020, **more) for more in OTHERS[3:]),
    ]
    for other in others:
        records = ragged([*commits(20, first=1000), *other, *commits(20, first=1022)])
        found, even = read(packed(records), len(records))
        assert found == records
        assert even >= 20


@pytest.mark.parametrize("edge", [128, 256, 65_536])
def test_a_transactions_number_that_grows_wider_ends_what_looks_alike(edge):
    records = commits(100, first=edge - 50)
    assert read(packed(records), 100) == (records, 50)


def test_commits_are_found_behind_what_a_group_has_for_the_archive():
    records = sends(1) + commits(BLOCK_RECORDS, first=70_000)
    assert read(packed(records), len(records)) == (records, BLOCK_RECORDS)


@pytest.mark.parametrize("other", [*OTHERS, {"frames": b"longer frames"}])
def test_a_commit_that_says_something_else_ends_what_looks_alike(other):
    alike = commits(20, first=1000)
    for records in (
        alike + commits(1, first=1020, **other) + commits(20, first=1021),
        commits(20, first=1000, **other) + commits(20, first=1020),
    ):
        assert read(packed(records), len(records))[0] == records


def test_texts_of_one_length_are_told_apart():
    for name, one, two in (
        ("why", "one", "two"),
        ("by", Actor("one", "p"), Actor("one", "q")),
        ("owner", Owner("p", "one", "a"), Owner("q", "one", "a")),
        ("owner", Owner("p", "one", "a"), Owner("p", "two", "a")),
        ("owner", Owner("p", "ab", "c"), Owner("p", "a", "bc")),
    ):
        records = commits(20, first=1000, **{name: one}) + commits(20, first=1020, **{name: two})
        assert read(packed(records), 40) == (records, 40)


def test_commits_of_many_clients_among_each_other_come_by_columns():
    records = [
        commits(1, first=70_000 + n, owner=Owner("anonymous", "shop", f"10.0.0.1:{40_000 + n % 64}"))[0]
        for n in range(BLOCK_RECORDS)
    ]
    for some in (records, ragged(records)):
        assert read(packed(some), len(some)) == (some, len(some))


def test_owners_that_say_more_than_is_known_here_stay_the_owners_of_their_commits():
    """As a later version may write them."""
    owner, body = Owner("p", "one", "a"), b""
    records = commits(20, first=1000, owner=owner)
    for each, data in records:
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(each))
        fields[-1].append("more")
        head = msgspec.msgpack.encode(fields)
        length = (12 + len(head) + len(data)).to_bytes(4)
        body += length + bytes(4) + len(head).to_bytes(4) + head + data
    assert read(body, 20)[0] == records


def test_among_commits_of_many_clients_one_with_an_owner_that_is_none_is_refused_with_its_place():
    """Of the same length as the others: nothing else tells it from them."""
    records = commits(40, first=1000, owner=Owner("p", "one", "a"))
    body = bytearray(packed(records))
    place = body.index(b"\x93\xa1p\xa3one\xa1a", len(packed(records[:30])))
    for spoilt in (b"\x93\xa1p\xa3on\xff\xa1a", b"\x93\xa1p\xa3one\x01a", b"\xa8p\xa3one\xa1a"):
        body[place : place + 8] = spoilt[:8]
        with pytest.raises(CorruptJournal, match="is of a kind or form that is not known here"):
            list(blocks(bytes(body), len(records), "f", 0))


def test_a_head_that_is_longer_than_those_beside_it_is_not_read_as_they_are():
    """A byte of the data has become the head's, so that nothing else differs."""
    for records in (sends(40, first=1000, data=b"\xc0" * 9), commits(40, first=1000, frames=b"\xc0" * 9)):
        body = bytearray(packed(records))
        start = len(packed(records[:30]))
        body[start + 8 : start + 12] = (int.from_bytes(body[start + 8 : start + 12]) + 1).to_bytes(4)
        with pytest.raises(CorruptJournal, match="is of a kind or form that is not known here"):
            list(blocks(bytes(body), len(records), "f", 0))


def test_a_placement_that_says_more_than_is_known_does_not_shift_what_comes_after_it():
    body, records = b"", commits(20, first=1000)
    for each, data in records:
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(each))
        fields[3][0].append(7)
        fields[4] = 1000  # in the place of the cause, were it shifted
        head = msgspec.msgpack.encode(fields)
        lengths = (HEADER_BYTES + len(head) + len(data)).to_bytes(4), bytes(4), len(head).to_bytes(4)
        body += b"".join(lengths) + head + data
    assert read(body, 20)[1] == 0


def test_commits_of_other_forms_come_as_they_are():
    placed_twice = [(replace(each, placements=[Placement(1, 5, 1)] * 2), data) for each, data in commits(20)]
    prepared = [
        (TransactionPrepared(each.session, each.serial, Xid(1, b"x", b""), None, each.at, each.seen), data)
        for each, data in commits(20)
    ]
    others = [commits(20, **more) for more in OTHERS if more.keys() & {"xid", "totals", "runs", "settles"}]
    for records in (placed_twice, prepared, *others):
        assert read(packed(records), 20) == (records, 0)


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


def mended(body, count):
    """The same with the checksums that the plain reader wants, wherever the lengths lead it."""
    body, position = bytearray(body), 0
    for _ in range(count):
        length = int.from_bytes(body[position : position + 4])
        if not HEADER_BYTES < length <= len(body) - position:
            break
        body[position + 4 : position + 8] = crc32c(body[position + 8 : position + length]).to_bytes(4)
        position += length
    return bytes(body)


def outcome(reader, body, count):
    """The records, or that they were refused; any other exception fails the test."""
    try:
        return reader(body, count)
    except CorruptJournal:
        return "refused"


def one_by_one(body, count):
    found, position = [], 0
    for _ in range(count):
        unpacked = unpack(memoryview(body), position, 0, "f")
        found.append((unpacked.record, bytes(unpacked.data)))
        position += unpacked.length
    if position != len(body):
        raise CorruptJournal("there is more", "f", position)
    return found


WORDS = st.one_of(st.integers(-20, 20), st.sampled_from([-(1 << 31), 1 << 31]))


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.tuples(
            st.one_of(SENDS, st.just(None)), st.sampled_from([b"", b"frames", None]), st.integers(1, 40)
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.one_of(
                st.tuples(st.just("length"), WORDS),
                st.tuples(st.just("head length"), WORDS),
                st.tuples(
                    st.integers(0, 20), st.sampled_from([0, 0x80, 0x90, 0xC0, 0xC1, 0xCC, 0xCF, 0xD0, 0xFF])
                ),
            ),
        ),
        max_size=3,
    ),
    st.integers(-1, 1),
    st.integers(0, 30),
)
def test_whatever_the_bytes_are_both_readers_say_the_same_of_them(stretches, spoilt, more, cut):
    """Only what no writer makes, under checksums that hold: lengths beyond a head, other types, a wrong count."""
    records = []
    for each, data, count in stretches:
        frames = data or b""
        alike = (
            [(each, frames)] * count if each else commits(count, first=60_000 + len(records), frames=frames)
        )
        records += ragged(alike) if data is None else alike
    body, starts = b"", []
    for each in records:
        starts.append(len(body))
        body += packed([each])
    body = bytearray(body)
    for number, (where, value) in spoilt:
        start = starts[number % len(starts)]
        if isinstance(where, str):
            at = start + (8 if where == "head length" else 0)
            body[at : at + 4] = ((int.from_bytes(body[at : at + 4]) + value) % (1 << 32)).to_bytes(4)
        else:
            body[min(start + HEADER_BYTES + where, len(body) - 1)] = value
    count = max(1, len(records) + more)
    whole = mended(body[: len(body) - cut], count)
    assert outcome(lambda *given: read(*given)[0], whole, count) == outcome(one_by_one, whole, count)


def test_a_send_whose_head_is_longer_than_itself_is_refused_with_its_place():
    """A row of them was no refusal but an error in the reader."""
    body = bytearray(packed(sends(FEWEST_EVEN, data=b"")))
    length = len(body) // FEWEST_EVEN
    for start in range(0, len(body), length):
        body[start : start + 4] = (length - 1).to_bytes(4)
    with pytest.raises(CorruptJournal, match="too few for its head") as caught:
        list(blocks(bytes(body), FEWEST_EVEN, "f", 100))
    assert caught.value.position == 100
