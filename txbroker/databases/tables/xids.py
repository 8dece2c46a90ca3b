"""The xids of blocks, which name the decision table, the broker and the application."""

from __future__ import annotations

import os
import re
import time
from typing import Final

from journal.arguments import text
from journal.constants import MAX_GLOBAL_ID
from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.transaction_names import OUTBOX_FORMAT_ID

FORMAT_ID: Final = 0x7462
"""The format id of xids of :func:`txbroker.atomic`."""

TABLE_DIGITS: Final = 16
_TIME_BYTES: Final = 5
_RANDOM_BYTES: Final = 8
MAX_APPLICATION: Final = MAX_GLOBAL_ID - TABLE_DIGITS - 2 * (_TIME_BYTES + _RANDOM_BYTES) - 2
_ROW = re.compile(rb"([0-9a-f]{16})-([0-9a-f]{32})-([0-9a-f]{1,14})")
_APPLICATION = re.compile(r"[A-Za-z0-9_.]*")


def check_application(name: str) -> str:
    """Return the name of an application if it fits into an xid; raises InvalidName, WrongType."""
    name = text("application", name, "nothing was done")
    if len(name) > MAX_APPLICATION or not _APPLICATION.fullmatch(name):
        raise errors.InvalidName(
            f"application {name[:80]!r}: at most {MAX_APPLICATION} characters of A-Z, a-z, 0-9, _ and . fit into an "
            "xid; nothing was done"
        )
    return name


def make(table: str, application: str, broker: str) -> Xid:
    """Return a new xid: the table's identity, a unique name, the application; and the broker's identity as its branch.

    64 random bits make the name. The milliseconds before them only keep xids of one time together in the key's index.
    """
    moment = (time.time_ns() // 1_000_000).to_bytes(8)[-_TIME_BYTES:]
    key = f"{table}-{(moment + os.urandom(_RANDOM_BYTES)).hex()}-{application}"
    return Xid(FORMAT_ID, key.encode(), broker.encode())


def of_row(table: str, stream: str, number: int, broker: str) -> Xid:
    """Return what names a block that only sent: the row of the outbox that it has left."""
    return Xid(OUTBOX_FORMAT_ID, f"{table}-{stream}-{number:x}".encode(), broker.encode())


def row_of(xid: Xid) -> tuple[str, str, int] | None:
    """Return table, stream and number of such an xid; None for any other."""
    found = _ROW.fullmatch(xid.global_id)
    if xid.format_id != OUTBOX_FORMAT_ID or found is None:
        return None
    table, stream, number = found.groups()
    return table.decode(), stream.decode(), int(number, 16)


def prefix(table: str) -> bytes:
    """Return the beginning of the global ids of a decision table's xids."""
    return f"{table}-".encode()


def row_key(xid: Xid) -> str:
    """Return its key in the decision table."""
    return xid.global_id.decode("ascii")


def belongs(xid: Xid | None, table: str, broker: str) -> bool:
    """Return whether this table decides it, at this broker."""
    return (
        xid is not None
        and xid.format_id == FORMAT_ID
        and xid.branch == broker.encode()
        and xid.global_id.startswith(prefix(table))
    )
