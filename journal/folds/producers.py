"""The fold of idempotent producers: the sequences that each has sent, so that a retried send has the effect of one.

As in Kafka (KIP-98), a producer has an id, an epoch that fences older holders of its name, and per partition
a sequence that counts its messages from 0 in every epoch. Where the messages went is remembered as runs:
while a producer's messages lie side by side in a partition they make one run, however many requests brought
them. So a retry is answered with the offset of the first time even if a client had thousands of requests on
their way; what is bounded is how often other producers' messages came between.

Ids are small numbers that can be guessed, so a producer is used only by the client that opened it last, known by its
owner: a hash of the secret of its sessions (:mod:`txbroker.wire.secret`).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from zope.interface import implementer

from journal.constants import RUNS_REMEMBERED
from journal.errors import ProducerFenced, SequenceOutOfOrder, UnknownProducer
from journal.folds.partition_ranges import PartitionRanges, RangeRow
from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.interfaces import IRunFold
from journal.log.message_run import MessageRun
from journal.parties import Principal
from journal.records.queue_entries import address_of
from journal.records.record import (
    ExchangeDeleted,
    Messages,
    ProducerOpened,
    ProducersExpired,
    Published,
    SecretHash,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)

Key = TypeVar("Key", bytes, str)


class UnexpectedSequence(SequenceOutOfOrder):
    """A wrong sequence; carries the sequence that would have been taken; all below it are in the log already."""

    def __init__(self, message: str, expected: int) -> None:
        super().__init__(message)
        self.numbers = {"expected": expected}


class Sequences:
    """The messages that one producer has sent to one partition in its epoch.

    ``next`` is the next sequence expected, ``end`` the offset after the last message. Run number i begins with sequence
    ``starts[i]`` at offset ``bases[i]``.
    """

    __slots__ = ("bases", "end", "next", "starts")

    def __init__(self) -> None:
        self.next = 0
        self.end = -1
        self.starts = array("Q")
        self.bases = array("Q")

    def extend(self, base_offset: int, count: int) -> None:
        """Add the next ``count`` messages, which went to ``base_offset`` and on."""
        if base_offset != self.end:
            self.starts.append(self.next)
            self.bases.append(base_offset)
            if len(self.starts) > RUNS_REMEMBERED:
                del self.starts[0], self.bases[0]
        self.next += count
        self.end = base_offset + count

    def repeated(self, sequence: int, count: int) -> int:
        """Return the base offset of the first time; raises :class:`UnexpectedSequence` if it is unknown."""
        if sequence + count > self.next:
            raise UnexpectedSequence(
                f"messages {sequence} to {sequence + count - 1} overlap what is stored up to "
                f"{self.next - 1}: a retry must repeat the request as it was; nothing was stored",
                self.next,
            )
        place = bisect_right(self.starts, sequence) - 1
        if place < 0:
            raise UnexpectedSequence(
                f"messages {sequence} to {sequence + count - 1} are stored already, at offsets no longer "
                f"remembered (the last {RUNS_REMEMBERED} runs are); nothing was stored again",
                self.next,
            )
        end = self.starts[place + 1] if place + 1 < len(self.starts) else self.next
        if sequence + count > end:
            raise UnexpectedSequence(
                f"messages {sequence} to {sequence + count - 1} are stored already, but came in other "
                "requests: a retry must repeat the request as it was; nothing was stored again",
                self.next,
            )
        return self.bases[place] + sequence - self.starts[place]


class Producer:
    """A producer. ``used`` is the journal time of its last message or opening; ``name`` is "" for a nameless one.

    ``owner`` and ``principal`` are those of the session that opened it last.
    """

    __slots__ = ("epoch", "id", "name", "owner", "partitions", "principal", "used")

    def __init__(
        self, number: int, epoch: int, name: str, used: int, owner: bytes, principal: str = ""
    ) -> None:
        self.id = number
        self.epoch = epoch
        self.name = name
        self.used = used
        self.owner = owner
        self.principal = sys.intern(principal)
        self.partitions: dict[int, Sequences] = {}


class SequencesRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`Sequences` in a checkpoint."""

    partition: int
    next: int
    end: int
    starts: list[Count]
    bases: list[Count]


class HeadRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of a checkpoint beside the producers."""

    next_id: int
    ranges: list[RangeRow]


class ProducerRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`Producer` in a checkpoint."""

    id: int
    epoch: int
    name: str
    used: int
    sequences: list[SequencesRow]
    owner: SecretHash
    principal: Principal = ""


