"""What a consumer for a group has left out in one partition, to hand it out later: nothing of it may be lost.

An offset *waits* if the broker told so: a prepared transaction holds it, or it is not due yet, because it is tried
again later. With ``order="key"`` messages stay behind a waiting one of their key. Messages without a key stay behind
none. What is left out is not kept, but read again: it may be much, and for a long time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from journal.formats import frame
from journal.offset_set import OffsetSet
from txbroker.client.core.promise import Promise

MOST_RUNS: Final = 50
"""How many runs of offsets are read again at a time in one partition."""

MOST_BETWEEN: Final = 200
"""Runs with at most so many offsets between them are read as one. Messages of one key lie scattered among others:
one by one, with 50 runs in a fetch, they came back more slowly than new ones were left out behind them.
"""


class LeftOut:
    """The offsets of one partition that are left out. ``waiting`` are those that wait by themselves.

    With ``order="partition"`` these are messages that were handed out and are tried again, and at most one other, at
    which the reading has stopped: nothing at or above that one has been taken.
    """

    __slots__ = ("_asked", "_held", "_keys", "_lanes", "_stop", "_top", "order", "waiting")

    def __init__(self, order: str | None) -> None:
        self.waiting = OffsetSet()
        self.order = order
        self._stop: int | None = None
        self._top = -1
        """No offset that is left out is above it."""
        self._asked: dict[int, Promise[Any]] = {}
        self._keys: dict[int, bytes | None] = {}
        self._held: set[bytes | None] | None = None
        self._lanes: dict[bytes, list[int]] | None = None

    def __bool__(self) -> bool:
        return bool(self.waiting or self._keys)

    @property
    def blocks(self) -> bool:
        """Whether nothing behind what waits may be read."""
        return self.order == "partition" and bool(self)

    def block(self, offset: int) -> None:
        """Let all messages from ``offset`` on wait for that one."""
        self._forget_stop()
        self._stop = offset
        self.waiting.add(offset)

    def _forget_stop(self) -> None:
        if self._stop is not None and self._stop not in self._keys:
            self.waiting.discard(self._stop)
        self._stop = None

    # -- messages that are tried again ----------------------------------------------------------------

    def park(self, offset: int, key: bytes | None) -> None:
        """Leave out a message that was handed out: it is tried again."""
        self._add(offset, key)
        self.waiting.add(offset)

    def asked(self, offset: int, answer: Promise[Any]) -> None:
        """Note by which request a message is tried again: until its answer it is not known whether it waits."""
        self._asked[offset] = answer

    def put_back(self, offset: int, key: bytes | None) -> None:
        """Leave out a message that was read and not handed out."""
        self._add(offset, key)

    @property
    def missing(self) -> OffsetSet:
        """What the broker is asked for: all that waits, without what it has not answered yet."""
        if not self._asked:
            return self.waiting
        self._asked = {offset: answer for offset, answer in self._asked.items() if not answer.done}
        missing = self.waiting.copy()
        for offset in self._asked:
            missing.discard(offset)
        return missing

    # -- what the broker tells ------------------------------------------------------------------------

    def admits(self, message: frame.Message, waits: bool) -> bool:
        """Return whether a message that was read may be handed out; if not, it is left out."""
        behind = self.order == "key" and message.key is not None and message.key in self._held_keys()
        if not waits and not behind:
            return True
        if waits:
            self.waiting.add(message.offset)
        self._add(message.offset, message.key)
        return False

    def told(self, missing: OffsetSet, finished: OffsetSet, waiting: OffsetSet) -> None:
        """Take what the broker told of ``missing``: what of it is finished, and what waits still."""
        for offset in [each for each in self._keys if each in finished]:
            self._remove(offset)
        gone = missing.copy()
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
        self._top = max(self._keys, default=-1)
        if self._stop is not None and self._stop >= offset:
            self._stop = None

    def mend(self, following: int) -> None:
        """Repair after an interrupt: what is at or above ``following``, the next offset to read, is read anew."""
        if self._stop is not None and (self._stop != following or self._stop not in self.waiting):
            self._forget_stop()
        free = following if self._stop is None else following + 1
        if self.waiting.end > free or self._top >= following:
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
        """Return the runs of offsets that may be read again and handed out, as (first, end).

        Runs that are near to each other are one, which is read with what is between: of that nothing is handed out.
        """
        behind: set[bytes] = set()
        free = OffsetSet()
        for offset, key in sorted(self._keys.items()):
            if offset in self.waiting:
                if self.order == "partition":
                    break
                if key is not None and self.order == "key":
                    behind.add(key)
            elif key is None or key not in behind:
                free.add(offset)
        return [run for run, _ in zip(_joined(free.runs()), range(MOST_RUNS), strict=False)]

    def readable(self, end: int) -> int:
        """Return the end of what may be handed out of a run of ready offsets: nothing is, behind one that waits."""
        return min(end, self.waiting.first) if self.order == "partition" and self.waiting else end

    def in_order(self) -> InOrder:
        """Return what says of messages that were left out which may be handed out, drawn up now."""
        if self._lanes is None:
            self._lanes = {}
            for offset, key in sorted(self._keys.items()) if self.order is not None else ():
                if (lane := self._lane(key)) is not None:
                    self._lanes.setdefault(lane, []).append(offset)
        return InOrder(self, self._lanes)

    def _lane(self, key: bytes | None) -> bytes | None:
        """Return what all messages that stay behind one another share; None for one that stays behind no other."""
        return b"" if self.order == "partition" else key

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
        self._top = max(self._top, offset)
        self._keys[offset] = key
        self._lanes = None

    def _remove(self, offset: int) -> None:
        self._held = None
        self._keys.pop(offset, None)


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return runs that have at most :data:`MOST_BETWEEN` offsets between them as one."""
    joined: tuple[int, int] | None = None
    for first, end in runs:
        if joined is not None and first - joined[1] <= MOST_BETWEEN:
            joined = joined[0], end
            continue
        if joined is not None:
            yield joined
        joined = first, end
    if joined is not None:
        yield joined


class InOrder:
    """Says of messages that were left out, in the order of their offsets, which may be handed out together: none while
    a lower one that it stays behind is left out, and not among them.
    """

    def __init__(self, left: LeftOut, lanes: Mapping[bytes, Sequence[int]]) -> None:
        self._left = left
        self._lanes = lanes
        self._places: dict[bytes, int] = {}

    def admits(self, offset: int, key: bytes | None) -> bool:
        """Return whether the next message may be handed out with those that were admitted before."""
        lane = self._left._lane(key)
        if lane is None or lane not in self._lanes:
            return True
        offsets, place = self._lanes[lane], self._places.get(lane, 0)
        while place < len(offsets) and not self._left.has(offsets[place]):
            place += 1  # it is not left out any more
        is_lowest = place == len(offsets) or offsets[place] >= offset
        self._places[lane] = place + 1 if is_lowest else place
        return is_lowest
