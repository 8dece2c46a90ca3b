"""What a walk over files finds, and the second implementation of the checksum that it finds it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import crcmod.predefined

from journal import filenames
from journal.transaction import TransactionNumber, Xid

second_crc32c: Callable[..., int] = crcmod.predefined.mkCrcFun("crc-32c")
"""CRC-32C by the second implementation: ``second_crc32c(data, seed=0)``."""


@dataclass(frozen=True, slots=True)
class Affected:
    """Whose data a finding is about, as far as that is known. Offsets and LSNs are inclusive."""

    topic: str | None = None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    first_lsn: int | None = None
    last_lsn: int | None = None
    transaction: TransactionNumber | None = None
    xid: Xid | None = None

    def __str__(self) -> str:
        parts = []
        if self.topic is not None:
            parts.append(f"{self.topic}-{self.partition}")
        if self.first_offset is not None:
            parts.append(_span("offset", self.first_offset, self.last_offset))
        if self.transaction is not None:
            named = f" (xid {self.xid})" if self.xid is not None else ""
            parts.append(f"transaction {self.transaction}{named}")
        if self.first_lsn is not None:
            parts.append(_span("LSN", self.first_lsn, self.last_lsn))
        return ", ".join(parts)

    def facts(self) -> dict[str, Any]:
        """What is known, by name, for programs."""
        found: dict[str, Any] = {
            name: value
            for name in (
                "topic", "partition", "first_offset", "last_offset", "first_lsn", "last_lsn",
            )
            if (value := getattr(self, name)) is not None
        }  # fmt: skip
        found |= {
            name: str(value) for name in ("transaction", "xid") if (value := getattr(self, name)) is not None
        }
        return found


def _span(what: str, first: int, last: int | None) -> str:
    if last is None:
        return f"{what}s from {first} on"
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


NOBODY = Affected()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written. ``position`` is in bytes from the file's start.

    ``harmless`` says that it can be the trace of a crash and was never acknowledged, or is repaired by itself.
    ``foreign`` says that the bytes are sound, but not those that belong there: nothing of the file can be believed.
    """

    path: str
    position: int
    problem: str
    harmless: bool = False
    affects: Affected = NOBODY
    foreign: bool = False


def of_partition(path: str, first_offset: int | None = None, last_offset: int | None = None) -> Affected:
    """Offsets (inclusive) of the partition in whose directory ``path`` lies."""
    name = filenames.parse_partition_directory(path.split("/")[-2]) if "/" in path else None
    if name is None:
        return Affected(first_offset=first_offset, last_offset=last_offset)
    return Affected(name.topic, name.index, first_offset, last_offset)
