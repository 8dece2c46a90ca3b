"""What consumer groups have finished, in plain sets and dictionaries: the reference for the fold of groups.

Offsets are small numbers here. In records they are moved up, so that they lie on both sides of the edge of a bitmap.
Everything below the lowest of them is finished in any group that has a position.
"""

from __future__ import annotations

from copy import deepcopy

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import CHUNK, OffsetSet
from journal.records.group_entries import (
    GroupPositions,
    PartitionOffset,
    Settled,
    Unfinished,
)

SIZE = 12
UNIVERSE = frozenset(range(SIZE))
BEYOND = SIZE
"""Stands for all offsets above the universe."""
LOWEST = CHUNK - SIZE // 2


def real(offset):
    return offset + LOWEST


class Place:
    """A partition for a group that has a position there."""

    def __init__(self, begin):
        self.finished = set(range(begin))
        self.details = {}
        self.metadata = ""

    @property
    def position(self):
        return min({*UNIVERSE, BEYOND} - self.finished)

    def move(self, to, metadata):
        self.metadata = metadata
        if to < self.position:
            self.finished, self.details = set(range(to)), {}
        self.finish(range(to))

    def finish(self, offsets):
        self.finished |= set(offsets)
        self.details = {offset: each for offset, each in self.details.items() if offset not in self.finished}

    def settle(self, start, finished, unfinished):
        self.finish(range(start))
        self.finish(finished)
        for offset, *said in unfinished:
            self.finished.discard(offset)
            self.details.pop(offset, None)
            if any(said):
                self.details[offset] = tuple(said)


class Entry:
    """Something for a partition of a group: a position, or what is settled there."""

    def __init__(self, group, partition, to=None, metadata="", base=0, finished=(), unfinished=(), start=0):
        self.group, self.partition = group, partition
        self.to, self.metadata = to, metadata
        self.base, self.finished, self.unfinished = base, frozenset(finished), tuple(unfinished)
        self.start = start

    @property
    def pair(self):
        return self.group, self.partition

    def recorded(self):
        """The entry as a position or as what a record settles."""
        if self.to is not None:
            return PartitionOffset(self.partition, real(self.to), 0, self.metadata)
        finished = OffsetSet()
        for offset in self.finished:
            finished.add(real(offset))
        unfinished = [Unfinished(real(offset), *said) for offset, *said in self.unfinished]
        base = real(self.base)
        start = real(self.start) if self.start else 0
        return Settled(self.partition, 0, base, encode_offsets(finished, base), unfinished, start)


def recorded(entries):
    """Entries as records have them: for each run of entries of one group, its positions before what it settles."""
    found = []
    for entry in entries:
        each = entry.recorded()
        last = found[-1] if found and found[-1].group == entry.group else None
        if last is None or (last.settled and isinstance(each, PartitionOffset)):
            found.append(last := GroupPositions(entry.group, b"", [], []))
        (last.offsets if isinstance(each, PartitionOffset) else last.settled).append(each)
    return found


class Transaction:
    """What it has added; once prepared what it holds by pair, and how that looked then."""

    def __init__(self):
        self.entries = []
        self.held = None
        self.seen = {}


