"""Producers and consumer groups as the records tell of them, against what the newest checkpoint says.

A second implementation of the folds of ``journal.folds.producers`` and ``journal.folds.groups``, which keeps what
they keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from journal.check.effects import Effect, LogEnds
from journal.check.findings import Affected, Finding
from journal.checkpoints.rows import GroupRow, GroupsHead, HeldRow, ProducerRow, ProducersHead
from journal.constants import RUNS_REMEMBERED
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.record import (
    GroupDeleted,
    Messages,
    OffsetsCommitted,
    PartitionOffset,
    PartitionsClaimed,
    ProducerOpened,
    ProducersExpired,
    Started,
    TopicCreated,
    TopicDeleted,
)
from journal.transaction import State, TransactionNumber
from journal.wal.reader import JournalEntry

Sent = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""Of a producer in a partition: next sequence, offset after the last message, sequence and offset of each run."""
EMPTY: Sent = (0, -1, (), ())


class Producer:
    """A producer as the records have it."""

    def __init__(self, epoch: int, name: str, used: int, owner: bytes) -> None:
        self.epoch, self.name, self.used, self.owner = epoch, name, used, owner
        self.sent: dict[int, Sent] = {}

    def facts(self) -> tuple[int, str, int, str]:
        """Epoch, name, when it was used last, and whose it is."""
        return self.epoch, self.name, self.used, self.owner.hex()


class Producers:
    """All that are remembered."""

    def __init__(self, rows: list[Any]) -> None:
        self.by_id: dict[int, Producer] = {}
        self.next_id = msgspec.convert(rows[0], ProducersHead).next_id if rows else 1
        for row in (msgspec.convert(each, ProducerRow) for each in rows[1:]):
            found = self.by_id[row.id] = Producer(row.epoch, row.name, row.used, row.owner)
            for each in row.sequences:
                found.sent[each.partition] = each.next, each.end, tuple(each.starts), tuple(each.bases)

    def opened(self, record: ProducerOpened) -> None:
        """A new one, or one with a new epoch."""
        known = self.by_id.get(record.producer_id)
        self.by_id[record.producer_id] = Producer(
            record.epoch, known.name if known else record.name, record.at, record.owner
        )
        self.next_id = max(self.next_id, record.producer_id + 1)

    def send(self, record: Messages) -> str:
        """What is wrong with a send of a producer; empty if nothing."""
        known = self.by_id.get(record.producer_id)
        who = f"producer {record.producer_id} in epoch {record.epoch}"
        if known is None or known.epoch != record.epoch:
            return (
                f"{who} sent it, by the records before it has {known.epoch if known else 'never been opened'}"
            )
        following, end, starts, bases = known.sent.get(record.partition, EMPTY)
        if record.base_offset != end:
            starts = (*starts, following)[-RUNS_REMEMBERED:]
            bases = (*bases, record.base_offset)[-RUNS_REMEMBERED:]
        known.sent[record.partition] = (
            record.sequence + record.count, record.base_offset + record.count, starts, bases,
        )  # fmt: skip
        known.used = max(known.used, record.at)
        if following != record.sequence:
            return f"{who} sent it as its message {record.sequence}, by the records before {following} is the next"
        return ""

    def drop(self, gone: set[int]) -> None:
        """These partitions are no more."""
        for each in self.by_id.values():
            each.sent = {number: sent for number, sent in each.sent.items() if number not in gone}

    def differs(self, other: Producers) -> Iterator[tuple[str, int | None]]:
        """What is said of them otherwise there, and of which partition."""
        if self.next_id != other.next_id:
            yield f"the next producer gets number {other.next_id}, by the journal {self.next_id}", None
        for number in sorted(self.by_id.keys() | other.by_id.keys()):
            mine, said = self.by_id.get(number), other.by_id.get(number)
            if mine is None or said is None:
                where = "the journal, not by the checkpoint" if mine else "the checkpoint, not by the journal"
                yield f"there is a producer {number} by {where}", None
                continue
            if mine.facts() != said.facts():
                what = f"(epoch, name, last used, owner) of producer {number} are {said.facts()}"
                yield f"{what}, by the journal {mine.facts()}", None
            for partition in sorted(mine.sent.keys() | said.sent.keys()):
                one, another = mine.sent.get(partition, EMPTY), said.sent.get(partition, EMPTY)
                if one != another:
                    what = f"(next, end, runs) of producer {number} in partition number {partition}"
                    yield f"{what} are {another}, by the journal {one}", partition


