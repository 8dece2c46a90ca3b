"""The reading of a group whose checksum holds, some hundred records at a time, when the journal is replayed.

The records' own checksums are not checked: the group's covers every byte of them, and its header says where they
belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from struct import error as StructError
from typing import Any, Final, NamedTuple, Self, cast

import msgspec

from journal.log.message_run import Row
from journal.parties import Owner
from journal.records import record
from journal.records.record import HEADER_BYTES, AnyRecord, Messages, Placement, Run, TransactionCommitted
from journal.recovery.record_cuts import cut_apart
from journal.recovery.record_shapes import Part, Shape, numbers, shape_of

BLOCK_RECORDS = 512
"""How many records are read at once. 512 of 100 B singles take 1.1 µs each to fold, a whole group's 12,000 take 1.9,
because their objects no longer fit into the processor's cache."""

FEWEST_EVEN = 16
"""Fewer records are read one by one: finding out how far they go takes 8 µs."""

_FIELDS = len(Messages.__struct_fields__)
_SEND, _COMMIT = (
    bytes([0x90 + 1 + len(kind.__struct_fields__), cast(int, kind.__struct_config__.tag)])
    for kind in (Messages, TransactionCommitted)
)
"""The beginning of the heads of these: an array of so many, and the tag."""
_COMMIT_NUMBERS: Final = 13
"""The same for a commit that also begins its transaction, with one run and without an xid."""


_encode = msgspec.msgpack.Encoder().encode
_decode_owner = msgspec.msgpack.Decoder(Owner).decode


class Block(NamedTuple):
    """Records in order, with the data of each."""

    records: list[AnyRecord]
    data: list[bytes]


class EvenSends(NamedTuple):
    """Sends that look alike: the same length, and every number of their heads of the same width."""

    rows: list[Row]


class Commits(NamedTuple):
    """Commits that each begin their transactions, with one run, in the order of their LSNs, as columns.

    ``record`` gives one of them.
    """

    sessions: Sequence[int]
    serials: Sequence[int]
    partitions: Sequence[int]
    bases: Sequence[int]
    counts: Sequence[int]
    times: Sequence[int]
    seen: Sequence[int]
    frames: Sequence[bytes]
    record: Callable[[int], TransactionCommitted]

    @classmethod
    def of_records(cls, records: Sequence[TransactionCommitted], frames: Sequence[bytes]) -> Self:
        """Return those of some records for which :func:`is_whole` holds."""
        placements = [record.placements[0] for record in records]
        return cls(
            [record.session for record in records],
            [record.serial for record in records],
            [placement.partition for placement in placements],
            [placement.base_offset for placement in placements],
            [placement.count for placement in placements],
            [record.at for record in records],
            [record.seen for record in records],
            frames,
            records.__getitem__,
        )

    def rows(self) -> list[Row]:
        """Return what they put into the logs, as sends of nobody would."""
        nobody = repeat(0)
        columns = (self.partitions, self.bases, self.counts, self.times, nobody, nobody, nobody, self.frames)
        return list(zip(*columns, strict=False))


class _Columns(NamedTuple):
    """Every number and owner of commits that look alike; all else is as in the first."""

    sessions: Sequence[int]
    serials: Sequence[int]
    partitions: Sequence[int]
    bases: Sequence[int]
    counts: Sequence[int]
    times: Sequence[int]
    causes: Sequence[int]
    seen: Sequence[int]
    run_partitions: Sequence[int]
    run_counts: Sequence[int]
    run_starts: Sequence[int]
    run_checksums: Sequence[int]
    checksums: Sequence[int]
    owners: Sequence[Owner | None]
    first: TransactionCommitted
    frames: Sequence[bytes]

    def record(self, number: int) -> TransactionCommitted:
        """Return one of them."""
        first, partition, count = self.first, self.partitions[number], self.counts[number]
        return TransactionCommitted(
            self.sessions[number],
            self.serials[number],
            [Placement(partition, self.bases[number], count)],
            self.times[number],
            first.cause,
            self.seen[number],
            first.by,
            first.why,
            None,
            [Run(partition, count, 0, self.run_checksums[number])],
            checksum=self.checksums[number],
            owner=self.owners[number],
        )


