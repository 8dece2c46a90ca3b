"""Test the facts of a TLS connection, over real ones: which certificate it has, and what the peer's proves."""

import ipaddress
import queue

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID, ObjectIdentifier
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import WrappingFactory

from tests.server.endpoints.test_tls_endpoint import connected, folder, known, listen, thread  # noqa: F401
from tests.support.broker_process import PATIENCE
from txbroker.server.connections.tls_facts import tls_facts


class Told(Protocol):
    """Tells the facts of its connection at each byte, and when it is lost."""

    def dataReceived(self, data):
        self.factory.told.put(tls_facts(self.transport))
        self.transport.write(data)

    def connectionLost(self, reason=None):
        self.factory.lost.put(tls_facts(self.transport))


@pytest.fixture
def factory():
    made = Factory.forProtocol(Told)
    made.told, made.lost = queue.Queue(), queue.Queue()
    return made


def facts(factory, secure):
    secure.sendall(b"x")
    assert secure.recv(1) == b"x"
    return factory.told.get(timeout=PATIENCE)


NAMES = [
    x509.DNSName("host.example"),
    x509.RFC822Name("a@b.example"),
    x509.UniformResourceIdentifier("spiffe://shop/billing"),
    x509.IPAddress(ipaddress.ip_address("::1")),
    x509.IPAddress(ipaddress.ip_address("192.0.2.7")),
    x509.RegisteredID(ObjectIdentifier("1.2.3")),
    x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])),
]


def test_the_peers_certificate_says_who_it_is(listen, folder, factory):  # noqa: F811
    client = folder.issuer.sign('bil,"ling', names=NAMES)
    folder.write("named.pem", client.pem, client.key_pem())
    with connected(listen(factory, clients="required"), folder, "named.pem") as secure:
        found = facts(factory, secure)
    assert found.peer_subject == r"CN=bil\,\"ling,O=Shop"
    assert found.peer_names == [
        "DNS:host.example",
        "email:a@b.example",
        "URI:spiffe://shop/billing",
        "IP:::1",
        "IP:192.0.2.7",
    ]
    assert found.server_certificate == folder.broker.der
    assert found.server_signature_hash == "sha256"


@pytest.mark.parametrize(("clients", "shows"), [("none", "client.pem"), ("optional", None)])
def test_a_peer_without_one_or_that_was_not_asked_has_no_name(listen, folder, factory, clients, shows):  # noqa: F811
    with connected(listen(factory, clients=clients), folder, shows) as secure:
        found = facts(factory, secure)
    assert (found.peer_subject, found.peer_names) == ("", [])
    assert factory.lost.get(timeout=PATIENCE) in (None, found), "nothing fails when it is lost"


def test_a_certificate_without_other_names_has_a_subject(listen, folder, factory):  # noqa: F811
    client = folder.issuer.sign("plain", names=())
    folder.write("plain.pem", client.pem, client.key_pem())
    with connected(listen(factory, clients="required"), folder, "plain.pem") as secure:
        found = facts(factory, secure)
    assert (found.peer_subject, found.peer_names) == ("CN=plain,O=Shop", [])


def test_after_a_renewal_an_old_connection_still_has_the_certificate_it_was_made_with(
    listen, folder, factory, known, thread  # noqa: F811
):  # fmt: skip
    port = listen(factory)
    before = folder.broker
    with connected(port, folder) as old:
        renewed = folder.renewed(hash=hashes.SHA384)
        thread.run(known.look)
        with connected(port, folder) as new:
            found = facts(factory, new)
            assert (found.server_certificate, found.server_signature_hash) == (renewed.der, "sha384")
            found = facts(factory, old)
            assert (found.server_certificate, found.server_signature_hash) == (before.der, "sha256")


def test_a_signature_that_names_no_hash_has_no_binding(listen, folder, factory):  # noqa: F811
    signer = ed25519.Ed25519PrivateKey.generate()
    made = type(folder.issuer)("localhost", key=signer)
    folder.write("broker.pem", made.pem)
    folder.write("broker.key", made.key_pem())
    port = listen(factory)
    folder.write("ca.pem", made.pem)
    with connected(port, folder) as secure:
        assert facts(factory, secure).server_signature_hash == ""


def test_they_are_found_below_what_wraps_the_transport(listen, folder, factory):  # noqa: F811
    class Wrapped(WrappingFactory):
        pass

    with connected(listen(Wrapped(factory)), folder) as secure:
        assert facts(factory, secure).server_certificate == folder.broker.der


def test_without_tls_there_are_none(thread, factory):  # noqa: F811
    import socket

    port = thread.listen(TCP4ServerEndpoint(thread.reactor, 0, interface="127.0.0.1"), factory)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        assert facts(factory, plain) is None
    assert tls_facts(None) is None


@pytest.mark.parametrize(
    ("made_with", "named"), [("md5", "sha256"), ("sha1", "sha256"), ("sha512", "sha512")]
)
def test_hashes_that_are_too_weak_are_replaced_as_rfc_5929_says(made_with, named):
    from types import SimpleNamespace

    from txbroker.server.connections.tls_facts import _signature_hash

    certificate = SimpleNamespace(signature_hash_algorithm=SimpleNamespace(name=made_with))
    assert _signature_hash(certificate) == named
