"""Passwords are checked off the loop, in a line of bounded length; what proved right is known again at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Any, Final, Protocol

import msgspec

from journal.records.access_entries import ScramVerifier

MAX_WAITING: Final = 2_000
"""Most passwords that wait to be checked: 10 s for two threads at 15,000 iterations."""
MAX_REMEMBERED: Final = 10_000


class RunBlocking(Protocol):
    """Runs ``work`` on a thread of a pool, then calls ``done`` with its result or ``failed`` with what it raised.

    Both are called on the thread that called this, later: in another turn of its loop. Two threads are enough.
    """

    def __call__(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
        /,
    ) -> None:
        """Queue the work."""


class Check:
    """A password that is being checked, for all who wait for the same answer."""

    __slots__ = ("_password", "_verifier", "waiting")

    def __init__(self, verifier: ScramVerifier, password: bytes) -> None:
        self._verifier = verifier
        self._password = password
        self.waiting: dict[object, Callable[[bool | None], None]] = {}

    def work(self) -> bool | None:
        """Return whether the password is right, None if nobody waited; takes 9 ms per 15,000 iterations."""
        return proves(self._verifier, self._password) if self.waiting else None


class PasswordChecker:
    """Checks passwords. ``random(n)`` returns n unguessable bytes: a key that makes what is remembered useless
    elsewhere.

    What is remembered depends on the user, the verifier and the password, so nothing old matches once the user has
    another verifier.
    """

    def __init__(self, run_blocking: RunBlocking, random: Callable[[int], bytes]) -> None:
        self._run_blocking = run_blocking
        self._key = random(sha256().digest_size)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._line: dict[bytes, Check] = {}

    @property
    def waiting(self) -> int:
        """How many passwords are being checked or wait for it."""
        return len(self._line)

    @property
    def remembered(self) -> int:
        """How many right passwords are known again."""
        return len(self._right)

    def is_known(self, user: str, verifier: ScramVerifier, password: bytes) -> bool:
        """Whether this has proved right before."""
        key = self._fingerprint(user, verifier, password)
        if key not in self._right:
            return False
        self._right.move_to_end(key)
        return True

    def check(
        self,
        user: str,
        verifier: ScramVerifier,
        password: bytes,
        who: object,
        done: Callable[[bool | None], None],
    ) -> Check | None:
        """Call ``done`` later with whether the password is right, or None if that could not be found out.

        ``who`` is taken out of the returned check's ``waiting`` to be called no more. Returns None, and calls nothing,
        if the line is full. The same question is asked once for all who wait for it.
        """
        key = self._fingerprint(user, verifier, password)
        found = self._line.get(key)
        if found is None:
            if len(self._line) >= MAX_WAITING:
                return None
            found = self._line[key] = Check(verifier, password)
            found.waiting[who] = done
            self._queue(key, found)
        else:
            found.waiting[who] = done
        return found

    def _queue(self, key: bytes, check: Check) -> None:
        def done(right: bool | None) -> None:
            if right is None and check.waiting:
                self._queue(key, check)  # somebody came after the thread had found nobody waiting
            else:
                self._end(key, check, right)

        self._run_blocking(check.work, done, lambda _: self._end(key, check, None))

    def _end(self, key: bytes, check: Check, right: bool | None) -> None:
        del self._line[key]
        if right:
            self._right[key] = None
            if len(self._right) > MAX_REMEMBERED:
                self._right.popitem(last=False)
        for done in list(check.waiting.values()):
            done(right)

    def _fingerprint(self, user: str, verifier: ScramVerifier, password: bytes) -> bytes:
        return digest(self._key, msgspec.msgpack.encode((user, verifier, password)), sha256)


def proves(verifier: ScramVerifier, password: bytes) -> bool:
    """Whether a password is the one that a verifier was made of. Takes 9 ms for 15,000 iterations."""
    from scramp import ScramMechanism
    from scramp.utils import ScramException

    try:
        _, stored_key, _, _ = ScramMechanism("SCRAM-SHA-256").make_auth_info(
            password.decode(), verifier.iterations, verifier.salt
        )
    except (UnicodeDecodeError, ScramException):
        return False
    return compare_digest(stored_key, verifier.stored_key)
