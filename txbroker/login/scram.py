"""SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, 7677): the broker learns no password, and proves itself, too.

The messages are scramp's, which verifies them; what it lacks is here: an identity beside the user's name, and users
that are made up.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from journal.records.access_entries import ScramVerifier
from txbroker.login.exchange import Exchange
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Challenge, Step, Success
from txbroker.login.throttle import FailureTable
from txbroker.login.verifiers import NAME, Verifiers

if TYPE_CHECKING:
    from scramp.core import ScramServer

SCRAM: Final = "SCRAM-SHA-256"
SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"
END_POINT: Final = "tls-server-end-point"
NONCE_BYTES: Final = 18

_FIRST: Final = re.compile(rf"(n|y|p=[A-Za-z0-9.-]{{1,32}}),(?:a=({NAME}))?,(n=({NAME}),.*)")


class ScramExchange(Exchange):
    """One attempt by SCRAM, bound to the connection's certificate if it is SCRAM-SHA-256-PLUS."""

    def __init__(
        self,
        mechanism: str,
        facts: ConnectionFacts,
        failures: FailureTable,
        verifiers: Verifiers,
        random: Callable[[int], bytes],
    ) -> None:
        super().__init__(mechanism, facts, failures)
        self._verifiers = verifiers
        self._random = random
        self._name = ""
        self._known = False
        self._verifier: ScramVerifier
        self._scram: ScramServer

    def begin(self, data: bytes) -> Step:
        """Answer the client's first message with salt, iterations and nonce."""
        found = _FIRST.fullmatch(_text(data))
        if found is None:
            return self._fail("a first message that is no SCRAM, or names what can be no user")
        flag, identity, bare, self._name = found.groups()
        if identity not in (None, self._name):
            return self._fail_user("the identity is another than the user")
        if flag.startswith("p=") and self.mechanism != SCRAM_PLUS:
            return self._fail_user(f"a channel is bound in {self.mechanism}")
        self._verifier, self._known = self._verifiers.look_up(self._name)
        from scramp.utils import ScramException  # here: 0.15 s, and no login may ever come

        try:
            self._scram = self._server()
            self._scram.set_client_first(f"{flag},,{bare}")
            answer = self._scram.get_server_first()
        except ScramException as error:
            return self._fail_user(str(error))
        if identity is not None:
            # scramp takes no identity, so it has not seen this one; but the client's proof is about the bytes it sent.
            self._scram.gs2_header = _HeaderAsSent(f"{flag},a={identity},", self._facts)
        self._next = self._conclude
        return Challenge(answer.encode())

    def _conclude(self, data: bytes) -> Step:
        """Verify the client's proof; return the broker's with the success."""
        from scramp.utils import ScramException

        try:
            self._scram.set_client_final(_text(data))
            proof = self._scram.get_server_final().encode()
        except ScramException as error:
            told = str(error)  # in either case, as all work here
            return self._fail_user(told if self._known else "there is no such user with a password")
        if not self._verifiers.is_still(self._name, self._verifier):
            return self._fail_user("the user changed during the login")
        delay = self._failures.succeeded(self._facts.address, self._name)
        return self._succeed(Success(self._name, proof, delay=delay))

    def _server(self) -> ScramServer:
        from scramp import ScramMechanism

        bound = self._facts.certificate_hash
        channel = None if bound is None else (END_POINT, bound)
        nonce = b64encode(self._random(NONCE_BYTES)).decode()
        return ScramMechanism(self.mechanism).make_server(self._parts, channel_binding=channel, s_nonce=nonce)

    def _parts(self, _: str) -> tuple[bytes, bytes, bytes, int]:
        verifier = self._verifier
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations

    def _fail_user(self, reason: str) -> Step:
        return self._fail(f"user {self._name!r}: {reason}", self._name)


class _HeaderAsSent:
    """The header of the client's first message, in the place of scramp's, which has no identity in it."""

    def __init__(self, header: str, facts: ConnectionFacts) -> None:
        self._input = header.encode()
        if header.startswith("p="):
            self._input += facts.certificate_hash or b""

    def make_cbind_input(self, _: Any) -> bytes:
        """Return what the client's last message has to bind."""
        return self._input


def _text(data: bytes) -> str:
    """Return a message as text; "", which is none, if it is not ASCII, as all of ours are."""
    return data.decode() if data.isascii() else ""
