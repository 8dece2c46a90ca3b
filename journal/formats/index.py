"""The bytes of the sparse indexes beside a segment. They are hints: no entry is believed unchecked.

``.index`` holds ``offset u64 | position u32 | running u32 | crc u32``, ``.time`` holds
``time i64 | offset u64 | crc u32``, both ascending, an entry of each for about every 16 KiB of log. An offset entry
says that the frame of that offset begins at that position of the file, and that ``running`` is the segment's running
checksum up to there (:mod:`journal.formats.segment_header`). A time entry says that messages from that offset on were
appended at that time (µs) or later, and those below it at that time or earlier. The segment's first frame has no
entry. ``crc`` is CRC-32C of the bytes before it, seeded as the running checksum is, so that an index of another
segment fails it.

Both are written beside the flush without a force, and forced when the segment is closed. This rule makes gaps
visible: a frame that has no entry begins less than ``MAX_GAP`` after the entry before it, so a reader that must scan
further knows that entries are missing. So a segment that is shorter than that needs no entry, and has no index files
before it has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.constants import INDEX_INTERVAL_BYTES
from journal.formats.frame import walk
from journal.formats.segment_header import SEGMENT_HEADER_BYTES

OFFSET_FIELDS = {"offset": "Q", "position": "I", "running": "I", "crc": "I"}
"""The fields of an entry of the index of offsets, big-endian, as :mod:`struct` letters."""
OFFSET_ENTRY = Struct(">" + "".join(OFFSET_FIELDS.values()))
TIME_ENTRY = Struct(">qQI")
LONG_APPEND = 2 * INDEX_INTERVAL_BYTES
"""A longer append gets entries for frames inside it too."""
MAX_GAP = INDEX_INTERVAL_BYTES + LONG_APPEND

_offset_key = Struct(">QII").pack
_time_key = Struct(">qQ").pack


class DamagedIndex(Exception):
    """An entry is not what was written, or entries are missing: the index must be made again."""


def has_no_entry(size: int) -> bool:
    """Return whether no frame of a segment of ``size`` bytes needs an entry."""
    return size <= SEGMENT_HEADER_BYTES + INDEX_INTERVAL_BYTES


def is_needless(size: int) -> bool:
    """Return whether a segment of ``size`` bytes may be without index files: all of it lies within one gap."""
    return size < SEGMENT_HEADER_BYTES + MAX_GAP


class IndexEntries:
    """Entries to be written, chosen as frames are added. ``last_position`` is that of the last existing entry."""

    __slots__ = ("last_position", "places")

    def __init__(self, last_position: int = SEGMENT_HEADER_BYTES) -> None:
        self.last_position = last_position
        self.places: list[tuple[int, int, int]] = []
        """(offset, position, time) of each."""

    def add(self, offset: int, position: int, time: int) -> None:
        """Add an entry for the frame at ``position`` if one is due there."""
        if position - self.last_position >= INDEX_INTERVAL_BYTES:
            self.places.append((offset, position, time))
            self.last_position = position

    def packed(self, seed: int, running: Sequence[int]) -> tuple[bytes, bytes]:
        """Return the bytes for both indexes; ``running`` are the running checksums at the entries' positions."""
        offsets, times = bytearray(), bytearray()
        for (offset, position, time), checksum in zip(self.places, running, strict=True):
            key = _offset_key(offset, position, checksum)
            offsets += key + crc32c(key, seed).to_bytes(4, "big")
            key = _time_key(time, offset)
            times += key + crc32c(key, seed).to_bytes(4, "big")
        return bytes(offsets), bytes(times)

    def add_run(self, frames: memoryview, position: int, time: int) -> None:
        """Add the due entries for the stamped frames of one append that begins at ``position``."""
        for start, _, offset, _ in walk(frames):
            self.add(offset, position + start, time)

    def add_appends(
        self,
        ends: Sequence[int],
        positions: Sequence[int],
        times: Sequence[int],
        first: tuple[int, int],
        shift: int,
        bytes_at: Callable[[int, int], memoryview],
        inside: Mapping[int, Sequence[tuple[int, int]]],
    ) -> None:
        """Add the due entries for many appends, skipping from one to the next by bisection.

        ``ends`` and ``positions`` are offset and position after each append, ``first`` those before the first one; a
        position plus ``shift`` is one in the segment, ``bytes_at(start, end)`` returns the bytes of an append.
        ``inside`` has places in long appends, by where these begin. A long append without places is walked by the
        flushing thread; this happens only in a replay, because it keeps other threads from the interpreter.
        """
        number = 0
        while True:
            due = self.last_position + INDEX_INTERVAL_BYTES - shift
            number = max(number, bisect_right(positions, due))
            if number >= len(ends):
                return
            offset, start = (ends[number - 1], positions[number - 1]) if number else first
            if start in inside:
                for place, position in [(offset, start), *inside[start]]:
                    self.add(place, position + shift, times[number])
            elif positions[number] - start > LONG_APPEND:
                self.add_run(bytes_at(start, positions[number]), start + shift, times[number])
            else:
                self.add(offset, start + shift, times[number])
            number += 1


def floor_offset(data: bytes, seed: int, offset: int) -> tuple[int, int] | None:
    """Return the (offset, position) of the last entry at or below ``offset``; None if there is none.

    Raises :class:`DamagedIndex`. The caller must check whether the frame is there.
    """
    number = _count_until(data, OFFSET_ENTRY, offset)
    return _offset_entry(data, seed, number - 1) if number else None


