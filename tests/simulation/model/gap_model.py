"""The model of gaps: what a compaction removes from the log of a queue is finished, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.simulation.model.log_model import Logs, require


class Gaps:
    """Where the last readers of ``logs`` got gaps."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.offsets: dict[int, set[int]] = defaultdict(set)

    def saw(self, partition: int, offset: int, values: Sequence[bytes | None]) -> None:
        """A reader got these messages from ``offset`` on, None for each that a gap stands for."""
        there = {at for at, value in enumerate(values, offset) if value is not None}
        gaps = set(range(offset, offset + len(values))) - there
        self.offsets[partition] = (self.offsets[partition] - there) | gaps
        if gaps:
            self._are_finished(partition, gaps)

    def check(self, partition: int) -> set[int]:
        """Judge the gaps of a whole log, after reading all of it. Returns where nobody has ever seen what was there.

        There are as many of these as of finished messages of which nobody knows the place; fewer only if the log has
        lost its start.
        """
        start = self.logs.starts[partition]
        gaps = {offset for offset in self.offsets[partition] if offset >= start}
        unknown = self._are_finished(partition, gaps)
        hidden = len(self.logs.finished(partition) - self.logs.places.keys())
        fits = len(unknown) <= hidden if start else len(unknown) == hidden
        require(fits, f"log {partition} has {hidden} finished messages in gaps", sorted(unknown))
        return unknown

    def _are_finished(self, partition: int, gaps: set[int]) -> set[int]:
        """Judge each gap by itself; returns those over what nobody has ever seen."""
        known, finished = self.logs.logs[partition], self.logs.finished(partition)
        lost = sorted(offset for offset in gaps & known.keys() if known[offset] not in finished)
        require(not lost, f"log {partition} has gaps only over what is finished", f"gaps at {lost}")
        unknown = gaps - known.keys()
        hidden = finished - self.logs.places.keys()
        require(
            len(unknown) <= len(hidden),
            f"gaps of log {partition} over {len(hidden)} finished messages that nobody has read",
            sorted(unknown),
        )
        return unknown
