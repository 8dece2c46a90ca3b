"""The steps of histories with members, and their end: then all behave, and everything is shared out and worked on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.clients.members import INPUTS, MemberClient
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN
from tests.simulation.model.topic_model import Topic
from tests.simulation.world.world import World

A_TURN = 100_000
"""µs that pass in a turn of the members."""

MOST_TURNS = 500
"""Turns in which all must have come to rest at the end."""

LEARN, AT_REST = 8, 10
"""The turn in which they learn of topics that nobody was told of; and the turns in which nothing moves any more."""


def _members(world: World, random: Random) -> None:
    """Members take turns, and time passes as it does for them: in small pieces."""
    for _ in range(random.choice((1, 3, 10, 20))):
        for client in random.sample(world.member_clients, len(world.member_clients)):
            if client.is_dead and random.random() < 0.2:
                client.begin_life(random)
            if random.random() < 0.8:
                client.play(random)
        if random.random() < 0.2:
            _send(world, random)
        _go_on(world, random)
        if world.failed or world.plan.off:
            return
        if random.random() < 0.6:
            world.reactor.pass_time(A_TURN)


def _send(world: World, random: Random) -> None:
    """Something for members to read."""
    known = [p for p, topic in world.topics.homes.items() if topic.name in INPUTS and topic.deleted is None]
    ready = [client for client in world.clients if client.ready]
    if known and ready:
        random.choice(ready).send(random, random.choice(known))


def _go_on(world: World, random: Random) -> None:
    """Most of what is on its way arrives, and most of what is queued is done."""
    for connection in world.connections:
        if random.random() < 0.9:
            connection.deliver(1 << 30)
    world.reactor.turn()
    if random.random() < 0.7:
        world.writer.step(1 << 30)
    if random.random() < 0.3:
        world.flusher.step(random.choice((1, 4, 1 << 30)))
    if random.random() < 0.7:
        world.reader.step(1 << 30, random.randrange(2))
    world.reactor.turn()
    for client in world.everybody:
        if random.random() < 0.9:
            client.take(1 << 30)


def _disturb(world: World, random: Random) -> None:
    """Something happens to a member."""
    client = random.choice(world.member_clients)
    if client.is_dead:
        client.begin_life(random)
        return
    what: Callable[[], object] = random.choice(
        (
            lambda: client.die(random),
            lambda: client.leave_group(random),
            lambda: client.lost(random.choice((0, 1 << 30))),
            client.change_connection,
            *[lambda: client.stall(random)] * 4,
            lambda: client.ready and client.cancel(random),
        )
    )
    what()


def _oversleep(world: World, random: Random) -> None:
    """A member neither reads nor sends for longer than its session time-out, and then goes on with what it had."""
    able = [client for client in world.member_clients if client.ready and client.owned]
    if not able:
        return
    at_work = [client for client in able if client.begun_work] or [
        client for client in able if any(client.free.values())
    ]
    sleeper = random.choice(at_work or able)
    sleeper.is_asleep = True
    try:
        for _ in range(sleeper.session_timeout // A_TURN + 8):
            _send(world, random)
            for client in world.member_clients:
                if not client.is_asleep:
                    client.play(random)
            _go_on(world, random)
            if world.failed or world.plan.off:
                return
            world.reactor.pass_time(A_TURN)
    finally:
        sleeper.is_asleep = False
    for _ in range(3):
        if sleeper.ready:
            sleeper.work(random)


MEMBER_STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "members": (60, _members),
    "disturb": (15, _disturb),
    "oversleep": (4, _oversleep),
}
"""What may happen next in histories with members, beside all other steps; each with its weight."""


# -- the end --------------------------------------------------------------------------------------


def come_to_rest(world: World, random: Random) -> None:
    """Those that live go on, until each partition is somebody's, all is read, and nothing moves any more."""
    for client in world.member_clients:
        client.be_calm()
        if client.is_dead and (random.random() < 0.5 or not _living(world, client.group)):
            client.begin_life(random)
    _decide_all(world, random)
    missing = "nobody has had a turn"
    for turn in range(MOST_TURNS):
        _turn(world, random)
        if turn == LEARN:
            _learn_topics(world)
        if turn > LEARN and turn % 5 == 0 and not (missing := _is_missing(world)):
            break
    require(not missing, "the members share all partitions, and finish all messages", missing)
    shares = _shares(world)
    for _ in range(AT_REST):
        _turn(world, random)
    require(_shares(world) == shares, f"members keep their shares {shares}", _shares(world))
    world.count("members at rest")


def _learn_topics(world: World) -> None:
    for client in world.member_clients:
        if client.ready:
            client.learn_topics()


def _shares(world: World) -> dict[str, dict[int, int]]:
    """Return which partitions of topics that stay each member has, with their generations."""
    stay = {number for number, topic in world.topics.homes.items() if topic.deleted is None}
    return {
        client.identity: {number: client.owned[number] for number in sorted(stay & client.owned.keys())}
        for client in world.member_clients
        if not client.is_dead
    }


def _decide_all(world: World, random: Random) -> None:
    """End what may be prepared, though nobody has been told so."""
    *_, resolver = world.clients
    for begun in list(world.model.transactions.values()):
        if begun.state == OPEN and "prepare" in begun.asked:
            resolver.decide(random, begun, random.random() < 0.5)
    world.pump()


def _turn(world: World, random: Random) -> None:
    for client in world.member_clients:
        if not client.is_dead:
            client.play(random)
    world.pump()
    world.reactor.pass_time(A_TURN)
    world.pump()


def _living(world: World, group: str) -> list[MemberClient]:
    return [client for client in world.member_clients if client.group == group and not client.is_dead]


def _is_missing(world: World) -> str:
    """Return what is not yet as it must be in the end."""
    for group in sorted(set(world.settings.members)):
        living = _living(world, group)
        for client in living:
            if not client.member or client.revoked:
                return f"{client.identity} is member {client.member}, and is to release {client.revoked}"
            if not client.is_through():
                return f"{client.identity} has not worked on all of {client.owned}, is at {client.cursors}"
        for topic in world.topics.topics:
            if topic.name in INPUTS and topic.deleted is None and (wrong := _uneven(living, topic)):
                return wrong
    return ""


def _uneven(living: list[MemberClient], topic: Topic) -> str:
    """Return what is wrong with who has which partitions of a topic; "" if nothing is."""
    readers = [client for client in living if topic.name in client.wishes]
    numbers = topic.partitions or []
    counts = {client.name: sum(number in client.owned for number in numbers) for client in readers}
    owners = {number: sum(number in client.owned for client in living) for number in numbers}
    even = not readers or max(counts.values()) - min(counts.values()) <= 1
    if even and (not readers or all(count == 1 for count in owners.values())):
        return ""
    return f"of topic {topic.name} members have {counts} partitions, and each has so many owners: {owners}"


def left_over(world: World) -> str:
    """Return which messages of topics that somebody reads are not finished for a group; "" if all are."""
    for group in sorted(set(world.settings.members)):
        wishes = {name for client in _living(world, group) for name in client.wishes}
        for topic in world.topics.topics:
            if topic.name not in wishes or topic.retained or topic.deleted is not None:
                continue
            for number in topic.partitions or ():
                offsets = range(world.model.seen.ends[number])
                if left := world.members.unfinished((group, number), offsets):
                    return f"offsets {left} of partition {number} are not finished for group {group}"
    return ""