def above_offset(data: bytes, seed: int, offset: int) -> tuple[int, int] | None:
    """Return the (offset, position) of the first entry above ``offset``; None if there is none."""
    number = _count_until(data, OFFSET_ENTRY, offset)
    return _offset_entry(data, seed, number) if number < len(data) // OFFSET_ENTRY.size else None


Place = tuple[int, int]
"""(offset, position) of a frame."""


def around_time(offsets: bytes, times: bytes, seed: int, time: int) -> tuple[Place | None, Place | None]:
    """Return the places of the last entry before ``time`` and of the one after that; None where there is none.

    Messages that were appended at ``time`` or later begin between the two. Raises :class:`DamagedIndex`.
    """
    count = len(times) // TIME_ENTRY.size
    if count != len(offsets) // OFFSET_ENTRY.size:
        raise DamagedIndex(f"{count} entries of times are beside another number of offsets")
    number = _count_until(times, TIME_ENTRY, time - 1)
    before = _timed_entry(offsets, times, seed, number - 1) if number else None
    return before, _timed_entry(offsets, times, seed, number) if number < count else None


def sound_entries(offsets: bytes, times: bytes, seed: int, end_offset: int, size: int) -> int:
    """Return how many entries, from the first on, are sound in both indexes and inside a segment of that size.

    A segment that was cut has fewer messages than its indexes; those entries are not counted.
    """
    count = min(sound_offsets(offsets, seed, end_offset, size), len(times) // TIME_ENTRY.size)
    last_time = -(1 << 63)
    for number in range(count):
        offset = OFFSET_ENTRY.unpack_from(offsets, number * OFFSET_ENTRY.size)[0]
        time, again, crc = TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)
        if again != offset or time < last_time or crc32c(_time_key(time, offset), seed) != crc:
            return number
        last_time = time
    return count


def sound_offsets(offsets: bytes, seed: int, end_offset: int, size: int) -> int:
    """Return the same for the offset index alone, whatever the time index has."""
    last_offset, last_position = 0, SEGMENT_HEADER_BYTES
    count = len(offsets) // OFFSET_ENTRY.size
    for number in range(count):
        offset, position, running, crc = OFFSET_ENTRY.unpack_from(offsets, number * OFFSET_ENTRY.size)
        is_inside = last_position < position < size and last_offset < offset < end_offset
        if not is_inside or crc32c(_offset_key(offset, position, running), seed) != crc:
            return number
        last_offset, last_position = offset, position
    return count


class Anchor(NamedTuple):
    """A place in a segment at which its index, or its checkpoint, has the running checksum."""

    offset: int
    position: int
    running: int


def anchors(
    offsets: bytes, seed: int, end_offset: int, size: int, checksum: Callable[..., int] = crc32c
) -> list[Anchor]:
    """Return the entries of an offset index that are sound by themselves, ascending, inside a segment of that size.

    Damaged ones are left out: those before and behind them still prove the bytes between.
    """
    found: list[Anchor] = []
    last = Anchor(0, SEGMENT_HEADER_BYTES, 0)
    for number in range(len(offsets) // OFFSET_ENTRY.size):
        offset, position, running, crc = OFFSET_ENTRY.unpack_from(offsets, number * OFFSET_ENTRY.size)
        is_inside = last.position < position < size and last.offset < offset < end_offset
        if is_inside and checksum(_offset_key(offset, position, running), seed) == crc:
            last = Anchor(offset, position, running)
            found.append(last)
    return found


def sound_times(times: bytes, seed: int, above: int, end_offset: int) -> list[tuple[int, int]]:
    """Return the (offset, time) of all entries that are sound by themselves, beyond ``above``, as long as they
    ascend.
    """
    found: list[tuple[int, int]] = []
    for number in range(len(times) // TIME_ENTRY.size):
        time, offset, crc = TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)
        if above < offset < end_offset and crc32c(_time_key(time, offset), seed) == crc:
            if found and (offset, time) < found[-1]:
                break
            found.append((offset, time))
    return found


def _count_until(data: bytes, layout: Struct, key: int) -> int:
    """Return how many entries have a first field of at most ``key``, by bisection over unproven entries.

    An incomplete entry at the end is being written now, or torn; the rule of gaps shows that.
    """

    def first_field(number: int) -> int:
        return int(layout.unpack_from(data, number * layout.size)[0])

    return bisect_right(range(len(data) // layout.size), key, key=first_field)


def _offset_entry(data: bytes, seed: int, number: int) -> tuple[int, int]:
    position = number * OFFSET_ENTRY.size
    offset, place, _, crc = OFFSET_ENTRY.unpack_from(data, position)
    if crc32c(data[position : position + OFFSET_ENTRY.size - 4], seed) != crc:
        raise DamagedIndex(f"entry {number} of the offset index fails its checksum")
    return offset, place


def _timed_entry(offsets: bytes, times: bytes, seed: int, number: int) -> Place:
    place = _offset_entry(offsets, seed, number)
    time, offset, crc = TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)
    if crc32c(_time_key(time, offset), seed) != crc or offset != place[0]:
        raise DamagedIndex(f"entry {number} of the time index fails its checksum or is of another offset")
    return place
