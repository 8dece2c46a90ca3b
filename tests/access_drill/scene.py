"""What the users of a drill share: where the broker is, what each shows to be let in, notes, and pauses for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from cryptography import x509

import txbroker
from tests.access_drill.acts import Notes
from tests.access_drill.rules_model import Shown
from tests.support.certificates import Folder, Signed

ISSUER, AUDIENCE = "https://idp.example", "txbroker"
LEEWAY = 60.0
"""Seconds for which a token is taken after its end."""
TOKEN_SECONDS, LONG = 4.0, 600.0
"""How long a token lets one in, with the leeway: short, so that sessions log in anew all the time; long while logins
are counted, for one that is under way when its client leaves is none.
"""
PATIENCE = 6.0
"""Seconds that a user waits for an answer: a login that failed before is held back for four."""

WAYS = {
    "pat": "password", "pia": "password", "pol": "password", "cat": "certificate", "cid": "certificate",
    "cyn": "certificate", "tom": "token", "tia": "token", "ted": "token",
}  # fmt: skip
"""The users, each with the way in which it logs in."""
ROLES = {who: "reds" if who in ("pat", "cat", "tom") else "blues" for who in WAYS}
STRANGER = "stranger-with-a-certificate"
"""Whose certificate the broker's issuer has signed, and no user has."""
TOPICS = ("red-0", "red-1", "blue-0", "blue-1")
GROUPS = ("red-readers", "blue-readers")


class Gate:
    """All users pass it with each act; while it is shut, none is at work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_shut = False
        self._inside = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait until it is open, and be inside meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Have nobody inside."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()


class Scene:
    """The addresses, credentials and notes. ``passwords`` and ``signer`` are changed by the administrator alone."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.tls_port = 0
        self.notes = Notes()
        self.gate = Gate()
        self.over = threading.Event()
        self.passwords = {who: f"{who}-0" for who, way in WAYS.items() if way == "password"}
        with_certificate = [who for who, way in WAYS.items() if way == "certificate"]
        self.clients = {who: folder.issuer.sign(who, names=_names(who)) for who in with_certificate}
        self.clients[STRANGER] = folder.issuer.sign("eve", names=_names("eve"))
        for who, signed in self.clients.items():
            folder.write(f"{who}.pem", signed.pem, signed.key_pem())
        self.signer = "key-0", Signed("key-0")
        """The name of the key that tokens are signed with, and the key."""
        self.token_seconds = TOKEN_SECONDS
        """How long the next tokens let one in, with the leeway."""
        self.credentials = 0
        """How often something was shown to log in: at first, and when a token was replaced."""
        self.forger = Signed("forger")
        self._counting = threading.Lock()
        self.made: list[str] = []
        """Topics that users have made, for others to delete."""

    def clock(self) -> float:
        """The seconds by which everything is noted."""
        return time.monotonic()

    def address(self, who: str) -> str:
        """Return where this user connects to."""
        tls = f"tls:127.0.0.1:{self.tls_port}:ca={self.folder.file('ca.pem')}"
        return f"{tls}:cert={self.folder.file(f'{who}.pem')}" if who in self.clients else tls

    def token(self, subject: str) -> tuple[str, Shown]:
        """Return a token of that subject that ends soon, and what it shows."""
        signer = self.signer
        return token_of(signer, subject, self.token_seconds), Shown(("token", subject), signer[0])

    def _note(self, shown: list[Shown], what: Shown) -> None:
        shown.append(what)
        with self._counting:
            self.credentials += 1

    def connect(self, who: str, shown: list[Shown], **choices: Any) -> txbroker.Connection:
        """Log in as this user; what is shown is noted at the moment at which it is asked for."""
        way = WAYS[who]

        def password() -> str:
            text = self.passwords[who]
            self._note(shown, Shown(("password", text)))
            return text

        def token() -> str:
            text, what = self.token(who)
            self._note(shown, what)
            return text

        if way == "password":
            choices |= {"user": who, "password": password, "channel_binding": "require"}
        elif way == "token":
            choices |= {"token": token}
        else:
            self._note(shown, Shown(("certificate", certificate_name(who))))
        return txbroker.connect(self.address(who), timeout=PATIENCE, client=who, **choices)


def token_of(signer: tuple[str, Signed], subject: str, seconds: float) -> str:
    """Return a token of that subject which lets it in for so long."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": time.time() + seconds - LEEWAY}
    return jwt.encode(claims, signer[1].key_pem(), algorithm="ES256", headers={"kid": signer[0]})


def certificate_name(who: str) -> str:
    """Return the name in a user's certificate that its account has."""
    return f"DNS:{who}.example"


def _names(who: str) -> list[x509.GeneralName]:
    return [x509.DNSName(f"{who}.example")]
