"""A snapshot of ten million messages, every second one finished: what it copies, and that it stays as it was."""

import tracemalloc

from benchmarks.holds.snapshot import MESSAGES, PARTITIONS, settled_fold
from journal.constants import MIB
from journal.folds.groups import GroupsFold
from journal.offset_set import OffsetSet
from journal.records.group_entries import Settled
from journal.records.record import OffsetsCommitted
from tests.support.builders import reread

EVERY_SECOND = OffsetSet.from_bits(0, int("10" * (MESSAGES // 2), 2))


def test_a_snapshot_of_ten_million_messages_takes_little_memory_and_copies_no_bitmap():
    fold = settled_fold()
    tracemalloc.start()
    rows = fold.snapshot()
    size, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= 4 * MIB
    assert size <= MIB // 4, "of 1.2 MiB of bitmaps it has made none anew"
    assert len(list(rows)) == 2


def test_it_stays_as_it_was_while_the_fold_goes_on_and_until_its_rows_are_drawn():
    fold = settled_fold()
    rows = fold.snapshot()
    before = dict(fold.find("g").positions)
    for partition in range(1, PARTITIONS + 1):
        fold.apply(200, OffsetsCommitted("g", [], 0, b"", [Settled(partition, 0, 0, b"\x02\x55")]), b"")
    assert fold.find("g").position(1) == 8
    restored = GroupsFold()
    restored.restore(reread(GroupsFold, rows))
    group = restored.find("g")
    assert group.positions == before
    assert all(kept.finished == EVERY_SECOND for kept in group.settlements.values())


def test_the_row_of_a_group_takes_a_bit_for_each_message():
    *_, row = settled_fold().snapshot()
    assert sum(len(each.finished) for each in row.settlements) <= PARTITIONS * (MESSAGES // 8 + 2)
