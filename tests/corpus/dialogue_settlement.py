"""The requests of a dialogue about single offsets of groups: finished, tried again, shown and released."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Retried, Settled

LONG = 30_000_000


class Author(Protocol):
    """Who draws a script."""

    random: Random

    def chance(self, share: float) -> bool: ...

    def usually(self, value: Any, *others: Any) -> Any: ...

    def partition(self) -> str: ...

    def read_group(self) -> str: ...


def settle(author: Author, name: str) -> list[Any]:
    """Finish an offset, and try another one again."""
    group, some = author.read_group(), author.random.sample(range(4), 2)
    after = author.usually(author.random.choice((None, 0, LONG)), -1)
    said = [[some[1], author.random.choice((0, 0, 1)), after, "why", author.chance(0.3)]]
    what = [[author.partition(), author.usually([some[0]], []), author.usually(said, [])]]
    return ["CommitOffsets", {"group": group, "offsets": [], "id": group or "g", "settled": what}]


def list_parked(author: Author, name: str) -> list[Any]:
    """Ask for what a group is to try again."""
    fields = {"group": author.read_group(), "partition": author.partition(), "first": author.usually(0, 2)}
    return ["ListParked", fields]


def release_parked(author: Author, name: str) -> list[Any]:
    """Have some offsets tried again now, skip them, or make finished ones unfinished."""
    what = author.usually(author.random.randrange(3), 3)
    group = author.read_group()
    offsets = [author.random.randrange(4), author.usually(1, 99)]
    fields = {"group": group, "id": author.usually(group or "g", "g1"), "partition": author.partition()}
    return ["ReleaseParked", fields | {"offsets": offsets, "what": what}]


def alter_group(author: Author, name: str) -> list[Any]:
    """Change settings of a group, whatever it had, or only if it has nothing else."""
    random, group = author.random, author.read_group()
    rules = [random.choice((1, 1, 2, 5)), 0, random.choice((0, LONG)), random.randrange(3)]
    settings = [author.usually(rules, None), random.choice((None, 0, 1, LONG))]
    changed = random.choice((["retry"], ["retry", "expiry"], ["expiry"]))
    fields = {"group": group, "settings": settings, "changed": changed, "id": group or "g"}
    return ["AlterGroup", fields | {"whether": random.choice((0, 0, 1, 2))}]


def settled(partition: int, generation: int, finished: list[int], retried: list[list[Any]]) -> Settled:
    """Return what a request settles in a partition."""
    offsets = OffsetSet()
    for offset in finished:
        offsets.add(offset)
    said = [Retried(*each) for each in retried]
    return Settled(partition, generation, 0, encode_offsets(offsets, 0), retried=said)
