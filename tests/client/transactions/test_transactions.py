"""Test transactions of a client: what their requests carry, and what they report when an answer is lost."""

import pytest
from crc32c import crc32c

from journal.constants import MAX_REQUEST_ENTRIES
from journal.records.group_entries import PartitionOffset
from journal.transaction_states import State, Totals
from tests.client.rig import Rig, add, send_as_adds
from tests.client.transactions.dialogue import XID, begun, seen, swallow
from txbroker import errors
from txbroker.client.transactions.transaction import Run, Stage
from txbroker.wire import messages
from txbroker.wire.messages import Add, AddOffsets, AskOutcome, Commit, Prepare, Refused, Rollback


def test_it_has_its_number_from_the_one_request_that_commits_it(rig, broker):
    transaction = begun(rig, b"a", b"b")
    assert transaction.number is None
    rig.run(transaction.commit())
    assert transaction.number == (rig.session, 1)
    assert broker.values(1) == [b"a", b"b"]
    assert transaction.stage is Stage.COMMITTED
    assert transaction.runs == [Run("t", 0, 0, 2)]


def filled(rig):
    transaction = rig.transaction()
    rig.run(add(transaction, b"a", "t"))
    rig.run(add(transaction, b"b", "t2"))
    rig.run(add(transaction, b"c", "t2"))
    rig.run(add(transaction, b"d", "t2"))
    rig.run(transaction.add_offsets("g", [PartitionOffset(1, 5)]))
    return transaction


def test_the_request_that_decides_carries_all_that_was_not_sent(rig, broker):
    transaction = filled(rig)
    rig.run(transaction.commit())
    (commit,) = seen(broker, Commit)
    assert (seen(broker, Add), seen(broker, AddOffsets), commit.totals) == ([], [], None)
    assert [partition for partition, _ in commit.runs] == [1, 2, 3]
    assert [(each.group, each.offsets) for each in commit.positions] == [("g", [PartitionOffset(1, 5)])]
    assert [broker.values(number) for number in (1, 2, 3)] == [[b"a"], [b"b", b"d"], [b"c"]]


def test_totals_cover_every_message_request_and_byte_that_was_added_before(rig, broker):
    transaction = filled(rig)
    send_as_adds(transaction)
    rig.pump()
    before = crc32c(b"".join(frames for _, frames in broker.staged[transaction.number]))
    rig.run(add(transaction, b"e", "t"))
    rig.run(transaction.commit())
    (commit,) = seen(broker, Commit)
    assert commit.totals == Totals(4, 4, before)
    assert [partition for partition, _ in commit.runs] == [1]
    assert broker.values(1) == [b"a", b"e"]


def test_what_does_not_fit_into_one_request_is_added_before(broker):
    rig = Rig(broker, batch_bytes=1 << 20)
    rig.core.max_request = 1 << 20
    transaction = rig.transaction()
    for topic in ("t", "t2", "t2"):
        rig.run(add(transaction, b"x" * (400 << 10), topic))
    rig.run(transaction.commit())
    (commit,) = seen(broker, Commit)
    assert (commit.totals.requests, len(commit.runs)) == (1, 2)
    assert [len(broker.values(number)) for number in (1, 2, 3)] == [1, 1, 1]


def test_so_are_more_positions_than_a_request_may_list(rig, broker):
    transaction = rig.transaction()
    for group in ("g", "h"):
        many = [PartitionOffset(number, 5) for number in range(MAX_REQUEST_ENTRIES)]
        rig.run(transaction.add_offsets(group, many))
    rig.run(transaction.commit())
    assert [request.group for request in seen(broker, AddOffsets)] == ["g"]
    assert [each.group for each in seen(broker, Commit)[0].positions] == ["h"]


