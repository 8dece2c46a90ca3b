"""The messages of a drill carry their sender and number, and every byte of a message follows from these."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class MessageId(NamedTuple):
    """The identity of a message: which message of which operation.

    ``drill`` is the drill's name, ``sender`` a life of a client (``transactor-1.3``). ``number`` counts the messages of
    the operation from 0. ``together`` is how many messages become visible in one step with this one, itself included
    (1: it is not in a transaction). ``size`` is the size of its filling.
    """

    drill: str
    sender: str
    operation: int
    number: int
    together: int
    size: int

    def __str__(self) -> str:
        return f"{self.sender} operation {self.operation} message {self.number}"


def value_of(identity: MessageId) -> bytes:
    """Return all bytes of the message: a readable line, and a filling that follows from it."""
    line = " ".join(map(str, identity)).encode()
    return b"%b\n%b" % (line, hashlib.shake_128(line).digest(identity.size))


def identity_of(value: bytes | None) -> MessageId | None:
    """Return which message these bytes claim to be; None if they cannot be read as one. The bytes are not checked."""
    fields = (value or b"").partition(b"\n")[0].decode("ascii", "replace").split(" ")
    if len(fields) != len(MessageId._fields) or not all(field.isdigit() for field in fields[2:]):
        return None
    drill, sender, *numbers = fields
    return MessageId(drill, sender, *map(int, numbers))
