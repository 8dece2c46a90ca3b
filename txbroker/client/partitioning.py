"""Which partition a message goes to: by its key as Kafka does it, without one the same for a whole batch."""

from __future__ import annotations

from struct import Struct

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_words = Struct("<I").iter_unpack


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of a key, seeded as in Kafka's ``Utils.murmur2`` (unsigned here)."""
    length = len(key)
    whole = length & ~3
    hashed = _SEED ^ length
    for (word,) in _words(key[:whole]):
        word = word * _M & _MASK
        hashed = hashed * _M & _MASK ^ (word ^ word >> 24) * _M & _MASK
    rest = key[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def by_key(key: bytes, partitions: int) -> int:
    """Return the index that Kafka's default partitioner gives this key among ``partitions``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
