"""A history: its steps are drawn from a seed and each step's place, so that any of them can be left out."""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from journal.testing import PowerCut
from tests.simulation.access_steps import ACCESS_STEPS, decide_own, settle_in
from tests.simulation.amqp_steps import AMQP_STEPS, all_is_delivered, declare_all
from tests.simulation.clients.administrators import Administrator
from tests.simulation.clients.strangers import turn_away
from tests.simulation.clients.transactions import TransactionalClient
from tests.simulation.member_steps import MEMBER_STEPS, come_to_rest, left_over
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN
from tests.simulation.outbox_steps import OUTBOX_STEPS, deliver_all
from tests.simulation.schedule_steps import SCHEDULE_STEPS, all_are_due
from tests.simulation.settings import (
    Settings,
    draw,
    tiny_limits,
    with_amqp,
    with_members,
    with_outboxes,
    with_principals,
    with_schedule,
)
from tests.simulation.steps import DEEDS, STEPS, plan_starts, pump
from tests.simulation.world.audit import audit
from tests.simulation.world.disk import check_leftovers
from tests.simulation.world.machine import EndlessTurn, Site
from tests.simulation.world.world import World

EACH_IN = 10
"""One of so many histories has each of these."""

PARTS = {"outboxes": 3, "access": 6, "members": 9, "schedule": 1, "amqp": 4}
"""What only some histories have, and the remainders of their seeds: whose clients deliver rows of outboxes, have
rights, are members of groups, schedule messages, or speak AMQP.
"""


Steps = dict[str, tuple[int, Callable[[World, Random], None]]]


@dataclass
class Outcome:
    """How a history went. ``problem`` is "" if all promises were kept."""

    seed: int
    steps: int
    problem: str = ""
    step: int = -1
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    sites: Counter[Site] = field(default_factory=Counter)


def settings_of(seed: int) -> Settings:
    """What a seed's history runs with."""
    settings = draw(
        Random(f"settings {seed}"),
        _weights(STEPS),
        {n: w for n, (w, _) in DEEDS.items()},
    )
    if has("outboxes", seed):
        return with_outboxes(settings, Random(f"outboxes {seed}"), _weights(OUTBOX_STEPS))
    if has("access", seed):
        return with_principals(settings, Random(f"access {seed}"), _weights(ACCESS_STEPS))
    if has("members", seed):
        return with_members(settings, Random(f"members {seed}"), _weights(MEMBER_STEPS))
    if has("schedule", seed):
        return with_schedule(settings, Random(f"schedule {seed}"), _weights(SCHEDULE_STEPS))
    if has("amqp", seed):
        return with_amqp(settings, Random(f"amqp {seed}"), _weights(AMQP_STEPS))
    return settings


def _weights(steps: Steps) -> dict[str, int]:
    return {name: weight for name, (weight, _) in steps.items()}


def has(part: str, seed: int) -> bool:
    """Whether a seed's history has this."""
    return next_with(part, seed) == seed


def next_with(part: str, seed: int) -> int:
    """Return the first seed from this one on whose history has this."""
    return seed + (PARTS[part] - seed) % EACH_IN


def run(seed: int, kept: Sequence[int] | None = None, trace: bool = False) -> Outcome:
    """Run a history, or only some of its steps."""
    settings = settings_of(seed)
    outcome = Outcome(seed, settings.steps)
    lines: list[str] | None = outcome.trace if trace else None
    gc.disable()  # when garbage goes must not depend on what ran before
    world = World(settings, Random(f"world {seed}"), lines)
    try:
        with tiny_limits(settings), world:
            _go(world, seed, kept if kept is not None else range(settings.steps), outcome)
    except (Exception, EndlessTurn) as error:  # noqa: BLE001  (whatever it is, it is what the history has found)
        outcome.problem = (
            f"{error}"
            if isinstance(error, AssertionError) and str(error).startswith("expected")
            else traceback.format_exc()
        )
    finally:
        gc.enable()
    outcome.counts, outcome.sites = world.counts, world.sites
    return outcome


def _go(world: World, seed: int, kept: Sequence[int], outcome: Outcome) -> None:
    steps = STEPS | _more_steps(world.settings)
    names = list(steps)
    cumulative = list(accumulate(world.settings.weights[name] for name in names))
    world.deed_weights = list(accumulate(world.settings.weights[name] for name in DEEDS))
    world.start(Random(f"first {seed}"))
    if world.administrators:
        settle_in(world, Random(f"access of {seed}"))
    if world.amqp_clients:
        declare_all(world)
    for step in kept:
        outcome.step = step
        random = Random((seed << 12) + step)
        [name] = random.choices(names, cum_weights=cumulative)
        if world.trace is not None:
            world.say(f"[{step}] {name}")
        _take(world, random, steps[name][1])
    outcome.step = -1
    _finish(world, Random(f"last {seed}"))


def _more_steps(settings: Settings) -> Steps:
    """What may happen in this history beside what may happen in all."""
    if settings.members:
        return MEMBER_STEPS
    if settings.schedulers:
        return SCHEDULE_STEPS
    if settings.amqp_clients:
        return AMQP_STEPS
    return OUTBOX_STEPS if settings.outboxes else ACCESS_STEPS if settings.principals else {}


def _take(world: World, random: Random, step: Callable[[World, Random], None]) -> None:
    """One step, and what follows from it if the power goes or the process fails."""
    try:
        step(world, random)
    except PowerCut:
        assert world.plan.off
    _ends(world, random)
    world.check_log()


def _ends(world: World, random: Random) -> None:
    while world.plan.off or world.failed:
        if world.plan.off:
            world.cut_power(random)
        else:
            for _ in range(random.choice((0, 0, 1, 5))):
                world.flusher.step(1)  # its threads go on until the process is gone
            if not world.plan.off:
                plan_starts(world, random)
                world.kill(random)


def _finish(world: World, random: Random) -> None:
    """At rest: end what is prepared, one way or the other, and see that everything is there, over another crash too."""
    world.plan.faults.clear()
    world.plan.cut_in = 0
    world.plan.free_bytes = None
    world.say("the end: all come to rest")
    world.starting.clear()
    _take(world, random, pump)
    turn_away(world)
    if world.administrators:
        _take(world, random, decide_own)
    _all_leave(world)
    resolver = TransactionalClient(world, 50)
    if world.administrators:
        resolver.mechanism, resolver.facts = Administrator.mechanism, Administrator.facts
    world.add(resolver)
    resolver.connect()
    world.pump()
    for begun in list(world.model.transactions.values()):
        if begun.state == OPEN and begun.prepared_at <= world.model.now:
            resolver.decide(random, begun, random.random() < 0.5)
            world.count("prepared ended at last")
    world.pump()
    for begun in world.model.transactions.values():
        require(
            begun.ended_at <= world.model.now or begun.prepared_at > world.model.now,
            f"{begun.name} can be ended",
            "it is still open",
        )
    if world.outbox_clients:
        deliver_all(world)
    if world.settings.members:
        come_to_rest(world, Random(f"{random.random()}"))
    if world.schedulers:
        all_are_due(world, Random(f"{random.random()}"))
    if world.amqp_clients:
        all_is_delivered(world, Random(f"{random.random()}"))
    if random.random() < 0.3:
        check_leftovers(world)
    random.choice((world.cut_power, world.kill, world.stop))(random)
    _all_leave(world)
    audit(world, random)
    left = left_over(world)
    require(not left, "members have finished all messages", left)
    if random.random() < 0.3:
        check_leftovers(world)


def _all_leave(world: World) -> None:
    for client in world.everybody:
        client.lost(0)
    world.pump()
