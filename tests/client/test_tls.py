"""Test a client over TLS: what it trusts, and that it fails at once when it does not."""

import asyncio
import datetime
import re
import ssl
import subprocess
import sys
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker, ScriptedServer
from tests.support.broker_process import SMALL_FILES, told_broker
from tests.support.certificates import Folder
from tests.support.repository import PACKAGES, ROOT
from txbroker.client import asyncio as asyncio_client
from txbroker.client import blocking
from txbroker.client.blocking.link import Link, open_socket
from txbroker.client.core.core import Core
from txbroker.client.core.options import Options
from txbroker.client.core.url import Address, parse
from txbroker.client.loop import tls
from txbroker.client.loop.poller import Poller
from txbroker.errors import CertificateRefused, Misuse


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a key and a certificate for localhost, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(1))
        .not_valid_after(today + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    encoding = serialization.Encoding.PEM
    file.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(encoding)
    )
    return file


@pytest.fixture(scope="module")
def port(certificate):
    """A scripted broker over TLS."""
    broker = ScriptedBroker()
    ready, over, found = threading.Event(), asyncio.Event(), []

    async def served(reader, writer):
        feed = broker.connection()
        while data := await reader.read(1 << 16):
            writer.write(feed(data))
        writer.close()

    async def serve():
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
        found.extend([server.sockets[0].getsockname()[1], asyncio.get_running_loop()])
        ready.set()
        async with server:
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    yield found[0]
    found[1].call_soon_threadsafe(over.set)
    thread.join()


def through_blocking(url):
    with blocking.connect(url) as connection:
        connection.send("t", b"x")


def through_asyncio(url):
    async def work():
        async with await asyncio_client.connect(url) as connection:
            await connection.send("t", b"x")

    asyncio.run(work())


TWISTED = """
import sys
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react
from txbroker import errors
from txbroker.client import twisted as client

async def main(reactor):
    try:
        async with await client.connect(sys.argv[1], reactor=reactor) as connection:
            await connection.send("t", b"x")
    except errors.TxBrokerError as error:
        print(type(error).__name__, error)

react(lambda reactor: ensureDeferred(main(reactor)))
"""


def through_twisted(url):
    ran = subprocess.run(
        [sys.executable, "-c", TWISTED, url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    assert "Traceback" not in ran.stderr, ran.stderr
    kind, _, said = ran.stdout.strip().partition(" ")
    if kind:
        raise {"CertificateRefused": CertificateRefused, "Misuse": Misuse}[kind](said)


IN_A_PROCESS = pytest.param(through_twisted, marks=pytest.mark.slow)
FACES = pytest.mark.parametrize("through", [through_blocking, through_asyncio, IN_A_PROCESS])


@pytest.mark.sampled
@FACES
def test_a_broker_whose_certificate_is_trusted_is_worked_with(through, port, certificate):
    through(f"tls:localhost:{port}:ca={certificate}")


@pytest.mark.sampled
@FACES
@pytest.mark.parametrize(("host", "trusts"), [("localhost", False), ("127.0.0.1", True)])
def test_a_refused_certificate_is_said_at_once(through, port, certificate, host, trusts):
    """It was tried again until the time was up, and was a ConnectionUnavailable."""
    url = f"tls:{host}:{port}" + (f":ca={certificate}" if trusts else "")
    with pytest.raises(
        CertificateRefused, match=f"at tls:{host}:{port} was refused: .*nothing was sent. Say the host"
    ):
        through(url)


@pytest.mark.sampled
@FACES
@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_said_at_once(through, content, tmp_path):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Misuse, match=r"certificates in .*ca\.pem cannot be read .*nothing was opened"):
        through(f"tls:localhost:1:ca={file}")


def test_one_that_has_had_a_session_goes_on_for_the_certificate_may_be_renewed():
    refused = ssl.SSLCertVerificationError("expired")
    refused.verify_message = "certificate has expired"
    rig = Rig(ScriptedBroker())
    assert rig.core.session
    tls.end_if_untrusted(rig.core, Address("tls", "localhost", 1), refused)
    assert rig.core.fatal is None
    rig.core.session = 0
    tls.end_if_untrusted(rig.core, Address("tls", "localhost", 1), refused)
    assert isinstance(rig.core.fatal, CertificateRefused)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def wants(folder):
    """The port of a scripted broker that wants certificates of its clients, by the newest TLS that it speaks."""
    servers = []

    def listen(most=ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder.file("ca.pem"))
        context.load_cert_chain(folder.file("broker.pem"), folder.file("broker.key"))
        context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, most
        servers.append(ScriptedServer(ScriptedBroker(), context))
        return servers[-1]

    yield listen
    for server in servers:
        server.close()


def address(port, folder, shows=""):
    return f"tls:localhost:{port}:ca={folder.file('ca.pem')}" + (
        f":cert={folder.file(shows)}" if shows else ""
    )


VERSIONS = pytest.mark.parametrize("most", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])


@pytest.mark.sampled(3)
@FACES
@VERSIONS
def test_a_client_shows_its_certificate(through, wants, folder, most):
    server = wants(most)
    through(address(server.port, folder, "client.pem"))
    folder.write("alone.pem", folder.client.pem)
    key = folder.write("alone.key", folder.client.key_pem())
    through(f"{address(server.port, folder, 'alone.pem')}:key={key}")


