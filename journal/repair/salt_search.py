"""The salt of a journal file whose headers are gone, from the checksums that it seeds.

CRC-32C is linear over GF(2): seeding it with another value changes the result by a linear function of the seed, which
for data of one length can be inverted. So the header of one group gives the only salt with which its checksum can be
right; that its body and each of its records are right with it too is the proof.
"""

from __future__ import annotations

from crc32c import crc32c

from journal.constants import BLOCK
from journal.errors import CorruptJournal
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_CRC_END,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    FileHeader,
    group_fields,
)
from journal.vfs.file_window import FileWindow
from journal.wal.reader import FileReader, Group

_ALL = 0xFFFFFFFF


def find_salt(bytes_of: FileWindow, first_lsn: int, path: str) -> int | None:
    """Return the salt with which a sound group from ``first_lsn`` on is in the file; None if there is none."""
    for position in range(FIRST_GROUP, bytes_of.size - GROUP_HEADER_BYTES + 1, BLOCK):
        header = bytes_of.at(position, GROUP_HEADER_BYTES)
        fields = group_fields(header)
        if fields is None or fields.magic != GROUP_MAGIC or fields.first_lsn < first_lsn:
            continue
        salt = (seed_of(bytes(header[GROUP_CRC_END:]), fields.crc) - fields.first_lsn) & _ALL
        reader = FileReader(bytes_of, path, FileHeader(fields.first_lsn, 0, salt, 0, fields.first_lsn))
        found = next(reader.groups(position=position))
        if isinstance(found, Group) and found.is_whole and _are_sound(reader, found):
            return salt
    return None


def _are_sound(reader: FileReader, group: Group) -> bool:
    """Return whether each record of a group fulfils its own checksum too."""
    try:
        return sum(1 for _ in reader.records(group)) == group.sound
    except CorruptJournal:
        return False


def seed_of(data: bytes, crc: int) -> int:
    """Return the only seed with which the checksum of ``data`` is ``crc``."""
    base = crc32c(data, 0)
    columns = [crc32c(data, 1 << bit) ^ base for bit in range(32)]
    wanted, seed = crc ^ base, 0
    rows = [(column, 1 << bit) for bit, column in enumerate(columns)]
    for bit in range(32):
        pivot = next(index for index in range(bit, 32) if rows[index][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        value, mask = rows[bit]
        rows = [
            (v ^ value, m ^ mask) if index != bit and v >> bit & 1 else (v, m)
            for index, (v, m) in enumerate(rows)
        ]
    for bit in range(32):
        if wanted >> bit & 1:
            seed ^= rows[bit][1]
    return seed
