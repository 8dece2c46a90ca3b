"""Test what says that a group is done with messages.

Seen to fail: with the group's position as base, far above which an encoded set has no room.
"""

from __future__ import annotations

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Settled, finishing


def test_what_is_finished_goes_into_as_few_entries_as_have_room_for_it_however_far_it_lies():
    offsets = OffsetSet()
    offsets.add_range(7 * MAX_SPAN, 7 * MAX_SPAN + 5)
    one = finishing(3, offsets, 2, 9)
    assert [(each.partition, each.generation, each.base, each.start) for each in one] == [
        (3, 2, 7 * MAX_SPAN, 9)
    ]
    offsets.add_range(9 * MAX_SPAN, 9 * MAX_SPAN + 1)
    several = finishing(3, offsets)
    assert [each.base for each in several] == [7 * MAX_SPAN, 9 * MAX_SPAN]
    assert union(several) == offsets


def union(settled: list[Settled]) -> OffsetSet:
    found = OffsetSet()
    for each in settled:
        found.update(decode_offsets(each.finished, each.base))
    return found
