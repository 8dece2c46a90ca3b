"""The steps that may happen next in a history: those of the world, and acts of its clients, each with its weight."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from journal.records.record import Mark
from journal.testing import CHANGES, Fault, Operation
from tests.simulation.clients.transactions import TransactionalClient
from tests.simulation.world.world import World

DEEDS: dict[str, tuple[int, Callable[[TransactionalClient, Random], None]]] = {
    "send": (8, TransactionalClient.send),
    "send once": (8, TransactionalClient.send_once),
    "send many": (1, TransactionalClient.send_many),
    "send again": (1, TransactionalClient.send_again),
    "begin": (8, TransactionalClient.begin),
    "commit wholes": (4, TransactionalClient.commit_wholes),
    "prepare wholes": (3, TransactionalClient.prepare_wholes),
    "go on": (6, TransactionalClient.go_on),
    "end": (5, TransactionalClient.end),
    "ask": (2, TransactionalClient.ask_outcome),
    "forget": (1, TransactionalClient.forget),
    "show": (1, TransactionalClient.show),
    "fetch": (6, TransactionalClient.fetch),
    "cancel": (2, TransactionalClient.cancel),
    "create topic": (2, TransactionalClient.create_topic),
    "grow topic": (2, TransactionalClient.grow_topic),
    "delete topic": (2, TransactionalClient.delete_topic),
    "claim": (1, TransactionalClient.claim),
    "alter group": (1, TransactionalClient.alter_group),
    "describe group": (1, TransactionalClient.describe_group),
    "delete group": (1, TransactionalClient.delete_group),
    "commit offsets": (4, TransactionalClient.commit_offsets),
    "fetch offsets": (2, TransactionalClient.fetch_offsets),
    "look around": (1, TransactionalClient.look_around),
}
"""What clients do, each with its weight."""


def _act(world: World, random: Random) -> None:
    client = random.choice(world.clients)
    if client.connection is None:
        client.connect(client.former if random.random() < 0.7 else None)
        return
    if not client.ready:
        return
    if not world.topics.homes:
        client.create_topic(random)
        return
    for name in random.choices(list(DEEDS), cum_weights=world.deed_weights, k=random.choice((1, 2, 4, 8))):
        DEEDS[name][1](client, random)
    if random.random() < 0.5 and client.connection is not None:
        client.connection.deliver(1 << 30)


def _deliver(world: World, random: Random) -> None:
    pieces = random.random() < 0.2
    for connection in (
        world.connections
        if random.random() < 0.7
        else random.sample(world.connections, min(1, len(world.connections)))
    ):
        connection.deliver(random.randint(1, 200) if pieces else 1 << 30)


def _answer(world: World, random: Random) -> None:
    pieces = random.random() < 0.2
    for client in world.everybody if random.random() < 0.7 else [random.choice(world.everybody)]:
        client.take(random.randint(1, 200) if pieces else 1 << 30)


def _turn(world: World, random: Random) -> None:
    world.reactor.turn()


def _time(world: World, random: Random) -> None:
    world.reactor.pass_time(
        random.choice((1_000, 60_000, 110_000, 110_000, 600_000, 1_100_000, 11_000_000, 11_000_000))
    )


def _write(world: World, random: Random) -> None:
    world.writer.step(random.choice((1, 1, 2, 1 << 30, 1 << 30)))


def _flush(world: World, random: Random) -> None:
    world.flusher.step(random.choice((1, 2, 4, 8, 1 << 30, 1 << 30)))


def _read(world: World, random: Random) -> None:
    world.reader.step(random.choice((1, 3, 1 << 30)), random.randrange(2))
    world.scrubber.step(random.choice((1, 3, 1 << 30)))


def pump(world: World, random: Random) -> None:
    """All come to rest."""
    world.pump()


def _lose(world: World, random: Random) -> None:
    client = random.choice(world.everybody)
    if client.connection is not None:
        world.count("connections lost")
        sent = len(client.connection.to_broker)
        client.lost(random.choice((0, sent, sent, random.randint(0, sent))))
        if random.random() < 0.4:  # and what it had sent comes later, if at all
            client.connect(client.former)
            client.connection.deliver(1 << 30)


def _checkpoint(world: World, random: Random) -> None:
    world.engine.housekeeping.request_checkpoint()  # type: ignore[attr-defined]
    world.serving.flusher.want()
    for _ in range(random.choice((0, 0, 5, 20))):
        world.reactor.turn()
        world.writer.step(1 << 30)
        world.flusher.step(1 << 30)


def _roll(world: World, random: Random) -> None:
    """Groups and checkpoints until journal files that were full come round again, with their old groups in them."""
    if random.random() < 0.3:
        world.plan.cut_in = random.randint(1, 100)
    for _ in range(random.choice((4, 8, 16))):
        if not world.engine.busy and not world.failed:
            world.engine.accept(Mark(world.engine.now()))
        world.engine.housekeeping.request_checkpoint()  # type: ignore[attr-defined]
        world.serving.flusher.want()
        for _ in range(4):
            world.reactor.turn()
            world.writer.step(1 << 30)
            world.flusher.step(1 << 30)


def _glimpse(world: World, random: Random) -> None:
    """What is decided is looked at from everywhere before the writer comes to it; then the power goes."""
    at_rest = random.random() < 0.5
    if at_rest:  # first all to segments: of those retention may take some
        world.engine.housekeeping.want_flush()
        world.pump()
        if world.failed or world.plan.off:
            return
    world.reactor.pass_time(11_000_000 if at_rest else random.choice((110_000, 1_100_000)))
    for client in world.clients:
        if client.ready and client.connection is not None:
            client.fetch_at_ends(0)
            for name in random.choices(_LOOKS, k=2):
                DEEDS[name][1](client, random)
            client.connection.deliver(1 << 30)
    world.reader.step(1 << 30)
    world.reactor.turn()
    for client in world.clients:
        client.take(1 << 30)
    world.cut_power(random)


def _strike(world: World, random: Random) -> None:
    """A force of logs fails on a thread that has been given more, as the reactor looked at what is due meanwhile."""
    world.engine.housekeeping.want_flush()
    world.engine.housekeeping.request_checkpoint()  # type: ignore[attr-defined]
    for _ in range(random.choice((4, 8, 16))):
        world.serving.flusher.want()
        world.reactor.turn()
        world.writer.step(1 << 30)
        world.flusher.step(random.choice((1, 2, 4, 8)))
    kind = random.choice((Operation.FORCE, Operation.FORCE_DIRECTORY))
    world.plan.faults.append(Fault(kind, path="partitions/*"))
    plan_starts(world, random)
    for _ in range(random.choice((1, 2, 4, 8))):
        world.flusher.step(1 << 30)
    world.cut_power(random)


_LOOKS = ("fetch", "fetch", "ask", "fetch offsets", "describe group", "send again", "end")
"""What may be answered with something that is not on disk yet."""

_CUTS: tuple[tuple[Operation | None, str], ...] = (
    *[(None, "")] * 6,
    *[(None, where) for where in ("partitions", "checkpoints", "staged", "partitions/", "checkpoints/", "witness")],
    *[(kind, "") for kind in sorted(CHANGES, key=lambda kind: kind.value)],
    (Operation.RENAME, "journal/"), (Operation.UNLINK, "journal/"), (Operation.FORCE_DIRECTORY, "journal"),
    *[(Operation.FORCE, "journal/")] * 3,
)  # fmt: skip
"""At what the power may be cut: at anything, or at what seldom happens."""


def _power(world: World, random: Random) -> None:
    plan_starts(world, random)
    if random.random() < 0.3:
        world.cut_power(random)
    else:
        world.plan.cut_in = random.choice((1, 2, 3, random.randint(1, 12), random.randint(1, 40)))
        world.plan.cut_on = random.choice(_CUTS)
        world.say(f"the power will be cut at {world.plan.cut_on}, the {world.plan.cut_in}th from now")


def _kill(world: World, random: Random) -> None:
    plan_starts(world, random)
    world.kill(random)


def _stop(world: World, random: Random) -> None:
    plan_starts(world, random)
    world.stop(random)


def _crowd(world: World, random: Random) -> None:
    """Readers wait at the end of all logs while a commit and a send after it come to a busy writer together."""
    if random.random() < 0.7:
        world.pump()
    ready = [client for client in world.clients if client.ready]
    for client in ready:
        client.fetch_at_ends(2_000_000)
    for client in random.sample(ready, min(1, len(ready))):
        several = [client.begin_wide(random) for _ in range(random.choice((1, 2)))]
        for other in random.sample(ready, len(ready) // 2):  # somebody wants to end it before it is there
            if other is not client and other.connection is not None:
                other.decide(random, several[0], random.random() < 0.5)
                other.connection.deliver(1 << 30)
        _deliver_all(world)
        world.reactor.turn()  # the writer has the messages now
        client.commit_and_send(random, *several)
        for _ in range(random.choice((0, 3, 8))):
            _deliver_all(world)
            world.reactor.turn()
            client.begin(random)
    _deliver_all(world)
    for _ in range(random.choice((0, 3, 3))):
        world.writer.step(1 << 30)
        for _ in range(10):
            world.reactor.turn()
        for client in ready:
            client.take(1 << 30)
            if client.ready:
                client.fetch_at_ends(2_000_000)
        _deliver_all(world)
    if random.random() < 0.5:
        world.pump()


def _deliver_all(world: World) -> None:
    for connection in world.connections:
        connection.deliver(1 << 30)


def plan_starts(world: World, random: Random) -> None:
    """What is to go wrong with the next starts, if anything."""
    while random.random() < 0.5:
        what = random.choice(("cut", "cut", "cut", "fault", "rot"))
        world.starting.append((what, random.choice((random.randint(1, 22), random.randint(6, 30)))))


_FAULTS = (
    (Operation.FORCE, 3), (Operation.WRITE, 3), (Operation.RENAME, 1), (Operation.FORCE_DIRECTORY, 1),
    (Operation.READ, 2), (Operation.OPEN, 1), (Operation.TRUNCATE, 1), (Operation.UNLINK, 1), (Operation.CREATE, 1),
    (Operation.MAKE_DIRECTORY, 1),
)  # fmt: skip


def _fault(world: World, random: Random) -> None:
    [kind] = random.choices([kind for kind, _ in _FAULTS], [weight for _, weight in _FAULTS])
    path = random.choice(("*", "*", "journal/*", "partitions/*", "checkpoints/*", "staged/*"))
    world.plan.faults.append(
        Fault(
            kind,
            nth=random.randint(1, 4),
            path=path,
            error=random.choice((errno.EIO, errno.EIO, errno.ENOSPC)),
            short=random.choice((None, 100, 4096)),
        )
    )
    world.say(f"the next {kind.value} of {path} or so will fail")


def _short(world: World, random: Random) -> None:
    world.plan.faults.append(
        Fault(Operation.WRITE, nth=random.randint(1, 3), error=None, short=random.choice((1, 511, 4096)))
    )


def _cold(world: World, random: Random) -> None:
    world.plan.faults.append(Fault(Operation.READ_NOW, error=errno.EAGAIN, times=random.choice((1, 3))))


def _full(world: World, random: Random) -> None:
    world.plan.free_bytes = random.choice((None, 0, 20_000))


def _wall(world: World, random: Random) -> None:
    world.set_wall(world.clock.wall() + random.randint(-(10**10), 10**10))


STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "act": (24, _act),
    "deliver": (10, _deliver),
    "answer": (8, _answer),
    "turn": (14, _turn),
    "time": (8, _time),
    "write": (12, _write),
    "flush": (12, _flush),
    "read": (2, _read),
    "pump": (4, pump),
    "lose": (3, _lose),
    "checkpoint": (4, _checkpoint),
    "roll": (1, _roll),
    "power": (3, _power),
    "glimpse": (1, _glimpse),
    "strike": (1, _strike),
    "crowd": (1, _crowd),
    "kill": (1, _kill),
    "stop": (1, _stop),
    "fault": (1, _fault),
    "short": (1, _short),
    "cold": (1, _cold),
    "full": (1, _full),
    "wall": (1, _wall),
}
"""What may happen next, each with its weight."""
