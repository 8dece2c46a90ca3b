"""The listener for health and metrics, from before recovery until the process ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, maybeDeferred
from twisted.logger import Logger

from txbroker.broker.broker import Broker
from txbroker.errors import InvalidSetting
from txbroker.monitoring import audit_metrics, broker_metrics, certificate_metrics, process_metrics
from txbroker.monitoring.exposition import COUNTER, Metric
from txbroker.monitoring.health import Health
from txbroker.monitoring.management import Management
from txbroker.monitoring.site import Listener, Pages
from txbroker.secret_modes import excess
from txbroker.server.broker_audit import BrokerAudit
from txbroker.server.endpoints import listening
from txbroker.server.endpoints.certificates import KnownCertificates
from txbroker.server.running_broker import RunningBroker
from txbroker.server.settings.config import ServiceSettings

MAX_TOKEN: Final = 4096

OF_CONNECTIONS: Final[dict[Metric, Callable[[RunningBroker], float]]] = {
    Metric("txbroker_sessions_in_line", "Sessions that wait for their turn."): (
        lambda serving: serving.connections.scheduler.waiting
    ),
    Metric("txbroker_strangers", "Connections whose clients have not logged in yet."): (
        lambda serving: len(serving.connections.strangers)
    ),
    Metric("txbroker_held_bytes", "Requests and answers that wait for a force (pending_bytes)."): (
        lambda serving: serving.broker.accounts.held
    ),
    Metric("txbroker_assembled_bytes", "Parts of messages that have arrived (assembly_bytes)."): (
        lambda serving: serving.intake.assembled
    ),
    Metric("txbroker_unsent_bytes", "Answers that peers have not read (unsent_bytes)."): (
        lambda serving: serving.send_buffers.unsent
    ),
    Metric(
        "txbroker_refused_connections_total", "Connections refused because there were too many.", COUNTER
    ): (lambda serving: serving.connections.refused_ever),
}


class Watching:
    """Health and metrics of a process, and the listener that shows them."""

    log = Logger()

    def __init__(
        self, settings: ServiceSettings, reactor: Any, certificates: KnownCertificates, audit: BrokerAudit
    ) -> None:
        self.health = Health()
        self.serving: RunningBroker | None = None
        """What serves clients, once there is one."""
        self.ports: list[Any] = []
        self._settings = settings
        self._reactor = reactor
        self._certificates = certificates
        self._audit = audit
        self._pages: Pages | None = None
        self._listeners: list[Listener] = []

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """Listen to all endpoints. Raises what an endpoint does, with its description in a note."""
        settings = self._settings
        if not settings.http:
            return
        token = read_token(settings.http_token_file)
        management = Management(self._served_broker, self._reactor.seconds, settings.virtual_hosts)
        self._pages = Pages(self.health, self._families, management, self._reactor, token)
        for description in settings.http:
            listener = Listener(self._pages, self._reactor)
            self._listeners.append(listener)
            try:
                endpoint = listening.endpoint_of(self._reactor, description, self._certificates)
                port = yield endpoint.listen(listener)
            except Exception as error:
                error.add_note(description)
                raise
            self.ports.append(port)
            address = listening.address(description.partition(":")[0], port)
            self.log.info("health and metrics at {address}", address=address)

    def reload(self) -> None:
        """Read the token again; one that cannot be used changes nothing."""
        if self._pages is not None and self._settings.http_token_file:
            try:
                self._pages.token = read_token(self._settings.http_token_file)
            except InvalidSetting as error:
                self.log.error("{error}; the old token stays in use", error=str(error))

    def stop(self) -> Deferred[Any]:
        """Close it, with its connections."""
        ports, self.ports = self.ports, []
        for listener in self._listeners:
            listener.close()
        return DeferredList([maybeDeferred(port.stopListening) for port in ports], consumeErrors=True)

    def _served_broker(self) -> Broker | None:
        return None if self.serving is None else self.serving.broker

    def _families(self) -> Iterator[str]:
        yield broker_metrics.READY.only(self.health.is_ready)
        yield from process_metrics.families()
        yield from certificate_metrics.families(self._certificates.not_after(), self._certificates.has_failed)
        yield from audit_metrics.families(self._audit.has_failed, self._audit.lines_lost)
        serving = self.serving
        if serving is not None:
            others = {metric: value(serving) for metric, value in OF_CONNECTIONS.items()}
            yield from broker_metrics.families(serving.broker, others, self._settings.metrics_series)


def read_token(path: str) -> bytes:
    """Return the token in a file, b"" for no file. Raises InvalidSetting, which does not repeat it.

    A file that others may read is refused, as those of passwords are.
    """
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            if why := excess(os.fstat(file.fileno())):
                raise InvalidSetting(f"http_token_file {path} {why}")
            token = file.read(MAX_TOKEN + 1).strip()
    except OSError as error:
        raise InvalidSetting(f"http_token_file {path} cannot be read: {error.strerror}") from error
    if not token or len(token) > MAX_TOKEN or not all(0x21 <= byte <= 0x7E for byte in token):
        raise InvalidSetting(
            f"http_token_file {path} must hold one token of at most {MAX_TOKEN} visible ASCII characters, as of "
            "'openssl rand -hex 32'"
        )
    return token


def check(settings: ServiceSettings, reactor: Any, known: KnownCertificates | None = None) -> None:
    """Raise InvalidSetting if metrics could be read by whom nobody meant to."""
    has_token = bool(read_token(settings.http_token_file))
    found = listening.open_ones(reactor, settings.http, known, but_proven=True)
    if found and not has_token and not settings.insecure_open:
        raise InvalidSetting(
            f"{next(iter(found.values()))}, who could read all metrics. Nothing was started. Listen on the loopback "
            "interface, or say "
            "http_token_file with a file that holds the bearer token of those who may, or let only those in who have a "
            "certificate: a tls endpoint with clients=required"
        )
