"""Forces of the journal that take seconds: the log reports that the disk is slow."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from journal.engine.engine import Engine
from journal.wal.group import Group
from txbroker.broker.sessions.settings import SECOND

SLOW_FORCE: Final = 1.0
"""Seconds that writing and forcing a group may take. Sound disks need milliseconds, so there is no setting for it."""

STUCK: Final = 10 * SECOND
"""µs after which a force is reported while it is under way, because it may never end."""

LINE_INTERVAL: Final = 60 * SECOND
"""µs between two lines of the log at least; slow forces in between are counted, and reported with the next."""

WHAT_TO_DO: Final = (
    "Nothing acknowledged is lost: answers wait for the disk. See whether it is failing (dmesg) or busy with something "
    "else (iostat -x 1)"
)


class SlowForces:
    """Counts slow forces, and logs at most one line a minute. On the reactor; the times are those of the writer's
    thread.

    A fast force costs two looks at the clock, and no call.
    """

    log = Logger()

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._said_at: int | None = None
        self._untold = self._untold_longest = self._untold_waited = 0
        self._group: Group | None = None
        self._seen_at = 0
        self.count = 0
        self.longest = 0

    def gauges(self) -> dict[str, int]:
        """Return the figures of ``txbroker status``; ``longest_force`` in µs, 0 if none was slow."""
        return {"slow_forces": self.count, "longest_force": self.longest}

    def ended(self, seconds: float) -> None:
        """The group under way, not yet published, took at least ``SLOW_FORCE`` to be written and forced."""
        took = round(seconds * SECOND)
        _, waited = self._engine.under_way()
        self.count += 1
        self.longest = max(self.longest, took)
        self._untold += 1
        self._untold_longest = max(self._untold_longest, took)
        self._untold_waited += waited
        self._tell()

    def look(self) -> None:
        """Check for a force that does not end, and report what has waited for its minute. Call it about every
        second.
        """
        group, waiting = self._engine.under_way()
        now = self._engine.clock.monotonic()
        if group is not self._group:
            # The reactor takes a result of the writer before it runs periodic tasks, however long it was held up:
            # a group that is still there at the next look is with the disk.
            self._group, self._seen_at = group, now
        elif group is not None and now - self._seen_at >= STUCK and self._may_tell():
            self.log.warn(
                "a force of the journal has been under way for more than {seconds:.0f} s ({waiting} requests wait for "
                "it). {todo}",
                seconds=(now - self._seen_at) / SECOND, waiting=waiting, todo=WHAT_TO_DO,
            )  # fmt: skip
            self._said_at = now
        self._tell()

    def _may_tell(self) -> bool:
        return self._said_at is None or self._engine.clock.monotonic() - self._said_at >= LINE_INTERVAL

    def _tell(self) -> None:
        if not self._untold or not self._may_tell():
            return
        seconds = self._untold_longest / SECOND
        what = f"a force of the journal took {seconds:.1f} s ({self._untold_waited} requests waited)"
        if self._untold > 1:
            what = (
                f"{self._untold} forces of the journal took over {SLOW_FORCE:g} s since the last such line, "
                f"the longest {seconds:.1f} s ({self._untold_waited} requests waited)"
            )
        self.log.warn("{what}; {count} since the start. {todo}", what=what, count=self.count, todo=WHAT_TO_DO)
        self._said_at = self._engine.clock.monotonic()
        self._untold = self._untold_longest = self._untold_waited = 0
