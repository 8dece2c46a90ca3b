"""The steps of histories in which clients speak AMQP, and their end: then all that is there is delivered."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.clients.amqp_clients import ARGUMENTS, LONGEST, AmqpClient
from tests.simulation.clients.schedulers import HOUR, MINUTE
from tests.simulation.clients.transactions import TransactionalClient
from tests.simulation.model import schedule_answers_model as schedule_answers
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE
from tests.simulation.schedule_steps import go_on, go_on_for_a_while, is_over
from tests.simulation.world.audit import audit
from tests.simulation.world.world import World
from txbroker.wire import messages

WAIT_AT_END = LONGEST + 2 * HOUR
"""µs in which all is due that anybody has published."""

MOST_PASSES = 200
"""In so many passes all that is due is placed, with limits that let go one message in each."""


def declare_all(world: World) -> None:
    """The first client declares all queues and exchanges, and somebody asks which partitions the queues have."""
    [client, *_] = world.amqp_clients
    if client.connection is None:
        client.connect()
    world.pump()
    require(client.ready, f"{client.name} can begin", "it cannot")
    asker = TransactionalClient(world, 98)
    world.everybody.append(asker)
    asker.connect()
    world.pump()
    asker.ask(messages.ListQueues, then=lambda answer, data, since: _told(world, answer))
    world.pump()
    asker.lost(0)
    world.everybody.remove(asker)
    world.pump()
    require(
        sorted(world.queues.partitions) == sorted(ARGUMENTS),
        f"queues {sorted(ARGUMENTS)}",
        world.queues.partitions,
    )


def _told(world: World, answer: messages.Queues) -> None:
    for each in answer.queues:
        world.model.fresh("partition", each.partition)
        world.queues.partitions[world.host.outside(each.name)] = each.partition


def _talk(world: World, random: Random) -> None:
    """Clients publish, acknowledge and return, while time passes."""
    for _ in range(random.choice((1, 3, 6))):
        for client in random.sample(world.amqp_clients, len(world.amqp_clients)):
            if client.connection is None:
                client.connect()
            for _ in range(random.choice((1, 2, 4))):
                if client.ready:
                    client.play(random)
        if not go_on_for_a_while(world, random):
            return


def _ripen(world: World, random: Random) -> None:
    """Time passes to just before a message is due that waits at the exchange, and then it is."""
    world.pump()
    schedule = world.schedule
    waiting = [
        each for each in schedule.messages if each.carrier.state == DONE and not schedule.may_be_over(each)
    ]
    if is_over(world) or not waiting:
        return
    left = (
        min(each.envelope.due for each in random.sample(waiting, min(3, len(waiting))))
        - schedule.clock.most()
    )
    if left > 1:
        world.reactor.pass_time(left - 1)
        world.pump()
    if not is_over(world):
        world.reactor.pass_time(random.choice((1_000, 2_000, 50_000)))
        world.count("ripened")
        for _ in range(random.choice((0, 1, 3))):
            go_on(world, random)


def _wait(world: World, random: Random) -> None:
    """Much time passes at once."""
    world.reactor.pass_time(random.choice((MINUTE, 11 * MINUTE, 2 * HOUR)))
    for _ in range(random.choice((0, 1, 5))):
        go_on(world, random)


AMQP_STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "talk": (40, _talk),
    "ripen": (5, _ripen),
    "wait a while": (2, _wait),
}
"""What may happen next in histories in which clients speak AMQP, beside all other steps; each with its weight."""


# -- the end --------------------------------------------------------------------------------------


def all_is_delivered(world: World, random: Random) -> None:
    """At rest, after a start in most: time passes, all that has waited is in its queues, and one client gets all."""
    if random.random() < 0.7:
        random.choice((world.cut_power, world.kill, world.stop))(random)
    for client in world.everybody:
        client.lost(0)
    for _ in range(3):
        world.pump()
        world.reactor.pass_time(WAIT_AT_END)
    for _ in range(MOST_PASSES):
        world.pump()
        world.reactor.pass_time(1_100_000)
        broker = world.serving.broker
        if not broker.scheduling.schedule.waiting() + broker.delaying.new():
            break
    world.pump()
    audit(world, random)
    schedule_answers.all_came(world.schedule)
    if not any(world.counts[each] for each in ("failed read", "failed open")):
        schedule_answers.in_order(world.schedule)
    _drain(world)


def _drain(world: World) -> None:
    [client, *_] = world.amqp_clients
    world.queues.drain()
    client.connect()
    while client.transacts:  # so that no limit of transactions stands in the way
        client.lost(0)
        client.connect()
    world.pump()
    while client.held:  # those that its prefetch lets through
        client.acknowledge_all()
        world.pump()
    require(client.ready, f"{client.name} goes on", "it does not")
    world.queues.all_were_delivered()
    world.count("queues drained")


__all__ = ["AMQP_STEPS", "AmqpClient", "all_is_delivered", "declare_all"]
