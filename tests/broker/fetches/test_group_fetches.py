"""Test fetches for groups: what is finished, what waits, when they are answered, and who may read."""

import pytest

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets, encode_offsets
from journal.records.group_entries import (
    PartitionOffset,
)
from journal.records.record import LogStartMoved
from tests.broker.fetches.fetch_scene import SECOND, values
from tests.broker.fetches.group_scene import AHEAD, ID, XID, claim, end, finish, of, prepare, settled
from tests.support.broker_room import Room, refused
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room(max_ahead=AHEAD)


@pytest.fixture
def partition(room):
    """Ten messages: the values are their offsets."""
    [partition] = room.topic()
    room.peer().send(partition, *[b"%d" % number for number in range(10)])
    return partition


def tell(peer, partition, offset, *missing, until=0, generation=0, wait=SECOND, base=0):
    """Fetch for the group; ``missing`` are offsets that earlier answers left out."""
    wanted = [(partition, encode_offsets(of(*missing), base), base)] if missing else []
    reader = messages.Reader("g", 0, [generation], wanted)
    return peer.tell(messages.Fetch, [(partition, offset, until)], 1 << 20, wait, 1, [reader])


def fetch(room, peer, *args, base=None, **choices):
    """Return the answer: its values, the offset after it, and what is finished and what waits; None if it waits."""
    asked = tell(peer, *args, **choices)
    room.engine.sync()
    return told(peer, asked, min([*args[1:]]) if base is None else base)


def told(peer, asked, base=0):
    answer = peer.answer(asked)
    if answer is None:
        return None
    [part] = answer.partitions
    if part.error:
        return part.error
    found = [int(value or 0) for value in values(peer, answer)[part.partition]]
    sets = [str(decode_offsets(each, base)) for each in (part.finished, part.waiting)]
    return found, part.next_offset, *sets


def missing(room, peer, partition, *offsets, **choices):
    """Wait for missing offsets alone; return the correlation."""
    asked = tell(peer, partition, 10, *offsets, until=10, **choices)
    room.engine.sync()
    return asked


def test_what_is_finished_is_told_and_skipped_at_the_beginning(room, partition):
    finish(room, settled(partition, 0, 1, 4, 5))
    assert fetch(room, room.peer(), partition, 0) == ([2, 3, 4, 5, 6, 7, 8, 9], 10, "0-1, 4-5", "")
    assert fetch(room, room.peer(), partition, 4) == ([6, 7, 8, 9], 10, "4-5", "")


def test_another_group_and_a_fetch_without_one_are_told_nothing(room, partition):
    finish(room, settled(partition, 0, 1, 4, 5))
    answer = room.peer().ask(messages.Fetch, [(partition, 0, 0)])
    assert (answer.partitions[0].finished, answer.partitions[0].length) == (b"", answer.partitions[0].length)
    other = messages.Reader("other", 0, [0])
    answer = room.peer().ask(messages.Fetch, [(partition, 0, 0)], 1 << 20, 0, 1, [other])
    assert (answer.partitions[0].finished, answer.partitions[0].next_offset) == (b"", 10)


def test_a_finished_rest_is_told_at_once_without_data(room, partition):
    finish(room, offsets=[PartitionOffset(partition, 10)])
    assert fetch(room, room.peer(), partition, 3) == ([], 10, "3-9", "")
    assert fetch(room, room.peer(), partition, 3, until=7) == ([], 7, "3-6", "")
    assert fetch(room, room.peer(), partition, 10) is None


def test_what_a_prepared_transaction_holds_and_what_is_not_due_waits(room, partition):
    due = room.engine.now() + SECOND
    finish(room, settled(partition, 0, unfinished=[(6, 1, due, "later")]))
    prepare(room, settled(partition, 2, 3))
    assert fetch(room, room.peer(), partition, 0) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], 10, "0", "2-3, 6")
    assert fetch(room, room.peer(), partition, 2)[2:] == ("", "2-3, 6")


def test_a_prepared_position_holds_all_below_it(room, partition):
    finish(room, settled(partition, 0))
    prepare(room, offsets=[PartitionOffset(partition, 4)])
    assert fetch(room, room.peer(), partition, 0) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], 10, "0", "1-3")


@pytest.mark.parametrize(("kind", "sets"), [(messages.Commit, ("2-3", "")), (messages.Rollback, ("", ""))])
def test_a_missing_offset_is_told_when_its_transaction_has_ended(room, partition, kind, sets):
    finish(room, settled(partition, 0))
    prepare(room, settled(partition, 2, 3))
    peer = room.peer()
    asked = missing(room, peer, partition, 2, 3)
    assert told(peer, asked) is None
    finish(room, settled(partition, 7))
    assert told(peer, asked) is None
    end(room, kind)
    assert told(peer, asked) == ([], 10, *sets)


