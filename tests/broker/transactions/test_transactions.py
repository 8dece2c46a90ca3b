"""Test which session may do what to a transaction, over the wire: adds, serials, owners, and answers to repetitions."""

import msgspec
import pytest

from journal.records.group_entries import PartitionOffset
from journal.transaction_states import Cause, State, Totals
from journal.transactions.limits import TransactionLimits
from tests.broker.transactions.transaction_scene import OTHER, XID, add, commit, prepared, totals, values
from tests.support.broker_room import Room, frames, refused
from tests.support.builders import small_files
from txbroker.wire import messages as commands


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


class TestOnePhase:
    def test_all_partitions_show_a_commit_at_once_and_nothing_before(self, room):
        one, two = room.topic(partitions=2)
        peer = room.peer()
        assert add(peer, 1, one, b"a") is None
        assert add(peer, 1, two, b"b", b"c") is None
        assert values(room, one) == values(room, two) == []
        answer = commit(peer, 1, [b"a"], [b"b", b"c"])
        assert [(p.partition, p.base_offset, p.count) for p in answer.placements] == [
            (one, 0, 1),
            (two, 0, 2),
        ]
        assert not answer.heuristic
        assert (values(room, one), values(room, two)) == ([b"a"], [b"b", b"c"])

    def test_a_repeated_commit_is_answered_as_the_first_time(self, room, partition):
        peer = room.peer()
        add(peer, 1, partition, b"a")
        first = commit(peer, 1, [b"a"])
        assert commit(peer, 1, [b"a"]).placements == first.placements
        assert values(room, partition) == [b"a"]

    def test_what_did_not_arrive_is_noticed_and_rolled_back(self, room, partition):
        peer = room.peer()
        add(peer, 1, partition, b"a")
        refused(commit(peer, 1, [b"a"], [b"b"]), "ContentMismatch")
        refused(commit(peer, 1, [b"a"]), "TransactionRolledBack")
        assert values(room, partition) == []

    def test_a_commit_after_a_lost_add_of_everything_is_noticed_too(self, room, partition):
        refused(commit(room.peer(), 1, [b"a"]), "ContentMismatch")

    def test_a_rollback_leaves_nothing_and_repeats(self, room, partition):
        peer = room.peer()
        add(peer, 1, partition, b"a")
        for _ in range(2):
            assert isinstance(peer.ask(commands.Rollback, serial=1), commands.Done)
        refused(commit(peer, 1, [b"a"]), "TransactionRolledBack")

    def test_a_committed_one_cannot_be_rolled_back(self, room, partition):
        peer = room.peer()
        add(peer, 1, partition, b"a")
        commit(peer, 1, [b"a"])
        refused(peer.ask(commands.Rollback, serial=1), "TransactionCommitted")

    def test_a_late_commit_does_not_hit_the_next_transaction(self, room, partition):
        peer = room.peer()
        add(peer, 1, partition, b"a")
        peer.ask(commands.Rollback, serial=1)
        add(peer, 2, partition, b"b")
        refused(commit(peer, 1, [b"a"]), "TransactionRolledBack")
        assert peer.ask(commands.AskOutcome, serial=2).state is State.ACTIVE


