"""What clients declare and end in a history of queues, and what they purge."""

from __future__ import annotations

from random import Random

from journal.records.queue_entries import (
    Binding,
    DeadLetterStrategy,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    QueueSettings,
)
from tests.queues.choices import EXCHANGES, KEYS, NAMES, PATTERNS, QUEUES, VALUES, client_of
from tests.queues.model import message_model, topology_model
from tests.queues.model.endings_model import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DROP_HEAD,
    REJECT_PUBLISH,
    QueueRules,
)
from tests.queues.model.routing_model import Exchange, Rule
from tests.queues.queue_room import messages
from tests.queues.queue_world import World

KINDS = [each for each in ExchangeKind if each is not ExchangeKind.DEFAULT]
"""Those that programs declare."""


def declare_queue(world: World, random: Random) -> None:
    client, name = client_of(world, random), random.choice(QUEUES)
    if client is None:
        return
    if random.random() < 0.05:
        name = random.choice(("", "amq.mine", "z"))
    known = world.model.queues.get(name)
    rules = some_rules(world, random)
    if known is not None and random.random() < 0.8:
        rules = known.rules
    passive = random.random() < 0.1
    world.model.next_partition = (
        world.room.engine.catalog.next_partition
    )  # the archive of outcomes takes one, too
    answer = topology_model.declare_queue(world.model, name, rules, world.now, passive)
    settings = QueueSettings(
        *rules[:5], Overflow(rules.overflow), rules.expires, max_priority=rules.max_priority,
        max_length_bytes=rules.most_bytes, consumer_timeout=rules.timeout,
        dead_letter_strategy=DeadLetterStrategy(rules.strategy),
    )  # fmt: skip
    world.ask(client, answer, messages.DeclareQueue, name, settings, passive)


def some_rules(world: World, random: Random) -> QueueRules:
    pick = random.choice
    rules = QueueRules(
        pick((None, None, 0, 1, 2)),
        pick((None, "", "e", "amq.fanout", "gone")),
        pick((None, None, "a", "d", "x.y")),
    )
    limits = world.limits
    if limits.priorities:
        rules = rules._replace(max_priority=pick((0, 1, 2)))
    if not limits.endings:
        return rules
    rules = rules._replace(
        ttl=pick((None, None, 0, 1, 3, 8)) if limits.expires else None,
        most=pick((None, None, 0, 1, 2, 5)),
        overflow=pick((DROP_HEAD, DROP_HEAD, REJECT_PUBLISH)),
        expires=pick((None, None, None, 2, 6)),
        most_bytes=pick((None, None, None, 0, 10, 40, 300)),
    ).in_micros()
    if rules.overflow == REJECT_PUBLISH:
        rules = rules._replace(strategy=pick((AT_MOST_ONCE, AT_LEAST_ONCE)), most=pick((None, 0, 1, 2)))
    if limits.timeouts and rules.most_bytes is None:
        rules = rules._replace(timeout=pick((None, 1_300_000, 1_300_000, 3_300_000)))
    if rules.max_priority and rules.overflow == DROP_HEAD:
        # What goes of several priorities must not depend on the order in which messages come, or expire elsewhere.
        rules = rules._replace(most_bytes=None, most=None if limits.expires else rules.most)
    return rules


def delete_queue(world: World, random: Random) -> None:
    client, name = client_of(world, random), random.choice(QUEUES)
    if client is None:
        return
    known = world.model.queues.get(name)
    partition = known.partition if known and random.random() < 0.95 else random.randint(1, 3)
    flags = random.random() < 0.3, random.random() < 0.3
    answer = topology_model.delete_queue(world.model, name, partition, *flags)
    world.ask(client, answer, messages.DeleteQueue, name, partition, *flags)


def purge(world: World, random: Random) -> None:
    client, name = client_of(world, random), random.choice(QUEUES)
    if client is not None:
        world.sync_small_groups()
        if world.limits.endings:
            world.sync()  # whether what is too much ends before it is purged is not promised
        answer = message_model.purge(world.model, client.name, name, world.now)
        world.ask(client, answer, messages.PurgeQueue, name)


def declare_exchange(world: World, random: Random) -> None:
    client = client_of(world, random)
    if client is None:
        return
    name = random.choice(("e", "f", "e", "f", "amq.mine", "amq.topic"))
    kind, internal, passive = random.choice(KINDS), random.random() < 0.1, random.random() < 0.1
    auto_delete, alternate = False, None
    if world.limits.endings:
        auto_delete = random.random() < 0.4
        alternate = random.choice((None, "", "e", "f", "amq.fanout", "gone"))
    delayed = world.limits.delays and random.random() < 0.7
    if delayed and random.random() < 0.6:
        kind = ExchangeKind.FANOUT
    world.model.next_partition = world.room.engine.catalog.next_partition
    wanted = Exchange(name, 0, kind, internal, auto_delete, alternate, delayed)
    answer = topology_model.declare_exchange(world.model, wanted, passive)
    settings = ExchangeSettings(kind, internal, auto_delete, alternate, delayed=delayed)
    world.ask(client, answer, messages.DeclareExchange, name, settings, passive)


def delete_exchange(world: World, random: Random) -> None:
    client, name = client_of(world, random), random.choice(("e", "f", "f", "amq.topic"))
    if client is None:
        return
    known = world.model.topology.exchanges.get(name)
    number = known.number if known and random.random() < 0.95 else random.randint(1, 9)
    if_unused = random.random() < 0.4
    answer = topology_model.delete_exchange(world.model, name, number, if_unused)
    world.ask(client, answer, messages.DeleteExchange, name, number, if_unused)


def some_rule(world: World, random: Random) -> Rule:
    exchange, to_exchange = random.choice((*EXCHANGES, "")), random.random() < 0.2
    to = random.choice((*EXCHANGES, "") if to_exchange else QUEUES)
    if world.limits.endings and random.random() < 0.2:
        exchange, to_exchange, to = random.choice((("e", True, "f"), ("f", True, "e"), ("f", False, "a")))
    delayed = [each.name for each in world.model.topology.exchanges.values() if each.delayed]
    if delayed and random.random() < 0.4:
        exchange, to_exchange, to = random.choice(delayed), False, random.choice(QUEUES)
    key = random.choice((*PATTERNS, *KEYS, *QUEUES))
    arguments: list[tuple[str, bytes | None]] = []
    if random.random() < 0.5:
        arguments = [
            (name, random.choice((*VALUES, None))) for name in sorted(NAMES) if random.random() < 0.6
        ]
        if random.random() < 0.7:
            how = random.choice((b"all", b"any", b"all-with-x", b"any-with-x"))
            how = b"none" if random.random() < 0.1 else how
            arguments = sorted([*arguments, ("x-match", how)])
    return Rule(exchange, key, to, to_exchange, tuple(arguments))


def binding_of(rule: Rule) -> Binding:
    return Binding(rule.exchange, rule.key, rule.to, rule.to_exchange, rule.arguments)


def bind(world: World, random: Random) -> None:
    client, rule = client_of(world, random), some_rule(world, random)
    if client is not None:
        world.ask(client, topology_model.bind(world.model, rule), messages.Bind, binding_of(rule))


def unbind(world: World, random: Random) -> None:
    client = client_of(world, random)
    rules = world.model.topology.rules
    rule = random.choice(rules) if rules and random.random() < 0.9 else some_rule(world, random)
    if client is not None:
        world.ask(client, topology_model.unbind(world.model, rule), messages.Unbind, binding_of(rule))
