"""The workers of the demo: four processes of one group, of which two are killed, and the broker beneath them once."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import txbroker
from demo.flight_worker import GROUP
from demo.program import Program
from demo.source import FLIGHTS, TOPICS
from txbroker.client.core.results import GroupDescription, GroupPartition
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.errors import UnknownGroup

WORKERS: Final = tuple(f"worker-{number}" for number in range(1, 5))

LOOK_EVERY: Final = 0.02
"""Seconds between two looks at the group."""

GIVE_UP_AFTER: Final = 120.0
"""Seconds after which workers that handle nothing have a problem other than kills."""

BROKER: Final = "broker"
WORKER: Final = "worker"


class WorkStoodStill(Exception):
    """The workers have handled nothing for a long time; the message says what was left."""


@dataclass(frozen=True)
class Blow:
    """A planned kill of ``whom``, a worker or the broker: when this share of the rows is handled, from 0 to 1."""

    share: float
    whom: str


def blows(seed: int) -> list[Blow]:
    """Draw the kills of two workers and of the broker, in their order."""
    chance = random.Random(f"workers {seed}")
    return [
        Blow(chance.uniform(0.10, 0.25), WORKER),
        Blow(chance.uniform(0.30, 0.45), BROKER),
        Blow(chance.uniform(0.50, 0.65), WORKER),
    ]


@dataclass
class Death:
    """A worker that was killed: the partitions that it had, how many of their rows were not handled, and after how many
    seconds other workers had all of these partitions.
    """

    worker: str
    partitions: Sequence[int]
    left: int
    killed_at: float
    taken_over_after: float | None = None


@dataclass
class Watched:
    """What was seen of the work. Times are in seconds."""

    deaths: list[Death] = field(default_factory=list)
    broker_back_after: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Workforce:
    """The workers while they work. ``tell`` gets sentences for people, ``advance`` the number of rows that were
    handled since it was called last.

    As a context manager it starts the workers, and kills those that are left.
    """

    def __init__(
        self,
        broker: BrokerProcess,
        database_url: str,
        folder: Path,
        plan: Sequence[Blow],
        tell: Callable[[str], None],
        advance: Callable[[int], None],
    ) -> None:
        self.watched = Watched()
        self.ends: Mapping[int, int] = {}
        """How many rows each partition has."""
        self._broker = broker
        self._to_come = list(plan)
        self._tell = tell
        self._advance = advance
        command = [sys.executable, "-m", "demo.flight_worker", broker.address, database_url]
        self._alive = {name: Program(folder, name, [*command, name]) for name in WORKERS}
        self._handled = 0

    def __enter__(self) -> Workforce:
        for program in self._alive.values():
            program.start()
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._alive.values():
            program.kill()

    def run(self) -> None:
        """Return when the group has finished all rows, every blow has fallen, and those that are left have ended."""
        began = time.monotonic()
        connection = self._connected()
        (topic,) = connection.topics([FLIGHTS])
        self.ends = {each.index: each.high_watermark for each in topic.partitions}
        rows = sum(self.ends.values())
        moved_at = began
        while True:
            group = described(connection)
            left = rows if group is None else sum(map(self._left_in, group.partitions))
            if rows - left != self._handled:
                self._advance(rows - left - self._handled)
                self._handled, moved_at = rows - left, time.monotonic()
            if group is not None:
                self._note_taken_over(group)
                if self._is_due(group, rows):
                    connection.close()
                    self._strike(self._to_come.pop(0), group)
                    connection = self._connected()
                elif not self._to_come and not left and self._all_taken_over and not connection.parked(GROUP):
                    break
            self._check(moved_at, left)
            time.sleep(LOOK_EVERY)
        connection.close()
        self.watched.seconds = time.monotonic() - began
        self._stop()

    def _connected(self) -> txbroker.Connection:
        return txbroker.connect(self._broker.address, client="demo watcher")

    def _is_due(self, group: GroupDescription, rows: int) -> bool:
        """Return whether the next blow falls now: not before all workers have begun, and on a worker only while one has
        rows left. After a restart of the broker none has, until they have joined again.
        """
        if not self._to_come or self._handled < self._to_come[0].share * rows:
            return False
        if not self.watched.deaths and set(owners(group).values()) != set(WORKERS):
            return False
        return self._to_come[0].whom == BROKER or max(self._left_by_worker(group).values()) > 0

    def _strike(self, blow: Blow, group: GroupDescription) -> None:
        if blow.whom == BROKER:
            began = time.monotonic()
            self._broker.kill()
            self._tell(f"broker: SIGKILL after {self._handled:,} rows, while {len(self._alive)} workers work")
            self._broker.start()
            self.watched.broker_back_after.append(time.monotonic() - began)
            return
        left = self._left_by_worker(group)
        name = max(left, key=lambda each: left[each])
        self._alive.pop(name).kill()
        had = [each for each in group.partitions if owners(group).get(each.partition) == name]
        death = Death(name, [each.partition for each in had], sum(map(self._left_in, had)), time.monotonic())
        self.watched.deaths.append(death)
        self._tell(f"{name}: SIGKILL, with {death.left:,} rows left in {in_words(death.partitions)}")

    def _left_by_worker(self, group: GroupDescription) -> dict[str, int]:
        """Return how many rows each worker that is alive has left."""
        left = dict.fromkeys(self._alive, 0)
        for each in group.partitions:
            owner = owners(group).get(each.partition)
            if owner in left:
                left[owner] += self._left_in(each)
        return left

    def _left_in(self, partition: GroupPartition) -> int:
        """Return how many rows of a partition the group has not finished; it may have no position there yet."""
        return self.ends[partition.partition] if partition.lag is None else partition.lag

    def _note_taken_over(self, group: GroupDescription) -> None:
        owned = owners(group)
        for death in self.watched.deaths:
            if death.taken_over_after is None and all(
                owned.get(each) in self._alive for each in death.partitions
            ):
                death.taken_over_after = time.monotonic() - death.killed_at
                others = ", ".join(sorted({owned[each] for each in death.partitions}))
                self._tell(f"{death.worker}: {in_words(death.partitions)} taken over by {others}")

    @property
    def _all_taken_over(self) -> bool:
        return all(death.taken_over_after is not None for death in self.watched.deaths)

    def _check(self, moved_at: float, left: int) -> None:
        for program in self._alive.values():
            program.check()
        if time.monotonic() - moved_at > GIVE_UP_AFTER:
            raise WorkStoodStill(f"no row was handled for {GIVE_UP_AFTER:.0f} s, and {left:,} are left")

    def _stop(self) -> None:
        for name in sorted(self._alive):
            program = self._alive[name]
            if code := program.stop():
                raise program.failed(f"was stopped, and ended with {code}")


def described(connection: txbroker.Connection) -> GroupDescription | None:
    """Return the group of the workers; None while it is not there, or does not know of all partitions."""
    with suppress(UnknownGroup):
        group = connection.describe_group(GROUP)
        if len(group.partitions) == TOPICS[FLIGHTS]:
            return group
    return None


def owners(group: GroupDescription) -> dict[int, str]:
    """Return which worker has which partition, by the partition's index."""
    names = {member.number: member.client for member in group.members}
    return {
        each.partition: names[each.member]
        for each in group.partitions if each.member in names
    }  # fmt: skip


def in_words(partitions: Sequence[int]) -> str:
    """Return partitions for people."""
    return f"partition{'s' * (len(partitions) != 1)} {', '.join(map(str, partitions)) or 'none'}"
