"""Pins: a client that reads the data directory's files beside the broker keeps them from being removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from txbroker.broker.sessions.session import Session
from txbroker.wire.messages import FilesPinned, PinFiles, UnpinFiles

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.engine.garbage import Pin


class Pinning:
    """The pins of sessions, at most one each. A pin is volatile: it ends with the session, and with the broker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pins: dict[Session, Pin] = {}
        self.handlers: Final[dict[type, Callable[[Session, Any, memoryview], FilesPinned]]] = {
            PinFiles: self._pin,
            UnpinFiles: self._unpin,
        }
        """The handlers of requests."""

    def _pin(self, session: Session, command: PinFiles, data: memoryview) -> FilesPinned:  # noqa: ARG002
        """Take a pin, or return the one that is held; raises DiskFull where space is scarce."""
        pin = self._pins.get(session)
        if pin is None or not pin.held:
            pin = self._pins[session] = self._engine.housekeeping.pin()
        return FilesPinned(command.correlation, pin.lsn, pin.held)

    def _unpin(self, session: Session, command: UnpinFiles, data: memoryview) -> FilesPinned:  # noqa: ARG002
        """Release the session's pin, and return whether it was held until now."""
        pin = self._pins.pop(session, None)
        if pin is None:
            return FilesPinned(command.correlation, 0, False)
        held = pin.held
        self._engine.housekeeping.unpin(pin)
        return FilesPinned(command.correlation, pin.lsn, held)

    def forget(self, session: Session) -> None:
        """The session has ended."""
        if (pin := self._pins.pop(session, None)) is not None:
            self._engine.housekeeping.unpin(pin)
