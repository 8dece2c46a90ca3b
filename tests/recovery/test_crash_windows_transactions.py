"""Cut the power before every operation of transactions; docs/recovery.md has the windows."""

from __future__ import annotations

import pytest

from journal.constants import KIB
from journal.errors import ContentMismatch, OffsetOutOfRange
from journal.parties import Actor
from journal.transaction_states import Cause, State, Totals
from tests.support.crash_scene import BIG, ENDS, at_every_operation, topics
from tests.support.engine_room import Room, decide, journal_path, xid_of

CARRIED = pytest.mark.parametrize("carried", [0, 1, 3], ids=["added", "some carried", "all carried"])
"""How many of three messages come with the request that decides; the others were added before."""


def begun(room, carried):
    sent = [(1, b"a"), (2, b"b"), (1, b"c")]
    return room.begin(*sent[: 3 - carried]).carry(*sent[3 - carried :])


class TestTransactions:
    @CARRIED
    def test_a_one_phase_commit_is_in_all_partitions_or_in_none(self, carried):
        def act(room, done):
            begun(room, carried).commit().sync()
            done.append("committed")

        found = set()
        for done, _, after in at_every_operation(topics, act):
            logs = (after.values(1)[1:], after.values(2))
            assert logs in (([], []), ([b"a", b"c"], [b"b"]))
            assert not done or logs[0]
            assert after.engine.transactions.live == {}
            found.add((bool(done), bool(logs[0])))
        assert found == {(False, False), (False, True), (True, True)}

    @pytest.mark.parametrize("checkpoints", [0, 1, 3])
    def test_a_recovered_transaction_commits_behind_what_was_acknowledged_since(self, checkpoints):
        room = Room()
        topics(room)
        room.begin((1, b"p1"), (2, b"p2")).prepare("p").sync()
        for _ in range(checkpoints):
            room.checkpoint()
            room.send(b"filler", number=2)
        room = room.crashed(1)
        for number in range(5):
            room.send(b"newer %d" % number)
        room.flush()
        room.send(b"newer 5")
        decide(room, "p", commit=True)
        room.send(b"newest")
        expected = [b"before", *[b"newer %d" % number for number in range(6)], b"p1", b"newest"]
        assert room.values(1) == expected
        for seed in range(4):
            after = room.crashed(seed)
            assert after.values(1) == expected
            assert after.values(2) == [*[b"filler"] * checkpoints, b"p2"]
            after.checkpoint()
            assert after.killed().values(1) == expected

    @pytest.mark.slow
    @CARRIED
    def test_every_step_of_two_phases_is_there_from_its_answer_on(self, carried):
        def act(room, done):
            two_phases = begun(room, carried).sync()
            two_phases.prepare("p").sync()
            done.append("prepared")
            room.checkpoint()
            decide(room, "p", commit=True)
            done.append("committed")
            room.engine.transactions.forget(two_phases.number)
            room.engine.sync()

        for done, _, after in at_every_operation(topics, act):
            shown = after.values(2) == [b"b"]
            assert (after.values(1)[1:] == [b"a", b"c"]) is shown
            assert shown or "committed" not in done
            if not shown and "prepared" in done:
                assert after.prepared() == {xid_of("p")}
            if after.prepared():
                assert not shown
                decide(after, "p", commit=len(done) % 2 == 0)
                assert (after.values(2) == [b"b"]) is (len(done) % 2 == 0)

    def test_a_rollback_of_a_prepared_transaction_is_there_from_its_answer_on(self):
        def prepare(room):
            topics(room)
            room.begin((1, b"a"), (2, b"b")).prepare("p").sync()

        def act(room, done):
            decide(room, "p", commit=False)
            done.append("rolled back")

        for done, _, after in at_every_operation(prepare, act):
            assert after.values(1) == [b"before"]
            number = after.engine.transactions.find(xid_of("p"))
            if done:
                assert after.engine.transactions.outcome(number).state is State.ROLLED_BACK
            assert done or after.prepared() or number not in after.engine.transactions.live

    @pytest.mark.slow
    def test_a_forced_outcome_and_its_contradiction_are_there_from_their_answers_on(self):
        """L11, L22. The broker answers each step once the engine has forced it."""

        def prepare(room):
            topics(room)
            room.begin((1, b"a")).prepare("p").sync()

        def act(room, done):
            transactions = room.engine.transactions
            number = transactions.find(xid_of("p"))
            transactions.rollback(number, Cause.OPERATOR, Actor("ann"), "stuck")
            room.engine.sync()
            done.append("forced")
            assert transactions.tell(number, State.COMMITTED, Actor("me@host:1"))
            room.engine.sync()
            done.append("told")
            room.checkpoint()
            assert not transactions.tell(number, State.COMMITTED, Actor("me@host:2"))
            transactions.forget(number, Actor("ann"), "mended")
            room.engine.sync()
            done.append("forgotten")

        seen = set()
        for done, _, after in at_every_operation(prepare, act, twice=True):
            transactions = after.engine.transactions
            [outcome] = transactions.outcomes.by_number.values() or [None]
            assert (outcome is None) or (outcome.heuristic, outcome.by, outcome.why) == (
                True,
                Actor("ann"),
                "stuck",
            )
            if "forced" in done and "told" not in done:
                assert outcome is not None
            if "told" in done and "forgotten" not in done:
                assert after.prepared() == set()
                assert outcome is None or outcome.told.by == Actor("me@host:1")
            if "forgotten" in done:
                assert (outcome, transactions.outcomes.contradicted) == (None, set())
            elif outcome is None:
                assert "told" in done or after.prepared() == {xid_of("p")}
            told = outcome is not None and outcome.contradicted
            assert transactions.outcomes.contradicted == ({outcome.number} if told else set())
            seen.add((len(done), outcome is not None, told))
        assert {
            (0, False, False),
            (0, True, False),
            (1, True, False),
            (1, True, True),
            (2, True, True),
        } <= seen

    def test_an_active_transaction_is_gone_after_any_end_and_its_late_commit_is_refused(self):
        def act(room, done):
            room.begin((1, b"a")).sync()

        for _, room, after in at_every_operation(topics, act):
            assert after.engine.transactions.live == {}
            assert after.values(1) == [b"before"]
            for number in room.engine.transactions.live:
                assert after.engine.transactions.outcome(number).state is State.ROLLED_BACK

    @pytest.mark.parametrize("phases", [1, 2])
    def test_a_prepare_or_commit_of_less_than_was_sent_is_refused_and_rolled_back(self, phases):
        room = Room()
        topics(room)
        begun = room.begin((1, b"a"), (2, b"b"))
        sent = begun.totals
        begun.totals = Totals(sent.messages + 1, sent.requests + 1, sent.checksum)
        with pytest.raises(ContentMismatch):
            begun.commit() if phases == 1 else begun.prepare("p")
        room.engine.sync()
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            assert (after.values(1), after.values(2)) == ([b"before"], [])
            assert after.engine.transactions.outcome(begun.number).state is State.ROLLED_BACK

    @pytest.mark.slow
    def test_a_commit_applied_in_slices_through_a_full_pool_is_whole_or_absent(self):
        huge = b"v" * (150 * KIB)

        def prepare(room):
            topics(room)
            room.begin(*[(1 + n % 2, b"%d" % n + huge) for n in range(9)]).prepare("p").sync()
            room.checkpoint()
            room.send(b"middle")
            room.checkpoint()

        def act(room, done):
            decide(room, "p", commit=True)
            done.append("committed")
            room.checkpoint()

        for done, _, after in at_every_operation(prepare, act):
            counts = (len(after.values(1)) - 2, len(after.values(2)))
            assert counts in ((0, 0), (5, 4))
            assert counts[1] or (not done and after.prepared() == {xid_of("p")})

    def test_a_prepare_survives_when_another_ended_and_a_checkpoint_was_taken_since_it_began(self):
        room = Room()
        topics(room)
        first = room.begin((1, b"a"))
        second = room.begin((2, b"x"))
        first.commit().sync()
        room.checkpoint()
        second.prepare("x").sync()
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            assert after.prepared() == {xid_of("x")}
            decide(after, "x", commit=True)
            assert (after.values(1), after.values(2)) == ([b"before", b"a"], [b"x"])

    def test_a_checkpoint_between_a_prepare_and_its_force_does_not_forget_it(self):
        room = Room()
        topics(room)
        begun = room.begin((1, b"a")).sync()
        begun.prepare("p")
        room.engine.housekeeping.request_checkpoint()
        room.engine.housekeeping.run_inline()
        assert room.checkpoints() == [], "a checkpoint of what is not forced"
        room.engine.sync()
        room.engine.housekeeping.run_inline()
        assert len(room.checkpoints()) == 1
        assert room.crashed(0, survive=0).prepared() == {xid_of("p")}

    def test_the_frames_of_a_long_prepared_transaction_outlive_the_journal_that_held_them(self):
        room = Room()
        topics(room)
        oldest = room.journals()[0]
        room.begin((1, b"a" + BIG), (2, b"b")).prepare("p").sync()
        for _ in range(4):
            room.send(BIG)
            room.checkpoint()
        assert not room.inner.exists(journal_path(oldest))
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            decide(after, "p", commit=True)
            assert (after.values(1)[-1], after.values(2)) == (b"a" + BIG, [b"b"])

    def test_retention_and_recovery_after_it_leave_prepared_transactions_alone(self):
        room = Room()
        room.topic(segment_bytes=64 * KIB, retention_bytes=0)
        room.begin((1, b"a"), (2, b"b")).prepare("p").sync()
        for _ in range(6):
            room.send(BIG)
        room.flush()
        assert room.engine.housekeeping.retain(room.engine.now()) == 1
        room.engine.sync()
        start = room.store().start_offset
        assert start > 0
        for _ in range(3):
            room.checkpoint()
            room.engine.mark()
            room.engine.sync()
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            assert after.store().start_offset == start
            with pytest.raises(OffsetOutOfRange):
                after.store().read(start - 1, 1)
            decide(after, "p", commit=True)
            assert (after.values(1)[-1], after.values(2)) == (b"a", [b"b"])
