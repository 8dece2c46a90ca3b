"""The offsets that one transaction finishes, joined: one set for each group, partition and generation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from journal.records.group_entries import GroupPositions, Settled
from txbroker.client.core.positions import set_of


def joined(settled: Iterable[Settled]) -> list[Settled]:
    """Return entries with all offsets of the given ones: one for each partition and generation, unless messages of a
    queue lie too far apart for one.
    """
    found: dict[tuple[int, int], list[Settled]] = {}
    for each in settled:
        mine = found.setdefault((each.partition, each.generation), [])
        for index, one in enumerate(mine):
            if _fit(one, each):
                mine[index] = _both(one, each)
                break
        else:
            mine.append(each)
    return [each for mine in found.values() for each in mine]


def _fit(one: Settled, other: Settled) -> bool:
    """Return whether both can be said in one entry. What is retried, of groups, lies near enough."""
    if one.retried or other.retried or not (one.finished and other.finished):
        return True
    both = [decode_offsets(each.finished, each.base) for each in (one, other)]
    return max(each.end for each in both) - min(each.first for each in both) <= MAX_SPAN


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
