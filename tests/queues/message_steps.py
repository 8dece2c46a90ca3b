"""What clients publish and take in a history of queues, and what becomes of it."""

from __future__ import annotations

from random import Random

from journal.formats import frame
from journal.records.queue_entries import QUEUE_GROUP
from tests.queues.choices import (
    client_of,
    framed,
    owner_of,
    settled,
    some_address,
    some_held,
    some_messages,
    some_partition,
)
from tests.queues.model import message_model
from tests.queues.model.message_model import Retry
from tests.queues.model.queue_model import Ticket, refused
from tests.queues.queue_room import Client, messages
from tests.queues.queue_world import SECOND, World
from tests.queues.told_answers import set_in_bytes

# -- publishing -----------------------------------------------------------------------------------


def publish(world: World, random: Random) -> None:
    client = client_of(world, random)
    if client is None:
        return
    address, several = some_address(world, random), some_messages(world, random, 6)
    answer = message_model.publish(world.model, address, several, world.now)
    world.ask(client, answer, messages.Send, address, data=framed(several))


def publish_once(world: World, random: Random) -> None:
    """By a producer: something new, something again, or with what is missing in between."""
    client = client_of(world, random)
    notes = world.notes
    producer = notes.producers.get(owner_of(client)) if client else None
    if client is None or producer is None:
        return
    sent = notes.sent.setdefault(producer, [])
    if sent and random.random() < 0.4:
        address, sequence, several = random.choice(sent[-4:])
        world.count("repetitions")
    else:
        address, several = some_address(world, random), some_messages(world, random)
        known = world.model.producers[producer].get(address, [])
        sequence = known[-1][0] + known[-1][1] if known else 0
        sequence += random.random() < 0.05
        # what a crash has lost is not sent any more, once other messages have its numbers
        sent[:] = [each for each in sent if each[0] != address or each[1] < sequence]
    answer = message_model.publish(world.model, address, several, world.now, producer, sequence)
    if answer[0] == "Sent":
        sent.append((address, sequence, several))
    world.ask(client, answer, messages.Send, address, producer, 0, sequence, data=framed(several))


# -- taking, and what becomes of it ---------------------------------------------------------------


def take(world: World, random: Random) -> None:
    wait = 0
    if world.limits.waits and random.random() < 0.5:
        wait = random.choice((1, 3, 9)) * SECOND + 700_000
    take_from(world, random, some_partition(world, random), wait)


def take_from(world: World, random: Random, partition: int, wait: int = 0) -> None:
    client = client_of(world, random)
    if client is None:
        return
    most = random.choice((1, 1, 2, 5, 100))
    if wait:
        most = 1  # how many dead letters come together is not promised
    if not wait:
        world.sync_small_groups()
    answer = message_model.take(world.model, client.name, partition, most, wait, world.now)
    world.ask(client, answer, messages.TakeMessages, partition, most, 1 << 20, wait)


def cancel(world: World, random: Random) -> None:
    """Wait no longer."""
    waiting = [
        asked for asked in world.asked.values() if isinstance(asked.answer, Ticket) and not asked.wanted
    ]
    if waiting:
        world.cancel(random.choice(waiting))


def _ask_to_settle(
    world: World, client: Client, partition: int, done: list[int], retried: list[Retry]
) -> None:
    answer = message_model.settle(world.model, client.name, partition, done, retried, world.now)
    if answer[0] == "Done":
        world.notes.settled.append((partition, done, retried))
    world.ask(
        client, answer, messages.CommitOffsets, QUEUE_GROUP, [], settled=[settled(partition, done, retried)]
    )


def acknowledge(world: World, random: Random) -> None:
    client = client_of(world, random)
    held = some_held(world, random, client) if client else None
    if client is None or held is None:
        return
    _ask_to_settle(world, client, *held, [])


