"""MurmurHash2 of a column of keys, equal to :mod:`txbroker.client.core.partitioner`'s for each key, word by word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint32]

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def murmur2(keys: pa.Array) -> Hashes:
    """Return the hash of each key, of type ``large_binary`` and none null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    data = np.concatenate((data, np.zeros(4, np.uint8)))  # so that a last word may be read whole
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashed: Hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for number in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > number)
        word = _words(data, starts[rows] + 4 * number) * _M
        hashed[rows] = hashed[rows] * _M ^ (word ^ word >> np.uint32(24)) * _M
    rows = np.flatnonzero(lengths & 3)
    missing = (8 * (4 - (lengths[rows] & 3))).astype(np.uint32)
    rest = _words(data, starts[rows] + 4 * words[rows]) & (np.uint32(0xFFFFFFFF) >> missing)
    hashed[rows] = (hashed[rows] ^ rest) * _M
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    return hashed


def _words(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Hashes:
    """Return the four bytes at each place, as little-endian numbers."""
    words: Hashes = data[at[:, None] + np.arange(4)].view("<u4")[:, 0].astype(np.uint32)
    return words
