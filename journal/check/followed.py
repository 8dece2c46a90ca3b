"""A transaction as the records of the journal tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.check.findings import second_crc32c
from journal.transaction import Totals, Xid


@dataclass(frozen=True, slots=True)
class Add:
    """Where the frames of one add lie."""

    partition: int
    count: int
    path: str
    position: int
    size: int


@dataclass(slots=True)
class Followed:
    """A transaction as the records tell of it. ``whole`` says that all its adds have been seen."""

    adds: list[Add] = field(default_factory=list)
    messages: int = 0
    requests: int = 0
    checksum: int = 0
    whole: bool = True
    prepared: bool = False
    xid: Xid | None = None
    checksums: dict[int, int] = field(default_factory=dict)
    """Of the frames for each partition, once there is more than one."""

    def take(self, add: Add, data: memoryview) -> None:
        """Another add, and its frames."""
        before, partitions = (
            self.checksum,
            {each.partition for each in self.adds[-1:]} | self.checksums.keys(),
        )
        self.adds.append(add)
        self.messages += add.count
        self.requests += 1
        self.checksum = second_crc32c(data, before)
        if partitions and partitions != {add.partition}:
            self.checksums = self.checksums or dict.fromkeys(partitions, before)
            self.checksums[add.partition] = second_crc32c(data, self.checksums.get(add.partition, 0))

    def parts(self) -> dict[int, tuple[int, int, int]]:
        """(messages, bytes, checksum) by partition."""
        sizes: dict[int, int] = {}
        for add in self.adds:
            sizes[add.partition] = sizes.get(add.partition, 0) + add.size
        return {
            number: (count, sizes[number], self.checksums.get(number, self.checksum))
            for number, count in self.counts().items()
        }

    @property
    def totals(self) -> Totals:
        """What has arrived."""
        return Totals(self.messages, self.requests, self.checksum)

    def counts(self) -> dict[int, int]:
        """Messages by partition."""
        found: dict[int, int] = {}
        for add in self.adds:
            found[add.partition] = found.get(add.partition, 0) + add.count
        return found