class TestRefusedAdds:
    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (lambda peer, p: peer.ask(commands.Add, 1, p, data=b"nonsense"), "InvalidFrame"),
            (lambda peer, p: add(peer, 1, 99, b"x"), "UnknownPartition"),
            (lambda peer, p: add(peer, 1, p, b"x" * 3000), "MessageTooLarge"),
            (
                lambda peer, p: peer.ask(commands.AddOffsets, 1, "g", [PartitionOffset(p, 7)]),
                "OffsetOutOfRange",
            ),
            (lambda peer, p: peer.ask(commands.AddOffsets, 1, "g", []), "InvalidSetting"),
            (lambda peer, p: peer.ask(commands.AddOffsets, 1, "", [PartitionOffset(p, 0)]), "InvalidName"),
            (
                lambda peer, p: peer.ask(commands.AddOffsets, 1, "g", [PartitionOffset(99, 0)]),
                "UnknownPartition",
            ),
            (
                lambda peer, p: peer.ask(commands.AddOffsets, 1, "g", [PartitionOffset(p, 0, 3)]),
                "GenerationFenced",
            ),
        ],
    )
    @pytest.mark.parametrize("first", [True, False])
    def test_a_refused_add_leaves_rolling_back_only(self, bad, error, first):
        room = Room(max_frame=2000)
        [partition] = room.topic()
        peer = room.peer()
        if not first:
            add(peer, 1, partition, b"a")
        refused(bad(peer, partition), error)
        refused(add(peer, 1, partition, b"b"), "TransactionConflict")
        answer = commit(peer, 1, [b"a"]) if not first else commit(peer, 1, [b"x"])
        assert answer.error in ("TransactionRolledBack", "ContentMismatch")
        assert peer.ask(commands.AskOutcome, serial=1).state is State.ROLLED_BACK
        assert room.engine.transactions.live == {}
        add(peer, 2, partition, b"c")
        assert isinstance(commit(peer, 2, [b"c"]), commands.Committed)

    def test_endless_refused_beginnings_take_no_memory(self, room, partition):
        peer = room.peer()
        for serial in range(1, 50):
            refused(add(peer, serial, 99, b"x"), "UnknownPartition")
        assert room.engine.transactions.live == {}

    def test_a_full_disk_refuses_adds_and_lets_transactions_end(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        room.engine.full_at = -1
        refused(add(peer, 2, partition, b"b"), "DiskFull")
        assert isinstance(peer.ask(commands.Commit, xid=XID), commands.Committed)

    def test_limits_refuse_and_name_the_limit(self):
        limits = TransactionLimits(transactions=1, messages=2)
        room = Room(small_files(limits=limits))
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        add(peer, 1, partition, b"a")
        refused(add(other, 1, partition, b"b"), "LimitExceeded")
        refused(add(peer, 1, partition, b"b", b"c"), "TransactionTooLarge")
        refused(commit(peer, 1, [b"a"]), "TransactionRolledBack")

    @pytest.mark.parametrize("adds", [[[b"a" * 90]], [[b"a" * 50], [b"b" * 40]]], ids=["one add", "two"])
    def test_of_just_its_limit_of_bytes_it_is_taken_and_of_one_more_nothing_is_left(self, adds):
        limit = sum(len(frames(*values)) for values in adds)
        room = Room(small_files(limits=TransactionLimits(bytes=limit)))
        [partition] = room.topic()
        peer, transactions = room.peer(), room.engine.transactions
        for each in adds:
            assert add(peer, 1, partition, *each) is None
        assert isinstance(commit(peer, 1, *adds), commands.Committed)
        *first, [last] = adds
        for each in first:
            assert add(peer, 2, partition, *each) is None
        said = refused(add(peer, 2, partition, last + b"!"), "TransactionTooLarge")
        assert said.startswith(f"{limit + 1} bytes in one transaction, the limit is {limit}; nothing of this")
        refused(
            commit(peer, 2, *first, [last + b"!"]), "TransactionRolledBack" if first else "ContentMismatch"
        )
        assert peer.ask(commands.AskOutcome, serial=2).state is State.ROLLED_BACK
        assert (transactions.live, transactions.table.active, transactions.staging.held_bytes) == ({}, {}, 0)
        assert values(room, partition) == [value for each in adds for value in each]
        room.restart()
        assert room.engine.transactions.live == {}
        assert values(room, partition) == [value for each in adds for value in each]


class TestSerials:
    @pytest.mark.parametrize("serial", [0, -1, 1 << 63])
    def test_serials_count_from_one(self, room, partition, serial):
        refused(add(room.peer(), serial, partition, b"a"), "TransactionConflict")

    def test_a_serial_that_was_passed_over_cannot_begin(self, room, partition):
        peer = room.peer()
        add(peer, 5, partition, b"a")
        refused(add(peer, 4, partition, b"a"), "TransactionConflict")

    def test_an_ended_serial_cannot_begin_again(self, room, partition):
        peer = room.peer()
        peer.ask(commands.Rollback, serial=1)
        refused(add(peer, 1, partition, b"a"), "TransactionConflict")
        assert values(room, partition) == []

    def test_an_empty_transaction_that_was_called_rolled_back_cannot_be_prepared_or_committed_later(
        self, room
    ):
        peer, asking = room.peer(), room.peer()
        empty = Totals(0, 0, 0)
        refused(peer.ask(commands.Commit, serial=2), "TransactionRolledBack")
        assert isinstance(peer.ask(commands.Rollback, serial=3), commands.Done)
        for serial in (1, 2, 3):
            refused(peer.ask(commands.Prepare, serial, XID, empty), "TransactionRolledBack")
            refused(peer.ask(commands.Commit, serial=serial, totals=empty), "TransactionRolledBack")
            told = asking.ask(commands.AskOutcome, session=peer.session.number, serial=serial)
            assert told.state is State.ROLLED_BACK
        assert isinstance(peer.ask(commands.Commit, serial=4, totals=empty), commands.Committed)
        assert isinstance(peer.ask(commands.Commit, serial=4, totals=empty), commands.Committed)

    @pytest.mark.parametrize("seen", [-1, 1, 2])
    def test_outcomes_cannot_be_seen_before_they_are(self, room, partition, seen):
        refused(add(room.peer(), 1, partition, b"a", seen=seen), "TransactionConflict")

    def test_an_outcome_is_never_told_while_it_may_still_begin(self, room, partition):
        peer, asking = room.peer(), room.peer()
        for session in (peer.session.number, asking.session.number + 1, 1 << 62):
            for kind in (commands.AskOutcome, commands.Rollback, commands.Commit):
                refused(asking.ask(kind, session=session, serial=1), "UnknownTransaction")
        add(peer, 1, partition, b"a")
        assert asking.ask(commands.AskOutcome, session=peer.session.number, serial=1).state is State.ACTIVE
        peer.leave()
        assert (
            asking.ask(commands.AskOutcome, session=peer.session.number, serial=2).state is State.ROLLED_BACK
        )

    @pytest.mark.parametrize("sent", [Totals(0, 0, 0), totals((b"a",)), None])
    @pytest.mark.parametrize("how", ["restart", "disconnect", "passed"])
    def test_an_outcome_that_was_told_is_not_changed_by_a_strangers_commit(self, room, partition, how, sent):
        peer = room.peer()
        add(peer, 2, partition, b"a")
        number, serial = peer.session.number, 1 if how == "passed" else 2
        if how == "restart":
            room.restart()
        elif how == "disconnect":
            peer.leave()
            room.engine.sync()
        stranger = room.peer()
        told = stranger.ask(commands.AskOutcome, number, serial)
        assert told.state is State.ROLLED_BACK
        late = stranger.ask(commands.Commit, session=number, serial=serial, totals=sent)
        refused(late, "TransactionRolledBack")
        again = stranger.ask(commands.AskOutcome, number, serial)
        assert msgspec.structs.replace(again, correlation=told.correlation) == told
        assert values(room, partition) == []

    def test_what_is_neither_numbered_nor_named_is_unknown(self, room):
        for kind in (commands.Commit, commands.Rollback, commands.AskOutcome):
            refused(room.peer().ask(kind), "UnknownTransaction")
            refused(room.peer().ask(kind, xid=XID), "UnknownTransaction")

    def test_number_and_xid_must_agree(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        prepared(peer, partition, 2, OTHER)
        refused(peer.ask(commands.Commit, serial=2, xid=XID), "TransactionConflict")
        assert isinstance(peer.ask(commands.Commit, serial=2, xid=OTHER), commands.Committed)


class TestOwners:
    def test_nobody_else_touches_an_active_transaction(self, room, partition):
        peer, other = room.peer(), room.peer()
        add(peer, 1, partition, b"a")
        session = peer.session.number
        for named in ({}, {"operator": True, "by": "ann", "why": "to see"}):
            for kind in (commands.Commit, commands.Rollback):
                refused(other.ask(kind, session=session, serial=1, **named), "TransactionConflict")
        refused(
            peer.ask(commands.Rollback, serial=1, operator=True, by="ann", why="x"), "TransactionConflict"
        )
        assert isinstance(commit(peer, 1, [b"a"]), commands.Committed)

    def test_a_lost_connection_rolls_back_what_is_active_and_keeps_what_is_prepared(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        add(peer, 2, partition, b"b")
        peer.leave()
        other = room.peer()
        assert other.ask(commands.AskOutcome, session=peer.session.number, serial=2).cause is Cause.DISCONNECT
        assert isinstance(other.ask(commands.Commit, xid=XID), commands.Committed)
        assert values(room, partition) == [b"a"]

    def test_a_prepared_one_is_finished_from_another_session_after_a_restart(self, room, partition):
        prepared(room.peer(), partition)
        room.restart()
        peer = room.peer()
        listed = peer.ask(commands.ListTransactions).transactions
        assert [(each.xid, each.state, each.topics) for each in listed] == [(XID, State.PREPARED, ["orders"])]
        assert isinstance(peer.ask(commands.Commit, xid=XID), commands.Committed)
        assert isinstance(room.peer().ask(commands.Commit, xid=XID), commands.Committed)
        assert values(room, partition) == [b"a"]

    def test_ending_anothers_transaction_says_nothing_of_what_its_client_has_seen(self, room, partition):
        peer, other = room.peer(), room.peer()
        commit_one = add(peer, 1, partition, b"one") or commit(peer, 1, [b"one"])
        assert isinstance(commit_one, commands.Committed)
        prepared(peer, partition, 2)
        assert isinstance(other.ask(commands.Commit, xid=XID, seen=50), commands.Committed)
        assert peer.ask(commands.AskOutcome, serial=1).state is State.COMMITTED

    def test_prepare_repeats_and_another_xid_does_not(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        assert isinstance(peer.ask(commands.Prepare, 1, XID, totals([b"a"])), commands.Done)
        refused(peer.ask(commands.Prepare, 1, OTHER, totals([b"a"])), "TransactionConflict")

    def test_an_xid_that_lives_is_refused(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        refused(add(peer, 2, partition, b"b", xid=XID), "TransactionConflict")

    def test_the_outcome_says_who_decided_from_elsewhere(self, room, partition):
        prepared(room.peer(), partition)
        room.peer("10.0.0.9:1").ask(commands.Rollback, xid=XID)
        answer = room.peer().ask(commands.AskOutcome, xid=XID)
        assert (answer.state, answer.by) == (State.ROLLED_BACK, "tester@10.0.0.9:1")
