"""The power goes before every single operation of every step; docs/recovery.md lists the windows.

A scene is prepared, then acted with a cut before its first, second, third ... state-changing operation, and after
the last. Of what is then unforced nothing, everything and several random parts survive.
"""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from journal.constants import KIB, MIB
from journal.errors import ContentMismatch, OffsetOutOfRange, UnknownTopic
from journal.jobs import StageFrames
from journal.record import LogStartMoved, TopicDeleted
from journal.testing import MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction import Cause, State, Totals
from tests.engine_room import SMALL, Room, checkpoint_path, contents, decide, journal_path, xid_of

BIG = b"v" * (40 * KIB)
ENDS = [(0, 0.0), (1, 1.0), *((seed, None) for seed in range(2, 8))]
"""(seed, survival): nothing, everything, and parts of what is unforced."""


def at_every_operation(prepare, act, twice=False):
    """Yield (what was acknowledged, the room, a start after the cut), for every cut and end."""
    for nth in range(1, 400):
        room = Room()
        prepare(room)
        done: list[str] = []
        room.plan.on_operation = cut_power_at(nth)
        try:
            act(room, done)
        except PowerCut:
            cut = True
        else:
            cut = False
        room.plan.on_operation = None
        for seed, survive in ENDS:
            after = room.crashed(seed, survive)
            yield done, room, after.crashed(seed, 0.0) if twice else after
        yield done, room, room.killed()
        if not cut:
            assert nth > 2, "the scene changes nothing"
            return
    raise AssertionError("the scene does not end")


def topics(room):
    room.topic()
    room.send(b"before")


def test_a_send_is_there_once_or_not_at_all_and_surely_if_it_was_answered():
    def act(room, done):
        room.send(b"one", b"two")
        done.append("one")
        room.send(BIG)
        done.append("two")

    found = set()
    for done, _, after in at_every_operation(topics, act, twice=True):
        values = after.values()
        assert values in ([b"before", b"one", b"two", BIG][:n] for n in (1, 3, 4))
        assert len(values) >= (1, 3, 4)[len(done)]
        found.add((len(done), len(values)))
        assert after.send(b"next") == len(values)
    assert {(0, 1), (0, 3), (1, 3), (1, 4), (2, 4)} <= found


def test_a_forced_send_that_was_not_answered_is_there_after_all():
    room = Room()
    topics(room)
    room.accept(b"one")
    room.engine.write(room.engine.take())
    assert room.values() == [b"before"]
    assert room.crashed(0, survive=0).values() == [b"before", b"one"]


def test_of_a_torn_group_a_prefix_of_its_requests_survives():
    lengths = set()
    for seed in range(150):
        room = Room()
        topics(room)
        for number in range(6):
            room.accept(b"%d " % number + b"x" * 3000, number=1 + number % 2)
        room.engine.journal.write(room.engine.take())
        after = room.crashed(seed)
        found = after.values(1)[1:] + after.values(2)
        assert sorted(int(value.split()[0]) for value in found) == list(range(len(found)))
        assert after.crashed(seed, 0.0).values(1) == after.values(1)
        lengths.add(len(found))
    assert {0, 6} < lengths, "no group was torn in the middle"


def test_a_send_is_never_torn_between_its_messages():
    sizes = set()
    for seed in range(80):
        room = Room()
        topics(room)
        room.accept(*[b"y" * 3000] * 8)
        room.engine.journal.write(room.engine.take())
        sizes.add(len(room.crashed(seed).values()))
    assert sizes == {1, 9}


def test_a_journal_file_may_be_cut_at_any_moment_of_its_rolling():
    def act(room, done):
        room.send(BIG)
        done.append("rolls")
        room.send(BIG)
        done.append("rolls again, without a spare")

    def prepare(room):
        topics(room)
        room.send(BIG)
        assert room.engine.journal.spare_exists() is False
        room.engine.housekeeping.run_inline()
        assert room.engine.journal.spare_exists()

    journals = set()
    for done, room, after in at_every_operation(prepare, act):
        assert after.values() in ([b"before"] + [BIG] * n for n in range(1 + len(done), 4))
        journals.add(len(room.journals()))
    assert journals == {1, 2, 3}


