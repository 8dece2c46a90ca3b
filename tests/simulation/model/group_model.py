"""The model of consumer groups: the last accepted move of a position holds, and none by a fenced member."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, OPEN, VOID, Intent, Model

Key = tuple[str, int]
"""A group's position: (group, partition)."""


class Claim(NamedTuple):
    """A member got a partition: when it asked, and when it was answered."""

    generation: int
    asked: int
    answered: int


class GroupModel:
    """Positions are known by the token that each move of them carries as its metadata."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.movers: dict[Key, list[tuple[Intent, str | None]]] = defaultdict(_nobody)
        self.claims: dict[Key, list[Claim]] = defaultdict(list)
        self.rules: dict[str, list[tuple[Intent, str | None]]] = defaultdict(_nobody)
        """How each group was to try messages again, as text."""
        self.deletions: dict[str, list[Intent]] = defaultdict(list)
        self.gone: dict[bytes, str] = {}
        """Groups that are known to be deleted, by their ids."""

    def move_with(self, intent: Intent, key: Key, token: str | None) -> None:
        """If the intent happens, the position is moved."""
        self.movers[key].append((intent, token))

    def delete_with(self, intent: Intent, group: str) -> None:
        """If the intent happens, the group has no positions, and nobody has claimed anything of it."""
        self.deletions[group].append(intent)

    def deleted(
        self, intent: Intent, group: str, group_id: bytes, since: int, gone: Collection[int] = ()
    ) -> None:
        """The group was deleted, by one who asked at ``since``; nothing holds it in partitions that are ``gone``."""
        require(
            group_id not in self.gone, f"group {group}, {group_id!r}, is deleted once", "another one is, too"
        )
        self.gone[group_id] = group
        for key in [key for key in self.movers if key[0] == group and key[1] not in gone]:
            self.held(key, False, since)
        self.model.done(intent)

    def position(self, key: Key, token: str | None, since: int) -> None:
        """It was read, by one who asked at ``since``: as moved by the last one of all, or by one about to."""
        self._read(f"{key} is where the last one moved it", self.movers[key], key[0], token, since)

    def rules_read(self, group: str, rules: str | None, since: int) -> None:
        """The rules of a group were read, by one who asked at ``since``: as the last one of all has set them."""
        what = f"group {group} tries again as the last one has said"
        self._read(what, self.rules[group], group, rules, since)

    def _read(
        self,
        what: str,
        movers: list[tuple[Intent, str | None]],
        group: str,
        token: str | None,
        since: int,
    ) -> None:
        """What the last of these has left was read, or what one has that is about to; deletions leave nothing."""
        movers = [*movers, *((one, None) for one in self.deletions[group])]
        ended = [one for one, _ in movers if one.state == DONE and one.ended_at < since]
        fits = [
            one
            for one, moved in movers
            if moved == token
            and one.state != VOID
            and not any(other is not one and other.asked_at > one.ended_at for other in ended)
        ]
        found = [(one.name, moved, one.state) for one, moved in movers]
        require(fits, f"{what}, of {found}", repr(token))
        first = min(fits, key=lambda one: one.asked_at)  # of several deletions any may have been it
        if first.asked:
            self.model.done(first)

    def held(self, key: Key, pending: bool, since: int) -> None:
        """It was said whether an undecided transaction will move it."""
        holders = [one.name for one, _ in self.movers[key] if self._holds(one, since)]
        require(pending or not holders, f"{key} is held by {holders}", "it is not")

    def moved(self, intent: Intent, generations: Mapping[Key, int], since: int) -> None:
        """Positions were moved outside transactions, by one who asked at ``since``."""
        for key, generation in generations.items():
            newer = [c.generation for c in self._standing(key, since) if c.generation > generation]
            require(not newer, f"{key} belongs to {newer}", f"{intent.name} moved it as {generation}")
            self.held(key, False, since)
        self.model.done(intent)

    def claimed(self, key: Key, generation: int, since: int) -> None:
        """A member got a partition; nobody had that generation, or a higher one, before."""
        before = max((c.generation for c in self.claims[key] if c.answered < since), default=0)
        require(generation > before, f"{key} is claimed above {before}", f"generation {generation}")
        self.claims[key].append(Claim(generation, since, self.model.now))

    def _standing(self, key: Key, at: int) -> list[Claim]:
        """Claims that were known then, and that no deletion of the group may have ended."""
        ends = [one.ended_at for one in self.deletions[key[0]] if one.state != VOID]
        return [c for c in self.claims[key] if c.answered < at and all(end < c.asked for end in ends)]

    def _holds(self, one: Intent, since: int) -> bool:
        undecided = one.state == OPEN and not one.asked & {"commit", "rollback"} and not self.model.orphans
        return undecided and one.prepared_at < since


def _nobody() -> list[tuple[Intent, str | None]]:
    return [(Intent("nothing", state=DONE, asked_at=0, ended_at=0), None)]
