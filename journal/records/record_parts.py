"""Parts of records about transactions: runs of frames in a record's data, and where committed ones are placed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from journal.formats.checkpoint_rows import Count

Some = Annotated[int, msgspec.Meta(ge=1)]
"""How many there are of what there is at least one."""


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A run of frames in a record's data: its partition, how many messages, and where it starts.

    ``checksum`` is CRC-32C over all frames of the transaction for that partition up to this run's end, unstamped. What
    went through an exchange goes to the partitions of ``also``, too; a run of partition 0 goes nowhere.
    """

    partition: Count
    count: Some
    start: Count
    checksum: int
    also: list[Count] = []

    @property
    def targets(self) -> list[int]:
        """Return the partitions that it goes to."""
        return [self.partition, *self.also] if self.partition else []


class Placement(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a committed transaction's messages of one partition begin, and how many there are."""

    partition: Count
    base_offset: Count
    count: Some
