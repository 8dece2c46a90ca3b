import pytest
from crc32c import crc32c

from journal.frame import decode_run
from journal.journal_settings import JournalSettings
from journal.record import PartitionOffset
from journal.transaction import Cause, State, Totals, Xid
from journal.transaction_limits import TransactionLimits
from tests.broker_room import Room, frames, refused
from txbroker import commands
from txbroker.transacting import Transacting

XID = Xid(1, b"day-1", b"flights")
OTHER = Xid(1, b"day-2", b"flights")
SECOND = 1_000_000


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

    def roll_back(self, room):
        assert isinstance(self.force(room, commands.Rollback, by="ann", why="stuck"), commands.Done)

    def test_forcing_needs_a_name_and_a_reason(self, room, partition):
        prepared(room.peer(), partition)
        for named in ({}, {"by": "ann"}, {"why": "x"}, {"by": " ", "why": "x"}):
            refused(self.force(room, commands.Rollback, **named), "InvalidSetting")
        refused(self.force(room, commands.Rollback, by="a\0b", why="x"), "InvalidName")

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
        answer = peer.ask(commands.Commit, xid=XID)
        told = refused(answer, "HeuristicallyRolledBack")
        assert all(word in told for word in ("ann", "stuck", "2027-01-15T08:00:00Z"))
        assert answer.texts == {"by": "ann", "why": "stuck"}
        assert 0 <= answer.numbers["wall"] - 1_800_000_000_000_000 < SECOND
        [info] = self.ended(room)
        assert info.contradicted
        assert (info.told.decided, info.told.by) == (State.COMMITTED, "tester@10.0.0.7:9")
        assert said()[-1] == ("warn", "DAMAGE")
        assert room.broker._status()["outcomes_contradicted"] == 1

    def test_a_contradiction_is_said_once_and_again_at_every_start_until_it_is_forgotten(
        self, room, partition, said
    ):
        prepared(room.peer(), partition)
        self.roll_back(room)
        for _ in range(3):
            refused(room.peer().ask(commands.Commit, xid=XID), "HeuristicallyRolledBack")
        assert said().count(("warn", "DAMAGE")) == 1
        room.restart()
        room.broker.transacting.say_contradicted()
        assert said().count(("warn", "DAMAGE")) == 2
        assert isinstance(room.peer().ask(commands.Forget, xid=XID, by="ann", why="mended"), commands.Done)
        room.restart()
        room.broker.transacting.say_contradicted()
        assert said().count(("warn", "DAMAGE")) == 2
        assert room.broker._status()["outcomes_contradicted"] == 0

    def test_many_contradictions_do_not_drown_the_log_of_a_start(self, room, partition, said):
        for serial in range(1, 32):
            name = Xid(1, b"day-%d" % serial, b"")
            prepared(room.peer(), partition, 1, name)
            room.peer().ask(commands.Rollback, xid=name, operator=True, by="ann", why="stuck")
            room.peer().ask(commands.Commit, xid=name)
        before = len(said())
        room.broker.transacting.say_contradicted()
        assert len(said()) - before == 21

    def test_another_operator_is_no_coordinator(self, room, partition):
        prepared(room.peer(), partition)
        self.roll_back(room)
        refused(self.force(room, commands.Commit, by="bob", why="not so"), "HeuristicallyRolledBack")
        assert self.listed(room) == [(State.ROLLED_BACK, True, None)]

    def test_a_coordinator_that_decides_the_same_is_told_that_it_was_forced(self, room, partition, said):
        peer = room.peer()
        prepared(peer, partition)
        assert not self.force(room, commands.Commit, by="ann", why="stuck").heuristic
        assert not self.force(room, commands.Commit, by="bob", why="again").heuristic
        assert self.listed(room) == [(State.COMMITTED, True, None)]
        assert peer.ask(commands.Commit, serial=1).heuristic
        assert self.listed(room) == [(State.COMMITTED, True, State.COMMITTED)]
        assert ("warn", "DAMAGE") not in said()
        assert room.broker._status()["outcomes_contradicted"] == 0

    def test_a_rollback_against_a_forced_commit_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.force(room, commands.Commit, by="ann", why="stuck")
        refused(peer.ask(commands.Rollback, serial=1), "HeuristicallyCommitted")
        assert self.listed(room) == [(State.COMMITTED, True, State.ROLLED_BACK)]

    def test_a_rollback_like_the_forced_one_is_told(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        self.roll_back(room)
        assert isinstance(peer.ask(commands.Rollback, serial=1), commands.Done)
        assert self.listed(room) == [(State.ROLLED_BACK, True, State.ROLLED_BACK)]

    def test_what_a_coordinator_itself_decided_is_no_forced_outcome(self, room, partition):
        peer = room.peer()
        prepared(peer, partition)
        peer.ask(commands.Rollback, xid=XID)
        refused(peer.ask(commands.Commit, xid=XID), "TransactionRolledBack")
        [info] = self.ended(room)
        assert (info.heuristic, info.told) == (False, None)
        refused(self.force(room, commands.Commit, by="ann", why="x"), "TransactionRolledBack")

    def test_nobody_is_told_of_a_forced_outcome_before_it_is_on_disk_nor_before_that_is_noted(
        self, room, partition
    ):
        operator, coordinator = room.peer(), room.peer()
        prepared(coordinator, partition)
        forced = operator.tell(commands.Rollback, xid=XID, operator=True, by="ann", why="stuck")
        decided = coordinator.tell(commands.Commit, xid=XID)
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
        answer = peer.ask(commands.AskOutcome, xid=XID)
        assert (answer.heuristic, answer.by, answer.why, answer.cause) == (
            True,
            "ann",
            "stuck",
            Cause.OPERATOR,
        )
        assert answer.wall > 0
        assert isinstance(peer.ask(commands.Forget, xid=XID, by="ann", why="seen to"), commands.Done)
        refused(peer.ask(commands.AskOutcome, session=answer.session, serial=1), "OutcomeForgotten")

    @pytest.mark.parametrize("named", [{}, {"by": "ann"}, {"why": "x"}, {"by": " ", "why": " "}])
    def test_forgetting_what_was_forced_needs_a_name_and_a_reason(self, room, partition, named):
        prepared(room.peer(), partition)
        self.roll_back(room)
        refused(room.peer().ask(commands.Forget, xid=XID, **named), "InvalidSetting")
        assert len(self.ended(room)) == 1

    def test_forgetting_what_nobody_forced_needs_neither(self, room, partition):
        prepared(room.peer(), partition)
        room.peer().ask(commands.Commit, xid=XID)
        assert isinstance(room.peer().ask(commands.Forget, xid=XID), commands.Done)

    def test_an_undecided_one_is_not_forgotten(self, room, partition):
        prepared(room.peer(), partition)
        refused(room.peer().ask(commands.Forget, xid=XID), "TransactionConflict")

    def ended(self, room):
        states = [State.COMMITTED, State.ROLLED_BACK]
        return room.peer().ask(commands.ListTransactions, states).transactions

    def listed(self, room):
        return [(each.state, each.heuristic, each.told and each.told.decided) for each in self.ended(room)]


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
