"""The offsets that one transaction finishes, joined: one set for each group, partition and generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from journal.records.group_entries import GroupPositions, Settled
from txbroker.client.core.positions import set_of


def joined(settled: Iterable[Settled]) -> list[Settled]:
    """Return one entry for each partition and generation, with all offsets of the given ones."""
    found: dict[tuple[int, int], Settled] = {}
    for each in settled:
        key = each.partition, each.generation
        found[key] = _both(found[key], each) if key in found else each
    return list(found.values())


def _both(one: Settled, other: Settled) -> Settled:
    """Return both in one; what the later one says of an offset counts."""
    finished, later = decode_offsets(one.finished, one.base), decode_offsets(other.finished, other.base)
    again = {each.offset: each for each in one.retried if each.offset not in later}
    again |= {each.offset: each for each in other.retried}
    for offset in again:
        finished.discard(offset)
    finished.update(later)
    base = max(min(one.base, other.base), finished.end - MAX_SPAN)
    if not finished:
        return replace(one, base=base, finished=b"", retried=list(again.values()))
    return replace(set_of(one.partition, one.generation, base, finished), retried=list(again.values()))


def merged(positions: Sequence[GroupPositions]) -> list[GroupPositions]:
    """Return these, with all settled offsets of a group in its first entry that has some."""
    settled: dict[str, list[Settled]] = {}
    for each in positions:
        settled.setdefault(each.group, []).extend(each.settled)
    found: list[GroupPositions] = []
    for each in positions:
        if not each.settled:
            found.append(each)
        elif all_of_it := settled.pop(each.group, None):
            found.append(replace(each, settled=joined(all_of_it)))
        elif each.offsets:
            found.append(replace(each, settled=[]))
    return found