def return_some(world: World, random: Random) -> None:
    """Return messages now, later, or as dead; perhaps acknowledge others in the same request."""
    client = client_of(world, random)
    held = some_held(world, random, client) if client else None
    if client is None or held is None:
        return
    partition, offsets = held
    level = world.model.level_at(partition)
    assert level is not None
    retried, done = [], []
    for offset in offsets:
        copy = level.copies.get(offset)
        after = random.choice((0, 0, 0, 1, 2, 5))
        retry = Retry(
            offset,
            copy.attempts if copy and random.random() < (0.9 if copy.holder == client.name else 0.4) else 0,
            after * SECOND + 300_000 if after else 0,
            random.random() < 0.35,
        )
        if len(offsets) > 1 and random.random() < 0.3:
            done.append(offset)
        else:
            retried.append(retry)
    _ask_to_settle(world, client, partition, done, retried)


def settle_again(world: World, random: Random) -> None:
    """Say once more what was acknowledged or returned, as somebody does whose answer was lost."""
    client, notes = client_of(world, random), world.notes
    if client is None or not notes.settled:
        return
    partition, done, retried = random.choice(notes.settled[-5:])
    level = world.model.level_at(partition)
    has = world.model.held_by(client.name).get(partition, [])
    if level is None or any(each.offset in has for each in retried):
        return
    world.count("settled again")
    _ask_to_settle(world, client, partition, done, retried)


def give_back(world: World, random: Random) -> None:
    client = client_of(world, random)
    held = some_held(world, random, client, 5) if client else None
    if client is None or held is None:
        return
    partition, offsets = held
    level = world.model.level_at(partition)
    if level is not None and random.random() < 0.3:  # others of these are passed over
        offsets = sorted({*offsets, *random.sample(range(level.end), min(2, level.end))})
    counted = random.random() < 0.3
    world.say(f"{client.name} gives back {offsets} of {partition}{', counted' if counted else ''}")
    message_model.give_back(world.model, client.name, partition, offsets, counted, world.now)
    world.count("GiveBack")
    client.tell(messages.GiveBack, partition, *set_in_bytes(offsets), counted)


def leave(world: World, random: Random) -> None:
    """A session ends."""
    client = client_of(world, random)
    if client is None or client.closed:
        return
    sync_lengths(world)
    if is_order_seen(world) and len(world.model.held_by(client.name)) > 1:
        return  # what comes back to one queue may go on to another one to which something comes back, too
    world.say(f"{client.name} leaves")
    world.count("sessions lost")
    world.forget(client)
    del world.clients[owner_of(client)]
    message_model.leave(world.model, client.name, world.now)
    client.leave()
    sync_lengths(world)


def sync_lengths(world: World) -> None:
    """Force all if it counts in which order messages come back and others come."""
    if is_order_seen(world):
        world.sync()


def is_order_seen(world: World) -> bool:
    """Whether that order counts: of messages that have too many bytes together it decides how many go, and
    of several priorities, of which those get messages that wait.
    """
    is_bounded = any(each.rules.most_bytes is not None for each in world.model.queues.values())
    return is_bounded or (world.limits.priorities and any(world.model.waiting.values()))


def mistake(world: World, random: Random) -> None:
    """A request that means nothing: nothing changes."""
    client, address = client_of(world, random), some_address(world, random)
    if client is None or world.model.topology.by_number(-address // 2) is None:
        return
    if world.model.topology.by_number(-address // 2).internal:  # type: ignore[union-attr]
        return
    partition = some_partition(world, random)
    inner = frame.encode_inner(0, b"x", 1) + frame.encode_inner(1, b"y", 1)
    match random.randrange(6):
        case 0:
            world.ask(
                client,
                refused("InvalidFrame"),
                messages.Send,
                address,
                data=frame.encode_wrapper(inner, 2, 1),
            )
        case 1:
            data = frame.encode(b"x", 1, b"k" * 256)
            world.ask(client, refused("InvalidFrame"), messages.Send, address, data=data)
        case 2:
            data = frame.encode(b"x", 1, b"\xff")
            world.ask(client, refused("InvalidFrame"), messages.Send, address, data=data)
        case 5:
            data = frame.encode(b"x", 1, b"k", {"txbroker.priority": b"256"})
            world.ask(client, refused("InvalidFrame"), messages.Send, address, data=data)
        case 3 if world.model.queue_at(partition):
            world.ask(client, refused("InvalidSetting"), messages.TakeMessages, partition, 0)
        case 4 if world.model.queue_at(partition):
            data = frame.encode(b"x", 1)
            world.ask(client, refused("InvalidName"), messages.Send, partition, data=data)
