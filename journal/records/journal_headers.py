"""The bytes of a journal file around its records: the file's header and the headers of its groups.

A file begins with two copies of its header, each in a block of its own. Groups follow, each on a block
boundary: a header of 40 bytes, then its records, then whatever the block held before. See docs/file_format.md.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.constants import BLOCK
from journal.errors import NEXT_STEP, CorruptJournal
from journal.formats.checksum import Checksum
from journal.formats.version import magic
from journal.records import record

FILE_MAGIC = magic(b"TXBJRNL")
GROUP_MAGIC = 0x54584247
HEADER_COPIES = 2
FIRST_GROUP = HEADER_COPIES * BLOCK
"""The position of a file's first group."""

_FILE = Struct(">8sIQQIQQQ")
_GROUP = Struct(">IIIIQQII")
GROUP_HEADER_BYTES = _GROUP.size
GROUP_CRC_END = 8
_CRC = Struct(">I")

assert GROUP_HEADER_BYTES == 40


class FileHeader(NamedTuple):
    """The header of a journal file. ``previous_end`` is the LSN after the last valid one before it.

    ``previous_first`` 0 marks the first file of all. ``salt`` seeds every checksum of the start that wrote it. ``size``
    is the file's size in bytes when its header was forced; the file never gets shorter.
    """

    first_lsn: int
    start: int
    salt: int
    previous_first: int
    previous_end: int
    size: int = FIRST_GROUP


class GroupHeader(NamedTuple):
    """A group: ``length`` bytes of ``records`` records follow; ``forced_lsn`` was on disk before it was written."""

    length: int
    records: int
    first_lsn: int
    forced_lsn: int
    body_crc: int


def pack_file_header(header: FileHeader) -> bytes:
    """Return the blocks at the start of a file: the header, twice."""
    packed = _FILE.pack(FILE_MAGIC, 0, *header)
    crc = crc32c(packed[12:], crc32c(packed[:8]))
    packed = packed[:8] + _CRC.pack(crc) + packed[12:]
    return packed.ljust(BLOCK, b"\0") * HEADER_COPIES


def header_copies(data: bytes, checksum: Checksum = crc32c) -> list[FileHeader | None]:
    """Return the copies of the header at the start of a file's bytes; None for each that is damaged."""
    copies: list[FileHeader | None] = []
    for copy in range(HEADER_COPIES):
        packed = bytes(data[copy * BLOCK : copy * BLOCK + _FILE.size])
        fields = _FILE.unpack(packed) if len(packed) == _FILE.size else (b"", 0)
        sound = fields[0] == FILE_MAGIC and fields[1] == checksum(packed[12:], checksum(packed[:8]))
        copies.append(FileHeader(*fields[2:]) if sound else None)
    return copies


def unpack_file_header(data: bytes, path: str, checksum: Checksum = crc32c) -> FileHeader:
    """Read the header from the start of a file's bytes, from whichever copy is sound.

    Raises :class:`CorruptJournal` if neither is: a file gets its name only after its header has been forced.
    """
    for header in header_copies(data, checksum):
        if header is not None:
            return header
    raise CorruptJournal(
        f"{path} is damaged at 0 and at {BLOCK}: both copies of its header are, so none of its records can be checked. "
        f"Nothing was changed. Restore the file from a copy. {NEXT_STEP}",
        path,
    )


def pack_group_header(
    length: int, count: int, first_lsn: int, forced_lsn: int, body_crc: int, salt: int
) -> bytes:
    """Return the header of a group; its checksum is seeded with the start's salt and the group's first LSN."""
    body = _GROUP.pack(GROUP_MAGIC, 0, length, count, first_lsn, forced_lsn, body_crc, 0)
    crc = crc32c(body[GROUP_CRC_END:], record.seed(salt, first_lsn))
    return body[:4] + _CRC.pack(crc) + body[GROUP_CRC_END:]


def unpack_group_header(
    view: memoryview, position: int, salt: int, checksum: Checksum = crc32c
) -> GroupHeader | None:
    """Read the group header at a block boundary; None if there is no sound one of this start."""
    if len(view) - position < GROUP_HEADER_BYTES:
        return None
    magic, crc, length, count, first_lsn, forced_lsn, body_crc, reserved = _GROUP.unpack_from(view, position)
    if magic != GROUP_MAGIC or reserved or not count or not length:
        return None
    covered = view[position + GROUP_CRC_END : position + GROUP_HEADER_BYTES]
    if checksum(covered, record.seed(salt, first_lsn)) != crc:
        return None
    return GroupHeader(length, count, first_lsn, forced_lsn, body_crc)


class GroupFields(NamedTuple):
    """All fields of a group's header, sound or not."""

    magic: int
    crc: int
    length: int
    records: int
    first_lsn: int
    forced_lsn: int
    body_crc: int
    reserved: int


def group_fields(view: memoryview) -> GroupFields | None:
    """Return the fields at a place where a group's header may be; None if there are fewer bytes."""
    return GroupFields(*_GROUP.unpack_from(view)) if len(view) >= GROUP_HEADER_BYTES else None


def body_checksum(pieces: list[bytes | memoryview]) -> int:
    """Return the CRC-32C over a group's records, by which a whole group is checked in one call."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc


def blocks(length: int) -> int:
    """Return ``length`` rounded up to whole blocks."""
    return (length + BLOCK - 1) // BLOCK * BLOCK