def is_whole(record: AnyRecord) -> bool:
    """Return whether it is a commit with its whole transaction, unless that is live: one run, to one partition, and no
    positions.
    """
    return (
        type(record) is TransactionCommitted
        and len(record.runs) == 1
        and len(record.placements) == 1
        and not (record.runs[0].start or record.runs[0].also or record.settles or record.totals)
        and record.placements[0].partition == record.runs[0].partition
        and record.placements[0].count == record.runs[0].count
    )


def blocks(body: bytes, count: int, path: str, start: int) -> Iterator[Block | EvenSends | Commits]:
    """Yield all ``count`` records of a group, in order.

    Each by itself takes 0.7 µs, where :func:`journal.records.record.unpack` takes 1.7; those that look alike take 0.3.
    ``path`` and the ``start`` of the body in it are for the message of :class:`CorruptJournal`, which is raised if a
    record is of an unknown kind or form.
    """
    position = number = 0
    while number < count:
        most = min(BLOCK_RECORDS, count - number)
        even = _even(body, position, most)
        if even is not None:
            number += even.records
            position = even.end
            yield even.block
        else:
            most = _uneven(body, position, most)
            block, position = _read(body, position, most, path, start)
            number += most
            yield block
    if position != len(body):
        wrong = StructError(f"the group's {count} records end at {position} of {len(body)} bytes")
        raise record.unknown(path, start + position, wrong)


def _read(body: bytes, position: int, count: int, path: str, start: int) -> tuple[Block, int]:
    """Read the next records, one by one, and return the position after them."""
    block = Block([], [])
    lengths, decode = record.lengths, record.decode_head
    add_record, add_data = block.records.append, block.data.append
    try:
        for _ in range(count):
            length, head_length = lengths(body, position)
            head = position + HEADER_BYTES
            head_end = head + head_length
            if length < HEADER_BYTES + head_length:
                raise StructError(f"{length} bytes are too few for its head of {head_length}")
            add_record(decode(body[head:head_end]))
            position += length
            add_data(body[head_end:position])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, StructError) as error:
        raise record.unknown(path, start + position, error) from error
    return block, position


class _Even(NamedTuple):
    """Records that look alike: their columns, how many they are, and the position after them."""

    block: EvenSends | Commits
    records: int
    end: int


class _Sample(NamedTuple):
    """The first of some records that may look alike."""

    record: AnyRecord
    part: Part
    length: int


