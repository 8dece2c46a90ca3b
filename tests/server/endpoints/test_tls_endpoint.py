"""Test the endpoint of TLS over real connections: its description, whom it lets in, and what a renewal changes."""

import contextlib
import os
import re
import socket
import ssl

import pytest
from OpenSSL.SSL import OP_NO_TLSv1, OP_NO_TLSv1_1, OP_NO_TLSv1_2
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import globalLogPublisher

from tests.support.broker_process import PATIENCE
from tests.support.certificates import DAY, Folder
from tests.support.reactor_thread import reactor_thread
from txbroker.errors import InvalidSetting
from txbroker.server.endpoints import listening
from txbroker.server.endpoints.certificate_files import CertificateFiles, ClientCertificates
from txbroker.server.endpoints.certificates import KnownCertificates
from txbroker.server.endpoints.tls_endpoint import FORM, described


class Echo(Protocol):
    def dataReceived(self, data):
        self.transport.write(data)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def thread():
    with reactor_thread() as thread:
        yield thread


@pytest.fixture
def known():
    return KnownCertificates()


@pytest.fixture
def listen(thread, folder, known):
    """Listens to an endpoint with the folder's files, and returns its port."""

    def listen(factory=None, **how):
        endpoint = listening.endpoint_of(thread.reactor, folder.endpoint(**how), known)
        return thread.listen(endpoint, factory or Factory.forProtocol(Echo))

    return listen


