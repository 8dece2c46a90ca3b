"""Lines of the log about what an operator should know at once: a disk that is full, and a clock that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from txbroker.broker.sessions.settings import SECOND

if TYPE_CHECKING:
    from journal.engine.engine import Engine

JUMP: Final = 1 * SECOND
"""The least jump of the machine's clock that is told, µs. Its time is corrected by less all the time."""


class Notices:
    """Looks at disk and clock, and logs what has changed."""

    log = Logger()

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._was_full = False
        self._offset = self._wall_offset()

    def _wall_offset(self) -> int:
        clock = self._engine.clock
        return clock.wall() - clock.monotonic()

    def look(self) -> None:
        """Log what has changed since the last look; call it every second."""
        self._look_at_disk()
        offset = self._wall_offset()
        jump, self._offset = offset - self._offset, offset
        if abs(jump) >= JUMP:
            self.log.warn(
                "the clock of this machine was set {direction} by {seconds:.1f} s. Order, time-outs and retention by "
                "age go by another clock, and are not affected; times that messages have from now on are",
                direction="forward" if jump > 0 else "back", seconds=abs(jump) / SECOND,
            )  # fmt: skip

    def _look_at_disk(self) -> None:
        engine = self._engine
        if engine.full is self._was_full:
            return
        self._was_full = engine.full
        space = engine.housekeeping
        if engine.full:
            self.log.error(
                "the disk is full: {free} bytes are free, {needed} must stay so. New work is refused (DiskFull); "
                "reading, and ending what is prepared, go on. Make room: see 'A full disk' in docs/operations.md",
                free=space.free_bytes, needed=space.reserve_bytes,
            )  # fmt: skip
        else:
            self.log.info("the disk has room again: {free} bytes are free", free=space.free_bytes)
