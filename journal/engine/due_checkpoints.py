"""When checkpoints are made: after so much journal, after so much time, when asked, and so that files can go."""

from __future__ import annotations

from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings


class DueCheckpoints:
    """Decides when the next checkpoint begins; one per engine, on its thread."""

    def __init__(self, engine: Engine, settings: JournalSettings) -> None:
        self._engine, self._settings = engine, settings
        self._journaled_before = engine.journaled_bytes
        self._began = 0
        self._requested = False
        self._further = 0
        """How many are to be made only so that files can go."""

    def begun(self, now: int) -> None:
        """Note that one begins at that journal time, or that ages count from then."""
        self._requested, self._journaled_before, self._began = False, self._engine.journaled_bytes, now

    def request(self) -> None:
        """Make the next one now, if anything has been journaled since the last."""
        self._requested = True

    def request_further(self, count: int) -> None:
        """Make so many though nothing is journaled: files go with them."""
        self._further = count

    def is_due(self, now: int, kept_lsn: int | None, *, keeps_files: bool, free_bytes: int) -> bool:
        """Return whether one is to begin now. ``kept_lsn`` is that of the newest, None without one.

        ``keeps_files``: there are files that only further checkpoints let go. These come after the interval though
        nothing else is journaled; and at once where new work is refused, which it is until these files are gone, unless
        so few bytes of the disk are free that the checkpoint might find no room itself.
        """
        engine, settings = self._engine, self._settings
        is_time = now - self._began >= settings.checkpoint_interval
        if keeps_files and not self._further:
            self._further = int(is_time or (engine.full and free_bytes >= settings.file_bytes))
        if engine.busy:
            self._requested = False
            return False
        if self._further:
            self._further -= 1
            return True
        if engine.last_lsn == kept_lsn:
            self._requested = False
            return False
        journaled = engine.journaled_bytes - self._journaled_before
        return self._requested or journaled >= settings.checkpoint_bytes or (journaled > 0 and is_time)
