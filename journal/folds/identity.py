"""The identity of a broker: a random name of its data, journaled at their first start and changed for a copy alone.

Others keep it beside what they know of this broker's transactions. Session and transaction numbers of two brokers
coincide, so without it another broker behind the same address would give answers that mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zope.interface import implementer

from journal.formats.checkpoint_rows import Fact, RowReader
from journal.interfaces import IFold
from journal.records.record import Identified, Restored, Started


@implementer(IFold)
class IdentityFold:
    """The identity: 32 hexadecimal digits, "" before the first start, and again before that of a copy."""

    name = "identity"
    handles: tuple[type, ...] = (Identified, Started)

    def __init__(self) -> None:
        self.identity = ""

    def apply(self, lsn: int, record: Identified | Started, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Keep the identity of the record. A copy that begins a time line has none, until a broker gives it one."""
        if isinstance(record, Started):
            if record.restored is Restored.COPY:
                self.identity = ""
            return
        assert not self.identity, "a broker's data were given a second identity"
        self.identity = record.identity

    def snapshot(self) -> Iterator[Any]:
        """Return the identity, if there is one."""
        return iter([self.identity] if self.identity else [])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.rest(str)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the identity."""
        if self.identity:
            yield Fact("the identity of the data"), self.identity

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        self.identity = next(iter(rows), "")
