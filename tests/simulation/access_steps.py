"""The steps of histories in which clients have rights, and their end: then all that is prepared can be decided."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.clients.administrators import ROOT, THINGS, USERS, Administrator
from tests.simulation.clients.principals import PrincipalClient
from tests.simulation.model.access.rule_model import Account, RuleKey
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN, Intent
from tests.simulation.world.world import World
from txbroker.wire.messages import Switch

DEEDS: tuple[tuple[int, Callable[[PrincipalClient, Random], None]], ...] = (
    (6, PrincipalClient.send),
    (4, PrincipalClient.send_once),
    (2, PrincipalClient.send_timed),
    (4, PrincipalClient.begin),
    (2, PrincipalClient.commit_wholes),
    (4, PrincipalClient.prepare_wholes),
    (4, PrincipalClient.end),
    (3, PrincipalClient.fetch),
    (3, PrincipalClient.list_prepared),
    (2, PrincipalClient.list_topics),
    (3, PrincipalClient.create_topic),
    (1, PrincipalClient.fetch_offsets),
    (1, PrincipalClient.ask_outcome),
    (1, PrincipalClient.pry),
)
"""What clients do around a change of users and rules, each with its weight."""

LONGEST_DELAY = 4_000_000
"""µs until the answer to a wrong login comes."""


def _administer(world: World, random: Random) -> None:
    """The administrator changes something, while clients go on; most of what is on its way arrives."""
    [administrator] = world.administrators
    for _ in range(random.choice((1, 2, 4))):
        _play(world, random)
        administrator.play(random)
        _play(world, random)
        _go_on(world, random)
        if world.failed or world.plan.off:
            return


def _play(world: World, random: Random) -> None:
    """Some clients do something."""
    for client in world.principals:
        if client.connection is None:
            client.connect(client.former if random.random() < 0.8 else None)
        elif client.ready and world.topics.homes and random.random() < 0.6:
            [deed] = random.choices([deed for _, deed in DEEDS], [weight for weight, _ in DEEDS])
            deed(client, random)


def _go_on(world: World, random: Random) -> None:
    """Most of what is on its way arrives, and most of what is queued is done."""
    for connection in random.sample(world.connections, len(world.connections)):
        if random.random() < 0.8:
            connection.deliver(1 << 30)
    world.reactor.turn()
    if random.random() < 0.6:
        world.writer.step(1 << 30)
    world.reactor.turn()
    for client in world.everybody:
        if random.random() < 0.8:
            client.take(1 << 30)


ACCESS_STEPS: dict[str, tuple[int, Callable[[World, Random], None]]] = {"administer": (30, _administer)}
"""What may happen next in histories in which clients have rights, beside all other steps; each with its weight."""


def settle_in(world: World, random: Random) -> None:
    """The first users and rules are made, and mostly everybody has to log in; nothing else happens."""
    [administrator] = world.administrators
    _come_in(world, administrator)
    for name in USERS:
        roles = frozenset(role for role in "rs" if random.random() < 0.5)
        _do(world, lambda: administrator.add_user(name, Account(frozenset([f"DNS:{name}"]), roles)))  # noqa: B023
    _do(world, lambda: administrator.add_user(ROOT, Account(frozenset([f"DNS:{ROOT}"]))))
    _do(
        world,
        lambda: administrator.alter_rule(
            RuleKey(ROOT, False, "broker", "", False), frozenset(["administer"])
        ),
    )
    for holder in (*USERS, "role:r"):
        for kind in THINGS:
            if random.random() < (0.9 if kind in ("topic", "transaction") else 0.4):
                pattern, is_prefix = random.choice(THINGS[kind][0][:3])
                rights = frozenset(each for each in THINGS[kind][1] if random.random() < 0.85)
                key = RuleKey(holder, False, kind, pattern, is_prefix)
                _do(world, lambda: administrator.alter_rule(key, rights))  # noqa: B023
    if random.random() < 0.8:
        _do(world, lambda: administrator.switch(Switch.ENABLE))


def _do(world: World, act: Callable[[], None]) -> None:
    """Do something, and let all come to rest."""
    act()
    world.pump()


def _come_in(world: World, administrator: Administrator) -> None:
    """The administrator knows how users and rules are."""
    if administrator.connection is None:
        administrator.connect()
    world.pump()
    if not administrator.knows:
        _do(world, administrator.look)


# -- the end --------------------------------------------------------------------------------------


def decide_own(world: World, random: Random) -> None:
    """At rest: whatever is taken away, who can log in may end what it has prepared."""
    [administrator] = world.administrators
    _come_in(world, administrator)
    if random.random() < 0.5:
        _take_away(world, random, administrator)
    _all_come_in(world)
    for client in world.principals:
        for begun in _own_prepared(world, client):
            client.decide(random, begun, random.random() < 0.7)
        world.pump()
        left = _own_prepared(world, client)
        require(not left, f"{client.principal} ends what it has prepared", [each.name for each in left])
    if random.random() < 0.5:
        _decide_others(world, random, administrator)
    if random.random() < 0.5:
        _use_up_topics(world, random, administrator)


def _take_away(world: World, random: Random, administrator: Administrator) -> None:
    """Forget most rules; or have some that deny everything."""
    if random.random() < 0.5:
        for key, rights in list(world.access.last.rules.items()):
            if key.holder != ROOT:
                _do(world, lambda: administrator.alter_rule(key, rights, forget=True))  # noqa: B023
        return
    for name in USERS:
        for kind in ("topic", "transaction"):
            key = RuleKey(name, True, kind, "", True)
            _do(world, lambda: administrator.alter_rule(key, frozenset(THINGS[kind][1])))  # noqa: B023


def _all_come_in(world: World) -> None:
    """Whoever can log in does."""
    for _ in range(3):
        for client in world.principals:
            if client.connection is None:
                client.connect(client.former)
        world.pump()
        world.reactor.pass_time(LONGEST_DELAY)
        world.pump()


def _own_prepared(world: World, client: PrincipalClient) -> list[Intent]:
    """What a client's principal has prepared, if it is there."""
    return [
        begun for number, begun in world.model.transactions.items()
        if client.ready and world.access.principals[number[0]] == client.principal and _is_prepared(world, begun)
    ]  # fmt: skip


