"""The decision of a Spark write: the message in the topic of decisions, and the xids of the branches that it lists.

Spark's sink writes both, verification reads them; only this module packs or parses them. ``docs/spark.md`` has the
protocol.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from journal.errors import InvalidFrame
from journal.xid import Xid

TOPIC: Final = "spark.decisions"

GROUPS: Final = "spark."
"""The beginning of the names of consumer groups that are registers of writes; the write's name follows."""

FORMAT_ID: Final = 0x7473
"""The format id of xids of Spark writes."""

_GLOBAL = re.compile(rb"([A-Za-z0-9_.:-]+)/(\d+)")
_BRANCH = re.compile(rb"(\d+)\.(\d+)\.(\d+)\.([0-9a-f]{8})")


class BranchName(NamedTuple):
    """The parts of a branch's xid: see :class:`spark.sink.branches.Branch`."""

    name: str
    version: int
    epoch: int
    partition: int
    number: int
    random: str


def xid_of(name: str, version: int, key: str) -> Xid:
    """Return the xid of the branch with this key of a write."""
    return Xid(FORMAT_ID, f"{name}/{version}".encode(), key.encode())


def named_by(xid: Xid | None) -> BranchName | None:
    """Return the parts of an xid; None if it is not of a Spark write."""
    if xid is None or xid.format_id != FORMAT_ID:
        return None
    whole, part = _GLOBAL.fullmatch(xid.global_id), _BRANCH.fullmatch(xid.branch)
    if whole is None or part is None:
        return None
    return BranchName(
        whole[1].decode(), int(whole[2]), int(part[1]), int(part[2]), int(part[3]), part[4].decode()
    )


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The branches of a write that are committed, all others being rolled back: a message in the topic of decisions."""

    name: str
    version: int
    epoch: int
    branches: list[str]
    rows: int
    bytes: int
    topics: list[str] | None = None
    """The topics of the rows, sorted; None in a decision of a release that did not record them."""

    def xids(self) -> list[Xid]:
        """Return the xids of the branches that it lists, in the order in which they are committed."""
        return [xid_of(self.name, self.version, key) for key in self.branches]


_decode = msgspec.json.Decoder(Decided).decode


def unpack(value: bytes | memoryview) -> Decided:
    """Return the decision of a message of the topic; raises :class:`InvalidFrame`."""
    try:
        return _decode(value)
    except msgspec.MsgspecError as error:
        raise InvalidFrame(f"no decision about a write of Spark: {error}") from error
