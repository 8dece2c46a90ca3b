"""Pins: a client that reads the data directory's files beside the broker keeps them from being removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from txbroker.broker.sessions.session import Session
from txbroker.wire.messages import FilesPinned, PinFiles, UnpinFiles

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.engine.garbage import Pin


class Taken(NamedTuple):
    """A pin, the LSN of the last record that had been accepted when it was taken, and when that was."""

    pin: Pin
    cut: int
    at: int


class Pinning:
    """The pins of sessions, at most one each. A pin is volatile: it ends with the session, and with the broker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pins: dict[Session, Taken] = {}
        self.handlers: Final[dict[type, Callable[[Session, Any, memoryview], FilesPinned]]] = {
            PinFiles: self._pin,
            UnpinFiles: self._unpin,
        }
        """The handlers of requests."""
        self.on_pinned: Callable[[Session, Taken], object] = _untold
        self.on_released: Callable[[Session, Taken, bool], object] = _untold
        """Is told whose pin has ended, and whether it was asked to end: else its session did."""

    def _pin(self, session: Session, command: PinFiles, data: memoryview) -> FilesPinned:  # noqa: ARG002
        """Take a pin, or return the one that is held; raises DiskFull where space is scarce.

        The answer waits for the force of all that has been accepted, as answers do.
        """
        taken = self._pins.get(session)
        if command.again:
            return _said(command.correlation, taken)
        if taken is None or not taken.pin.held:
            engine, before = self._engine, taken
            taken = self._pins[session] = Taken(engine.housekeeping.pin(), engine.last_lsn, engine.now())
            if before is not None:
                self.on_released(session, before, False)
            self.on_pinned(session, taken)
        return _said(command.correlation, taken)

    def _unpin(self, session: Session, command: UnpinFiles, data: memoryview) -> FilesPinned:  # noqa: ARG002
        """Release the session's pin, and return whether it was held until now."""
        taken = self._pins.pop(session, None)
        said = _said(command.correlation, taken)
        if taken is not None:
            self.on_released(session, taken, True)
            self._engine.housekeeping.unpin(taken.pin)
        return said

    def forget(self, session: Session) -> None:
        """The session has ended."""
        if (taken := self._pins.pop(session, None)) is not None:
            self.on_released(session, taken, False)
            self._engine.housekeeping.unpin(taken.pin)


def _untold(*_: object) -> None:
    """Tell nobody."""


def _said(correlation: int, taken: Taken | None) -> FilesPinned:
    if taken is None:
        return FilesPinned(correlation, 0, False)
    return FilesPinned(correlation, taken.pin.lsn, taken.pin.held, taken.cut)
