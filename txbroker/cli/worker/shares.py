"""Which partitions each of several worker processes reads."""

from __future__ import annotations

from typing import NamedTuple

import click

from txbroker import Connection
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.output import count_text


class Share(NamedTuple):
    """The share of one of several processes, counted from 0."""

    number: int
    processes: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse ``0/2``; raises ``ValueError``."""
        number, _, processes = text.partition("/")
        return cls(int(number), int(processes))


def checked_shares(broker: Connection, topics: tuple[str, ...], processes: int) -> int:
    """Return how many partitions each topic has; exit 1 for an unknown one, 2 if they cannot be shared."""
    known = {topic.name: len(topic.partitions) for topic in broker.topics(topics)}
    if missing := [name for name in topics if name not in known]:
        raise Failure(f"there is no topic {missing[0]!r}; nothing was done", Exit.NO)
    counts = set(known.values())
    if len(counts) > 1:
        raise click.UsageError(
            "the topics have different numbers of partitions, so several processes cannot share them: run a command "
            "for each"
        )
    (count,) = counts
    if processes > count:
        raise click.UsageError(
            f"{processes} processes cannot share {count_text(count, 'partition')}: say --processes {count}, and more "
            "--concurrency"
        )
    return count


def share(broker: Connection, topics: tuple[str, ...], part: Share) -> list[int]:
    """Return the partitions that one of the processes reads."""
    return list(range(checked_shares(broker, topics, part.processes)))[part.number :: part.processes]
