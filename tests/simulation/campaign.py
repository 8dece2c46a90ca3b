"""A campaign runs many histories on all cores, until time is up or one fails, and reports coverage or the failure."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from tests.simulation import history
from tests.simulation.history import Outcome
from tests.simulation.shrink import from_text, shrunk, to_text
from tests.simulation.world.machine import Site

BATCH = 20
"""Histories that a process runs before it reports."""

FAULTS = (
    "What happened in them. 'failed ...' and 'short ...' are calls on files that the simulation made fail or write "
    "less, on purpose."
)
"""What stands above the counts."""


logging.getLogger("journal").addHandler(logging.NullHandler())  # indexes are made again all the time


class Campaign:
    """Histories from ``seed`` on. Ends after so many ``seconds`` or ``histories``, or soon after one has failed.

    ``part``: only those that have this of ``history.PARTS``.
    """

    def __init__(self, seed: int, seconds: float, histories: int | None, part: str = "") -> None:
        self.seed = seed
        self.part = part
        self.seconds = seconds
        self.histories = histories
        self.done = 0
        self.failed: list[Outcome] = []
        self.counts: Counter[str] = Counter()
        self.sites: Counter[Site] = Counter()
        self.took = 0.0

    def run(self, jobs: int | None = None) -> None:
        """Run them on so many processes."""
        began = time.monotonic()
        jobs = jobs or os.cpu_count() or 1
        if jobs == 1:
            for seeds in self._batches(began):
                self._take(run_batch(seeds))
        else:
            self._run_on(jobs, began)
        self.took = time.monotonic() - began

    def _run_on(self, jobs: int, began: float) -> None:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            batches = self._batches(began)
            running: set[Future[list[Outcome]]] = set()
            while True:
                while len(running) < jobs and (seeds := next(batches, None)) is not None:
                    running.add(pool.submit(run_batch, seeds))
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ended:
                    self._take(each.result())

    def _batches(self, began: float) -> Iterator[range]:
        seeds = range(self.seed, 1 << 62)
        if self.part:
            seeds = range(history.next_with(self.part, self.seed), 1 << 62, history.EACH_IN)
        if self.histories is not None:
            seeds = seeds[: self.histories]
        while seeds and not self.failed and time.monotonic() - began < self.seconds:
            yield seeds[:BATCH]
            seeds = seeds[BATCH:]

    def _take(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.done += 1
            self.counts += outcome.counts
            self.sites += outcome.sites
            if outcome.problem:
                self.failed.append(outcome)

    # -- what they covered ----------------------------------------------------------------------------

    @property
    def crashes(self) -> int:
        """How often the power went or the process died."""
        return sum(
            self.counts[each] for each in ("power cuts", "power cuts in a start", "kills", "failed starts")
        )

    def summary(self) -> dict[str, Any]:
        """All figures."""
        return {
            "seed": self.seed,
            "histories": self.done,
            "seconds": round(self.took, 2),
            "histories_per_second": round(self.done / self.took, 1),
            "crashes": self.crashes,
            "crashes_per_second": round(self.crashes / self.took, 1),
            "crash_points": len(self.sites),
            "counts": dict(sorted(self.counts.items())),
        }

    def report(self, verbose: bool = False) -> str:
        """What came out and the figures for people; all counts if they are ``verbose``."""
        figures = self.summary()
        broken = len(self.failed)
        verdict = f"{broken} {'history' if broken == 1 else 'histories'} broke a promise"
        lines = [
            verdict,
            f"{self.done} histories from seed {self.seed} in {self.took:.1f} s ({figures['histories_per_second']}/s), "
            f"{self.crashes} crashes ({figures['crashes_per_second']}/s), {len(self.sites)} distinct crash points",
        ]
        if verbose:
            width = max(map(len, self.counts), default=0)
            lines += ["", FAULTS, ""]
            lines += [f"  {name:<{width}} {count:>9,}" for name, count in sorted(self.counts.items())]
            lines += ["", verdict]
        return "\n".join(lines)


def run_batch(seeds: Sequence[int]) -> list[Outcome]:
    """Run these, up to one that fails."""
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes.append(history.run(seed))
        if outcomes[-1].problem:
            break
    return outcomes


def explain(outcome: Outcome, shrink: bool = True) -> dict[str, Any]:
    """A failure: the command that replays it, its shrunk history, what was expected and what was found."""
    end = outcome.step + 1 if outcome.step >= 0 else outcome.steps
    kept: Sequence[int] = range(end)
    if shrink:
        kind = _kind(outcome.problem)
        kept = shrunk(kept, lambda steps: _kind(history.run(outcome.seed, steps).problem) == kind)
    replayed, text = replay(f"{outcome.seed}/{to_text(kept)}")
    return {"seed": outcome.seed, "steps": len(kept), "problem": replayed.problem, "text": text}


def _kind(problem: str) -> str:
    """What stays of a problem when names and numbers are others."""
    first, *rest = problem.strip().splitlines() or [""]
    line = first if first.startswith("expected") else (rest[-1] if rest else first)
    return "".join(letter for letter in line if not letter.isdigit())[:60]


def replay(spec: str) -> tuple[Outcome, str]:
    """Run a history again, from SEED or SEED/STEPS, and tell all of it."""
    seed, _, steps = spec.partition("/")
    outcome = history.run(int(seed), from_text(steps) if steps else None, trace=True)
    text = "\n".join(
        [
            *outcome.trace,
            "",
            f"make simulate ARGS=--replay={spec}",
            outcome.problem or "all promises were kept",
        ]
    )
    return outcome, text
