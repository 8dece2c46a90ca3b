"""Many undecided transactions: they are prepared, or left open, or all committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from benchmarks.harness.frames import SINGLE, TIMESTAMP
from benchmarks.harness.peer import Peer, expected, received
from journal.formats import frame
from journal.transaction_states import Totals
from journal.xid import Xid
from txbroker.wire.codec import encode
from txbroker.wire.messages import Add, Commit, Committed, Done, Ping, Prepare

TOGETHER = 500
"""Transactions whose requests are sent together, and answered before the next ones."""

STAGED = frame.encode(bytes(20 << 10), TIMESTAMP)
"""The message of an open transaction: with ten thousand of them, transactions exceed what they may hold in memory."""

_STAGED_TOTALS = Totals(1, 1, crc32c(STAGED))


def _in_groups(number: int) -> Iterator[range]:
    for first in range(1, number + 1, TOGETHER):
        yield range(first, min(first + TOGETHER, number + 1))


def _exchange(
    peer: Peer, serials: range, request: Callable[[int], bytes], kind: type[Done] | type[Committed]
) -> None:
    """Send the requests of all these serials together, and read an answer of that kind for each."""
    peer.socket.sendall(b"".join(map(request, serials)))
    missing = len(serials)
    while missing:
        for answer, _ in peer.decoder.feed(received(peer.socket, 1 << 18)):
            expected(answer, kind)
            missing -= 1


def prepare_many(peer: Peer, partitions: Sequence[int], number: int) -> None:
    """Prepare transactions of one message, and leave them."""

    def request(serial: int) -> bytes:
        xid = Xid(1, b"scale-%d" % serial, b"benchmark")
        runs = [(partitions[serial % len(partitions)], len(SINGLE))]
        return encode(Prepare(2 * serial + 1, serial, xid, runs=runs), SINGLE)

    for serials in _in_groups(number):
        _exchange(peer, serials, request, Done)


def open_many(peer: Peer, partitions: Sequence[int], number: int) -> list[int]:
    """Open transactions of one message, and leave them; return the bytes of each."""

    def request(serial: int) -> bytes:
        return encode(Add(2 * serial, serial, partitions[serial % len(partitions)], None, 0), STAGED)

    for serials in _in_groups(number):
        peer.socket.sendall(b"".join(map(request, serials)))
        peer.ask(Ping(1), Done)  # adds are answered only if they are refused
    return [len(STAGED)] * number


def commit_all(peer: Peer, opened: Sequence[int]) -> None:
    """Commit the transactions that :func:`open_many` has opened."""

    def request(serial: int) -> bytes:
        return encode(Commit(2 * serial + 1, 0, serial, None, _STAGED_TOTALS))

    for serials in _in_groups(len(opened)):
        _exchange(peer, serials, request, Committed)
