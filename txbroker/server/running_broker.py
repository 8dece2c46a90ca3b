"""A running broker over a recovered engine: its threads, connections and clock, connected with each other.

:mod:`txbroker.server.service` makes one after recovery and ends it; a test may make one without a process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from journal.engine.engine import Engine
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.latencies import INTERVAL
from txbroker.broker.sessions.settings import SECOND
from txbroker.login.facts import ConnectionFacts
from txbroker.login.tokens import TokenIssuer
from txbroker.server.connections import languages
from txbroker.server.connections.connections import Connections
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.connections.peer_facts import exposed_facts_of, facts_of
from txbroker.server.connections.read_limits import Intake
from txbroker.server.connections.send_buffer import SendBuffers
from txbroker.server.endpoints.admin_socket import may_administer
from txbroker.server.notices import Notices
from txbroker.server.periodic_tasks import PeriodicTask, PeriodicTasks
from txbroker.server.settings.config import Config
from txbroker.server.settings.log_names import Level
from txbroker.server.threads.flusher import Flusher
from txbroker.server.threads.force_thread import ForceThread
from txbroker.server.threads.journal_writer import OnFailure, Writer
from txbroker.server.threads.scrubber import Scrubber
from txbroker.server.threads.worker_thread import WorkerThread

PASSWORD_THREADS: Final = 2
"""Threads that judge passwords which clients send as they are: each takes 10 ms and more of a processor."""

MARK_INTERVAL: Final = 0.05
"""Seconds between checks whether the engine is idle; it is marked after twice that."""

FLUSH_INTERVAL: Final = 0.1
SWEEP_INTERVAL: Final = 1.0
WATCH_INTERVAL: Final = 1.0
EXPIRY_INTERVAL: Final = 0.5
RETENTION_INTERVAL: Final = 10.0


class RunningBroker:
    """Everything that serves, from :meth:`start` to :meth:`stop`. ``on_failure`` must end the process.

    ``make_lane`` makes a thread, from a name and the function that calls back on the reactor; a test may run the
    work by hand, and give its own ``random``. The tokens of ``issuers`` let in. ``make_forcing`` makes what forces
    small groups; without it the writer's thread does.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        config: Config,
        reactor: Any,
        on_failure: OnFailure,
        make_lane: Callable[..., WorkerThread] = WorkerThread,
        random: Callable[[int], bytes] = secrets.token_bytes,
        make_forcing: Callable[[Any], ForceThread] | None = None,
        issuers: Sequence[TokenIssuer] = (),
    ) -> None:
        self.engine = engine
        self._reactor = reactor
        self._on_failure = on_failure
        in_reactor = reactor.callFromThread
        self._writing = make_lane("writer", in_reactor)
        self._forcing = None if make_forcing is None else make_forcing(reactor)
        self._flushing = make_lane("flusher", in_reactor)
        self._reading = make_lane("reader", in_reactor, config.service.reader_threads)
        self._judging = make_lane("passwords", in_reactor, PASSWORD_THREADS)
        self.broker = Broker(
            engine, config.broker, self._reading.submit, call_later=reactor.callLater, random=random,
            run_passwords=self._judging.submit, issuers=issuers,
        )  # fmt: skip
        self.broker.on_failure = on_failure
        self.broker.tells_refusals = config.service.log_level is Level.DEBUG
        self.send_buffers = SendBuffers(reactor, config.service.unsent_bytes)
        self.intake = Intake(self.broker.accounts, config.broker.pending_bytes, config.service.assembly_bytes)
        self.connections = Connections(self.broker, self.intake, self.send_buffers, config.service, reactor)
        self.factory = BrokerFactory(self.connections)
        self._speak_amqp = languages.amqp(self.broker, config.service.virtual_hosts)
        self.writer = Writer(
            engine, self._writing, reactor, self._before_publish, self._after_publish, on_failure,
            self.broker.describing.slow_forces, self.broker.latencies.forces.observe, self._forcing,
        )  # fmt: skip
        self.connections.scheduler.on_rest = self.writer.take_now
        self.flusher = Flusher(engine, self._flushing, reactor, on_failure)
        self._scrubbing = make_lane("scrubber", in_reactor)
        service = config.service
        interval = service.scrub_interval / SECOND
        workers: list[WorkerThread | ForceThread] = [
            self._writing, self._flushing, self._reading, self._scrubbing, self._judging
        ]  # fmt: skip
        self._threads = workers if self._forcing is None else [*workers, self._forcing]
        self.scrubber = Scrubber(engine, self._scrubbing, reactor, service.scrub_rate, interval)
        self.broker.scrubbed = self.scrubber.gauges
        self._periodic_tasks = PeriodicTasks(reactor, self._tasks())

    def start(self) -> None:
        """Start the threads and the clock; connections may come."""
        self.engine.on_flush_wanted = self.flusher.want
        for worker in self._threads:
            worker.start()
        self._periodic_tasks.start()
        self.scrubber.start()
        self.writer.wake()
        for passes in self.broker.passes:
            passes.wake()  # what fell due while it was stopped

    def factory_for(self, is_exposed: bool, is_amqp: bool) -> BrokerFactory:
        """Return the factory for an endpoint. One that others can reach lets nobody in without a login."""
        learn = exposed_facts_of if is_exposed else facts_of
        return BrokerFactory(
            self.connections, learn, speak=self._speak_amqp if is_amqp else languages.OwnLanguage
        )

    def admin_factory(self, data: str) -> BrokerFactory:
        """Return the factory for the administrator's socket of a data directory, which knows no limits."""
        learn = partial(_facts_of_administrator, data)
        return BrokerFactory(self.connections, learn, is_limited=False)

    def _before_publish(self) -> None:
        self.send_buffers.hold()
        self.connections.scheduler.hold()

    def _after_publish(self) -> None:
        self.send_buffers.flush()
        self.connections.scheduler.release()
        self.intake.published()

    def _sweep(self) -> None:
        self.connections.sweep()
        self.broker.entrance.look(self.engine.now())
        self.intake.published()  # what waited for memory may have been refused, which publishes nothing

    def _tasks(self) -> list[PeriodicTask]:
        engine, broker = self.engine, self.broker
        return [
            PeriodicTask(
                "marking an idle journal", MARK_INTERVAL, self._unless_busy(engine.housekeeping.mark_if_idle)
            ),
            PeriodicTask("measuring requests", INTERVAL, broker.latencies.go_on),
            PeriodicTask("watching forces", WATCH_INTERVAL, broker.describing.slow_forces.look),
            PeriodicTask("watching disk and clock", WATCH_INTERVAL, Notices(engine).look),
            PeriodicTask("flushing", FLUSH_INTERVAL, self.flusher.look),
            PeriodicTask("looking after connections", SWEEP_INTERVAL, self._sweep),
            PeriodicTask(
                "expiring transactions", EXPIRY_INTERVAL, self._unless_busy(broker.expire_transactions)
            ),
            PeriodicTask(
                "moving dead letters",
                EXPIRY_INTERVAL,
                self._unless_busy(lambda _: broker.dead_letters.try_again()),
            ),
            PeriodicTask(
                "expiring producers", EXPIRY_INTERVAL * 20, self._unless_busy(broker.sending.room.expire)
            ),
            PeriodicTask("expiring queues", EXPIRY_INTERVAL, self._unless_busy(broker.queues.expire)),
            PeriodicTask("expiring groups", EXPIRY_INTERVAL * 2, self._unless_busy(broker.idle_groups.look)),
            PeriodicTask(
                "watching what is prepared", EXPIRY_INTERVAL * 2, self._unless_busy(broker.quotas.look)
            ),
            PeriodicTask("retention", RETENTION_INTERVAL, self._unless_busy(self._retain)),
        ]

    def _retain(self, now: int) -> None:
        self.engine.housekeeping.retain(now)
        self.broker.scheduling.schedule.retain()
        self.broker.queues.retain()

    def _unless_busy(self, action: Callable[[int], object]) -> Callable[[], None]:
        """Wrap an action so that it makes no decision while a large commit is being applied, nor after a failure."""

        def act() -> None:
            if not self.engine.busy and not self.engine.failed:
                try:
                    action(self.engine.now())
                except Exception as error:
                    self._end_if_failed(error)
                    raise

        return act

    def _end_if_failed(self, error: Exception) -> None:
        if self.engine.failed:
            self._on_failure("a periodic task", error)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Answer what has been read, close the connections, mark, checkpoint. Nothing is served any more."""
        self.scrubber.stop()
        for passes in self.broker.passes:
            passes.stop()
        self.connections.stop_reading("it is stopping")
        self.broker.answer_waiting()
        yield self.writer.drained()
        yield self._closed()
        self._periodic_tasks.stop()
        # Sessions that ended have rolled their active transactions back: that must be forced too.
        yield self.writer.drained()
        self.engine.mark()
        yield self.writer.drained()
        self.engine.housekeeping.compactor.stop()
        self.engine.housekeeping.request_checkpoint()
        yield self.flusher.idle()

    def _closed(self) -> Deferred[None]:
        closed: Deferred[None] = Deferred()
        self.connections.close_all(lambda: closed.callback(None))
        return closed

    def end(self, patience: float) -> None:
        """End the clock and the threads, whatever they are doing, and drop every connection."""
        self._periodic_tasks.stop()
        for passes in self.broker.passes:
            passes.stop()
        self.scrubber.stop()
        self.connections.abort_all()
        for worker in self._threads:
            if not worker.stop(patience):
                self.log.warn(
                    "a thread is still at work after {seconds:g} s: {worker}", seconds=patience, worker=worker
                )


def _facts_of_administrator(data: str, transport: Any) -> ConnectionFacts:
    return facts_of(transport, administrator=may_administer(transport, data))
