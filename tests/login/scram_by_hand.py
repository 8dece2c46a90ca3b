"""A client of SCRAM made of the formulas of RFC 5802, section 3: what the library says is not compared with itself."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import pbkdf2_hmac, sha256
from hmac import digest


def mac(key: bytes, data: bytes) -> bytes:
    return digest(key, data, sha256)


class ByHand:
    """One login. ``header`` is the first message's, ``bound`` the channel's data; ``said`` the header that is told to
    be bound, if another.
    """

    def __init__(
        self, user: str = "alice", password: str = "pencil", header: str = "n,,", bound: bytes = b""
    ) -> None:
        self.password = password.encode()
        self.bare = f"n={user},r=fyko+d2lbbFgONRv9qkxdawL".encode()
        self.header = header.encode()
        self.input = self.header + bound
        self.server_signature = b""

    def first(self) -> bytes:
        return self.header + self.bare

    def final(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = (part[2:] for part in challenge.split(b",", 2))
        salted = pbkdf2_hmac("sha256", self.password, b64decode(salt), int(iterations))
        without_proof = b"c=%b,r=%b" % (b64encode(self.input), nonce)
        message = b"%b,%b,%b" % (self.bare, challenge, without_proof)
        client_key = mac(salted, b"Client Key")
        signature = mac(sha256(client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.server_signature = mac(mac(salted, b"Server Key"), message)
        return b"%b,p=%b" % (without_proof, b64encode(proof))

    @property
    def server_final(self) -> bytes:
        return b"v=" + b64encode(self.server_signature)