@pytest.mark.sampled(3)
@FACES
def test_a_certificate_is_shown_with_those_that_signed_it(through, wants, folder):
    between = folder.issuer.sign("Between", is_issuer=True)
    client = between.sign("client")
    folder.write("chain.pem", client.pem, between.pem, client.key_pem())
    through(address(wants().port, folder, "chain.pem"))


@pytest.mark.sampled(3)
@FACES
@VERSIONS
@pytest.mark.parametrize(
    ("shows", "reason"),
    [
        ("", "a client without a certificate: "),
        ("stranger.pem", r"the certificate in .*stranger\.pem: .*unknown ca"),
    ],
)
def test_a_broker_that_refuses_the_client_is_not_asked_again(through, wants, folder, most, shows, reason):
    """With TLS 1.3 the client is connected before it learns of it."""
    server = wants(most)
    with pytest.raises(
        CertificateRefused, match=f"at tls:localhost:.* has refused {reason}.*nothing was done. Show"
    ):
        through(address(server.port, folder, shows))
    # why a connection was closed may be lost on the way, if something was sent on it by then: it is asked for again
    assert len(server._connections) <= 3


def other_key(folder):
    return folder.write("bad.pem", folder.client.pem, folder.stranger.key_pem())


def encrypted(folder):
    return folder.write("bad.pem", folder.client.pem, folder.client.key_pem(b"secret"))


MISTAKES = {
    "another key": (other_key, "key values mismatch"),
    "encrypted": (encrypted, "the key is encrypted"),
    "empty": (lambda folder: folder.write("bad.pem"), ""),
    "no key": (lambda folder: folder.write("bad.pem", folder.client.pem), ""),
    "none": (lambda folder: None, "No such file"),
}


@pytest.mark.sampled(3)
@FACES
@pytest.mark.parametrize("mistake", MISTAKES)
def test_files_that_do_not_fit_are_said_before_anything_is_opened(through, folder, mistake):
    make, reason = MISTAKES[mistake]
    make(folder)
    with pytest.raises(Misuse, match=rf"bad\.pem cannot be used \(.*{reason}.*nothing was opened"):
        through(address(1, folder, "bad.pem"))


def test_a_renewed_certificate_is_shown_at_the_next_connection(wants, folder):
    server = wants()
    old = folder.client.made.serial_number
    with blocking.connect(address(server.port, folder, "client.pem")) as connection:
        connection.send("t", b"x")
        renewed = folder.issuer.sign("renewed")
        folder.write("client.pem", renewed.pem, renewed.key_pem())
        server.cut()
        connection.send("t", b"x")
    shown = [x509.load_der_x509_certificate(each).serial_number for each in server.shown]
    assert shown == [old, renewed.made.serial_number]


def test_one_that_has_had_a_session_goes_on_though_the_broker_refuses_it():
    """Its certificate may be renewed."""
    rig = Rig(ScriptedBroker())
    refused = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    tls.end_if_untrusted(rig.core, Address("tls", "localhost", 1), refused)
    assert rig.core.fatal is None
    rig.core.session = 0
    tls.end_if_untrusted(rig.core, Address("tls", "localhost", 1), ConnectionResetError("reset"))
    assert rig.core.fatal is None, "that may be anything"
    tls.end_if_untrusted(rig.core, Address("tls", "localhost", 1), refused)
    assert isinstance(rig.core.fatal, CertificateRefused)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with a listener for clients with certificates, its files, and the port of that."""
    folder = Folder(tmp_path_factory.mktemp("broker"))
    with told_broker(
        folder.path / "data", "--listen", folder.endpoint("required"), "--set", SMALL_FILES
    ) as broker:
        port = broker.ready()
        with blocking.connect(f"tcp:127.0.0.1:{port}") as connection:
            connection.create_topic("t")
        yield int(re.search(r",tls:127\.0\.0\.1:(\d+)", broker.ready_line)[1]), folder


@pytest.mark.slow
@FACES
class TestBroker:
    """The broker itself, which closes a connection as soon as it has refused a certificate."""

    def test_who_shows_a_certificate_is_let_in(self, through, broker):
        port, folder = broker
        through(address(port, folder, "client.pem"))

    @pytest.mark.parametrize("shows", ["", "stranger.pem"])
    def test_who_does_not_is_told_so_at_once(self, through, broker, shows):
        port, folder = broker
        with pytest.raises(CertificateRefused, match=r"has refused .*nothing was done\. Show one"):
            through(address(port, folder, shows))


def test_a_refusal_is_heard_though_writing_fails_before_anything_is_read(wants, folder):
    server = wants()
    where = parse(address(server.port, folder))
    core = Core(Options(), time.monotonic, lambda: 0.5, lambda: 0)
    poller = Poller()
    link = Link(core, poller, lambda: None, where)
    core.connecting()
    connection = open_socket(where, 5.0)
    server.wait_until_cut()
    link.take(connection)  # its first bytes reach nobody, which is noticed at the next
    for _ in range(2):
        link.unsent = memoryview(b"more")
        link.write()
    assert isinstance(core.fatal, CertificateRefused)
    assert not link.is_up
    poller.close()
