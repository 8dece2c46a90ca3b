"""The rows of one fold in a checkpoint, read one after the other as the types that the fold gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

Row = TypeVar("Row")
Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number in a row that cannot be negative."""


class Fact(NamedTuple):
    """A fact that a fold states, for people; ``partition`` is the number of the partition concerned, or 0."""

    what: str
    partition: int = 0


class RowsEnded(Exception):
    """A fold wants a row more than there are."""


class RowReader:
    """Reads rows as the checkpoint's file has them; ``typed`` are those read so far."""

    __slots__ = ("_rows", "typed")

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows
        self.typed: list[Any] = []

    @property
    def left(self) -> bool:
        """Whether there are more rows."""
        return len(self.typed) < len(self._rows)

    def take(self, kind: type[Row], check: Callable[[Row], object] | None = None) -> Row:
        """Read the next row; ``check`` raises for an impossible one.

        Raises ``msgspec.ValidationError`` if the row is not of that type, :class:`RowsEnded` if there is none.
        """
        if not self.left:
            raise RowsEnded
        found = msgspec.convert(self._rows[len(self.typed)], kind)
        if check is not None:
            check(found)
        self.typed.append(found)
        return found

    def rest(self, kind: type[Row]) -> None:
        """Read all remaining rows, each of that type."""
        try:
            self.typed += msgspec.convert(self._rows[len(self.typed) :], list[kind])  # type: ignore[valid-type]
        except msgspec.ValidationError:  # read again one by one, up to the wrong row
            while self.left:
                self.take(kind)
            raise
