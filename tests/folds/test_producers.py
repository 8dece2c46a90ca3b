import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.constants import RUNS_REMEMBERED
from journal.folds.producers import ProducersFold, UnexpectedSequence
from journal.records.record import (
    Messages,
    PartitionsAdded,
    ProducerOpened,
    ProducersExpired,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from journal.settings import TopicSettings
from tests.support.builders import reread
from txbroker.errors import ProducerFenced, SequenceOutOfOrder, UnknownProducer
from txbroker.wire.refusals import error_name

OWNER = b"sixteen bytes of"


class Journal:
    """Feeds a fold as the engine would."""

    def __init__(self):
        self.fold = ProducersFold()
        self.lsn = itertools.count(1)
        self.ends = {}
        self.at = 0

    def accept(self, record):
        self.fold.apply(next(self.lsn), record, b"")

    def open(self, number=1, epoch=0, name=""):
        self.accept(ProducerOpened(number, epoch, name, self.at, OWNER))

    def send(self, sequence, count=1, producer=1, epoch=0, partition=7, owner=OWNER):
        """As the broker does: (repeated, base offset)."""
        repeated = self.fold.repeated(owner, producer, epoch, partition, sequence, count)
        if repeated is not None:
            return True, repeated
        base = self.ends.get(partition, 0)
        self.ends[partition] = base + count
        self.accept(Messages(partition, base, count, self.at, producer, epoch, sequence))
        return False, base

    def others(self, count=1, partition=7):
        """Messages of somebody else come between."""
        self.ends[partition] = self.ends.get(partition, 0) + count


@pytest.fixture
def journal():
    journal = Journal()
    journal.open()
    return journal


def again(journal):
    """A journal over a fold restored from the snapshot of this one."""
    fold = ProducersFold()
    fold.restore(reread(ProducersFold, journal.fold.snapshot()))
    journal.fold = fold
    return journal


def test_a_repeated_send_gets_the_offset_of_the_first_time(journal):
    journal.others(5)
    assert journal.send(0, 3) == (False, 5)
    journal.others(10)
    assert journal.send(3, 2) == (False, 18)
    assert journal.send(0, 3) == (True, 5)
    assert journal.send(3, 2) == (True, 18)


def test_thousands_of_requests_in_flight_make_one_run_and_are_all_recognized(journal):
    for sequence in range(5000):
        journal.send(sequence)
    assert [journal.send(sequence) for sequence in (0, 1, 4999)] == [(True, 0), (True, 1), (True, 4999)]
    assert len(journal.fold.producers[1].partitions[7].starts) == 1


def test_a_gap_is_refused_and_says_what_is_expected(journal):
    with pytest.raises(UnexpectedSequence, match="sent message 1 to partition 7, 0 is next") as refused:
        journal.send(1)
    assert refused.value.numbers == {"expected": 0}
    journal.send(0, 4)
    with pytest.raises(SequenceOutOfOrder, match="4 is next"):
        journal.send(5)
    assert error_name(refused.value) == "SequenceOutOfOrder"


def test_a_repetition_from_before_the_remembered_runs_is_refused_and_never_taken_as_new(journal):
    for sequence in range(RUNS_REMEMBERED + 1):
        journal.send(sequence)
        journal.others()
    assert journal.send(1) == (True, 2)
    with pytest.raises(
        UnexpectedSequence, match="stored already, at offsets no longer remembered"
    ) as refused:
        journal.send(0)
    assert refused.value.numbers == {"expected": RUNS_REMEMBERED + 1}


@pytest.mark.parametrize(("sequence", "count"), [(2, 3), (0, 5), (3, 2)])
def test_a_repetition_that_is_not_the_same_request_is_refused(journal, sequence, count):
    journal.send(0, 2)
    journal.others()
    journal.send(2, 2)
    with pytest.raises(SequenceOutOfOrder):
        journal.send(sequence, count)
    assert journal.send(4) == (False, 5)


def test_a_repetition_over_two_runs_is_refused_for_its_messages_lie_apart(journal):
    journal.send(0, 2)
    journal.others()
    journal.send(2, 2)
    with pytest.raises(SequenceOutOfOrder, match="came in other requests"):
        journal.send(0, 4)


@pytest.mark.parametrize("sequence", [-1, -(1 << 62)])
def test_a_negative_sequence_is_refused(journal, sequence):
    with pytest.raises(SequenceOutOfOrder):
        journal.send(sequence)
    journal.send(0)
    with pytest.raises(SequenceOutOfOrder):
        journal.send(sequence)


def test_partitions_have_sequences_of_their_own(journal):
    journal.send(0, partition=7)
    assert journal.send(0, partition=8) == (False, 0)
    assert journal.fold.pairs == 2


def test_a_new_epoch_fences_the_old_one_and_begins_at_zero():
    journal = Journal()
    journal.open(1, 0, "payments")
    journal.send(0)
    journal.open(1, 1, "payments")
    with pytest.raises(ProducerFenced, match=r"'payments'.*at epoch 1, this one has 0"):
        journal.send(1)
    with pytest.raises(UnknownProducer):
        journal.send(0, epoch=2)
    assert journal.send(0, epoch=1) == (False, 1)
    assert journal.fold.pairs == 1


def test_an_unknown_or_expired_producer_is_refused_and_its_id_is_not_given_again():
    journal = Journal()
    with pytest.raises(UnknownProducer, match="not known or was forgotten"):
        journal.send(0)
    journal.open(1, 0, "a")
    journal.send(0)
    journal.accept(ProducersExpired([1], 5))
    with pytest.raises(UnknownProducer):
        journal.send(1)
    assert (journal.fold.next_id, journal.fold.names, journal.fold.pairs) == (2, {}, 0)
    with pytest.raises(AssertionError, match="takes an id again"):
        journal.open(1)
    journal.open(2, 0, "a")


def test_a_deleted_topic_gives_back_what_was_remembered_of_its_partitions(journal):
    journal.accept(TopicCreated("gone", 7, 2, TopicSettings(), 0))
    journal.accept(TopicAltered("gone", TopicSettings(), 0, PartitionsAdded(2, 10, 1)))
    for partition in (6, 7, 8, 9, 10):
        journal.send(0, partition=partition)
    journal = again(journal)
    journal.accept(TopicDeleted("gone", 1))
    assert sorted(journal.fold.producers[1].partitions) == [6, 9]
    assert journal.fold.pairs == journal.fold.pairs_owned[OWNER] == 2


def test_pairs_are_counted_for_whom_they_are_whatever_becomes_of_them(journal):
    other = b"another of these"
    journal.open(2, 0, "billing")
    for producer, partitions in ((1, (7, 8)), (2, (7, 8, 9))):
        for partition in partitions:
            journal.send(0, producer=producer, partition=partition)
    assert again(journal).fold.pairs_owned == {OWNER: 5}
    journal.accept(ProducerOpened(2, 1, "billing", 0, other))
    assert journal.fold.pairs_owned == {OWNER: 2}
    journal.send(0, producer=2, epoch=1, owner=other)
    assert journal.fold.pairs_owned == {OWNER: 2, other: 1}
    journal.accept(ProducersExpired([1], 5))
    assert again(journal).fold.pairs_owned == {other: 1}
    assert journal.fold.owned == {other: 1}
    assert journal.fold.pairs == 1


def test_the_fold_asserts_what_a_record_continues(journal):
    journal.send(0)
    with pytest.raises(AssertionError, match="as its message 5, by the records before 1 is the next"):
        journal.accept(Messages(7, 1, 1, 0, 1, 0, 5))
    with pytest.raises(AssertionError, match="in epoch 3 sent it, by the records before it has epoch 0"):
        journal.accept(Messages(7, 1, 1, 0, 1, 3, 1))
    with pytest.raises(
        AssertionError, match="producer 9 in epoch 0 sent it, by the records before it has never"
    ):
        journal.accept(Messages(7, 1, 1, 0, 9, 0, 0))


def test_messages_without_a_producer_leave_no_trace(journal):
    before = list(journal.fold.snapshot())
    journal.accept(Messages(7, 0, 1, 99))
    assert list(journal.fold.snapshot()) == before


def test_a_snapshot_is_that_of_its_moment_however_late_it_is_drawn(journal):
    journal.send(0)
    rows = journal.fold.snapshot()
    journal.send(1)
    journal.open(2)
    fold = ProducersFold()
    fold.restore(reread(ProducersFold, rows))
    assert fold.producers[1].partitions[7].next == 1
    assert fold.next_id == 2


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.booleans()), max_size=60)
)
def test_whatever_was_sent_a_retry_gives_the_first_offset_also_after_a_restart(steps):
    journal = Journal()
    journal.accept(TopicCreated("t", 1, 2, TopicSettings(), 0))
    for number in (1, 2, 3):
        journal.open(number, 0, f"p{number}")
    following, sent = {}, []
    for producer, partition, count, restart in steps:
        sequence = following.get((producer, partition), 0)
        repeated, base = journal.send(sequence, count, producer, 0, partition)
        assert not repeated
        following[producer, partition] = sequence + count
        sent.append((sequence, count, producer, 0, partition, base))
        if restart:
            rows = list(journal.fold.snapshot())
            assert list(again(journal).fold.snapshot()) == rows
    for *request, base in sent:
        assert journal.send(*request) == (True, base)
