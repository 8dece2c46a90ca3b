"""The witness: how far the journal had been forced, recorded outside of it, so that a lost end is noticed.

Each journal group proves those before it, each file those before it; nothing proves the last ones. A newest file that
somebody removed, or an end that reads as zeros, would look as if it had never existed. So a small file records from
time to time the newest journal file, the LSN up to which all was forced, and the newest checkpoint. It never claims
more than is true, hence it needs no force: an older one, or none, only proves less.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from journal.formats import filenames
from journal.formats.version import magic
from journal.interfaces import IFilesystem
from journal.vfs.file_window import read_some
from journal.vfs.filesystem import write_fully

MAGIC = magic(b"TXBWITN")
_LAYOUT = Struct(">8sIQQQI")
_CRC = Struct(">I")

WITNESS_INTERVAL = 1_000_000
"""It is written anew at most this often (µs), but at once after a checkpoint."""


class Witness(NamedTuple):
    """The contents of the witness. ``newest`` is the first LSN of the newest journal file; all up to ``forced`` was on
    disk.

    ``checkpoint``: the LSN of the newest checkpoint, 0 without one. ``salt``: that of the newest file.
    """

    newest: int
    forced: int
    checkpoint: int
    salt: int


WITNESS_LOST = (
    f"{filenames.WITNESS} is missing or damaged: had the end of the journal vanished, nothing would tell"
)
"""The note of a start without a witness."""

NOTHING = Witness(0, 0, 0, 0)
"""A witness without contents."""


def pack_witness(witness: Witness) -> bytes:
    """Return the bytes of the file; they lie in one sector, so no crash leaves a mixture."""
    packed = _LAYOUT.pack(MAGIC, 0, *witness)
    return packed[:8] + _CRC.pack(crc32c(packed[12:], crc32c(packed[:8]))) + packed[12:]


def unpack_witness(data: bytes) -> Witness | None:
    """Read the file's bytes; None if they are damaged."""
    if len(data) < _LAYOUT.size or data[:8] != MAGIC:
        return None
    _, crc, *fields = _LAYOUT.unpack_from(data)
    covered = data[12 : _LAYOUT.size]
    return Witness(*fields) if crc == crc32c(covered, crc32c(data[:8])) else None


def read_witness(filesystem: IFilesystem) -> Witness | None:
    """Return the directory's witness; None if it is missing or damaged."""
    if not filesystem.exists(filenames.WITNESS):
        return None
    return unpack_witness(read_some(filesystem, filenames.WITNESS, 0, _LAYOUT.size))


def write_witness(filesystem: IFilesystem, witness: Witness, durably: bool = False) -> None:
    """Write it in place of the one before. ``durably`` forces it, and its name."""
    file = filesystem.open(filenames.WITNESS, create=True)
    try:
        write_fully(file, 0, [pack_witness(witness)])
        if durably:
            file.force()
    finally:
        file.close()
    if durably:
        filesystem.force_directory("")
