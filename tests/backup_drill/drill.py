"""The drill: backups beside its load, and the judgement of each when it is over."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import txbroker
from journal.check import Level, verify
from journal.constants import RESTORED_STARTS
from journal.vfs.filesystem import OSFilesystem
from txbroker import State, errors
from txbroker.client.blocking import Connection
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.drill.clients.coordinator import owner_of
from txbroker.drill.clients.ledger import Began, Decided, Line, read_ledgers
from txbroker.drill.drill import Drill, Watcher
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.held import messages_of, partitions_of
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.orders import Orders
from txbroker.wire.messages import FormerSession, TransactionInfo

PAUSE = 0.3
"""Seconds between two backups."""


class Backup(NamedTuple):
    """A backup that was made: its command began at that time of the monotonic clock, in that start of the broker."""

    name: str
    began: float
    former: FormerSession


class Judged(NamedTuple):
    """What was found in one backup: messages, and transactions that were restored."""

    backup: str
    messages: int
    restored: int
    violations: list[Violation]


class _Making(NamedTuple):
    process: subprocess.Popen[bytes]
    out: Path
    began: float
    former: FormerSession


class BackupDrill(Drill):
    """A drill that makes one backup after the other under load; :meth:`judge_all` is called when it has run."""

    def __init__(self, orders: Orders, watcher: Watcher) -> None:
        super().__init__(orders, watcher)
        self.backups = orders.out / "backups"
        self.made: list[Backup] = []
        self.failed: list[str] = []
        """What the commands said that made none."""
        self._making: _Making | None = None
        self._next = 0.0
        self._count = 0

    def _tick(self) -> None:
        super()._tick()
        if self._making is not None and self._making.process.poll() is not None:
            self._note_backup(self._making)
            self._making, self._next = None, time.monotonic() + PAUSE
        is_loaded = self._load_began and not self._load_ended and self._victim.state == "up"
        if is_loaded and self._making is None and time.monotonic() >= self._next:
            self._begin_backup()

    def _begin_backup(self) -> None:
        try:
            with txbroker.connect(self._process.address, client="drill-backup", timeout=5.0) as connection:
                former = connection.core.former
        except errors.TxBrokerError:
            return  # it is down just now
        assert former is not None
        self._count += 1
        out = self._orders.out / f"backup-{self._count}.json"
        command = ["backup", "create", self._data, self.backups, "--broker", self._process.address, "--json"]
        with out.open("wb") as said, out.with_suffix(".err").open("wb") as failed:
            began = round(time.monotonic(), 4)
            words = [sys.executable, "-m", "txbroker", *map(str, command)]
            process = subprocess.Popen(words, stdout=said, stderr=failed)
        self._making = _Making(process, out, began, former)

    def _note_backup(self, making: _Making) -> None:
        if making.process.returncode:
            self.failed.append(making.out.with_suffix(".err").read_text().strip())
        else:
            name = json.loads(making.out.read_text())["name"]
            self.made.append(Backup(name, making.began, making.former))

    def end(self) -> None:
        """Let a backup that is being made end: its broker is gone, so it makes none, or has been made."""
        if self._making is not None:
            self._making.process.wait(60.0)
            self._note_backup(self._making)
            self._making = None

    def judge_all(self) -> Iterator[Judged]:
        """Restore and judge each backup that was made."""
        for number, backup in enumerate(self.made):
            target = self._orders.out / f"restored-{number}"
            yield self._judge_one(backup, target)
            shutil.rmtree(target, ignore_errors=True)

    # -- one backup --------------------------------------------------------------------------------

    def _judge_one(self, backup: Backup, target: Path) -> Judged:
        command = ["restore", str(self.backups), str(target), "--backup", backup.name, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "txbroker", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return Judged(backup.name, 0, 0, [Violation(wrong=Wrong.FILES, text=done.stderr)])
        violations = [
            Violation(wrong=Wrong.FILES, text=f"{each.path} at {each.position}: {each.problem}")
            for each in verify(OSFilesystem(target), Level.DEEP)
            if not each.harmless
        ]
        start = json.loads(done.stdout)["start"]
        if start <= (backup.former.session >> 32) + RESTORED_STARTS:
            violations.append(
                Violation(wrong=Wrong.CONTRADICTED, text=f"its time line begins with start {start}")
            )
        expectation = Expectation()
        expectation.take(promised(read_ledgers(self._plan.ledgers), backup.began))
        judge = Judge(self._plan.name, self._plan.layout, expectation)
        process = BrokerProcess(target, self._orders.out / "restored.log", self._options())
        process.port = self._process.port
        with process, txbroker.connect(process.address, client="drill") as connection:
            violations += self._old_client(backup, connection)
            listed = connection.transactions([State.PREPARED])
            violations += self._decided(connection, listed)
            count = self._read(connection, judge)
            positions = {
                self._plan.layout.index((position.topic, position.partition)): position.offset
                for position in connection.group_offsets(self._plan.group)
            }
            violations += judge.judge(positions)
            process.stop()
        return Judged(backup.name, count, len(listed), violations)

    def _read(self, connection: Connection, judge: Judge) -> int:
        parts, count = partitions_of(connection), 0
        for place, (topic, index) in enumerate(self._plan.layout):
            for message in messages_of(connection, topic, index, 0, parts[topic, index].high_watermark):
                judge.take(place, message)
                count += 1
        return count

    def _old_client(self, backup: Backup, other: Connection) -> Iterator[Violation]:
        """A client of the lost time line comes again, with its session."""
        connection = Connection(other.address, other.core.options)
        connection.core.former = backup.former
        try:
            connection.run(connection.core.opened(time.monotonic() + 10.0))
            yield Violation(
                wrong=Wrong.CONTRADICTED, text="a client of the lost time line is let in with its session"
            )
        except errors.BrokerReplaced:
            pass
        finally:
            connection.close()

    def _decided(self, connection: Connection, listed: Iterable[TransactionInfo]) -> Iterator[Violation]:
        """End what was restored as the ledgers say that it was decided; nobody may roll it back unasked."""
        decisions: dict[tuple[str, int], bool] = {}
        for line in read_ledgers(self._plan.ledgers):
            if isinstance(line.entry, Decided):
                decisions[line.entry.sender or line.sender, line.entry.operation] = line.entry.commit
        for info in listed:
            assert info.xid is not None
            owner = owner_of(self._plan, info.xid)
            try:
                connection.end_prepared(info.xid, commit=False)
                text = "it was prepared in the backup, and a rollback was taken that no person forced"
                yield Violation(wrong=Wrong.PREPARE_LOST, text=text, transaction=str(info.xid))
                continue
            except errors.RestoredTransaction:
                pass
            if owner is not None and decisions.get(owner, False):
                connection.end_prepared(info.xid, commit=True)
            else:
                connection.rollback_transaction(info.xid, by="drill", why="the ledger has no commit")


def promised(lines: Iterable[Line], before: float) -> Iterator[Line]:
    """Yield what was asked, and what was answered before that time: later answers are of what may be lost."""
    for line in lines:
        if isinstance(line.entry, (Began, Decided)) or line.entry.at < before:
            yield line
