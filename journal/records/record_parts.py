"""Parts of records about transactions: runs of frames in a record's data, and where committed ones are placed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from journal.formats.checkpoint_rows import Count

Some = Annotated[int, msgspec.Meta(ge=1)]
"""How many there are of what there is at least one."""


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A run of frames in a deciding record's data: its partition, how many messages, and where it starts.

    ``checksum`` is CRC-32C over all frames of the transaction for that partition up to this run's end, unstamped.
    """

    partition: Count
    count: Some
    start: Count
    checksum: int


class Placement(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a committed transaction's messages of one partition begin, and how many there are."""

    partition: Count
    base_offset: Count
    count: Some
