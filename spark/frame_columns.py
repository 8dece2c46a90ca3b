"""The headers of many frames at once, as NumPy's records: for the reader and for the audit.

The layouts are those of :mod:`journal.formats.frame`; here their fields have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from journal.formats.frame import CRC_START, HEADER, HEADER_BYTES, INNER_HEADER, INNER_HEADER_BYTES

Numbers = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]


def _fields(names: Sequence[str], layout: Struct) -> np.dtype[np.void]:
    codes = layout.format.removeprefix(">")
    return np.dtype([(name, f">{code}") for name, code in zip(names, codes, strict=True)])


_PLACE: Final = ("length", "crc", "id")
_CONTENT: Final = ("timestamp", "count", "flag", "attribute")
HEADER_FIELDS: Final = _fields((*_PLACE, "appended", *_CONTENT), HEADER)
INNER_HEADER_FIELDS: Final = _fields((*_PLACE, *_CONTENT), INNER_HEADER)
"""The header of a frame inside a wrapper."""
PLACE_FIELDS: Final = np.dtype([(name, HEADER_FIELDS[name]) for name in _PLACE])
"""What all headers begin with."""
CONTENT_FIELDS: Final = np.dtype([(name, HEADER_FIELDS[name]) for name in _CONTENT])
"""What all headers end with."""
assert HEADER_FIELDS.itemsize == HEADER_BYTES == CRC_START + CONTENT_FIELDS.itemsize
assert INNER_HEADER_FIELDS.itemsize == INNER_HEADER_BYTES == PLACE_FIELDS.itemsize + CONTENT_FIELDS.itemsize


def headers_at(data: bytes, positions: Numbers | Sequence[int]) -> Headers:
    """Return the headers of frames, not of inner ones, that begin at these positions; a whole one fits behind each."""
    return fields_at(data, positions, HEADER_FIELDS)


def fields_at(data: bytes, positions: Numbers | Sequence[int], fields: np.dtype[np.void]) -> Headers:
    """Return these fields from each position on; all of them fit behind each."""
    if not len(positions):
        return np.empty(0, fields)
    octets = np.frombuffer(data, np.uint8)
    rows = len(data) - fields.itemsize + 1
    every = np.lib.stride_tricks.as_strided(octets, (rows, fields.itemsize), (1, 1), writeable=False)
    found: Headers = every[positions].view(fields)[:, 0]
    return found
