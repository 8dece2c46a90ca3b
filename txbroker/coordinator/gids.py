"""The global ids of a coordinator, which name the coordinator, its run and the transaction's number."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, NamedTuple

from txbroker import errors

FORMAT_ID: Final = 0x7463
"""The format id of a coordinator's xids."""

IDENTITY_DIGITS: Final = 16
MAX_NAME: Final = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_GID = re.compile(r"(?P<identity>[0-9a-f]{16})-(?P<run>\d+\.[0-9a-f]{8})-(?P<serial>\d+)")


class Branch(NamedTuple):
    """One participant's part of one transaction, as its xid names it."""

    gid: str
    name: str


def check_name(name: str) -> str:
    """Return the name of a participant if it can be a branch qualifier; raises InvalidName."""
    if not _NAME.fullmatch(name):
        raise errors.InvalidName(
            f"participant {name[:80]!r}: names are 1 to {MAX_NAME} characters of A-Z, a-z, 0-9, _, . and -, because "
            "they are part of the xids; nothing was done"
        )
    return name


def text_of(part: str | bytes | None) -> str:
    """Return a part of an xid as text, whatever the driver returns; a part that is no ASCII is not ours."""
    if isinstance(part, bytes):
        return part.decode("ascii", "replace")
    return part or ""


def start_of(gid: str) -> int:
    """Return the number of the log's start in which a global id was made."""
    found = _GID.fullmatch(gid)
    assert found is not None, gid
    return int(found["run"].partition(".")[0])


def is_of(identity: str, gid: str) -> bool:
    """Return whether the coordinator with this identity made it."""
    found = _GID.fullmatch(gid)
    return found is not None and found["identity"] == identity


def branch_of(xid: Any, identity: str) -> Branch | None:
    """Return the branch of a listed xid, if this coordinator made it."""
    gid = text_of(xid[1])
    if xid[0] != FORMAT_ID or not is_of(identity, gid):
        return None
    return Branch(gid, text_of(xid[2]))


class Gids:
    """Makes the global ids of one run: coordinator, run, number.

    The run is the log's start number, which no other start has, and 32 random bits, because a log that was restored
    from a copy has the number again.
    """

    def __init__(self, identity: str, start: int) -> None:
        self.identity = identity
        self.run = f"{start}.{secrets.token_hex(4)}"
        self.last = 0

    def make(self) -> str:
        """Return the next one: at most 49 bytes of the 64 that XA allows."""
        self.last += 1
        return f"{self.identity}-{self.run}-{self.last}"

    def is_later(self, gid: str, serial: int) -> bool:
        """Return whether this run made it, after the one with that number."""
        found = _GID.fullmatch(gid)
        return found is not None and found["run"] == self.run and int(found["serial"]) > serial


def new_identity() -> str:
    """Return a random identity."""
    return secrets.token_hex(IDENTITY_DIGITS // 2)
