"""What happens in a history of queues while nothing is unforced."""

from __future__ import annotations

from random import Random

from tests.queues.choices import client_of, owner_of, some_partition
from tests.queues.message_steps import take_from
from tests.queues.model import message_model
from tests.queues.queue_room import messages
from tests.queues.queue_world import SECOND, World
from tests.queues.told_answers import Asked, given_of, told
from tests.simulation.model.log_model import require


def come(world: World, random: Random) -> None:
    """A client comes, if one is away."""
    away = [name for name in ("s", "t", "u") if name not in world.clients]
    if away:
        world.connect(random.choice(away))


def open_producer(world: World, random: Random) -> None:
    client, notes = client_of(world, random), world.notes
    if client is None or owner_of(client) in notes.producers:
        return
    opened = client.ask(messages.OpenProducer)
    world.inbox.clear()
    require(isinstance(opened, messages.ProducerOpened), "a producer", opened)
    notes.producers[owner_of(client)] = opened.producer_id
    world.model.producers[opened.producer_id] = {}
    world.sync()


def take_little(world: World, random: Random) -> None:
    """Take what has room in an answer; what has none is ready again, and may be told to have been delivered."""
    client, partition = client_of(world, random), some_partition(world, random)
    queue = world.model.queue_at(partition)
    if client is None or queue is None or world.model.waiting.get(partition):
        return
    most, room = random.choice((2, 5, 100)), random.choice((1, 100, 300))
    level = queue.first_level(world.now) or queue.levels[0]
    could = level.ready(world.now)[:most]
    if any(level.has_expired(offset, world.clock.wall()) for offset in could):
        return
    queue.used_at = world.now
    answer = client.ask(messages.TakeMessages, partition, most, room)
    data = next(data for _, found, data in world.inbox if found is answer)
    world.inbox.clear()
    world.say(f"{client.name} takes up to {most} and {room} bytes: {answer}")
    count = len(given_of(answer, data))
    require(count <= len(could) and (count or not could), f"some of {could}", answer)
    require(len(data) <= room or count == 1, f"at most {room} bytes", len(data))
    given = (
        message_model.take(world.model, client.name, partition, count, 0, world.now)
        if count
        else ("Taken", [])
    )
    asked = Asked(client, 0, f"a take of {room} bytes", given, 0)
    told(asked, answer, data)
    for offset in could[count:]:
        copy = level.copies[offset]
        copy.seen = max(copy.seen, 1)
    world.count("takes of little")


def pass_time(world: World, random: Random) -> None:
    world.pass_time(random.choice((1, 1, 2, 5, 10)))
    world.check()


def take_late(world: World, random: Random) -> None:
    """Take messages while the timers are late: some may have expired, and nobody has ended them."""
    world.let_order_not_count()
    world.tick()
    if world.model.has_something_due(world.now):
        world.ring()  # when it happens, if no timer has run, is not promised
        return
    world.say(f"it is {world.now / SECOND}, and no timer has run")
    wall = world.now + world.model.wall_offset
    partitions = {
        level.queue.partition
        for level in world.model.levels
        if any(level.has_expired(offset, wall) for offset in level.ready(world.now)) and random.random() < 0.5
    }
    partitions |= {some_partition(world, random) for _ in range(random.choice((1, 2, 4)))}
    for partition in sorted(partitions):
        take_from(world, random, partition)
    world.ring()


def checkpoint(world: World, random: Random) -> None:
    world.count("checkpoints")
    world.room.checkpoint()


def flush(world: World, random: Random) -> None:
    """Write all to segments; of those that are finished some go, and others are compacted."""
    world.room.flush()
    housekeeping = world.room.engine.housekeeping
    before = housekeeping.compactor.compacted
    housekeeping.compactor.look()
    housekeeping.run_inline()
    world.counts["segments compacted"] += housekeeping.compactor.compacted - before
    world.room.engine.sync()
    if random.random() < 0.7 and (moved := world.room.broker.queues.retain()):
        world.counts["logs that begin later"] += moved
    world.sync()
    if random.random() < 0.5:
        world.room.checkpoint()


def stop(world: World, random: Random) -> None:
    world.stop()


def look_around(world: World, random: Random) -> None:
    world.check()
