"""What must hold, said in the plainest way: told what was asked and answered, it judges. Knows nothing of engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OPEN, DONE, VOID = "open", "done", "void"


class Violation(AssertionError):
    """The broker broke a promise."""


@dataclass(eq=False)
class Intent:
    """Something asked for that must happen once and wholly, or not at all."""

    name: str
    stream: str = ""
    """Intents of one stream keep their order in each partition."""
    place: int = 0
    values: dict[int, list[bytes]] = field(default_factory=dict)
    number: tuple[int, int] | None = None
    """Of a transaction: session and serial. It has an outcome, and once that is void it stays so."""
    asked: set[str] = field(default_factory=set)
    attempts: int = 0
    state: str = OPEN
    asked_at: int = 1 << 60
    prepared_at: int = 1 << 60
    ended_at: int = 1 << 60
    doomed: bool = False


class Floor(NamedTuple):
    """What was known when somebody asked: the time, and where logs start and end at least."""

    at: int
    logs: dict[int, tuple[int, int]]


@dataclass(eq=False)
class Topic:
    """A topic that was asked for."""

    name: str
    retained: bool
    created: Intent
    deleted: Intent | None = None
    partitions: list[int] | None = None


class Model:
    """``forgetful``: the broker may forget any outcome. ``orphans``: what its policy does with prepared ones."""

    def __init__(self, forgetful: bool = False, orphans: str = "") -> None:
        self.now = 0
        self.forgetful, self.orphans = forgetful, orphans
        self.logs: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.places: dict[bytes, tuple[int, int]] = {}
        self.owners: dict[bytes, Intent] = {}
        self.starts: dict[int, int] = defaultdict(int)
        self.ends: dict[int, int] = defaultdict(int)
        self.open: list[Intent] = []
        self.transactions: dict[tuple[int, int], Intent] = {}
        self.topics: list[Topic] = []
        self.homes: dict[int, Topic] = {}
        self.numbers: dict[str, set[object]] = defaultdict(set)
        self.forgettable: dict[int, int] = defaultdict(int)

    def require(self, holds: object, expected: str, found: object = "") -> None:
        if not holds:
            raise Violation(f"expected: {expected}\nfound:    {found}")

    def floor(self, logs: Iterable[int]) -> Floor:
        return Floor(self.now, {p: (self.starts[p], self.ends[p]) for p in logs})

    def tick(self) -> int:
        self.now += 1
        return self.now

    def fresh(self, kind: str, number: object) -> None:
        self.require(number not in self.numbers[kind], f"no {kind} is used twice", f"{number} again")
        self.numbers[kind].add(number)

    # -- what is asked ------------------------------------------------------------------------------

    def ask(self, intent: Intent, what: str = "commit") -> None:
        if not intent.asked:
            self.open.append(intent)
        intent.asked.add(what)
        intent.attempts += 1
        if what == "commit" or (what == "prepare" and self.orphans == "commit"):
            intent.asked_at = min(intent.asked_at, self.now)
        if intent.state == VOID and intent.number is None:
            intent.state = OPEN

    def put_into(self, intent: Intent, partition: int, values: Iterable[bytes]) -> None:
        for value in values:
            intent.values.setdefault(partition, []).append(value)
            self.owners[value] = intent

    # -- what is answered -----------------------------------------------------------------------------

    def done(self, intent: Intent, bases: Mapping[int, int] | None = None) -> None:
        by_policy = self.orphans == "commit" and "prepare" in intent.asked
        self.require(
            "commit" in intent.asked or by_policy, f"{intent.name} has no effect, nobody asked", "it has"
        )
        self.require(intent.state != VOID and not intent.doomed, f"{intent.name} did not happen", "it did")
        if intent.state == OPEN:
            intent.state, intent.ended_at = DONE, self.now
        for partition, base in (bases or {}).items():
            for offset, value in enumerate(intent.values.get(partition, ()), base):
                self._put(partition, offset, value)

    def void(self, intent: Intent) -> None:
        self.require(intent.state != DONE, f"{intent.name} happened", "it did not")
        kept = (
            intent.prepared_at <= self.now and "rollback" not in intent.asked and self.orphans != "rollback"
        )
        self.require(not kept, f"{intent.name} is prepared and nobody asked to roll it back", "rolled back")
        if intent.state == OPEN:
            intent.state, intent.ended_at = VOID, self.now

    def refused(self, intent: Intent) -> None:
        """One attempt has surely done nothing; earlier ones may have."""
        intent.attempts -= 1
        if not intent.attempts and intent.state == OPEN and intent.number is None:
            self.void(intent)

    def prepared(self, intent: Intent, since: int) -> None:
        """It was seen to be prepared at some moment after ``since``."""
        self.require("prepare" in intent.asked, f"{intent.name} is not prepared, nobody asked", "prepared")
        self.require(
            intent.state == OPEN or intent.ended_at > since, f"{intent.name} is {intent.state}", "prepared"
        )
        intent.prepared_at = min(intent.prepared_at, self.now)

    def unprepared(self, intent: Intent, since: int) -> None:
        """It was seen to be active, or to have an xid that nobody knows, at some moment after ``since``."""
        self.require(intent.prepared_at > since, f"{intent.name} was prepared", "it is active, or unknown")

    def forgotten(self, intent: Intent) -> None:
        assert intent.number is not None
        session, serial = intent.number
        allowed = self.forgetful or self.forgettable[session] >= serial
        self.require(
            allowed, f"how {intent.name} ended is remembered: nobody has seen it", "OutcomeForgotten"
        )

    def saw(
        self, partition: int, start: int, end: int, offset: int, values: list[bytes], since: Floor
    ) -> None:
        """A reader got these, who asked when ``since`` was known of the log."""
        least, most = since.logs.get(partition, (0, 0))
        self.require(
            start >= least and end >= most, f"log {partition} has {least} to {most}", f"{start} to {end}"
        )
        topic = self.homes[partition]
        self.require(not start or topic.retained, f"log {partition} keeps all", f"it starts at {start}")
        deleted = topic.deleted is not None and topic.deleted.ended_at < since.at
        self.require(
            not (deleted and topic.deleted.state == DONE), f"log {partition} is deleted", "it is read"
        )
        self.starts[partition] = max(start, self.starts[partition])
        self.ends[partition] = max(end, self.ends[partition])
        for at, value in enumerate(values, offset):
            owner = self.owners.get(value)
            mine = owner is not None and value in owner.values.get(partition, ())
            self.require(
                mine and at < end, f"log {partition} up to {end} has what was sent to it", (at, value[:40])
            )
            assert owner is not None
            self._put(partition, at, value)
            self.done(owner)

    def _put(self, partition: int, offset: int, value: bytes) -> None:
        held = self.logs[partition].setdefault(offset, value)
        self.require(held == value, f"{held[:40]!r} stays at {partition}/{offset}", value[:40])
        place = self.places.setdefault(value, (partition, offset))
        self.require(place == (partition, offset), f"{value[:40]!r} is at {place} only", (partition, offset))
        self.ends[partition] = max(offset + 1, self.ends[partition])

    def one_moment(self, ends: Mapping[int, int]) -> None:
        """One answer said that these logs end there: no transaction may be in one and not in another."""
        for intent in self.transactions.values():
            if len(intent.values) > 1 and intent.state == DONE:
                values = [
                    value
                    for partition in intent.values
                    if partition in ends
                    for value in intent.values[partition]
                ]
                shown = {
                    offset < ends[p] for p, offset in (self.places[v] for v in values if v in self.places)
                }
                self.require(
                    len(shown) < 2, f"{intent.name} is seen everywhere at once", f"partly, with ends {ends}"
                )

    # -- after a recovery, when nothing is under way and all has been read -----------------------------

    def settle_topics(self, found: Mapping[str, list[int]]) -> set[int]:
        """These topics are there; returns the partitions that are."""
        for topic in [topic for topic in self.topics if not topic.deleted or topic.deleted.state != DONE]:
            numbers = found.get(topic.name)
            if numbers is None:
                if topic.deleted is not None and topic.deleted.state == OPEN:
                    self.done(topic.deleted)
                else:
                    self.void(topic.created)
                    self.topics.remove(topic)
            else:
                self.made(topic, numbers)
                if topic.deleted is not None:
                    self.void(topic.deleted)
                    topic.deleted = None
        known = {topic.name for topic in self.topics if topic.deleted is None}
        self.require(found.keys() == known, f"topics are {sorted(known)}", sorted(found))
        return {number for numbers in found.values() for number in numbers}

    def made(self, topic: Topic, numbers: list[int]) -> None:
        """The topic is there, with these partitions."""
        self.done(topic.created)
        if topic.partitions is None:
            topic.partitions = numbers
            for number in numbers:
                self.fresh("partition", number)
                self.homes[number] = topic
        self.require(topic.partitions == numbers, f"{topic.name} has {topic.partitions}", numbers)

    def settle(self, alive: set[int], prepared: set[tuple[int, int]]) -> None:
        """All that was asked has happened wholly or not at all, but for what is ``prepared``."""
        for intent in self.open:
            logs = [p for p in intent.values if p in alive and not self.starts[p]]
            there = [value in self.places for partition in logs for value in intent.values[partition]]
            self.require(all(there) or not any(there), f"{intent.name} is there wholly or not at all", there)
            intent.attempts = 0
            if intent.number in prepared:
                self.prepared(intent, self.now - 1)
            elif intent.state == OPEN:
                self.void(intent)
            self.require(
                intent.state != DONE or all(there), f"{intent.name} happened: all of it is there", there
            )
        self.open = [intent for intent in self.open if intent.state == OPEN]
        for partition in alive:
            self._check_order(partition)

    def _check_order(self, partition: int) -> None:
        last: dict[str, tuple[int, int]] = {}
        for offset in range(self.starts[partition], self.ends[partition]):
            value = self.logs[partition].get(offset)
            self.require(value, f"log {partition} has an offset {offset}", "nothing there")
            assert value is not None
            owner = self.owners[value]
            place = (owner.place, owner.values[partition].index(value))
            before = last.get(owner.stream, (-1, 0))
            self.require(
                before < place, f"{owner.stream} has {place} after {before} in {partition}", f"at {offset}"
            )
            follows = place[1] == 0 or offset == self.starts[partition] or before == (place[0], place[1] - 1)
            self.require(follows, f"{owner.name} lies together", f"{place} after {before} at {offset}")
            last[owner.stream] = place