def test_a_recycled_file_with_old_groups_at_the_same_positions_gives_only_new_ones():
    def prepare(room):
        topics(room)
        room.engine.housekeeping._filling = True  # no spare is filled, so that a dead file becomes one
        for _ in range(12):
            room.send(b"old")
            room.send(BIG)
            room.checkpoint()
            if any(name.endswith(".recycled") for name in room.inner.list_directory("journal")):
                room.engine.journal.fill_spare()
                room.accepted = room.values()
                return

    def recycled(room):
        if not room.inner.exists("journal/spare.next"):
            return False
        file = room.inner.open("journal/spare.next")
        return b"TXBG" in file.read(8192, 4096)

    def act(room, done):
        assert recycled(room)
        room.send(BIG)
        room.send(BIG)
        assert not recycled(room), "the recycled file is not in use"
        for _ in range(3):
            room.send(b"new")
            done.append("sent")

    for done, room, after in at_every_operation(prepare, act):
        shown, found = room.store().high_watermark, after.values()
        assert len(found) - shown in (0, 1)
        assert found == ([*room.accepted, BIG, BIG, b"new", b"new", b"new"])[: len(found)]
        assert found.count(b"new") >= len(done)


def checkpoint_scene(room):
    """Everything that a checkpoint has to do with: dead journal files, segments, staged files, a deleted topic."""
    room.topic(segment_bytes=64 * KIB)
    room.topic("gone", 1)
    room.send(b"g", number=3)
    room.begin((1, b"old"), (2, b"old")).prepare("old").sync()
    room.begin((1, b"active")).sync()
    for number in range(4):
        room.send(b"%d" % number + BIG)
        room.checkpoint()
    room.engine.accept(TopicDeleted("gone", room.engine.now()))
    room.engine.accept(LogStartMoved(1, 2, room.engine.now()))
    room.begin((2, b"ended")).prepare("ended").sync()
    room.checkpoint()
    room.send(b"4" + BIG)
    room.checkpoint()
    decide(room, "ended", commit=True)
    room.send(b"5" + BIG)


def check_checkpoint_scene(after):
    assert after.store().start_offset == 2
    assert [value[:1] for value in after.values(1)] == [b"2", b"3", b"4", b"5"]
    assert after.values(2) == [b"ended"]
    with pytest.raises(UnknownTopic):
        after.engine.catalog.topic("gone")
    assert after.prepared() == {xid_of("old")}
    assert after.engine.transactions.find(xid_of("ended"))
    decide(after, "old", commit=True)
    assert (after.values(1)[-1], after.values(2)[-1]) == (b"old", b"old")
    assert after.engine.catalog.next_partition == 4


def test_a_checkpoint_may_be_cut_at_any_moment_of_its_steps_and_of_the_clean_up():
    def act(room, done):
        for _ in range(3):
            room.checkpoint()
            room.engine.mark()

    counts = set()
    for _, room, after in at_every_operation(checkpoint_scene, act):
        counts.add(len(room.checkpoints()))
        check_checkpoint_scene(after)
    assert counts == {2, 3}


def test_after_checkpoints_nothing_is_left_of_what_they_do_not_need():
    room = Room()
    checkpoint_scene(room)
    for _ in range(4):
        room.send(b"x")
        room.checkpoint()
    left = contents(room.inner)
    assert len([path for path in left if "gone" in path]) == 0
    assert len(room.checkpoints()) == 2
    assert len(room.journals()) <= 2
    staged = [path for path in left if path.startswith("staged/")]
    assert staged == [f"staged/{1 << 32 | 7}-{serial}.staged" for serial in (1, 2)], "of what is undecided"
    assert not [path for path in left if path.startswith("partitions/t-0.1/0") and "00000.log" in path]


def test_a_staged_file_that_no_checkpoint_got_to_refer_to_is_not_left_behind():
    room = Room()
    room.topic()
    held = room.begin((1, b"held")).prepare("held").sync()
    room.checkpoint()
    room.send(b"x")
    room.engine.housekeeping.request_checkpoint()
    [stage] = [job for job in room.engine.jobs(room.engine.now()) if isinstance(job, StageFrames)]
    stage.run()
    after = room.crashed(1, survive=1)
    number = held.number
    path = f"staged/{number.session}-{number.serial}.staged"
    for again in range(2):
        assert after.inner.exists(path) == bool(again), "and made anew once it is needed"
        after.checkpoint()
        after.send(b"y")
        after.checkpoint()
    decide(after, "held", commit=True)
    assert after.values() == [b"x", b"y", b"y", b"held"]
    for _ in range(3):
        after.send(b"z")
        after.checkpoint()
    assert not [path for path in contents(after.inner) if path.startswith("staged/")]


