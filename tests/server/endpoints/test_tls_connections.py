"""Test when the handshakes of TLS begin, over real connections: in line, with patience for those in it."""

import contextlib
import socket
import ssl
import time

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from tests.server.endpoints.test_tls_endpoint import Echo, connected, echoed, folder, known, listen, thread  # noqa: F401
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.certificates import Folder
from tests.support.peer import Peer
from tests.support.waiting import eventually
from txbroker.server.endpoints.handshakes import AT_ONCE, MAX_WAITING, HandshakeLine
from txbroker.server.endpoints.tls_connections import TlsFactory
from txbroker.server.endpoints.tls_endpoint import TlsServerEndpoint, described
from txbroker.wire.messages import Done, Ping


@pytest.fixture
def stopped(known):  # noqa: F811
    """A line of handshakes in which nobody's turn comes before its clock is advanced."""
    clock = Clock()
    clock.advance(1.0)
    known._line = HandshakeLine(clock)
    for number in range(AT_ONCE):
        assert known._line.enter(number, lambda: None)
    return known._line, clock


def test_a_connection_is_not_read_before_its_turn(thread, folder, listen, stopped):  # noqa: F811
    line, clock = stopped
    port = listen()
    with contextlib.ExitStack() as stack:
        peers = []
        for number in range(2):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            context = ssl.create_default_context(cafile=folder.file("ca.pem"))
            tls_in, tls_out = ssl.MemoryBIO(), ssl.MemoryBIO()
            secure = context.wrap_bio(tls_in, tls_out, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                secure.do_handshake()
            plain.sendall(tls_out.read())
            peers.append(plain)
            eventually(lambda number=number: len(line) == number + 1)
        for plain in peers:
            plain.settimeout(0.2)
            with pytest.raises(TimeoutError):
                plain.recv(1)
        thread.run(clock.advance, 0.02)
        peers[0].settimeout(PATIENCE)
        assert peers[0].recv(1) == b"\x16"
        with pytest.raises(TimeoutError):
            peers[1].recv(1)
        thread.run(clock.advance, 0.02)
        peers[1].settimeout(PATIENCE)
        assert peers[1].recv(1) == b"\x16"


def test_one_that_leaves_the_line_is_forgotten_with_its_turn(thread, listen, stopped):  # noqa: F811
    line, clock = stopped
    port = listen()
    with socket.create_connection(("127.0.0.1", port), PATIENCE):
        eventually(lambda: len(line) == 1)
    thread.run(clock.advance, 0.02)
    eventually(lambda: len(line) == 0)


def test_a_full_line_takes_no_more(listen, stopped):  # noqa: F811
    line, _ = stopped
    port = listen()
    for number in range(MAX_WAITING):
        line.enter(f"another {number}", lambda: None)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        assert plain.recv(1) == b""
    assert len(line) == MAX_WAITING


def test_those_that_wait_do_not_change_what_is_said(folder, listen):  # noqa: F811
    port = listen(Factory.forProtocol(Echo))
    with contextlib.ExitStack() as stack:
        secures = [stack.enter_context(connected(port, folder)) for _ in range(4 * AT_ONCE)]
        assert {echoed(secure) for secure in secures} == {b"hello"}


@pytest.mark.slow
def test_at_a_broker_the_time_in_line_is_not_the_peers(tmp_path):
    """A hundred come at once, and each has less time for its login than the last one waits for its handshake."""
    folder = Folder(tmp_path)  # noqa: F811
    words = ("--listen", folder.endpoint(), "--set", "hello_timeout=600ms")
    with told_broker(tmp_path / "data", *words) as process, contextlib.ExitStack() as stack:
        process.ready()
        port = int(process.ready_line.partition("tls:127.0.0.1:")[2].split()[0])
        plain = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE)) for _ in range(150)
        ]
        began = time.monotonic()
        context = ssl.create_default_context(cafile=folder.file("ca.pem"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        shown = []
        for each in (plain[0], plain[-1]):
            secure = stack.enter_context(context.wrap_socket(each, server_hostname="localhost"))
            peer = Peer(secure)
            shown.append(time.monotonic() - began)
            assert peer.ask(Ping) == Done(peer.correlation)
        assert shown[-1] > 1.0


def test_what_comes_with_a_proxys_header_waits_too_and_whoever_is_lost_has_left(folder, known, stopped):  # noqa: F811
    line, clock = stopped
    endpoint = TlsServerEndpoint(clock, described(folder.endpoint()), known, 1)
    factory = TlsFactory(endpoint.certificates, Factory.forProtocol(Echo), clock, line)
    made = [factory.buildProtocol(None) for _ in range(2)]
    transports = [StringTransport() for _ in made]
    tls_in, tls_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = ssl.create_default_context().wrap_bio(tls_in, tls_out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        secure.do_handshake()
    hello = tls_out.read()
    for each, transport in zip(made, transports, strict=True):
        each.makeConnection(transport)
        each.dataReceived(hello[:100])
        each.dataReceived(hello[100:])
        assert transport.producerState == "paused"
        assert not transport.value()
    made[0].connectionLost(Failure(ConnectionDone()))
    assert len(line) == 1
    clock.advance(0.02)
    assert transports[1].value()[:1] == b"\x16"
    assert transports[1].producerState == "producing"
