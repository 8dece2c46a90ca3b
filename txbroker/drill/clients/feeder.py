"""The role ``feeder`` sends the messages that the workers handle, and waits for the workers when too many are left."""

from __future__ import annotations

from typing import Final

import txbroker
from txbroker.drill.clients.ledger import Began
from txbroker.drill.clients.life import EXPECTED, Life
from txbroker.drill.clients.senders import send_messages
from txbroker.drill.plan.plan import TASKS, Plan

BATCHES: Final = (1, 1, 5, 20, 60)
"""How many messages are sent before the feeder waits for the first answer."""

KEYS: Final = tuple(f"key-{number}" for number in range(8))
"""The keys in each partition. A message that comes again holds up its key, so there are some."""

LOOK_EVERY: Final = 5
"""Batches between two looks at how many messages are left."""

MOST_LEFT: Final = 500
"""With so many messages left the feeder sends none: at the end of the drill all are to be handled soon."""


def feed(life: Life) -> None:
    """Run the role ``feeder``: one connection for the whole life; the client asks again for lost answers."""
    connection = life.connect()
    while life.goes_on():
        stored = feed_batch(life, connection)
        if not stored or life.operations % LOOK_EVERY == 0:
            while life.goes_on() and _is_ahead(life, connection):
                life.pause()
    life.drop(connection)


def feed_batch(life: Life, connection: txbroker.Connection) -> bool:
    """Send one batch of messages with keys; returns whether all messages are stored."""
    chance = life.chance
    places = chance.choices(life.plan.places(TASKS), k=chance.choice(BATCHES))
    keys = chance.choices(KEYS, k=len(places))
    operation, connections = life.next_operation(), life.connections
    began = Began(operation=operation, places=places, connection=connections, keys=keys)
    return send_messages(life, connection, began)


def _is_ahead(life: Life, connection: txbroker.Connection) -> bool:
    try:
        return unhandled(connection, life.plan) > MOST_LEFT
    except EXPECTED:  # a broker that is away takes no messages either: it is asked again
        return True


def unhandled(connection: txbroker.Connection, plan: Plan) -> int:
    """Return how many messages there are from the first on that the workers' group has not finished; 0: it has all."""
    topic = plan.topic(TASKS)
    positions = {
        each.partition: each.offset or 0
        for each in connection.group_offsets(plan.work_group)
        if each.topic == topic
    }
    (described,) = connection.topics({topic})
    return sum(part.high_watermark - positions.get(part.index, 0) for part in described.partitions)
