"""The fixed fields at the beginning of a journal record; ``record.py`` says what they mean.

The function is also in ``record_header.pxd``, in C, for the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

HEADER: Final = Struct(">III")
HEADER_BYTES: Final = 12
CRC_END: Final = 8
"""Where the bytes covered by the checksum begin."""

lengths = Struct(">I4xI").unpack_from
"""Returns (length, head length) of the record at a place of some bytes."""

assert HEADER.size == HEADER_BYTES
