"""A drill runs from its directory to its report."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Protocol

import msgspec

import txbroker
from journal.errors import RequestRefused
from journal.testing.directory import holding
from journal.vfs.filesystem import OSFilesystem
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess, free_port
from txbroker.drill.broker.kill_points import MID_APPLY, POWER_CUTS, RECOVERY
from txbroker.drill.broker.schedule import Event, Kind, draw
from txbroker.drill.broker.victim import Disturbance, Victim
from txbroker.drill.clients.coordinator import Coordinator
from txbroker.drill.clients.crew import LOG as CLIENTS_LOG
from txbroker.drill.clients.crew import WORKER, Crew, client_names
from txbroker.drill.clients.feeder import unhandled
from txbroker.drill.clients.ledger import Acknowledged, Began, Ended, Ledger, Tail, read_ledgers
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.clients.queuer import declare_queues
from txbroker.drill.directory import check_data_directory, copy_data, held, make_folder
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.held import check_files, messages_of, partitions_of, queued_messages
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.judge_queues import queued
from txbroker.drill.judgement.old_content import OldContent, compare_content, note_content
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.orders import BRISK, BRISK_TOPICS, BRISK_WORK, Orders
from txbroker.drill.plan.plan import DEAD, LATER, POLICY, PROBE, QUEUES, TASKS, Plan
from txbroker.drill.report.result import Report, count, throughput

LOG = "broker.log"
LEAST_GAP = 0.4
"""Seconds of load between two events, even if the drill is late: the clients have to reconnect first."""

LOOK_INTERVAL = 0.5
"""Seconds between two reads of the ledgers for the progress."""

QUEUES_WITHIN = 60.0
"""Seconds that the broker gets at the end to deliver everything that is in the queues."""

DUE_WITHIN = 60.0
"""Seconds that the broker gets at the end to send what was for later: the latest is due 16 s after it was sent."""

HANDLE_WITHIN = 120.0
"""Seconds that the workers get at the end for what is left. Nothing is killed then."""


class Progress(msgspec.Struct):
    """The progress of a drill, for display."""

    doing: str = "starting the broker"
    broker: str = "not started"
    seconds: float = 0.0
    seconds_asked: float = 0.0
    kills: int = 0
    kills_asked: int = 0
    acknowledged: int = 0
    per_second: float = 0.0
    in_doubt: int = 0
    clients: int = 0
    client_deaths: int = 0


class Watcher(Protocol):
    """A watcher is shown what goes on."""

    def show(self, progress: Progress) -> None:
        """Show the progress; called often."""

    def tell(self, line: str) -> None:
        """Report that something has happened."""


class Drill:
    """One drill; call :meth:`run` once."""

    def __init__(self, orders: Orders, watcher: Watcher) -> None:
        self._orders = orders
        self._watcher = watcher
        self._progress = Progress(seconds_asked=orders.seconds, kills_asked=orders.kills)
        self._disturbances: list[Disturbance] = []
        self._old = OldContent()
        self._judged = Expectation()
        self._violations: list[Violation] = []
        self._data = orders.data if orders.in_place and orders.data else orders.out / "data"
        log = orders.out / LOG
        self._amqp_port = free_port() if orders.amqp else 0
        self._process = BrokerProcess(self._data, log, self._options(), self._entry())
        self._victim = Victim(self._process, self._probe, self._tick, orders.power_cuts)
        self._plan = self._planned("")
        self._crew = Crew(self._plan, [])
        self._coordinator: Coordinator | None = None
        self._probe_ledger: Ledger | None = None
        self._probes = 0
        self._tail: Tail | None = None
        self._looked_at = 0.0
        self._load_began = self._load_ended = 0.0

    def _entry(self) -> list[str]:
        return [sys.executable, "-m", self._orders.entry, *([POWER_CUTS] if self._orders.power_cuts else ())]

    def _options(self) -> list[str]:
        """Return the options. A drill with neither ``data`` nor a settings file gets quick ones; options override."""
        options = self._orders.options
        is_brisk = self._orders.data is None and "--config" not in options
        brisk = BRISK + BRISK_WORK * bool(self._orders.workers) if is_brisk else ()
        listens = ["--listen-amqp", f"tcp:{self._amqp_port}:interface=127.0.0.1"] if self._orders.amqp else []
        return [*(word for setting in brisk for word in ("--set", setting)), *options, *listens]

    def _planned(self, name: str) -> Plan:
        orders = self._orders
        return Plan(
            name=name,
            seed=orders.seed,
            url=self._process.address,
            folder=str(orders.out.absolute()),
            rate=orders.rate,
            two_phase=orders.two_phase,
            large=MID_APPLY in orders.points and orders.large_transactions,
            largest=orders.largest,
            compression=orders.compression,
            workers=orders.workers,
            schedulers=orders.schedulers,
            queuers=orders.queuers,
            amqp=orders.amqp,
            amqp_port=self._amqp_port,
        )

    # -- the whole ---------------------------------------------------------------------------------

    def run(self) -> Report:
        """Run the whole drill; the broker and the clients are gone when this returns or raises."""
        began = time.monotonic()
        self._provide_directory()
        try:
            try:
                self._open()
                self._load()
                self._settle()
                self._examine()
            except BrokerFailed as error:
                self._violations.insert(0, Violation(wrong=Wrong.BROKER, text=str(error)))
            except RequestRefused as error:
                if self._tail is None:
                    raise  # settings that do not allow the drill are no violation
                text = f"the drill itself was refused what had worked: {error}"
                self._violations.insert(0, Violation(wrong=Wrong.SURPRISE, text=text))
            return self._report(time.monotonic() - began)
        finally:
            self._crew.kill_all()
            if self._coordinator is not None:
                self._coordinator.stop()
            self._victim.end()
            shutil.rmtree(holding(self._data), ignore_errors=True)

    def _provide_directory(self) -> None:
        orders = self._orders
        make_folder(orders.out)
        if orders.data is None:
            return
        self._doing(f"looking at {orders.data}" if orders.in_place else f"copying {orders.data}")
        if orders.in_place:
            check_data_directory(orders.data)
            with held(orders.data):
                pass  # no broker has the directory open now; the drill's broker takes the lock itself
        else:
            copy_data(orders.data, self._data)

    def _open(self) -> None:
        """Start the broker, note what was there before, make the topics, and start all clients."""
        self._doing("starting the broker")
        self._victim.start()
        with self._connected() as connection:
            if self._orders.data is not None:
                self._doing("reading what is there already")
                self._old = note_content(connection)
                self._watcher.tell(f"{self._old.messages:,} messages were there before")
            self._plan = self._planned(_free_name({topic for topic, _ in partitions_of(connection)}))
            self._plan.write()
            for short, partitions in self._plan.shape.items():
                connection.create_topic(self._plan.topic(short), partitions, exist_ok=False, **BRISK_TOPICS)
            if self._plan.workers:
                connection.alter_group(self._plan.work_group, retry=POLICY)
            if self._plan.has_queues:
                declare_queues(connection, self._plan)
        self._probe_ledger = Ledger(self._plan.ledgers, "probe.1")
        self._tail = Tail(self._plan.ledgers)
        orders = self._orders
        names = client_names(orders.clients, orders.workers, orders.schedulers, orders.queuers, orders.amqp)
        self._crew = Crew(self._plan, names)
        self._crew.start()
        self._coordinator = Coordinator(self._plan, self._crew.is_over)
        self._coordinator.start()

    def _connected(self) -> txbroker.Connection:
        return txbroker.connect(self._process.address, client="drill")

    def _probe(self, connection: txbroker.Connection) -> None:
        """Send the first request after a start: a message that is forced to disk."""
        ledger, plan = self._probe_ledger, self._plan
        if ledger is None:  # there are no topics yet
            connection.ping()
            return
        self._probes += 1
        place = plan.places(PROBE)[0]
        identity = MessageId(plan.name, ledger.sender, self._probes, 0, 1, 10)
        ledger.write(Began(operation=self._probes, places=[place], connection=self._probes))
        receipt = connection.send(
            plan.topic(PROBE), value_of(identity), ledger.sender.encode(), {"place": b"%d" % place}, 0
        )
        assert receipt.offset is not None, "outside of transactions receipts have offsets"
        ledger.write(Acknowledged(operation=self._probes, offsets=[(0, receipt.offset)]))

    # -- the load, and what is done to the broker ----------------------------------------------------

    def _load(self) -> None:
        """Carry out the schedule; the gaps shrink as time runs short."""
        orders = self._orders
        events = draw(orders.seed, orders.kills, orders.points, WORKER if orders.workers else "")
        self._load_began = time.monotonic()
        end = self._load_began + orders.seconds
        usual = 1.0
        for number, event in enumerate(events):
            self._doing("under load")
            mean = (end - time.monotonic()) / (len(events) - number + 1) - usual
            self._wait(max(LEAST_GAP, mean * event.gap))
            self._victim.check()
            began = time.monotonic()
            self._carry_out(event)
            usual += (time.monotonic() - began - usual) / (number + 2)
        self._doing("under load")
        self._wait(end - time.monotonic())
        self._load_ended = time.monotonic()

    def _carry_out(self, event: Event) -> None:
        victim = self._victim
        match event.kind:
            case Kind.KILL if event.point == RECOVERY:
                at = victim.kill()
                self._note(event.kind, "random", "killed", at)
                how = victim.die_recovering(event.nth)
                self._note(event.kind, event.point, how, at)
            case Kind.KILL:
                how, at = victim.die_at(event.point, event.nth)
                self._note(event.kind, event.point, how, at)
                if how == "not reached: stopped":
                    self._start_again()
                    self._wait(0.3)
                    self._note(event.kind, "random", "killed", victim.kill())
            case Kind.PAUSE:
                seconds = self._plan.timeout * event.length
                at = victim.pause(seconds)
                self._note(event.kind, f"{seconds:.1f} s", "went on", at, up_at=time.monotonic())
            case Kind.STOP:
                self._note(event.kind, "", "stopped", victim.stop())
            case Kind.CLIENT:
                name = self._crew.kill(event.client, event.role)
                self._note(event.kind, name, "killed", time.monotonic(), up_at=time.monotonic())
            case Kind.CLIENT_PAUSE:
                seconds, at = self._plan.session_timeout * event.length, time.monotonic()
                name = self._crew.pause(event.client, event.role, seconds)
                self._note(event.kind, f"{name} for {seconds:.1f} s", "paused", at, up_at=at + seconds)
        self._start_again()

    def _start_again(self) -> None:
        """Start the broker until it is up; this ends every disturbance since it last was up."""
        if all(disturbance.up_at is not None for disturbance in self._disturbances):
            return
        if self._victim.state != "up":
            self._doing("restarting")
            self._victim.start()
        up_at = time.monotonic()
        for number, disturbance in enumerate(self._disturbances):
            if disturbance.up_at is None:
                self._disturbances[number] = msgspec.structs.replace(disturbance, up_at=up_at)
        seconds = self._victim.starts[-1].seconds or 0.0
        self._watcher.tell(f"            up again: first request accepted {seconds:.2f} s after its start")

    def _note(self, kind: Kind, planned: str, how: str, at: float, up_at: float | None = None) -> None:
        self._disturbances.append(
            Disturbance(kind=kind.value, planned=planned, how=how, down_at=at, up_at=up_at)
        )
        what = f"{kind.value} {planned}".rstrip()
        self._watcher.tell(f"{at - self._load_began:8.1f} s  {what}: {how}")

    # -- the end -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let all clients end what they are doing; kill the broker a last time; end the transactions in doubt."""
        assert self._coordinator is not None
        self._doing("letting the clients end what they are at")
        self._crew.stop(but=WORKER)
        if self._plan.workers:
            self._doing("letting the workers handle what is left")
            self._wait_for_workers()
        self._crew.stop()
        self._coordinator.stop()
        self._note(Kind.KILL, "after the load", "killed", self._victim.kill())
        self._start_again()
        self._doing("ending what is in doubt")
        self._coordinator.finish()
        if self._plan.schedulers:
            self._doing("waiting until what was sent for later is due")
            self._wait_for_schedule()

    def _wait_for_schedule(self) -> None:
        """Wait until no message waits for its time; what does by then is a violation."""
        deadline = time.monotonic() + DUE_WITHIN
        topic = self._plan.topic(LATER)
        with self._connected() as connection:
            while connection.list_scheduled(topic) and time.monotonic() < deadline:
                self._wait(LOOK_INTERVAL)

    def _wait_for_workers(self) -> None:
        """Wait until the group has finished every message; what it has not by then is a violation."""
        deadline = time.monotonic() + HANDLE_WITHIN
        with self._connected() as connection:
            while unhandled(connection, self._plan) and time.monotonic() < deadline:
                self._wait(LOOK_INTERVAL)

    def _examine(self) -> None:
        """Read everything back, through the broker and from its files, and judge."""
        plan, violations = self._plan, self._violations
        self._judged.take(read_ledgers(plan.ledgers))
        places = (plan.places(TASKS), plan.places(DEAD)) if plan.workers else ()
        judge = Judge(plan.name, plan.layout, self._judged, *places)
        with self._connected() as connection:
            self._doing("reading everything back")
            parts = partitions_of(connection)
            for place, (topic, index) in enumerate(plan.layout):
                for message in messages_of(connection, topic, index, 0, parts[topic, index].high_watermark):
                    judge.take(place, message)
            if plan.has_queues:
                self._take_queues(connection)
            positions = {
                plan.layout.index((position.topic, position.partition)): position.offset
                for group in (plan.group, *([plan.work_group] if plan.workers else ()))
                for position in connection.group_offsets(group)
            }
            violations += judge.judge(positions)
            violations += compare_content(self._old, connection)
            for xid in connection.tpc_recover():
                if xid.global_id.startswith(f"{plan.name}/".encode()):
                    text = "it is still prepared, and its coordinator could not end it"
                    violations.append(Violation(wrong=Wrong.IN_DOUBT, text=text, transaction=str(xid)))
        self._victim.stop()
        self._doing("reading the files")
        served = dict(zip(plan.layout, judge.checksums, strict=True))
        violations += check_files(OSFilesystem(self._data), served)

    def _take_queues(self, connection: txbroker.Connection) -> None:
        """Take everything out of the queues for the judge."""
        plan = self._plan
        shorts = {plan.queue(short): short for short in QUEUES}
        for name, message in queued_messages(connection, list(shorts), QUEUES_WITHIN):
            self._judged.queued.append(queued(plan, shorts[name], message))

    def _complete_violations(self) -> list[Violation]:
        """Return the violations, with the ledgers' complaints if no broker could be compared, and failed clients."""
        if not self._judged.operations and self._plan.name:
            self._judged.take(read_ledgers(self._plan.ledgers))
            complaints = Expectation(complaints=self._judged.complaints)
            self._violations += Judge(self._plan.name, self._plan.layout, complaints).judge({})
        self._violations += [
            Violation(wrong=Wrong.SURPRISE, text=f"{failure}; see {CLIENTS_LOG}")
            for failure in self._crew.failures
        ]
        if (
            not any(operation.found for operation in self._judged.operations.values())
            and not self._violations
        ):
            text = (
                f"nothing was acknowledged in the whole drill, so it shows nothing; see {LOG} and the ledgers"
            )
            self._violations.append(Violation(wrong=Wrong.BROKER, text=text))
        return self._violations

    def _report(self, seconds: float) -> Report:
        orders, victim, begin = self._orders, self._victim, self._load_began
        violations = self._complete_violations()
        counts = count(self._judged)
        counts.old_messages = self._old.messages
        began = {key: operation.began for key, operation in self._judged.operations.items()}
        sizes = {key: len(each.places) + len(each.published) for key, each in began.items()}
        lines = read_ledgers(self._plan.ledgers) if self._plan.name else iter(())
        return Report(
            name=self._plan.name,
            seed=orders.seed,
            command=orders.command,
            seconds=seconds,
            kills_asked=orders.kills,
            kills=victim.kills,
            power_cuts=orders.power_cuts,
            pauses=sum(disturbance.kind == Kind.PAUSE.value for disturbance in self._disturbances),
            stops=sum(disturbance.how.endswith("stopped") for disturbance in self._disturbances),
            client_deaths=self._crew.deaths,
            client_pauses=sum(each.kind == Kind.CLIENT_PAUSE.value for each in self._disturbances),
            workers=orders.workers,
            schedulers=orders.schedulers,
            queuers=orders.queuers,
            amqp=orders.amqp,
            restarts=victim.restarts,
            recovery=[start.seconds for start in victim.starts[1:] if start.seconds is not None],
            disturbances=[_since(begin, disturbance) for disturbance in self._disturbances],
            starts=[msgspec.structs.replace(s, executed_at=s.executed_at - begin) for s in victim.starts],
            counts=counts,
            violations=violations,
            throughput=throughput(lines, sizes, begin, self._load_ended or time.monotonic()),
        )

    # -- meanwhile ---------------------------------------------------------------------------------

    def _doing(self, what: str) -> None:
        self._progress.doing = what
        self._progress.broker = self._victim.state
        self._watcher.show(self._progress)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._tick()
            self._victim.check()
            time.sleep(min(left, 0.1))

    def _tick(self) -> None:
        """Start clients again that have ended; show the progress to the watcher."""
        self._crew.look()
        now = time.monotonic()
        if now - self._looked_at >= LOOK_INTERVAL and self._tail is not None:
            new = sum(_weight(entry) for entry in self._tail.new())
            self._progress.per_second = new / (now - self._looked_at) if self._looked_at else 0.0
            self._progress.acknowledged += new
            self._looked_at = now
        progress = self._progress
        progress.broker = self._victim.state
        progress.seconds = now - self._load_began if self._load_began else 0.0
        progress.kills = self._victim.kills
        progress.in_doubt = self._coordinator.in_doubt if self._coordinator else 0
        progress.clients, progress.client_deaths = self._crew.running, self._crew.deaths
        self._watcher.show(progress)


def _weight(entry: object) -> int:
    """Return how many answers a line of a ledger stands for; a transaction counts as one."""
    if isinstance(entry, Acknowledged):
        return len(entry.offsets)
    return int(isinstance(entry, Ended) and entry.committed)


def _since(begin: float, disturbance: Disturbance) -> Disturbance:
    up_at = None if disturbance.up_at is None else disturbance.up_at - begin
    return msgspec.structs.replace(disturbance, down_at=disturbance.down_at - begin, up_at=up_at)


def _free_name(topics: set[str]) -> str:
    """Return a name that no topic begins with: drills on one directory use separate topics."""
    number = 1
    while any(topic.startswith(f"drill{number}-") for topic in topics):
        number += 1
    return f"drill{number}"
