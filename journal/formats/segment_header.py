"""The first bytes of a segment's file: its log, its first offset, and the start that made it.

64 bytes: ``magic 8 | nonce 16 | start u64 | partition u64 | base offset u64 | salt u64 | zero u32 | crc u32``. ``crc``
is CRC-32C of the bytes before it. The frames follow without a gap.

A disk or a person can exchange the contents of two files, and every frame still fulfils its checksum. The header shows
that for a whole file. For bytes inside it the *running checksum* does: CRC-32C of all frames of the segment up to a
position, ids included, seeded with the salt. The index has it for each of its entries and the checkpoint for the end.
So the bytes between any two places with a known running checksum are proven, and no bytes of another segment are taken
for them. Clients never learn a salt.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.formats.version import magic

SEGMENT_MAGIC = magic(b"TXBSEGM")
_LAYOUT = Struct(">8s16sQQQQII")
_SALT = Struct(">Q")
_CRC = Struct(">I")
_CRC_AT = _LAYOUT.size - _CRC.size
SEGMENT_HEADER_BYTES = _LAYOUT.size
SALT_BYTES = _SALT.size

assert SEGMENT_HEADER_BYTES == 64

Checksum = Callable[..., int]
"""An implementation of CRC-32C: ``checksum(data, seed=0)``."""


class SegmentHeader(NamedTuple):
    """The header of a segment. ``start`` and its ``nonce`` are of the start that made it; 0: a repair did."""

    nonce: bytes
    start: int
    partition: int
    base_offset: int
    salt: int


class HeaderFault(NamedTuple):
    """A fault of the first bytes of a file. ``foreign``: they are sound, and of another file.

    Damaged bytes prove nothing, and the rest may be what belongs there.
    """

    what: str
    foreign: bool


def pack_segment_header(header: SegmentHeader) -> bytes:
    """Return the first bytes of a segment."""
    packed = _LAYOUT.pack(SEGMENT_MAGIC, *header, 0, 0)[:_CRC_AT]
    return packed + _CRC.pack(crc32c(packed))


def unpack_segment_header(data: bytes, checksum: Checksum = crc32c) -> SegmentHeader | None:
    """Return the header at the start of a file's bytes; None if there is no sound one."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, nonce, start, partition, base_offset, salt, zero, crc = _LAYOUT.unpack_from(data)
    if magic != SEGMENT_MAGIC or zero or checksum(bytes(data[:_CRC_AT])) != crc:
        return None
    return SegmentHeader(nonce, start, partition, base_offset, salt)


def seed_of(salt: int) -> int:
    """Return the running checksum of no frames at all; it also seeds the checksums of the index's entries."""
    return int(crc32c(_SALT.pack(salt)))
