"""Test what the journal gets of a record, and what is about transient queues alone (decision 0068)."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from journal.constants import MIB
from journal.formats import frame
from journal.formats.frame import stamp, unstamped
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.records.queue_entries import QUEUE_GROUP, Binding, Queue, QueueSettings
from journal.records.record import (
    Bound,
    LogStartMoved,
    OffsetsCommitted,
    Placement,
    Published,
    Run,
    TopicCreated,
    TopicDeleted,
    TransactionAdded,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    Unbound,
)
from journal.records.transient import (
    FIRST_TRANSIENT,
    NUMBERS_OF_START,
    durable_first,
    durable_part,
    durable_run,
    first_number,
    is_transient,
    is_volatile,
)
from journal.settings import TopicSettings
from journal.transaction_states import Cause
from journal.transactions.staging import Entry
from journal.xid import Xid

GONE, OTHER = FIRST_TRANSIENT + 5, FIRST_TRANSIENT + 6
ONE, TWO = frame.encode(b"one", 1), frame.encode(b"two", 1)
QUEUES = {"passing"}
XID = Xid(1, b"x", b"")


def settled(partition: int) -> Settled:
    return Settled(partition, 0, 0, b"")


def part(record: Any, data: bytes = b"") -> Any:
    found = durable_part(record, data, QUEUES)
    return None if found is None else found[0]


def made(partition: int, name: str) -> TopicCreated:
    return TopicCreated(
        f"txbroker.queue.{partition}",
        partition,
        1,
        TopicSettings(),
        1,
        b"",
        None,
        Queue(name, QueueSettings()),
    )


@pytest.mark.parametrize(
    "record",
    [
        made(GONE, "passing"),
        TopicDeleted(f"txbroker.queue.{GONE}", 1),
        LogStartMoved(GONE, 3, 1),
        Bound(Binding("e", "", "passing"), 1),
        Unbound(Binding("e", "", "passing"), 1),
        Published(-4, 0, 2, [Run(GONE, 1, 0, 0), Run(0, 1, len(ONE), 0)], [Placement(GONE, 0, 1)], 1),
        OffsetsCommitted(QUEUE_GROUP, [], 1, b"", [settled(GONE)]),
    ],
    ids=lambda record: type(record).__name__,
)
def test_nothing_is_written_of_what_is_about_transient_queues_alone(record: Any):
    assert durable_part(record, ONE + TWO, QUEUES) is None


@pytest.mark.parametrize(
    "record",
    [
        made(7, "lasting"),
        TopicDeleted("txbroker.queue.7", 1),
        TopicDeleted("orders", 1),
        LogStartMoved(7, 3, 1),
        Bound(Binding("e", "", "lasting"), 1),
        Bound(Binding("e", "", "passing", to_exchange=True), 1),  # an exchange of that name
        Published(-4, 0, 1, [Run(7, 1, 0, 0)], [Placement(7, 0, 1)], 1),
        OffsetsCommitted(QUEUE_GROUP, [], 1, b"", [settled(7)]),
        OffsetsCommitted("g", [PartitionOffset(3, 9, 0)], 1),
        TransactionAdded(1, 1, 7, 1, 1, 0),
        TransactionPrepared(1, 1, XID, None, 1, 0, None, [Run(7, 1, 0, crc32c(ONE))]),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_is_about_others_alone_is_written_as_it_is(record: Any):
    found = durable_part(record, ONE, QUEUES)
    assert found is not None
    assert found[0] is record
    assert found[1] is ONE


def test_a_publication_for_both_keeps_all_frames_and_the_ways_that_last():
    record = Published(
        -4, 0, 2, [Run(7, 1, 0, 0, [8, GONE]), Run(GONE, 1, len(ONE), 0, [OTHER])],
        [Placement(7, 0, 1), Placement(8, 0, 1), Placement(GONE, 0, 2), Placement(OTHER, 0, 1)], 1,
    )  # fmt: skip
    found = durable_part(record, ONE + TWO, QUEUES)
    assert found is not None
    kept, data = found
    assert data == ONE + TWO
    assert kept.runs == [Run(7, 1, 0, 0, [8]), Run(0, 1, len(ONE), 0)]
    assert kept.placements == [Placement(7, 0, 1), Placement(8, 0, 1)]


@pytest.mark.parametrize("known", [{"producer_id": 3}, {"ids": [(1, 2)]}], ids=["producer", "due"])
def test_one_that_somebody_may_ask_for_again_is_written(known: dict[str, Any]):
    record = Published(-4, 0, 1, [Run(GONE, 1, 0, 0)], [Placement(GONE, 0, 1)], 1, **known)
    assert not is_volatile(record, len(ONE))
    assert part(record, ONE).runs == [Run(0, 1, 0, 0)]


def test_one_that_takes_more_than_a_turn_is_written():
    ways = [GONE + n for n in range(4)]
    record = Published(
        -4, 0, 1024, [Run(ways[0], 1024, 0, 0, ways[1:])], [Placement(n, 0, 1024) for n in ways], 1
    )
    assert is_volatile(record, 3 * MIB)
    assert not is_volatile(record, 3 * MIB + 1)
    large = Published(-4, 0, 1, [Run(ways[0], 1, 0, 0, ways[1:])], [Placement(n, 0, 1) for n in ways], 1)
    assert is_volatile(large, 15 * MIB), "large messages are in memory once"
    assert not is_volatile(large, 16 * MIB)
    alone = Published(-4, 0, 1, [Run(GONE, 1, 0, 0)], [Placement(GONE, 0, 1)], 1)
    assert is_volatile(alone, 100 * MIB)
    many = Published(-4, 0, 257, [Run(GONE + n % 2, 1, n, 0) for n in range(257)], [], 1)
    assert not is_volatile(many, 257)


def test_a_commit_is_written_with_unstamped_frames_of_what_goes_nowhere_and_their_checksum():
    stamped = bytearray(TWO)
    stamp(memoryview(stamped), 40, 123)
    record = TransactionCommitted(
        1, 1, [Placement(7, 0, 1), Placement(GONE, 40, 1)], 1, Cause.CLIENT,
        runs=[Run(7, 1, 0, crc32c(ONE)), Run(GONE, 1, len(ONE), crc32c(TWO))],
        settles=[GroupPositions(QUEUE_GROUP, b"", [], [settled(GONE), settled(9)])],
    )  # fmt: skip
    found = durable_part(record, ONE + bytes(stamped), QUEUES)
    assert found is not None
    kept, data = found
    assert data == ONE + unstamped(bytes(stamped)) == ONE + TWO
    assert kept.runs == [Run(7, 1, 0, crc32c(ONE)), Run(0, 1, len(ONE), crc32c(TWO))]
    assert kept.placements == [Placement(7, 0, 1)]
    assert kept.settles == [GroupPositions(QUEUE_GROUP, b"", [], [settled(9)])]


def test_the_checksum_of_what_goes_nowhere_is_of_all_of_it_in_the_record():
    record = TransactionAdded(
        1, 1, 0, 2, 1, 0, runs=[Run(0, 1, 0, crc32c(ONE)), Run(GONE, 1, len(ONE), crc32c(TWO))]
    )
    kept = part(record, ONE + TWO)
    assert [run.checksum for run in kept.runs] == [crc32c(ONE), crc32c(TWO, crc32c(ONE))]


def test_requests_of_a_transaction_are_counted_though_nothing_is_left_of_them():
    added = TransactionOffsetsAdded(1, 1, QUEUE_GROUP, [], 1, 0, settled=[settled(GONE)])
    assert part(added) == TransactionOffsetsAdded(1, 1, QUEUE_GROUP, [], 1, 0)
    prepared = TransactionPrepared(
        1, 1, XID, None, 1, 0, positions=[GroupPositions(QUEUE_GROUP, b"", [], [settled(GONE)])]
    )
    assert part(prepared).positions == [GroupPositions(QUEUE_GROUP, b"", [], [])]


def test_each_start_has_numbers_of_its_own_beyond_all_others():
    assert not is_transient(FIRST_TRANSIENT - 1)
    assert first_number(1) == FIRST_TRANSIENT + NUMBERS_OF_START
    assert first_number(1 << 31) + NUMBERS_OF_START < 1 << 63, "as many starts and restores as there may be"
    assert durable_first([GONE, 7, OTHER, 3]) == [7, 3, GONE, OTHER]


@pytest.mark.parametrize(
    ("targets", "left"),
    [([1, 2], [1, 2]), ([1, 2, GONE, OTHER], [1, 2]), ([1, GONE], [1]), ([GONE, OTHER], []), ([GONE], [])],
)
def test_an_entry_of_a_transaction_is_what_its_run_is_in_the_journal(targets, left):
    first, *also = targets
    run = durable_run(Run(first, 3, 5, 7, also))
    entry = durable_run(Entry(first, 3, 90, 11, 13, 7, 5, also))
    assert run.targets == entry.targets == left
    assert (entry.count, entry.size, entry.start) == (run.count, 90, run.start) == (3, 90, 5)
