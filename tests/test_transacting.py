from types import SimpleNamespace

import pytest
from crc32c import crc32c

from journal.frame import decode_run
from journal.journal_settings import JournalSettings
from journal.record import PartitionOffset
from journal.transaction import Cause, State, Totals, Xid
from journal.transaction_limits import TransactionLimits
from tests.broker_room import Room, frames, refused
from txbroker import commands
from txbroker.broker import Broker
from txbroker.settings import OrphanAction

XID = Xid(1, b"day-1", b"flights")
OTHER = Xid(1, b"day-2", b"flights")
SECOND = 1_000_000


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


def totals(*adds, offsets=0):
    run = b"".join(frames(*values) for values in adds)
    return Totals(sum(map(len, adds)), len(adds) + offsets, crc32c(run))


def add(peer, serial, partition, *values, **named):
    """Add values; None if nothing was answered, as it should be."""
    return peer.ask(commands.Add, serial, partition, data=frames(*values), **named)


def prepared(peer, partition, serial=1, xid=XID, *values):
    values = values or (b"a",)
    assert add(peer, serial, partition, *values, xid=xid) is None
    done = peer.ask(commands.Prepare, serial, xid, totals(values))
    assert isinstance(done, commands.Done), done


def values(room, partition):
    store = room.engine.catalog.stores[partition]
    return [message.value for message in decode_run(store.read(0, 1 << 20))]


def commit(peer, serial, *adds, offsets=0):
    return peer.ask(commands.Commit, serial=serial, totals=totals(*adds, offsets=offsets))


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
        room.engine.full = True
        refused(add(peer, 2, partition, b"b"), "DiskFull")
        assert isinstance(peer.ask(commands.Commit, xid=XID), commands.Committed)

    def test_limits_refuse_and_name_the_limit(self):
        limits = TransactionLimits(transactions=1, messages=2)
        room = Room(JournalSettings(low_water_bytes=0, limits=limits))
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        add(peer, 1, partition, b"a")
        refused(add(other, 1, partition, b"b"), "LimitExceeded")
        refused(add(peer, 1, partition, b"b", b"c"), "LimitExceeded")
        refused(commit(peer, 1, [b"a"]), "TransactionRolledBack")


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

    def test_what_is_neither_numbered_nor_named_is_unknown(self, room):
        for kind in (commands.Commit, commands.Rollback, commands.AskOutcome, commands.Forget):
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


