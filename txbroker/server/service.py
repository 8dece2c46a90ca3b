"""The process: it locks and recovers the directory, then listens, and leaves a clean start behind when it is
stopped.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, cast

from twisted.application.service import Service
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredList,
    DeferredLock,
    TimeoutError,
    inlineCallbacks,
    maybeDeferred,
)
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IProtocolFactory
from twisted.logger import ILogObserver, Logger, LogLevel
from twisted.python.failure import Failure

from journal.engine.engine import Engine
from journal.errors import InvalidSetting, TxBrokerError, UnknownFormat
from journal.folds.table import client_folds
from journal.formats import filenames
from journal.formats.version import FORMAT, PROGRAM
from journal.recovery.start import recover
from journal.vfs.c_library import keep_freed_memory
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from journal.vfs.linux import resource
from txbroker.broker.sessions.settings import SECOND
from txbroker.login.tokens import TokenIssuer
from txbroker.monitoring.health import Phase
from txbroker.server import log_output
from txbroker.server.broker_audit import BrokerAudit
from txbroker.server.connections.refused_connections import MAX_REFUSED
from txbroker.server.connections.strangers import MAX_STRANGERS
from txbroker.server.endpoints import listening
from txbroker.server.endpoints.admin_socket import AdminSocket
from txbroker.server.endpoints.certificates import LOOK_INTERVAL, KnownCertificates
from txbroker.server.endpoints.proxied_connections import ProxyFactory
from txbroker.server.endpoints.tls_endpoint import TlsServerEndpoint
from txbroker.server.periodic_tasks import PeriodicTask, PeriodicTasks
from txbroker.server.running_broker import RunningBroker
from txbroker.server.settings import token_issuers
from txbroker.server.settings.config import Config
from txbroker.server.settings.proxies import Proxies
from txbroker.server.start_failures import in_folder, unopened
from txbroker.server.systemd import Systemd
from txbroker.server.threads.force_thread import ForceThread
from txbroker.server.threads.worker_thread import WorkerThread
from txbroker.server.watching import Watching

PROGRESS_INTERVAL: Final = 2.0
"""Seconds between two lines of the log about a recovery."""

JOIN_PATIENCE: Final = 2.0
"""Seconds that each thread gets for ending its work when the process stops."""

SPARE_DESCRIPTORS: Final = 128 + MAX_REFUSED
"""File descriptors for the journal, for refused connections and others, beside the open segments."""

LEAST_CONNECTIONS: Final = 16

FULL_COLLECTIONS_EVERY: Final = 100
"""Collections of the middle generation between two full collections; Python's own number is 10."""


class Stopped(Exception):
    """Recovery was stopped; it can be begun again at any time."""