@pytest.mark.parametrize("goal", ["commit", "prepare"])
def test_a_refused_decision_is_the_frames_own_error_and_nothing_more_is_taken(rig, broker, goal):
    transaction = begun(rig, b"a", xid=XID)
    broker.before = lambda request, data: (
        Refused(request.correlation, "InvalidFrame", "no") if type(request) in (Commit, Prepare) else None
    )
    with pytest.raises(errors.InvalidFrame, match="no"):
        rig.run(getattr(transaction, goal)())
    broker.before = lambda request, data: None
    for attempt in (add(transaction, b"b"), getattr(transaction, goal)()):
        with pytest.raises(errors.InvalidFrame, match="no"):
            rig.run(attempt)
    rig.run(transaction.rollback())
    assert len(seen(broker, Rollback)) == 1, "the broker may have begun it with adds"


def test_an_empty_one_commits_without_a_word(rig, broker):
    transaction = rig.transaction()
    rig.run(transaction.commit())
    assert transaction.stage is Stage.COMMITTED
    assert seen(broker, Commit) == []


def test_several_are_open_at_once_and_seen_counts_up_to_the_oldest(rig, broker):
    first, second, third = begun(rig, b"1"), begun(rig, b"2"), begun(rig, b"3")
    send_as_adds(first)
    rig.run(second.commit())
    rig.run(third.commit())
    assert [request.seen for request in seen(broker, Commit)] == [0, 0]
    rig.run(first.commit())
    fourth = begun(rig, b"4")
    rig.run(fourth.commit())
    assert seen(broker, Commit)[-1].seen == 3


def test_several_that_are_open_at_once_take_one_request_each_whichever_is_decided_first(rig, broker):
    first, second, third = begun(rig, b"1"), begun(rig, b"2", xid=XID), begun(rig, b"3")
    rig.run(third.add_offsets("g", [PartitionOffset(1, 5)]))
    rig.run(third.commit())
    rig.run(second.prepare())
    rig.run(first.commit())
    requests = [request for request in broker.requests if type(request) in (Add, AddOffsets, Prepare, Commit)]
    assert [(type(request), request.serial, request.totals) for request in requests] == [
        (Commit, 1, None),
        (Prepare, 2, None),
        (Commit, 3, None),
    ]
    assert [third.number, second.number, first.number] == [(rig.session, serial) for serial in (1, 2, 3)]
    rig.run(second.commit())
    assert broker.values(1) == [b"3", b"1", b"2"]


def test_one_that_is_full_begins_at_the_broker_before_those_that_wait(broker):
    rig = Rig(broker, batch_bytes=1000)
    first, second = rig.transaction(), rig.transaction()
    rig.run(add(first, b"1"))
    rig.run(add(second, b"2" * 2000))
    rig.run(first.commit())
    rig.run(second.commit())
    requests = [request for request in broker.requests if type(request) in (Add, Commit)]
    assert [(type(request), request.serial) for request in requests] == [(Add, 1), (Commit, 2), (Commit, 1)]


@pytest.mark.parametrize(
    ("where", "seen_first"), [("before it has a number", 1), ("before its request is made", 0)]
)
def test_one_that_is_interrupted_before_its_request_is_sent_takes_another_number_then(
    broker, monkeypatch, where, seen_first
):
    rig = Rig(broker, batch_bytes=1000)
    first, second = rig.transaction(), begun(rig, b"2")
    owner, name = (rig.serials, "begin") if where == "before it has a number" else (rig.core, "packed")
    original = getattr(owner, name)

    def interrupted(*arguments):
        original(*arguments)
        raise InterruptedError

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(InterruptedError):
        rig.run(add(first, b"1" * 1000))
    monkeypatch.undo()
    rig.run(second.commit())
    rig.run(first.commit())
    assert broker.values(1) == [b"2", b"1" * 1000]
    assert [(request.serial, request.seen) for request in seen(broker, Commit)] == [(2, seen_first), (3, 2)]


def test_one_that_sent_nothing_rolls_back_without_a_word_so_that_an_earlier_one_may_still_begin(rig, broker):
    first, second = begun(rig, b"1"), begun(rig, b"2")
    rig.run(second.rollback())
    rig.run(first.commit())
    assert broker.values(1) == [b"1"]
    assert seen(broker, Rollback) == []


