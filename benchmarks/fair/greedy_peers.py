"""Greedy peers: ``python -m benchmarks.fair.greedy_peers PORT KIND NUMBER [CERTIFICATE]`` runs them until it is killed.

Each says hello and then sends requests of one kind without a pause. All but those called deaf read the answers. The
peers of :mod:`benchmarks.fair.greedy_workers` send more than one request again and again.
"""

from __future__ import annotations

import selectors
import ssl
import sys
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fair.greedy_workers import WORKERS, work
from benchmarks.harness.crowd import HELLO
from benchmarks.harness.frames import TINY
from benchmarks.harness.peer import Peer, connect
from journal.constants import MAX_OPENED_HEADS, MAX_REQUEST_MESSAGES, MIB, OPENED_FRAME
from journal.formats import frame
from journal.formats.compression import compressor
from txbroker.client.producer.batch import Batch
from txbroker.wire.codec import encode
from txbroker.wire.messages import AskStatus, DescribeTopics, Fetch, ListGroups, ListTransactions, Ping, Send

TOPIC: Final = "fair"
"""The topic: its first partition is full of the smallest frames, its second is empty, and peers send to the third."""
AT_LEAST: Final = 60_000
RECEIVE: Final = 1 << 20


class Kind(NamedTuple):
    """A kind of greedy peer, by what it sends again and again; ``deaf`` peers read nothing, ``stuck`` ones send once
    and stop.
    """

    data: bytes
    deaf: bool = False
    stuck: bool = False


def many_heads() -> bytes:
    """Return a compressed batch of as many messages as a request may have, with the longest keys allowed in all."""
    batch, room = Batch(0.0), (MAX_OPENED_HEADS - OPENED_FRAME) // MAX_REQUEST_MESSAGES
    key = bytes(room - len(frame.encode_inner(0, b"", 1, b"")))
    for _ in range(MAX_REQUEST_MESSAGES):
        batch.add(b"", 1, key, None, MAX_OPENED_HEADS)
    return batch.seal(compressor("zstd"))


def kinds(full: int, spare: int) -> dict[str, Kind]:
    """Return the attacks by name, on a partition ``full`` of tiny frames and one to be written to."""
    fetch = encode(Fetch(2, [(full, 0, 0)], 16 * MIB))
    small = encode(Fetch(2, [(full, 0, 0)], 64 << 10))
    tiny = TINY * ((15 * MIB) // len(TINY))
    once = {
        "fetches of 16 MiB": fetch,
        "fetches of 64 KiB": small,
        "pings": encode(Ping(2)),
        "descriptions": encode(DescribeTopics(2, None)),
        "statuses": encode(AskStatus(2)),
        "lists": encode(ListTransactions(2)) + encode(ListGroups(3)),
        "sends of 4,096 tiny frames": encode(Send(2, spare), TINY * MAX_REQUEST_MESSAGES),
        "sends of 15 MiB of tiny frames, refused": encode(Send(2, spare), tiny),
        "sends of one message of 15 MiB": encode(Send(2, spare), frame.encode(bytes(15 * MIB), 1)),
        "compressed batches with 512 KiB of heads": encode(Send(2, spare), many_heads()),
    }
    found = {name: Kind(one * max(1, AT_LEAST // len(one))) for name, one in once.items()}
    found["fetches of 16 MiB, unread"] = found["fetches of 16 MiB"]._replace(deaf=True)
    found["halves of sends of 15 MiB"] = Kind(encode(Send(2, spare), bytes(15 * MIB))[: 14 * MIB], stuck=True)
    return found


class Greedy:
    """One greedy peer."""

    def __init__(self, port: int, kind: Kind, certificate: Path | None) -> None:
        self.socket = connect(port, certificate)
        self.socket.setblocking(False)
        self.kind = kind
        self._left = memoryview(HELLO)
        self._begun = False

    def write(self) -> bool:
        """Send; return whether there is more to send."""
        if not self._left:
            if self._begun and self.kind.stuck:
                return False
            self._begun, self._left = True, memoryview(self.kind.data)
        self._left = self._left[self.socket.send(self._left) :]
        return True

    def read(self) -> bool:
        """Read what has arrived; return whether the broker is still connected."""
        found = self.socket.recv(RECEIVE)
        while found and isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            found = self.socket.recv(RECEIVE)
        return bool(found)


def attack(port: int, kind: Kind, number: int, certificate: Path | None) -> None:
    """Attack until all connections have been closed."""
    with selectors.DefaultSelector() as selector:
        for _ in range(number):
            peer = Greedy(port, kind, certificate)
            both = selectors.EVENT_WRITE | (0 if kind.deaf else selectors.EVENT_READ)
            selector.register(peer.socket, both, peer)
        while selector.get_map():
            for key, events in selector.select():
                peer = key.data
                try:
                    goes_on = not events & selectors.EVENT_READ or peer.read()
                    if goes_on and events & selectors.EVENT_WRITE and not peer.write():
                        selector.modify(peer.socket, selectors.EVENT_READ, peer)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    goes_on = False
                if not goes_on:
                    selector.unregister(peer.socket)
                    peer.socket.close()


if __name__ == "__main__":
    trusted = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    with Peer(int(sys.argv[1]), trusted) as asking:
        first, second, third = (part.number for part in asking.partitions(TOPIC))
    to, name, peers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if name in WORKERS:
        work(WORKERS[name], to, third, peers, trusted)
    attack(to, kinds(first, third)[name], peers, trusted)
