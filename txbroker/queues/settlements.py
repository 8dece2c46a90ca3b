"""What is acknowledged and returned in queues, as sets of offsets."""

from __future__ import annotations

from journal.errors import InvalidFrame
from journal.formats.offset_set_bytes import decode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Settled


def offsets_of(settled: Settled) -> OffsetSet:
    """Return the offsets that this settles or returns; raises :class:`InvalidFrame` for a set that is none."""
    try:
        found = decode_offsets(settled.finished, settled.base).copy()
    except InvalidFrame as error:
        raise InvalidFrame(
            f"what is acknowledged in partition number {settled.partition}: {error}; nothing has changed"
        ) from error
    for each in settled.retried:
        found.add(each.offset)
    return found