def too_large(transaction):
    return add(transaction, b"x" * (2 << 20))


def test_one_whose_first_act_failed_is_in_nobodys_way_and_goes_on(rig, broker):
    first, second = rig.transaction(), rig.transaction()
    with pytest.raises(errors.MessageTooLarge):
        rig.run(too_large(first))
    rig.run(add(second, b"two"))
    rig.run(second.commit())
    rig.run(add(first, b"one"))
    rig.run(first.commit())
    assert broker.values(1) == [b"two", b"one"]
    began = [request.serial for request in seen(broker, Commit)]
    assert began == sorted(began), "the broker takes serials in their order only"
    assert seen(broker, Commit)[-1].seen == began[-1] - 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_one_whose_only_act_failed_ends_without_a_word_though_a_later_one_has_begun(rig, broker, end):
    first = rig.transaction()
    with pytest.raises(errors.MessageTooLarge):
        rig.run(too_large(first))
    second = begun(rig, b"two")
    rig.run(second.commit())
    rig.run(getattr(first, end)())
    assert broker.values(1) == [b"two"]
    assert len(seen(broker, Commit)) == 1
    assert seen(broker, Rollback) == []


def test_a_batch_that_cannot_be_made_into_bytes_is_not_left_out_of_a_commit(rig, broker):
    class Failing:
        def pack(self, data):
            raise MemoryError

    transaction = begun(rig, b"a")
    rig.producer.compressor = Failing()
    with pytest.raises(MemoryError):
        rig.run(transaction.commit())
    rig.producer.compressor = None
    rig.run(transaction.commit())
    assert broker.values(1) == [b"a"]


def test_one_that_was_open_when_its_connection_died_is_gone_and_says_so(rig):
    transaction = begun(rig, b"a")
    rig.cut()
    rig.connect()
    for attempt in (add(transaction, b"b"), transaction.commit()):
        with pytest.raises(errors.TransactionRolledBack, match="connection died"):
            rig.run(attempt)
    rig.run(transaction.rollback())
    assert transaction.stage is Stage.ROLLED_BACK


def test_one_that_was_interrupted_when_it_began_does_not_go_out_in_another_session(rig, broker, monkeypatch):
    """What would have told it of the loss was not there yet."""
    transaction = rig.transaction()

    def interrupted(call):
        raise InterruptedError

    monkeypatch.setattr(rig.core, "watch", interrupted)
    with pytest.raises(InterruptedError):
        rig.run(add(transaction, b"a"))
    monkeypatch.undo()
    rig.cut()
    rig.connect()
    rig.run(add(transaction, b"b"))
    with pytest.raises(errors.TransactionRolledBack, match="connection died"):
        rig.run(transaction.commit())
    assert seen(broker, Commit) == []


def test_a_new_session_counts_its_serials_anew(rig, broker):
    begun(rig, b"a")
    rig.cut()
    rig.connect()
    transaction = begun(rig, b"b")
    rig.run(transaction.commit())
    assert transaction.number == (rig.session, 1)
    assert seen(broker, Commit)[-1].seen == 0


