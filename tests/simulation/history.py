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
from tests.simulation.clients.strangers import turn_away
from tests.simulation.clients.transactions import TransactionalClient
from tests.simulation.member_steps import MEMBER_STEPS, come_to_rest, left_over
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN
from tests.simulation.outbox_steps import OUTBOX_STEPS, deliver_all
from tests.simulation.settings import Settings, draw, tiny_limits, with_members, with_outboxes
from tests.simulation.steps import DEEDS, STEPS, plan_starts, pump
from tests.simulation.world.audit import audit
from tests.simulation.world.disk import check_leftovers
from tests.simulation.world.machine import Site
from tests.simulation.world.world import World

MEMBERS_IN = 10
"""One of so many histories has members."""

OUTBOXES_IN = 10
"""One of so many has outboxes."""


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
        {n: w for n, (w, _) in STEPS.items()},
        {n: w for n, (w, _) in DEEDS.items()},
    )
    if has_outboxes(seed):
        return with_outboxes(
            settings, Random(f"outboxes {seed}"), {n: w for n, (w, _) in OUTBOX_STEPS.items()}
        )
    if not has_members(seed):
        return settings
    return with_members(settings, Random(f"members {seed}"), {n: w for n, (w, _) in MEMBER_STEPS.items()})


def has_members(seed: int) -> bool:
    """Whether clients are members of groups in a seed's history."""
    return next_with_members(seed) == seed


def has_outboxes(seed: int) -> bool:
    """Whether clients deliver rows of outboxes in a seed's history."""
    return seed % OUTBOXES_IN == 3


def next_with_members(seed: int) -> int:
    """Return the first seed from this one on in whose history clients are members of groups."""
    return seed + (MEMBERS_IN - 1 - seed) % MEMBERS_IN


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
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what the history has found)
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
    steps = STEPS | (MEMBER_STEPS if world.settings.members else OUTBOX_STEPS if world.outbox_clients else {})
    names = list(steps)
    cumulative = list(accumulate(world.settings.weights[name] for name in names))
    world.deed_weights = list(accumulate(world.settings.weights[name] for name in DEEDS))
    world.start(Random(f"first {seed}"))
    for step in kept:
        outcome.step = step
        random = Random((seed << 12) + step)
        [name] = random.choices(names, cum_weights=cumulative)
        if world.trace is not None:
            world.say(f"[{step}] {name}")
        _take(world, random, steps[name][1])
    outcome.step = -1
    _finish(world, Random(f"last {seed}"))


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
    _all_leave(world)
    resolver = TransactionalClient(world, 50)
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
