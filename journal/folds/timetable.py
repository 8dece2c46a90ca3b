"""The timetable of one clock: which scheduled messages are due when, 8 bytes for each (decision 0054).

It is a hashed timing wheel with two levels (Varghese and Lauck, SOSP 1987): an array for each hour; the hour that comes
is laid out in an array for each second, and a second that has come is put in order. Laying out is done step by step, in
bounded time. An entry is its milliseconds within the hour and its id, in one number of 64 bits.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Final

from journal.formats.envelope import ID_BITS

SECOND: Final = 1_000
HOUR: Final = 3_600 * SECOND
AHEAD: Final = 60 * SECOND
"""How many ms before an hour it is laid out."""
PIECE: Final = 4_096
"""Most entries that one step moves, in about 2 ms."""
_ID: Final = (1 << ID_BITS) - 1
assert HOUR << ID_BITS < 1 << 64


class Timetable:
    """Ids by the times at which they are due, in µs; earlier ones are given out first, of one millisecond in the order
    of their numbers. Times are rounded up to milliseconds.

    It knows nothing of messages that are taken back: they stay until they are due, or until :meth:`weed`.
    """

    def __init__(self) -> None:
        self._hours: dict[int, array[int]] = {}
        self._hour_order: list[int] = []
        self._opened = -1
        """The highest hour that is laid out, or being laid out."""
        self._seconds: dict[int, array[int]] = {}
        self._second_order: list[int] = []
        self._begun = -1
        """The highest second that is in order, or being put in order."""
        self._ready: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, number: int) -> None:
        """Add an id that is due at that time."""
        ms = -(-due // 1_000)
        self._count += 1
        if ms // HOUR > self._opened:
            hour, within = divmod(ms, HOUR)
            _append(self._hours, self._hour_order, hour, within << ID_BITS | number)
        else:
            self._lay(ms, number)

    def _lay(self, ms: int, number: int) -> None:
        second = ms // SECOND
        if second > self._begun:
            entry = ms % HOUR << ID_BITS | number
            _append(self._seconds, self._second_order, second, entry)
        else:
            heapq.heappush(self._ready, ms << ID_BITS | number)

    def step(self, now: int) -> bool:
        """Do a bounded part of what must be done before :meth:`first` at ``now``; return whether more may be left.

        A second is not begun before those that were due earlier are removed, so that little is in order at a time.
        """
        ms = now // 1_000
        if self._hour_order and self._hour_order[0] * HOUR <= ms + AHEAD:
            hour, entries = _last(self._hours, self._hour_order)
            self._opened = max(self._opened, hour)
            base = hour * HOUR
            for entry in entries:
                self._lay(base + (entry >> ID_BITS), entry & _ID)
        elif self._second_order and self._second_order[0] <= (self._begun if self._ready else ms // SECOND):
            second, entries = _last(self._seconds, self._second_order)
            self._begun = max(self._begun, second)
            base = second * SECOND // HOUR * HOUR
            for entry in entries:
                heapq.heappush(self._ready, (base << ID_BITS) + entry)
        else:
            return False
        return True

    def first(self, now: int) -> tuple[int, int] | None:
        """Return the id that is due first, and when it is due in µs; None if none is due at ``now``.

        :meth:`step` must have returned False for that time, or a later one.
        """
        ready = self._ready
        if not ready or ready[0] >> ID_BITS > now // 1_000:
            return None
        return ready[0] & _ID, (ready[0] >> ID_BITS) * 1_000

    def remove_first(self) -> None:
        """Remove what :meth:`first` has returned."""
        heapq.heappop(self._ready)
        self._count -= 1

    def next_at(self) -> int | None:
        """Return the µs at which :meth:`step` or :meth:`first` may have something to do; None if nothing waits."""
        found = []
        if self._ready:
            found.append(self._ready[0] >> ID_BITS)
        if self._second_order:
            found.append(self._second_order[0] * SECOND)
        if self._hour_order:
            found.append(self._hour_order[0] * HOUR - AHEAD)
        return min(found) * 1_000 if found else None

    def coming(self, until: int) -> Iterator[int]:
        """Yield ids that are due up to about that time, as far as they are laid out, in no order."""
        for entry in self._ready:
            yield entry & _ID
        last = until // 1_000 // SECOND
        for second in [each for each in self._second_order if each <= last]:
            for entry in self._seconds[second]:
                yield entry & _ID

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield (due, id) of all, in no order; ``due`` is in µs."""
        for hour, entries in self.rows():
            yield from entries_of(hour, entries)

    def weed(self, is_over: Callable[[int], bool]) -> None:
        """Remove the ids of which that is true. It takes 0.3 µs for each that is there."""
        kept = [(due, number) for due, number in self.entries() if not is_over(number)]
        self.__init__()  # type: ignore[misc]
        for due, number in kept:
            self.add(due, number)

    # -- checkpoints -------------------------------------------------------------------------------

    def rows(self) -> list[tuple[int, bytes]]:
        """Return all entries for a checkpoint: hours, and the numbers of each, little-endian."""
        found: dict[int, list[bytes]] = {}
        for hour, entries in self._hours.items():
            found.setdefault(hour, []).append(_packed(entries))
        for second, entries in self._seconds.items():
            found.setdefault(second * SECOND // HOUR, []).append(_packed(entries))
        ready: dict[int, array[int]] = {}
        for entry in self._ready:
            hour, within = divmod(entry >> ID_BITS, HOUR)
            ready.setdefault(hour, array("Q")).append(within << ID_BITS | entry & _ID)
        for hour, entries in ready.items():
            found.setdefault(hour, []).append(_packed(entries))
        return [(hour, b"".join(pieces)) for hour, pieces in found.items()]

    @classmethod
    def of(cls, rows: list[tuple[int, bytes]]) -> Timetable:
        """Return the timetable with the entries of a checkpoint."""
        found = cls()
        for hour, data in rows:
            found._hours[hour] = _unpacked(data)
            found._hour_order.append(hour)
            found._count += len(found._hours[hour])
        heapq.heapify(found._hour_order)
        return found


def entries_of(hour: int, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (due in µs, id) of some of the numbers in a row of :meth:`Timetable.rows`."""
    for entry in _unpacked(data):
        yield (hour * HOUR + (entry >> ID_BITS)) * 1_000, entry & _ID


def _append(arrays: dict[int, array[int]], order: list[int], number: int, entry: int) -> None:
    entries = arrays.get(number)
    if entries is None:
        arrays[number] = array("Q", (entry,))
        heapq.heappush(order, number)
    else:
        entries.append(entry)


def _last(arrays: dict[int, array[int]], order: list[int]) -> tuple[int, array[int]]:
    """Remove and return up to a piece of the first array, and its number."""
    number = order[0]
    entries = arrays[number]
    piece = entries[-PIECE:]
    del entries[-PIECE:]
    if not entries:
        del arrays[number]
        heapq.heappop(order)
    return number, piece


def _packed(entries: array[int]) -> bytes:
    if sys.byteorder == "big":
        entries = array("Q", entries)
        entries.byteswap()
    return entries.tobytes()


def _unpacked(data: bytes) -> array[int]:
    entries = array("Q")
    entries.frombytes(data)
    if sys.byteorder == "big":
        entries.byteswap()
    return entries
