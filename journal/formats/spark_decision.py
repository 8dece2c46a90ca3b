"""What decides a write of Spark: the message in the topic of decisions, and the xids of the branches that it lists.

Spark's sink writes both, verification reads them; nothing else packs or takes them apart. ``docs/spark.md`` has the
protocol.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from journal.errors import InvalidFrame
from journal.transaction import Xid

TOPIC: Final = "spark.decisions"

GROUPS: Final = "spark."
"""How the consumer groups begin that are registers of writes; the write's name follows."""

FORMAT_ID: Final = 0x7473
"""Marks an xid of a write of Spark."""

_GLOBAL = re.compile(rb"([A-Za-z0-9_.:-]+)/(\d+)")
_BRANCH = re.compile(rb"(\d+)\.(\d+)\.(\d+)\.([0-9a-f]{8})")


class BranchName(NamedTuple):
    """What the xid of a branch says: see :class:`spark.sink.branches.Branch`."""

    name: str
    version: int
    epoch: int
    partition: int
    number: int
    random: str


def xid_of(name: str, version: int, key: str) -> Xid:
    """The xid of the branch with this key of a write."""
    return Xid(FORMAT_ID, f"{name}/{version}".encode(), key.encode())


def named_by(xid: Xid | None) -> BranchName | None:
    """What this xid says, None if it is of somebody else."""
    if xid is None or xid.format_id != FORMAT_ID:
        return None
    whole, part = _GLOBAL.fullmatch(xid.global_id), _BRANCH.fullmatch(xid.branch)
    if whole is None or part is None:
        return None
    return BranchName(
        whole[1].decode(), int(whole[2]), int(part[1]), int(part[2]), int(part[3]), part[4].decode()
    )


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Which branches of a write are committed, all others being rolled back: a message in the topic of decisions."""

    name: str
    version: int
    epoch: int
    branches: list[str]
    rows: int
    bytes: int
    topics: list[str] | None = None
    """To which topics the rows went, sorted; None in a decision of a release that did not say so."""

    def xids(self) -> list[Xid]:
        """Of the branches that it lists, in the order in which they are committed."""
        return [xid_of(self.name, self.version, key) for key in self.branches]


_decode = msgspec.json.Decoder(Decided).decode


def unpack(value: bytes | memoryview) -> Decided:
    """What a message of the topic says; raises :class:`InvalidFrame`."""
    try:
        return _decode(value)
    except msgspec.MsgspecError as error:
        raise InvalidFrame(f"no decision about a write of Spark: {error}") from error
