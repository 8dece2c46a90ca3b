"""A session's secret: shows whose session it was, and shows itself to nobody who prints or logs what holds it."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

import msgspec

from journal.formats.record import SECRET_HASH_BYTES

SECRET_BYTES = 16


class Secret(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Random bytes that only the broker and the session's client know. In memory and on the wire, in no file or log.

    A client has one for all its sessions: who shows it with a hello keeps it.
    """

    value: bytes

    def is_same(self, other: Secret) -> bool:
        """Compare in a time that does not tell how much of it fits."""
        return compare_digest(self.value, other.value)

    @property
    def owner(self) -> bytes:
        """What may be written of it: tells in a record whose a producer is, and does not tell the secret."""
        return sha256(self.value).digest()[:SECRET_HASH_BYTES]

    def __repr__(self) -> str:
        return "Secret(hidden)"
