"""How soon the partitions of a worker that joins, dies or stands still are handled by another one."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import txbroker
from benchmarks.figures import Figure, Target
from benchmarks.groups.processes import BenchmarkFailed, Worker, handled, say, workers
from txbroker.client.core.results import GroupDescription

PATIENCE: Final = 60.0
LOOK: Final = 0.02
"""Seconds between looks at the group."""
PARTITIONS: Final = 12
MANY: Final = 100
SESSION_TIMEOUT: Final = 3.0


def at_most(seconds: float) -> Target:
    """Return the target of a time."""
    return Target(f"≤ {seconds:g}", plus=seconds, at_most=True)


class Handover(NamedTuple):
    """What happens to a group, and how its seconds are measured: with a connection, its address, and a folder."""

    figure: Figure
    measure: Callable[[txbroker.Connection, str, Path], float]


def joins(broker: txbroker.Connection, address: str, folder: Path) -> float:  # noqa: ARG001
    """A third worker joins two on many partitions: from when it is a member until all have their share."""
    with group_of(broker, address, MANY, 2) as (topic, start, found):
        found.append(start())
        until(lambda: len(broker.describe_group(topic).members) == 3)
        began = time.monotonic()
        until(lambda: is_even(broker.describe_group(topic), 3))
        seconds = time.monotonic() - began
        until(lambda: all(handled(found)))
        return seconds


def killed(broker: txbroker.Connection, address: str, folder: Path) -> float:  # noqa: ARG001
    """One of three is killed: until each of its partitions goes on."""
    with group_of(broker, address, PARTITIONS, 3) as (topic, _, found):
        found[1].kill()
        found[1].wait()
        return flows_after(broker, topic)


def stopped(broker: txbroker.Connection, address: str, folder: Path) -> float:  # noqa: ARG001
    """One of three is stopped and keeps its connection."""
    with group_of(broker, address, PARTITIONS, 3, session_timeout=SESSION_TIMEOUT) as (topic, _, found):
        found[1].send_signal(signal.SIGSTOP)
        try:
            return flows_after(broker, topic)
        finally:
            found[1].send_signal(signal.SIGCONT)


def killed_when_prepared(broker: txbroker.Connection, address: str, folder: Path) -> float:
    """One of two is killed between prepare and COMMIT of an ``atomic`` block of the database that both use."""
    path = folder / f"rows-{time.monotonic_ns()}.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        txbroker.create_decision_table(database)
    with group_of(broker, address, 2, 2, database=str(path)) as (topic, _, found):
        say(found[1], "die")
        until(lambda: found[1].poll() is not None)
        return goes_on_after(broker, topic)


HANDOVERS: Final = (
    Handover(
        Figure(f"a third worker joins two on {MANY} partitions", "s until even", target=at_most(1.0)), joins
    ),
    Handover(Figure("kill -9 of one of three", "s until its partitions flow", target=at_most(6.0)), killed),
    Handover(
        Figure(
            f"SIGSTOP of one of three, session_timeout {SESSION_TIMEOUT:g} s",
            "s until its partitions flow",
            target=at_most(SESSION_TIMEOUT + 1.0),
        ),
        stopped,
    ),
    Handover(
        Figure("kill -9 between prepare and COMMIT", "s until its partitions flow", target=at_most(7.0)),
        killed_when_prepared,
    ),
)


@contextmanager
def group_of(
    broker: txbroker.Connection, address: str, partitions: int, count: int, **choices: object
) -> Iterator[tuple[str, Callable[[], Worker], list[Worker]]]:
    """Yield a topic with more messages than are handled, what starts a worker of the group of its name, and so many
    that share it and have all begun.
    """
    topic = f"handover-{time.monotonic_ns()}"
    broker.create_topic(topic, partitions=partitions)
    for number in range(20_000):
        broker.send_async(topic, b"%d" % number, partition=number % partitions)
    broker.flush()
    with workers(address, topic, **choices) as start:
        found = [start() for _ in range(count)]
        until(lambda: topic in {each.name for each in broker.groups()})
        until(lambda: is_even(broker.describe_group(topic), count))
        until(lambda: all(handled(found)))
        yield topic, start, found


def flows_after(broker: txbroker.Connection, topic: str) -> float:
    """Return the seconds from now until a message of each partition was handled.

    It need not be the one that the lost worker had in hand: that is an attempt, and comes again after a pause.
    """

    def lags() -> dict[int, int]:
        return {each.partition: each.lag or 0 for each in broker.describe_group(topic).partitions}

    before, began = lags(), time.monotonic()
    until(lambda: all(lag < before[partition] for partition, lag in lags().items()))
    return time.monotonic() - began


def goes_on_after(broker: txbroker.Connection, topic: str) -> float:
    """Return the seconds from now until the lowest unfinished message of each partition was finished."""
    before = {at.partition: at.offset or 0 for at in broker.group_offsets(topic)}
    began = time.monotonic()
    until(lambda: all((at.offset or 0) > before[at.partition] for at in broker.group_offsets(topic)))
    return time.monotonic() - began


def is_even(group: GroupDescription, count: int) -> bool:
    """Whether so many members have all partitions, each its share, and none is asked back."""
    sizes = dict.fromkeys((member.number for member in group.members), 0)
    for each in group.partitions:
        if each.member is None or each.revoking:
            return False
        sizes[each.member] += 1
    return len(sizes) == count and max(sizes.values()) - min(sizes.values()) <= 1


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; raises TimeoutError."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not come to be in time")
        time.sleep(LOOK)


def measured(handover: Handover, broker: txbroker.Connection, address: str, folder: Path) -> float:
    """Measure once; raises BenchmarkFailed if it never comes to be."""
    try:
        return handover.measure(broker, address, folder)
    except TimeoutError as error:
        raise BenchmarkFailed(f"{handover.figure.name}: {error}") from error
