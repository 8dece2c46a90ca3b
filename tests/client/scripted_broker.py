"""The scripted broker of the clients' tests: in memory, without I/O, and told when to misbehave."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from msgspec import structs

from journal.formats import frame
from journal.records.record import Placement
from journal.settings import TopicSettings
from journal.transaction_states import State
from txbroker.wire import messages
from txbroker.wire.codec import encode, request_decoder
from txbroker.wire.messages import Answer, Request
from txbroker.wire.secret import SECRET_BYTES, Secret

Reply = tuple[Answer, bytes] | Answer | None

APPENDED = 1_700_000_000_000_123
"""When it appends everything: µs since 1970."""


class ScriptedBroker:
    """Topics t (one partition, 1) and t2 (two, 2 and 3). ``before`` may replace or swallow any answer.

    ``before(request, data)`` returns None to have the request carried out, an answer to give instead, or
    ``SWALLOW`` to carry it out and say nothing.
    """

    SWALLOW = object()

    def __init__(self) -> None:
        self.session = 10
        self.topics = [("t", (1,)), ("t2", (2, 3))]
        self.logs: dict[int, list[tuple[int, bytes]]] = {1: [], 2: [], 3: []}
        self.ends = dict.fromkeys(self.logs, 0)
        self.sequences: dict[tuple[int, int], int] = {}
        self.known: dict[tuple[int, int, int], int] = {}
        self.producers = 100
        self.staged: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        self.outcomes: dict[tuple[int, int], State] = {}
        self.offsets: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.members = 0
        self.given: dict[int, dict[int, int]] = {}
        self.requests: list[Request] = []
        self.hanging: dict[tuple[int, int], Request] = {}
        self.before: Callable[[Request, memoryview], object] = lambda request, data: None

    def connection(self) -> Callable[[bytes], bytes]:
        """A new connection: a function from its bytes to the answer's."""
        decoder = request_decoder(1 << 30)
        self.session += 1
        session = self.session

        def feed(data: bytes) -> bytes:
            return b"".join(self.answer(session, head, body) for head, body in decoder.feed(data))

        return feed

    def disconnected(self, session: int) -> None:
        for number in [n for n in self.staged if n[0] == session and n not in self.outcomes]:
            self.outcomes[number] = State.ROLLED_BACK

    def answer(self, session: int, request: Request, data: memoryview) -> bytes:
        self.requests.append(request)
        scripted = self.before(request, data)
        if isinstance(scripted, Answer):
            return encode(scripted)
        reply = getattr(self, "on_" + type(request).__name__.lower())(session, request, data)
        if scripted is self.SWALLOW or reply is None:
            return b""
        return encode(*reply) if isinstance(reply, tuple) else encode(reply)

    # -- what it does --

    def on_hello(self, session, request, data):
        return messages.Offered(request.correlation, messages.VERSIONS[-1], "scripted", ["ANONYMOUS"])

    def on_login(self, session, request, data):
        return messages.Welcome(request.correlation, session, 1 << 20, 1 << 20)

    def on_ping(self, session, request, data):
        return messages.Done(request.correlation)

    def on_openproducer(self, session, request, data):
        self.producers += 1
        return messages.ProducerOpened(request.correlation, self.producers, 1)

    def on_describetopics(self, session, request, data):
        topics = []
        for name, numbers in self.topics:
            if request.names is None or name in request.names:
                parts = [messages.PartitionInfo(i, n, 0, self.ends[n]) for i, n in enumerate(numbers)]
                topics.append(messages.TopicInfo(name, parts, TopicSettings(), name.encode()))
        return messages.Topics(request.correlation, topics)

    def on_send(self, session, request, data):
        lane = (request.producer_id, request.partition)
        known = self.known.get((*lane, request.sequence))
        if known is not None:
            return messages.Sent(request.correlation, known)
        if request.sequence != self.sequences.get(lane, 0):
            return messages.Refused(request.correlation, "SequenceOutOfOrder", "gap")
        base = self.append(request.partition, data)
        self.sequences[lane] = request.sequence + self.ends[request.partition] - base
        self.known[(*lane, request.sequence)] = base
        return messages.Sent(request.correlation, base)

    def on_createtopic(self, session, request, data):
        parts = [messages.PartitionInfo(index, 90 + index, 0, 0) for index in range(request.partitions)]
        made = messages.TopicInfo(request.name, parts, request.settings, request.id)
        return messages.Topics(request.correlation, [made])

    def on_deletetopic(self, session, request, data):
        return messages.Done(request.correlation)

    def append(self, partition: int, data: memoryview) -> int:
        base = self.ends[partition]
        buffer = bytearray(data)
        self.ends[partition] = frame.stamp(memoryview(buffer), base, APPENDED)
        self.logs[partition].append((base, bytes(buffer)))
        return base

    def on_fetch(self, session, request, data):
        parts, body = [], b""
        for number, offset, until in request.positions:
            end = min(until or self.ends[number], self.ends[number])
            data = b"".join(run for base, run in self.logs[number] if base < end) if offset < end else b""
            parts.append(messages.FetchedPartition(number, len(data), end, 0, self.ends[number]))
            body += data
        if not body and request.max_wait:
            self.hanging[session, request.correlation] = request
            return None  # a long poll, until it is cancelled
        return messages.Fetched(request.correlation, parts), body

    def on_cancel(self, session, request, data):
        fetch = self.hanging.pop((session, request.fetch), None)
        return fetch and self.on_fetch(session, structs.replace(fetch, max_wait=0), data)

    def on_add(self, session, request, data):
        self.staged.setdefault((session, request.serial), []).append((request.partition, bytes(data)))

    def on_addoffsets(self, session, request, data):
        self.staged.setdefault((session, request.serial), [])

    def carried(self, number, request, data):
        start = 0
        for partition, length in request.runs:
            self.staged.setdefault(number, []).append((partition, bytes(data[start : start + length])))
            start += length

    def on_prepare(self, session, request, data):
        self.carried((session, request.serial), request, data)
        self.outcomes[(session, request.serial)] = State.PREPARED
        return messages.Done(request.correlation)

    def on_commit(self, session, request, data):
        number = (request.session, request.serial)
        if self.outcomes.get(number) is not State.COMMITTED:
            self.carried(number, request, data)
            for partition, run in self.staged.get(number, []):
                self.append(partition, memoryview(run))
        self.outcomes[number] = State.COMMITTED
        placements = [Placement(1, 0, self.ends[1])] if self.ends[1] else []
        return messages.Committed(request.correlation, placements)

    def on_rollback(self, session, request, data):
        self.outcomes[(request.session, request.serial)] = State.ROLLED_BACK
        return messages.Done(request.correlation)

    def on_askoutcome(self, session, request, data):
        number = (request.session, request.serial)
        state = self.outcomes.get(number, State.ROLLED_BACK)
        return messages.Outcome(request.correlation, *number, state)

    def on_claimpartitions(self, session, request, data):
        for number in request.partitions:
            self.generations[number] = self.generations.get(number, 0) + 1
        claims = [(number, self.generations[number]) for number in request.partitions]
        return messages.Claimed(request.correlation, claims)

    def on_joingroup(self, session, request, data):
        self.members += 1
        topics = [numbers for name, numbers in self.topics if name in request.topics]
        self.given[self.members] = dict.fromkeys([number for numbers in topics for number in numbers], 0)
        return messages.Joined(request.correlation, self.members, Secret(b"s" * SECRET_BYTES))

    def on_attend(self, session, request, data):
        """The member gets all partitions of its topics, each with a generation of its own; else it waits for ever."""
        given = self.given[request.member]
        for number in [each for each, generation in given.items() if not generation]:
            given[number] = self.generations[number] = self.generations.get(number, 0) + 1
        shown = dict(request.owned)
        places = {number: (name, i) for name, numbers in self.topics for i, number in enumerate(numbers)}
        fresh = [
            messages.AssignedPartition(number, generation, *places[number])
            for number, generation in given.items()
            if shown.get(number) != generation
        ]
        return messages.Attended(request.correlation, fresh) if fresh else None

    def on_leavegroup(self, session, request, data):
        return messages.Done(request.correlation)

    def on_fetchoffsets(self, session, request, data):
        numbers = request.partitions if request.partitions is not None else list(self.offsets)
        found = [
            messages.GroupOffset(number, self.offsets.get(number), self.generations.get(number, 0))
            for number in numbers
        ]
        return messages.GroupOffsets(request.correlation, found, b"g" * 16)

    def on_commitoffsets(self, session, request, data):
        for at in request.offsets:
            self.offsets[at.partition] = at.offset
        return messages.Done(request.correlation)

    def values(self, partition: int) -> list[bytes | None]:
        return [m.value for _, run in self.logs[partition] for m in frame.decode_run(run)]