def _sample(body: bytes, position: int) -> _Sample | None:
    """Return the record at a position; None if it is none, or none that others could look like."""
    if len(body) - position < HEADER_BYTES:
        return None
    length, head_length = record.lengths(body, position)
    head = body[position + HEADER_BYTES : position + HEADER_BYTES + head_length]
    found = numbers(head)
    if found is None or length < HEADER_BYTES + head_length:
        return None
    try:
        first = record.decode_head(head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # it is refused when it is read by itself
    data_length = length - HEADER_BYTES - head_length
    part = Part(found, head_length, data_length, True, _owner_at(first, head))
    return _Sample(first, part, length)


def _owner_at(record: AnyRecord, head: bytes) -> int:
    """Return where the owner begins at the end of a commit's head; the head's length if it has none.

    The clients whose commits are beside each other have an owner each: from 64 clients no two would look alike.
    """
    if type(record) is not TransactionCommitted or record.owner is None:
        return len(head)
    owner = _encode(record.owner)
    return len(head) - (len(owner) if head.endswith(owner) else 0)


def _owners(column: Sequence[bytes]) -> list[Owner] | None:
    """Return the owners; None if one of them is none, which is refused when its record is read by itself."""
    try:
        known = {each: _decode_owner(each) for each in set(column)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return [known[each] for each in column]


def _even(body: bytes, position: int, most: int) -> _Even | None:
    """Return the sends, or commits, from ``position`` on that look like the first; None if they are few."""
    if most < FEWEST_EVEN:
        return None
    begin = body[position + HEADER_BYTES : position + HEADER_BYTES + len(_SEND)]
    if begin == _SEND:
        return _even_sends(body, position, most)
    return _even_commits(body, position, most) if begin == _COMMIT else None


def _even_sends(body: bytes, position: int, most: int) -> _Even | None:
    send = _sample(body, position)
    if send is None or len(send.part.numbers) != _FIELDS:
        return None
    if found := _alike(body, position, most, send.part):
        count, shape = found
        rows = cast(list[Row], list(shape.rows(body, position, count)))
        return _Even(EvenSends(rows), count, position + count * shape.struct.size)
    if ragged := _ragged(body, position, most, send):
        rows = cast(list[Row], list(zip(*ragged.columns, strict=True)))
        return _Even(EvenSends(rows), ragged.number, ragged.end)
    return None


def _even_commits(body: bytes, position: int, most: int) -> _Even | None:
    commit = _sample(body, position)
    if commit is None or len(commit.part.numbers) != _COMMIT_NUMBERS or not is_whole(commit.record):
        return None
    if found := _alike(body, position, most, commit.part):
        count, shape = found
        columns, end = shape.read(body, position, count), position + count * shape.struct.size
    elif ragged := _ragged(body, position, most, commit):
        columns, count, end = ragged
    else:
        return None
    *fields, frames = columns
    first = cast(TransactionCommitted, commit.record)
    owners: Sequence[Owner | None] | None = [first.owner] * count
    if commit.part.varies_from < commit.part.head_length:
        owners = _owners(fields.pop())
    if owners is None:
        return None
    even = _Columns._make([*fields, owners, first, frames])
    agree = (even.partitions, even.counts) == (even.run_partitions, even.run_counts)
    agree = agree and not any(even.run_starts)
    if not agree or even.causes.count(even.causes[0]) != count:
        return None
    commits = Commits(
        even.sessions, even.serials, even.partitions, even.bases, even.counts, even.times, even.seen, even.frames,
        even.record,
    )  # fmt: skip
    return _Even(commits, count, end)


class _Ragged(NamedTuple):
    """Columns as of records that look alike, how many of these there were, and the position after them."""

    columns: list[Sequence[Any]]
    number: int
    end: int


def _ragged(body: bytes, position: int, most: int, sample: _Sample) -> _Ragged | None:
    """Return records that differ from the sample, besides their numbers, only in their data's length.

    The heads are taken out and laid side by side, as if they had no data. None if they are few.
    """
    part = sample.part
    rows, data = cut_apart(body, position, most, part.head_length)
    found = _alike(rows, 0, len(data), part._replace(data_length=-1, with_data=False))
    if found is None:
        return None
    count, shape = found
    end = position + count * shape.struct.size + sum(map(len, data[:count]))
    return _Ragged([*shape.read(rows, 0, count), data[:count]], count, end)


def _alike(body: bytes, position: int, most: int, part: Part) -> tuple[int, Shape] | None:
    shape = shape_of(part)
    most = min(most, (len(body) - position) // shape.struct.size)
    if most >= FEWEST_EVEN:
        most = shape.alike(body, position, most)
    return (most, shape) if most >= FEWEST_EVEN else None


def _uneven(body: bytes, position: int, most: int) -> int:
    """Return how many to read one by one: one if a commit follows it, which may be the first of many alike.

    This is so behind a group's entries for the outcome archive.
    """
    if most < FEWEST_EVEN or body.startswith(_COMMIT, position + HEADER_BYTES):
        return most
    following = position + record.lengths(body, position)[0]
    return 1 if body.startswith(_COMMIT, following + HEADER_BYTES) else most
