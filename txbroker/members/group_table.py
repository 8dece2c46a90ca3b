"""The table of one group's members: which partition is whose, whose it is to become, and for whom it is kept.

It decides nothing by itself: :mod:`txbroker.members.coordinator` makes the claims that it asks for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from journal.records.group_entries import Settled
from txbroker.groups.claim_settlement import LostWork
from txbroker.members.member import Member

MAX_LOOKED: Final = 2000
"""Most partitions that are looked at in a turn."""


class Kept(NamedTuple):
    """A partition without an owner that is kept until a time (µs of journal time), for whoever shows its claim's
    generation; ``name``: or for the static member of that name.
    """

    until: int
    name: str = ""


class GroupTable:
    """The members of a group, by number, and the owners of partitions."""

    def __init__(self, group_id: bytes) -> None:
        self.group_id = group_id
        """The group's id if the first claim makes it."""
        self.members: dict[int, Member] = {}
        self.owners: dict[int, Member] = {}
        self.target: Mapping[int, int] = {}
        """The number of the member that is to have each partition."""
        self.kept: dict[int, Kept] = {}
        self.begun: dict[int, list[LostWork]] = {}
        """What members that were lost had begun in their partitions, until these are claimed, or had again without a
        claim.
        """
        self.finished: dict[int, Settled] = {}
        """What the member that attends has finished in its partitions, until these are claimed in the same turn."""
        self.assign_at: int | None = None
        """When the next assignment is due."""
        self.is_assigning = False
        self.new_topics: set[str] = set()
        """Topics that the group had not begun to read when it got its present assignment."""
        self.to_place: dict[int, None] = {}
        """Partitions to be looked at: their owner or their target has changed."""
        self.refused: dict[int, None] = {}
        """Partitions whose claims were refused, and are tried again at ``retry_at``."""
        self.retry_at = 0
        self._kept_until = 0

    def by_nonce(self, nonce: bytes) -> Member | None:
        """Return the member that joined with that nonce."""
        return next((member for member in self.members.values() if member.nonce == nonce), None)

    def by_name(self, name: str) -> Member | None:
        """Return the static member of that name; none has the name ""."""
        return next((member for member in self.members.values() if name and member.name == name), None)

    def own(self, member: Member, number: int, generation: int) -> None:
        """Note that a partition without an owner is a member's now, by a claim of that generation."""
        assert number not in self.owners
        self.owners[number] = member
        member.owned[number] = generation
        self.kept.pop(number, None)
        self.begun.pop(number, None)

    def disown(self, number: int) -> None:
        """Note that a partition has no owner any more."""
        member = self.owners.pop(number, None)
        if member is not None:
            member.owned.pop(number, None)
            member.asked.pop(number, None)
            self.to_place[number] = None

    def note_begun(self, member: Member) -> None:
        """Note what a member that is lost was handling."""
        for each in member.handled():
            if member.owned.get(each.partition) == each.generation:
                who = f"{member.name or member.client} at {member.peer}"
                self.begun.setdefault(each.partition, []).append(LostWork(each.offsets, each.together, who))

    def remove(self, member: Member) -> None:
        """Remove a member; its partitions have no owner then."""
        for number in list(member.owned):
            self.disown(number)
        del self.members[member.number]

    def aim(self, target: Mapping[int, int], members: Container[int]) -> None:
        """Take a new assignment, made for these members. What one has that has joined since stays its own until the
        next.
        """
        owners = self.owners.items()
        target = {**target, **{number: each.number for number, each in owners if each.number not in members}}
        self.to_place.update(dict.fromkeys(self.target))
        self.to_place.update(dict.fromkeys(target))
        self.to_place.update(dict.fromkeys(self.owners))
        self.target = target

    def placed(self, now: int) -> Iterator[tuple[Member, int]]:
        """Look at partitions whose owner is not the one that they are to have.

        Those of others are asked back; those that can be claimed now are yielded, with their member-to-be.
        """
        for number in list(islice(self.to_place, MAX_LOOKED)):
            del self.to_place[number]
            wanted = self.members.get(self.target.get(number, 0))
            owner = self.owners.get(number)
            if owner is None:
                if wanted is not None and not self._is_kept(number, wanted, now):
                    yield wanted, number
            elif owner is wanted:
                owner.asked.pop(number, None)
            else:
                owner.asked.setdefault(number, now + owner.max_handover)

    def _is_kept(self, number: int, wanted: Member, now: int) -> bool:
        """Return whether a partition without an owner is kept for another member than the wanted one."""
        kept = self.kept.get(number)
        return kept is not None and kept.until > now and not (kept.name and kept.name == wanted.name)

    def owners_by_number(self) -> dict[int, int]:
        """Return the number of each partition's owner, or of the static member that it is kept for, if that is
        there.
        """
        names = {member.name: member.number for member in self.members.values() if member.name}
        kept = {number: names[each.name] for number, each in self.kept.items() if each.name in names}
        return kept | {number: member.number for number, member in self.owners.items()}

    def overdue(self, now: int) -> list[int]:
        """Return the partitions that their owners have not released in time."""
        return [
            number
            for member in self.members.values()
            for number, until in member.asked.items()
            if until <= now
        ]

    def due(self, grace: int) -> Iterator[int]:
        """Yield the times at which something is due."""
        if self.assign_at is not None and not self.is_assigning:
            yield self.assign_at
        for member in self.members.values():
            yield member.lost_at(grace)
            if member.waiting is not None:
                yield member.answer_at
            yield from member.asked.values()
        if self.refused:
            yield self.retry_at
        if self.kept:
            yield self._kept_until

    def keep(self, numbers: Iterable[int], kept: Kept) -> None:
        """Keep partitions that have no owner."""
        for number in numbers:
            if number not in self.owners:
                self._kept_until = min(self._kept_until, kept.until) if self.kept else kept.until
                self.kept[number] = kept

    def expire_kept(self, now: int) -> None:
        """Keep no longer what was kept until now."""
        if self.kept and self._kept_until <= now:
            for number in [each for each, kept in self.kept.items() if kept.until <= now]:
                del self.kept[number]
                self.to_place[number] = None
            self._kept_until = min((kept.until for kept in self.kept.values()), default=0)

    def refuse(self, numbers: Iterable[int], until: int) -> None:
        """Note that partitions could not be claimed."""
        self.refused.update(dict.fromkeys(numbers))
        self.retry_at = until

    def retry_refused(self, now: int) -> None:
        """Look at those again whose time has come."""
        if self.refused and self.retry_at <= now:
            self.to_place.update(self.refused)
            self.refused.clear()
