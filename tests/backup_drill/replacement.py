"""A restored broker takes the place of a lost one while the clients of that still run, and is judged."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import txbroker
from journal.check import Level, verify
from journal.constants import RESTORED_STARTS
from journal.errors import CorruptData
from journal.vfs.filesystem import OSFilesystem
from tests.backup_drill.auditor import Auditor
from tests.backup_drill.promises import RESTORED, Window, asked_since, promised, settle
from txbroker import State, errors
from txbroker.client.blocking import Connection
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess
from txbroker.drill.clients.coordinator import Coordinator, owner_of
from txbroker.drill.clients.crew import WORKER, Crew
from txbroker.drill.clients.feeder import unhandled
from txbroker.drill.clients.ledger import Began, Decided, Ended, Line, read_ledgers
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.held import check_files, messages_of, partitions_of, queued_messages
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.judge_queues import queued
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.plan import DEAD, LATER, QUEUES, TASKS, Plan
from txbroker.wire.messages import FormerSession, TransactionInfo

ROLES: Final = (
    "sender", "plain", "transactor", "relay", "reader", "feeder", WORKER, "scheduler", "queuer",
)  # fmt: skip
"""The old clients: one of each role."""

KEEPING: Final = ("sender", "reader", "feeder")
"""The roles that keep one connection for their life: they must be told that the broker was replaced."""

AT_WORK_WITHIN: Final = 20.0
"""Seconds that the old clients get to have something acknowledged by the lost broker."""

GAP: Final = 1.0
"""Seconds without a broker at the address: by then the old clients have used what they had been answered before."""

NEW_LOAD: Final = 1.5
"""Seconds of load in the new time line, before and after the restored broker is killed once."""

WITHIN: Final = 60.0
"""Seconds that the restored broker gets for what is due, in queues, or to be handled."""

FURTHEST: Final = 0.5
"""Seconds, half of those after which the old clients' messages for later are due."""

POLL: Final = 0.1


class Judged(NamedTuple):
    """What was found in one backup.

    ``messages`` were there at the end, ``restored`` transactions waited, ``told`` old clients were told that the
    broker was replaced. ``audited`` are the seconds of Spark's audit, None without one.
    """

    backup: str
    messages: int
    restored: int
    told: int
    audited: float | None
    seconds: float
    violations: list[Violation]


class Lost(NamedTuple):
    """The lost broker, whose place is taken: where it was, its data, and what it and its drill were told."""

    plan: Plan
    data: Path
    port: int
    options: list[str]
    out: Path
    number: int


class _Failed(Exception):
    """What was found out leaves nothing more to judge."""


