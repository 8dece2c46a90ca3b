"""Scan the port of TLS for what testssl and nmap look for: old versions, weak ciphers, renegotiation, compression."""

import re
import socket
import ssl
import subprocess
import warnings

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from twisted.internet.protocol import Factory

from tests.server.endpoints.test_tls_endpoint import Echo, folder, known, listen, thread  # noqa: F401
from tests.support.broker_process import PATIENCE

pytestmark = pytest.mark.slow

GOOD = re.compile(r"TLS_(AES|CHACHA20)_|ECDHE-(ECDSA|RSA)-(AES(128|256)-GCM|CHACHA20-POLY1305)")


@pytest.fixture(params=["elliptic", "rsa"])
def port(listen, folder, request):  # noqa: F811
    """A port whose certificate has a key of either kind: the choice of ciphers depends on it."""
    if request.param == "rsa":
        folder.renewed(key=rsa.generate_private_key(65537, 2048))
    return listen(Factory.forProtocol(Echo))


def agreed(port, version, ciphers="ALL:COMPLEMENTOFALL:@SECLEVEL=0"):
    """Return the connection's cipher and compression; None if the broker agrees to none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers(ciphers)
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                return secure.cipher()[0], secure.compression()
        except (ssl.SSLError, ConnectionError):
            return None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_versions_below_1_2_are_refused(port, version):
    assert agreed(port, version) is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_newer_ones_are_taken_without_compression(port, version):
    cipher, compression = agreed(port, version)
    assert GOOD.match(cipher)
    assert compression is None


def test_each_cipher_that_is_taken_is_authenticated_and_keeps_the_past_secret(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    names = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    taken = {
        name for name in names if agreed(port, ssl.TLSVersion.TLSv1_2, f"{name}:@SECLEVEL=0") is not None
    }
    assert len(names) > 20
    assert taken
    assert not [name for name in taken if not GOOD.match(name)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_may_offer_protocols_of_which_none_is_chosen(port, version):
    """As browsers, curl and Prometheus do for HTTP, and whatever is in Go."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
        context.wrap_socket(plain) as secure,
    ):
        assert secure.selected_alpn_protocol() is None
        secure.sendall(b"hello")
        assert secure.recv(100) == b"hello"


def test_a_client_cannot_renegotiate(port):
    """It would have the broker compute a handshake as often as it likes, past the line."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"]
    ended = subprocess.run(
        command, input="R\nhello\n", capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    said = ended.stdout + ended.stderr
    assert "RENEGOTIATING" in said
    assert re.search("no renegotiation|handshake failure|unexpected|alert", said), said
    assert said.count("Verify return code") <= 1 or "hello" not in ended.stdout.partition("RENEGOTIATING")[2]
    assert "Secure Renegotiation IS supported" in said
    assert "Compression: NONE" in said
