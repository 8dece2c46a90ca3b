"""The headers of many frames at once, as NumPy's records: for the reader and for the audit.

The layout is that of :data:`journal.formats.frame.HEADER`; here its fields have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from journal.formats.frame import HEADER, HEADER_BYTES

Numbers = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]

_NAMES: Final = ("length", "crc", "id", "timestamp", "count", "flag", "attribute")
HEADER_FIELDS: Final = np.dtype(
    [(name, f">{code}") for name, code in zip(_NAMES, HEADER.format.removeprefix(">"), strict=True)]
)
assert HEADER_FIELDS.itemsize == HEADER_BYTES


def headers_at(data: bytes, positions: Numbers | Sequence[int]) -> Headers:
    """Return the headers that begin at these positions; a whole one fits behind each."""
    if not len(positions):
        return np.empty(0, HEADER_FIELDS)
    octets = np.frombuffer(data, np.uint8)
    rows = len(data) - HEADER_BYTES + 1
    every = np.lib.stride_tricks.as_strided(octets, (rows, HEADER_BYTES), (1, 1), writeable=False)
    found: Headers = every[positions].view(HEADER_FIELDS)[:, 0]
    return found
