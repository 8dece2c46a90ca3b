"""A connection of the load generator: the broker's own codec over a plain socket."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from journal.settings import TopicSettings
from txbroker.wire.codec import Decoder, answer_decoder, encode
from txbroker.wire.messages import (
    MAGIC,
    VERSIONS,
    Answer,
    AnyAnswer,
    CreateTopic,
    DescribeTopics,
    Hello,
    Login,
    Offered,
    PartitionInfo,
    Refused,
    Request,
    Topics,
    Welcome,
)

PATIENCE = 60.0
MAX_DATA = 64 << 20

AnswerType = TypeVar("AnswerType", bound=Answer | Request)


class UnexpectedAnswer(Exception):
    """The broker did not answer as it should, so the measurement is invalid."""


class Peer:
    """A session with a broker. ``ask`` blocks; the loads use ``socket`` and ``decoder`` themselves.

    It uses TLS if it is given the ``certificate`` to trust.
    """

    def __init__(self, port: int, certificate: Path | None = None) -> None:
        self.socket = connect(port, certificate)
        self.decoder: Decoder[AnyAnswer] = answer_decoder(MAX_DATA)
        self.ask(Hello(1, MAGIC, list(VERSIONS), "benchmark"), Offered)
        self.session = self.ask(Login(2, "ANONYMOUS"), Welcome).session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, request: Request, kind: type[AnswerType], data: bytes = b"") -> AnswerType:
        """Send one request, and return its answer, which must be of that kind."""
        self.socket.sendall(encode(request, data))
        found: list[tuple[AnyAnswer, memoryview]] = []
        while not found:
            found = self.decoder.feed(received(self.socket, 1 << 18))
        return expected(found[0][0], kind)

    def create_topic(self, name: str, partitions: int = 1) -> list[int]:
        """Create a topic; return the numbers of its partitions."""
        topics = self.ask(CreateTopic(1, name, partitions, TopicSettings()), Topics).topics
        return [partition.number for partition in topics[0].partitions]

    def partitions(self, name: str) -> list[PartitionInfo]:
        """Return the partitions of a topic as they are now."""
        return self.ask(DescribeTopics(1, [name]), Topics).topics[0].partitions

    def messages(self, name: str) -> int:
        """Return how many messages readers can see in a topic."""
        return sum(partition.high_watermark for partition in self.partitions(name))


def connect(port: int, certificate: Path | None = None) -> socket.socket:
    """Return a connection that sends without delay, and whose reads fail rather than wait for ever."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if certificate is None:
        return connection
    context = ssl.create_default_context(cafile=certificate)
    return context.wrap_socket(connection, server_hostname="127.0.0.1")


def received(connection: socket.socket, size: int) -> bytes:
    """Return the bytes that have arrived; raises :class:`UnexpectedAnswer` at the end of the stream."""
    data = connection.recv(size)
    if not data:
        raise UnexpectedAnswer("the connection was closed")
    return data


def expected(answer: object, kind: type[AnswerType]) -> AnswerType:
    """Return the answer if it is of that kind; raises :class:`UnexpectedAnswer` if not."""
    if type(answer) is kind:
        return answer
    reason = f": {answer.error}: {answer.message}" if isinstance(answer, Refused) else ""
    raise UnexpectedAnswer(f"{type(answer).__name__} instead of {kind.__name__}{reason}")
