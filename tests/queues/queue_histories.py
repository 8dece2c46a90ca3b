"""Histories of queues from seeds: what clients do, and how the broker ends, drawn from a seed and each step's place, so
that any step can be left out.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

from journal.check.verification import Level, verify
from journal.testing import PowerCut
from tests.queues.declaration_steps import bind, declare_exchange, declare_queue
from tests.queues.queue_room import Limits
from tests.queues.queue_steps import AT_REST, OPERATIONS
from tests.queues.queue_world import World
from tests.queues.rest_steps import come
from tests.simulation.model.log_model import require
from tests.simulation.shrink import from_text, shrunk, to_text

Step = Callable[[World, Random], None]
Steps = Mapping[str, tuple[int, Step]]


@dataclass
class Outcome:
    """How a history went. ``problem`` is "" if all promises were kept."""

    seed: int
    steps: int
    problem: str = ""
    step: int = -1
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def steps_of(seed: int) -> int:
    """How many steps a seed's history has."""
    return Random(f"steps {seed}").choice((40, 80, 150))


def run(seed: int, kept: Sequence[int] | None = None, trace: bool = False) -> Outcome:
    """Run a history, or only some of its steps."""
    random = Random(f"limits {seed}")
    limits, steps = Limits.drawn(random), steps_of(seed)
    outcome = Outcome(seed, steps)
    gc.disable()  # when garbage goes must not depend on what ran before
    world: World | None = None
    try:
        with limits.in_force():
            world = World(limits, Random(f"world {seed}"), outcome.trace if trace else None)
            with world:
                _go(world, random, seed, range(steps) if kept is None else kept, outcome)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what the history has found)
        text = str(error)
        outcome.problem = text if text.startswith("expected") else traceback.format_exc()
    finally:
        gc.enable()
    if world is not None:
        outcome.counts = world.counts
    return outcome


def _go(world: World, random: Random, seed: int, kept: Sequence[int], outcome: Outcome) -> None:
    factors = {name: random.choice((0, 1, 1, 2)) for name in OPERATIONS}
    weights = [weight * factors[name] + 0.1 for name, (weight, _) in OPERATIONS.items()]
    danger = random.choice((0.0, 0.03, 0.1))
    world.say(f"{world.limits}")
    _settle_in(world, random)
    for step in kept:
        outcome.step = step
        random = Random((seed << 12) + step)
        world.say(f"[{step}]")
        try:
            if random.random() < danger:
                world.arm(random)
            if random.random() < 0.25:
                world.sync()
                _choose(random, AT_REST, [weight for weight, _ in AT_REST.values()])(world, random)
            else:
                _ask(world, random, weights)
            if random.random() < danger / 4:
                world.crash(random)
        except PowerCut:
            world.crash(random)
        if random.random() < 0.5:
            world.room.disarm()
        if not world.clients:
            world.room.disarm()
            world.sync()
            come(world, random)
            come(world, random)
    outcome.step = -1
    _finish(world, Random(f"last {seed}"))


def _settle_in(world: World, random: Random) -> None:
    """Two clients come, and declare something."""
    come(world, random)
    come(world, random)
    for _ in range(random.choice((3, 6, 10))):
        declare_queue(world, random)
        if random.random() < 0.3:
            declare_exchange(world, random)
        bind(world, random)
        world.sync()


def _choose(random: Random, steps: Steps, weights: Sequence[float]) -> Step:
    [found] = random.choices([step for _, step in steps.values()], weights)
    return found


def _ask(world: World, random: Random, weights: Sequence[float]) -> None:
    """Send some requests; mostly they are forced together, then."""
    is_slow = world.limits.is_slow
    for _ in range(1 if is_slow else random.choice((1, 1, 2, 3, 6))):
        _choose(random, OPERATIONS, weights)(world, random)
        if world.room.engine.busy:
            world.sync()  # a commit takes several turns, in which other requests wait
        if world.model.has_to_end(world.now):
            world.sync()  # what ends by itself ends a little later
    if is_slow or random.random() < 0.85:
        world.sync()


def _finish(world: World, random: Random) -> None:
    """End what is undecided, start, and see that all is there."""
    world.room.disarm()
    world.sync()
    world.check()
    random.choice((world.stop, lambda: world.crash(random)))()
    world.stop()
    world.sync()
    world.room.checkpoint()
    world.room.engine.close()
    found = [str(each) for each in verify(world.room.disk, Level.DEEP) if not each.harmless]
    require(not found, "a sound directory", found)


# -- many of them ---------------------------------------------------------------------------------


class Campaign(NamedTuple):
    """How many histories came to an end, what happened in them, and the first that broke a promise."""

    histories: int
    counts: Counter[str]
    failed: Outcome | None
    seconds: float


def campaign(
    seed: int, seconds: float = float("inf"), histories: int | None = None, jobs: int = 1
) -> Campaign:
    """Run histories from a seed on, until time is up, so many have been run, or one has failed."""
    began, counts, done = time.monotonic(), Counter[str](), 0
    seeds = range(seed, 1 << 62) if histories is None else range(seed, seed + histories)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) if jobs > 1 else nullcontext() as pool:
        step = 1 if pool is None else 8 * jobs
        for first in range(seeds.start, seeds.stop, step):
            some = seeds[first - seeds.start : first - seeds.start + step]
            for outcome in map(run, some) if pool is None else pool.map(run, some):
                done, counts = done + 1, counts + outcome.counts
                if outcome.problem:
                    return Campaign(done, counts, outcome, time.monotonic() - began)
            if time.monotonic() - began > seconds:
                break
    return Campaign(done, counts, None, time.monotonic() - began)


def explain(outcome: Outcome, seconds: float = 30.0) -> str:
    """Return a failing history with as few steps as fail the same way, and the command that runs it again."""
    end = outcome.step + 1 if outcome.step >= 0 else outcome.steps
    kind = kind_of(outcome.problem)
    kept = shrunk(range(end), lambda steps: kind_of(run(outcome.seed, steps).problem) == kind, seconds)
    return replay(f"{outcome.seed}/{to_text(kept)}")[1]


def kind_of(problem: str) -> str:
    """Return what stays of a problem when names and numbers are others."""
    lines = problem.strip().splitlines() or [""]
    said = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    if said.startswith(("expected: what the model", "expected: one of these", "expected: a sound")):
        said += lines[1] if len(lines) > 1 else ""
    return "".join(letter for letter in said if not letter.isdigit())[:60]


def replay(spec: str) -> tuple[Outcome, str]:
    """Run a history again, from SEED or SEED/STEPS, and tell all of it."""
    seed, _, steps = spec.partition("/")
    outcome = run(int(seed), from_text(steps) if steps else None, trace=True)
    told = [*outcome.trace, "", f"python -m tests.queues --replay={spec}"]
    return outcome, "\n".join([*told, outcome.problem or "all promises were kept"])
