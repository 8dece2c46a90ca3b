"""What a consumer for a group has left out in one partition, to hand it out later: nothing of it may be lost.

An offset *waits* if the broker told so: a prepared transaction holds it, or it is not due yet. With ``order="key"``
messages stay behind a waiting one of their key. Messages without a key stay behind none. What is left out is not kept,
but read again: it may be much, and for a long time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from journal.formats import frame
from journal.offset_set import OffsetSet

MOST_RUNS: Final = 50
"""How many runs of offsets are read again at a time in one partition."""


class LeftOut:
    """The offsets of one partition that are left out. ``waiting`` are those that wait by themselves.

    With ``order="partition"`` ``waiting`` has one offset at most, and nothing at or above it has been taken.
    """

    __slots__ = ("_held", "_keys", "order", "waiting")

    def __init__(self, order: str | None) -> None:
        self.waiting = OffsetSet()
        self.order = order
        self._keys: dict[int, bytes | None] = {}
        self._held: set[bytes | None] | None = None

    def __bool__(self) -> bool:
        return bool(self.waiting or self._keys)

    @property
    def blocks(self) -> bool:
        """Whether nothing behind what waits may be read."""
        return self.order == "partition" and bool(self.waiting)

    def block(self, offset: int) -> None:
        """Let all messages from ``offset`` on wait for that one."""
        self.waiting = OffsetSet()
        self.waiting.add(offset)

    def admits(self, message: frame.Message, waits: bool) -> bool:
        """Return whether a message that was read may be handed out; if not, it is left out."""
        behind = self.order == "key" and message.key is not None and message.key in self._held_keys()
        if not waits and not behind:
            return True
        if waits:
            self.waiting.add(message.offset)
        self._add(message.offset, message.key)
        return False

    def told(self, finished: OffsetSet, waiting: OffsetSet) -> None:
        """Take what the broker told of ``waiting``: what of it is finished, and what waits still."""
        for offset in [each for each in self._keys if each in finished]:
            self._remove(offset)
        gone = self.waiting.copy()
        gone.difference_update(waiting)
        gone.update(finished)
        self.waiting.difference_update(gone)

    def wait_again(self, waiting: OffsetSet) -> None:
        """Note of offsets that were free, and are left out, that they wait."""
        for offset in self._keys:
            if offset in waiting:
                self.waiting.add(offset)

    def forget_from(self, offset: int) -> None:
        """Forget what is at or above ``offset``: it is read anew."""
        self.taken([each for each in self._keys if each >= offset])
        self.waiting = self.waiting.within(0, offset)

    def mend(self, following: int) -> None:
        """Repair after an interrupt: what is at or above ``following``, the next offset to read, is read anew."""
        if self.order == "partition":
            if self.waiting and self.waiting.first != following:
                self.waiting = OffsetSet()
        elif self.waiting.end > following or (self._keys and next(reversed(self._keys)) >= following):
            self.forget_from(following)

    def forget_below(self, offset: int) -> None:
        """Forget what is below ``offset``: retention has removed it."""
        self.taken([each for each in self._keys if each < offset])

    def taken(self, offsets: Iterable[int]) -> None:
        """Forget these offsets: they are handed out."""
        for offset in offsets:
            self._remove(offset)
            self.waiting.discard(offset)

    def ready(self) -> list[tuple[int, int]]:
        """Return the runs of offsets that may be read again and handed out, as (first, end)."""
        behind: set[bytes] = set()
        free = OffsetSet()
        for offset, key in sorted(self._keys.items()):
            if offset in self.waiting:
                if key is not None and self.order == "key":
                    behind.add(key)
            elif key is None or key not in behind:
                free.add(offset)
        return [run for run, _ in zip(free.runs(), range(MOST_RUNS), strict=False)]

    def has(self, offset: int) -> bool:
        """Return whether an offset is left out."""
        return offset in self._keys

    def _held_keys(self) -> set[bytes | None]:
        """Return the keys of what is left out. After an interrupt there may be more: these are only read again."""
        if self._held is None:
            self._held = set(self._keys.values())
        return self._held

    def _add(self, offset: int, key: bytes | None) -> None:
        if self.order == "key":
            self._held_keys().add(key)
        self._keys[offset] = key

    def _remove(self, offset: int) -> None:
        self._held = None
        self._keys.pop(offset, None)