def test_when_the_newest_checkpoint_is_damaged_the_older_one_and_its_journal_still_have_everything():
    for extra in range(4):
        room = Room()
        checkpoint_scene(room)
        for _ in range(extra):
            room.checkpoint()
            room.engine.mark()
        room.engine.sync()
        inner = room.inner.crash_clone(extra)
        newest = checkpoint_path(room.checkpoints()[-1])
        inner.open(newest).write_some(100, [b"damaged"])
        after = Room(inner)
        assert any("is damaged" in note for note in after.engine.report.notes)
        check_checkpoint_scene(after)
        after.checkpoint()
        assert after.crashed(extra).values(2)[-1] == b"old"


@pytest.mark.slow
def test_a_start_may_be_cut_at_any_operation_and_so_may_the_start_after_it():
    room = Room()
    checkpoint_scene(room)
    room.accept(b"unforced")
    room.engine.journal.write(room.engine.take())
    for first in range(1, 40):
        inner = room.inner.kill_clone()
        try:
            Room(inner, cut_at=first)
        except PowerCut:
            pass
        else:
            break
        for seed in range(3):
            torn = inner.crash_clone(seed)
            for second in range(1, 40):
                again = torn.kill_clone()
                try:
                    Room(again, cut_at=second)
                except PowerCut:
                    check_unforced(Room(again.crash_clone(seed)))
                else:
                    break
    assert first > 8


def check_unforced(after):
    if after.values(1)[-1] == b"unforced":
        assert [value[:1] for value in after.values(1)] == [b"2", b"3", b"4", b"5", b"u"]
        decide(after, "old", commit=True)
        assert after.values(2)[-1] == b"old"
    else:
        check_checkpoint_scene(after)


def overflowing_scene():
    """A start finds more above the checkpoint than the pool holds: old partitions, new ones, and a large commit.

    The broker itself had a larger one, so no file of a new one is there. One of each kind gets nothing more after the
    start has written all of it.
    """
    room = Room(settings=replace(SMALL, pool_bytes=8 * MIB))
    room.topic(partitions=3)
    for number in (1, 2, 3):
        room.send(b"old", number=number)
    room.checkpoint()
    room.topic("new", 4)
    for turn in range(5):
        for number in (2, 6):
            room.send(b"%d" % turn + BIG, number=number)
    for turn in range(5):
        for number in (1, 3, 4, 5, 7):
            room.send(b"%d" % turn + BIG, number=number)
    room.begin(*[(number, b"!" + BIG) for number in (1, 7)] * 3).commit().sync()
    return room, {number: room.values(number) for number in range(1, 8)}


def check_logs(after, logs):
    assert {number: after.values(number) for number in after.engine.catalog.stores} == logs


@pytest.mark.slow
def test_a_start_that_writes_logs_may_be_cut_at_any_operation():
    room, logs = overflowing_scene()
    for nth in range(1, 400):
        inner = room.inner.kill_clone()
        with contextlib.suppress(PowerCut):
            Room(inner, cut_at=nth)
            break
        for seed, survive in ENDS[:3]:
            check_logs(Room(inner.crash_clone(seed, survive)), logs)
    assert nth > 40


def test_what_a_start_wrote_to_logs_is_forced_before_the_checkpoint_that_says_so():
    """The journal has it until then; and the checkpoint may be cut at any of its operations."""
    room, logs = overflowing_scene()
    for nth in range(1, 100):
        started = Room(room.inner.kill_clone(), replace(SMALL, open_files=64))
        assert not {2, 6} & {store.number for store in started.engine.dirty}
        unforced = set(segments(started.inner).items()) - set(
            segments(started.inner.crash_clone(0, 0.0)).items()
        )
        assert unforced, "a start forces no log that it need not"
        started.plan.on_operation = cut_power_at(nth)
        try:
            started.checkpoint()
        except PowerCut:
            for seed, survive in ENDS[:3]:
                check_logs(started.crashed(seed, survive), logs)
        else:
            break
    assert nth > 8
    started.plan.on_operation = None
    check_logs(started.crashed(0, 0.0), logs)
    started.send(b"next")
    started.checkpoint()
    logs[1].append(b"next")
    for seed, survive in ENDS:
        after = started.crashed(seed, survive)
        check_logs(after, logs)
        assert after.engine.report.records < 10, "the journal is no longer needed for it"


def segments(inner):
    return {path: data for path, data in contents(inner).items() if path.endswith(".log")}


def test_the_first_start_of_all_may_be_cut_at_any_operation():
    for nth in range(1, 40):
        room = None
        inner = MemoryFilesystem()
        with contextlib.suppress(PowerCut):
            room = Room(inner, cut_at=nth)
        for seed, survive in ENDS:
            after = Room(inner.crash_clone(seed, survive))
            after.topic()
            assert after.send(b"x") == 0
        if room is not None:
            break
    assert nth > 8


