"""The work whose instructions `make bench-guard` counts: a message's path in broker and client, with no clock in it.

The broker is the real one from the bytes of a connection to the bytes of its answers, journal files included. Only what
differs from run to run is replaced: sockets are buffers, threads take turns on one, and time stands still. So the
counts are the same every time.

:func:`mark` is called before and after every counted piece of work. It makes callgrind write the counts so far.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c
from twisted.internet.task import Clock

import journal
from benchmarks.harness.frames import BATCH_BYTES, SINGLE
from journal.compiled import Build
from journal.folds.table import client_folds
from journal.random_id import ID_BYTES
from journal.records.group_entries import GroupPositions, PartitionOffset
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock
from journal.transaction_states import Totals
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid
from txbroker.client import blocking
from txbroker.client.blocking.send_future import SendFuture
from txbroker.client.core import url
from txbroker.client.core.options import Options
from txbroker.client.core.promise import start
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.running_broker import RunningBroker
from txbroker.server.settings.config import merged
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.messages import (
    MAGIC,
    VERSIONS,
    Commit,
    CommitOffsets,
    CreateTopic,
    Fetch,
    Hello,
    Login,
    Prepare,
    Refused,
    Send,
)

MARKER = "getppid"
"""A function of the C library that nothing else calls: callgrind writes its counts before each call of it."""

TOGETHER = 64
"""Requests that arrive in one read where a client pipelines; connections that are served in one turn."""

COUNTED = 32 * TOGETHER
"""Messages, batches or transactions in one piece of work; its parts are multiples of :data:`TOGETHER`, too."""

WARM_UP = 4 * TOGETHER
UNITS = 20_000
TOTALS = Totals(1, 1, crc32c(SINGLE))


def mark() -> None:
    """Mark the end of one count, and the beginning of the next."""
    os.getppid()


class Reactor(Clock):
    """A reactor in which time stands still; calls from threads run in the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self._handed: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Run the call in the next turn."""
        self._handed.append((call, arguments))

    def turn(self) -> None:
        """Run turns until nothing is left to do at this moment."""
        while True:
            self.advance(0)
            if not self._handed:
                return
            call, arguments = self._handed.popleft()
            call(*arguments)


class InlineWorker:
    """A worker without a thread: work is done when it is submitted."""

    def __init__(self, name: str, call_from_thread: Callable[..., Any], threads: int = 1) -> None:
        del name, threads
        self._call_from_thread = call_from_thread

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any], Any], failed: Callable[[BaseException], Any]
    ) -> None:
        """Do the work now; its result comes in the next turn. A failure ends the measurement."""
        del failed
        self._call_from_thread(done, work())


class Transport:
    """A socket that is a buffer: it keeps what the broker writes until it is taken."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep the bytes."""
        self.written.append(data)

    def getPeer(self) -> None:
        """Return no address."""

    def pauseProducing(self) -> None:
        """Do nothing: the broker is given all bytes all the same."""

    def resumeProducing(self) -> None:
        """Do nothing, as above."""

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """Do nothing: this transport never makes a producer wait."""


class Connection:
    """A peer of the broker's real protocol that has logged in."""

    def __init__(self, bench: Bench, factory: BrokerFactory) -> None:
        protocol = factory.buildProtocol(None)
        assert protocol is not None
        self._bench = bench
        self._decoder = answer_decoder(1 << 20)
        self.receive = protocol.dataReceived
        self.transport = Transport()
        protocol.makeConnection(self.transport)
        self.ask(encode(Hello(1, MAGIC, list(VERSIONS), "guard")))
        self.ask(encode(Login(2, "ANONYMOUS")))

    def ask(self, data: bytes) -> Any:
        """Return the answer to one request; raises ``RuntimeError`` if it was refused."""
        self.transport.written.clear()
        self._bench.carry([(self, data)], clear=False)
        [(answer, _)] = self._decoder.feed(b"".join(self.transport.written))
        if isinstance(answer, Refused):
            raise RuntimeError(f"{answer.error}: {answer.message}")
        return answer


Round = list[tuple[Connection, bytes]]
"""The connections with their bytes that arrive within one turn of the reactor."""