class TestOperators:
    def force(self, room, kind, **named):
        return room.peer().ask(kind, xid=XID, operator=True, **named)

    def test_forcing_needs_a_name_and_a_reason(self, room, partition):
        prepared(room.peer(), partition)
        for named in ({}, {"by": "ann"}, {"why": "x"}, {"by": " ", "why": "x"}):
            refused(self.force(room, commands.Rollback, **named), "InvalidSetting")
        refused(self.force(room, commands.Rollback, by="a\0b", why="x"), "InvalidName")

    def test_a_coordinator_that_decides_otherwise_is_told_who_and_why_and_that_is_noted(
        self, room, partition
    ):
        peer = room.peer()
        prepared(peer, partition)
        assert isinstance(self.force(room, commands.Rollback, by="ann", why="stuck"), commands.Done)
        assert self.listed(room) == [(State.ROLLED_BACK, True, False)]
        said = refused(peer.ask(commands.Commit, serial=1), "TransactionRolledBack")
        assert "ann" in said
        assert "stuck" in said
        assert self.listed(room) == [(State.ROLLED_BACK, True, True)]

    def test_another_operator_is_no_coordinator(self, room, partition):
        prepared(room.peer(), partition)
        self.force(room, commands.Rollback, by="ann", why="stuck")
        refused(self.force(room, commands.Commit, by="bob", why="not so"), "TransactionRolledBack")
        assert self.listed(room) == [(State.ROLLED_BACK, True, False)]

    def test_a_coordinator_that_decides_the_same_is_told_that_it_was_forced(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        assert not self.force(room, commands.Commit, by="ann", why="stuck").heuristic
        assert not self.force(room, commands.Commit, by="bob", why="again").heuristic
        assert self.listed(room) == [(State.COMMITTED, True, False)]
        assert peer.ask(commands.Commit, serial=1).heuristic
        assert self.listed(room) == [(State.COMMITTED, True, True)]

    def test_a_rollback_against_a_forced_commit_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.force(room, commands.Commit, by="ann", why="stuck")
        refused(peer.ask(commands.Rollback, serial=1), "TransactionCommitted")
        assert self.listed(room) == [(State.COMMITTED, True, True)]

    def test_a_rollback_like_the_forced_one_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.force(room, commands.Rollback, by="ann", why="stuck")
        assert isinstance(peer.ask(commands.Rollback, serial=1), commands.Done)
        assert self.listed(room) == [(State.ROLLED_BACK, True, True)]

    def test_a_forced_outcome_outlives_a_restart_until_it_is_forgotten(self, room, partition):
        prepared(room.peer(), partition)
        self.force(room, commands.Rollback, by="ann", why="stuck")
        room.restart()
        peer = room.peer()
        answer = peer.ask(commands.AskOutcome, xid=XID)
        assert (answer.heuristic, answer.by, answer.why, answer.cause) == (
            True,
            "ann",
            "stuck",
            Cause.OPERATOR,
        )
        assert isinstance(peer.ask(commands.Forget, xid=XID), commands.Done)
        refused(peer.ask(commands.AskOutcome, session=answer.session, serial=1), "OutcomeForgotten")

    def test_an_undecided_one_is_not_forgotten(self, room, partition):
        prepared(room.peer(), partition)
        refused(room.peer().ask(commands.Forget, xid=XID), "TransactionConflict")

    def listed(self, room):
        states = [State.COMMITTED, State.ROLLED_BACK]
        found = room.peer().ask(commands.ListTransactions, states).transactions
        return [(each.state, each.heuristic, each.coordinator_told) for each in found]


class TestOrphans:
    @pytest.mark.parametrize(
        ("action", "state"),
        [
            (OrphanAction.COMMIT, State.COMMITTED),
            (OrphanAction.ROLL_BACK, State.ROLLED_BACK),
            (OrphanAction.ALERT, State.PREPARED),
        ],
    )
    def test_what_is_prepared_for_too_long_gets_what_the_policy_says(self, action, state):
        room = Room(orphan_age=SECOND, orphan_action=action)
        [partition] = room.topic()
        prepared(room.peer(), partition)
        room.clock.advance(SECOND)
        room.broker.expire_transactions(room.engine.now())
        assert room.peer().ask(commands.AskOutcome, xid=XID).state is State.PREPARED
        room.clock.advance(1)
        for _ in range(2):
            room.broker.expire_transactions(room.engine.now())
        answer = room.peer().ask(commands.AskOutcome, xid=XID)
        assert (answer.state, answer.heuristic) == (state, state is not State.PREPARED)

    def test_an_alert_is_given_once_and_forgotten_with_its_transaction(self, monkeypatch):
        room = Room(orphan_age=SECOND)
        [partition] = room.topic()
        prepared(room.peer(), partition)
        room.clock.advance(SECOND + 1)
        alerts = []
        log = SimpleNamespace(warn=lambda *_, **fields: alerts.append(fields["xid"]))
        monkeypatch.setattr(Broker, "log", log)
        for _ in range(3):
            room.broker.expire_transactions(room.engine.now())
        assert alerts == [XID]
        room.peer().ask(commands.Commit, xid=XID)
        room.broker.expire_transactions(room.engine.now())
        assert room.broker._alerted == set()

    def test_without_a_policy_a_prepared_one_stays_for_years(self, room, partition):
        prepared(room.peer(), partition)
        room.clock.advance(10**15)
        room.broker.expire_transactions(room.engine.now())
        assert room.peer().ask(commands.AskOutcome, xid=XID).state is State.PREPARED


class TestOffsets:
    def position(self, room, partition):
        [answer] = room.peer().ask(commands.FetchOffsets, "g", [partition]).offsets
        return answer

    def claim(self, room, partition, member="m"):
        [(_, generation)] = room.peer().ask(commands.ClaimPartitions, "g", member, [partition]).claims
        return generation

    def prepare(self, peer, partition, offset, generation=0, serial=1, xid=XID):
        add_offsets = (serial, "g", [PartitionOffset(partition, offset, generation)])
        assert peer.ask(commands.AddOffsets, *add_offsets) is None
        return peer.ask(commands.Prepare, serial, xid, totals(offsets=1))

    def test_offsets_move_with_the_commit_and_are_pending_from_prepare_on(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        assert isinstance(self.prepare(peer, partition, 2), commands.Done)
        held = self.position(room, partition)
        assert (held.offset, held.pending_by) == (None, f"{peer.session.number}-1 (xid {XID})")
        refused(peer.ask(commands.CommitOffsets, "g", [PartitionOffset(partition, 1)]), "OffsetPending")
        peer.ask(commands.Commit, xid=XID)
        assert self.position(room, partition) == commands.GroupOffset(partition, 2)

    def test_a_consumer_that_lost_its_partition_before_prepare_is_fenced_and_rolled_back(
        self, room, partition
    ):
        peer = room.peer()
        old = self.claim(room, partition)
        assert peer.ask(commands.AddOffsets, 1, "g", [PartitionOffset(partition, 0, old)]) is None
        self.claim(room, partition, "newer")
        said = refused(peer.ask(commands.Prepare, 1, XID, totals(offsets=1)), "GenerationFenced")
        assert "newer" in said
        outcome = peer.ask(commands.AskOutcome, serial=1)
        assert (outcome.state, outcome.cause) == (State.ROLLED_BACK, Cause.REFUSED_ADD)

    def test_a_claim_after_prepare_does_not_undo_the_promise(self, room, partition):
        peer = room.peer()
        old = self.claim(room, partition)
        assert isinstance(self.prepare(peer, partition, 0, old), commands.Done)
        new = self.claim(room, partition, "newer")
        assert isinstance(self.prepare_again(peer), commands.Done)
        assert self.position(room, partition).pending_by
        refused(
            room.peer().ask(commands.CommitOffsets, "g", [PartitionOffset(partition, 0, new)]),
            "OffsetPending",
        )
        assert isinstance(peer.ask(commands.Commit, xid=XID), commands.Committed)
        assert self.position(room, partition).offset == 0

    def prepare_again(self, peer):
        return peer.ask(commands.Prepare, 1, XID, totals(offsets=1))

    def test_a_second_transaction_for_a_held_position_is_rolled_back_at_its_end(self, room, partition):
        peer, other = room.peer(), room.peer()
        other.ask(commands.AddOffsets, 1, "g", [PartitionOffset(partition, 0)])
        self.prepare(peer, partition, 0)
        refused(commit(other, 1, offsets=1), "OffsetPending")
        assert other.ask(commands.AskOutcome, serial=1).state is State.ROLLED_BACK

    def test_offsets_and_holds_survive_a_restart(self, room, partition):
        peer = room.peer()
        peer.send(partition, b"a")
        self.prepare(peer, partition, 1)
        room.restart()
        assert self.position(room, partition).pending_by
        room.peer().ask(commands.Commit, xid=XID)
        room.restart()
        assert self.position(room, partition).offset == 1
