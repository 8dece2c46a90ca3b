"""Test what operators see of messages that groups are to try again, and do with them."""

import pytest

from journal.formats.offset_set_bytes import MAX_SPAN
from journal.records.group_entries import PartitionOffset, Retried, Settled
from journal.xid import Xid
from tests.support.broker_room import Room, refused
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
SECOND = 1_000_000
MESSAGES = 1200


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    room.peer().send(partition, *[b""] * MESSAGES)
    return partition


def retry(room, partition, *offsets, generation=0, after=60 * SECOND):
    said = [Retried(offset, 0, after, "why") for offset in offsets]
    settled = [Settled(partition, generation, 0, retried=said)]
    assert isinstance(room.peer().ask(messages.CommitOffsets, "g", [], ID, None, settled), messages.Done)


def listed(room, partition, first=0):
    answer = room.peer().ask(messages.ListParked, "g", partition, first)
    assert isinstance(answer, messages.Parked), answer
    return [(each.offset, each.attempts, each.left, each.reason) for each in answer.offsets], answer.more


def release(room, partition, *offsets, skip=False, group="g", meant=ID):
    return room.peer().ask(
        messages.ReleaseParked, group, meant, partition, list(offsets), messages.Release(skip)
    )


def done(answer):
    assert isinstance(answer, messages.Done), answer


def test_nothing_is_listed_where_nothing_waits(room, partition):
    assert listed(room, partition) == ([], False)
    refused(room.peer().ask(messages.ListParked, "g", 99), "UnknownPartition")


def test_a_thousand_are_listed_at_a_time(room, partition):
    retry(room, partition, *range(1100))
    found, more = listed(room, partition)
    assert (len(found), more, found[0], found[-1][0]) == (1000, True, (0, 1, 60 * SECOND, "why"), 999)
    found, more = listed(room, partition, 1000)
    assert (len(found), more, found[0][0]) == (100, False, 1000)
    assert listed(room, partition, 1 << 62) == ([], False)
    assert len(listed(room, partition, -5)[0]) == 1000


def test_those_that_are_released_are_due_with_their_attempts_also_after_a_restart(room, partition):
    retry(room, partition, 3, 5)
    done(release(room, partition, 3, 3, 4))
    assert listed(room, partition)[0] == [(3, 1, 0, "why"), (5, 1, 60 * SECOND, "why")]
    room.restart()
    assert [each[2] == 0 for each in listed(room, partition)[0]] == [True, False]


def test_those_that_are_skipped_are_finished_whoever_has_claimed_the_partition(room, partition):
    claimed = room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], ID)
    [(_, generation)] = claimed.claims
    retry(room, partition, 0, 5, generation=generation)
    done(release(room, partition, 0, 1, 5, skip=True))
    group = room.broker.groups.find("g")
    assert group.position(partition) == 2
    assert str(group.settlements[partition].finished) == "5"
    assert listed(room, partition) == ([], False)


@pytest.mark.parametrize("skip", [False, True])
def test_again_it_changes_nothing(room, partition, skip):
    retry(room, partition, 3)
    done(release(room, partition, 3, skip=skip))
    lsn = room.engine.last_lsn
    done(release(room, partition, 3, skip=skip))
    done(release(room, partition, skip=skip))
    assert room.engine.last_lsn == lsn


@pytest.mark.parametrize("skip", [False, True])
def test_one_that_a_transaction_holds_is_refused(room, partition, skip):
    retry(room, partition, 3, 5)
    positions = [messages.GroupPositions("g", ID, [], [Settled(partition, 0, 0, b"\x02\x08")])]
    assert isinstance(room.peer().ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)
    refused(release(room, partition, 3, 5, skip=skip), "OffsetPending")
    done(release(room, partition, 5, skip=skip))


@pytest.mark.parametrize("skip", [False, True])
def test_what_cannot_be_meant_is_refused_and_changes_nothing(room, partition, skip):
    refused(release(room, partition, 3, skip=skip), "UnknownGroup")
    retry(room, partition, 3)
    [other] = room.topic("other")
    lsn = room.engine.last_lsn
    refused(release(room, partition, 3, skip=skip, meant=b"h" * 16), "UnknownGroup")
    refused(release(room, 99, 3, skip=skip), "UnknownPartition")
    assert "no position in other-0" in refused(release(room, other, 3, skip=skip), "InvalidSetting")
    refused(release(room, partition, *range(1001), skip=skip), "LimitExceeded")
    refused(release(room, partition, MAX_SPAN, skip=skip), "LimitExceeded")
    if skip:
        refused(release(room, partition, MESSAGES, skip=True), "OffsetOutOfRange")
    done(release(room, partition, -1, skip=skip))
    assert room.engine.last_lsn == lsn


def test_a_waiting_fetch_is_given_what_is_released(room, partition):
    retry(room, partition, 3)
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 3)], ID)
    retry(room, partition, 3)
    reader = messages.Reader("g", 0, [0], [(partition, b"\x02\x01", 3)])
    peer = room.peer()
    end = (partition, MESSAGES, MESSAGES)
    asked = peer.tell(messages.Fetch, [end], 1 << 20, 50 * SECOND, 1, [reader])
    room.engine.sync()
    assert peer.answer(asked) is None
    done(release(room, partition, 3))
    assert peer.answer(asked).partitions[0].waiting == b""
