"""CRC-32C by a second implementation, with joining and taking apart of checksums, which follow from its linearity.

The checksum of two runs of bytes, one behind the other, is the exclusive or of the second's and of the first's shifted
by the second's length: what the first's would be with as many zero bytes behind it. The shift is a linear map of 32
bits, here four tables of 256 for each length (as in zlib's ``crc32_combine``, Mark Adler).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from journal.formats.checksum import join, power, times
from journal.walks.findings import second_crc32c

Words = npt.NDArray[np.uint32]

__all__ = ["join", "second_crc32c", "shifted"]


@lru_cache(maxsize=4096)
def _map(length: int) -> Words:
    """Return the four tables for ``length`` zero bytes."""
    columns = [1 << bit for bit in range(32)]
    exponent, bits = 0, 8 * length
    while bits:
        if bits & 1:
            columns = [times(power(exponent), column) for column in columns]
        bits >>= 1
        exponent += 1
    tables = np.zeros((4, 256), np.uint32)
    for byte in range(4):
        for value in range(256):
            tables[byte, value] = times(columns[8 * byte : 8 * byte + 8], value)
    return tables


def shifted(checksums: Words, length: int) -> Words:
    """Return the checksum of a run shifted by ``length`` bytes, to be combined with theirs by exclusive or."""
    tables = _map(length)
    found: Words = tables[0][checksums & 0xFF] ^ tables[1][(checksums >> np.uint32(8)) & 0xFF]
    found ^= tables[2][(checksums >> np.uint32(16)) & 0xFF]
    found ^= tables[3][checksums >> np.uint32(24)]
    return found
