"""A measurement makes its topic, runs the generator, verifies what was sent, and reports."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

import msgspec

import journal
import txbroker
from txbroker.bench.generator import Generator, GeneratorFailed
from txbroker.bench.plan import Kind, Plan, shares
from txbroker.bench.result import Report, report_of
from txbroker.bench.tally import Counted, Progress
from txbroker.bench.topic import Ground, own_topic, topic_to_read, topic_to_write
from txbroker.bench.verification import Expected, Verification, read_back
from txbroker.errors import TxBrokerError

LISTEN = 0.25
"""Seconds between two checks of the generator's progress."""

FILLING_DEPTH = 5000


class Watcher(Protocol):
    """Interface for showing the progress of a measurement."""

    def show(self, doing: str, seconds: float, progress: Progress | None) -> None:
        """Show what is being done, and for how long; ``progress`` is None where there is nothing to count."""


def new_run() -> int:
    """Return a number for a run that no other run is likely to have."""
    return random.SystemRandom().getrandbits(32)


@contextmanager
def _ground_for(
    broker: txbroker.Connection, plan: Plan, named: bool, append: bool
) -> Iterator[tuple[Plan, Ground]]:
    """Find or make the topic; return it, and the plan with its name and partitions."""
    if not named:
        with own_topic(broker, plan.run, plan.partitions) as ground:
            yield msgspec.structs.replace(plan, topic=ground.name), ground
        return
    reads = plan.kind is Kind.CONSUME
    ground = (
        topic_to_read(broker, plan.topic)
        if reads
        else topic_to_write(broker, plan.topic, plan.partitions, append)
    )
    yield msgspec.structs.replace(plan, partitions=len(ground.starts)), ground


def _trouble(error: BaseException, unverified: bool) -> str:
    """Return what went wrong after the measuring."""
    said = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
    state = "What was acknowledged has not been read back" if unverified else "All was read back before"
    return ". ".join([f"After the measuring: {said}", state, *getattr(error, "__notes__", [])])


class Bench:
    """One measurement. A plan without a topic makes one of its own."""

    def __init__(self, plan: Plan, *, append: bool, verify: bool, filling: int, watcher: Watcher) -> None:
        self._plan = plan
        self._append = append
        self._verify = verify
        self._filling = filling
        self._watcher = watcher
        self._interrupted = False

    def carry_out(self) -> Report:
        """Carry the measurement out. Raises :class:`GeneratorFailed` and what the client raises; Ctrl-C ends only the
        measuring.

        What goes wrong once it has been measured, or Ctrl-C then, is the report's ``trouble``: figures are not lost.
        """
        plan, server, trouble = self._plan, "", ""
        builds = {"broker": "unknown", "client": journal.BUILD.value}
        began = datetime.now(UTC).isoformat(timespec="seconds")
        counted: list[Counted] = []
        verification = None
        try:
            with (
                txbroker.connect(plan.url, client="txbroker-bench", timeout=plan.timeout) as broker,
                _ground_for(broker, plan, bool(plan.topic), self._append) as (plan, ground),
            ):
                server = str(broker.core.entering.server)
                builds["broker"] = str(broker.status().get("build", "unknown"))
                filled = self._fill(plan) if plan.kind is Kind.CONSUME and ground.own else []
                counted = self._measured(plan)
                if self._verify and (plan.kind is not Kind.CONSUME or ground.own):
                    verification = self._verified(broker, ground, filled or counted)
        except (TxBrokerError, KeyboardInterrupt) as error:
            if not counted:
                raise
            self._interrupted = self._interrupted or isinstance(error, KeyboardInterrupt)
            trouble = _trouble(error, self._verify and verification is None)
        return report_of(
            plan,
            counted,
            began=began,
            server=server,
            builds=builds,
            interrupted=self._interrupted,
            verification=verification,
            trouble=trouble,
        )

    def _fill(self, plan: Plan) -> list[Counted]:
        """Fill the topic with messages to read."""
        filling = msgspec.structs.replace(
            plan,
            kind=Kind.PRODUCE,
            count=self._filling,
            seconds=None,
            warm_up=0.0,
            rate=0.0,
            depth=FILLING_DEPTH,
        )
        return self._generated(filling, "filling the topic", stop=lambda: None)

    def _measured(self, plan: Plan) -> list[Counted]:
        return self._generated(plan, "measuring", stop=self._interrupt)

    def _interrupt(self) -> None:
        self._interrupted = True

    def _generated(self, plan: Plan, doing: str, stop: Callable[[], None]) -> list[Counted]:
        """Have the generator work; the first Ctrl-C makes it stop and report what it has."""
        with Generator(shares(plan)) as generator:
            self._watcher.show("connecting", 0.0, None)
            at = generator.start()
            begin = at + plan.warm_up
            deadline = None
            while (counted := generator.counted) is None:
                try:
                    progress = generator.listen(LISTEN)
                    now = time.monotonic()
                    warming = now < begin
                    self._watcher.show("warming up" if warming else doing, max(now - begin, 0.0), progress)
                    if deadline is not None and now > deadline:
                        raise GeneratorFailed(
                            f"the generator has not ended {plan.timeout:g} s after it was told to"
                        )
                except KeyboardInterrupt:
                    if deadline is not None:
                        raise
                    deadline = time.monotonic() + 2 * plan.timeout
                    stop()
                    generator.stop()
            return counted

    def _verified(self, broker: txbroker.Connection, ground: Ground, counted: list[Counted]) -> Verification:
        self._watcher.show("verifying: reading back what was acknowledged", 0.0, None)
        sent = {client: made for part in counted for client, made in part.sent.items()}
        unacknowledged = [each for part in counted for each in part.unacknowledged]
        return read_back(broker, ground.name, ground.starts, Expected(self._plan.run, sent, unacknowledged))