class Model:
    """All groups; the transactions in the order in which they were prepared."""

    def __init__(self):
        self.groups, self.claims, self.retry = {}, {}, {}
        """By group: its places by partition, (generation, member, kind) by partition, and its retry rules."""
        self.transactions = {}
        self.prepared = []
        self.generation = 0

    def copy(self):
        return deepcopy(self)

    def place(self, pair):
        return self.groups.get(pair[0], {}).get(pair[1])

    def touched(self, entries):
        """By pair the offsets that nobody else may hold."""
        found = {}
        for pair in {each.pair for each in entries}:
            mine = [each for each in entries if each.pair == pair]
            place, moves = self.place(pair), [each for each in mine if each.to is not None]
            everything = UNIVERSE | {BEYOND}
            if place is None:
                found[pair] = everything
            elif moves:
                forward = len(mine) == 1 and moves[0].to > place.position
                found[pair] = frozenset(range(-1, moves[0].to)) if forward else everything
            else:
                offsets = [each.finished | {offset for offset, *_ in each.unfinished} for each in mine]
                # At least something, so that the group stays: the first base if the first ones say nothing.
                silent = [mine[0].base] if not offsets[0] else []
                below = [range(-1, each.start) for each in mine if each.start]
                found[pair] = frozenset(silent).union(*offsets, *below)
        return {pair: offsets for pair, offsets in found.items() if offsets}

    def met(self, entries):
        """By pair, and by the transaction that holds them, the offsets that these touch and others hold."""
        found = {}
        for pair, offsets in self.touched(entries).items():
            for number in self.prepared:
                if both := self.transactions[number].held.get(pair, frozenset()) & offsets:
                    found.setdefault(pair, {})[number] = both
        return found

    def apply(self, entries):
        for each in entries:
            places = self.groups.setdefault(each.group, {})
            self.claims.setdefault(each.group, {})
            begin = each.base if each.to is None else each.to
            place = places.setdefault(each.partition, Place(begin))
            if each.to is not None:
                place.move(each.to, each.metadata)
            else:
                place.settle(each.start, each.finished, each.unfinished)

    def claim(self, group, partition):
        self.generation += 1
        self.groups.setdefault(group, {})
        self.claims.setdefault(group, {})[partition] = (self.generation, f"member {self.generation}", 0)

    def alter(self, group, rules):
        self.groups.setdefault(group, {})
        self.claims.setdefault(group, {})
        self.retry[group] = rules

    def prepare(self, number):
        transaction = self.transactions[number]
        transaction.held = self.touched(transaction.entries)
        transaction.seen = self.look(transaction)
        self.prepared.append(number)

    def look(self, transaction):
        """How the offsets look that a prepared transaction holds."""
        found = {}
        for pair, offsets in transaction.held.items():
            place = self.place(pair)
            for offset in sorted(offsets & UNIVERSE):
                said = place and (offset in place.finished, place.details.get(offset))
                found[pair, offset] = said
        return found

    def end(self, number):
        if number in self.prepared:
            self.prepared.remove(number)
        return self.transactions.pop(number).entries

    def restart(self):
        self.transactions = {n: each for n, each in self.transactions.items() if n in self.prepared}

    def drop(self, partitions):
        """A topic with these partitions is deleted."""
        for parts in (*self.groups.values(), *self.claims.values()):
            for partition in partitions & parts.keys():
                del parts[partition]
        for each in self.transactions.values():
            each.entries = [entry for entry in each.entries if entry.partition not in partitions]
            if each.held is not None:
                each.held = {pair: held for pair, held in each.held.items() if pair[1] not in partitions}
                each.seen = self.look(each)

    def delete(self, group):
        del self.groups[group], self.claims[group]
        self.retry.pop(group, None)

    # -- as the fold is asked -----------------------------------------------------------------------

    def state(self):
        """Everything, in the form of :func:`state_of`."""
        return {
            name: (
                {p: (real(place.position), place.metadata) for p, place in places.items()},
                self.claims[name],
                {p: above for p, place in places.items() if (above := self._above(place))},
                {p: self._details(place) for p, place in places.items() if place.details},
                self.holders(name),
                self.retry.get(name),
            )
            for name, places in self.groups.items()
        }

    @staticmethod
    def _above(place):
        return {real(offset) for offset in place.finished if offset > place.position}

    @staticmethod
    def _details(place):
        return {real(offset): said for offset, said in place.details.items()}

    def holders(self, group):
        """The first that was prepared of those that hold something, by partition."""
        found = {}
        for number in self.prepared:
            for name, partition in self.transactions[number].held:
                if name == group:
                    found.setdefault(partition, number)
        return found


def state_of(fold):
    """What a fold says of its groups."""
    return {
        name: (
            group.positions,
            group.claims,
            {p: members(each.finished) for p, each in group.settlements.items() if each.finished},
            {p: details(each.unfinished) for p, each in group.settlements.items() if each.unfinished},
            fold.holders(name),
            group.settings.retry,
        )
        for name, group in fold.groups.items()
    }


def members(offsets):
    return {offset for first, end in offsets.runs() for offset in range(first, end)}


def details(unfinished):
    return {offset: (each.attempts, each.due, each.reason) for offset, each in unfinished.items()}