class Groups:
    """Ids by group; positions as (offset, metadata) and claims as (generation, member), by group and partition."""

    def __init__(self, rows: list[Any]) -> None:
        self.ids: dict[str, bytes] = {}
        self.positions: dict[tuple[str, int], tuple[int, str]] = {}
        self.claims: dict[tuple[str, int], tuple[int, str]] = {}
        self.held: dict[TransactionNumber, list[tuple[str, bytes, PartitionOffset]]] = {}
        self.prepared: set[TransactionNumber] = set()
        self.last_generation = 0
        if not rows:
            return
        head = msgspec.convert(rows[0], GroupsHead)
        self.last_generation = head.last_generation
        for row in (msgspec.convert(each, GroupRow) for each in rows[1 : 1 + head.groups]):
            self.ids[row.name] = row.id
            self.positions |= {(row.name, number): (at, metadata) for number, at, metadata in row.positions}
            self.claims |= {(row.name, number): (generation, who) for number, generation, who in row.claims}
        for held in (msgspec.convert(each, HeldRow) for each in rows[1 + head.groups :]):
            number = TransactionNumber(held.session, held.serial)
            self.held[number] = [
                (name, made, PartitionOffset(p, at, by, data)) for name, made, p, at, by, data in held.offsets
            ]
            if held.prepared:
                self.prepared.add(number)

    def move(self, group: str, made: bytes, offsets: Iterable[PartitionOffset]) -> None:
        """A group goes on from there; ``made`` is its id if it is new."""
        self.ids.setdefault(group, made)
        self.positions |= {(group, each.partition): (each.offset, each.metadata) for each in offsets}

    def claim(self, record: PartitionsClaimed) -> None:
        """A member takes partitions."""
        self.ids.setdefault(record.group, record.id)
        for partition, generation in record.claims:
            self.claims[record.group, partition] = generation, record.member
            self.last_generation = max(self.last_generation, generation)

    def delete(self, group: str) -> None:
        """A group is no more."""
        self.ids.pop(group, None)
        self.positions = {key: value for key, value in self.positions.items() if key[0] != group}
        self.claims = {key: value for key, value in self.claims.items() if key[0] != group}

    def drop(self, gone: set[int]) -> None:
        """These partitions are no more."""
        self.positions = {key: value for key, value in self.positions.items() if key[1] not in gone}
        self.claims = {key: value for key, value in self.claims.items() if key[1] not in gone}
        for number, offsets in self.held.items():
            self.held[number] = [each for each in offsets if each[2].partition not in gone]

    def step(self, number: TransactionNumber, effect: Effect) -> None:
        """A transaction holds positions, and at its end moves groups, or lets them be."""
        for carried in effect.positions:
            held = self.held.setdefault(number, [])
            held += [(carried.group, carried.id, each) for each in carried.offsets]
        if effect.prepares and number in self.held:
            self.prepared.add(number)
        if effect.decision is not None:
            self.prepared.discard(number)
            for group, made, offset in self.held.pop(number, ()):
                if effect.outcome is State.COMMITTED:
                    self.move(group, made, (offset,))

    def restart(self) -> None:
        """What was active has been rolled back."""
        self.held = {number: offsets for number, offsets in self.held.items() if number in self.prepared}

    def differs(self, other: Groups) -> Iterator[tuple[str, int | None]]:
        """What is said of them otherwise there, and of which partition."""
        if self.last_generation != other.last_generation:
            yield (
                f"the last generation is {other.last_generation}, by the journal {self.last_generation}",
                None,
            )
        for name in sorted(
            n for n in self.ids.keys() | other.ids.keys() if self.ids.get(n) != other.ids.get(n)
        ):
            mine_is, said_is = (_named(each.ids.get(name)) for each in (self, other))
            yield f"group {name!r} is {said_is}, by the journal {mine_is}", None
        for what, mine, said in (
            ("position (offset, metadata)", self.positions, other.positions),
            ("claim (generation, member)", self.claims, other.claims),
        ):
            for key in sorted(key for key in mine.keys() | said.keys() if mine.get(key) != said.get(key)):
                text = f"the {what} of group {key[0]!r} in partition number {key[1]} is {said.get(key)}"
                yield f"{text}, by the journal {mine.get(key)}", key[1]
        if self.held != other.held or self.prepared != other.prepared:
            yield f"transactions hold offsets {other.held}, by the journal {self.held}", None


