"""Files that wait to be removed: dropped, in no kept checkpoint any more, and held by no pin.

Files that are dropped before a checkpoint are removed after the next one, when neither of the two kept ones refers to
them. A :class:`Pin` stops all removal while a program, such as an audit or a backup, reads the directory's files beside
the engine. All files stay that the newest checkpoint refers to when the pin is taken, and the journal above it.
"""

from __future__ import annotations

from collections.abc import Iterable

from journal.engine.engine import Engine
from journal.engine.jobs import CollectGarbage


class Pin:
    """Keeps files from being removed while it is held. ``lsn`` is that of the newest checkpoint when it was taken.

    ``held`` turns false for good when it is released, or when the disk needs the space: files may be missing from then
    on.
    """

    __slots__ = ("held", "lsn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.held = True


class Garbage:
    """Collects dropped files; one per engine. All decisions are made on the engine's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._fresh: tuple[list[str], list[str]] = ([], [])
        self._aged: tuple[list[str], list[str]] = ([], [])
        self._ready: tuple[list[str], list[str]] = ([], [])
        self._pins: set[Pin] = set()
        self._overdue = False
        """Whether something may be removed that was not there, or not to be removed, at the last removal."""

    # -- pins --------------------------------------------------------------------------------------

    @property
    def pins(self) -> int:
        """How many pins are held."""
        return len(self._pins)

    def pin(self, lsn: int) -> Pin:
        """Remove nothing until :meth:`release`. ``lsn``: the newest checkpoint's."""
        pin = Pin(lsn)
        self._pins.add(pin)
        return pin

    def release(self, pin: Pin) -> None:
        """Release a pin; does nothing if it is not held any more."""
        pin.held = False
        self._pins.discard(pin)

    def release_all(self) -> None:
        """End all pins, because the disk needs the space."""
        for pin in list(self._pins):
            self.release(pin)

    # -- removal -----------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether there are files that go only with a further checkpoint."""
        return any((*self._fresh, *self._aged))

    def drop(self, files: Iterable[str], directories: Iterable[str]) -> None:
        """Drop files that the checkpoint which is being made does not refer to."""
        self._fresh[0].extend(files)
        self._fresh[1].extend(directories)

    def release_now(self, directories: Iterable[str]) -> None:
        """Have directories removed that no checkpoint has ever referred to."""
        self._ready[1].extend(directories)
        self._overdue = True

    def age(self, checkpoints: Iterable[str]) -> None:
        """Note that a checkpoint has been written; ``checkpoints`` are the files of those that are no longer kept."""
        self._ready[0].extend((*self._aged[0], *checkpoints))
        self._ready[1].extend(self._aged[1])
        self._aged, self._fresh = self._fresh, ([], [])
        self._overdue = True

    def collect(self, needed_from: int) -> CollectGarbage | None:
        """Return the job that removes what may go, journals below that LSN too; None if a pin is held or none
        is due.
        """
        if self._pins or not self._overdue:
            return None
        self._overdue = False
        (files, directories), self._ready = self._ready, ([], [])
        journals = self._engine.journal.take_dead(needed_from) if needed_from else []
        return CollectGarbage(self._engine, journals, files, directories)