def test_no_lsn_and_no_start_number_is_ever_used_twice_whatever_becomes_of_starts():
    inner = MemoryFilesystem()
    lsns, starts = [], []
    for seed in range(12):
        try:
            room = Room(inner, cut_at=0 if seed % 3 == 0 else 6 + seed)
        except PowerCut:
            pass
        else:
            lsns.append(room.engine.last_lsn)
            starts.append(room.engine.start_number)
        inner = inner.crash_clone(seed)
    assert lsns == sorted(set(lsns))
    assert starts == sorted(set(starts))


class TestTransactions:
    def test_a_one_phase_commit_is_in_all_partitions_or_in_none(self):
        def act(room, done):
            room.begin((1, b"a"), (2, b"b"), (1, b"c")).commit().sync()
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

    def test_every_step_of_two_phases_is_there_from_its_answer_on(self):
        def act(room, done):
            begun = room.begin((1, b"a"), (2, b"b")).sync()
            begun.prepare("p").sync()
            done.append("prepared")
            room.checkpoint()
            decide(room, "p", commit=True)
            done.append("committed")
            room.engine.transactions.forget(begun.number)
            room.engine.sync()

        for done, _, after in at_every_operation(topics, act):
            shown = after.values(2) == [b"b"]
            assert (after.values(1)[1:] == [b"a"]) is shown
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

    def test_a_forced_outcome_and_its_contradiction_are_there_from_their_answers_on(self):
        """L11, L22. The broker answers each step once the engine has forced it."""

        def prepare(room):
            topics(room)
            room.begin((1, b"a")).prepare("p").sync()

        def act(room, done):
            transactions = room.engine.transactions
            number = transactions.find(xid_of("p"))
            transactions.rollback(number, Cause.OPERATOR, "ann", "stuck")
            room.engine.sync()
            done.append("forced")
            assert transactions.tell(number, State.COMMITTED, "me@host:1")
            room.engine.sync()
            done.append("told")
            room.checkpoint()
            assert not transactions.tell(number, State.COMMITTED, "me@host:2")
            transactions.forget(number, "ann", "mended")
            room.engine.sync()
            done.append("forgotten")

        seen = set()
        for done, _, after in at_every_operation(prepare, act, twice=True):
            transactions = after.engine.transactions
            [outcome] = transactions.outcomes.by_number.values() or [None]
            assert (outcome is None) or (outcome.heuristic, outcome.by, outcome.why) == (True, "ann", "stuck")
            if "forced" in done and "told" not in done:
                assert outcome is not None
            if "told" in done and "forgotten" not in done:
                assert after.prepared() == set()
                assert outcome is None or outcome.told.by == "me@host:1"
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
        assert room.engine.retain(room.engine.now()) == 1
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


class TestTopics:
    def test_a_deletion_may_be_cut_at_any_moment_and_numbers_are_never_used_again(self):
        def act(room, done):
            room.engine.accept(TopicDeleted("t", room.engine.now()))
            room.engine.sync()
            done.append("deleted")
            room.topic("t")
            done.append("made again")
            room.send(b"new", number=3)
            done.append("sent")
            for _ in range(3):
                room.checkpoint()
                room.engine.mark()

        def prepare(room):
            topics(room)
            room.flush()

        for done, _, after in at_every_operation(prepare, act):
            catalog = after.engine.catalog
            assert ("t" in catalog.topics) or "made again" not in done
            if 3 in catalog.stores:
                assert 1 not in catalog.stores
                assert after.values(3) in ([], [b"new"])
                assert after.values(3) or "sent" not in done
            if 1 in catalog.stores:
                assert not done
                assert after.values(1) == [b"before"]
            assert catalog.next_partition == (5 if 3 in catalog.stores else 3)

    def test_a_start_that_was_moved_stays_moved_from_its_force_on(self):
        def prepare(room):
            room.topic(segment_bytes=64 * KIB, retention_bytes=100 * KIB)
            for number in range(6):
                room.send(b"%d" % number + BIG)
            room.checkpoint()

        def act(room, done):
            assert room.engine.retain(room.engine.now()) == 1
            room.engine.sync()
            done.append("moved")
            for _ in range(3):
                room.checkpoint()
                room.engine.mark()

        starts = set()
        for done, _, after in at_every_operation(prepare, act):
            start = after.store().start_offset
            assert [int(value[:1]) for value in after.values(1)] == list(range(start, 6))
            assert start or not done
            starts.add(start)
        assert len(starts) == 2