def _is_prepared(world: World, begun: Intent) -> bool:
    return begun.state == OPEN and begun.prepared_at <= world.model.now < begun.ended_at


def _decide_others(world: World, random: Random, administrator: Administrator) -> None:
    """Who gets the right to decide ends what others have prepared, and has nothing left."""
    able = [
        client for client in world.principals if client.ready and client.principal in world.access.last.users
    ]
    if not able:
        return
    client = random.choice(able)
    rights = frozenset(THINGS["transaction"][1])
    for key in [key for key in world.access.last.rules if key.denies and key.resource == "transaction"]:
        _do(world, lambda: administrator.alter_rule(key, rights, forget=True))  # noqa: B023
    _do(
        world,
        lambda: administrator.alter_rule(RuleKey(client.principal, False, "transaction", "", True), rights),
    )
    _all_come_in(world)
    if client.ready:
        for begun in list(world.model.transactions.values()):
            if _is_prepared(world, begun):
                client.decide(random, begun, random.random() < 0.5)
        world.pump()
        left = [each.name for each in world.model.transactions.values() if _is_prepared(world, each)]
        require(not left, f"{client.principal} may decide all that is prepared", left)


def _use_up_topics(world: World, random: Random, administrator: Administrator) -> None:
    """Who may make topics, and has a quota that is used up, makes no other one."""
    able = [
        client for client in world.principals if client.ready and client.principal in world.access.last.users
    ]
    if not able:
        return
    client = random.choice(able)
    _do(world, lambda: administrator.alter_user(client.principal, "quotas", {"topics": 0}))
    for key in [key for key in world.access.last.rules if key.denies and key.resource == "topic"]:
        _do(world, lambda: administrator.alter_rule(key, frozenset(THINGS["topic"][1]), forget=True))  # noqa: B023
    create = RuleKey(client.principal, False, "topic", "", True)
    _do(world, lambda: administrator.alter_rule(create, frozenset(["create"])))
    _all_come_in(world)
    if client.ready:
        client.create_topic(random)
        world.pump()
