"""The timetable of one clock: which scheduled messages are due when, 8 bytes for each (decision 0054).

It is a hierarchy of timing wheels (Varghese and Lauck, SOSP 1987, scheme 7): an array for each period of three days;
the period that comes is laid out in an array for each hour, the hour that comes in one for each second, and a second
that has come is put in order. Laying out is done step by step, in bounded time. An item of an array is a time in
milliseconds since the array's begin, and an entry: what is due, as a number of :data:`ENTRY_BITS`.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

ENTRY_BITS: Final = 36
SECOND: Final = 1_000
HOUR: Final = 3_600 * SECOND
PERIOD: Final = 1 << 28
"""ms, 74.6 hours: ten years are 1,200 of them, and their arrays take 0.2 MB."""
AHEAD: Final = 60 * SECOND
"""How many ms before an array's time comes it is laid out."""
PIECE: Final = 4_096
"""Most entries that one step moves, in about 2 ms."""
_ENTRY: Final = (1 << ENTRY_BITS) - 1
assert PERIOD << ENTRY_BITS <= 1 << 64


WIDTHS: Final = (PERIOD, HOUR, SECOND)


class Some(NamedTuple):
    """Some entries for a checkpoint: those of the array that begins at ``start`` ms and is ``width`` ms long (0: any),
    as numbers of 64 bits, little-endian.
    """

    start: int
    width: int
    items: bytes

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield (due, entry) of all, in no order; ``due`` is in µs."""
        for item in _unpacked(self.items):
            yield (self.start + (item >> ENTRY_BITS)) * 1_000, item & _ENTRY

    def only(self, keep: Callable[[int], bool]) -> Some:
        """Return those entries of which ``keep`` says so."""
        kept = array("Q", (item for item in _unpacked(self.items) if keep(item & _ENTRY)))
        return self._replace(items=_packed(kept))

    @property
    def is_possible(self) -> bool:
        """Whether a timetable may have returned it."""
        if not self.items or len(self.items) % 8:
            return False
        if self.width == 0:
            return True
        latest = max(_unpacked(self.items)) >> ENTRY_BITS
        return self.width in WIDTHS and self.start % self.width == 0 and latest < self.width


class Timetable:
    """Entries by the times at which they are due, in µs; earlier ones are given out first, of one millisecond in the
    order of their numbers. Times are rounded up to milliseconds.

    It knows nothing of messages that are taken back: they stay until they are due.
    """

    def __init__(self) -> None:
        self._periods, self._hours = _Arrays(PERIOD), _Arrays(HOUR)
        self._seconds = _Arrays(SECOND)
        self._ready: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, entry: int) -> None:
        """Add an entry that is due at that time."""
        self._count += 1
        self._lay(-(-due // 1_000), entry)

    def _lay(self, ms: int, entry: int) -> None:
        for arrays in (self._periods, self._hours, self._seconds):
            if ms // arrays.width > arrays.opened:
                arrays.add(ms, entry)
                return
        heapq.heappush(self._ready, ms << ENTRY_BITS | entry)

    def step(self, now: int) -> bool:
        """Do a bounded part of what must be done before :meth:`first` at ``now``; return whether more may be left.

        A second is not begun before those that were due earlier are removed, so that little is in order at a time.
        """
        ms = now // 1_000
        for arrays, ahead in ((self._periods, AHEAD), (self._hours, AHEAD), (self._seconds, 0)):
            arrays.opened = min(
                arrays.opened, (ms + ahead) // arrays.width
            )  # the clock may have been set back
        for arrays in (self._periods, self._hours):
            if arrays.order and arrays.order[0] * arrays.width <= ms + AHEAD:
                self._open(arrays)
                return True
        seconds, last = self._seconds, ms // SECOND
        if self._ready:
            last = min(last, max(seconds.opened, (self._ready[0] >> ENTRY_BITS) // SECOND))
        if seconds.order and seconds.order[0] <= last:
            self._open(seconds)
            return True
        return False

    def _open(self, arrays: _Arrays) -> None:
        start, items = arrays.take()
        for item in items:
            self._lay(start + (item >> ENTRY_BITS), item & _ENTRY)

    def first(self, now: int) -> tuple[int, int] | None:
        """Return the entry that is due first, and when it is due in µs; None if none is due at ``now``.

        :meth:`step` must have returned False for that time, or a later one.
        """
        ready = self._ready
        if not ready or ready[0] >> ENTRY_BITS > now // 1_000:
            return None
        return ready[0] & _ENTRY, (ready[0] >> ENTRY_BITS) * 1_000

    def remove_first(self) -> None:
        """Remove what :meth:`first` has returned."""
        heapq.heappop(self._ready)
        self._count -= 1

    def next_at(self) -> int | None:
        """Return the µs at which :meth:`step` or :meth:`first` may have something to do; None if nothing waits."""
        found = [
            arrays.order[0] * arrays.width - ahead
            for arrays, ahead in ((self._periods, AHEAD), (self._hours, AHEAD), (self._seconds, 0))
            if arrays.order
        ]
        if self._ready:
            found.append(self._ready[0] >> ENTRY_BITS)
        return min(found) * 1_000 if found else None

    def coming(self, until: int) -> Iterator[int]:
        """Yield entries that are due up to about that time, as far as they are laid out, in no order."""
        for item in self._ready:
            yield item & _ENTRY
        last = until // 1_000 // SECOND
        for second in [each for each in self._seconds.order if each <= last]:
            for item in self._seconds.arrays[second]:
                yield item & _ENTRY

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield (due, entry) of all, in no order; ``due`` is in µs."""
        for some in self.rows():
            yield from some.entries()

    # -- checkpoints -------------------------------------------------------------------------------

    def rows(self, keep: Callable[[int], bool] | None = None) -> list[Some]:
        """Return all entries for a checkpoint, or those of which ``keep`` says so."""
        found = []
        for arrays in (self._periods, self._hours, self._seconds):
            for number, items in arrays.arrays.items():
                found.append(Some(number * arrays.width, arrays.width, _packed(items)))
        ready: dict[int, array[int]] = {}
        for item in self._ready:
            start = (item >> ENTRY_BITS) // PERIOD * PERIOD
            ready.setdefault(start, array("Q")).append(item - (start << ENTRY_BITS))
        found += [Some(start, 0, _packed(items)) for start, items in ready.items()]
        return found if keep is None else [kept for some in found if (kept := some.only(keep)).items]

    @classmethod
    def of(cls, rows: list[Some]) -> Timetable:
        """Return the timetable with the entries of a checkpoint."""
        found = cls()
        wheels = {arrays.width: arrays for arrays in (found._periods, found._hours, found._seconds)}
        for some in rows:
            items, arrays = _unpacked(some.items), wheels.get(some.width)
            if arrays is None:
                for item in items:
                    found.add((some.start + (item >> ENTRY_BITS)) * 1_000, item & _ENTRY)
            else:
                arrays.arrays[some.start // arrays.width] = items
                arrays.order.append(some.start // arrays.width)
                found._count += len(items)
        for arrays in wheels.values():
            heapq.heapify(arrays.order)
        return found


class _Arrays:
    """One wheel: arrays of items by number, each for ``width`` ms. ``opened`` is the highest that is laid out, or being
    laid out; ``order`` is a heap of the numbers.
    """

    __slots__ = ("arrays", "opened", "order", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.arrays: dict[int, array[int]] = {}
        self.order: list[int] = []
        self.opened = -1

    def add(self, ms: int, entry: int) -> None:
        """Add an entry to its array."""
        number, within = divmod(ms, self.width)
        items = self.arrays.get(number)
        if items is None:
            self.arrays[number] = array("Q", (within << ENTRY_BITS | entry,))
            heapq.heappush(self.order, number)
        else:
            items.append(within << ENTRY_BITS | entry)

    def take(self) -> tuple[int, array[int]]:
        """Remove up to a piece of the first array; return its begin in ms, and the items."""
        number = self.order[0]
        self.opened = max(self.opened, number)
        items = self.arrays[number]
        piece = items[-PIECE:]
        del items[-PIECE:]
        if not items:
            del self.arrays[number]
            heapq.heappop(self.order)
        return number * self.width, piece


def _packed(items: array[int]) -> bytes:
    if sys.byteorder == "big":
        items = array("Q", items)
        items.byteswap()
    return items.tobytes()


def _unpacked(data: bytes) -> array[int]:
    items = array("Q")
    items.frombytes(data)
    if sys.byteorder == "big":
        items.byteswap()
    return items
