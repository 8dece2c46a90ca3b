"""A session's secret: shows whose session it was, and shows itself to nobody who prints or logs what holds it."""

from __future__ import annotations

from hmac import compare_digest

import msgspec

SECRET_BYTES = 16


class Secret(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Random bytes that only the broker and the session's client know. In memory and on the wire, in no file or log."""

    value: bytes

    def is_same(self, other: Secret) -> bool:
        """Compare in a time that does not tell how much of it fits."""
        return compare_digest(self.value, other.value)

    def __repr__(self) -> str:
        return "Secret(hidden)"
