"""The choice of a message's partition: by its key as in Kafka, and without a key the same for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from journal.arguments import index_of, whole
from txbroker import errors

Partitioner = Callable[[str, bytes | None, int], int | None]
"""A user's own partitioner: gets topic, key and number of partitions; returns an index, or None to leave it
to the key.
"""

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


def by_caller(partitioner: Partitioner, topic: str, key: bytes | None, partitions: int) -> int | None:
    """Return the user's partitioner's choice, checked; raises what it raises, and :class:`Misuse`."""
    try:
        chosen = partitioner(topic, key, partitions)
    except Exception as error:
        error.add_note(f"the partitioner raised this for a message to {topic!r}; the message was not sent")
        raise
    if chosen is None:
        return None
    try:
        return whole("it", chosen, least=0, most=partitions - 1)
    except errors.Misuse as error:
        raise type(error)(
            f"the partitioner gave {chosen!r:.80} for a message to {topic!r}, which has partitions 0 to "
            f"{partitions - 1}; nothing was sent. It must give one of these, or None to leave it to the key"
        ) from None


def named_index(partition: int) -> int:
    """Return the index that a call names; raises :class:`WrongType` for "1", 1.0, True and others that are no whole
    number.
    """
    return index_of(partition, "nothing was done with it")


def check_asking(thread: int, here: int) -> None:
    """Raise Misuse if ``here`` is the ``thread`` that calls a partitioner: the call would wait for its own lock."""
    if thread == here:
        raise errors.Misuse(
            "the partitioner used the connection that asks it, and that waits for its answer; nothing was done. "
            "Let it choose from topic, key and number of partitions, and do the rest before you send"
        )