def test_what_still_waits_of_missing_is_told_with_what_became_free(room, partition):
    due = room.engine.now() + SECOND
    finish(room, settled(partition, 0, unfinished=[(6, 1, due, "later")]))
    prepare(room, settled(partition, 2, 3))
    peer = room.peer()
    asked = missing(room, peer, partition, 2, 3, 6)
    end(room, messages.Rollback)
    assert told(peer, asked) == ([], 10, "", "6")


def test_an_end_of_a_transaction_is_told_once_it_is_forced(room, partition):
    finish(room, settled(partition, 0))
    prepare(room, settled(partition, 2))
    peer = room.peer()
    asked = missing(room, peer, partition, 2)
    room.peer().tell(messages.Rollback, 0, 0, XID)
    assert told(peer, asked) is None
    late = tell(peer, partition, 0)
    assert told(peer, late) is None
    room.engine.sync()
    assert told(peer, asked) == ([], 10, "", "")
    assert told(peer, late) == ([1, 2, 3, 4, 5, 6, 7, 8, 9], 10, "0", "")


def test_a_missing_offset_is_told_when_it_is_due(room, partition):
    due = room.engine.now() + 3 * SECOND // 4
    later = room.engine.now() + 7 * SECOND // 8
    finish(room, settled(partition, 0, unfinished=[(6, 1, later, ""), (4, 1, due, "")]))
    peer = room.peer()
    asked = missing(room, peer, partition, 4, 6)
    room.timers.advance(0.7)
    assert told(peer, asked) is None
    room.clock.advance(3 * SECOND // 4)
    room.timers.advance(0.06)
    assert told(peer, asked) == ([], 10, "", "6")


def test_a_timer_that_rings_early_by_the_journals_clock_is_set_again(room, partition):
    finish(room, settled(partition, 0, unfinished=[(4, 1, room.engine.now() + SECOND // 4, "")]))
    peer = room.peer()
    asked = missing(room, peer, partition, 4)
    room.timers.advance(0.26)
    assert told(peer, asked) is None
    room.clock.advance(SECOND // 4)
    room.timers.advance(0.26)
    assert told(peer, asked) == ([], 10, "", "")


def test_a_missing_offset_that_retention_has_removed_is_told_as_finished(room, partition):
    finish(room, settled(partition, 0))
    prepare(room, settled(partition, 2, 3))
    peer = room.peer()
    room.engine.accept(LogStartMoved(partition, 3, room.engine.now()))
    assert told(peer, missing(room, peer, partition, 2, 3)) == ([], 10, "2", "3")


def test_new_messages_end_the_wait_for_missing_ones(room, partition):
    finish(room, settled(partition, 0))
    prepare(room, settled(partition, 2))
    peer = room.peer()
    asked = tell(peer, partition, 10, 2)
    room.peer().send(partition, b"10")
    assert told(peer, asked) == ([10], 11, "", "2")


class TestClaims:
    def test_a_waiting_fetch_is_fenced_by_a_claim_once_that_is_forced(self, room, partition):
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 10, generation=generation)
        room.peer().tell(messages.ClaimPartitions, "g", "n", [partition], ID)
        assert told(peer, asked) is None
        room.engine.sync()
        assert told(peer, asked) == "GenerationFenced"

    def test_a_fetch_with_an_old_generation_is_fenced_and_other_partitions_are_read(self, room, partition):
        [other] = room.topic("other")
        room.peer().send(other, b"x")
        old = claim(room, partition)
        new = claim(room, partition)
        readers = [messages.Reader("g", 0, [old, 0])]
        peer = room.peer()
        answer = peer.ask(messages.Fetch, [(partition, 0, 0), (other, 0, 0)], 1 << 20, 0, 1, readers)
        assert [part.error for part in answer.partitions] == ["GenerationFenced", ""]
        assert values(peer, answer)[other] == [b"x"]
        assert fetch(room, peer, partition, 8, generation=new) == ([8, 9], 10, "", "")

    def test_a_deleted_group_fences_its_readers(self, room, partition):
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 10, generation=generation)
        room.peer().ask(messages.DeleteGroup, "g", ID)
        assert told(peer, asked) == "GenerationFenced"

    def test_a_reader_without_a_claim_goes_on(self, room, partition):
        peer = room.peer()
        asked = tell(peer, partition, 10)
        claim(room, partition)
        assert told(peer, asked) is None
        room.peer().send(partition, b"10")
        assert told(peer, asked)[0] == [10]

    def test_a_claim_of_another_group_or_partition_wakes_nobody(self, room, partition):
        [other] = room.topic("other")
        generation = claim(room, partition)
        peer = room.peer()
        asked = tell(peer, partition, 10, generation=generation)
        claim(room, other)
        room.peer().ask(messages.ClaimPartitions, "h", "n", [partition], ID)
        assert told(peer, asked) is None


def test_ended_fetches_leave_nothing_behind(room, partition):
    finish(room, settled(partition, 0, unfinished=[(4, 1, room.engine.now() + SECOND, "")]))
    generation = claim(room, partition)
    peer = room.peer()
    asked = tell(peer, partition, 10, 4, generation=generation)
    peer.tell(messages.Cancel, asked)
    assert told(peer, asked) == ([], 10, "", "4")
    assert room.timers.getDelayedCalls() == []
    tell(peer, partition, 10, 4, generation=generation)
    peer.leave()
    assert room.timers.getDelayedCalls() == []
    groups = room.broker.fetching._groups
    assert (groups._claimed, groups._missing) == ({}, {})


@pytest.mark.parametrize(
    ("reader", "error"),
    [
        (lambda p: [messages.Reader("g", 0, [0, 0])], "InvalidSetting"),
        (lambda p: [messages.Reader("g", -1, [0])], "InvalidSetting"),
        (lambda p: [messages.Reader("g", 0, [0]), messages.Reader("h", 0, [0])], "InvalidSetting"),
        (lambda p: [messages.Reader("g", 0, [0], [(p + 1, b"", 0)])], "InvalidSetting"),
        (lambda p: [messages.Reader("g", 0, [0], [(p, b"", 0), (p, b"", 0)])], "InvalidSetting"),
        (lambda p: [messages.Reader("g", 0, [0], [(p, b"\x09", 9)])], "InvalidFrame"),
        (lambda p: [messages.Reader("g", 0, [0], [(p, b"", 10)])], "LimitExceeded"),
        (lambda p: [messages.Reader("g", 0, [0], [(p, b"\x02" + b"\xff" * 70_000, 9)])], "LimitExceeded"),
    ],
)
def test_readers_that_cannot_be_are_refused(room, partition, reader, error):
    answer = room.peer().ask(messages.Fetch, [(partition, 9, 0)], 1 << 20, 0, 1, reader(partition))
    refused(answer, error)


def test_a_reader_goes_a_bounded_number_of_offsets_beyond_what_it_misses(room, partition):
    room.peer().send(partition, *[b"10"] * 100)
    finish(room, settled(partition, 0))
    prepare(room, settled(partition, 2))
    peer = room.peer()
    asked = tell(peer, partition, 1 + AHEAD, 2)
    assert told(peer, asked) == ([10], 2 + AHEAD, "", "2")
    assert told(peer, tell(peer, partition, 2 + AHEAD, 2)) is None


def test_a_reader_too_far_beyond_what_it_misses_for_a_set_is_refused(room, partition):
    peer = room.peer()
    asked = tell(peer, partition, MAX_SPAN, 2)
    refused(peer.answer(asked), "LimitExceeded")


@pytest.mark.slow
def test_an_answer_spans_no_more_offsets_than_a_set_can():
    room = Room()
    [partition] = room.topic()
    peer = room.peer()
    for _ in range(MAX_SPAN // 4096 + 2):
        peer.send(partition, *[b""] * 4096)
    finish(room, offsets=[PartitionOffset(partition, MAX_SPAN + 4096)])
    empty = fetch(room, peer, partition, 0)
    assert empty == ([], MAX_SPAN - 4096, f"0-{MAX_SPAN - 4097}", "")
    found, end, finished, _ = fetch(room, peer, partition, empty[1])
    assert (finished, end - len(found)) == (f"{MAX_SPAN - 4096}-{MAX_SPAN + 4095}", MAX_SPAN + 4096)


def test_sets_without_room_are_told_by_the_next_answer(room, partition, monkeypatch):
    monkeypatch.setattr("txbroker.broker.fetches.fetches.MOST_SETS", 3)
    [other] = room.topic("other")
    room.peer().send(other, b"0", b"1", b"2")
    finish(room, settled(partition, 1), settled(other, 1))
    peer = room.peer()
    readers = [messages.Reader("g", 0, [0, 0], [(other, b"\x02\x01", 0)])]
    answer = peer.ask(messages.Fetch, [(partition, 0, 0), (other, 0, 0)], 1 << 20, 0, 1, readers)
    one, two = answer.partitions
    assert (one.next_offset, one.finished) == (10, b"\x02\x02")
    assert (two.next_offset, two.length, two.finished, two.waiting) == (0, 0, b"", b"\x02\x01")
