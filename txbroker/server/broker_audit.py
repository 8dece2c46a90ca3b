"""The audit of a process: it hears of everything from the start on, and its last line is behind the last checkpoint."""

from __future__ import annotations

from typing import Any, Final

from journal.engine.engine import Engine
from journal.interfaces import IObserver
from journal.vfs.clock import SystemClock
from txbroker.broker.access.audit import Encounters, RecordLines
from txbroker.broker.access.pin_lines import PinLines
from txbroker.broker.broker import Broker
from txbroker.server.audit_log import AuditLog, file_of
from txbroker.server.periodic_tasks import PeriodicTask, PeriodicTasks

LOOK_INTERVAL: Final = 1.0


class BrokerAudit:
    """The audit, from :meth:`open` to :meth:`stop`; where the setting ``audit`` is empty there is none."""

    def __init__(self, setting: str, reactor: Any) -> None:
        self._reactor = reactor
        self.log = AuditLog(file_of(setting), SystemClock().wall, reactor.callFromThread) if setting else None
        self._records = RecordLines(self.log, self.log.known) if self.log is not None else None
        self._encounters: Encounters | None = None
        self._looking: PeriodicTasks | None = None

    @property
    def has_failed(self) -> bool:
        """Whether lines could not be written when that was tried last."""
        return self.log is not None and self.log.has_failed

    @property
    def lines_lost(self) -> int:
        """Lines that have found no room since the start, and records that no line could be made of."""
        if self.log is None or self._records is None:
            return 0
        return self.log.lost + self._records.failures

    def open(self) -> None:
        """Open its file; raises InvalidSetting."""
        if self.log is not None:
            self.log.open()

    def observers(self) -> list[IObserver]:
        """What a recovery has to show the journal's records to."""
        return [] if self._records is None else [self._records]

    def recovered(self) -> None:
        """Tell what the recovery has found. On its thread."""
        if self._records is not None:
            self._records.begin()

    def serve(self, engine: Engine, broker: Broker) -> None:
        """Hear what the broker does, from now on."""
        log, records = self.log, self._records
        if log is None or records is None:
            return
        encounters = self._encounters = Encounters(log, engine)
        broker.on_denied = encounters.denied
        broker.entrance.on_login, broker.entrance.on_refused = encounters.logged_in, encounters.not_logged_in
        broker.session_list.on_closed = encounters.closed
        pins = PinLines(log, engine)
        broker.pinning.on_pinned, broker.pinning.on_released = pins.pinned, pins.released
        log.start()
        tasks = [
            PeriodicTask("telling the audit of logins", LOOK_INTERVAL, encounters.look),
            PeriodicTask("telling the audit of checkpoints", LOOK_INTERVAL, records.look),
        ]
        self._looking = PeriodicTasks(self._reactor, tasks)
        self._looking.start()

    def reopen(self) -> None:
        """Go on in the file of the name."""
        if self.log is not None:
            self.log.reopen()

    def stop(self, patience: float) -> None:
        """Tell the rest, and end, before the directory is released."""
        if self._looking is not None:
            self._looking.stop()
        if self._encounters is not None and self._records is not None:
            self._encounters.look(is_last=True)
            self._records.conclude()
        if self.log is not None:
            self.log.stop(patience)
