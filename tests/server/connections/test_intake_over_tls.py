"""Test TLS, where more arrives than was asked for: decrypted bytes are handed on although reading is paused.

It is counted, and the socket below is read in small pieces as soon as memory gets short, as one without TLS is.
"""

import contextlib
import ssl

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.ssl import DefaultOpenSSLContextFactory
from twisted.protocols.tls import TLSMemoryBIOFactory

from benchmarks.fair.certificate import write_certificate
from journal.constants import KIB, MIB
from tests.server.connections.test_protocol import HELLO, PEER, Rig, TransportOf
from txbroker.server.connections.protocol import SHORT_READ
from txbroker.server.connections.read_limits import Intake
from txbroker.wire.codec import encode
from txbroker.wire.messages import Send

BUDGET = MIB
READ = 64 * KIB
RECORD = 16 * KIB
"""What TLS decrypts at once."""
LARGE = encode(Send(2, 1), bytes(15 * MIB))


class Client:
    """A peer that speaks TLS, with the socket's part of the server's side."""

    def __init__(self, rig, factory):
        self.server = factory.buildProtocol(PEER)
        self.transport = TransportOf(self.server, PEER)
        self.server.makeConnection(self.transport)
        self.protocol = self.server.wrappedProtocol
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self._sent = b""
        self._shake_hands()
        self.write(HELLO)
        self.arrive()

    def _shake_hands(self):
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
            if self._out.pending:
                self.server.dataReceived(self._out.read())
            self._in.write(self.transport.value())
            self.transport.clear()

    def write(self, data):
        self._tls.write(data)
        self._sent += self._out.read()

    def arrive(self, most=READ):
        """One read of the socket, if it is read; whether anything came."""
        if not self._sent or not self.transport.reading:
            return False
        data, self._sent = self._sent[:most], self._sent[most:]
        self.server.dataReceived(data)
        return True


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    file = write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")
    return DefaultOpenSSLContextFactory(str(file), str(file))


@pytest.fixture
def rig():
    rig = Rig()
    rig.connections.intake = rig.intake = Intake(rig.accounts, rig.broker.settings.pending_bytes, BUDGET)
    return rig


@pytest.fixture
def clients(rig, options):
    factory = TLSMemoryBIOFactory(options, False, rig.factory, rig.clock)
    return [Client(rig, factory) for _ in range(10)]


def held(clients):
    return sum(len(client.protocol._decoder.begun) for client in clients)


def test_what_is_counted_is_what_is_held_and_stays_within_the_budget_and_reads(rig, clients):
    for client in clients:
        client.write(LARGE[: 4 * MIB])
    while sum(client.arrive() for client in clients[1:]):
        assert rig.intake.assembled == held(clients)
        reading = sum(client.transport.reading for client in clients[1:])
        assert reading <= 1 or rig.intake.assembled <= BUDGET + len(clients) * READ
    others = sorted(len(client.protocol._decoder.begun) for client in clients[1:])[:-1]
    assert sum(others) <= BUDGET + len(clients) * READ, "one goes on, so that there is progress"


def test_what_is_decrypted_while_reading_is_paused_counts(rig, clients):
    one = clients[0]
    one.write(LARGE[: READ - KIB])
    one.protocol.pause(1 << 10)
    assert not one.transport.reading
    one.server.dataReceived(one._sent)
    assert rig.intake.assembled == held(clients) >= READ - 2 * RECORD
    one.protocol.connectionLost(None)
    assert rig.intake.assembled == 0


def test_the_socket_below_is_read_in_small_pieces_while_memory_is_short(rig, clients):
    one = clients[0]
    socket = one.server.transport = FileDescriptor(reactor=rig.clock)
    for less, size in ((True, SHORT_READ), (False, FileDescriptor.bufferSize)):
        rig.connections.intake.on_short = rig.connections._read_less
        rig.connections.intake.on_short(less)
        assert socket.bufferSize == size
