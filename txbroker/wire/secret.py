"""A session's secret: it proves whose session it was, and is hidden when an object that holds it is printed or
logged. So is what is said in a login.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

import msgspec

from journal.records.record import SECRET_HASH_BYTES

SECRET_BYTES = 16


class Secret(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Random bytes that only the broker and the session's client know. In memory and on the wire, in no file or log.

    A client has one for all its sessions: a hello that shows it gets it back.
    """

    value: bytes

    def is_same(self, other: Secret) -> bool:
        """Compare in a time that does not depend on how many bytes agree."""
        return compare_digest(self.value, other.value)

    def owner(self, principal: str) -> bytes:
        """A hash for records: it identifies a producer's owner, who is that principal, without revealing the secret."""
        return sha256(self.value + principal.encode()).digest()[:SECRET_HASH_BYTES]

    def __repr__(self) -> str:
        return "Secret(hidden)"


def shown_without(message: msgspec.Struct, hidden: str) -> str:
    """Return a message as ``repr`` shows it, but of one field, which may be secret, only its length."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    told = ", ".join(
        f"{name}=<{len(value)} bytes hidden>" if name == hidden else f"{name}={value!r}"
        for name, value in fields.items()
    )
    return f"{type(message).__name__}({told})"
