"""The steps of histories with outboxes, and their end: then every row is delivered."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.clients.outboxes import Outbox
from tests.simulation.model.log_model import require
from tests.simulation.world.world import World

MOST_TURNS = 50
"""Turns in which all must have come to rest at the end, beside one for each row, which may be refused."""


def _outboxes(world: World, random: Random) -> None:
    """Whoever delivers has some turns, and most of what is on its way arrives."""
    for _ in range(random.choice((1, 3, 10))):
        for client in random.sample(world.outbox_clients, len(world.outbox_clients)):
            if client.connection is None:
                client.connect(client.former)
            elif client.ready and world.topics.homes:
                client.play(random)
        for connection in world.connections:
            if random.random() < 0.9:
                connection.deliver(1 << 30)
        world.reactor.turn()
        if random.random() < 0.7:
            world.writer.step(1 << 30)
        world.reactor.turn()
        for each in world.everybody:
            if random.random() < 0.9:
                each.take(1 << 30)
        if world.failed or world.plan.off:
            return


OUTBOX_STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {"outboxes": (40, _outboxes)}
"""What may happen next in histories with outboxes, beside all other steps; each with its weight."""


def unfinished(world: World) -> list[Outbox]:
    """The outboxes that have rows, or whose streams the broker knows."""
    return [each for each in world.outboxes if each.rows or each.stream in world.streams()]


def deliver_all(world: World) -> None:
    """At rest: all rows are delivered, one way or the other, and no stream is left over."""
    world.say("the end: all rows are delivered")
    [client, *_] = world.outbox_clients
    for _ in range(MOST_TURNS + sum(len(outbox.rows) for outbox in world.outboxes)):
        if client.connection is None:
            client.connect(client.former)
        elif client.ready:
            for outbox in unfinished(world):
                client.finish(outbox)
        world.pump()
        world.reactor.pass_time(1_100_000)  # so that it is seen that there is room on the disk again
        if not unfinished(world):
            break
    left = [(outbox.stream.hex(), [row.number for row in outbox.rows]) for outbox in unfinished(world)]
    require(not left, "all rows are delivered, and no stream is left over", left)