def _named(group_id: bytes | None) -> str:
    return "not there" if group_id is None else f"the one with id {group_id.hex() or 'none'}"


class ClientCheck:
    """Follows records in order, from ``since`` on: a checkpoint, or None if the first record of all is among them."""

    def __init__(self, since: Checkpoint | None) -> None:
        folds = since.folds if since is not None else {"producers": [], "groups": []}
        self._producers = Producers(folds["producers"]) if "producers" in folds else None
        self._groups = Groups(folds["groups"]) if "groups" in folds else None
        self._logs = LogEnds()
        self._logs.know(since.stores if since is not None else ())

    def follow(self, entry: JournalEntry, effect: Effect) -> Iterator[Finding]:
        """Take in the next record."""
        match entry.record:
            case TopicCreated() as made:
                self._logs.create(made)
            case TopicDeleted() as deleted:
                gone = self._logs.delete(deleted.topic)
                for fold in (self._producers, self._groups):
                    if fold is not None:
                        fold.drop(gone)
            case Messages() | ProducerOpened() | ProducersExpired():
                yield from self._of_producer(entry)
            case _ if self._groups is not None:
                _follow_groups(self._groups, entry.record, effect)

    def _of_producer(self, entry: JournalEntry) -> Iterator[Finding]:
        if self._producers is None:
            return
        match entry.record:
            case Messages() as sent if sent.producer_id:
                if problem := self._producers.send(sent):
                    affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn)
                    what = f"Messages at LSN {entry.lsn}: {problem}"
                    yield Finding(entry.path, entry.position, what, affects=affects)
            case ProducerOpened() as opened:
                self._producers.opened(opened)
            case ProducersExpired() as expired:
                for number in expired.producer_ids:
                    self._producers.by_id.pop(number, None)

    def against(self, newest: Checkpoint) -> Iterator[Finding]:
        """What that checkpoint says otherwise, once all records up to it have been followed."""
        path = filenames.checkpoint_file(newest.header.lsn)
        names = {store.number: Affected(store.topic, store.index) for store in newest.stores}
        found: list[tuple[str, int | None]] = []
        if self._producers is not None and "producers" in newest.folds:
            found += self._producers.differs(Producers(newest.folds["producers"]))
        if self._groups is not None and "groups" in newest.folds:
            found += self._groups.differs(Groups(newest.folds["groups"]))
        for what, partition in found:
            yield Finding(path, 0, what, affects=names.get(partition or 0, Affected()))


def _follow_groups(groups: Groups, record: Any, effect: Effect) -> None:
    match record:
        case OffsetsCommitted():
            groups.move(record.group, record.id, record.offsets)
        case PartitionsClaimed():
            groups.claim(record)
        case GroupDeleted():
            groups.delete(record.group)
        case Started():
            groups.restart()
    if effect.number is not None:
        groups.step(effect.number, effect)
