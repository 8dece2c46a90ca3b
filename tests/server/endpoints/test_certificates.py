"""Test certificates: what is proven before they are used, that the old ones stay otherwise, that changes are seen."""

import datetime
import os

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from twisted.logger import LogLevel, globalLogPublisher

from tests.support.certificates import DAY, Folder, issuer
from txbroker.errors import InvalidSetting
from txbroker.server.endpoints.certificate_files import (
    CertificateFiles,
    CertificatesRefused,
    ClientCertificates,
)
from txbroker.server.endpoints.certificates import Certificates, KnownCertificates


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def files(folder, clients=ClientCertificates.NONE):
    paths = [str(folder.file(name)) for name in ("broker.pem", "broker.key", "ca.pem")]
    if clients is ClientCertificates.NONE:
        paths[2] = ""
    return CertificateFiles(*paths, clients)


class Wall:
    """A clock that a test sets, in seconds from now."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        return datetime.datetime.now(datetime.UTC).timestamp() + self.ahead


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def errors():
    """What is logged as an error."""
    found = []

    def take(event):
        if event.get("log_level") is LogLevel.error and "reason" in event:
            found.append(event["reason"])

    globalLogPublisher.addObserver(take)
    yield found
    globalLogPublisher.removeObserver(take)


def other_key(folder):
    folder.write("broker.key", issuer().key_pem())


def encrypted(folder):
    folder.write("broker.key", folder.broker.key_pem(b"secret"))


def not_in_order(folder):
    intermediate = folder.issuer.sign("Between", is_issuer=True)
    leaf = intermediate.sign("localhost")
    folder.write("broker.key", leaf.key_pem())
    folder.write("broker.pem", leaf.pem, folder.issuer.pem, intermediate.pem)


def not_by_the_next(folder):
    folder.write("broker.pem", folder.broker.pem, issuer().pem)


def issuer_of_the_chain_expired(folder):
    between = folder.issuer.sign("Between", is_issuer=True, begins=-2 * DAY, ends=-DAY)
    leaf = between.sign("localhost")
    folder.write("broker.key", leaf.key_pem())
    folder.write("broker.pem", leaf.pem, between.pem)


BAD = {
    "other key": (other_key, "is not that of the first certificate in"),
    "encrypted": (encrypted, "is encrypted"),
    "no key": (lambda f: f.write("broker.key", f.broker.pem), "has no private key in PEM"),
    "damaged key": (
        lambda f: f.write("broker.key", f.broker.key_pem().replace(b"\nMIGH", b"\nAAAA")),
        "has a key that is damaged",
    ),
    "expired": (lambda f: f.renewed(begins=-2 * DAY, ends=-DAY), r"CN=localhost.* expired at \d{4}-.* UTC"),
    "not yet": (lambda f: f.renewed(begins=DAY, ends=2 * DAY), "is not valid before"),
    "issuer expired": (issuer_of_the_chain_expired, "CN=Between.* expired"),
    "order": (not_in_order, "certificate 2 in .* has not signed certificate 1"),
    "other issuer": (not_by_the_next, "certificate 2 in .* has not signed certificate 1"),
    "empty": (lambda f: f.write("broker.pem"), "broker.pem is empty"),
    "empty key": (lambda f: f.write("broker.key", b"\n"), "broker.key is empty"),
    "no certificate": (lambda f: f.write("broker.pem", b"hello"), "has no certificate in PEM"),
    "cut off": (lambda f: f.write("broker.pem", f.broker.pem[:200]), "a certificate that is damaged"),
    "gone": (lambda f: f.file("broker.pem").unlink(), "broker.pem cannot be read: No such file"),
    "a folder": (lambda f: (f.file("broker.key").unlink(), f.file("broker.key").mkdir()), "is not a file"),
    "large": (lambda f: f.write("broker.pem", f.broker.pem * 2000), "is larger than 1048576 bytes"),
    "weak": (
        lambda f: f.renewed(key=rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        "OpenSSL takes no such certificate or key",
    ),
    "ca": (
        lambda f: f.write("ca.pem", b"-----BEGIN CERTIFICATE-----\n"),
        "ca.pem has a certificate that is damaged",
    ),
    "empty ca": (lambda f: f.write("ca.pem"), "ca.pem is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_proven_is_refused_at_first_and_changes_nothing_later(folder, case, errors):
    certificates = Certificates(files(folder, ClientCertificates.REQUIRED))
    before = certificates.proven
    spoil, reason = BAD[case]
    spoil(folder)
    certificates.look()
    assert certificates.proven is before
    assert certificates.has_failed
    with pytest.raises(CertificatesRefused, match=reason) as refused:
        Certificates(files(folder, ClientCertificates.REQUIRED))
    assert errors == [str(refused.value)]
    certificates.look()
    assert len(errors) == 1, "once for each change"
    certificates.reload()
    assert len(errors) == 2, "but whenever somebody asks"
    if folder.file("broker.key").is_dir():
        folder.file("broker.key").rmdir()
    folder.write("ca.pem", folder.issuer.pem)
    folder.renewed()
    certificates.look()
    assert certificates.proven is not before
    assert not certificates.has_failed


def test_a_file_that_becomes_readable_is_noticed(folder):
    before = files(folder).stamp()
    folder.file("broker.key").chmod(0o640)
    assert files(folder).stamp() != before


def test_nothing_is_read_again_while_nothing_changes(folder):
    certificates = Certificates(files(folder))
    before = certificates.proven
    certificates.look()
    assert certificates.proven is before
    os.utime(folder.file("broker.key"), ns=(1, 1))
    certificates.look()
    assert certificates.proven is not before


def test_a_change_between_the_look_and_the_reading_is_not_missed(folder, monkeypatch):
    certificates = Certificates(files(folder))
    prove = certificates._prove

    def changed_meanwhile():
        found = prove()
        folder.renewed()
        return found

    monkeypatch.setattr(certificates, "_prove", changed_meanwhile)
    folder.renewed()
    certificates.look()
    monkeypatch.undo()
    before = certificates.proven
    certificates.look()
    assert certificates.proven is not before


def test_one_that_is_not_valid_yet_is_taken_when_it_is(folder, wall, errors):
    certificates = Certificates(files(folder), wall)
    before = certificates.proven
    folder.renewed(begins=DAY, ends=3 * DAY)
    certificates.look()
    certificates.look()
    assert (certificates.proven, len(errors)) == (before, 1)
    wall.ahead = DAY.total_seconds() + 1
    certificates.look()
    assert certificates.proven.not_after == folder.broker.ends
    assert not certificates.has_failed


def test_a_chain_in_order_is_taken_and_what_expires_first_counts(folder):
    between = folder.issuer.sign("Between", is_issuer=True, ends=DAY / 2)
    leaf = between.sign("localhost")
    folder.write("broker.key", leaf.key_pem())
    folder.write("broker.pem", leaf.pem, between.pem, folder.issuer.pem)
    assert Certificates(files(folder)).proven.not_after == between.ends


@pytest.mark.parametrize("key_first", [True, False])
def test_key_and_certificate_may_be_in_one_file_in_any_order(folder, key_first):
    made = folder.issuer.sign("localhost", key=ed25519.Ed25519PrivateKey.generate())
    parts = [made.key_pem(), made.pem, folder.issuer.pem]
    path = folder.write("both.pem", *(parts if key_first else [*parts[1:], parts[0]]))
    assert Certificates(CertificateFiles(str(path), str(path))).proven.not_after == folder.issuer.ends


class TestKnown:
    """The certificates of all listeners."""

    def test_the_same_files_are_loaded_once(self, folder):
        known = KnownCertificates()
        one, other = (known.of(files(folder), listener) for listener in ("tls:a:1", "tls:b:1"))
        assert one is other
        assert known.of(files(folder, ClientCertificates.OPTIONAL), "tls:c:1") is not one
        assert known.not_after() == dict.fromkeys(["tls:a:1", "tls:b:1", "tls:c:1"], folder.broker.ends)

    def test_all_are_looked_at_and_one_that_fails_is_told(self, folder):
        known = KnownCertificates()
        known.of(files(folder), "tls:a:1")
        known.of(files(folder, ClientCertificates.REQUIRED), "tls:b:1")
        folder.write("ca.pem")
        known.look()
        assert known.has_failed
        folder.write("ca.pem", folder.issuer.pem)
        renewed = folder.renewed(ends=2 * DAY)
        known.reload()
        assert not known.has_failed
        assert set(known.not_after().values()) == {renewed.ends}

    def test_the_first_load_is_a_setting_that_is_wrong(self, folder):
        folder.write("broker.pem")
        with pytest.raises(InvalidSetting, match=r"broker\.pem is empty; nothing was started"):
            KnownCertificates().of(files(folder), "tls:a:1")

    def test_without_the_packages_the_extra_is_named(self, folder, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "txbroker.server.endpoints.certificate_proof", None)
        with pytest.raises(InvalidSetting, match=r"pip install 'txbroker\[tls\]'"):
            KnownCertificates().of(files(folder), "tls:a:1")
