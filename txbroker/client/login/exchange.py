"""The client's side of one login, in each mechanism. ``txbroker.login`` has the broker's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from journal.records.access_entries import LEAST_ITERATIONS, MOST_ITERATIONS
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.packages import scramp
from txbroker.client.login.verifier import not_allowed
from txbroker.errors import BrokerNotProven, Misuse, PeerViolation

if TYPE_CHECKING:
    from scramp import ScramClient

EXTERNAL: Final = "EXTERNAL"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"
SCRAM: Final = "SCRAM-SHA-256"
PLAIN: Final = "PLAIN"
ANONYMOUS: Final = "ANONYMOUS"

END_POINT: Final = "tls-server-end-point"
MAX_CHALLENGE: Final = 4_096
MAX_TOKEN: Final = 16 * 1024

_ITERATIONS: Final = re.compile(r"r=[^,]*,s=[^,]*,i=([0-9]{1,20})(?:,|\Z)")


class ClientExchange(Protocol):
    """The client's side of one login. Every call may block (files, callables, PBKDF2): keep them off a loop.

    The broker's success must be passed to ``finish``, whatever the mechanism: that is where the broker is proven.
    """

    mechanism: str

    def first(self) -> bytes:
        """Return the initial response.

        Raises ``Misuse`` for secrets that cannot be read or used, and what a callable of the credentials raises.
        """

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge.

        Raises ``BrokerNotProven`` if the broker asks for what no honest one does, ``PeerViolation`` for bytes that are
        no challenge of the mechanism.
        """

    def finish(self, final: bytes) -> None:
        """Verify what came with the broker's success; raises ``BrokerNotProven`` if it does not prove the broker."""


class _Shown:
    """Mechanisms with one message: the client shows something, the broker says yes or no, and proves nothing."""

    def __init__(self, mechanism: str, credentials: Credentials | None) -> None:
        self.mechanism = mechanism
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mechanism})"

    def answer(self, challenge: bytes) -> bytes:  # noqa: ARG002 - whatever it says
        """Raise PeerViolation: the broker has been told all."""
        raise PeerViolation(f"a challenge in a login by {self.mechanism}, which has none")

    def finish(self, final: bytes) -> None:
        """Take the broker's success."""
        if final:
            raise PeerViolation(
                f"a success with {len(final)} bytes in a login by {self.mechanism}, which has none"
            )


class Anonymous(_Shown):
    """ANONYMOUS (RFC 4505): the client proves nothing, and says nothing of itself."""

    def first(self) -> bytes:
        """Return nothing."""
        return b""


class External(_Shown):
    """EXTERNAL (RFC 4422): the connection itself proves who it is."""

    def first(self) -> bytes:
        """Return the user's name, if the client has one."""
        return b"" if self._credentials is None else self._credentials.user.encode()


class Plain(_Shown):
    """PLAIN (RFC 4616): the password itself."""

    def first(self) -> bytes:
        """Return user and password."""
        assert self._credentials is not None
        return b"\0%b\0%b" % (self._credentials.user.encode(), self._credentials.read_password().encode())


class Bearer(_Shown):
    """OAUTHBEARER (RFC 7628): a token."""

    def first(self) -> bytes:
        """Return the token, with the user if the client has one."""
        assert self._credentials is not None
        token = self._credentials.read_token()
        if len(token) > MAX_TOKEN or not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
            raise Misuse(
                f"the token has {len(token)} characters, or some that are in no token: {MAX_TOKEN:,} letters, digits "
                "and -._~+/ are the most. Nothing was sent"
            )
        identity = f"a={self._credentials.user}" if self._credentials.user else ""
        return f"n,{identity},\x01auth=Bearer {token}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes:  # noqa: ARG002 - every reason is told in the same way
        """Answer the broker's refusal, as RFC 7628 wants it; the broker's error is next."""
        return b"\x01"


class Scram:
    """SCRAM-SHA-256, and -PLUS if it is bound to the broker's certificate (RFC 5802, 7677).

    ``certificate_hash`` is what the client could have bound: without PLUS it tells the broker so, which then knows if
    somebody in between has taken PLUS out of what it offers.
    """

    def __init__(self, mechanism: str, credentials: Credentials, certificate_hash: bytes | None) -> None:
        self.mechanism = mechanism
        self._credentials = credentials
        self._hash = certificate_hash
        self._answered = False
        self._scram: ScramClient | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mechanism})"

    def first(self) -> bytes:
        """Return the user's name and a nonce."""
        package = scramp()
        channel = None if self._hash is None else (END_POINT, self._hash)
        try:
            self._scram = package.ScramClient(
                [self.mechanism], self._credentials.user, self._credentials.read_password(), channel
            )
        except package.ScramException as error:
            raise not_allowed(error) from None
        message: str = self._scram.get_client_first()
        return message.encode()

    def answer(self, challenge: bytes) -> bytes:
        """Return the proof; PBKDF2 runs here."""
        if self._scram is None or self._answered:
            raise PeerViolation(f"a challenge in a login by {self.mechanism} that was not awaited")
        text = _text(challenge)
        self._check_iterations(text)
        package = scramp()
        try:
            self._scram.set_server_first(text)
            proof: str = self._scram.get_client_final()
        except package.ScramException as error:
            raise PeerViolation(f"a challenge that is none of {self.mechanism}: {error}") from None
        self._answered = True
        return proof.encode()

    def finish(self, final: bytes) -> None:
        """Verify that the broker knows the verifier of the password, too."""
        if self._scram is None or not self._answered:
            raise _not_proven("it let the client in without having seen a proof of the password")
        package = scramp()
        try:
            self._scram.set_server_final(_text(final))
        except package.ScramException:
            raise _not_proven("its signature is not that of one who knows the password's verifier") from None

    def _check_iterations(self, text: str) -> None:
        found = _ITERATIONS.match(text)
        if found is not None and not LEAST_ITERATIONS <= int(found[1]) <= MOST_ITERATIONS:
            raise _not_proven(
                f"it asks for {found[1]} iterations of PBKDF2: {LEAST_ITERATIONS:,} to {MOST_ITERATIONS:,} are done, "
                "for with fewer it could guess the password, and more keep the client busy"
            )


def _text(data: bytes) -> str:
    """Return a message as text; "", which is none, if it is too long or not ASCII."""
    return data.decode() if data.isascii() and len(data) <= MAX_CHALLENGE else ""


def _not_proven(why: str) -> BrokerNotProven:
    return BrokerNotProven(
        f"the broker did not prove that it is the one that knows this user: {why}. Nothing was done, and the password "
        "was not sent. Another program may answer in its place: check the address, and use TLS with a certificate "
        "that is verified"
    )
