"""The bytes of a segment's table of keys: where the messages with a key, an id, or a tag may be.

``magic | crc u32 | checksum u32 | size u64 | end u64 | complete u32 | kinds u32`` and then, ascending,
``hash u32 | place u32`` for each key, each id and each tag of the segment's messages. ``hash`` is CRC-32C of the key,
the id or the tag, seeded differently for the three ``kinds``; ``place`` is the message's offset less that of the
segment. ``checksum``, ``size`` and ``end`` are those of the segment of which it was made, and ``crc``, of all that
follows it, is seeded as the segment's running checksum is: the table of another segment, or of another state of this
one, is not taken for it.
``complete`` is 0, and there are no entries, if there would be more than ``MOST_ENTRIES``.

A table is a hint that saves reading. It is made from the segment when it is wanted, and made again if it is not sound;
what it names is read and compared, so two keys of one hash cost a read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple

from crc32c import crc32c

from journal.formats.checksum import Checksum
from journal.formats.version import LAYOUT

KEYS_MAGIC: Final = b"TXBKEYS" + bytes((LAYOUT,))
_HEAD = Struct(">8sI")
_FACTS = Struct(">IQQII")
HEADER_BYTES: Final = _HEAD.size + _FACTS.size
ENTRY = Struct(">Q")
MOST_ENTRIES: Final = 4 << 20
"""With more entries the segment is searched without a table."""

_KEY_SEED: Final = 1
_ID_SEED: Final = 2
_TAG_SEED: Final = 3
_KINDS: Final = 3
_BUCKETS: Final = 256
"""Entries are sorted in so many parts: Python's sort takes 40 bytes for each, and keeps other threads waiting."""
_BUCKET_SHIFT: Final = 24

_entry = ENTRY.unpack_from

assert HEADER_BYTES == 40


class Source(NamedTuple):
    """The segment of which a table is made; ``checksum`` is the running one at its end, ``seed`` the one at its
    beginning.
    """

    base_offset: int
    end_offset: int
    size: int
    checksum: int
    seed: int


def hash_of_key(key: bytes) -> int:
    """Return the hash of a message's key."""
    return int(crc32c(key, _KEY_SEED))


def hash_of_id(id: bytes) -> int:
    """Return the hash of a message's id."""
    return int(crc32c(id, _ID_SEED))


def hash_of_tag(tag: bytes) -> int:
    """Return the hash of one of a message's tags."""
    return int(crc32c(tag, _TAG_SEED))


class KeyEntries:
    """The entries of a table that is being made of a segment that begins at ``base_offset``."""

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._buckets = [array("Q") for _ in range(_BUCKETS)]

    def add(self, hashed: int, offset: int) -> None:
        """Add the hash of a key, an id or a tag of the message at an offset."""
        self._buckets[hashed >> _BUCKET_SHIFT].append(hashed << 32 | offset - self._base)

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def packed(self, source: Source) -> bytes:
        """Return the table."""
        is_complete = len(self) <= MOST_ENTRIES and source.end_offset - self._base <= 1 << 32
        entries = array("Q")
        for bucket in self._buckets if is_complete else ():
            entries.extend(sorted(bucket))
        if byteorder == "little":
            entries.byteswap()
        facts = _FACTS.pack(source.checksum, source.size, source.end_offset, is_complete, _KINDS)
        rest = facts + entries.tobytes()
        return _HEAD.pack(KEYS_MAGIC, crc32c(rest, source.seed)) + rest


class KeyTable:
    """A sound table of a segment. Without ``is_complete`` it says nothing."""

    def __init__(self, data: bytes, source: Source) -> None:
        self._data = data
        self._source = source
        self.is_complete = bool(_FACTS.unpack_from(data, _HEAD.size)[3])

    def __len__(self) -> int:
        return (len(self._data) - HEADER_BYTES) // ENTRY.size

    def offsets(self, hashed: int, first: int = 0, most: int = MOST_ENTRIES) -> list[int]:
        """Return the offsets from ``first`` on of all messages of whose key, id or tags one has this hash, and perhaps
        of others: the first ``most`` of these, ascending.
        """
        base = self._source.base_offset
        number = self._number(hashed, max(first - base, 0))
        end = min(self._number(hashed + 1, 0), number + most)
        return [base + (self._entry(each) & 0xFFFFFFFF) for each in range(number, end)]

    def end(self, hashed: int) -> int:
        """Return the offset after the last of these messages; 0 if there are none."""
        number = self._number(hashed + 1, 0) - 1
        if number < 0 or self._entry(number) >> 32 != hashed:
            return 0
        return self._source.base_offset + (self._entry(number) & 0xFFFFFFFF) + 1

    def _number(self, hashed: int, place: int) -> int:
        """Return the number of the first entry that is not below this one."""
        return bisect_left(range(len(self)), hashed << 32 | place, key=self._entry)

    def _entry(self, number: int) -> int:
        return int(_entry(self._data, HEADER_BYTES + number * ENTRY.size)[0])


def open_table(data: bytes, source: Source, checksum: Checksum = crc32c) -> KeyTable | None:
    """Return the table if it is whole and was made of this segment as it is; else None."""
    if len(data) < HEADER_BYTES or (len(data) - HEADER_BYTES) % ENTRY.size:
        return None
    magic, crc = _HEAD.unpack_from(data)
    *facts, _, kinds = _FACTS.unpack_from(data, _HEAD.size)
    if magic != KEYS_MAGIC or kinds != _KINDS or facts != [source.checksum, source.size, source.end_offset]:
        return None
    return KeyTable(data, source) if checksum(memoryview(data)[_HEAD.size :], source.seed) == crc else None
