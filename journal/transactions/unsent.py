"""What a deciding request brings that has not been sent before: runs of frames, and positions of groups."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from crc32c import crc32c

from journal.formats.frame import stamp
from journal.formats.record import GroupPositions, Run
from journal.transaction import Totals

NO_TOTALS: Final = Totals(0, 0, 0)
"""What was added before, if nothing was."""


class UnsentRun(NamedTuple):
    """Checked, unstamped frames for a partition, and how many messages they hold."""

    partition: int
    messages: int
    frames: bytes | memoryview


class Unsent:
    """Runs and positions in the order in which they were given."""

    def __init__(self, runs: Sequence[UnsentRun] = (), positions: list[GroupPositions] | None = None) -> None:
        self.runs = runs
        self.positions = positions or []

    @cached_property
    def messages(self) -> int:
        """How many messages the runs hold."""
        return sum([run.messages for run in self.runs])

    @cached_property
    def bytes(self) -> int:
        """How many bytes the runs have."""
        return sum([len(frames) for *_, frames in self.runs])

    def sizes(self) -> dict[int, int]:
        """How many bytes there are for each partition."""
        found: dict[int, int] = {}
        for partition, _, frames in self.runs:
            found[partition] = found.get(partition, 0) + len(frames)
        return found

    def checksum(self, before: int) -> int:
        """CRC-32C of what was sent before, which is ``before``, and of all runs behind it."""
        for *_, frames in self.runs:
            before = crc32c(frames, before)
        return before

    def with_checksums(self, checksums: dict[int, int]) -> list[Run]:
        """The runs as a record has them, behind what was sent for each partition before. Changes ``checksums``."""
        found, start = [], 0
        for partition, count, frames in self.runs:
            checksums[partition] = checksum = crc32c(frames, checksums.get(partition, 0))
            found.append(Run(partition, count, start, checksum))
            start += len(frames)
        return found

    def joined(self) -> builtins.bytes:
        """The frames of all runs, one after the other."""
        return b"".join([frames for *_, frames in self.runs])

    def stamped(self, offsets: Mapping[int, int]) -> builtins.bytes:
        """The same, each partition's stamped from its offset on."""
        following, whole, start = dict(offsets), bytearray(self.joined()), 0
        view = memoryview(whole)
        for partition, _, frames in self.runs:
            end = start + len(frames)
            following[partition] = stamp(view[start:end], following[partition])
            start = end
        return builtins.bytes(whole)


NOTHING: Final = Unsent()
"""Of a request that brings nothing: the second phase, or one whose frames were all added before."""
