"""What a member's caller is to be told: of partitions that are asked back, and of those that were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from txbroker.client.core.positions import Position

Place = tuple[str, int]
"""A topic and the index of a partition."""

Callback = Callable[[list[Place]], Any]


class Notice(NamedTuple):
    """A call to make: ``callback`` with the places of these positions."""

    callback: Callback
    positions: Sequence[Position]
    is_lost: bool

    def call(self) -> Any:
        """Make the call; return what it returns."""
        return self.callback([(each.topic, each.index) for each in self.positions])


class Notices:
    """The calls of ``on_revoked`` and ``on_lost`` that are to be made. A call whose end is not noted, because of an
    exception, is made again.
    """

    def __init__(
        self,
        on_revoked: Callback | None,
        on_lost: Callback | None,
        asked_back: Callable[[], Sequence[Position]],
    ) -> None:
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._asked_back = asked_back
        self._told: dict[Position, None] = {}
        self._lost: dict[Position, None] = {}

    def __bool__(self) -> bool:
        return self.next() is not None

    def lose(self, position: Position) -> None:
        """Note that a partition was lost. If that is told, it is not told that it is asked back."""
        if self._on_lost is not None:
            self._lost[position] = None
        self._told.pop(position, None)

    def may_release(self, position: Position) -> bool:
        """Return whether the caller knows that a partition is asked back."""
        return self._on_revoked is None or position in self._told

    def release(self, position: Position) -> None:
        """Note that a partition was given back."""
        self._told.pop(position, None)

    def next(self) -> Notice | None:
        """Return the next call to make; None if there is none."""
        if self._lost and self._on_lost is not None:
            return Notice(self._on_lost, list(self._lost), True)
        if self._on_revoked is not None:
            untold = [each for each in self._asked_back() if each not in self._told]
            if untold:
                return Notice(self._on_revoked, untold, False)
        return None

    def called(self, notice: Notice) -> None:
        """Note that a call has returned."""
        for position in notice.positions:
            if notice.is_lost:
                self._lost.pop(position, None)
            else:
                self._told[position] = None