@contextlib.contextmanager
def connected(port, folder, shows=None, host="127.0.0.1", most=None):
    context = ssl.create_default_context(cafile=folder.file("ca.pem"))
    if shows:
        context.load_cert_chain(folder.file(shows))
    if most:
        context.maximum_version = most
    with (
        socket.create_connection((host, port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        yield secure


def echoed(secure, data=b"hello"):
    secure.sendall(data)
    return secure.recv(100)


def is_refused(*arguments, **how):
    """Whether the peer is refused, in the handshake or (TLS 1.3) at the first read."""
    try:
        with connected(*arguments, **how) as secure:
            return echoed(secure) == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize(
    ("text", "port", "interface", "files"),
    [
        ("tls:1:cert=/c", 1, "", CertificateFiles("/c", "/c")),
        (r"tls:port=0:cert=/c:key=/k:interface=\:\:1", 0, "::1", CertificateFiles("/c", "/k")),
        (r"tls:key=/a\:b\\:cert=/c=d:port=5", 5, "", CertificateFiles("/c=d", "/a:b\\")),
        (
            "tls:7:clients=required:ca=/i:cert=/c:interface=localhost",
            7,
            "localhost",
            CertificateFiles("/c", "/c", "/i", ClientCertificates.REQUIRED),
        ),
        (
            "tls:7:clients=optional:ca=/i:cert=/c",
            7,
            "",
            CertificateFiles("/c", "/c", "/i", ClientCertificates.OPTIONAL),
        ),
        ("tls:7:clients=none:cert=c", 7, "", CertificateFiles(os.path.abspath("c"), os.path.abspath("c"))),
    ],
)
def test_a_description_says_where_and_with_which_files(text, port, interface, files):
    found = described(text)
    assert (found.port, found.interface, found.files) == (port, interface, files)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls:7655", "names no certificate"),
        ("tls:7655:key=/k", "names no certificate"),
        ("tls:7655:cert=", "names no certificate"),
        ("tls:cert=/c", "'' is not a port"),
        ("tls:70000:cert=/c", "'70000' is not a port"),
        ("tls:x:cert=/c", "'x' is not a port"),
        ("tls:7655:cert=/c:certKey=/k", "'certKey=/k' is none of port="),
        ("tls:7655:cert=/c:cert=/d", "cert is there twice"),
        ("tls:7655:port=7656:cert=/c", "port is there twice"),
        ("tls:7655:127.0.0.1:cert=/c", "'127.0.0.1' is none of"),
        ("tls:7655:cert=/c:ca=/i", "say clients=optional or clients=required"),
        ("tls:7655:cert=/c:clients=required", "needs the issuers of their certificates"),
        (
            "tls:7655:cert=/c:clients=some:ca=/i",
            "clients is 'some', it must be one of none, optional, required",
        ),
        ("tls:7655:cert=/c:", "'' is none of"),
        ("tls:7655:cert=/c:interface=::1", "'' is none of"),
    ],
)
def test_what_is_no_description_is_refused_with_the_reason_and_the_form(text, reason):
    with pytest.raises(InvalidSetting) as refused:
        listening.endpoint_of(None, text)
    assert reason in str(refused.value)
    assert "One is tls:7655:interface=127.0.0.1:cert=FILE:key=FILE" in str(refused.value)


def test_twisteds_own_strings_are_refused_with_ours():
    with pytest.raises(InvalidSetting, match=re.escape(f"Say {FORM}")):
        listening.endpoint_of(None, "ssl:7655:privateKey=key.pem:certKey=cert.pem")


def test_files_that_are_not_proven_are_refused_before_anything_listens(folder):
    folder.write("broker.pem")
    with pytest.raises(InvalidSetting, match=r"^tls:0:.*broker\.pem is empty; nothing was started"):
        listening.open_ones(None, [folder.endpoint()])


@pytest.mark.parametrize(
    ("interface", "who"),
    [
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::", "every interface"),
        ("192.0.2.7", "192.0.2.7"),
        ("localhost", "localhost"),
    ],
)
@pytest.mark.parametrize("clients", ["none", "optional", "required"])
def test_who_can_reach_it_is_judged_by_the_interface(folder, interface, who, clients):
    """A certificate says who somebody is, not what that one may do where nobody has to log in."""
    found = listening.open_ones(None, [folder.endpoint(clients, interface=interface)])
    assert [who in sentence for sentence in found.values()] == [True] * bool(who)
    if who:
        proven = listening.open_ones(None, [folder.endpoint(clients, interface=interface)], but_proven=True)
        assert bool(proven) is (clients != "required")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_listens_on_either_family(listen, folder, host):
    with connected(listen(interface=host), folder, host=host) as secure:
        assert secure.getpeercert()["subject"][1] == (("commonName", "localhost"),)
        assert echoed(secure) == b"hello"


@pytest.mark.parametrize("most", [None, ssl.TLSVersion.TLSv1_2])
@pytest.mark.parametrize(
    ("clients", "admitted", "refused"),
    [
        ("none", [None, "client.pem", "stranger.pem"], []),
        ("optional", [None, "client.pem"], ["stranger.pem"]),
        ("required", ["client.pem"], [None, "stranger.pem"]),
    ],
)
def test_clients_are_let_in_by_their_certificates(listen, folder, clients, admitted, refused, most):
    port = listen(clients=clients)
    for shows in admitted:
        with connected(port, folder, shows, most=most) as secure:
            assert echoed(secure) == b"hello"
    for shows in refused:
        assert is_refused(port, folder, shows, most=most)


def test_an_expired_certificate_of_a_client_is_refused(listen, folder):
    expired = folder.issuer.sign("late", begins=-2 * DAY, ends=-DAY)
    folder.write("late.pem", expired.pem, expired.key_pem())
    assert is_refused(listen(clients="optional"), folder, "late.pem")


def test_an_issuer_is_trusted_that_another_has_signed(listen, folder):
    between = folder.issuer.sign("Between", is_issuer=True)
    client = between.sign("client")
    folder.write("other.pem", client.pem, client.key_pem())
    broker = folder.file("ca.pem").read_bytes()
    folder.write("ca.pem", between.pem)
    port = listen(clients="required")
    folder.write("ca.pem", broker)
    assert not is_refused(port, folder, "other.pem")
    assert is_refused(port, folder, "client.pem"), "its issuer is not among them"


def test_the_brokers_certificate_is_shown_with_those_that_signed_it(listen, folder):
    between = folder.issuer.sign("Between", is_issuer=True)
    made = between.sign("localhost")
    folder.write("broker.pem", made.pem, between.pem)
    folder.write("broker.key", made.key_pem())
    with connected(listen(), folder) as secure:
        assert secure.getpeercert(binary_form=True) == made.der


def test_nothing_older_than_tls_1_2_is_spoken(folder, known):
    """Asked of OpenSSL, which has no client any more that speaks it."""
    context = listening.endpoint_of(None, folder.endpoint(), known).certificates.proven.context
    assert [bool(context.set_options(0) & each) for each in (OP_NO_TLSv1, OP_NO_TLSv1_1, OP_NO_TLSv1_2)] == [
        True,
        True,
        False,
    ]


def test_after_a_renewal_new_connections_have_the_new_certificate_and_old_ones_go_on(
    listen, folder, known, thread
):
    port = listen()
    with connected(port, folder) as old:
        before = old.getpeercert(binary_form=True)
        renewed = folder.renewed()
        thread.run(known.look)
        with connected(port, folder) as new:
            assert new.getpeercert(binary_form=True) == renewed.der != before
            assert echoed(new) == echoed(old) == b"hello"
        folder.write("broker.pem", b"spoilt")
        thread.run(known.reload)
        with connected(port, folder) as third:
            assert third.getpeercert(binary_form=True) == renewed.der
        assert echoed(old, b"x" * 90) == b"x" * 90


def test_who_was_admitted_by_an_issuer_that_is_gone_is_not_any_more(listen, folder, known, thread):
    port = listen(clients="required")
    broker_issuer = folder.issuer.pem
    with connected(port, folder, "client.pem") as old:
        folder.write("ca.pem", folder.stranger.pem)
        thread.run(known.look)
        folder.write("ca.pem", broker_issuer)  # for this client, which trusts by the same file
        assert is_refused(port, folder, "client.pem")
        assert echoed(old) == b"hello"


def test_a_connection_that_the_factory_does_not_want_is_closed_without_a_fault(listen, folder):
    class Full(Factory):
        def buildProtocol(self, addr):
            return None

    failures = []
    globalLogPublisher.addObserver(failures.append)
    assert is_refused(listen(Full()), folder)
    globalLogPublisher.removeObserver(failures.append)
    assert [event for event in failures if event.get("isError")] == []
