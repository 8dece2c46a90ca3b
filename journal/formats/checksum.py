"""CRC-32C of two runs of bytes, one behind the other, computed from the checksum of each.

The result is the second's checksum combined with the first's as it would be with as many zero bytes behind it, because
CRC is linear. That is a linear map of 32 bits, here a matrix for each power of two (as in zlib's ``crc32_combine``,
Mark Adler).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

Checksum = Callable[..., int]
"""An implementation of CRC-32C: ``checksum(data, seed=0)``."""

_POLYNOMIAL = 0x82F63B78


def times(matrix: list[int], vector: int) -> int:
    """Return a matrix of 32 columns times a vector, both over the field of two elements."""
    total = 0
    row = 0
    while vector:
        if vector & 1:
            total ^= matrix[row]
        vector >>= 1
        row += 1
    return total


@cache
def power(exponent: int) -> list[int]:
    """Return the map for 2**exponent zero bits."""
    if exponent == 0:
        return [_POLYNOMIAL, *(1 << bit for bit in range(31))]
    half = power(exponent - 1)
    return [times(half, row) for row in half]


def join(first: int, second: int, length: int) -> int:
    """Return the checksum of two runs together; ``length`` is the second's, in bytes."""
    exponent, bits, value = 0, 8 * length, first
    while bits:
        if bits & 1:
            value = times(power(exponent), value)
        bits >>= 1
        exponent += 1
    return value ^ second
