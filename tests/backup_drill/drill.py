"""The drill: backups beside its load, some of whose commands are killed; each is judged when the load is over."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import txbroker
from tests.backup_drill.auditor import Auditor
from tests.backup_drill.promises import Window
from tests.backup_drill.replacement import Judged, Lost, Replacement
from txbroker import errors
from txbroker.drill.clients.ledger import Began, Ledger, Prepared, Unknown
from txbroker.drill.clients.life import text_of
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.clients.transactor import xid_of
from txbroker.drill.drill import Drill, Watcher
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.orders import Orders
from txbroker.drill.plan.plan import PROBE
from txbroker.wire.messages import FormerSession

WITNESS: Final = "witness"
"""The client that prepares a transaction before each backup, and leaves it to the coordinator."""

KILLED_OF: Final = 6
"""One of so many commands that make a backup is killed."""


EXPLAINED: Final = ("FilesReleased", "ConnectionUnavailable", "RequestTimedOut")
"""Why a command makes no backup whose broker is killed, stopped or paused meanwhile."""


class BackupOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a drill beside its load: seconds between two backups, and at most so many (0: no bound).

    Spark audits each ``audited`` one; 0: none.
    """

    pause: float = 2.0
    most: int = 0
    audited: int = 1


class Backup(NamedTuple):
    """A backup that was made, and when; a client's session of before; and how often the broker had been killed."""

    name: str
    window: Window
    former: FormerSession
    kills: int


class _Making(NamedTuple):
    process: subprocess.Popen[bytes]
    out: Path
    began: float
    former: FormerSession
    killed_at: float


class BackupDrill(Drill):
    """A drill that makes one backup after the other under load; :meth:`judge_all` is called when it has run."""

    def __init__(self, orders: Orders, watcher: Watcher, backup_orders: BackupOrders) -> None:
        super().__init__(orders, watcher)
        self.backups = orders.out / "backups"
        self.made: list[Backup] = []
        self.failed: list[str] = []
        """What the commands said that made none."""
        self.killed = 0
        """How many commands were killed."""
        self._wanted = backup_orders
        self._chance = random.Random(f"{orders.seed}/backups")
        self._making: _Making | None = None
        self._next = 0.0
        self._count = 0

    @property
    def began(self) -> float:
        """When the load began, on the monotonic clock."""
        return self._load_began

    def _tick(self) -> None:
        super()._tick()
        making = self._making
        if making is not None:
            if time.monotonic() >= making.killed_at:
                making.process.kill()
            if making.process.poll() is not None:
                self._note_backup(making)
                self._making, self._next = None, time.monotonic() + self._wanted.pause
        is_loaded = self._load_began and not self._load_ended and self._victim.state == "up"
        is_wanted = not self._wanted.most or len(self.made) < self._wanted.most
        if is_loaded and is_wanted and self._making is None and time.monotonic() >= self._next:
            self._begin_backup()

    def _begin_backup(self) -> None:
        try:
            with txbroker.connect(self._process.address, client="drill-backup", timeout=5.0) as connection:
                former = connection.core.former
                self._count += 1
                self._leave_prepared(connection)
        except errors.TxBrokerError:
            return  # it is down just now
        assert former is not None
        out = self._orders.out / f"backup-{self._count}.json"
        command = ["backup", "create", self._data, self.backups, "--broker", self._process.address, "--json"]
        is_killed = self._chance.randrange(KILLED_OF) == 0
        with out.open("wb") as said, out.with_suffix(".err").open("wb") as failed:
            began = round(time.monotonic(), 4)
            words = [sys.executable, "-m", "txbroker", *map(str, command)]
            process = subprocess.Popen(words, stdout=said, stderr=failed)
        killed_at = began + self._chance.uniform(0.5, 2.0) if is_killed else float("inf")
        self._making = _Making(process, out, began, former, killed_at)

    def _leave_prepared(self, connection: txbroker.Connection) -> None:
        """Prepare a transaction that the coordinator decides within some seconds: many backups have it undecided."""
        plan, sender = self._plan, f"{WITNESS}.{self._count}"
        ledger = Ledger(plan.ledgers, sender)
        xid, place = xid_of(plan, sender, 1), plan.places(PROBE)[0]
        ledger.write(Began(operation=1, places=[place], together=True, xid=str(xid)))
        try:
            connection.tpc_begin(xid)
            value = value_of(MessageId(plan.name, sender, 1, 0, 1, 10))
            connection.send(plan.topic(PROBE), value, sender.encode(), {"place": b"%d" % place}, 0)
            connection.tpc_prepare()
            ledger.write(Prepared(operation=1))
        except errors.TxBrokerError as error:
            ledger.write(Unknown(operation=1, error=text_of(error)))
            raise
        finally:
            ledger.close()

    def _note_backup(self, making: _Making) -> None:
        if making.process.returncode == 0:
            name = json.loads(making.out.read_text())["name"]
            window = Window(making.began, time.monotonic())
            self.made.append(Backup(name, window, making.former, self._victim.kills))
        elif making.process.returncode < 0:
            self.killed += 1
        else:
            said = making.out.with_suffix(".err").read_text().strip()
            self.failed.append(said)
            if not any(name in said for name in EXPLAINED):
                text = f"no kill explains why no backup was made: {said}"
                self._violations.append(Violation(wrong=Wrong.SURPRISE, text=text))

    def end(self) -> None:
        """Let a backup that is being made end: its broker is gone, so it makes none, or has been made."""
        if self._making is not None:
            self._making.process.wait(60.0)
            self._note_backup(self._making)
            self._making = None

    def _lost(self, number: int) -> Lost:
        return Lost(
            self._plan, self._data, self._process.port, self._options(), self._orders.out.absolute(), number
        )

    def judge_all(self) -> Iterator[Judged]:
        """Restore and judge each backup that was made, one after the other, each at the address of the lost broker."""
        every = self._wanted.audited
        auditor = Auditor(self._orders.out) if every and self.made else None
        try:
            for number, backup in enumerate(self.made):
                audits = auditor if auditor is not None and number % every == 0 else None
                self._watcher.tell(f"            restoring {backup.name}")
                yield Replacement(self._lost(number), self.backups, backup.name).judge(
                    backup.window, backup.former, audits
                )
        finally:
            if auditor is not None:
                auditor.close()