class Replacement:
    """The restore of one backup, from the lost broker's last moments to the judgement."""

    def __init__(self, lost: Lost, backups: Path, name: str) -> None:
        self._lost = lost
        self._backups = backups
        self._name = name
        self._target = lost.out / f"restored-{lost.number}"
        self._plan = msgspec.structs.replace(
            lost.plan, folder=str(lost.out / f"line-{lost.number}"), furthest=FURTHEST
        )
        self._plan.write()
        base = 100 * (lost.number + 1)
        self._crew = Crew(self._plan, [f"{role}-{base + 1}" for role in ROLES])
        self._chance = random.Random(f"{lost.plan.seed}/restore {lost.number}")
        self._violations: list[Violation] = []
        self._own: list[Line] = []
        self._start = 0

    def judge(self, window: Window, former: FormerSession, auditor: Auditor | None) -> Judged:
        """Carry it out; the processes are gone when this returns or raises.

        Restore and audits come first: they would have little left of the machine beside the old clients.
        """
        began, seconds = time.monotonic(), None
        messages = restored = told = 0
        lost, process = self._broker(self._lost.data, "lost.log"), self._broker(self._target, "restored.log")
        try:
            if not (self._restored() and self._newer_than(former)):
                raise _Failed
            self._verify()
            if auditor is not None:
                found = auditor.audit(self._target)
                self._violations += found.violations
                seconds = found.seconds
            with lost:
                self._work_with(lost)
            time.sleep(GAP)
            since = time.monotonic()
            with process:
                restored = self._replace(process, former)
                messages, told = self._examine(process, window, since)
            shutil.rmtree(self._target)
        except BrokerFailed as error:
            self._wrong(Wrong.BROKER, str(error))
        except errors.TxBrokerError as error:
            self._wrong(Wrong.SURPRISE, f"the drill itself was told {type(error).__name__}: {error}")
        except _Failed:
            pass  # the violations say what it was
        finally:
            self._crew.kill_all()
        return Judged(
            self._name, messages, restored, told, seconds, time.monotonic() - began, self._violations
        )

    def _broker(self, data: Path, log: str) -> BrokerProcess:
        process = BrokerProcess(data, self._lost.out / log, self._lost.options)
        process.port = self._lost.port
        return process

    def _wrong(self, wrong: Wrong, text: str, transaction: str = "") -> None:
        self._violations.append(Violation(wrong=wrong, text=text, transaction=transaction))

    # -- before ------------------------------------------------------------------------------------

    def _work_with(self, lost: BrokerProcess) -> None:
        """Let the old clients work with the broker that is to be lost; it is killed under them."""
        self._crew.start()
        self._wait(lambda: not self._idle(), AT_WORK_WITHIN)
        lost.kill()

    def _idle(self) -> set[str]:
        """Return the clients to which nothing was answered yet."""
        answered = {
            line.sender.partition(".")[0]
            for line in read_ledgers(self._plan.ledgers)
            if not isinstance(line.entry, Began) or line.entry.call
        }
        return set(self._crew.names) - answered

    def _wait(self, is_over: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._crew.look()
            if is_over():
                return True
            time.sleep(POLL)
        return False

    # -- the restore -------------------------------------------------------------------------------

    def _restored(self) -> bool:
        """Restore the backup; every third command is killed first, and what it leaves must not start."""
        if self._lost.number % 3 == 1:
            self._break_one()
        done = subprocess.run(self._command(), capture_output=True, text=True, check=False)
        if done.returncode:
            self._wrong(Wrong.FILES, f"the backup cannot be restored: {done.stderr.strip()}")
            return False
        self._start = json.loads(done.stdout)["start"]
        return True

    def _command(self) -> list[str]:
        words = ["restore", str(self._backups), str(self._target), "--backup", self._name, "--json"]
        return [sys.executable, "-m", "txbroker", *words]

    def _break_one(self) -> None:
        process = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(self._chance.uniform(0.3, 2.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            if (self._target / "restore.unfinished").exists():
                self._check_unstartable()
        if self._target.exists():
            shutil.rmtree(self._target)

    def _check_unstartable(self) -> None:
        try:
            with self._broker(self._target, "unfinished.log"):
                self._wrong(Wrong.BROKER, "a broker started on a restore that was killed")
        except BrokerFailed as error:
            if CorruptData.__name__ not in str(error) and "not finished" not in str(error):
                raise

    def _newer_than(self, former: FormerSession) -> bool:
        if self._start > (former.session >> 32) + RESTORED_STARTS:
            return True
        text = (
            f"its time line begins with start {self._start}, and start {former.session >> 32} was before it"
        )
        self._wrong(Wrong.CONTRADICTED, text)
        return False

    def _verify(self) -> None:
        for each in verify(OSFilesystem(self._target), Level.DEEP):
            if not each.harmless:
                self._wrong(Wrong.FILES, f"{each.path} at {each.position}: {each.problem}")

    # -- the new time line -------------------------------------------------------------------------

    def _replace(self, process: BrokerProcess, former: FormerSession) -> int:
        """Let the restored broker take the lost one's place, with load; return how many transactions waited."""
        with txbroker.connect(process.address, client="drill") as connection:
            self._knock(connection, former)
            # Beside them are those that the old clients prepare with new connections: these end them.
            listed = [info for info in connection.transactions([State.PREPARED]) if self._is_of_before(info)]
            for info in listed:
                self._decide(connection, info)
        self._wait(lambda: False, NEW_LOAD)
        process.kill()
        process.start()
        self._wait(lambda: False, NEW_LOAD)
        self._settle(process)
        return len(listed)

    def _is_of_before(self, info: TransactionInfo) -> bool:
        """Return whether a client of the drill itself has prepared it."""
        assert info.xid is not None
        owner = owner_of(self._plan, info.xid)
        return owner is None or owner[0].partition(".")[0] not in self._crew.names

    def _knock(self, other: Connection, former: FormerSession) -> None:
        """A client that had a session before the backup comes again, with it."""
        connection = Connection(other.address, other.core.options)
        connection.core.former = former
        try:
            connection.run(connection.core.opened(time.monotonic() + 10.0))
            self._wrong(Wrong.CONTRADICTED, "a client of the lost time line is let in with its session")
        except errors.BrokerReplaced:
            pass
        finally:
            connection.close()

    def _decide(self, connection: txbroker.Connection, info: TransactionInfo) -> None:
        """End what was restored as the ledgers say that it was decided; nobody may roll it back unasked."""
        xid = info.xid
        assert xid is not None
        if not info.restored:
            self._wrong(
                Wrong.CONTRADICTED, "it was prepared in the backup, and is not listed as restored", str(xid)
            )
        try:
            connection.end_prepared(xid, commit=False)
            text = "it was prepared in the backup, and a rollback was taken that no person forced"
            self._wrong(Wrong.PREPARE_LOST, text, str(xid))
            return
        except errors.RestoredTransaction:
            pass
        owner = owner_of(self._plan, xid)
        commit = owner is not None and self._decisions().get(owner, False)
        if commit:
            connection.end_prepared(xid, commit=True)
        else:
            connection.rollback_transaction(xid, by="drill", why="the ledger has no commit")
        if owner is not None:
            ended = Ended(operation=owner[1], committed=commit, sender=owner[0])
            self._own.append(Line(RESTORED, len(self._own) + 1, ended))

    def _decisions(self) -> dict[tuple[str, int], bool]:
        return {
            (line.entry.sender or line.sender, line.entry.operation): line.entry.commit
            for line in read_ledgers(self._lost.plan.ledgers)
            if isinstance(line.entry, Decided)
        }

    def _settle(self, process: BrokerProcess) -> None:
        """Stop the clients, and let the broker and the workers end what is left."""
        plan = self._plan
        self._crew.stop(but=WORKER)
        with txbroker.connect(process.address, client="drill") as connection:
            self._wait(lambda: not unhandled(connection, plan), WITHIN)
            self._crew.stop()
            Coordinator(plan, self._crew.is_over).finish()
            self._wait(lambda: not connection.list_scheduled(plan.topic(LATER)), WITHIN)

    def _examine(self, process: BrokerProcess, window: Window, since: float) -> tuple[int, int]:
        """Read everything, and judge; return how many messages there are, and how many clients were told."""
        plan = self._plan
        old = asked_since(read_ledgers(plan.ledgers), since)
        lines = [*promised(read_ledgers(self._lost.plan.ledgers), window), *old.lines, *self._own]
        known = {(line.sender, line.entry.operation) for line in lines if hasattr(line.entry, "places")}
        expectation = Expectation()
        expectation.take(line for line in lines if line.sender != RESTORED or _owner(line) in known)
        judge = Judge(plan.name, plan.layout, expectation, plan.places(TASKS), plan.places(DEAD))
        with txbroker.connect(process.address, client="drill") as connection:
            count = _read(connection, plan, judge)
            shorts = {plan.queue(short): short for short in QUEUES}
            for name, message in queued_messages(connection, list(shorts), WITHIN):
                expectation.queued.append(queued(plan, shorts[name], message))
                count += 1
            positions = {
                plan.layout.index((position.topic, position.partition)): position.offset
                for group in (plan.group, plan.work_group)
                for position in connection.group_offsets(group)
            }
            for xid in connection.tpc_recover():
                self._wrong(Wrong.IN_DOUBT, "it is prepared, and its coordinator could not end it", str(xid))
        settle(expectation, window, judge.checksums)
        self._violations += judge.judge(positions)
        process.stop()
        served = dict(zip(plan.layout, judge.checksums, strict=True))
        self._violations += check_files(OSFilesystem(self._target), served)
        self._judge_clients(old.told, old.lives)
        for line, surprise in old.surprises:
            text = f"{surprise.doing}: {surprise.error}"
            self._violations.append(
                Violation(wrong=Wrong.SURPRISE, text=text, client=line.sender, ledger=str(line))
            )
        return count, len(old.told)

    def _judge_clients(self, told: set[str], lives: set[str]) -> None:
        """Check that clients that keep their connection were told, and that none failed that came later."""
        for role in KEEPING:
            old = {life for life in lives if life.startswith(f"{role}-")}
            if old and not old & told:
                self._wrong(Wrong.CONTRADICTED, f"{', '.join(old)} kept its connection, and was not told")
        for failure in self._crew.failures:
            if failure.split(" ")[0] not in lives:
                self._wrong(Wrong.SURPRISE, f"{failure}; see line-{self._lost.number}/clients.log")


def _owner(line: Line) -> tuple[str, int]:
    assert isinstance(line.entry, Ended)
    return line.entry.sender, line.entry.operation


def _read(connection: txbroker.Connection, plan: Plan, judge: Judge) -> int:
    parts, count = partitions_of(connection), 0
    for place, (topic, index) in enumerate(plan.layout):
        for message in messages_of(connection, topic, index, 0, parts[topic, index].high_watermark):
            judge.take(place, message)
            count += 1
    return count
