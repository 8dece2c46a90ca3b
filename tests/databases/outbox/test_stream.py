"""Test the state of a stream: what may be delivered from memory, and what must be read first (decision 0048)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.databases.outbox.stream import JOINED_BYTES, Committed, Memory, Stream, joined

RUNS = [(1, 3)]


@pytest.fixture
def stream():
    return Stream(b"s" * 16, Memory({}))


def claim(stream, epoch=b"1", last=0, life=1):
    return stream.claimed(epoch, last, life)


def block(number, at=0.0):
    return Committed(number, RUNS, b"abc", at)


def commit(stream, has_room=True, at=0.0):
    number, epoch = stream.begin()
    stream.committed(block(number, at), epoch, has_room)
    return number


def sent(stream):
    """The numbers of each delivery, and what it comes after."""
    return [(*[block.number for block in blocks], after) for blocks, after in stream.unsent()]


def test_a_new_stream_delivers_nothing_before_its_claim(stream):
    commit(stream)
    assert not stream.is_current
    assert sent(stream) == []


def test_a_claim_before_the_first_block_needs_no_reading(stream):
    claim(stream)
    assert stream.is_current
    assert [commit(stream), commit(stream)] == [1, 2]
    assert sent(stream) == [(1, 2, 0)]


def test_nothing_is_sent_twice_on_one_session(stream):
    claim(stream)
    commit(stream)
    assert sent(stream) == [(1, 0)]
    assert sent(stream) == []
    commit(stream)
    assert sent(stream) == [(2, 1)]


def test_after_a_loss_all_that_is_unanswered_is_sent_again(stream):
    claim(stream)
    commit(stream)
    commit(stream)
    assert sent(stream) == [(1, 2, 0)]
    stream.delivered(1)
    stream.unsend()
    assert sent(stream) == [(2, 1)]


def test_a_number_that_was_rolled_back_is_left_out(stream):
    claim(stream)
    number, _ = stream.begin()
    stream.rolled_back(number)
    commit(stream)
    assert sent(stream) == [(2, 0)]


class TestReading:
    """Rule a: what was committed before the claim was answered is read from the database."""

    def test_a_block_that_began_to_commit_before_the_claim_is_read(self, stream):
        number, epoch = stream.begin()
        claim(stream)
        stream.committed(block(number), epoch, has_room=True)
        assert not stream.is_current
        assert sent(stream) == []
        assert stream.to_read() == 1

    def test_while_such_a_block_is_open_no_snapshot_covers_it(self, stream):
        number, epoch = stream.begin()
        claim(stream)
        assert stream.to_read() is None
        stream.committed(block(number), epoch, has_room=True)
        assert stream.to_read() == 1

    def test_blocks_that_end_while_it_is_read_wait_in_memory(self, stream):
        commit(stream)
        claim(stream)
        covered = stream.to_read()
        commit(stream)
        assert sent(stream) == []
        stream.delivered(1)
        stream.was_read(covered)
        assert sent(stream) == [(2, 1)]

    def test_what_the_snapshot_had_too_is_not_sent_from_memory(self, stream):
        commit(stream)
        claim(stream)
        commit(stream)
        covered = stream.to_read()
        stream.delivered(2)
        stream.was_read(covered)
        assert stream.is_current
        assert sent(stream) == []

    def test_a_block_without_room_in_memory_must_be_read(self, stream):
        claim(stream)
        commit(stream)
        commit(stream, has_room=False)
        commit(stream)
        assert not stream.is_current
        covered = stream.to_read()
        assert covered == 2
        stream.delivered(2)
        stream.was_read(covered)
        assert sent(stream) == [(3, 2)]

    def test_a_snapshot_does_not_cover_what_needs_reading_since(self, stream):
        claim(stream)
        commit(stream, has_room=False)
        covered = stream.to_read()
        commit(stream, has_room=False)
        stream.delivered(1)
        stream.was_read(covered)
        assert not stream.is_current

    def test_rows_that_were_rolled_back_do_not_hold_it_up(self, stream):
        number, _ = stream.begin()
        claim(stream)
        stream.rolled_back(number)
        stream.was_read(stream.to_read())
        assert stream.is_current


class TestFencing:
    """Rule c: whoever is fenced drops what it has in memory."""

    def test_what_is_in_memory_is_dropped(self, stream):
        claim(stream)
        commit(stream)
        stream.fenced(b"1")
        assert (stream.is_current, sent(stream), stream._memory.held) == (False, [], 0)

    def test_a_refusal_under_an_older_epoch_changes_nothing(self, stream):
        claim(stream)
        claim(stream, b"2")
        commit(stream)
        stream.fenced(b"1")
        assert sent(stream) == [(1, 0)]

    def test_the_next_claim_has_what_was_in_memory_read(self, stream):
        claim(stream)
        commit(stream)
        claim(stream, b"2")
        assert not stream.is_current
        assert stream.to_read() == 1

    def test_a_block_that_began_under_the_old_epoch_is_read(self, stream):
        claim(stream)
        number, epoch = stream.begin()
        claim(stream, b"2")
        stream.committed(block(number), epoch, has_room=True)
        assert not stream.is_current

    def test_all_that_the_claim_tells_to_be_delivered_need_not_be_read(self, stream):
        claim(stream)
        commit(stream)
        claim(stream, b"2", last=1)
        assert stream.is_current
        assert stream.take_rows(10) == [1]


def test_the_end_of_a_block_may_be_told_again(stream):
    claim(stream)
    number, epoch = stream.begin()
    for _ in range(2):
        stream.committed(block(number), epoch, has_room=True)
    stream.rolled_back(number)
    assert sent(stream) == [(1, 0)]
    assert stream._memory.held == 3


def test_delivered_rows_may_be_deleted_once(stream):
    claim(stream)
    for _ in range(3):
        commit(stream)
    stream.delivered(2)
    assert (stream.removable, stream.take_rows(10), stream.take_rows(10)) == (2, [1, 2], [])
    stream.give_rows([1, 2])
    stream.delivered(3)
    assert stream.take_rows(10) == [1, 2, 3]
    assert stream._memory.held == 0


def test_who_waits_hears_of_it(stream):
    claim(stream)
    commit(stream)
    commit(stream)
    first, second = stream.wait(1), stream.wait(2)
    assert stream.delivered(1) == [first]
    assert stream.refused(2) == [second]
    assert stream.wait(1).done


def test_the_oldest_that_is_not_delivered_tells_the_age(stream):
    claim(stream)
    assert stream.since == math.inf
    commit(stream, at=5.0)
    commit(stream, at=6.0)
    assert stream.since == 5.0
    stream.delivered(1)
    assert stream.since == 6.0
    stream.fenced(b"1")
    assert stream.since == 6.0
    claim(stream, b"2", last=2)
    assert stream.since == math.inf


def test_it_is_settled_when_all_is_delivered_and_no_block_is_open(stream):
    assert not stream.is_settled
    claim(stream)
    assert stream.is_settled
    number, epoch = stream.begin()
    assert not stream.is_settled
    stream.committed(block(number), epoch, has_room=True)
    assert not stream.is_settled
    stream.delivered(number)
    assert stream.is_settled


def test_how_blocks_of_this_process_have_ended_is_remembered(stream):
    claim(stream)
    commit(stream)
    number, _ = stream.begin()
    assert [stream.outcome(each) for each in (1, 2, 3)] == [True, None, None]
    stream.rolled_back(number)
    assert [stream.outcome(each) for each in (1, 2)] == [True, False]


def test_what_is_not_remembered_is_not_guessed(stream):
    claim(stream)
    commit(stream)
    for _ in range(1000):
        stream.rolled_back(stream.begin()[0])
    assert (stream.outcome(1), stream.outcome(2), stream.outcome(1001)) == (None, False, False)


class TestUndelivered:
    def rolls_back(self, stream):
        number, _ = stream.begin()
        stream.rolled_back(number)
        return number

    def test_blocks_that_were_rolled_back_are_waited_for_by_nobody(self, stream):
        claim(stream)
        self.rolls_back(stream)
        assert stream.undelivered == 0
        commit(stream)
        self.rolls_back(stream)
        assert stream.undelivered == 1
        commit(stream)
        self.rolls_back(stream)
        assert stream.undelivered == 2
        stream.delivered(2)
        assert stream.undelivered == 1
        stream.delivered(4)
        assert stream.undelivered == 0

    def test_blocks_that_must_be_read_count_until_they_were(self, stream):
        commit(stream)
        commit(stream)
        claim(stream)
        assert stream.undelivered == 2
        stream.was_read(stream.to_read())
        assert stream.undelivered == 0

    def test_blocks_that_are_dropped_from_memory_count_on(self, stream):
        claim(stream)
        commit(stream)
        stream.fenced(b"1")
        assert stream.undelivered == 1
        claim(stream, b"2", last=1)
        assert stream.undelivered == 0


def test_a_block_whose_end_was_never_told_was_rolled_back_when_the_next_begins(stream):
    claim(stream)
    number, _ = stream.begin()
    commit(stream)
    assert stream.outcome(number) is False
    assert sent(stream) == [(2, 0)]


def test_an_interrupted_end_is_completed_by_its_repetition():
    streams = {}
    memory = Memory(streams)
    stream = streams[b"s" * 16] = Stream(b"s" * 16, memory)
    claim(stream)
    number, epoch = stream.begin()
    stream._queue.append(block(number))  # and an interrupt came then
    assert stream.open == number
    stream.committed(block(number), epoch, has_room=True)
    assert (memory.held, stream.open, sent(stream)) == (3, 0, [(1, 0)])


class TestTogether:
    """Blocks that are delivered at once."""

    def of_size(self, stream, size, joins=True):
        number, epoch = stream.begin()
        stream.committed(Committed(number, [(1, size)], bytes(size), 0.0, joins), epoch, True)

    def test_they_have_no_more_bytes_than_may_go_together(self, stream):
        claim(stream)
        for size in (JOINED_BYTES - 10, 10, 1, JOINED_BYTES + 1, 1):
            self.of_size(stream, size)
        assert sent(stream) == [(1, 2, 0), (3, 2), (4, 3), (5, 4)]

    def test_one_that_does_not_join_goes_alone(self, stream):
        claim(stream)
        for joins in (True, True, False, True, False, False):
            self.of_size(stream, 1, joins)
        assert sent(stream) == [(1, 2, 0), (3, 2), (4, 3), (5, 4), (6, 5)]

    def test_an_answer_that_comes_after_a_loss_leaves_the_others(self, stream):
        claim(stream)
        commit(stream)
        commit(stream)
        assert sent(stream) == [(1, 2, 0)]
        stream.unsend()
        commit(stream)
        assert sent(stream) == [(1, 2, 3, 0)]  # refused as out of order if the first one was taken

    @given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.binary(min_size=1, max_size=4)), min_size=1)))
    def test_each_partition_gets_the_frames_of_all_blocks_in_their_order(self, blocks):
        made = [
            Committed(
                number,
                [(partition, len(data)) for partition, data in runs],
                b"".join([data for _, data in runs]),
                0.0,
            )
            for number, runs in enumerate(blocks, 1)
        ]
        for together in (made[:1], made):
            if not together:
                continue
            runs, data = joined(together)
            given_back, start = {}, 0
            for partition, size in runs:
                given_back[partition] = given_back.get(partition, b"") + data[start : start + size]
                start += size
            expected = {}
            for runs in blocks[: len(together)]:
                for partition, some in runs:
                    expected[partition] = expected.get(partition, b"") + some
            assert given_back == expected
            assert start == len(data)