class TestACommitWhoseAnswerWasLost:
    def test_is_success_if_the_broker_committed(self, rig, broker):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.cut()
        rig.connect()
        assert commit.done
        assert commit.error is None
        assert transaction.stage is Stage.COMMITTED
        assert broker.values(1) == [b"a"]
        assert len(seen(broker, Commit)) == 1, "it was asked for, not sent again"

    def test_is_rolled_back_if_it_never_arrived(self, rig, broker):
        transaction = begun(rig, b"a")
        broker.before = lambda request, data: (
            messages.Refused(0, "Lost", "") if type(request) is Commit else None
        )
        commit = rig.start(transaction.commit())
        rig.cut()
        broker.before = lambda request, data: None
        rig.connect()
        with pytest.raises(errors.TransactionRolledBack, match="was rolled back"):
            commit.result()
        assert broker.values(1) == []

    def test_waits_while_the_broker_has_not_noticed_the_loss(self, rig, broker):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        number = transaction.number
        rig.cut()
        broker.outcomes[number] = State.ACTIVE
        rig.connect()
        rig.wait(0.5)
        assert not commit.done
        broker.outcomes[number] = State.COMMITTED
        rig.wait(2)
        assert commit.done
        assert commit.error is None

    @pytest.mark.parametrize("refusal", ["OutcomeForgotten", "UnknownTransaction"])
    def test_is_unknown_if_the_broker_has_forgotten(self, rig, broker, refusal):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.cut()
        broker.before = lambda request, data: (
            Refused(request.correlation, refusal, "?") if type(request) is AskOutcome else None
        )
        rig.connect()
        with pytest.raises(errors.OutcomeUnknown, match=str(transaction.number)):
            commit.result()

    def test_is_unknown_if_no_broker_comes_back_and_can_be_asked_again(self, rig, broker):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.cut()
        rig.wait(31)
        with pytest.raises(errors.OutcomeUnknown):
            commit.result()
        assert transaction.stage is Stage.DECIDING
        rig.connect()
        rig.run(transaction.commit())
        assert transaction.stage is Stage.COMMITTED

    def test_is_unknown_for_good_on_a_connection_that_is_given_up_and_a_new_one_tells(self, broker):
        rig = Rig(broker, reconnect=False)
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        broker.outcomes[transaction.number] = State.COMMITTED
        rig.cut()
        advice = rf"given up and cannot ask: ask outcome\('{transaction.number}'\) of a new connection"
        with pytest.raises(errors.OutcomeUnknown, match=advice):
            commit.result()
        with pytest.raises(errors.OutcomeUnknown, match=advice):
            rig.run(transaction.commit())
        new = Rig(broker)
        told = new.run(new.operations.outcome(str(transaction.number)))
        assert told.state is State.COMMITTED

    def test_is_unknown_for_good_if_other_data_answer_which_nobody_is_sent_to(self, rig, broker):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.cut()
        rig.core.stop(errors.BrokerReplaced("another broker answers"))
        for ended in (commit, rig.start(transaction.commit())):
            with pytest.raises(errors.OutcomeUnknown, match="look at what they have") as caught:
                ended.result()
            assert "ask outcome" not in str(caught.value)

    def test_is_unknown_if_the_answer_is_out_for_too_long(self, rig, broker):
        transaction = begun(rig, b"a")
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.wait(31)
        with pytest.raises(errors.OutcomeUnknown, match="ask outcome"):
            commit.result()


def test_a_refused_add_dooms_the_transaction_and_a_roll_back_is_sent(rig, broker):
    broker.before = lambda request, data: (
        Refused(request.correlation, "LimitExceeded", "too many") if type(request) is Add else None
    )
    transaction = rig.transaction()
    rig.run(add(transaction, b"x" * (70 << 10)))
    with pytest.raises(errors.LimitExceeded):
        rig.run(add(transaction, b"b"))
    rig.run(transaction.rollback())
    assert len(seen(broker, Rollback)) == 1


def test_a_commit_after_a_refused_add_names_the_reason_and_not_the_missing_messages(rig, broker):
    refusals = {Add: "TransactionConflict", Commit: "ContentMismatch"}
    broker.before = lambda request, data: (
        Refused(request.correlation, refusals[type(request)], "no") if type(request) in refusals else None
    )
    transaction = begun(rig, b"a")
    send_as_adds(transaction)
    commit = rig.start(transaction.commit())
    with pytest.raises(errors.TransactionConflict):
        commit.result()
    assert transaction.stage is Stage.ROLLED_BACK


def test_an_answer_that_it_was_rolled_back_is_told(rig, broker):
    transaction = begun(rig, b"a")
    broker.before = lambda request, data: (
        Refused(request.correlation, "TransactionRolledBack", "timeout") if type(request) is Commit else None
    )
    with pytest.raises(errors.TransactionRolledBack, match="timeout"):
        rig.run(transaction.commit())
    assert transaction.stage is Stage.ROLLED_BACK
