"""The verifiers of users, and those that are made up for names without one: nobody can tell them apart."""

from __future__ import annotations

from hashlib import sha256
from hmac import digest
from typing import Final

from journal.records.access_entries import (
    DEFAULT_ITERATIONS,
    DEFAULT_SALT_BYTES,
    HASH_BYTES,
    MAX_USER,
    ScramVerifier,
)
from txbroker.login.ways import Access

NAME: Final = rf"[A-Za-z0-9._-]{{1,{MAX_USER}}}"
"""The grammar of users' names (``USER_PATTERN``) as a part of others."""


class Verifiers:
    """Looks verifiers up. ``spare_key`` takes the place of the key as long as the broker has none."""

    def __init__(self, access: Access, spare_key: bytes) -> None:
        self._access = access
        self._spare_key = spare_key

    def look_up(self, name: str) -> tuple[ScramVerifier, bool]:
        """Return the verifier of a user and True; or one that no password proves, and False.

        The latter is the same each time. It is made in either case: the work must not tell which it is.
        """
        made_up = self._made_up(name)
        user = self._access.users.get(name)
        found = made_up if user is None or user.scram is None else user.scram
        return found, found is not made_up

    def is_still(self, name: str, verifier: ScramVerifier) -> bool:
        """Whether the user is there and has this verifier: it may have changed while a login was under way."""
        user = self._access.users.get(name)
        return user is not None and user.scram == verifier

    def _made_up(self, name: str) -> ScramVerifier:
        key = self._access.key or self._spare_key
        salt, stored_key, server_key = (
            digest(key, part + name.encode(), sha256) for part in (b"salt:", b"stored:", b"server:")
        )
        return ScramVerifier(salt[:DEFAULT_SALT_BYTES], DEFAULT_ITERATIONS, stored_key, server_key)


assert DEFAULT_SALT_BYTES <= HASH_BYTES
