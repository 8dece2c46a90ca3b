"""What there is in a broker with queues, as its lists tell it and as the model has it: the two are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from msgspec.structs import astuple

from tests.queues.model.endings_model import QueueRules
from tests.queues.model.queue_model import Model
from tests.queues.model.routing_model import Message

Seen = tuple[int, int, int, Message, int]
"""The partition and offset of a message, its attempts, what it is, without headers of its own, and when it came to its
queue.
"""
DEAD = 1 << 62
"""When a dead letter is due."""


@dataclass
class SeenQueue:
    """A queue; ``ends`` are those of its partitions. ``ready_messages`` and ``returned`` are None if nobody looked at
    them.
    """

    partition: int
    rules: tuple[Any, ...]
    ends: list[int]
    left: int
    ready: int
    unacknowledged: int
    held: int
    waiting: int
    ready_messages: list[Seen] | None = None
    returned: list[tuple[int, int, int, int]] | None = None
    """Of messages that have been returned: the partition and offset, how often, and when it is due. No answer tells the
    last, if it is later: a start looks at what the journal keeps.
    """


@dataclass
class Observation:
    """All of it. An exchange is its number, how it was declared, what it has taken, its bindings, and how many messages
    wait at it.
    """

    queues: dict[str, SeenQueue] = field(default_factory=dict)
    exchanges: dict[str, Any] = field(default_factory=dict)
    prepared: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    """The xids of those that were prepared once."""
    rooms: dict[str, int] = field(default_factory=dict)
    """How many messages ever waited at each delayed exchange, whatever has become of them."""
    next_exchange: int = 0
    """The number that the next exchange gets."""

    @staticmethod
    def told(
        queues: Any,
        exchanges: Any,
        prepared: Any,
        committed: list[str],
        ends: Mapping[int, int],
        next_exchange: int,
        rooms: Mapping[str, int],
    ) -> Observation:
        """Return what answers tell."""
        found = Observation(committed=committed, next_exchange=next_exchange, rooms=dict(rooms))
        for each in queues:
            settings = each.settings
            first = astuple(settings)[: QueueRules._fields.index("most_bytes")]
            # Histories make no exclusive queues.
            rules = (
                *first, settings.max_length_bytes, settings.max_priority, settings.consumer_timeout,
                settings.dead_letter_strategy,
            )  # fmt: skip
            partitions = range(each.partition, each.partition + settings.max_priority + 1)
            found.queues[each.name] = SeenQueue(
                each.partition, rules, [ends[each] for each in partitions], each.messages, each.ready,
                each.unacknowledged, each.held, each.waiting,
            )  # fmt: skip
        for each in exchanges:
            bindings = [
                (one.key, one.destination, one.to_exchange, tuple(one.arguments)) for one in each.bindings
            ]
            how = (*astuple(each.settings)[:4], each.settings.delayed)
            found.exchanges[each.name] = each.number, how, each.taken, bindings, each.waiting
        found.prepared = sorted(each.xid.global_id.decode() for each in prepared)
        return found


def expected(model: Model, now: int) -> Observation:
    """Return what the model has; all of it is forced."""
    found = Observation(next_exchange=model.topology.next_number)
    for name, queue in sorted(model.shown_queues.items()):
        copies = queue.copies
        found.queues[name] = SeenQueue(
            queue.partition, tuple(queue.rules), [level.end for level in queue.levels], len(copies),
            queue.count_ready(now), sum(bool(copy.holder) for copy in copies), sum(bool(copy.held) for copy in copies),
            len(model.waiting.get(queue.partition, ())),
            [
                (level.partition, offset, copy.attempts, copy.message._replace(headers=()), copy.appended)
                for level in reversed(queue.levels)
                for offset in level.ready(now)
                if (copy := level.copies[offset])
            ],
            [
                (level.partition, offset, each.attempts, DEAD if each.dead else each.due)
                for level in queue.levels
                for offset, each in sorted(level.copies.items())
                if each.attempts or each.dead
            ],
        )  # fmt: skip
    for name, exchange in model.topology.exchanges.items():
        rules = model.topology.rules_of(name)
        bindings = [rule[1:] for rule in rules if rule.to_exchange or rule.to in model.shown_queues]
        taken = model.taken.get(exchange.number, 0)
        waiting = len(model.rooms[exchange.number].messages) if exchange.delayed else 0
        found.exchanges[name] = exchange.number, tuple(exchange[2:]), taken, bindings, waiting
        if exchange.delayed:
            found.rooms[name] = model.rooms[exchange.number].end
    found.prepared = sorted(model.prepared)
    found.committed = sorted(xid for xid, placements in model.outcomes.items() if placements is not None)
    return found


def different(wanted: Observation, found: Observation) -> str:
    """Return in words in what two differ."""
    lines = []
    for part in fields(Observation):
        one, other = getattr(wanted, part.name), getattr(found, part.name)
        if isinstance(one, dict):
            for name in sorted(one.keys() | other.keys()):
                if one.get(name) != other.get(name):
                    lines.append(f"{part.name[:-1]} {name!r}: {one.get(name)} is {other.get(name)}")
        elif one != other:
            lines.append(f"{part.name}: {one} are {other}")
    return "; ".join(lines)
