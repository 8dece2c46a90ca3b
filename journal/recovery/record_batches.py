"""The records of a group whose checksum holds, some hundred at a time: how the journal is read when it is replayed.

Their own checksums are not looked at: the group's covers every byte of them, and its header says where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import error as StructError
from typing import Any, Final, NamedTuple, cast

import msgspec

from journal.formats import record
from journal.formats.record import (
    HEADER_BYTES,
    AnyRecord,
    Messages,
    Placement,
    TransactionAdded,
    TransactionCommitted,
)
from journal.log.message_run import Row
from journal.recovery.record_shapes import Part, Shape, numbers, shape_of
from journal.transaction import Totals

BLOCK_RECORDS = 512
"""Of 100 B singles 512 at a time take 1.1 µs each to fold, a whole group's 12,000 1.9: what is made of them then no
longer fits into the processor's cache."""

FEWEST_EVEN = 16
"""Fewer are read one by one: finding out how far they go takes 8 µs."""

_FIELDS = len(Messages.__struct_fields__)
_SEND, _ADD, _COMMIT = (
    bytes([0x90 + 1 + len(kind.__struct_fields__), cast(int, kind.__struct_config__.tag)])
    for kind in (Messages, TransactionAdded, TransactionCommitted)
)
"""What the heads of these begin with: an array of so many, and the tag."""
_ADD_NUMBERS: Final = 6
_COMMIT_NUMBERS: Final = (8, 11)
"""With one placement, without and with what the client says that it sent."""
_CAUSE: Final = _ADD_NUMBERS + 1 + 6


class Block(NamedTuple):
    """Records in order, with the data of each."""

    records: list[AnyRecord]
    data: list[bytes]


class EvenSends(NamedTuple):
    """Sends that look alike: the same length, and every number of their heads of the same width."""

    rows: list[Row]


class EvenTransactions(NamedTuple):
    """Adds that are each followed by a commit of one placement, all pairs alike; what is no number is as in the first.

    The columns: session, serial, partition, count, at, seen and frames of each add; session, serial, partition, base
    offset, count, at, cause, seen and perhaps the totals of each commit.
    """

    columns: list[Sequence[Any]]
    first_add: TransactionAdded
    first_commit: TransactionCommitted

    @property
    def frames(self) -> Sequence[bytes]:
        """Of each transaction."""
        return self.columns[_ADD_NUMBERS]

    @property
    def last_at(self) -> int:
        """When the last of them was decided."""
        return int(self.columns[_CAUSE - 1][-1])

    def pair(self, number: int) -> tuple[TransactionAdded, TransactionCommitted]:
        """The records of one."""
        session, serial, partition, count, at, seen, _, *decision = [
            column[number] for column in self.columns
        ]
        add = TransactionAdded(session, serial, partition, count, at, seen, None, self.first_add.owner)
        session, serial, partition, base, count, at, _, seen, *told = decision
        first, placements = self.first_commit, [Placement(partition, base, count)]
        totals = Totals(*told) if told else None
        return add, TransactionCommitted(
            session, serial, placements, at, first.cause, seen, first.by, first.why, totals
        )


