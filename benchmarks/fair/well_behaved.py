"""The well-behaved clients that ``make bench-fair`` measures: each does one operation, waits for its answer, and
pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fair.greedy_peers import TOPIC
from benchmarks.harness.frames import SINGLE, TIMESTAMP
from benchmarks.harness.peer import Peer
from journal.formats import frame
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.messages import OpenProducer, ProducerOpened, Send, Sent

LARGE: Final = frame.encode(bytes(2_000_000), TIMESTAMP)

Once = Callable[[], None]
"""A client's operation."""


class Client(NamedTuple):
    """A client: ``begin`` makes its operation from a connected peer; it pauses ``pause`` seconds."""

    begin: Callable[[Peer, BrokerProcess, Path | None], Once]
    pause: float


def _sends(place: int, data: bytes) -> Callable[[Peer, BrokerProcess, Path | None], Once]:
    def begin(peer: Peer, _: BrokerProcess, __: Path | None) -> Once:
        partition = peer.partitions(TOPIC)[place].number
        return lambda: _send(peer, partition, data)

    return begin


def _send(peer: Peer, partition: int, data: bytes) -> None:
    peer.ask(Send(1, partition), Sent, data)


def _produces(peer: Peer, broker: BrokerProcess, certificate: Path | None) -> Once:
    partition = peer.partitions(TOPIC)[1].number

    def once() -> None:
        with Peer(broker.port, certificate) as new:
            made = new.ask(OpenProducer(1, ""), ProducerOpened)
            new.ask(Send(1, partition, made.producer_id, made.epoch), Sent, SINGLE)

    return once


SMALL: Final = "a send"
SAME: Final = "a send, same partition"
TWO_MB: Final = "a send of 2 MB"
PRODUCER: Final = "connect, producer, send"

CLIENTS: Final = {
    SMALL: Client(_sends(1, SINGLE), 0.003),
    SAME: Client(_sends(2, SINGLE), 0.003),
    TWO_MB: Client(_sends(1, LARGE), 0.05),
    PRODUCER: Client(_produces, 0.01),
}
"""The clients by their operations."""