class Bench:
    """A broker on an empty directory, with its connections."""

    def __init__(self, data: Path) -> None:
        config = merged({"data": str(data)})
        self._reactor = Reactor()
        engine = recover(OSFilesystem(data), ManualClock(monotonic=1_000_000), config.journal, client_folds())
        worker: Any = InlineWorker
        self._serving = RunningBroker(engine, config, self._reactor, self._fail, worker)
        engine.on_flush_wanted = lambda: None
        self._serving.writer.wake()  # recovery has left records to be written
        self._reactor.turn()
        self.connections = [Connection(self, self._serving.factory) for _ in range(TOGETHER)]

    @staticmethod
    def _fail(doing: str, error: BaseException) -> None:
        raise RuntimeError(doing) from error

    def turn(self) -> None:
        """Run turns of the reactor until nothing is left to do."""
        self._reactor.turn()

    def client(self) -> Client:
        """Return a client of this broker that already knows the topic."""
        client = Client(self, self._serving.factory)
        route = start(client.connection._producer.route("guarded"))
        client.carry()
        route.result()
        return client

    def carry(self, round_: Round, least: int = 1, clear: bool = True) -> None:
        """Let the broker read and process everything; each connection must then have that many bytes of answers."""
        for connection, data in round_:
            connection.receive(data)
        self._reactor.turn()
        for connection, _ in round_:
            written = connection.transport.written
            if sum(map(len, written)) < least:
                raise RuntimeError(f"less than {least} bytes of answers: {written}")
            if clear:
                written.clear()

    def close(self) -> None:
        """Close without a clean stop: there is no next start."""
        self._serving.engine.close()


class Client:
    """A blocking client without a driver: its bytes are moved by hand, as those of :class:`Connection`."""

    def __init__(self, bench: Bench, factory: BrokerFactory) -> None:
        protocol = factory.buildProtocol(None)
        assert protocol is not None
        self._bench, self._receive, self._transport = bench, protocol.dataReceived, Transport()
        self.connection = blocking.Connection(url.parse("tcp:127.0.0.1:1"), Options(client="guard"))
        vars(self.connection._driver)["kick"] = lambda: None  # otherwise a thread would try to connect
        protocol.makeConnection(self._transport)
        self._core = self.connection.core
        self._core.connecting()
        self._core.connected()
        self.carry()

    def carry(self) -> None:
        """Move bytes both ways until there are none."""
        while output := self._core.take_output():
            self._receive(b"".join(output))
            self._bench.turn()
            answers, self._transport.written = self._transport.written, []
            self._core.received(b"".join(answers))
            self._core.tick()

    def send(self, topic: str, value: bytes, times: int) -> list[SendFuture]:
        """Queue that many messages, without sending anything yet."""
        send = self.connection.send_async
        return [send(topic, value) for _ in range(times)]


class Piece(NamedTuple):
    """A piece of work that is counted; ``rounds`` makes it, ``times`` over. The budget is for one of them."""

    name: str
    rounds: Callable[[int], list[Round]]
    times: int
    least: int = 1


