"""Cut the power before every operation of sends, rolls, checkpoints and starts; docs/recovery.md has the windows.

A scene is prepared, then acted with a cut before its first, second, third ... state-changing operation, and after
the last. Of what is then unforced nothing, everything and several random parts survive.
"""

from __future__ import annotations

import contextlib

import pytest
from msgspec.structs import replace

from journal.constants import KIB, MIB
from journal.engine.jobs import StageFrames
from journal.errors import UnknownTopic
from journal.records.record import LogStartMoved, TopicDeleted
from journal.testing import MemoryFilesystem, PowerCut, cut_power_at
from tests.support.crash_scene import BIG, ENDS, at_every_operation, topics
from tests.support.engine_room import SMALL, Room, checkpoint_path, contents, decide, xid_of


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def overflowing_scene(flushed=False):
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
    if flushed:
        room.flush()
    room.begin(*[(number, b"!" + BIG) for number in (1, 7)] * 3).commit().sync()
    return room, {number: room.values(number) for number in range(1, 8)}


def check_logs(after, logs):
    assert {number: after.values(number) for number in after.engine.catalog.stores} == logs


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [False, True])
def test_a_start_that_writes_logs_may_be_cut_at_any_operation(flushed):
    """Where the broker had flushed, the start writes over what lies beyond the checkpoint."""
    room, logs = overflowing_scene(flushed)
    for nth in range(1, 400):
        inner = room.inner.kill_clone()
        with contextlib.suppress(PowerCut):
            Room(inner, cut_at=nth)
            break
        for seed, survive in ENDS[:3]:
            check_logs(Room(inner.crash_clone(seed, survive)), logs)
    assert nth > 40


@pytest.mark.slow
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
    assert len(starts) > 3, "too few starts come to their end"
    assert lsns == sorted(set(lsns))
    assert starts == sorted(set(starts))
