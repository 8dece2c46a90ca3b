"""A crowd of connections that all come at once, are greeted, and then send nothing."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator

from benchmarks.harness.peer import MAX_DATA, PATIENCE, UnexpectedAnswer, received
from txbroker.wire.codec import Decoder, answer_decoder, encode
from txbroker.wire.messages import MAGIC, VERSIONS, AnyAnswer, Hello, Login, Offered, Refused, Welcome

HELLO = encode(Hello(1, MAGIC, list(VERSIONS), "crowd")) + encode(Login(2, "ANONYMOUS"))
RECEIVE = 1 << 16


class Crowd:
    """The connections of a crowd: those that were welcomed, and how many were refused."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.refusals: list[Refused] = []

    def check(self) -> None:
        """Raise :class:`UnexpectedAnswer` if a connection has been closed, or was sent something."""
        readable = select.poll()
        for each in self.sockets:
            readable.register(each, select.POLLIN)
        if events := readable.poll(0):
            raise UnexpectedAnswer(f"{len(events)} idle connections were closed or written to")


@contextlib.contextmanager
def burst(port: int, number: int) -> Iterator[Crowd]:
    """Connect ``number`` times without waiting in between; return when all are welcomed or refused."""
    crowd = Crowd()
    opening: dict[int, tuple[socket.socket, Decoder[AnyAnswer]]] = {}
    with select.epoll() as epoll, contextlib.ExitStack() as stack:
        for _ in range(number):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            opening[connection.fileno()] = (connection, answer_decoder(MAX_DATA))
            epoll.register(connection, select.EPOLLOUT)
        deadline = time.monotonic() + PATIENCE
        while opening:
            if time.monotonic() > deadline:
                raise UnexpectedAnswer(
                    f"{len(opening)} of {number} connections were not welcomed in {PATIENCE:g} s"
                )
            for descriptor, events in epoll.poll(1.0):
                if events & select.EPOLLOUT:
                    opening[descriptor][0].send(HELLO)
                    epoll.modify(descriptor, select.EPOLLIN)
                elif _heard(crowd, *opening[descriptor]):
                    epoll.unregister(descriptor)
                    del opening[descriptor]
        yield crowd


def _heard(crowd: Crowd, connection: socket.socket, decoder: Decoder[AnyAnswer]) -> bool:
    """Return whether the connection was answered."""
    for answer, _ in decoder.feed(received(connection, RECEIVE)):
        if isinstance(answer, Welcome):
            crowd.sockets.append(connection)
        elif isinstance(answer, Refused):
            crowd.refusals.append(answer)
        elif isinstance(answer, Offered):
            continue
        else:
            raise UnexpectedAnswer(f"a hello was answered by {answer}")
        return True
    return False
