"""The messages of a drill: whose they are stands in them, and every byte follows from that."""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class MessageId(NamedTuple):
    """Which message of which operation.

    ``drill`` is the drill's name, ``sender`` a life of a client (``transactor-1.3``). ``number`` counts the messages
    of the operation from 0. ``together`` is how many become visible in one step with it, itself included (1: it
    stands alone). ``size`` is of its filling.
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
    """All bytes of the message: a readable line, and a filling that follows from it."""
    line = " ".join(map(str, identity)).encode()
    return b"%b\n%b" % (line, hashlib.shake_128(line).digest(identity.size))


def identity_of(value: bytes | None) -> MessageId | None:
    """Which message these bytes claim to be; None if they make no sense as one. They are not checked."""
    fields = (value or b"").partition(b"\n")[0].decode("ascii", "replace").split(" ")
    if len(fields) != len(MessageId._fields) or not all(field.isdigit() for field in fields[2:]):
        return None
    drill, sender, *numbers = fields
    return MessageId(drill, sender, *map(int, numbers))
