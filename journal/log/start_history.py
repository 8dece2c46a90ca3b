"""The starts of these data: the fold that recognises sessions of these data among those of copies.

Numbers of starts are ordered and are used again: a copy of a data directory counts on from where it was taken, and so
does the original. The random nonce in the record of a start is not used again. If a crash removed the record of a
start, the next one has another nonce. No client knew the first one, because a start serves no client before its record
is forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from zope.interface import implementer

from journal.constants import STARTS_KEPT
from journal.formats.checkpoint_rows import Fact, RowReader
from journal.interfaces import IFold
from journal.records.record import Nonce, Started


class StartRow(msgspec.Struct, array_like=True, frozen=True):
    """A start in a checkpoint; they come in the order of their numbers."""

    number: int
    nonce: Nonce


@implementer(IFold)
class Starts:
    """The newest ``STARTS_KEPT`` starts by number, the present one last. An older one is as unknown as a stranger's."""

    name = "starts"
    handles: tuple[type, ...] = (Started,)

    def __init__(self) -> None:
        self._nonces: dict[int, bytes] = {}

    @property
    def nonce(self) -> bytes:
        """The nonce of the newest start."""
        return next(reversed(self._nonces.values()))

    @property
    def number(self) -> int:
        """The number of the newest start."""
        return next(reversed(self._nonces))

    @property
    def oldest(self) -> int:
        """The lowest number that is still known."""
        return next(iter(self._nonces))

    def knows(self, number: int, nonce: bytes) -> bool:
        """Return whether these data had a start of that number and nonce, and remember it."""
        return self._nonces.get(number) == nonce

    def apply(self, lsn: int, record: Started, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Add a start; the oldest one too many is forgotten."""
        assert not self._nonces or record.start > self.number, (
            f"start {record.start} comes after start {self.number}"
        )
        self._nonces[record.start] = record.nonce
        if len(self._nonces) > STARTS_KEPT:
            del self._nonces[self.oldest]

    def snapshot(self) -> Iterator[StartRow]:
        """Return a row for each known start."""
        return iter([StartRow(number, nonce) for number, nonce in self._nonces.items()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint: at least one, with growing numbers."""

        def check(start: StartRow) -> None:
            if rows.typed and start.number <= rows.typed[-1].number:
                raise msgspec.ValidationError(
                    f"start {start.number} comes after start {rows.typed[-1].number}"
                )

        rows.take(StartRow)
        while rows.left:
            rows.take(StartRow, check)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the nonce of each known start."""
        for number, nonce in self._nonces.items():
            yield Fact(f"the nonce of start {number}"), nonce.hex()

    def restore(self, rows: Iterable[StartRow]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        self._nonces = {start.number: start.nonce for start in rows}
