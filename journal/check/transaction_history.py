"""A transaction as the journal's records describe it."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.check.effects import Add
from journal.transaction_states import Totals
from journal.walks.findings import second_crc32c
from journal.xid import Xid


@dataclass(slots=True)
class Followed:
    """A transaction as the records describe it. ``whole``: all its adds have been seen."""

    adds: list[Add] = field(default_factory=list)
    messages: int = 0
    requests: int = 0
    checksum: int = 0
    whole: bool = True
    prepared: bool = False
    xid: Xid | None = None
    checksums: dict[int, int] = field(default_factory=dict)
    """The checksum of the frames for each partition."""

    def take(self, add: Add, data: memoryview | bytes) -> None:
        """Add frames, as they were sent."""
        own = second_crc32c(data, self.checksums.get(add.partition, 0))
        is_only = self.checksums.keys() <= {add.partition}
        self.adds.append(add)
        self.messages += add.count
        self.checksums[add.partition] = own
        self.checksum = own if is_only else second_crc32c(data, self.checksum)

    def parts(self) -> dict[int, tuple[int, int, int]]:
        """Return (messages, bytes, checksum) by partition."""
        sizes: dict[int, int] = {}
        for add in self.adds:
            sizes[add.partition] = sizes.get(add.partition, 0) + add.size
        return {
            number: (count, sizes[number], self.checksums.get(number, 0))
            for number, count in self.counts().items()
        }

    @property
    def totals(self) -> Totals:
        """Return the totals of what has arrived."""
        return Totals(self.messages, self.requests, self.checksum)

    def counts(self) -> dict[int, int]:
        """Return messages by partition."""
        found: dict[int, int] = {}
        for add in self.adds:
            found[add.partition] = found.get(add.partition, 0) + add.count
        return found
