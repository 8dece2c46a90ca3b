"""A broker on a memory file system with an audit in a real file, written when a test says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from journal.folds.table import client_folds
from journal.recovery.start import recover
from tests.support.broker_room import Room
from txbroker.broker.access.audit import Encounters, RecordLines
from txbroker.broker.access.pin_lines import PinLines
from txbroker.broker.broker import Broker
from txbroker.server.audit_log import AuditFile, AuditLog


class FaultyFile(AuditFile):
    """A file on a disk that has room for ``room`` more bytes; None for enough."""

    room: int | None = None

    def write(self, data: bytes) -> int:
        if self.room is None:
            return super().write(data)
        if not self.room:
            raise OSError(28, "No space left on device")
        written = super().write(data[: self.room])
        self.room -= written
        return written


class AuditRoom(Room):
    """A room with an audit; ``said`` is what the audit has told the broker's log."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.said: list[str] = []
        super().__init__(**settings)

    def start(self) -> None:
        self.file = FaultyFile(str(self.path))
        self.audit = AuditLog(self.file, self.clock.wall, lambda call, text, **named: self.said.append(text))
        self.audit.open()
        self.records = RecordLines(self.audit, self.audit.known)
        self.engine = recover(
            self.filesystem, self.clock, self.journal, folds=client_folds(), observers=[self.records]
        )
        self.engine.on_flush_wanted = lambda: None
        self.records.begin()
        self.broker = Broker(self.engine, self.settings, call_later=self.timers.callLater)
        self.encounters = Encounters(self.audit, self.engine)
        self.broker.on_denied = self.encounters.denied
        entrance = self.broker.entrance
        entrance.on_login, entrance.on_refused = self.encounters.logged_in, self.encounters.not_logged_in
        self.broker.session_list.on_closed = self.encounters.closed
        pins = PinLines(self.audit, self.engine)
        self.broker.pinning.on_pinned, self.broker.pinning.on_released = pins.pinned, pins.released
        self.engine.sync()

    def write(self) -> None:
        """Force everything, and write the lines of it."""
        self.engine.sync()
        self.audit.settle()

    def die(self, survive: float = 0.0) -> None:
        """Lose the power, and start again."""
        self.filesystem = self.filesystem.crash_clone(1, survive)
        self.file.close()
        self.start()

    def checkpoint(self) -> None:
        """Write a checkpoint, and remove what it makes needless."""
        self.engine.housekeeping.request_checkpoint()
        while jobs := self.engine.jobs(self.engine.now()):
            for job in jobs:
                job.run()
                self.engine.finish(job)
            self.engine.sync()

    def lines(self, path: Path | None = None) -> list[dict[str, Any]]:
        """The whole lines of the file."""
        found = []
        for line in (path or self.path).read_bytes().split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"what": "torn"})
        return found

    def told(self, *whats: str) -> list[dict[str, Any]]:
        """The lines of these kinds, or of all records but starts."""
        return [
            line
            for line in self.lines()
            if (line["what"] in whats if whats else "lsn" in line and line["what"] != "broker.started")
        ]
