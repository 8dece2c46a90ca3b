"""The starts of these data: the fold that recognises sessions of these data among those of copies.

Numbers of starts are ordered and are used again: a copy of a data directory counts on from where it was taken, and so
does the original. The random nonce in the record of a start is not used again. If a crash removed the record of a
start, the next one has another nonce. No client knew the first one, because a start serves no client before its record
is forced.

The first start after a restore forgets all earlier ones, so that no client of the time line before is taken for one of
this; and what sessions of earlier starts have prepared is *restored* (decision 0064). Sessions have the numbers of
their starts, so no more of that is kept than the number of the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from zope.interface import implementer

from journal.constants import STARTS_KEPT
from journal.formats.checkpoint_rows import Fact, RowReader
from journal.interfaces import IFold
from journal.records.record import Nonce, Restored, Started


class StartRow(msgspec.Struct, array_like=True, frozen=True):
    """A start in a checkpoint; they come in the order of their numbers."""

    number: int
    nonce: Nonce
    restored: int = 0
    """The number of the newest start up to this one that began a time line; 0 if none did."""
    as_copy: bool = False


@implementer(IFold)
class Starts:
    """The newest ``STARTS_KEPT`` starts by number, the present one last. An older one is as unknown as a stranger's."""

    name = "starts"
    handles: tuple[type, ...] = (Started,)

    def __init__(self) -> None:
        self._nonces: dict[int, bytes] = {}
        self.restored = 0
        """The number of the newest start that was made from a backup, and began a time line; 0 without one."""
        self.as_copy = False
        """Whether that start was of a copy, whose original lives on."""

    @property
    def nonce(self) -> bytes:
        """The nonce of the newest start."""
        return next(reversed(self._nonces.values()))

    @property
    def number(self) -> int:
        """The number of the newest start."""
        return next(reversed(self._nonces))

    @property
    def newest(self) -> tuple[int, bytes]:
        """The number and the nonce of the newest start; 0 and nothing before the first."""
        return (self.number, self.nonce) if self._nonces else (0, b"")

    @property
    def oldest(self) -> int:
        """The lowest number that is still known."""
        return next(iter(self._nonces))

    def knows(self, number: int, nonce: bytes) -> bool:
        """Return whether these data had a start of that number and nonce, and remember it."""
        return self._nonces.get(number) == nonce

    def may_have_had(self, number: int, nonce: bytes) -> bool:
        """Return whether these data had that start, or one of that number in the same time line that is forgotten."""
        return self.restored <= number < self.oldest or self.knows(number, nonce)

    def is_restored(self, session: int) -> bool:
        """Return whether a session is of a time line that a restore has ended: what it prepared is restored."""
        return session >> 32 < self.restored

    def count_restored(self, sessions: Iterable[int]) -> int:
        """Return how many of these sessions are of a time line that a restore has ended."""
        return sum(map(self.is_restored, sessions)) if self.restored else 0

    def apply(self, lsn: int, record: Started, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Add a start; the oldest one too many is forgotten, and all earlier ones by the first of a time line."""
        assert not self._nonces or record.start > self.number, (
            f"start {record.start} comes after start {self.number}"
        )
        if record.restored is not Restored.NOT:
            self._nonces.clear()
            self.restored, self.as_copy = record.start, record.restored is Restored.COPY
        self._nonces[record.start] = record.nonce
        if len(self._nonces) > STARTS_KEPT:
            del self._nonces[self.oldest]

    def snapshot(self) -> Iterator[StartRow]:
        """Return a row for each known start."""
        restored = self.restored, self.as_copy
        return iter([StartRow(number, nonce, *restored) for number, nonce in self._nonces.items()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint: at least one, with growing numbers."""

        def check(start: StartRow) -> None:
            if (start.restored, start.as_copy) != (rows.typed[0].restored, rows.typed[0].as_copy):
                raise msgspec.ValidationError(f"start {start.number} is of another time line than the first")
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
        if self.restored:
            yield Fact("the start that began the time line"), (self.restored, self.as_copy)

    def restore(self, rows: Iterable[StartRow]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        starts = list(rows)
        self._nonces = {start.number: start.nonce for start in starts}
        self.restored, self.as_copy = (starts[-1].restored, starts[-1].as_copy) if starts else (0, False)
