"""The simulated world: the broker on its machine, from start to start. Everything that can happen to it is a method."""

from __future__ import annotations

import errno
from collections import Counter
from random import Random
from typing import Any

from greenlet import getcurrent
from twisted.logger import globalLogPublisher

from journal.engine.engine import Engine
from journal.errors import TxBrokerError
from journal.folds.table import client_folds
from journal.formats import frame
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import Fault, FaultFilesystem, ManualClock, MemoryFilesystem, Operation, PowerCut
from tests.simulation import settings as drawn
from tests.simulation.clients.administrators import Administrator
from tests.simulation.clients.amqp_clients import AmqpClient
from tests.simulation.clients.clients import SIZES, Client
from tests.simulation.clients.consumers import OUTPUT
from tests.simulation.clients.members import MemberClient
from tests.simulation.clients.outboxes import Outbox, OutboxClient, Row
from tests.simulation.clients.principals import PrincipalClient
from tests.simulation.clients.schedulers import SchedulingClient
from tests.simulation.clients.transactions import Begun, TransactionalClient
from tests.simulation.model.access.access_model import AccessModel
from tests.simulation.model.access.attempt_model import AttemptModel
from tests.simulation.model.access.need_model import NeedModel
from tests.simulation.model.access.quota_model import QuotaModel
from tests.simulation.model.group_model import GroupModel
from tests.simulation.model.log_model import Violation, require
from tests.simulation.model.member_model import MemberModel
from tests.simulation.model.model import OPEN, Model
from tests.simulation.model.queue_model import QueueModel
from tests.simulation.model.schedule_model import ScheduleModel
from tests.simulation.model.topic_model import TopicModel
from tests.simulation.settings import Settings
from tests.simulation.world.archive_audit import ArchiveAudit
from tests.simulation.world.audit import audit
from tests.simulation.world.disk import rot
from tests.simulation.world.machine import Plan, Reactor, Site, SteppedWorker
from tests.simulation.world.wire import Connection
from txbroker.channels.virtual_hosts import VirtualHost
from txbroker.login.facts import ConnectionFacts
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.running_broker import RunningBroker

ROUNDS = 2000
"""More than it ever takes until nothing is left to do."""


