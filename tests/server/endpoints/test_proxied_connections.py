"""Test connections that come through proxies, at a real broker: who may say for whom they are, and what follows."""

import contextlib
import re
import socket
import ssl
import struct

import pytest

import txbroker
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.certificates import Folder
from tests.support.peer import Peer
from txbroker.server.connections.strangers import MAX_OF_ADDRESS
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAGIC, VERSIONS, Done, Hello, Offered, Ping, Refused

pytestmark = pytest.mark.slow

PROXY, OTHER = "127.0.0.7", "127.0.0.1"
HELLO = encode(Hello(1, MAGIC, list(VERSIONS), "tester"))


def text(host, port=4711):
    family = "TCP6" if ":" in host else "TCP4"
    return f"PROXY {family} {host} {'::1' if ':' in host else '10.0.0.1'} {port} 7654\r\n".encode()


def binary(host, command=0x21):
    place = socket.inet_aton(host) + bytes(4) + struct.pack(">HH", 4711, 7654) + b"\x03\x00\x04crc!"
    return b"\r\n\r\n\x00\r\nQUIT\n" + bytes([command, 0x11]) + struct.pack(">H", len(place)) + place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Folder(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory, folder):
    words = ("--insecure-open", "--listen", "tcp:0:interface=127.0.0.1", "--listen", folder.endpoint())
    settings = ("--set", f"proxies={PROXY}, 2001:db8:7::/48", "--set", "hello_timeout=2s")
    with told_broker(tmp_path_factory.mktemp("proxied") / "data", *words, *settings) as process:
        process.ready()
        yield process


@pytest.fixture
def port(broker):
    return broker.port


@pytest.fixture
def tls_port(broker):
    return int(re.search(r"tls:127\.0\.0\.1:(\d+)", broker.ready_line)[1])