def blocks(body: bytes, count: int, path: str, start: int) -> Iterator[Block | EvenSends | EvenTransactions]:
    """All ``count`` records of a group, in order.

    Each alone takes 0.7 µs, where :func:`journal.formats.record.unpack` takes 1.7; of those that look alike 0.3.
    ``path``
    and the ``start`` of the body in it are for the message of :class:`CorruptJournal`, which is raised if a record is
    of a kind or form that is not known here.
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
    """The next records, one by one, and the position after them."""
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
    """What looks alike, how many records it is, and the position after them."""

    block: EvenSends | EvenTransactions
    records: int
    end: int


class _Sample(NamedTuple):
    """The first of some records that may look alike."""

    record: AnyRecord
    part: Part
    length: int


def _sample(body: bytes, position: int, with_data: bool = True) -> _Sample | None:
    """The record at a position; None if it is none, or none that others could look like."""
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
    return _Sample(first, Part(found, head_length, data_length, with_data), length)


def _even(body: bytes, position: int, most: int) -> _Even | None:
    """The sends, or pairs of add and commit, from ``position`` on that look like the first; None if they are few."""
    begin = body[position + HEADER_BYTES : position + HEADER_BYTES + len(_SEND)]
    if begin == _SEND and most >= FEWEST_EVEN:
        return _even_sends(body, position, most)
    if begin == _ADD and most // 2 >= FEWEST_EVEN:
        return _even_transactions(body, position, most // 2)
    return None


def _even_sends(body: bytes, position: int, most: int) -> _Even | None:
    send = _sample(body, position)
    if send is None or len(send.part.numbers) != _FIELDS:
        return None
    if found := _alike(body, position, most, (send.part,)):
        count, shape = found
        rows = cast(list[Row], list(shape.rows(body, position, count)))
        return _Even(EvenSends(rows), count, position + count * shape.struct.size)
    if ragged := _ragged(body, position, most, (send,)):
        rows = cast(list[Row], list(zip(*ragged.columns, strict=True)))
        return _Even(EvenSends(rows), ragged.number, ragged.end)
    return None


def _even_transactions(body: bytes, position: int, most: int) -> _Even | None:
    add = _sample(body, position)
    commit = add and _sample(body, position + add.length, with_data=False)
    if add is None or commit is None:
        return None
    added, committed = add.record, commit.record
    if type(added) is not TransactionAdded or type(committed) is not TransactionCommitted:
        return None
    if len(committed.placements) != 1 or commit.part.data_length:
        return None
    if len(commit.part.numbers) not in _COMMIT_NUMBERS:
        return None
    if found := _alike(body, position, most, (add.part, commit.part)):
        count, shape = found
        columns, end = shape.read(body, position, count), position + count * shape.struct.size
    elif ragged := _ragged(body, position, most, (add, commit)):
        columns, count, end = ragged
    else:
        return None
    causes = columns[_CAUSE]
    if causes.count(causes[0]) != count:
        return None
    return _Even(EvenTransactions(columns, added, committed), 2 * count, end)


class _Ragged(NamedTuple):
    """Columns as of records that look alike, how many of these there were, and the position after them."""

    columns: list[Sequence[Any]]
    number: int
    end: int


def _ragged(body: bytes, position: int, most: int, samples: tuple[_Sample, ...]) -> _Ragged | None:
    """What differs from the samples, besides its numbers, only in how much data the first of them has.

    Their heads are taken out and laid side by side, as if they had none: 1.1 µs for an add and its commit, one by one
    4. None if they are few.
    """
    part, after = samples[0].part, samples[1:]
    head_end, tail = HEADER_BYTES + part.head_length, sum(each.length for each in after)
    follower = (after[0].length, after[0].part.head_length) if after else None
    heads: list[bytes] = []
    data: list[bytes] = []
    start, lengths = position, record.lengths
    while len(data) < most and start + HEADER_BYTES <= len(body):
        length, head_length = lengths(body, start)
        end = start + length
        if head_length != part.head_length or length < head_end or end + tail > len(body):
            break
        if follower is not None and lengths(body, end) != follower:
            break
        heads += body[start : start + head_end], body[end : end + tail]
        data.append(body[start + head_end : end])
        start = end + tail
    parts = part._replace(data_length=-1, with_data=False), *(each.part for each in after)
    found = _alike(rows := b"".join(heads), 0, len(data), parts)
    if found is None:
        return None
    count, shape = found
    columns, place = shape.read(rows, 0, count), len(part.numbers)
    end = position + count * shape.struct.size + sum(map(len, data[:count]))
    return _Ragged([*columns[:place], data[:count], *columns[place:]], count, end)


def _alike(body: bytes, position: int, most: int, parts: tuple[Part, ...]) -> tuple[int, Shape] | None:
    shape = shape_of(parts)
    most = min(most, (len(body) - position) // shape.struct.size)
    if most >= FEWEST_EVEN:
        most = shape.alike(body, position, most)
    return (most, shape) if most >= FEWEST_EVEN else None


def _uneven(body: bytes, position: int, most: int) -> int:
    """How many to read one by one: one alone if an add follows it, which may be the first of many pairs.

    As behind a commit, or behind what a group has for the outcome archive.
    """
    if most // 2 < FEWEST_EVEN or body.startswith(_ADD, position + HEADER_BYTES):
        return most
    following = position + record.lengths(body, position)[0]
    return 1 if body.startswith(_ADD, following + HEADER_BYTES) else most
