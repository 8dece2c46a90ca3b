"""One very large transaction, and its effect on others: a producer and a reader beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from crc32c import crc32c

from benchmarks.harness.frames import SINGLE, TIMESTAMP
from benchmarks.harness.load import Tally
from benchmarks.harness.peer import Peer, UnexpectedAnswer, expected, received
from journal.constants import MIB
from journal.formats import frame
from journal.transaction_states import Totals
from txbroker.wire.codec import encode
from txbroker.wire.messages import Add, Commit, Committed, Done, Fetch, Fetched, Ping, Send, Sent

PIECE = frame.encode(bytes(MIB - frame.HEADER_BYTES), TIMESTAMP)
"""A message whose frame is exactly a MiB."""

AHEAD = 8
"""The adds between two checks whether the broker has kept up."""


class Bystander:
    """A bystander sends one message after the other on a connection of its own, or reads the newest, and takes the
    times.
    """

    def __init__(self, port: int, partition: int, reads: bool) -> None:
        self._peer = Peer(port)
        self._partition = partition
        self._reads = reads
        self._going = True
        self.times: list[tuple[float, float]] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._peer as peer:
                while self._going:
                    began = time.perf_counter()
                    if self._reads:
                        peer.ask(Fetch(1, [(self._partition, 0, 0)], 4096), Fetched)
                    else:
                        peer.ask(Send(1, self._partition), Sent, SINGLE)
                    self.times.append((began, time.perf_counter() - began))
        except BaseException as error:  # noqa: BLE001  (told by end())
            self._failure = error

    def end(self) -> None:
        """Stop; raise what went wrong."""
        self._going = False
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def between(self, begin: float, end: float) -> list[float]:
        """Return the sorted times of what was under way between two moments."""
        return sorted(took for began, took in self.times if began < end and began + took > begin)


def one_large_transaction(
    port: int, peer: Peer, partitions: Sequence[int], mebibytes: int
) -> tuple[float, Tally, dict[str, float]]:
    """Return the seconds until all was added, the other producer's tally over all the time, and notes."""
    sender, reader = Bystander(port, partitions[-1], reads=False), Bystander(port, partitions[-1], reads=True)
    try:
        began = time.perf_counter()
        totals = _add(peer, partitions[:-1], mebibytes)
        added = time.perf_counter()
        peer.socket.sendall(encode(Commit(3, 0, 1, None, totals)))
        expected(_answer(peer), Committed)
        committed = time.perf_counter()
    finally:
        for each in (sender, reader):
            each.end()
    visible = sum(part.high_watermark for part in peer.partitions("scale")[:-1])
    if visible != mebibytes:
        raise UnexpectedAnswer(f"{visible} of {mebibytes} messages are to be read after the commit")
    tally = Tally(seconds=committed - began)
    for took in sender.between(began, committed):
        tally.latencies.append(took)
        tally.completed += 1
    during = {"sends": sender.between(added, committed), "reads": reader.between(added, committed)}
    notes = {"adding MB/s": mebibytes * MIB / 1e6 / (added - began), "commit s": committed - added}
    for what, times in during.items():
        notes[f"{what} during the commit: longest ms"] = times[-1] * 1e3
    notes["sends while adding: p99 ms"] = _p99(sender.between(began, added)) * 1e3
    return added - began, tally, notes


def _p99(times: list[float]) -> float:
    return times[int(0.99 * (len(times) - 1))]


def _add(peer: Peer, partitions: Sequence[int], mebibytes: int) -> Totals:
    """Add all messages, a MiB at a time."""
    checksum = 0
    for number in range(mebibytes):
        peer.socket.sendall(encode(Add(1, 1, partitions[number % len(partitions)], None, 0), PIECE))
        checksum = crc32c(PIECE, checksum)
        if number % AHEAD == AHEAD - 1:
            peer.ask(Ping(2), Done)
    return Totals(mebibytes, mebibytes, checksum)


def _answer(peer: Peer) -> object:
    found: list[tuple[object, memoryview]] = []
    while not found:
        found = list(peer.decoder.feed(received(peer.socket, 1 << 18)))
    return found[0][0]
