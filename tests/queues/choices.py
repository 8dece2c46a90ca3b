"""Choices that are drawn for a history of queues: who does something, with which messages, queues and exchanges."""

from __future__ import annotations

from random import Random

from journal.formats import frame
from journal.records.group_entries import Retried, Settled
from tests.queues.model.contents_model import Level
from tests.queues.model.message_model import Retry
from tests.queues.model.routing_model import Message
from tests.queues.queue_room import Client
from tests.queues.queue_world import World
from tests.queues.told_answers import offsets_in_bytes

QUEUES = ("a", "b", "c", "d")
EXCHANGES = ("e", "f", "amq.direct", "amq.fanout", "amq.topic", "amq.headers")
KEYS = ("a", "b", "x.y", "x", "y.x.y", "", "x..y")
PATTERNS = ("a", "x.y", "#", "*", "x.*", "#.y", "*.#", "x.#.y", "")
NAMES = ("h", "x-h")
VALUES = (b"1", b"2")
EXPIRATIONS = (0, 500_000, 1_000_000, 2_000_000, 5_000_000, 60_000_000)
DELAYS = (-500, 0, 1, 1, 300, 300, 1_300, 1_300, 2_300, 5_300, 60_300)
"""In ms; none is due at a full second, when other things happen."""


def client_of(world: World, random: Random) -> Client | None:
    return random.choice(list(world.clients.values())) if world.clients else None


def some_messages(world: World, random: Random, most: int = 3) -> list[Message]:
    notes, found = world.notes, []
    for _ in range(random.choice((1, 1, 2, most))):
        notes.numbers += 1
        value = b"%d " % notes.numbers + b"v" * random.choice((0, 0, 0, 10, 10, 200, 3000))
        headers = tuple((name, random.choice(VALUES)) for name in NAMES if random.random() < 0.3)
        expiration = random.choice(EXPIRATIONS) if world.limits.expires and random.random() < 0.3 else None
        priority = random.choice((0, 1, 2, 255)) if world.limits.priorities else 0
        delay = random.choice(DELAYS) if world.limits.delays and random.random() < 0.5 else None
        key = random.choice((*KEYS, *QUEUES))
        found.append(Message(value, key, headers, expiration, priority=priority, delay=delay))
    return found


def framed(several: list[Message]) -> bytes:
    return b"".join(
        frame.encode(each.value, 1, each.key.encode() or None, _headers(each) or None) for each in several
    )


def _headers(message: Message) -> dict[str, bytes]:
    own = {
        "txbroker.expiration": message.expiration,
        "txbroker.priority": message.priority or None,
        "x-delay": message.delay,
    }
    return {
        **dict(message.headers),
        **{name: b"%d" % value for name, value in own.items() if value is not None},
    }


def some_address(world: World, random: Random) -> int:
    """Return the address of an exchange, seldom of one that is not there; messages must find a queue or not."""
    known = [exchange.number for exchange in world.model.topology.exchanges.values()]
    known += [each.number for each in world.model.topology.exchanges.values() if each.delayed] * 4
    number = random.choice((1, random.choice(known), random.choice(known)))
    if random.random() < 0.03:
        number = world.model.topology.next_number - random.randint(0, 2)
    return -2 * number - (random.random() < 0.7)


def some_partition(world: World, random: Random) -> int:
    """Return the partition of a queue, rather of one with messages, seldom of one that is not there."""
    queues = list(world.model.queues.values())
    if not queues or random.random() < 0.03:
        return random.randint(1, 9)
    return random.choices(queues, [1 + len(each.copies) for each in queues])[0].partition


def some_level(world: World, random: Random) -> Level | None:
    """Return a priority of a queue, rather of one with messages; None for a queue that is not there."""
    queue = world.model.queue_at(some_partition(world, random))
    return None if queue is None else random.choice(queue.levels)


def some_held(world: World, random: Random, client: Client, most: int = 3) -> tuple[int, list[int]] | None:
    """Return some of what a session has in a queue; seldom what others have, or nobody."""
    held = world.model.held_by(client.name)
    if held and random.random() < 0.9:
        partition = random.choice(list(held))
        offsets = held[partition]
        return partition, sorted(random.sample(offsets, random.randint(1, min(most, len(offsets)))))
    level = some_level(world, random)
    if level is None or not level.end or random.random() < 0.5:
        return None
    others = [offset for offset, copy in level.copies.items() if copy.holder]
    known = others if others and random.random() < 0.7 else range(level.end + 1)
    return level.partition, sorted({random.choice(known) for _ in range(2)})


def settled(partition: int, done: list[int], retried: list[Retry]) -> Settled:
    """Return what a request says of messages."""
    base = min([*done, *(each.offset for each in retried)])
    said = [Retried(each.offset, each.attempts, each.after, "why", each.dead) for each in retried]
    return Settled(partition, 0, base, offsets_in_bytes(done, base), retried=said)


def owner_of(client: Client) -> str:
    """Return the name of a client without the number of its session."""
    return client.name.partition(".")[0]
