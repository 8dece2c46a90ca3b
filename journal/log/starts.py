"""Which starts these data have had: the fold that tells a session of theirs from one of another time line.

Numbers of starts are ordered and come again: a copy of a data directory counts on from where it was taken, and so does
the original. The random nonce in the record of a start does not. A start that is made again because a crash took its
record away has another nonce; nobody was told the first one, for a start serves nobody before its record is forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from zope.interface import implementer

from journal.constants import STARTS_KEPT
from journal.formats.checkpoint_rows import Fact, RowReader
from journal.formats.record import Nonce, Started
from journal.interfaces import IFold


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
        """That of the newest start."""
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
        """Whether these data had a start of that number and nonce, and remember it."""
        return self._nonces.get(number) == nonce

    def apply(self, lsn: int, record: Started, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Take a start in; the oldest one too many is forgotten."""
        self._nonces[record.start] = record.nonce
        if len(self._nonces) > STARTS_KEPT:
            del self._nonces[self.oldest]

    def snapshot(self) -> Iterator[StartRow]:
        """A row for each start that is known."""
        return iter([StartRow(number, nonce) for number, nonce in self._nonces.items()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Draw the rows of a checkpoint: one at least, and their numbers grow."""

        def check(start: StartRow) -> None:
            if rows.typed and start.number <= rows.typed[-1].number:
                raise msgspec.ValidationError(
                    f"start {start.number} comes after start {rows.typed[-1].number}"
                )

        rows.take(StartRow)
        while rows.left:
            rows.take(StartRow, check)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """The nonce of each start that is known."""
        for number, nonce in self._nonces.items():
            yield Fact(f"the nonce of start {number}"), nonce.hex()

    def restore(self, rows: Iterable[StartRow]) -> None:
        """Replace the state by what :meth:`snapshot` gave."""
        self._nonces = {start.number: start.nonce for start in rows}
