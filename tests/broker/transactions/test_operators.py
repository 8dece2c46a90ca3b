"""Test what operators end by hand, and what coordinators that come back are told."""

import pytest

from journal.transaction_states import Cause, State
from journal.xid import Xid
from tests.broker.transactions.transaction_scene import SECOND, XID, prepared
from tests.support.broker_room import Room, refused
from txbroker.broker.transactions.transactions import Transacting
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


@pytest.fixture
def said(monkeypatch):
    """What was logged so far: its level, and the word that an alarm may look for."""
    lines = []

    class Log:
        def __getattr__(self, level):
            return lambda text, **fields: lines.append((level, text.format(**fields)))

    monkeypatch.setattr(Transacting, "log", Log())
    return lambda: [(level, "DAMAGE" if "DAMAGE" in line else line) for level, line in lines]


def forget(room, xid=XID, **named):
    known = room.peer().ask(messages.AskOutcome, xid=XID)
    return room.peer().ask(messages.Forget, known.session, known.serial, xid, **named)


class TestOperators:
    def force(self, room, kind, **named):
        return room.peer().ask(kind, xid=XID, operator=True, **named)

    def roll_back(self, room):
        assert isinstance(self.force(room, messages.Rollback, by="ann", why="stuck"), messages.Done)

    def test_forcing_needs_a_name_and_a_reason(self, room, partition):
        prepared(room.peer(), partition)
        for named in ({}, {"by": "ann"}, {"why": "x"}, {"by": " ", "why": "x"}):
            refused(self.force(room, messages.Rollback, **named), "InvalidSetting")
        refused(self.force(room, messages.Rollback, by="a\0b", why="x"), "InvalidName")

    def test_a_coordinator_that_decides_otherwise_is_told_who_when_and_why_and_that_is_noted(
        self, room, partition, said
    ):
        peer = room.peer()
        prepared(peer, partition)
        room.clock.set_wall(1_800_000_000_000_000)
        room.restart()
        self.roll_back(room)
        assert self.listed(room) == [(State.ROLLED_BACK, True, None)]
        peer = room.peer("10.0.0.7:9")
        answer = peer.ask(messages.Commit, xid=XID)
        told = refused(answer, "HeuristicallyRolledBack")
        assert all(word in told for word in ("ann", "stuck", "2027-01-15T08:00:00Z"))
        assert answer.texts == {"by": "ann", "why": "stuck", "principal": "anonymous"}
        assert 0 <= answer.numbers["wall"] - 1_800_000_000_000_000 < SECOND
        [info] = self.ended(room)
        assert info.contradicted
        assert (info.told.decided, info.told.by) == (State.COMMITTED, "tester@10.0.0.7:9")
        assert info.told.by_principal == "anonymous"
        assert said()[-1] == ("warn", "DAMAGE")
        assert room.broker.describing.status()["outcomes_contradicted"] == 1

    def test_a_contradiction_is_said_once_and_again_at_every_start_until_it_is_forgotten(
        self, room, partition, said
    ):
        prepared(room.peer(), partition)
        self.roll_back(room)
        for _ in range(3):
            refused(room.peer().ask(messages.Commit, xid=XID), "HeuristicallyRolledBack")
        assert said().count(("warn", "DAMAGE")) == 1
        room.restart()
        room.broker.transacting.say_contradicted()
        assert said().count(("warn", "DAMAGE")) == 2
        assert isinstance(forget(room, by="ann", why="mended"), messages.Done)
        room.restart()
        room.broker.transacting.say_contradicted()
        assert said().count(("warn", "DAMAGE")) == 2
        assert room.broker.describing.status()["outcomes_contradicted"] == 0

    def test_many_contradictions_do_not_drown_the_log_of_a_start(self, room, partition, said):
        for serial in range(1, 32):
            name = Xid(1, b"day-%d" % serial, b"")
            prepared(room.peer(), partition, 1, name)
            room.peer().ask(messages.Rollback, xid=name, operator=True, by="ann", why="stuck")
            room.peer().ask(messages.Commit, xid=name)
        before = len(said())
        room.broker.transacting.say_contradicted()
        assert len(said()) - before == 21

    def test_another_operator_is_no_coordinator(self, room, partition):
        prepared(room.peer(), partition)
        self.roll_back(room)
        refused(self.force(room, messages.Commit, by="bob", why="not so"), "HeuristicallyRolledBack")
        assert self.listed(room) == [(State.ROLLED_BACK, True, None)]

    def test_a_coordinator_that_decides_the_same_is_told_that_it_was_forced(self, room, partition, said):
        peer = room.peer()
        prepared(peer, partition)
        assert not self.force(room, messages.Commit, by="ann", why="stuck").heuristic
        assert not self.force(room, messages.Commit, by="bob", why="again").heuristic
        assert self.listed(room) == [(State.COMMITTED, True, None)]
        assert peer.ask(messages.Commit, serial=1).heuristic
        assert self.listed(room) == [(State.COMMITTED, True, State.COMMITTED)]
        assert ("warn", "DAMAGE") not in said()
        assert room.broker.describing.status()["outcomes_contradicted"] == 0

    def test_a_rollback_against_a_forced_commit_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.force(room, messages.Commit, by="ann", why="stuck")
        refused(peer.ask(messages.Rollback, serial=1), "HeuristicallyCommitted")
        assert self.listed(room) == [(State.COMMITTED, True, State.ROLLED_BACK)]

    def test_a_rollback_like_the_forced_one_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.roll_back(room)
        assert isinstance(peer.ask(messages.Rollback, serial=1), messages.Done)
        assert self.listed(room) == [(State.ROLLED_BACK, True, State.ROLLED_BACK)]

    def test_what_a_coordinator_itself_decided_is_no_forced_outcome(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        peer.ask(messages.Rollback, xid=XID)
        refused(peer.ask(messages.Commit, xid=XID), "TransactionRolledBack")
        [info] = self.ended(room)
        assert (info.heuristic, info.told) == (False, None)
        refused(self.force(room, messages.Commit, by="ann", why="x"), "TransactionRolledBack")

    def test_nobody_is_told_of_a_forced_outcome_before_it_is_on_disk_nor_before_that_is_noted(
        self, room, partition
    ):
        operator, coordinator = room.peer(), room.peer()
        prepared(coordinator, partition)
        forced = operator.tell(messages.Rollback, xid=XID, operator=True, by="ann", why="stuck")
        decided = coordinator.tell(messages.Commit, xid=XID)
        assert (operator.answer(forced), coordinator.answer(decided)) == (None, None)
        told_lsn = room.engine.last_lsn
        room.engine.sync()
        assert room.engine.forced_lsn >= told_lsn
        refused(coordinator.answer(decided), "HeuristicallyRolledBack")

    def test_a_forced_outcome_outlives_a_restart_until_it_is_forgotten(self, room, partition):
        prepared(room.peer(), partition)
        self.roll_back(room)
        room.restart()
        peer = room.peer()
        answer = peer.ask(messages.AskOutcome, xid=XID)
        assert (answer.heuristic, answer.by, answer.why, answer.cause) == (
            True,
            "ann",
            "stuck",
            Cause.OPERATOR,
        )
        assert answer.wall > 0
        assert isinstance(forget(room, by="ann", why="seen to"), messages.Done)
        refused(peer.ask(messages.AskOutcome, session=answer.session, serial=1), "OutcomeForgotten")

    @pytest.mark.parametrize("named", [{}, {"by": "ann"}, {"why": "x"}, {"by": " ", "why": " "}])
    def test_forgetting_what_was_forced_needs_a_name_and_a_reason(self, room, partition, named):
        prepared(room.peer(), partition)
        self.roll_back(room)
        refused(forget(room, **named), "InvalidSetting")
        assert len(self.ended(room)) == 1

    def test_forgetting_what_nobody_forced_needs_neither(self, room, partition):
        prepared(room.peer(), partition)
        room.peer().ask(messages.Commit, xid=XID)
        assert isinstance(forget(room), messages.Done)

    @pytest.mark.parametrize("other", [None, SECOND])
    def test_what_has_another_xid_than_is_meant_is_not_forgotten(self, room, partition, other):
        prepared(room.peer(), partition)
        room.peer().ask(messages.Commit, xid=XID)
        assert "not the one that was meant" in refused(forget(room, other), "UnknownTransaction")
        assert len(self.ended(room)) == 1

    def test_an_undecided_one_is_not_forgotten(self, room, partition):
        prepared(room.peer(), partition)
        refused(forget(room), "TransactionConflict")

    def ended(self, room):
        states = [State.COMMITTED, State.ROLLED_BACK]
        return room.peer().ask(messages.ListTransactions, states).transactions

    def listed(self, room):
        return [(each.state, each.heuristic, each.told and each.told.decided) for each in self.ended(room)]