class Pieces:
    """The pieces of work that are counted."""

    def __init__(self, bench: Bench) -> None:
        self._connections = bench.connections
        made = self._connections[0].ask(encode(CreateTopic(2, "guarded", 5, TopicSettings())))
        self._partitions = [partition.number for partition in made.topics[0].partitions]
        self._serials = [0] * TOGETHER

    def all(self) -> list[Piece]:
        """Return all pieces in the order in which they are run."""
        one, two = self._one_phase, self._two_phase
        return [
            Piece("send, alone", self._sends(1, SINGLE, 0), COUNTED),
            Piece("send, 64 in one read", self._sends(TOGETHER, SINGLE, 1), COUNTED),
            Piece("send, 64 connections", self._each(lambda place: [self._send(place)]), COUNTED),
            Piece("batch of 100, 8 in one read", self._sends(8, BATCH_BYTES, 2), COUNTED // 4),
            Piece("transaction in one phase, alone", self._alone(one), COUNTED // 2),
            Piece("transaction in one phase, 64 connections", self._each(one), COUNTED),
            Piece("transaction in two phases, alone", self._alone(two), COUNTED // 2),
            Piece("transaction in two phases, 64 connections", self._each(two), COUNTED),
            Piece("position of a group, alone", self._position(), COUNTED // 2),
            Piece("transaction in one phase with a position, alone", self._alone(self._moving), COUNTED // 2),
            Piece("fetch of 64 KiB of single messages", self._fetch(1), COUNTED // 8, 32 << 10),
            Piece("fetch of 64 KiB of batches", self._fetch(2), COUNTED // 8, 32 << 10),
        ]

    def _sends(self, together: int, frames: bytes, place: int) -> Callable[[int], list[Round]]:
        read = encode(Send(7, self._partitions[place]), frames) * together
        return lambda times: [[(self._connections[0], read)] for _ in range(times // together)]

    def _fetch(self, place: int) -> Callable[[int], list[Round]]:
        read = encode(Fetch(8, [(self._partitions[place], 0, 0)], 64 << 10))
        return lambda times: [[(self._connections[0], read)] for _ in range(times)]

    def _alone(self, reads: Callable[[int], list[bytes]]) -> Callable[[int], list[Round]]:
        return lambda times: [[(self._connections[0], read)] for _ in range(times) for read in reads(0)]

    def _each(self, reads: Callable[[int], list[bytes]]) -> Callable[[int], list[Round]]:
        """Make all connections do the same at the same time: the first read of each comes in one turn, then the
        next.
        """

        def rounds(times: int) -> list[Round]:
            made: list[Round] = []
            for _ in range(times // TOGETHER):
                each = [reads(place) for place in range(TOGETHER)]
                made += [list(zip(self._connections, step, strict=True)) for step in zip(*each, strict=True)]
            return made

        return rounds

    def _send(self, place: int) -> bytes:
        return encode(Send(7, self._partitions[place % 4]), SINGLE)

    def _one_phase(self, place: int) -> list[bytes]:
        serial = self._next(place)
        runs = [(self._partitions[place % 4], len(SINGLE))]
        return [encode(Commit(6, 0, serial, seen=serial - 1, runs=runs), SINGLE)]

    def _position(self) -> Callable[[int], list[Round]]:
        read = encode(CommitOffsets(7, "guard", [PartitionOffset(self._partitions[0], 1)], bytes(ID_BYTES)))
        return lambda times: [[(self._connections[0], read)] for _ in range(times)]

    def _moving(self, place: int) -> list[bytes]:
        serial = self._next(place)
        runs = [(self._partitions[place % 4], len(SINGLE))]
        moved = [GroupPositions("guard", bytes(ID_BYTES), [PartitionOffset(self._partitions[0], 1)])]
        return [encode(Commit(6, 0, serial, seen=serial - 1, runs=runs, positions=moved), SINGLE)]

    def _two_phase(self, place: int) -> list[bytes]:
        serial = self._next(place)
        xid = Xid(1, b"guard-%d-%d" % (place, serial), b"branch")
        runs = [(self._partitions[place % 4], len(SINGLE))]
        prepare = encode(Prepare(6, serial, xid, None, serial - 1, runs), SINGLE)
        return [prepare, encode(Commit(7, 0, serial, None, None, serial - 1))]

    def _next(self, place: int) -> int:
        self._serials[place] += 1
        return self._serials[place]


def calibrate(times: int) -> None:
    """Run plain Python that never changes: calls, attributes, dictionaries, bytes. Its instructions are the unit.

    Two interpreters differ by a third in what they take for the same program; in this unit by a few percent.
    """
    table: dict[int, Transport] = {place: Transport() for place in range(64)}
    for number in range(times):
        transport = table[number & 63]
        transport.write(b"%d" % number)
        if len(transport.written) > 8:
            transport.written = transport.written[4:]


def main(build: str) -> None:
    """Do a little of every piece to warm up, then all of it between two marks; print its count and name.

    Raises ``RuntimeError`` if another build runs than was asked for.
    """
    if (journal.BUILD is Build.COMPILED) != (build == "compiled"):
        raise RuntimeError(f"{journal.BUILD.value} runs, not the {build} build: run 'make compiled'")
    calibrate(UNITS)
    mark()
    calibrate(UNITS)
    mark()
    sys.stdout.write(f"{UNITS}\tunit\n")
    with tempfile.TemporaryDirectory(prefix="txbroker-guard-") as folder:
        bench = Bench(Path(folder) / "data")
        for piece in Pieces(bench).all():
            warm, rounds = piece.rounds(WARM_UP), piece.rounds(piece.times)
            for round_ in warm:
                bench.carry(round_, piece.least)
            mark()
            for round_ in rounds:
                bench.carry(round_, piece.least)
            mark()
            sys.stdout.write(f"{piece.times}\t{piece.name}\n")
        _count_client(bench.client())
        bench.close()


def _count_client(client: Client) -> None:
    """Count a program's own call: it is checked, routed and put into a batch, with a future. Sending is another
    piece.
    """
    client.send("guarded", SINGLE, WARM_UP)
    client.carry()
    mark()
    futures = client.send("guarded", SINGLE, COUNTED)
    mark()
    client.carry()
    if not all(future.done() for future in futures):
        raise RuntimeError("messages of the client were not acknowledged")
    sys.stdout.write(f"{COUNTED}\tsend_async of the client\n")


if __name__ == "__main__":
    main(sys.argv[1])
