"""Bare servers show what the machine allows: ``python -m benchmarks.harness.bare_servers KIND``."""

from __future__ import annotations

import signal
import socket
import sys

from twisted.internet import protocol, reactor
from twisted.internet.interfaces import IAddress

STREAM_PIECE = 1 << 20


class Echo(protocol.Protocol):
    """A protocol that sends back what it receives."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.setTcpNoDelay(True)  # type: ignore[attr-defined]

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class EchoFactory(protocol.ServerFactory):
    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> protocol.Protocol:  # noqa: ARG002
        return Echo()


def echo() -> None:
    """Run a bare Twisted server: it shows the least time of a round trip in this reactor."""
    port = reactor.listenTCP(0, EchoFactory(), interface="127.0.0.1")
    print(f"ready on {port.getHost().port}", flush=True)  # type: ignore[attr-defined]
    reactor.run()


def stream() -> None:
    """Send bytes into one connection after the other, without Twisted: it shows what the loopback interface allows."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    piece = bytes(STREAM_PIECE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"ready on {server.getsockname()[1]}", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    while True:
                        connection.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    continue


if __name__ == "__main__":
    {"echo": echo, "stream": stream}[sys.argv[1]]()
