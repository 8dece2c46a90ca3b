"""The first bytes of a staged file, which name the transaction of the frames behind them.

36 bytes: ``magic 8 | session u64 | serial u64 | salt u64 | crc u32``. ``crc`` is CRC-32C of the bytes before it. The
checkpoint's row of the transaction has the salt, so a file of a copy's history is recognised, too.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.formats.segment_header import Checksum, HeaderFault
from journal.formats.version import magic
from journal.transaction_states import TransactionNumber

STAGED_MAGIC = magic(b"TXBSTGD")
_LAYOUT = Struct(">8sQQQI")
_CRC = Struct(">I")
STAGED_HEADER_BYTES = _LAYOUT.size
SALT_BYTES = 8


class StagedHeader(NamedTuple):
    """The header of a staged file."""

    number: TransactionNumber
    salt: int


def pack_staged_header(header: StagedHeader) -> bytes:
    """Return the first bytes of a staged file."""
    packed = _LAYOUT.pack(STAGED_MAGIC, *header.number, header.salt, 0)[: -_CRC.size]
    return packed + _CRC.pack(crc32c(packed))


def unpack_staged_header(data: bytes, checksum: Checksum = crc32c) -> StagedHeader | None:
    """Return the header at the start of a file's bytes; None if there is no sound one."""
    if len(data) < STAGED_HEADER_BYTES:
        return None
    magic, session, serial, salt, crc = _LAYOUT.unpack_from(data)
    if magic != STAGED_MAGIC or checksum(bytes(data[: STAGED_HEADER_BYTES - _CRC.size])) != crc:
        return None
    return StagedHeader(TransactionNumber(session, serial), salt)


def staged_fault(first_bytes: bytes, wanted: StagedHeader, checksum: Checksum = crc32c) -> HeaderFault | None:
    """Return what is wrong with the first bytes of a staged file; None if they are the wanted header."""
    header = unpack_staged_header(first_bytes, checksum)
    if header is None:
        return HeaderFault("its header is damaged", foreign=False)
    if header == wanted:
        return None
    more = ", with another salt" if header.number == wanted.number else ""
    return HeaderFault(f"it is that of transaction {header.number}{more}", foreign=True)
