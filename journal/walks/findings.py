"""The findings of walks over files, and the second implementation of the checksum that the walks use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import crcmod.predefined
from crc32c import crc32c

from journal.formats import filenames
from journal.formats.checksum import Checksum
from journal.transaction_states import TransactionNumber
from journal.words import span
from journal.xid import Xid

T = TypeVar("T")

second_crc32c: Checksum = crcmod.predefined.mkCrcFun("crc-32c")
"""CRC-32C by the second implementation: ``second_crc32c(data, seed=0)``."""


class BothChecksums:
    """CRC-32C by both implementations. The value is that of the first; ``differed`` is set if they ever differ."""

    def __init__(self) -> None:
        self.differed = False

    def __call__(self, data: bytes | memoryview, seed: int = 0) -> int:
        """Return the checksum of some bytes."""
        first = crc32c(data, seed)
        if second_crc32c(data, seed) != first:
            self.differed = True
        return first


@dataclass(frozen=True, slots=True)
class Affected:
    """The data that a finding is about, as far as known. Offsets and LSNs are inclusive."""

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
            parts.append(span("offset", self.first_offset, self.last_offset))
        if self.transaction is not None:
            named = f" (xid {self.xid})" if self.xid is not None else ""
            parts.append(f"transaction {self.transaction}{named}")
        if self.first_lsn is not None:
            parts.append(span("LSN", self.first_lsn, self.last_lsn))
        return ", ".join(parts)

    def facts(self) -> dict[str, Any]:
        """Return the known fields, by name, for programs."""
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


NOBODY = Affected()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written. ``position`` is in bytes from the file's start.

    ``harmless`` says that it can be the trace of a crash and was never acknowledged, or is repaired by itself.
    ``foreign`` says that the bytes are sound, but not those that belong there: nothing of the file can be believed.
    ``unreadable`` says that the system did not give them, so that nothing is known of them.
    ``unproven`` says that the bytes are sound messages of a log that the journal does not have.
    ``of_no_crash`` says of what is harmless that no crash leaves it so.
    ``refused`` says that they are a sound record, which a start would refuse: it does not follow those before it.
    ``of_decision`` says that the bytes are sound, and that a branch of a write of Spark ended otherwise than decided.
    """

    path: str
    position: int
    problem: str
    harmless: bool = False
    affects: Affected = NOBODY
    foreign: bool = False
    unreadable: bool = False
    unproven: bool = False
    of_no_crash: bool = False
    of_decision: bool = False
    refused: bool = False


def unreadable(path: str, error: OSError, affects: Affected = NOBODY) -> Finding:
    """Return a finding for a file whose bytes the system does not return. If the file has gone, raises that
    error again.
    """
    if isinstance(error, FileNotFoundError):
        raise error
    return Finding(path, 0, f"it cannot be read: {error.strerror}", affects=affects, unreadable=True)


def told_if_unreadable(path: str, walk: Iterator[T], affects: Affected = NOBODY) -> Iterator[T | Finding]:
    """Yield what a walk over a file yields, and at last a finding if the rest of the file cannot be read."""
    try:
        yield from walk
    except OSError as error:
        yield unreadable(path, error, affects)


def of_partition(path: str, first_offset: int | None = None, last_offset: int | None = None) -> Affected:
    """Return offsets (inclusive) of the partition in whose directory ``path`` lies."""
    name = filenames.parse_partition_directory(path.split("/")[-2]) if "/" in path else None
    if name is None:
        return Affected(first_offset=first_offset, last_offset=last_offset)
    return Affected(name.topic, name.index, first_offset, last_offset)
