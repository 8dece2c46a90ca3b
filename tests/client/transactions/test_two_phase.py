"""Test transactions of a client in two phases, and the calls of PEP 249."""

import pytest

from journal.transaction_states import State
from journal.xid import Xid
from tests.client.rig import add
from tests.client.transactions.dialogue import XID, begun, seen, swallow
from txbroker import errors
from txbroker.client.transactions.transaction import Stage
from txbroker.client.transactions.two_phase import TwoPhase
from txbroker.wire.messages import Add, Commit, Prepare, Refused, Rollback


class TestTwoPhases:
    def test_prepare_then_commit(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        rig.run(transaction.prepare())
        assert broker.values(1) == []
        rig.run(transaction.commit())
        assert broker.values(1) == [b"a"]
        assert seen(broker, Prepare)[0].xid == XID
        assert seen(broker, Add) == []

    def test_a_prepare_whose_answer_was_lost_is_asked_for(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        swallow(broker, Prepare)
        prepare = rig.start(transaction.prepare())
        number = transaction.number
        rig.cut()
        broker.outcomes[number] = State.PREPARED
        rig.connect()
        assert prepare.done
        assert prepare.error is None
        assert transaction.stage is Stage.PREPARED
        rig.run(transaction.commit())
        assert broker.values(1) == [b"a"]

    def test_a_prepared_one_survives_the_connection_and_commits_from_the_next_session(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        rig.run(transaction.prepare())
        rig.cut()
        rig.connect()
        rig.run(transaction.commit())
        assert broker.values(1) == [b"a"]

    def test_a_second_phase_whose_answer_was_lost_is_sent_again(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        rig.run(transaction.prepare())
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.cut()
        broker.before = lambda request, data: None
        rig.connect()
        assert commit.done
        assert commit.error is None
        assert broker.values(1) == [b"a"]
        assert len(seen(broker, Commit)) == 2

    def test_without_an_xid_there_is_nothing_to_prepare(self, rig):
        transaction = begun(rig, b"a")
        with pytest.raises(errors.Misuse, match="without an xid"):
            rig.run(transaction.prepare())
        rig.run(transaction.commit())

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_an_empty_one_votes_read_only_and_no_broker_hears_of_it(self, rig, broker, end):
        transaction = rig.transaction(XID)
        rig.run(transaction.prepare())
        assert transaction.stage is Stage.PREPARED
        assert transaction.is_read_only
        with pytest.raises(errors.Misuse, match="prepared"):
            rig.run(add(transaction, b"late"))
        rig.run(getattr(transaction, end)())
        assert transaction.stage is (Stage.COMMITTED if end == "commit" else Stage.ROLLED_BACK)
        assert seen(broker, Prepare) == seen(broker, Commit) == seen(broker, Rollback) == []

    def test_one_whose_only_message_was_refused_here_is_empty(self, rig, broker):
        transaction = rig.transaction(XID)
        with pytest.raises(errors.WrongType):
            rig.run(add(transaction, "text"))
        rig.run(transaction.prepare())
        rig.run(transaction.commit())
        assert seen(broker, Prepare) == seen(broker, Commit) == []
        assert rig.serials._open == {}, "what comes later does not wait for it"

    def test_sending_after_prepare_is_misuse(self, rig):
        transaction = begun(rig, b"a", xid=XID)
        rig.run(transaction.prepare())
        with pytest.raises(errors.Misuse, match="prepared"):
            rig.run(add(transaction, b"b"))

    def test_a_roll_back_after_an_unknown_prepare_still_reaches_the_broker(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        swallow(broker, Prepare)
        prepare = rig.start(transaction.prepare())
        number = transaction.number
        rig.cut()
        rig.wait(31)
        assert isinstance(prepare.error, errors.OutcomeUnknown)
        broker.outcomes[number] = State.PREPARED
        rig.connect()
        rig.run(transaction.rollback())
        assert broker.outcomes[number] is State.ROLLED_BACK

    @pytest.mark.parametrize("goes_on", [False, True], ids=["given up", "given up and asked again"])
    def test_leaving_a_block_rolls_back_an_unknown_prepare_that_nobody_waits_for(self, rig, broker, goes_on):
        transaction = begun(rig, b"a", xid=XID)
        swallow(broker, Prepare)
        prepare = rig.start(transaction.prepare())
        number = transaction.number
        rig.cut()
        rig.wait(31)
        assert isinstance(prepare.error, errors.OutcomeUnknown)
        transaction.prepare_cut_short()
        broker.outcomes[number] = State.PREPARED
        rig.connect()
        if goes_on:
            rig.run(transaction.prepare())
        transaction.abandon()
        rig.pump()
        assert broker.outcomes[number] is (State.PREPARED if goes_on else State.ROLLED_BACK)

    def test_no_roll_back_follows_the_commit_of_one_whose_prepare_was_given_up(self, rig, broker):
        transaction = begun(rig, b"a", xid=XID)
        rig.run(transaction.prepare())
        transaction.prepare_cut_short()
        swallow(broker, Commit)
        commit = rig.start(transaction.commit())
        rig.wait(31)
        assert isinstance(commit.error, errors.OutcomeUnknown)
        broker.before = lambda request, data: None
        transaction.abandon()
        rig.pump()
        assert seen(broker, Rollback) == []

    @pytest.mark.parametrize("call", ["prepare", "commit"])
    def test_a_roll_back_is_not_believed_while_the_decision_may_still_arrive(self, rig, broker, call):
        transaction = begun(rig, b"a", xid=XID)
        swallow(broker, Add, Prepare, Commit)
        decision = rig.start(getattr(transaction, call)())
        rig.cut()
        rig.wait(31)
        assert isinstance(decision.error, errors.OutcomeUnknown)
        # The broker has neither read what was sent nor noticed that the old connection died.
        broker.before = lambda request, data: (
            Refused(request.correlation, "UnknownTransaction", "it may still begin")
            if type(request) is Rollback
            else None
        )
        rig.connect()
        with pytest.raises(errors.OutcomeUnknown, match="may still begin"):
            rig.run(transaction.rollback())
        assert transaction.stage is Stage.DECIDING

    @pytest.mark.parametrize("commit", [True, False])
    def test_one_recovered_and_forgotten_before_the_answer_is_unknown_and_no_success(
        self, rig, broker, commit
    ):
        kind = Commit if commit else Rollback
        swallow(broker, kind)
        ending = rig.start(rig.operations.end_prepared(XID, commit))
        rig.cut()
        broker.before = lambda request, data: (
            Refused(request.correlation, "UnknownTransaction", "neither live nor remembered")
            if type(request) is kind
            else None
        )
        rig.connect()
        with pytest.raises(errors.OutcomeUnknown, match="nor remembered"):
            ending.result()
        with pytest.raises(errors.UnknownTransaction):
            rig.run(rig.operations.end_prepared(XID, commit))


class TestTheCallsOfPep249:
    @pytest.fixture
    def tpc(self, rig):
        return TwoPhase(rig.core, rig.producer, rig.serials)

    def test_commit_without_prepare_is_one_phase(self, rig, broker, tpc):
        tpc.begin(XID)
        rig.run(add(tpc.current, b"a"))
        rig.run(tpc.commit(None))
        assert broker.values(1) == [b"a"]
        assert seen(broker, Prepare) == []
        assert tpc.current is None

    def test_calls_out_of_order_are_misuse(self, rig, tpc):
        for call in (tpc.prepare(), tpc.commit(None), tpc.rollback(None)):
            with pytest.raises(errors.Misuse):
                rig.run(call)
        tpc.begin(XID)
        with pytest.raises(errors.Misuse):
            tpc.begin(XID)
        with pytest.raises(errors.Misuse):
            rig.run(tpc.commit(XID))

    @pytest.mark.parametrize("end", ["commit", "rollback", None])
    def test_after_a_read_only_vote_it_may_be_ended_or_the_next_begun(self, rig, broker, tpc, end):
        tpc.begin(XID)
        rig.run(tpc.prepare())
        if end is not None:
            rig.run(getattr(tpc, end)(None))
            assert tpc.current is None
        tpc.begin(Xid(1, b"next", b"b"))
        rig.run(add(tpc.current, b"a"))
        rig.run(tpc.prepare())
        rig.run(tpc.commit(None))
        assert (broker.values(1), len(seen(broker, Prepare))) == ([b"a"], 1)

    def test_a_plain_string_is_no_xid(self, tpc):
        with pytest.raises(errors.Misuse, match="which is what xid"):
            tpc.begin("order-42")

    def test_an_unknown_end_leaves_it_open_to_be_asked_again(self, rig, broker, tpc):
        tpc.begin(XID)
        rig.run(add(tpc.current, b"a"))
        rig.run(tpc.prepare())
        swallow(broker, Commit)
        commit = rig.start(tpc.commit(None))
        rig.wait(31)
        assert isinstance(commit.error, errors.OutcomeUnknown)
        assert tpc.current is not None
        broker.before = lambda request, data: None
        rig.run(tpc.commit(None))
        assert tpc.current is None
        assert broker.values(1) == [b"a"]
