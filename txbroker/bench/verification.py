"""The verification reads the topic back and compares it with what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

import txbroker
from txbroker.bench.plan import HEADER


class Verification(msgspec.Struct, frozen=True):
    """The result of a verification: what was found of what was acknowledged, and what should not be there.

    ``unacknowledged`` counts messages that were found although their answers failed or were lost.
    """

    acknowledged: int
    found: int
    missing: int
    twice: int
    unacknowledged: int

    @property
    def sound(self) -> bool:
        """Return whether everything that was acknowledged was found exactly once."""
        return not self.missing and not self.twice


class Expected:
    """The expected messages of a run by client, to be ticked off."""

    def __init__(
        self, run: int, sent: Mapping[int, int], unacknowledged: Iterable[tuple[int, int, int]]
    ) -> None:
        self._run = run
        self._seen = {client: bytearray(count) for client, count in sent.items()}
        self._open = {client: bytearray(count) for client, count in sent.items()}
        for client, first, beyond in unacknowledged:
            self._open[client][first:beyond] = bytes([1]) * (beyond - first)
        self._twice = 0

    def saw(self, value: bytes | None) -> None:
        """Tick off a message that was read; messages of other runs are ignored."""
        if value is None or len(value) < HEADER.size:
            return
        run, client, number, _ = HEADER.unpack_from(value)
        seen = self._seen.get(client)
        if run == self._run and seen is not None and number < len(seen):
            self._twice += seen[number]
            seen[number] = 1

    def verdict(self) -> Verification:
        """Return the result of the comparison."""
        acknowledged = found = unpromised = 0
        for client, seen in self._seen.items():
            opened = self._open[client]
            acknowledged += opened.count(0)
            unpromised += (int.from_bytes(seen, "big") & int.from_bytes(opened, "big")).bit_count()
            found += seen.count(1)
        found -= unpromised
        return Verification(acknowledged, found, acknowledged - found, self._twice, unpromised)


def read_back(
    connection: txbroker.Connection, topic: str, starts: Mapping[int, int], expected: Expected
) -> Verification:
    """Read the topic's partitions from ``starts`` to their ends; raises OffsetOutOfRange where retention was faster."""
    every = set(starts.values())
    choices: list[tuple[list[int] | None, int]] = [([part], at) for part, at in starts.items()]
    if len(every) == 1:
        choices = [(None, every.pop())]
    for partitions, start in choices:
        reader = connection.consume(
            topic, partitions=partitions, start=start, follow=False, out_of_range="raise"
        )
        with reader:
            for message in reader:
                expected.saw(message.value)
    return expected.verdict()