class ScriptedServer:
    """A :class:`ScriptedBroker` on a port, a thread per connection."""

    certificate: ClassVar[Path | None] = None
    """A file with a key and a certificate for 127.0.0.1: if there is one, every server speaks TLS."""

    def __init__(self, broker: ScriptedBroker, context: ssl.SSLContext | None = None) -> None:
        self.broker = broker
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = context
        self.port = self._listener.getsockname()[1]
        self.shown: list[bytes | None] = []
        """The certificates that clients have shown, in DER."""
        place = f"127.0.0.1:{self.port}"
        self.url = f"tcp:{place}"
        if self.certificate is not None and context is None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(self.certificate)
            self.url = f"tls:{place}:ca={self.certificate}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        feed = self.broker.connection()
        session = self.broker.session
        with connection:
            try:
                if isinstance(connection, ssl.SSLSocket):
                    connection.do_handshake()
                    self.shown.append(connection.getpeercert(binary_form=True))
                while data := connection.recv(1 << 18):
                    with self._lock:
                        answer = feed(data)
                    connection.sendall(answer)
            except OSError:
                pass
        self.broker.disconnected(session)

    def cut(self) -> None:
        """Kill every connection."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # TLS's own would go on in the clear

    def wait_until_cut(self) -> None:
        """Wait until the threads of all connections have noticed."""
        for thread in self._threads[1:]:
            thread.join(5)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
