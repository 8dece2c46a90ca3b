"""How long things take, for those who watch: forces, requests until their answers, and the age of what is read.

Twenty times a second the next request of each kind is measured. To measure each would make a send a sixth dearer (2.5
of 15 µs, on a slow machine), and one in each group of the journal made a send that comes alone dearer by 7 % of its
instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from txbroker.broker.sessions.histogram import AGES, LATENCIES, Histogram
from txbroker.broker.sessions.settings import SECOND
from txbroker.wire.messages import Commit, Prepare, Send

if TYPE_CHECKING:
    from journal.engine.engine import Engine

KINDS: Final[Mapping[type, str]] = {Send: "send", Prepare: "prepare", Commit: "commit"}

INTERVAL: Final = 0.05
"""Seconds after which the next request of each kind is measured."""

SKIPPED: Final = 7
"""Of 8 fetches one is measured; a mask."""


class Latencies:
    """The histograms of a broker, in seconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.forces = Histogram(LATENCIES)
        """Of each group of the journal: how long it took to be written and forced."""
        self.requests = {name: Histogram(LATENCIES) for name in KINDS.values()}
        self.ages = Histogram(AGES)
        self.lateness = Histogram(AGES)
        """Of each message for later that was placed: how long after it was due."""
        self.wanted: set[type] = set(KINDS)
        """The kinds of requests of which the next one is measured."""

    def go_on(self) -> None:
        """Have the next requests measured; call it every :data:`INTERVAL`."""
        self.wanted.update(KINDS)

    def measure(self, kind: type) -> None:
        """Measure a request of a wanted kind that was accepted just now, until what it waits for is forced and shown;
        one that waits for nothing, as a refusal on an idle broker, leaves that to the next.
        """
        engine = self._engine
        if engine.forced_lsn + 1 != engine.next_lsn:
            self.wanted.discard(kind)
            engine.when_forced(self._answered, (kind, engine.clock.monotonic()))

    def _answered(self, request: tuple[type, int]) -> None:
        kind, begun = request
        self.requests[KINDS[kind]].observe((self._engine.clock.monotonic() - begun) / SECOND)

    def placed(self, late: int) -> None:
        """Note that a message for later was placed so many µs after it was due."""
        self.lateness.observe(late / SECOND)

    def read(self, appended: int) -> None:
        """Note that messages were read of which the first was appended at this time, in µs since 1970; 0 if that is not
        known.
        """
        engine = self._engine
        if appended:
            self.ages.observe((engine.now() + engine.wall_offset - appended) / SECOND)