class World:
    """One history's machine, broker, clients and model. ``trace`` gets readable lines, if it is not None."""

    def __init__(self, settings: Settings, random: Random, trace: list[str] | None = None) -> None:
        self.settings = settings
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.sites: Counter[Site] = Counter()
        self.model = Model(settings.forgetful, settings.orphans)
        self.topics = TopicModel(self.model)
        self.deliveries: dict[tuple[int, int], Row] = {}
        """The rows by the transactions in which they were delivered, or tried to be."""
        self.archive = ArchiveAudit(self.model, self.deliveries)
        self.groups = GroupModel(self.model)
        self.members = MemberModel(self.model)
        self.access = AccessModel(self.model)
        self.needs = NeedModel(self.model, self.topics, self.access.principals)
        self.attempts = AttemptModel(self.model)
        self.quotas = QuotaModel(self.access, self.topics)
        self.disk = MemoryFilesystem()
        self.clock = ManualClock(monotonic=random.randrange(1 << 40))
        self._passed = -self.clock.monotonic()
        self.schedule = ScheduleModel(self.model, self.topics, lambda: (self.passed(), self.clock.wall()))
        self.queues = QueueModel(self.model, self.schedule)
        self.host = VirtualHost(settings.amqp_host)
        self.random_bytes = Random("the broker's own").randbytes
        self.connections: list[Connection] = []
        self._intents = 0
        self._ports = 0
        self._workers: list[SteppedWorker] = []
        self._highest_lsn = 0
        self.failed = False
        self.identity = ""
        self.starting: list[tuple[str, int]] = []
        """What is to happen to the next starts: ("cut" or "fault", at which change of the disk)."""
        self.deed_weights: list[int] = []
        self.clients = [TransactionalClient(self, number) for number in range(settings.clients)]
        self.member_clients = [
            MemberClient(self, number, group) for number, group in enumerate(settings.members, 20)
        ]
        self.clients += self.member_clients
        self.schedulers = [SchedulingClient(self, number) for number in range(80, 80 + settings.schedulers)]
        self.clients += self.schedulers
        self.outboxes = [Outbox(bytes([number]) * 16) for number in range(2)]
        self.generation = 1
        """Of the table of the outboxes."""
        self.outbox_clients = [OutboxClient(self, number) for number in range(40, 40 + settings.outboxes)]
        self.amqp_clients = [AmqpClient(self, number) for number in range(110, 110 + settings.amqp_clients)]
        self.everybody: list[Client | AmqpClient] = [*self.clients, *self.outbox_clients, *self.amqp_clients]
        self.principals = [
            PrincipalClient(self, number, user) for number, user in enumerate(settings.principals, 60)
        ]
        self.administrators: list[Administrator] = []
        if self.principals:
            self.administrators.append(Administrator(self, 70))
            self.clients = list(self.principals)
            self.everybody = [*self.principals, *self.administrators]

    def passed(self) -> int:
        """How many µs the broker has run in all its lives, each start on another machine included."""
        return self._passed + self.clock.monotonic()

    def set_wall(self, wall: int, running: bool = True) -> None:
        """Set the wall clock, as somebody does while the broker runs, or as if it had been stopped so long."""
        self.schedule.moves_wall()
        if running:
            self.schedule.clock.jumps(wall)
        self.clock.set_wall(wall)

    def streams(self) -> set[bytes]:
        """The streams that the broker knows."""
        return set(self.serving.broker.delivering.fold.streams)

    def add(self, client: TransactionalClient) -> None:
        """One more client."""
        self.clients.append(client)
        self.everybody.append(client)

    def say(self, line: str) -> None:
        """A line for people."""
        if self.trace is not None:
            self.trace.append(line)

    def count(self, what: str) -> None:
        """Count an event."""
        self.counts[what] += 1

    # -- what clients need to know ----------------------------------------------------------------------

    def connect(self, facts: ConnectionFacts | None = None) -> Connection:
        """A new connection to the broker, of which that finds out these facts; None: those of its address."""
        self._ports += 1
        factory = self.serving.factory
        if facts is not None:
            factory = BrokerFactory(self.serving.connections, lambda _: facts, not facts.administrator)
        made = Connection(factory, self._ports, self.reactor.callLater, self.settings.network)
        self.connections.append(made)
        return made

    def connect_amqp(self) -> Connection:
        """A new connection to the listener that speaks AMQP."""
        self._ports += 1
        factory = self.serving.factory_for(is_exposed=False, is_amqp=True)
        made = Connection(factory, self._ports, self.reactor.callLater, self.settings.network)
        self.connections.append(made)
        return made

    @property
    def schedules(self) -> bool:
        """Whether clients schedule messages, so that some come due by themselves."""
        return bool(self.schedulers or self.amqp_clients)

    def name_intent(self) -> int:
        """A number for what somebody wants."""
        self._intents += 1
        return self._intents

    def name_id(self) -> bytes:
        """An id for what a client makes: the same in each run of a history."""
        return self.name_intent().to_bytes(16)

    def partitions(self) -> list[int]:
        """Every partition that anybody has heard of, those that are gone too."""
        return list(self.topics.homes)

    def some_partition(self, random: Random) -> int | None:
        """A partition to write to, seldom one that is gone."""
        known = [
            p for p, topic in self.topics.homes.items() if topic.deleted is None or random.random() < 0.1
        ]
        return random.choice(known) if known else None

    def output_partitions(self) -> list[int]:
        """The partitions that members send to, as far as anybody knows."""
        found = (topic.partitions for topic in self.topics.topics if topic.name == OUTPUT)
        return next((numbers for numbers in found if numbers), [])

    def some_transaction(self, random: Random) -> Begun | None:
        """One of the last that were begun, rather one that is undecided."""
        known: Any = list(self.model.transactions.values())[-12:]
        undecided = [each for each in known if each.state == OPEN and each.asked]
        if undecided and random.random() < 0.7:
            return random.choice(undecided)
        return random.choice(known) if known else None

    def producer_name(self, random: Random) -> str:
        """A name for a producer, or none."""
        return random.choice(("", "", "n", "m"))

    def topic_settings(self, random: Random) -> TopicSettings:
        """Settings for a topic."""
        return drawn.topic(random)

    def messages(self, random: Random) -> tuple[list[bytes], bytes]:
        """Values that nobody ever sends again, and their frames."""
        sizes = SIZES[self.settings.sizes]
        values = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            self._intents += 1
            values.append(b"%d " % self._intents + b"v" * random.choice(sizes))
        if random.random() < 0.1:
            inner = b"".join(frame.encode_inner(place, value, 1) for place, value in enumerate(values))
            return values, frame.encode_wrapper(inner, len(values), 1)
        return values, b"".join(frame.encode(value, 1) for value in values)

    def storage_error(self, error: str, message: str) -> None:
        """Storage failed for a client: right only if a call has failed as planned."""
        allowed = (
            error in ("DiskFull", "MemoryExhausted", "LimitExceeded", "TransactionTooLarge", "PeerViolation")
            or self.plan.struck
        )
        require(allowed or self.reads_fail, "nothing fails by itself", f"{error}: {message}")

    reads_fail = False

    # -- starting ---------------------------------------------------------------------------------------

    def start(self, random: Random) -> None:
        """Recover, through whatever happens to starts, then serve; and see whether all promises are kept."""
        while (engine := self._recover(random)) is None:
            pass
        self.count("starts")
        require(
            engine.last_lsn > self._highest_lsn,
            f"no LSN up to {self._highest_lsn} comes again",
            engine.last_lsn,
        )
        transactions = engine.transactions
        transactions.table.application.small_bytes, transactions.table.application.slice_bytes = (
            self.settings.small_commit,
            self.settings.slice,
        )
        transactions.staging._budget = self.settings.staged
        self.failed = self.plan.struck = False
        self.plan.faults.clear()
        self.plan.cut_in = 0
        if self.settings.cold:
            self.plan.faults.append(Fault(Operation.READ_NOW, error=errno.EAGAIN, times=1 << 30))
        self._workers = []
        self.serving = RunningBroker(
            engine, self.settings.config, self.reactor, self._on_failure, self._make_lane, self.random_bytes
        )
        workers = {worker.name: worker for worker in self._workers}
        self.writer, self.flusher, self.reader = workers["writer"], workers["flusher"], workers["reader"]
        self.scrubber = workers.get("scrubber", self.reader)
        self.engine = engine
        self.serving.start()
        self.say(f"start {engine.start_number}: {engine.report}")
        self.schedule.clock.started()
        audit(self, random)
        self._come_in(random)

    def _come_in(self, random: Random) -> None:
        """Clients connect again, mostly at once; the first one makes a topic if there is none."""
        for client in self.everybody:
            if random.random() < 0.8:
                client.connect(client.former)
        for _ in range(5):
            for connection in self.connections:
                connection.deliver(1 << 30)
            self.reactor.turn()
            for client in self.everybody:
                client.take(1 << 30)
        if not self.topics.homes and self.clients[0].ready and random.random() < 0.9:
            self.clients[0].create_topic(random)
            self.pump()

    def _recover(self, random: Random) -> Engine | None:
        self.plan = Plan(getcurrent(), self.counts)
        self.reactor = Reactor(self.clock)
        what, at = self.starting.pop(0) if self.starting else ("", 0)
        if what == "cut":
            self.plan.cut_in = at
        elif what == "rot":
            rot(self, random)
        elif what == "fault":
            kind = random.choice(
                (Operation.FORCE, Operation.WRITE, Operation.RENAME, Operation.FORCE_DIRECTORY)
            )
            self.plan.faults.append(Fault(kind, nth=1 + at % 4, short=random.choice((None, 512, 5000))))
        try:
            return recover(
                FaultFilesystem(self.disk, self.plan), self.clock, self.settings.config.journal, folds=client_folds(),
                random=self.random_bytes,
            )  # fmt: skip
        except PowerCut as cut:
            self.count("power cuts in a start")
            self.say(f"power cut in a start, {cut}")
            self.schedule.clock.attempted()
            self._power_off(random)
        except (OSError, TxBrokerError) as error:
            require(self.plan.struck, "the start succeeds", f"{type(error).__name__}: {error}")
            self.count("failed starts")
            self.say(f"start failed: {error}")
            self.schedule.clock.attempted()
            self._process_gone()
            self.disk = self.disk.kill_clone(random.choice((None, random.randrange(1 << 30))))
        return None

    def _make_lane(self, name: str, call_from_thread: Any, threads: int = 1) -> SteppedWorker:
        worker = SteppedWorker(name, call_from_thread, threads)
        self._workers.append(worker)
        return worker

    def _on_failure(self, doing: str, error: BaseException) -> None:
        require(self.plan.struck, "the broker works", f"{doing} failed: {error!r}")
        if not self.failed:
            self.failed = True
            self.count("failures that end the process")
            self.say(f"{doing} failed: {error}; the process ends")
            self.serving.connections.abort_all()

    # -- how it ends ------------------------------------------------------------------------------------

    def cut_power(self, random: Random) -> None:
        """Now. What was sent to clients may still reach them."""
        self.count("power cuts")
        self.say(f"power cut {self.plan.cut_at or 'between steps'}")
        self._last_answers(random)
        self._power_off(random)
        self.start(random)

    def kill(self, random: Random) -> None:
        """SIGKILL now; the machine goes on."""
        self.count("kills")
        self.say("the process is gone")
        self._last_answers(random)
        self._process_gone()
        self.disk = self.disk.kill_clone(random.choice((None, random.randrange(1 << 30))))
        self._time_goes_by(random)
        self.start(random)

    def stop(self, random: Random) -> None:
        """As an operator does; and start again."""
        self.count("stops")
        self.say("stop")
        stopped: list[object] = []
        self.serving.stop().addBoth(stopped.append)
        for _ in range(ROUNDS):
            if stopped or self.failed or self.plan.off:
                break
            self.pump_once()
        else:
            raise Violation("expected: the broker stops\nfound:    it does not")
        if self.failed or self.plan.off:
            return
        require(stopped == [None], "the broker stops well", stopped)
        self.serving.end(0)
        self.reactor.turn()  # no more: slices of a commit that nobody will force come again each turn
        self.engine.close()
        self._process_gone()
        self._time_goes_by(random)
        self.start(random)

    def _time_goes_by(self, random: Random) -> None:
        """While nothing runs, if that matters to anybody."""
        if self.schedules:
            self.set_wall(self.clock.wall() + random.choice((0, 0, 1_000_003, 7_200_000_000)), running=False)

    def _last_answers(self, random: Random) -> None:
        for client in self.everybody:
            if client.connection is not None and random.random() < 0.5:
                client.take(random.randint(0, len(client.connection.to_client)))

    def _power_off(self, random: Random) -> None:
        if self.plan.cut_at is not None:
            self.sites[self.plan.cut_at] += 1
        self._process_gone()
        survive = random.choice((None, None, 0.0, 0.5, 1.0))
        self.disk = self.disk.crash_clone(random.randrange(1 << 30), survive)
        passed, wall = self.passed(), self.clock.wall()
        self.schedule.moves_wall()
        self.clock = ManualClock(random.randrange(1 << 40), wall + random.randint(-(10**9), 10**9))
        self._passed = passed - self.clock.monotonic()

    def _process_gone(self) -> None:
        """Every thread and connection of the process ends where it is."""
        self.check_log()
        self._highest_lsn = max(self._highest_lsn, self.engine.last_lsn if self._workers else 0)
        self.plan.off = True
        for worker in self._workers:
            worker.kill()
        self._workers = []
        self.connections.clear()
        for client in self.everybody:
            client.connection = None

    # -- what goes on ---------------------------------------------------------------------------------

    def pump_once(self) -> bool:
        """Everybody does what there is to do, once; says whether there was anything."""
        worked = self.reactor.turn()
        for worker in self._workers:
            worked = worker.step(1 << 30, 0) or worked
            worked = worker.step(1 << 30, 1) or worked
        for connection in list(self.connections):
            worked = connection.deliver(1 << 30) or worked
        for client in self.everybody:
            worked = client.take(1 << 30) or worked
        self.connections = [one for one in self.connections if not one.broker_gone or one.to_client]
        return worked

    def pump(self) -> None:
        """Until nothing is left to do, or the process ends."""
        for _ in range(ROUNDS):
            if self.failed or self.plan.off:
                return
            if not self.pump_once():
                for client in self.everybody:
                    client.check_cancelled()
                self.schedule.at_rest(self.serving.broker.delaying.next_in() is None)
                for speaker in self.amqp_clients:
                    speaker.at_rest()
                return
        raise Violation("expected: the broker comes to rest\nfound:    it does not")

    def watch(self, event: dict[str, Any]) -> None:
        """See every line of the log: one with a traceback tells of a bug, unless a call has failed."""
        if "log_failure" in event and not (self.plan.struck or self.plan.off):
            failure = event["log_failure"]
            raise Violation(f"expected: no bug is logged\nfound:    {failure.getTraceback()}")

    def __enter__(self) -> World:
        self._bugs: list[dict[str, Any]] = []
        globalLogPublisher.addObserver(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self._note)
        for worker in self._workers:
            worker.kill()

    def _note(self, event: dict[str, Any]) -> None:
        if "log_failure" in event:
            self._bugs.append(event)

    def check_log(self) -> None:
        """No bug may have been logged, unless a call has failed."""
        bugs, self._bugs = self._bugs, []
        for event in bugs:
            self.watch(event)