@implementer(IRunFold)
class ProducersFold:
    """All remembered producers. Ids count from 1 and are never used twice, whatever expires."""

    name = "producers"
    handles: tuple[type, ...] = (
        Messages,
        ProducerOpened,
        ProducersExpired,
        TopicCreated,
        TopicAltered,
        TopicDeleted,
        Published,
        ExchangeDeleted,
    )

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.names: dict[str, int] = {}
        self.next_id = 1
        self.pairs = 0
        """How many pairs of a producer and a partition are remembered."""
        self.owned: Counter[bytes] = Counter()
        """How many producers each owner has."""
        self.of_principals: Counter[str] = Counter()
        """How many producers each principal has."""
        self.pairs_owned: Counter[bytes] = Counter()
        """How many pairs the producers of each owner have."""
        self._ranges = PartitionRanges()

    # -- judging: questions before a record is made -------------------------------------------------

    def repeated(
        self,
        owner: bytes,
        producer_id: int,
        epoch: int,
        partition: int,
        sequence: int,
        count: int,
    ) -> int | None:
        """Return None if these messages are new and next; the base offset of the first time if they are stored already.

        It is on the hot path: once per send. Raises :class:`UnknownProducer`, :class:`ProducerFenced` and
        :class:`SequenceOutOfOrder`. A caller that accepts new ones at sequence 0 makes a new pair, and has to make room
        for it.
        """
        producer = self.producers.get(producer_id)
        if producer is None or producer.epoch != epoch or producer.owner != owner:
            raise self._stranger(producer_id, epoch)
        known = producer.partitions.get(partition)
        if known is not None:
            if known.next == sequence:
                return None
            if sequence < known.next:
                return known.repeated(sequence, count)
        elif sequence == 0:
            return None
        expected = 0 if known is None else known.next
        raise UnexpectedSequence(
            f"producer {producer_id} sent message {sequence} to partition {partition}, {expected} is next: "
            "what came before it was lost or refused, send that first; nothing was stored",
            expected,
        )

    def _stranger(self, producer_id: int, epoch: int) -> Exception:
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return ProducerFenced(
                f"producer {producer_id} ({producer.name!r}) is at epoch {producer.epoch}, this one has {epoch}: "
                "a newer holder of the name is at work; nothing was stored. Stop this one"
            )
        if producer is None:
            known = "is not known or was forgotten"
        elif epoch > producer.epoch:
            known = "never had that epoch"
        else:
            known = "was opened by a session with another secret than this one's"
        return UnknownProducer(
            f"producer {producer_id} (epoch {epoch}) {known}, so a repetition could not be told apart; "
            "nothing was stored. Open a producer, after finding out what of the last messages is there"
        )

    # -- folding ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state; asserts that the record continues it."""
        if type(record) is Messages:
            if record.producer_id:
                self._sent(record)
        elif type(record) is ProducerOpened:
            self._opened(record)
        elif type(record) is ProducersExpired:
            for number in record.producer_ids:
                self._forget(number)
        elif type(record) is TopicCreated:
            self._ranges.create(record)
        elif type(record) is TopicAltered:
            self._ranges.alter(record)
        elif type(record) is TopicDeleted:
            self._drop_partitions(self._ranges.delete(record))
        elif type(record) is Published:
            if record.producer_id:
                self._sent(
                    Messages(
                        record.address, record.base, record.count, record.at, record.producer_id, record.epoch,
                        record.sequence,
                    )
                )  # fmt: skip
        elif type(record) is ExchangeDeleted:
            self._drop_partitions(
                frozenset(address_of(record.number, mandatory) for mandatory in (True, False))
            )

    def apply_run(self, run: MessageRun) -> None:
        """Apply many sends to a partition; see :class:`IRunFold`."""
        partition = run.partition
        if run.is_of_one_producer:
            if run.producers[0]:
                self._sent(
                    Messages(
                        partition, run.bases[0], sum(run.counts), run.times[-1], run.producers[0], run.epochs[0],
                        run.sequences[0],
                    )
                )  # fmt: skip
            return
        columns = (run.bases, run.counts, run.times, run.producers, run.epochs, run.sequences)
        for row in zip(*columns, strict=True):
            record = Messages(partition, *row)
            if record.producer_id:
                self._sent(record)

    def _sent(self, record: Messages) -> None:
        producer = self.producers.get(record.producer_id)
        assert producer is not None, (
            f"{_sender(record)} sent it, by the records before it has never been opened"
        )
        assert producer.epoch == record.epoch, (
            f"{_sender(record)} sent it, by the records before it has epoch {producer.epoch}"
        )
        known = producer.partitions.get(record.partition)
        if known is None:
            known = producer.partitions[record.partition] = Sequences()
            self._count_pairs(producer, 1)
        assert known.next == record.sequence, (
            f"{_sender(record)} sent it as its message {record.sequence}, by the records before {known.next} is "
            "the next"
        )
        known.extend(record.base_offset, record.count)
        if record.at > producer.used:  # in replay, sends to different partitions come in any order
            producer.used = record.at

    def _opened(self, record: ProducerOpened) -> None:
        producer = self.producers.get(record.producer_id)
        if producer is None:
            assert record.producer_id >= self.next_id, f"{record} takes an id again"
            assert record.name not in self.names, f"{record} takes a name again"
            self.producers[record.producer_id] = Producer(
                record.producer_id, record.epoch, record.name, record.at, record.owner, record.principal
            )
            self.owned[record.owner] += 1
            self.of_principals[record.principal] += 1
            self.next_id = record.producer_id + 1
            if record.name:
                self.names[record.name] = record.producer_id
            return
        assert record.epoch > producer.epoch, f"{record} after epoch {producer.epoch}"
        self._count_pairs(producer, -len(producer.partitions))
        producer.partitions = {}
        producer.epoch = record.epoch
        _add(self.owned, producer.owner, -1)
        _add(self.owned, record.owner, 1)
        producer.owner = record.owner
        _add(self.of_principals, producer.principal, -1)
        _add(self.of_principals, record.principal, 1)
        producer.principal = sys.intern(record.principal)
        producer.used = record.at

    def _forget(self, number: int) -> None:
        producer = self.producers.pop(number)
        _add(self.owned, producer.owner, -1)
        _add(self.of_principals, producer.principal, -1)
        self._count_pairs(producer, -len(producer.partitions))
        if producer.name:
            del self.names[producer.name]

    def _count_pairs(self, producer: Producer, change: int) -> None:
        self.pairs += change
        _add(self.pairs_owned, producer.owner, change)

    def _drop_partitions(self, gone: frozenset[int]) -> None:
        for producer in self.producers.values():
            dropped = [number for number in producer.partitions if number in gone]
            for partition in dropped:
                del producer.partitions[partition]
            self._count_pairs(producer, -len(dropped))

    def snapshot(self) -> Iterator[Any]:
        """Return the counts, then one row per producer; taken at once, so that later records do not show."""
        rows: list[HeadRow | ProducerRow] = [HeadRow(self.next_id, self._ranges.rows())]
        for each in self.producers.values():
            sequences = [
                SequencesRow(partition, known.next, known.end, known.starts.tolist(), known.bases.tolist())
                for partition, known in each.partitions.items()
            ]
            row = ProducerRow(
                each.id, each.epoch, each.name, each.used, sequences, each.owner, each.principal
            )
            rows.append(row)
        return iter(rows)

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.take(HeadRow)
        rows.rest(ProducerRow)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the facts of each producer."""
        yield Fact("the number of the next producer"), self.next_id
        for number, each in self.producers.items():
            facts = each.epoch, each.name, each.used, each.owner.hex(), each.principal
            yield Fact(f"producer {number} (epoch, name, last used, owner, principal)"), facts
            for partition, known in each.partitions.items():
                sent = known.next, known.end, known.starts.tolist(), known.bases.tolist()
                what = f"what producer {number} sent to partition number {partition} (next, end, runs)"
                yield Fact(what, partition), sent

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        self.__init__()  # type: ignore[misc]
        head, *producers = rows
        self.next_id, self._ranges = head.next_id, PartitionRanges(head.ranges)
        for row in producers:
            producer = self.producers[row.id] = Producer(
                row.id, row.epoch, row.name, row.used, row.owner, row.principal
            )
            self.owned[row.owner] += 1
            self.of_principals[row.principal] += 1
            if row.name:
                self.names[row.name] = row.id
            for each in row.sequences:
                known = producer.partitions[each.partition] = Sequences()
                known.next, known.end = each.next, each.end
                known.starts.extend(each.starts)
                known.bases.extend(each.bases)
            self._count_pairs(producer, len(row.sequences))


def _sender(record: Messages) -> str:
    return f"producer {record.producer_id} in epoch {record.epoch}"


def _add(counted: Counter[Key], owner: Key, change: int) -> None:
    """Change the count of an owner; one with a count of 0 is removed, so that passing clients do not fill the table."""
    counted[owner] += change
    if not counted[owner]:
        del counted[owner]
