"""The steps of histories in which messages are due later, and their end: then all of them are due."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.clients.schedulers import HOUR, LONGEST, MINUTE, SECOND, SchedulingClient
from tests.simulation.model import schedule_answers_model as schedule_answers
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, OPEN
from tests.simulation.model.scheduled_message_model import Clock, Later
from tests.simulation.world.audit import audit
from tests.simulation.world.world import World

WAIT_AT_END = LONGEST + 2 * HOUR
"""µs, in which all is due that anybody has scheduled; the wall clock may be set back by more than that."""


def _schedule(world: World, random: Random) -> None:
    """Clients schedule and take back, while time passes."""
    for _ in range(random.choice((1, 3, 6))):
        for client in random.sample(world.schedulers, len(world.schedulers)):
            if client.connection is None:
                client.connect(client.former if random.random() < 0.8 else None)
            elif client.ready and world.topics.homes:
                for _ in range(random.choice((1, 2, 4))):
                    if client.ready:
                        client.play(random)
        if not go_on_for_a_while(world, random):
            return


def go_on_for_a_while(world: World, random: Random) -> bool:
    """Let most arrive, and some time pass; return whether the broker still runs."""
    go_on(world, random)
    if is_over(world):
        return False
    if random.random() < 0.5:
        world.reactor.pass_time(random.choice((1_000, 60_000, 500_000, SECOND, 3 * SECOND)))
    return True


def go_on(world: World, random: Random) -> None:
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


def is_over(world: World) -> bool:
    return world.failed or world.plan.off


def _wait(world: World, random: Random) -> None:
    """Much time passes at once."""
    world.reactor.pass_time(random.choice((MINUTE, 11 * MINUTE, 2 * HOUR, 2 * HOUR, 25 * HOUR)))
    for _ in range(random.choice((0, 1, 5))):
        go_on(world, random)


def _approach(world: World, random: Random) -> None:
    """Time passes to just before one is due, and then it is."""
    able = _able(world)
    schedule = world.schedule
    waiting = [
        each for each in schedule.messages if each.carrier.state == DONE and not schedule.may_be_over(each)
    ]
    near = sorted((_left(world, each), each.name, each) for each in waiting)[:3]
    if not able or not near:
        return
    left, _, later = random.choice(near)
    world.pump()
    if is_over(world) or world.passed() + 1 >= left:
        return
    world.reactor.pass_time(left - world.passed() - 1)
    _read(world, able[0])
    if is_over(world) or later.state != OPEN:
        return
    world.reactor.pass_time(1000)
    _read(world, able[0])
    world.count("approached: " + ("came in time" if later.state == DONE else "comes later"))


def _left(world: World, later: Later) -> int:
    """Return the time that will have passed when one is due, if no clock is set."""
    schedule, passed = world.schedule, world.passed()
    now = schedule.clock.least() if later.envelope.clock is Clock.ELAPSED else world.clock.wall()
    return passed + later.envelope.due - now


def _read(world: World, client: SchedulingClient) -> None:
    world.pump()
    if not is_over(world) and client.ready:
        client.fetch_at_ends(0)
        world.pump()


def _able(world: World) -> list[SchedulingClient]:
    return [each for each in world.schedulers if each.ready and world.schedule.logs]


def _jump(world: World, random: Random) -> None:
    """The wall clock is set, and mostly the broker comes to know it."""
    world.pump()
    if is_over(world):
        return
    world.set_wall(
        world.clock.wall() + random.choice((-HOUR, -SECOND, 20 * SECOND, 30 * MINUTE, 3 * HOUR, 3 * HOUR))
    )
    world.count("jumps of the wall clock")
    if random.random() < 0.8:
        learn_jump(world, random)


def learn_jump(world: World, random: Random) -> None:
    """Have the schedule run, with nothing else under way."""
    able = _able(world)
    later = able[0].later(random, (5 * HOUR,)) if able else None
    world.pump()
    if later is not None and later.carrier.state == DONE and not is_over(world):
        world.schedule.clock.sure()
        world.count("jumps that the broker has seen")


SCHEDULE_STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "schedule": (40, _schedule),
    "approach": (6, _approach),
    "wait": (3, _wait),
    "jump": (3, _jump),
}
"""What may happen next in histories in which messages are due later, beside all other steps; each with its weight."""


# -- the end --------------------------------------------------------------------------------------


def all_are_due(world: World, random: Random) -> None:
    """At rest: what is held is released or decided, a start comes, time passes, and all are there."""
    [client, *_] = world.schedulers
    _come_in(client)
    if world.schedule.clock.is_known and client.ready:
        client.ask_release()
    world.pump()
    transactions: list[Any] = list(world.model.transactions.values())
    for begun in transactions:
        if (
            client.ready and begun.state == OPEN and "prepare" in begun.asked
        ):  # perhaps nobody was told that it is
            client.decide(random, begun, random.random() < 0.5)
    world.pump()
    if random.random() < 0.7:
        random.choice((world.cut_power, world.kill, world.stop))(random)
    for _ in range(3):
        world.reactor.pass_time(WAIT_AT_END)
        world.pump()
    if world.clock.wall() < (most := max((each.envelope.due for each in world.schedule.messages), default=0)):
        world.reactor.pass_time(most - world.clock.wall() + SECOND)
    for _ in range(3):
        world.pump()
        world.reactor.pass_time(1_100_000)
    world.pump()
    audit(world, random)
    world.schedule.settle()
    schedule_answers.all_came(world.schedule)
    if not any(world.counts[each] for each in ("failed read", "failed open")):
        schedule_answers.in_order(world.schedule)
    _come_in(client)
    require(client.ready, "a session", "none")
    known = [each for each in world.schedule.messages if world.schedule.offset(each) is not None]
    for several in (known[-10:], random.sample(known, min(len(known), 10))):
        client.ask_about(several)
        world.pump()
    client.list_all(random)
    world.pump()
    world.schedule.all_were_due = True
    for _ in range(3):
        if client.ready:
            client.delete_topic(random)
            world.pump()
    world.count("schedules at their ends")


def _come_in(client: SchedulingClient) -> None:
    if client.connection is None:
        client.connect(client.former)
    client.world.pump()
