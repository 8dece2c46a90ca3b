"""The first bytes of a segment's file: which log it is of, from which offset on, and who made it.

64 bytes: ``magic 8 | nonce 16 | start u64 | partition u64 | base offset u64 | salt u64 | zero u32 | crc u32``. ``crc``
is CRC-32C of what stands before it. The frames follow without a gap.

What a file holds can be exchanged with what another one holds, by a disk or by hand, and every frame still fulfils its
checksum. The header tells that of a whole file. Of the bytes inside it the *running checksum* does: CRC-32C of all
frames of the segment up to a position, ids included, seeded with the salt. The index has it for each of its entries and
the checkpoint for the end. So the bytes between any two places of which it is known prove each other, and no bytes of
another segment are taken for them. Clients never learn a salt.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

SEGMENT_MAGIC = b"TXBSEGM\x01"
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
    """What a segment says of itself. ``start`` and its ``nonce`` are of the start that made it; 0: a repair did."""

    nonce: bytes
    start: int
    partition: int
    base_offset: int
    salt: int


class HeaderFault(NamedTuple):
    """What is wrong with the first bytes of a file. ``foreign``: they are sound, and of another file.

    Damaged ones say nothing, and what follows may be what belongs there.
    """

    what: str
    foreign: bool


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The first bytes of a segment."""
    packed = _LAYOUT.pack(SEGMENT_MAGIC, *header, 0, 0)[:_CRC_AT]
    return packed + _CRC.pack(crc32c(packed))


def unpack_segment_header(data: bytes, checksum: Checksum = crc32c) -> SegmentHeader | None:
    """The header at the start of a file's bytes; None if there is no sound one."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, nonce, start, partition, base_offset, salt, zero, crc = _LAYOUT.unpack_from(data)
    if magic != SEGMENT_MAGIC or zero or checksum(bytes(data[:_CRC_AT])) != crc:
        return None
    return SegmentHeader(nonce, start, partition, base_offset, salt)


def seed_of(salt: int) -> int:
    """The running checksum of no frames at all; it also seeds the checksums of the index's entries."""
    return int(crc32c(_SALT.pack(salt)))