class TxBrokerService(Service):
    """A broker over one data directory.

    ``end_process`` is called without arguments after a reason to end has been logged: the directory cannot be recovered
    or an endpoint listened on, or a write has failed. It must stop the reactor and set the exit status.
    """

    log = Logger()

    def __init__(self, config: Config, reactor: Any, end_process: Callable[[], None]) -> None:
        self.config = config
        self.serving: RunningBroker | None = None
        self.ports: dict[str, Any] = {}
        """The open ports, by the descriptions of their endpoints."""
        self._admin_socket = AdminSocket(reactor, config.service.data)
        self.audit = BrokerAudit(config.service.audit, reactor)
        self.certificates = KnownCertificates()
        self.watching = Watching(config.service, reactor, self.certificates, self.audit)
        self.systemd = Systemd(reactor, self.watching.health, config.service.stop_timeout / SECOND)
        self._reactor = reactor
        self._end_process = end_process
        self._recovering: Deferred[None] | None = None
        self._finishing: Deferred[Any] | None = None
        self._stopping = self._failed = False
        self._switching = DeferredLock()
        self._issuers: list[TokenIssuer] = []
        self._proxies = Proxies(config.service.proxies)
        self._open_ones: dict[str, str] = {}
        self._said_at = 0.0
        self._log_file: log_output.KeptFiles | None = None
        looking = PeriodicTask("looking for renewed certificates", LOOK_INTERVAL, self.certificates.look)
        self._looking = PeriodicTasks(reactor, [looking])

    def setServiceParent(self, parent: Any) -> None:
        """Join twistd's application, and say where it logs, if the settings do."""
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]
        settings = self.config.service
        if hasattr(parent, "setComponent") and log_output.is_set(settings):
            try:
                self._log_file = log_output.files_of(settings)
                parent.setComponent(ILogObserver, log_output.observer_of(settings, self._log_file))
            except InvalidSetting as error:
                raise SystemExit(f"txbroker: {error}") from error  # twistd would show a traceback

    # -- starting --------------------------------------------------------------------------------------

    def startService(self) -> None:
        """Begin: recovery runs on a thread, and the service listens only after it is done. Who watches it may come
        before.
        """
        super().startService()  # type: ignore[no-untyped-call]
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        self.systemd.start()
        try:
            # Before recovery, which may take minutes. And before they listen: the descriptor of a socket that was
            # handed over is closed then.
            self._open_ones = listening.open_ones(
                self._reactor, self.config.service.endpoints, self.certificates, proxies=self._proxies
            )
        except InvalidSetting as error:
            self._end("an endpoint cannot be used", error)
            return
        try:
            self._issuers = token_issuers.load(self.config.service.token_issuers)
        except InvalidSetting as error:
            self._end("a token's issuer cannot be used", error)
            return
        try:
            self.audit.open()
        except InvalidSetting as error:
            self._end("the audit cannot be written", error)
            return
        self._looking.start()
        self.watching.start().addCallbacks(lambda _: self._recover(), self._not_watching)

    def _not_watching(self, failure: Failure) -> None:
        error = cast(BaseException, failure.value)
        notes = getattr(error, "__notes__", [])
        what = (
            f"{notes[-1]} cannot be listened to"
            if notes
            else "the listener for health and metrics cannot be opened"
        )
        self._end(f"{what}{in_folder(error)}", error)

    def _recover(self) -> None:
        if self._stopping:
            return
        self.log.info("recovering {data}", data=self.config.service.data)
        self._recovering = Deferred()
        self._said_at = time.monotonic()
        worker = WorkerThread("recovery", self._reactor.callFromThread)
        worker.submit(self._recover_in_thread, self._recovered, self._refused)
        worker.start()

    def _recover_in_thread(self) -> Engine:
        filesystem = OSFilesystem(self.config.service.data)
        engine = recover(
            filesystem, SystemClock(), self.config.journal, folds=client_folds(), progress=self._progress,
            observers=self.audit.observers(),
        )  # fmt: skip
        self.audit.recovered()
        return engine

    def _progress(self, *what: object) -> None:
        """Report progress; called on recovery's thread, often."""
        if self._stopping:
            raise Stopped
        now = time.monotonic()
        if now - self._said_at >= PROGRESS_INTERVAL:
            self._said_at = now
            self._reactor.callFromThread(self._say_progress, " ".join(map(str, what)))

    def _say_progress(self, what: str) -> None:
        self.log.info("recovering: {what}", what=what)
        if not self._stopping:
            self.watching.health.is_now(Phase.RECOVERING, what)

    def _refused(self, error: BaseException) -> None:
        if not isinstance(error, Stopped):
            data = self.config.service.data
            self._end(unopened(data) if isinstance(error, OSError) else f"{data} cannot be opened", error)
        self._recovery_is_over()

    def _recovered(self, engine: Engine) -> None:
        if self._stopping:
            self.audit.stop(JOIN_PATIENCE)
            engine.close()
        else:
            self._serve(engine)
        self._recovery_is_over()

    def _recovery_is_over(self) -> None:
        over, self._recovering = self._recovering, None
        if over is not None:
            over.callback(None)

    def _serve(self, engine: Engine) -> None:
        tune(self.config.service.switch_interval / SECOND)
        self.serving = RunningBroker(
            engine, self.config, self._reactor, self.failed, make_forcing=ForceThread, issuers=self._issuers
        )
        self.serving.connections.max_connections = self._connections_allowed()
        self.audit.serve(engine, self.serving.broker)
        self.serving.start()
        self.watching.serving = self.serving
        self._listen().addErrback(self._not_listening)

    def _not_listening(self, failure: Failure) -> None:
        self._end("starting failed", cast(BaseException, failure.value))

    @inlineCallbacks
    def _listen(self) -> Generator[Deferred[Any], Any, None]:
        assert self.serving is not None
        self.serving.broker.access_admin.on_switched = self._switched
        try:
            self._admin_socket.listen(self.serving.admin_factory(self.config.service.data))
        except Exception as error:  # noqa: BLE001  (as below)
            self._end(f"{filenames.ADMIN_SOCKET} in the directory of the data cannot be listened to", error)
            return
        yield self._switching.run(self._open_ports, is_start=True)
        if not self._is_ending:
            self._say_ready(self.serving.engine)

    @inlineCallbacks
    def _open_ports(self, is_start: bool = False) -> Generator[Deferred[Any], Any, None]:
        """Listen to the endpoints that may be: to those that others can reach only if they have to log in."""
        for description in self.config.service.endpoints:
            if description in self.ports or (description in self._open_ones and not self._may_be_open()):
                continue
            assert self.serving is not None
            try:
                endpoint = listening.endpoint_of(self._reactor, description, self.certificates)
                proxied = partial(self._proxied, tells=not isinstance(endpoint, TlsServerEndpoint))
                must_log_in = description in self._open_ones and not self.config.service.insecure_open
                is_amqp = description in self.config.service.listen_amqp
                factory = self.serving.factory_for(must_log_in, is_amqp)
                port = yield listening.listen(endpoint, factory, proxied)
            except Exception as error:  # noqa: BLE001  (whatever an endpoint's plugin raises)
                if not is_start:
                    self.log.failure(
                        "{endpoint} cannot be listened to; start again for it", endpoint=description
                    )
                    continue
                self._end(f"{description} cannot be listened to{in_folder(error)}", error)
                return
            self.ports[description] = port

    def _proxied(self, factory: IProtocolFactory, tells: bool) -> IProtocolFactory:
        assert self.serving is not None
        return (
            ProxyFactory(factory, self._proxies, self.serving.connections, tells)
            if self._proxies
            else factory
        )

    def _may_be_open(self) -> bool:
        assert self.serving is not None
        access = self.serving.broker.access
        return access.is_on or (self.config.service.insecure_open and not access.demands_login)

    def _switched(self) -> None:
        """Open the endpoints that others can reach, or close them: whether one has to log in has changed."""
        self._switching.run(self._switch)

    @inlineCallbacks
    def _switch(self) -> Generator[Deferred[Any], Any, None]:
        if self._is_ending:
            return
        if self._may_be_open():
            yield self._open_ports()
        else:
            for description in self._open_ones:
                port = self.ports.pop(description, None)
                if port is not None:
                    yield maybeDeferred(port.stopListening)
        if not self._is_ending:
            self._say_listening()

    @property
    def _is_ending(self) -> bool:
        return self._stopping or self._failed

    def _say_ready(self, engine: Engine) -> None:
        for note in getattr(engine.report, "notes", ()):
            self.log.warn("recovery: {note}", note=note)
        self._say_listening()
        if self.serving is not None:
            self.serving.broker.transacting.say_contradicted()
        addresses = ",".join(
            listening.address(description.partition(":")[0], port) for description, port in self.ports.items()
        )
        self.log.info(
            "txbroker ready version={version} format={data_format} listening={listening} start={start} {report}",
            version=PROGRAM, data_format=FORMAT, listening=addresses, start=engine.start_number, report=engine.report,
        )  # fmt: skip

    def _say_listening(self) -> None:
        """Log who can come in without a login, and what is not listened to therefore; say whether clients may come."""
        assert self.serving is not None
        if self.ports:
            self.watching.health.is_now(Phase.SERVING)
        else:
            self.watching.health.is_now(Phase.WAITING, "no endpoint is open until 'txbroker access enable'")
        access = self.serving.broker.access
        if not access.is_confirmed:
            self.log.warn(
                "the directory was repaired, and users, rules or whether one has to log in may be old: nobody is let "
                "in but over {socket} until 'txbroker access confirm'",
                socket=f"unix:{self.config.service.data}/{filenames.ADMIN_SOCKET}",
            )  # fmt: skip
        if access.demands_login:
            return
        for description, sentence in self._open_ones.items():
            if description in self.ports:
                self.log.warn(
                    "{sentence}, and there is no login: whoever connects can read, write and decide transactions "
                    "(insecure_open)",
                    sentence=sentence,
                )
            else:
                self.log.warn(
                    "{sentence}, and there is no login yet: nobody listens there until 'txbroker access enable'. Make "
                    "the first user over {socket} (txbroker users add --help), or say insecure_open",
                    sentence=sentence, socket=f"unix:{self.config.service.data}/{filenames.ADMIN_SOCKET}",
                )  # fmt: skip

    def _connections_allowed(self) -> int:
        """Return how many connections there can be without taking the file descriptors of journal and segments."""
        limit = self.config.broker.max_sessions + MAX_STRANGERS
        reserved = self.config.journal.open_files + SPARE_DESCRIPTORS
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = limit + reserved
        if soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            limit = max(soft - reserved, LEAST_CONNECTIONS)
            self.log.info(
                "the system allows {files} open files, so there can be {limit} connections at most",
                files=soft, limit=limit,
            )  # fmt: skip
        return limit

    # -- renewing --------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Take what may have been renewed: certificates, keys of tokens' issuers, the token of HTTP, and the log file,
        if it was moved away.

        Nothing else is read again. Connections that there are go on, and so does a recovery.
        """
        with self.systemd.reloading():
            self._renew()

    def _renew(self) -> None:
        if self._log_file is not None:
            try:
                self._log_file.reopen()
            except OSError as error:
                self.log.error(
                    "log_file {path} cannot be opened again: {error}; the log goes on in the file that was open",
                    path=self.config.service.log_file, error=error,
                )  # fmt: skip
        self.audit.reopen()
        self.certificates.reload()
        self.watching.reload()
        self._reload_issuers()

    def _reload_issuers(self) -> None:
        try:
            self._issuers = token_issuers.load(self.config.service.token_issuers)
        except InvalidSetting as error:
            self.log.error("{error}; the keys that were read before stay in use", error=str(error))
            return
        if self.serving is not None:
            self.serving.broker.entrance.logins.trust(self._issuers)

    # -- failing ---------------------------------------------------------------------------------------

    def failed(self, doing: str, error: BaseException) -> None:
        """Drop every connection unanswered, and end the process: storage cannot be trusted any more.

        A peer that waits for an answer gets none, because the outcome is not known before recovery.
        """
        self._end(f"{doing} failed; acknowledged messages are safe, the next start recovers them", error)

    def _end(self, what: str, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        # The wrong version was started: supervisors show this, while the log scrolls away with each further try.
        said = f"{what}: {error}" if isinstance(error, UnknownFormat) else what
        self.watching.health.is_now(Phase.FAILED, said)
        if isinstance(error, TxBrokerError | OSError | CannotListenError):
            self.log.critical("{what}: {error}", what=what, error=f"{type(error).__name__}: {error}")
        else:
            self.log.failure("{what}", Failure(error), LogLevel.critical, what=what)
        if self._finishing is not None:
            self._finishing.cancel()
        if self.serving is not None:
            self.serving.connections.abort_all()
        self._end_process()

    # -- stopping --------------------------------------------------------------------------------------

    @inlineCallbacks
    def stopService(self) -> Generator[Deferred[Any], Any, None]:
        """Stop listening, answer requests in flight, checkpoint, and release the directory."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True
        self._looking.stop()
        self.watching.health.is_now(Phase.STOPPING)
        begun = time.monotonic()
        if self._recovering is not None:
            yield self._recovering
        ports, self.ports = list(self.ports.values()), {}
        stops = [self._admin_socket.stop, *(port.stopListening for port in ports)]
        yield DeferredList([maybeDeferred(stop) for stop in stops], consumeErrors=True)
        serving, self.serving = self.serving, None
        if serving is not None:
            if not self._failed:
                yield self._stop_serving(serving)
            serving.end(JOIN_PATIENCE)
            self.audit.stop(JOIN_PATIENCE)
            self.watching.serving = None
            serving.engine.close()
        yield self.watching.stop()
        self.systemd.stop()
        if serving is not None and not self._failed:
            self.log.info("txbroker stopped after {seconds:.2f} s", seconds=time.monotonic() - begun)

    @inlineCallbacks
    def _stop_serving(self, serving: RunningBroker) -> Generator[Deferred[Any], Any, None]:
        seconds = self.config.service.stop_timeout / SECOND
        self._finishing = serving.stop()
        try:
            yield self._finishing.addTimeout(seconds, self._reactor)
        except CancelledError:
            return
        except TimeoutError:
            self.log.warn(
                "not all could be finished within {seconds:g} s (stop_timeout); the next start recovers it",
                seconds=seconds,
            )


def tune(switch_interval: float) -> None:
    """Set the interpreter's settings for a process that serves."""
    # 100 groups written and forced beside a busy thread: 1,532 ms at Python's 5 ms, 128 ms at 0.2 ms, 322 ms
    # at 0.05 ms (two cores under load).
    sys.setswitchinterval(switch_interval)
    keep_freed_memory()
    # Loaded objects stay: a full collection takes 39 ms with them and nothing without.
    gc.collect()
    gc.freeze()
    # Sends to 10,000 partitions: 35 full collections in 30 s, 46 ms each, for 32 objects; with 100 there are five.
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTIONS_EVERY)
