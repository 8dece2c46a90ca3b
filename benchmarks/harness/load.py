"""The load generator sends requests as fast as they are answered: pipelined on one socket, or one at a time on many.

Every request goes through the socket; every answer is decoded by the codec, checked for its kind and counted; the
correlation numbers of all answers must add up to those of all requests.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import NamedTuple, Protocol

from benchmarks.harness.peer import PATIENCE, Peer, UnexpectedAnswer, expected, received
from txbroker.wire.codec import Decoder, encode
from txbroker.wire.messages import AnyAnswer, AnyRequest, Send, Sent

FIRST_CORRELATION = 1 << 16
"""The first correlation number. From here on all take the same room on the wire, as those of a client at work do."""

RECEIVE = 1 << 18


class Chunk(NamedTuple):
    """Encoded requests that are written together; ``correlations`` is the sum of their numbers."""

    data: bytes
    requests: int
    correlations: int


def send_chunks(partitions: Sequence[int], frames: bytes, requests: int, together: int) -> list[Chunk]:
    """Yield ``requests`` sends of the same frames, to each partition in turn, ``together`` of them in a chunk."""
    chunks = []
    for first in range(FIRST_CORRELATION, FIRST_CORRELATION + requests, together):
        numbers = range(first, min(first + together, FIRST_CORRELATION + requests))
        data = b"".join(encode(Send(n, partitions[n % len(partitions)]), frames) for n in numbers)
        chunks.append(Chunk(data, len(numbers), sum(numbers)))
    return chunks


@dataclass
class Tally:
    """The tally of a load: exchanges begun and completed, and the seconds from the first byte to the last answer."""

    begun: int = 0
    completed: int = 0
    seconds: float = 0.0
    latencies: array[float] = field(default_factory=lambda: array("d"))

    @property
    def rate(self) -> float:
        """Return completed exchanges a second."""
        return self.completed / self.seconds

    def quantile(self, share: float) -> float:
        """Return the latency in seconds that this share of the exchanges did not exceed."""
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))]


class Pipeline:
    """A pipeline keeps up to ``window`` requests unanswered on one connection, taken from ``chunks`` again and again.

    The chunks together must hold at least ``window`` requests and one more chunk, so that no correlation number is used
    twice at a time.
    """

    def __init__(self, peer: Peer, chunks: Sequence[Chunk], window: int) -> None:
        assert sum(chunk.requests for chunk in chunks[:-1]) >= window
        self._socket = peer.socket
        self._decoder = peer.decoder
        self._chunks: Iterator[Chunk] = cycle(chunks)
        self._window = window
        self._unsent = memoryview(b"")
        self._balance = 0
        self.tally = Tally()

    def run(self, seconds: float) -> Tally:
        """Send for that long, then wait for the last answer."""
        tally, poll = self.tally, select.poll()
        self._socket.setblocking(False)
        began = time.perf_counter()
        deadline = began + seconds
        while (going := time.perf_counter() < deadline) or self._unsent or tally.completed < tally.begun:
            self._send(going)
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            if not poll.poll(PATIENCE * 1000):
                raise UnexpectedAnswer(f"no answer within {PATIENCE:g} s")
            self._receive()
        tally.seconds += time.perf_counter() - began
        self._socket.settimeout(PATIENCE)
        if self._balance:
            raise UnexpectedAnswer("the answers' correlation numbers are not those of the requests")
        return tally

    def _send(self, going: bool) -> None:
        tally, window = self.tally, self._window
        while True:
            if not self._unsent:
                if not going or tally.begun - tally.completed >= window:
                    return
                chunk = next(self._chunks)
                self._unsent = memoryview(chunk.data)
                tally.begun += chunk.requests
                self._balance += chunk.correlations
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def _receive(self) -> None:
        try:
            data = received(self._socket, RECEIVE)
        except BlockingIOError:
            return
        messages = self._decoder.feed(data)
        for answer, _ in messages:
            self._balance -= expected(answer, Sent).correlation
        self.tally.completed += len(messages)


class Dialogue(Protocol):
    """A client that has one exchange at a time."""

    socket: socket.socket

    def begin(self) -> bytes:
        """Return the first bytes of the next exchange."""

    def heard(self, data: bytes) -> bytes | None:
        """Return the bytes to send after that answer; b"" if its rest is to come, None if the exchange is complete."""


class SendDialogue:
    """A dialogue that sends the same request again and again. It also works with the bare echo, which returns the
    request.
    """

    def __init__(
        self,
        connection: socket.socket,
        decoder: Decoder[AnyAnswer] | Decoder[AnyRequest],
        request: bytes,
        answer: type[Send | Sent] = Sent,
    ) -> None:
        self.socket = connection
        self._decoder = decoder
        self._request = request
        self._answer = answer

    def begin(self) -> bytes:
        return self._request

    def heard(self, data: bytes) -> bytes | None:
        messages = self._decoder.feed(data)
        if not messages:
            return b""
        [(answer, _)] = messages
        if expected(answer, self._answer).correlation != FIRST_CORRELATION:
            raise UnexpectedAnswer("an answer to another request")
        return None


def converse(dialogues: Sequence[Dialogue], seconds: float) -> Tally:
    """Run exchanges of every dialogue, one after the other, for that long; all that began are completed."""
    tally = Tally()
    clock, latencies = time.perf_counter, tally.latencies
    by_number = {dialogue.socket.fileno(): dialogue for dialogue in dialogues}
    began_at = dict.fromkeys(by_number, 0.0)
    with select.epoll() as epoll:
        for number in by_number:
            epoll.register(number, select.EPOLLIN)
        began = clock()
        for number, dialogue in by_number.items():
            began_at[number] = clock()
            dialogue.socket.sendall(dialogue.begin())
        tally.begun = open_exchanges = len(by_number)
        while open_exchanges:
            events = epoll.poll(PATIENCE)
            if not events:
                raise UnexpectedAnswer(f"no answer within {PATIENCE:g} s")
            going = clock() - began < seconds
            for number, _ in events:
                dialogue = by_number[number]
                reply = dialogue.heard(received(dialogue.socket, RECEIVE))
                if reply is None:
                    now = clock()
                    latencies.append(now - began_at[number])
                    tally.completed += 1
                    if not going:
                        open_exchanges -= 1
                        continue
                    tally.begun += 1
                    began_at[number] = now
                    reply = dialogue.begin()
                dialogue.socket.sendall(reply)
        tally.seconds = clock() - began
    return tally