@contextlib.contextmanager
def connected(port, source=PROXY, header=b""):
    """A connection from an address, with the beginning that a proxy would have sent."""
    with socket.create_connection((OTHER, port), PATIENCE, source_address=(source, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(header)
        yield connection


def admin(broker):
    return txbroker.connect(f"unix:{broker.data_dir}/admin.sock", timeout=10)


@pytest.mark.parametrize("header", [text("192.0.2.9"), binary("192.0.2.9")], ids=["v1", "v2"])
def test_a_session_has_the_address_in_the_header_and_so_has_the_log(broker, port, header):
    with connected(port, header=header) as connection, Peer(connection) as peer, admin(broker) as watching:
        assert peer.ask(Ping) == Done(peer.correlation)
        assert "192.0.2.9:4711" in [session.address for session in watching.sessions()]
        peer.socket.sendall(bytes(100))
        assert peer.is_closed()
        broker.wait_for("dropping 192.0.2.9:4711: .")


def test_a_header_may_come_in_pieces_and_with_what_is_behind_it(port):
    header = text("2001:db8::9")
    with connected(port) as connection:
        for byte in header[:-1]:
            connection.sendall(bytes([byte]))
        connection.sendall(header[-1:] + HELLO)
        peer = Peer(connection, hello=False)
        assert isinstance(peer.read()[0], Offered)


def test_below_tls_the_header_comes_in_the_clear(broker, tls_port, folder):
    context = ssl.create_default_context(cafile=folder.file("ca.pem"))
    with (
        connected(tls_port, header=binary("192.0.2.10")) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
        Peer(secure) as peer,
        admin(broker) as watching,
    ):
        assert peer.ask(Ping) == Done(peer.correlation)
        assert "192.0.2.10:4711" in [session.address for session in watching.sessions()]


@pytest.mark.parametrize(
    "header", [b"PROXY UNKNOWN\r\n", binary("192.0.2.9", 0x20)], ids=["unknown", "local"]
)
def test_without_a_client_the_proxy_is_the_peer_and_still_nobody_of_this_machine(broker, port, header):
    with connected(port, header=header) as connection, Peer(connection) as peer, admin(broker) as watching:
        assert peer.ask(Ping) == Done(peer.correlation)
        host, source = connection.getsockname()
        assert f"{host}:{source}" in [session.address for session in watching.sessions()]


@pytest.mark.parametrize("header", [text("192.0.2.9"), binary("192.0.2.9")], ids=["v1", "v2"])
def test_from_any_other_address_a_header_is_a_violation_as_other_bytes_are(broker, port, header):
    with connected(port, OTHER, header) as connection:
        peer = Peer(connection, hello=False)
        assert peer.read()[0].error == "PeerViolation"
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .")


def test_over_tls_from_any_other_address_a_header_ends_the_connection(tls_port):
    with connected(tls_port, OTHER, text("192.0.2.9")) as connection:
        assert connection.recv(100)[:1] in (b"", b"\x15")  # an alert of TLS
        assert Peer(connection, hello=False).is_closed()


@pytest.mark.parametrize("beginning", [HELLO, b"PROXY TCP4 localhost 10.0.0.1 1 1\r\n", b"PROXY" * 200])
def test_a_named_one_without_a_header_is_refused_with_the_reason(broker, port, beginning):
    with connected(port, header=beginning) as connection:
        peer = Peer(connection, hello=False)
        answer = peer.read()[0]
        assert (type(answer), answer.error) == (Refused, "PeerViolation")
        assert "PROXY header" in answer.message
        assert peer.is_closed()
        broker.wait_for(f"dropping {peer.name}: .*PROXY header")


def test_a_named_one_that_says_nothing_is_dropped(broker, port, tls_port):
    for each in (port, tls_port):
        with connected(each, header=b"PROXY TCP4") as connection:
            peer = Peer(connection, hello=False)
            assert peer.is_closed()
            broker.wait_for(f"dropping {peer.name}: .*not said for whom within 2 s")


@pytest.mark.parametrize("host", ["192.0.2.66", "127.0.0.1", "2001:db8:66::1"])
def test_strangers_are_counted_by_the_address_in_the_header_also_if_it_is_one_of_this_machine(port, host):
    with contextlib.ExitStack() as stack:
        peers = [
            Peer(stack.enter_context(connected(port, header=text(host, 1 + number))), hello=False)
            for number in range(MAX_OF_ADDRESS + 1)
        ]
        answer = peers[-1].read()[0]
        assert answer.error == "LimitExceeded"
        assert f"{MAX_OF_ADDRESS} connections of" in answer.message
        if ":" in host:  # another one of the same network of 64 bits
            other = stack.enter_context(connected(port, header=text("2001:db8:66::2")))
            assert Peer(other, hello=False).read()[0].error == "LimitExceeded"
        with connected(port, header=text("192.0.2.67")) as connection, Peer(connection) as another:
            assert another.ask(Ping) == Done(another.correlation)


def mechanisms(connection):
    peer = Peer(connection, hello=False)
    peer.socket.sendall(HELLO)
    return peer.read()[0].mechanisms


def test_a_password_goes_through_no_proxy_in_the_clear_whatever_address_it_says(port, tls_port, folder):
    """What is safe on the loopback interface is not between a proxy and its client."""
    with connected(port, OTHER) as direct:
        assert "PLAIN" in mechanisms(direct)
    for header in (text("127.0.0.1"), text("::1"), binary("127.0.0.1"), b"PROXY UNKNOWN\r\n"):
        with connected(port, header=header) as connection:
            found = mechanisms(connection)
            assert "PLAIN" not in found
            assert "SCRAM-SHA-256" in found
    context = ssl.create_default_context(cafile=folder.file("ca.pem"))
    with (
        connected(tls_port, header=text("192.0.2.9")) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert "PLAIN" in mechanisms(secure)


def test_an_endpoint_of_this_machine_is_open_if_a_proxy_of_this_machine_may_lead_to_it(tmp_path):
    words = ("--set", "proxies=127.0.0.7", "--listen", f"unix:{tmp_path}/socket:mode=600")
    with told_broker(tmp_path / "data", "--listen", "tcp:0:interface=127.0.0.1", *words) as process:
        process.wait_for("whomever a proxy on this machine lets through.*nobody listens there until")
        ready = process.wait_for("txbroker ready ")
        assert f"listening=unix:{tmp_path}/socket " in ready
