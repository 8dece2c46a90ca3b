"""The outbox as its keeper uses it, over a resolver's connection: each method is one transaction, which has ended when
it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from txbroker import errors
from txbroker.databases.adapters.adapter import run
from txbroker.databases.adapters.database import MAX_ERROR, ROWS
from txbroker.databases.tables.identity import Identity, stored
from txbroker.databases.tables.resolver_connection import ResolverConnection

BYTES = 8 << 20
"""Bytes of rows that are read at once, but for the last of them."""

BATCH = 500
"""How many rows one statement deletes."""

_TRIES = 20
"""How often a raise of the generation is tried while others raise it."""


class Row(NamedTuple):
    """A row of a stream, its payload still packed."""

    number: int
    messages: bytes


class StreamRows(NamedTuple):
    """The rows of a stream: the lowest and the highest number, and how many rows there are."""

    stream: str
    lowest: int
    highest: int
    rows: int


class RefusedRow(NamedTuple):
    """A row that the broker will never take; ``refused_at`` is the database's time as it gives it."""

    stream: str
    number: int
    error: str
    refused_at: str
    messages: bytes


class OutboxTable:
    """The outbox beside one decision table."""

    def __init__(self, connection: ResolverConnection) -> None:
        self.connection = connection

    # -- reading -----------------------------------------------------------------------------------

    def rows(self, stream: str, after: int, patience: float) -> tuple[list[Row], bool]:
        """Return the lowest rows above a number, once they are on disk; and whether those were all when it looked.

        At most :data:`ROWS`, and not many more bytes than :data:`BYTES`. They are read in two steps: what the first
        has seen the second sees, too, because rows of a stream are committed in the order of their numbers.
        """
        database = self.connection.database
        sizes = self.connection.read(database.read_sizes, (stream, after))
        taken = total = 0
        while taken < len(sizes) and total < BYTES:
            total += int(sizes[taken][1])
            taken += 1
        if not taken:
            return [], True
        found = self.connection.read(database.read_rows, (stream, after, sizes[taken - 1][0]))
        self._force(patience)
        rows = [Row(int(number), bytes(messages)) for number, messages in found]
        return rows, taken == len(sizes) < ROWS

    def streams(self, broker: str) -> list[StreamRows]:
        """Return the streams that have rows for this broker, and how many rows each has."""
        found = self.connection.read(self.connection.database.count_rows, (broker,))
        return [
            StreamRows(_text(stream), int(low), int(high), int(rows)) for stream, low, high, rows in found
        ]

    def count_up_to(self, stream: str, number: int) -> int:
        """Return how many rows a stream has up to a number."""
        [[count]] = self.connection.read(self.connection.database.count_rows_up_to, (stream, number))
        return int(count)

    def elsewhere(self, broker: str) -> list[tuple[str, int]]:
        """Return the identities of other brokers for which rows lie here, each with how many."""
        found = self.connection.read(self.connection.database.count_rows_elsewhere, (broker,))
        return [(_text(other), int(count)) for other, count in found]

    def payload(self, stream: str, number: int, patience: float) -> bytes | None:
        """Return the payload of one row, once that is on disk; None if there is none."""
        found = self.connection.read(self.connection.database.read_row, (stream, number))
        if not found:
            return None
        self._force(patience)
        return bytes(found[0][0])

    def _force(self, patience: float) -> None:
        if not run(self.connection.database.is_forced()):
            self.connection.force(patience)

    # -- rows that go ------------------------------------------------------------------------------

    def delete(self, numbers: dict[str, list[int]], patience: float) -> None:
        """Delete delivered rows by their keys. A crash may bring them back, which changes nothing (rule b)."""
        with self.connection.transaction(patience, is_forced=False):
            for stream, some in numbers.items():
                self._delete(stream, some)

    def empty(self, lasts: dict[str, int], patience: float) -> int:
        """Delete all rows of these streams up to their last numbers, and raise the generation, by one forced commit
        (rule d); return the new generation.
        """
        for _ in range(_TRIES):
            before = self.connection.read_identity()
            if self.raise_generation(before, before.generation + 1, lasts, patience):
                return before.generation + 1
        raise errors.StorageUnavailable(
            f"other programs have raised the generation of the decision table {_TRIES} times meanwhile; nothing is "
            "lost, the streams are released later"
        )

    def raise_generation(
        self, before: Identity, generation: int, lasts: dict[str, int], patience: float
    ) -> bool:
        """Delete all rows of these streams up to these numbers, and raise the generation, by one forced commit; return
        False, having changed nothing, if the identity is not ``before`` any more.
        """
        after = stored(before.name, generation, before.home)
        with self.connection.transaction(patience) as database:
            for stream, last in lasts.items():
                while found := run(database.execute(database.read_numbers, (stream, last))).rows:
                    self._delete(stream, [int(number) for (number,) in found])
            raised = run(database.execute(database.raise_generation, (after, before.text)))
            if raised.changed == 0:
                run(database.rollback())
        return raised.changed > 0

    def refuse(self, stream: str, number: int, error: str, patience: float) -> None:
        """Move a row to those that the broker will never take; does nothing if it is not there."""
        with self.connection.transaction(patience) as database:
            run(database.execute(database.refuse_row, (error[:MAX_ERROR], stream, number)))
            self._delete(stream, [number])

    def is_refused(self, stream: str, number: int) -> bool:
        """Return whether a row was moved to those that the broker will never take."""
        return bool(self.connection.read(self.connection.database.read_refused, (stream, number)))

    def mark(self, stream: str, number: int, broker: str, payload: bytes, patience: float) -> bool:
        """Take the place of a row, so that its block can never commit; return False if the row is there.

        Raises, :meth:`ResolverConnection.is_blocked`, while the block's transaction is open.
        """
        try:
            with self.connection.transaction(patience) as database:
                run(database.execute(database.insert_any_row, (stream, number, broker, payload)))
        except Exception as error:
            if self.connection.database.is_duplicate(error):
                return False
            raise
        return True

    def _delete(self, stream: str, numbers: Sequence[int]) -> None:
        database = self.connection.database
        for start in range(0, len(numbers), BATCH):
            some = numbers[start : start + BATCH]
            run(database.execute(database.delete_rows(len(some)), (stream, *some)))

    # -- refused rows ------------------------------------------------------------------------------

    def refused(self, broker: str) -> list[tuple[str, int]]:
        """Return stream and number of each row that the broker has refused for ever, oldest first."""
        found = self.connection.read(self.connection.database.list_refused, (broker,))
        return [(_text(stream), int(number)) for stream, number in found]

    def refused_row(self, stream: str, number: int) -> RefusedRow | None:
        """Return a refused row; None if there is none."""
        found = self.connection.read(self.connection.database.read_refused, (stream, number))
        return _refused(found[0]) if found else None

    def retry(self, row: RefusedRow, stream: str, broker: str, patience: float) -> None:
        """Put a refused row into the outbox again, as the first of a stream of its own."""
        with self.connection.transaction(patience) as database:
            if run(database.execute(database.delete_refused, (row.stream, row.number))).changed == 0:
                raise errors.Misuse(
                    f"number {row.number} of stream {row.stream} is no refused row any more; nothing was done"
                )
            run(database.execute(database.insert_any_row, (stream, 1, broker, row.messages)))

    def drop(self, stream: str, number: int, patience: float) -> bool:
        """Delete a refused row: its messages are gone; return whether it was there."""
        with self.connection.transaction(patience) as database:
            return run(database.execute(database.delete_refused, (stream, number))).changed > 0


def _refused(row: Sequence[Any]) -> RefusedRow:
    stream, number, error, at, messages = row
    return RefusedRow(_text(stream), int(number), _text(error), str(at), bytes(messages))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)
