"""Greedy workers send requests that depend on answers, or slowly: a thread each, restarted when the broker disconnects
it.

See :mod:`benchmarks.fair.greedy_peers` for peers that send the same again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from crc32c import crc32c

from benchmarks.harness.frames import TIMESTAMP, TINY
from benchmarks.harness.peer import Peer, UnexpectedAnswer, expected, received
from journal.constants import MAX_REQUEST_MESSAGES, MIB
from journal.formats import frame
from journal.transaction_states import Totals
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    Add,
    AnyAnswer,
    Commit,
    Committed,
    OpenProducer,
    ProducerOpened,
    Refused,
    Request,
    Send,
)

WIDE: Final = "fair-wide"
"""The partitions of the topic to which producers write, each as a pair with a producer."""
PARTITIONS: Final = 500
PRODUCERS: Final = 100
"""The producers that one client may have."""
KIB_FRAME: Final = frame.encode(bytes(1024 - frame.HEADER_BYTES), TIMESTAMP)
DRIP: Final = 0.5
"""Seconds between two bytes."""

Worker = Callable[[int, int, Path | None], None]
"""The work of a peer on a connection until that ends: port, the partition to write to, certificate."""


def drips(port: int, spare: int, certificate: Path | None) -> None:
    """Send 14 MiB of a message of 15 MiB, then a byte now and then."""
    whole = encode(Send(2, spare), bytes(15 * MIB))
    with Peer(port, certificate) as peer:
        peer.socket.sendall(whole[: 14 * MIB])
        for place in range(14 * MIB, len(whole)):
            time.sleep(DRIP)
            peer.socket.sendall(whole[place : place + 1])


def commits(size: int, one: bytes, count: int, port: int, spare: int, certificate: Path | None) -> None:
    """Commit transactions of ``size`` bytes, one after the other, with adds of ``count`` frames ``one``."""
    frames = one * count
    requests = size // len(frames)
    checksum = 0
    for _ in range(requests):
        checksum = crc32c(frames, checksum)
    totals = Totals(count * requests, requests, checksum)
    serial = 0
    with Peer(port, certificate) as peer:
        while True:
            serial += 1
            for _ in range(requests):
                peer.socket.sendall(encode(Add(1, serial, spare), frames))
            peer.ask(Commit(2, 0, serial, None, totals), Committed)


def opens(paired: bool, port: int, spare: int, certificate: Path | None) -> None:
    """Open as many producers as one client may, use each for one partition or for many, and leave."""
    with Peer(port, certificate) as peer:
        numbers = [part.number for part in peer.partitions(WIDE)] if paired else [spare]
        producers = [
            expected(answer, ProducerOpened) for answer in _all(peer, [OpenProducer(2, "")] * PRODUCERS)
        ]
        for made in producers:
            _all(peer, [Send(3, number, made.producer_id, made.epoch) for number in numbers], TINY)


def _all(peer: Peer, requests: list[Request], data: bytes = b"") -> list[AnyAnswer]:
    """Send all requests, then wait for their answers; raises :class:`UnexpectedAnswer` if one is refused."""
    peer.socket.sendall(b"".join(encode(each, data) for each in requests))
    found: list[AnyAnswer] = []
    while len(found) < len(requests):
        found += (answer for answer, _ in peer.decoder.feed(received(peer.socket, 1 << 16)))
    for each in found:
        if isinstance(each, Refused):
            raise UnexpectedAnswer(f"{each.error}: {each.message}")
    return found


WORKERS: Final[dict[str, Worker]] = {
    "halves of sends of 15 MiB that drip": drips,
    "a commit of 256 MiB of 1 KiB messages": partial(commits, 256 * MIB, KIB_FRAME, 1024),
    "a commit of 32 MiB of tiny frames": partial(commits, 32 * MIB, TINY, MAX_REQUEST_MESSAGES),
    "clients that open 100 producers": partial(opens, False),
    "clients that make 50,000 pairs": partial(opens, True),
}


def work(worker: Worker, port: int, spare: int, number: int, certificate: Path | None) -> None:
    """Run that many workers at once, until the process is killed."""
    threads = [
        threading.Thread(target=_again, args=(worker, port, spare, certificate)) for _ in range(number)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _again(worker: Worker, port: int, spare: int, certificate: Path | None) -> None:
    while True:
        try:
            worker(port, spare, certificate)
        except (OSError, UnexpectedAnswer):
            time.sleep(0.01)  # the broker ended or refused it: as an attacker it comes again
