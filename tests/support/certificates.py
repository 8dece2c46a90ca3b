"""Certificates for tests: issuers, and what they sign for hosts and clients, as files."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(1)
LOOPBACK = (
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)


class Signed:
    """A certificate with its key; what it signs itself is for tests of chains."""

    def __init__(
        self,
        name: str,
        issuer: Signed | None = None,
        names: Sequence[x509.GeneralName] = LOOPBACK,
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = DAY,
        hash: Any = hashes.SHA256,
        is_issuer: bool = False,
        key: Any = None,
    ) -> None:
        self.name = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Shop")]
            + [x509.NameAttribute(NameOID.COMMON_NAME, name)] * bool(name)
        )
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        builder = x509.CertificateBuilder(
            (issuer or self).name, self.name, self.key.public_key(), x509.random_serial_number()
        )
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        builder = builder.add_extension(x509.BasicConstraints(is_issuer, None), critical=True)
        if names and not is_issuer:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signer = (issuer or self).key
        self.made = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hash())
        self.ends = (now + ends).timestamp()
        self.begins = (now + begins).timestamp()

    @property
    def pem(self) -> bytes:
        return self.made.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.made.public_bytes(serialization.Encoding.DER)

    def key_pem(self, password: bytes = b"") -> bytes:
        encryption: Any = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )

    def sign(self, name: str, **how: Any) -> Signed:
        return Signed(name, self, **how)


def issuer(name: str = "Issuer", **how: Any) -> Signed:
    """An issuer that has signed itself."""
    return Signed(name, is_issuer=True, **how)


class Folder:
    """The files of a broker and of its clients: ``ca.pem``, ``broker.pem`` and ``broker.key``, ``client.pem``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.issuer = issuer()
        self.write("ca.pem", self.issuer.pem)
        self.broker = self.renewed("localhost")
        self.client = self.issuer.sign("billing", names=[x509.DNSName("billing.example")])
        self.write("client.pem", self.client.pem, self.client.key_pem())
        self.stranger = issuer("Stranger").sign("stranger")
        self.write("stranger.pem", self.stranger.pem, self.stranger.key_pem())

    def file(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, *contents: bytes) -> Path:
        """Replace a file, as who renews certificates does."""
        new = self.path / f"{name}.new"
        new.write_bytes(b"".join(contents))
        return new.replace(self.path / name)

    def renewed(self, name: str = "localhost", **how: Any) -> Signed:
        """Write a new certificate of the broker, and its key."""
        made = self.issuer.sign(name, **how)
        self.write("broker.key", made.key_pem())
        self.write("broker.pem", made.pem)
        self.broker = made
        return made

    def endpoint(self, clients: str = "none", port: int = 0, interface: str = "127.0.0.1") -> str:
        """The description of an endpoint with these files."""
        host = interface.replace(":", r"\:")
        ca = "" if clients == "none" else f":ca={self.file('ca.pem')}"
        return (
            f"tls:{port}:interface={host}:cert={self.file('broker.pem')}:key={self.file('broker.key')}{ca}"
            f":clients={clients}"
        )
