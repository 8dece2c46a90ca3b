"""A transaction as the journal's records describe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from journal.check.effects import Add
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from journal.transaction_states import Totals
from journal.walks.findings import second_crc32c
from journal.xid import Xid


@dataclass(slots=True)
class Followed:
    """A transaction as the records describe it. ``whole``: all its adds have been seen.

    ``is_summed``: all its frames have been seen too, so that its checksums are those of all it has. What a staged file
    had when the journal begins has counts here, and no checksum: the file may be gone.
    """

    adds: list[Add] = field(default_factory=list)
    messages: int = 0
    requests: int = 0
    checksum: int = 0
    whole: bool = True
    is_summed: bool = True
    prepared: bool = False
    xid: Xid | None = None
    checksums: dict[int, int] = field(default_factory=dict)
    """The checksum of the frames for each partition. What one record has for none is added up under 0."""

    def begin_record(self) -> None:
        """Note that what is taken from here on is of another record."""
        self.checksums.pop(0, None)

    def take(self, add: Add, data: memoryview | bytes) -> None:
        """Add frames, as they were sent."""
        before = self.checksums.get(add.partition, 0)
        own = second_crc32c(data, before)
        self.checksum = own if self.checksum == before else second_crc32c(data, self.checksum)
        self.adds.append(add)
        self.messages += add.count
        for partition in add.also:
            other = self.checksums.get(partition, 0)
            self.checksums[partition] = own if other == before else second_crc32c(data, other)
        self.checksums[add.partition] = own

    def parts(self) -> dict[int, tuple[int, int, int]]:
        """Return (messages, bytes, checksum) by partition."""
        sizes: dict[int, int] = {}
        for add in self.adds:
            for partition in add.targets:
                sizes[partition] = sizes.get(partition, 0) + add.size
        return {
            number: (count, sizes[number], self.checksums.get(number, 0))
            for number, count in self.counts().items()
        }

    def routed(self, names: Mapping[int, tuple[str, int]]) -> tuple[int, int] | None:
        """Return the messages and bytes that went through exchanges, each once; None if a partition has no name."""
        messages = size = 0
        for add in self.adds:
            if add.partition and add.partition not in names:
                return None
            if not add.partition or names[add.partition][0].startswith(QUEUE_TOPIC_PREFIX):
                messages += add.count
                size += add.size
        return messages, size

    @property
    def totals(self) -> Totals:
        """Return the totals of what has arrived."""
        return Totals(self.messages, self.requests, self.checksum)

    def counts(self) -> dict[int, int]:
        """Return messages by partition."""
        found: dict[int, int] = {}
        for add in self.adds:
            for partition in add.targets:
                found[partition] = found.get(partition, 0) + add.count
        return found
