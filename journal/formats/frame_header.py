"""The fixed fields at the beginning of a frame, and how they are read and written at a place of some bytes.

``frame.py`` says what they mean. The functions are also in ``frame_header.pxd``, in C, for the modules that are
compiled (``journal/compiled.py``). Such a module calls them by this module's name, which costs as much as a global.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from journal.formats.version import LAYOUT

HEADER: Final = Struct(">IIQqqIII")
HEADER_BYTES: Final = 44
STAMP_START: Final = 8
CRC_START: Final = 24
"""Where the bytes covered by the checksum begin. Those from ``STAMP_START`` to here, id and append time, are the log's.
"""
INNER_HEADER: Final = Struct(">IIQqIII")
"""The header of a frame inside a wrapper: the same without the append time, which is the wrapper's."""
INNER_HEADER_BYTES: Final = 36

VERSION: Final = LAYOUT << 24
VERSION_MASK: Final = 0xFF000000
WRAPPER: Final = 0x1
TOMBSTONE: Final = 0x2
COMPRESSION: Final = 0xF0
COMPRESSION_SHIFT: Final = 4
"""The bits of a wrapper's flag that hold the number of its payload's codec, 0 for none."""
KNOWN_FLAGS: Final = WRAPPER | TOMBSTONE | VERSION_MASK
"""The bits that a client may set; in a wrapper also ``COMPRESSION``."""

unpack_header = HEADER.unpack_from
"""Returns (length, crc, id, appended, timestamp, count, flag, attribute length) of the frame at a place."""
unpack_inner = INNER_HEADER.unpack_from
"""Returns (length, crc, id, timestamp, count, flag, attribute length) of the inner frame at a place."""
unpack_length_and_count = Struct(">I28xI").unpack_from
"""Returns (length, count) of the frame at a place: each field that is not read saves 100 instructions a frame."""
pack_stamp = Struct(">Qq").pack_into
"""Writes id and append time at ``STAMP_START`` of a frame."""

assert HEADER.size == HEADER_BYTES
assert INNER_HEADER_BYTES == INNER_HEADER.size == HEADER_BYTES - 8
