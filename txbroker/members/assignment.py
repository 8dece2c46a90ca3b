"""The assignment of partitions to the members of a group: even, topic by topic, and with few moves.

The idea of an assignment that the broker computes, and that keeps what members have, is that of Kafka's KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import nsmallest
from typing import TYPE_CHECKING

from journal.formats.filenames import is_internal
from txbroker.members.member import Member, wishes_of

if TYPE_CHECKING:
    from journal.log.catalog import Topic

Wishes = Mapping[int, Iterable[str]]
"""The topics that each member reads."""


def assign(
    topics: Iterable[tuple[str, Topic]], members: Sequence[Member], owners: dict[int, int]
) -> dict[int, int]:
    """Return the member for each partition of these topics that one of them reads; it runs on the reader pool."""
    partitions = {name: topic.partitions for name, topic in topics if not is_internal(name)}
    wishes = wishes_of(members, partitions)
    read = {name for names in wishes.values() for name in names}
    return share_out(wishes, {name: [store.number for store in partitions[name]] for name in read}, owners)


def share_out(
    wishes: Wishes, topics: Mapping[str, Sequence[int]], owners: Mapping[int, int]
) -> dict[int, int]:
    """Return the member for each partition of the ``topics`` that somebody reads.

    ``topics`` has the numbers of their partitions, ``owners`` the members that have partitions now. Of each topic
    its readers get equally many partitions, or one more: who gets one more is chosen so that the members that read the
    same topics have equally many altogether, or one more. An owner keeps what it may. A result as ``owners`` gives the
    same result again, if all members read the same topics.
    """
    readers: dict[str, list[int]] = {}
    for member in sorted(wishes):
        for topic in sorted(set(wishes[member])):
            readers.setdefault(topic, []).append(member)
    shared = {topic: (topics[topic], readers[topic]) for topic in sorted(readers) if topics.get(topic)}
    larger = _larger_shares(shared, owners)
    found: dict[int, int] = {}
    for topic, (numbers, members) in shared.items():
        least = len(numbers) // len(members)
        room = {member: least + (member in larger[topic]) for member in members}
        free = []
        for number in numbers:
            owner = owners.get(number, -1)
            if room.get(owner, 0):
                room[owner] -= 1
                found[number] = owner
            else:
                free.append(number)
        takers = (member for member in members for _ in range(room[member]))
        found.update(zip(free, takers, strict=True))
    return found


def _larger_shares(
    shared: Mapping[str, tuple[Sequence[int], list[int]]], owners: Mapping[int, int]
) -> dict[str, set[int]]:
    """Return for each topic the members that get one partition more than the others.

    Each member may first keep as many larger shares as it should have on average. What is left goes to those that have
    fewest for their average, then to those that have fewest partitions, then to those that have such a share now.
    """
    average: dict[int, Fraction] = {}
    sure: dict[int, int] = {}
    over: dict[str, set[int]] = {}
    for topic, (numbers, members) in shared.items():
        least, extra = divmod(len(numbers), len(members))
        for member in members:
            average[member] = average.get(member, Fraction()) + Fraction(extra, len(members))
            sure[member] = sure.get(member, 0) + least
        over[topic] = _with_more_than(least, numbers, owners).intersection(members)
    due = {member: int(share) for member, share in average.items()}
    larger: dict[str, set[int]] = {}
    for topic, (numbers, members) in shared.items():
        kept = sorted(member for member in over[topic] if due[member] > 0)[: len(numbers) % len(members)]
        larger[topic] = set(kept)
        for member in kept:
            due[member] -= 1
    for topic, (numbers, members) in shared.items():
        rest = [
            (-due[member], sure[member], member not in over[topic], member)
            for member in members
            if member not in larger[topic]
        ]
        for *_, member in nsmallest(len(numbers) % len(members) - len(larger[topic]), rest):
            due[member] -= 1
            larger[topic].add(member)
    _even_out(larger, shared, due)
    return larger


def _even_out(
    larger: dict[str, set[int]], shared: Mapping[str, tuple[Sequence[int], list[int]]], due: dict[int, int]
) -> None:
    """Move larger shares from members that have two more than others, for their averages, to these, where both read."""
    if not due:
        return
    highest = min(due, key=lambda member: (due[member], member))
    lowest = max(due, key=lambda member: (due[member], member))
    while due[lowest] - due[highest] > 1:
        for topic, members in larger.items():
            if highest in members and lowest not in members and lowest in shared[topic][1]:
                members.remove(highest)
                members.add(lowest)
                due[highest] += 1
                due[lowest] -= 1
                break
        else:
            return
        highest = min(due, key=lambda member: (due[member], member))
        lowest = max(due, key=lambda member: (due[member], member))


def _with_more_than(least: int, numbers: Sequence[int], owners: Mapping[int, int]) -> set[int]:
    """Return the owners of more of these partitions than ``least``."""
    count: dict[int, int] = {}
    for number in numbers:
        owner = owners.get(number)
        if owner is not None:
            count[owner] = count.get(owner, 0) + 1
    return {owner for owner, owned in count.items() if owned > least}
