"""What RabbitMQ's management API says of queues, for programs that watch them by it: Flower, KEDA.

``GET /api/overview``, ``/api/queues``, ``/api/queues/{vhost}`` and ``/api/queues/{vhost}/{name}``, with the fields that
these read; the names are RabbitMQ's (https://www.rabbitmq.com/docs/http-api-reference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from journal.folds.queues import DeclaredQueue
from txbroker.channels.inequivalence import told_arguments
from txbroker.channels.server_properties import RABBITMQ_VERSION
from txbroker.channels.virtual_hosts import ROOT, ROOT_NAME, VirtualHost
from txbroker.queues.kept_arguments import queue_type
from txbroker.wire.messages import QueueInfo

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker

INTERVAL: Final = 5.0
"""Seconds over which rates are taken, at least: between two looks that lie so far apart."""
AT_ONCE: Final = 32
"""Queues that are summed up in one turn of the reactor: 0.5 ms."""
Figure = TypeVar("Figure", int, float)
_encode: Final = msgspec.json.encode


class _Look:
    """What was seen of a queue: ``published`` messages and ``settled`` ones in all, and the rates since the last
    look.
    """

    __slots__ = ("at", "publish_rate", "published", "settle_rate", "settled")

    def __init__(self, at: float, published: int, settled: int) -> None:
        self.at, self.published, self.settled = at, published, settled
        self.publish_rate = self.settle_rate = 0.0

    def figures(self) -> dict[str, float]:
        """Return what it says, in figures that can be added up with those of others."""
        return {
            "publish": self.published, "ack": self.settled,
            "publish_rate": self.publish_rate, "ack_rate": self.settle_rate,
        }  # fmt: skip


class Management:
    """Makes the answers. ``broker()`` is None before it serves; ``seconds()`` is the reactor's time."""

    def __init__(
        self, broker: Callable[[], Broker | None], seconds: Callable[[], float], hosts: Iterable[str] = ()
    ) -> None:
        """``hosts`` are virtual hosts beside the one that is always there."""
        self._broker, self._seconds = broker, seconds
        self._hosts = {each: VirtualHost(each) for each in (ROOT_NAME, *hosts)}
        self._looks: dict[int, _Look] = {}

    def answer(self, path: Sequence[str]) -> tuple[int, Iterator[str]]:
        """Return the status and the pieces of the answer for the parts of a path behind ``/api``."""
        broker = self._broker()
        if broker is None:
            return 503, _one({"error": "Service Unavailable", "reason": "the broker recovers"})
        match path:
            case ["overview"]:
                return 200, self._overview(broker)
            case ["queues"]:
                return 200, self._queues(broker)
            case ["queues", "", ""] | ["queues", ""]:
                return 200, self._queues(broker, ROOT_NAME)
            case ["queues", host] if host in self._hosts:
                return 200, self._queues(broker, host)
            case ["queues", host, name] if host in self._hosts:
                found = broker.queues.listing.known(self._hosts[host].inside(name))
                if found is not None and self._host_of(found.name).name == host:
                    return 200, _one(self._queue(broker, found))
        return 404, _one({"error": "Object Not Found", "reason": "Not Found"})

    def _overview(self, broker: Broker) -> Iterator[str]:
        """Yield the figures of all queues together, behind empty pieces: they are summed up in turns."""
        self._forget(broker)
        listing, consumers = broker.queues.listing, broker.queues.takes.consumers
        totals = dict.fromkeys(("messages", "messages_ready", "messages_unacknowledged"), 0)
        stats = dict.fromkeys(("publish", "publish_rate", "ack", "ack_rate"), 0.0)
        for number, name in enumerate(listing.names(), 1):
            if (queue := listing.known(name)) is not None:  # else it was deleted meanwhile
                info = listing.info(queue)
                _add(totals, _counts(info))
                _add(stats, self._look(info, listing.published(queue)).figures())
            if not number % AT_ONCE:
                yield ""
        gauges = broker.queues.gauges()
        yield _text(
            {
                "product_name": "RabbitMQ",
                "rabbitmq_version": RABBITMQ_VERSION,
                "management_version": RABBITMQ_VERSION,
                "object_totals": {
                    "queues": gauges["queues"],
                    "exchanges": gauges["exchanges"],
                    "connections": len(broker.sessions),
                    "consumers": consumers.count_all(),
                },
                "queue_totals": totals,
                "message_stats": _stats(stats),
            }
        )

    def _host_of(self, queue: str) -> VirtualHost:
        host, _, rest = queue.partition("/")
        return self._hosts[host] if rest and host in self._hosts else ROOT

    def _queues(self, broker: Broker, host: str | None = None) -> Iterator[str]:
        """Yield the list of all queues, or those of a host, a queue at a time: there may be thousands."""
        self._forget(broker)
        before = "["
        for name in sorted(broker.queues.listing.names()):
            found = broker.queues.listing.known(name)
            if found is not None and host in (
                None,
                self._host_of(name).name,
            ):  # else it was deleted meanwhile
                yield before + _text(self._queue(broker, found))
                before = ","
        yield "]" if before == "," else "[]"

    def _forget(self, broker: Broker) -> None:
        for partition in self._looks.keys() - broker.queues.listing.partitions():
            del self._looks[partition]

    def _queue(self, broker: Broker, queue: DeclaredQueue) -> dict[str, Any]:
        info, settings = broker.queues.listing.info(queue), queue.settings
        look, host = self._look(info, broker.queues.listing.published(queue)), self._host_of(info.name)
        return {
            "name": host.outside(info.name),
            "vhost": host.name,
            "type": queue_type(settings),
            "state": "running",
            "durable": settings.durable,
            "auto_delete": settings.auto_delete,
            "exclusive": settings.exclusive,
            "consumers": info.consumers,
            **_counts(info),
            "message_bytes": info.bytes,
            **({} if info.ready_bytes is None else {"message_bytes_ready": info.ready_bytes}),
            "arguments": told_arguments(settings, host),
            "message_stats": _stats(look.figures()),
        }

    def _look(self, info: QueueInfo, published: int) -> _Look:
        """Return what is seen of a queue, with its rates since the last look that is long enough ago."""
        now, settled = self._seconds(), published - info.messages
        last = self._looks.get(info.partition)
        if last is not None and now - last.at < INTERVAL:
            return last
        look = self._looks[info.partition] = _Look(now, published, settled)
        if last is not None:
            look.publish_rate = (look.published - last.published) / (now - last.at)
            look.settle_rate = (settled - last.settled) / (now - last.at)
        return look


def _counts(info: QueueInfo) -> dict[str, int]:
    return {
        "messages": info.messages,
        "messages_ready": info.ready,
        "messages_unacknowledged": info.unacknowledged,
    }


def _add(sums: dict[str, Figure], figures: Mapping[str, Figure]) -> None:
    for name, figure in figures.items():
        sums[name] += figure


def _stats(figures: Mapping[str, float]) -> dict[str, Any]:
    return {
        "publish": int(figures["publish"]),
        "publish_details": {"rate": figures["publish_rate"]},
        "ack": int(figures["ack"]),
        "ack_details": {"rate": figures["ack_rate"]},
    }


def _text(answer: Any) -> str:
    return _encode(answer).decode()


def _one(answer: Any) -> Iterator[str]:
    yield _text(answer)
