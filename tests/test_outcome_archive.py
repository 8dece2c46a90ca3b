"""The outcome archive: an entry for every transaction that ended, once, in order, whatever happens in between.

docs/recovery.md lists the crash windows. The expectation is a list that the tests themselves keep.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c
from msgspec.structs import replace

import journal.engine
from journal import archived_outcome, frame
from journal.archived_outcome import NEVER_PLACED, OUTCOMES_TOPIC
from journal.constants import KIB, MIB
from journal.errors import InvalidName
from journal.inspect import (
    Archived,
    Finding,
    Level,
    archive_from,
    archive_state,
    journaled_archive,
    verify,
    walk_archive,
    walk_journal,
)
from journal.record import Messages, PartitionOffset, TopicDeleted
from journal.settings import TopicSettings
from journal.testing import MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction import Cause, State, TransactionNumber
from tests.engine_room import SMALL, Room, damage, decide, journal_path, run_of, xid_of

ON = replace(SMALL, outcome_archive=True)
ENDS = [(0, 0.0), (1, 1.0), *((seed, None) for seed in range(2, 6))]
ARCHIVE, FIRST, SECOND = 1, 2, 3
"""Numbers of partitions: the archive's is made by the first start."""


def room_with_topic(**settings) -> Room:
    room = Room(settings=replace(ON, **settings))
    room.topic()
    return room


def entries(room: Room):
    return [archived_outcome.unpack(value) for value in room.values(ARCHIVE)]


def ended(room: Room):
    return [(each.number, each.state, each.cause) for each in entries(room)]


def bare(room: Room) -> bytes:
    """The archive's log byte for byte."""
    store = room.store(ARCHIVE)
    found, offset = b"", store.start_offset
    while data := store.read(offset, 64 * KIB):
        found += data
        offset = frame.decode_run(data)[-1].offset + 1
    return found


class TestWhatAnEntrySays:
    def test_of_a_commit_it_says_who_when_how_much_where_and_with_what_checksums(self):
        room = room_with_topic()
        room.clock.advance(10)
        begun = room.begin((FIRST, b"one"), (SECOND, b"two"), (FIRST, b"three"))
        room.clock.advance(20)
        begun.prepare("x").sync()
        room.clock.advance(30)
        number = begun.number
        room.engine.transactions.commit(number, Cause.OPERATOR, by="ann", why="stuck")
        lsn = room.engine.last_lsn
        room.engine.sync()
        [entry] = entries(room)
        assert (entry.number, entry.state, entry.cause) == (number, State.COMMITTED, Cause.OPERATOR)
        assert (entry.xid, entry.by, entry.why, entry.heuristic) == (xid_of("x"), "ann", "stuck", True)
        assert (entry.lsn, entry.at) == (lsn, room.engine.now())
        wall = room.clock.wall()
        assert (entry.began, entry.prepared, entry.wall) == (wall - 50, wall - 30, wall)
        frames = [run_of(value) for value in (b"one", b"two", b"three")]
        assert entry.checksum == crc32c(b"".join(frames))
        assert (entry.messages, entry.requests, entry.bytes) == (3, 3, sum(map(len, frames)))
        both = frames[0] + frames[2]
        assert [tuple(getattr(part, f) for f in part.__struct_fields__) for part in entry.parts] == [
            ("t", 0, FIRST, 0, 2, len(both), crc32c(both)),
            ("t", 1, SECOND, 0, 1, len(frames[1]), crc32c(frames[1])),
        ]

    def test_of_a_rollback_it_says_what_there_would_have_been(self):
        room = room_with_topic()
        begun = room.begin((FIRST, b"one"), (SECOND, b"two")).prepare("x").rollback().sync()
        [entry] = entries(room)
        assert (entry.number, entry.state, entry.heuristic) == (begun.number, State.ROLLED_BACK, False)
        assert [(part.number, part.base_offset, part.count) for part in entry.parts] == [
            (FIRST, NEVER_PLACED, 1), (SECOND, NEVER_PLACED, 1),
        ]  # fmt: skip

    def test_a_transaction_without_messages_has_one_too(self):
        room = room_with_topic()
        number = room.begin().number
        room.engine.transactions.add_offsets(number, "g", [PartitionOffset(FIRST, 1)])
        room.engine.transactions.rollback(number, Cause.CLIENT)
        room.engine.sync()
        [entry] = entries(room)
        assert (entry.number, entry.parts, entry.requests, entry.messages) == (number, [], 1, 0)

    @pytest.mark.parametrize("cause", ["time", "disconnect", "restart"])
    def test_whatever_ends_it_it_has_one(self, cause):
        room = room_with_topic()
        number = room.begin((FIRST, b"one")).sync().number
        if cause == "time":
            room.clock.advance(5_000_000)
            room.engine.transactions.expire(room.engine.now(), 1_000_000)
        elif cause == "disconnect":
            room.engine.transactions.disconnect(number.session)
        else:
            room = room.crashed()
        room.engine.sync()
        expected = {"time": Cause.TIMEOUT, "disconnect": Cause.DISCONNECT, "restart": Cause.RESTART}[cause]
        assert ended(room) == [(number, State.ROLLED_BACK, expected)]
        assert ended(room.crashed()) == ended(room)

    def test_checksums_of_each_partition_survive_a_checkpoint_and_a_crash_before_the_end(self):
        room = room_with_topic()
        begun = room.begin((FIRST, b"one"), (SECOND, b"two")).prepare("x").sync()
        for _ in range(3):
            room.send(b"between", number=FIRST)
            room.checkpoint()
        room = room.crashed()
        decide(room, "x", commit=True)
        [entry] = entries(room)
        assert entry.number == begun.number
        assert [part.checksum for part in entry.parts] == [crc32c(run_of(b"one")), crc32c(run_of(b"two"))]
        assert entry.checksum == begun.totals.checksum


class TestCrashWindows:
    def scene(self, room: Room, decided: list) -> None:
        def note(begun, state):
            decided.append((begun.number, state))

        begun = room.begin((FIRST, b"a"), (SECOND, b"b")).commit().sync()
        note(begun, State.COMMITTED)
        begun = room.begin((FIRST, b"c")).prepare("x").sync()
        first = room.begin((SECOND, b"d")).commit()
        second = room.begin((SECOND, b"e")).rollback().sync()
        note(first, State.COMMITTED)
        note(second, State.ROLLED_BACK)
        room.checkpoint()
        decide(room, "x", commit=True)
        note(begun, State.COMMITTED)
        room.flush()
        begun = room.begin((FIRST, b"f")).commit().sync()
        note(begun, State.COMMITTED)
        room.checkpoint()

    def test_at_every_operation_each_outcome_is_there_once_and_surely_if_it_was_answered(self):
        lengths = set()
        for nth in range(1, 300):
            room = room_with_topic()
            decided: list = []
            room.plan.on_operation = cut_power_at(nth)
            try:
                self.scene(room, decided)
            except PowerCut:
                cut = True
            else:
                cut = False
            room.plan.on_operation = None
            for seed, survive in ENDS:
                after = room.crashed(seed, survive)
                self.judge(after, decided)
                lengths.add(len(entries(after)) - len(decided))
                twice = after.crashed(seed, 0.0)
                assert bare(twice) == bare(after)
            self.judge(room.killed(), decided)
            if not cut:
                break
        assert nth > 20
        assert lengths >= {0, 1}, "no outcome was forced and not answered"

    def judge(self, after: Room, decided: list) -> None:
        found = [(number, state) for number, state, cause in ended(after) if cause is not Cause.RESTART]
        assert found[: len(decided)] == decided
        assert len({each.number for each in entries(after)}) == len(entries(after))
        committed = [each for each in entries(after) if each.state is State.COMMITTED]
        for number in (FIRST, SECOND):
            spans = [(p.base_offset, p.count) for each in committed for p in each.parts if p.number == number]
            end = 0
            for base, count in spans:
                assert base == end
                end += count
            assert end == len(after.values(number)), "messages without an outcome, or one without messages"
        assert not after.engine.transactions.archive.waiting

    def test_a_group_torn_between_an_outcome_and_its_entry_loses_neither(self):
        room = room_with_topic()
        begun = room.begin((FIRST, b"a")).sync().commit()
        group = room.engine.take()
        room.engine.write(group)
        assert group.count == 2, "the commit, and its entry"
        path = journal_path(room.journals()[-1])
        torn = room.crashed(0, survive=1.0)
        assert ended(torn) == [(begun.number, State.COMMITTED, Cause.CLIENT)]
        position = self.entry_position(room)
        clone = room.inner.kill_clone()
        damage(clone, path, position)
        after = Room(clone, room.settings)
        assert after.values(FIRST) == [b"a"]
        assert ended(after) == [(begun.number, State.COMMITTED, Cause.CLIENT)]
        assert ended(after.crashed()) == ended(after)

    def entry_position(self, room: Room) -> int:
        [entry] = [
            each
            for each in walk_journal(room.inner)
            if not isinstance(each, Finding)
            and isinstance(each.record, Messages)
            and each.record.partition == ARCHIVE
        ]
        return entry.position + 20

    def test_a_checkpoint_between_an_outcome_and_its_entry_keeps_what_waits(self):
        room = room_with_topic()
        room.checkpoint()
        begun = room.begin((FIRST, b"a")).sync().commit()
        housekeeping = room.engine.housekeeping
        housekeeping.request_checkpoint()
        jobs = room.engine.jobs(room.engine.now())  # the state is taken here, before the group
        assert room.engine.transactions.archive.waiting
        for job in jobs:
            job.run()
            room.engine.finish(job)
        room.engine.sync()
        housekeeping.run_inline()
        assert len(room.checkpoints()) == 2
        for after in (room.crashed(), room.crashed().crashed(), room.stopped()):
            assert ended(after) == [(begun.number, State.COMMITTED, Cause.CLIENT)]

    def test_the_first_start_with_an_archive_may_be_cut_anywhere(self):
        for nth in range(1, 200):
            inner = MemoryFilesystem()
            try:
                Room(inner, ON, cut_at=nth)
            except PowerCut:
                for seed, survive in ENDS:
                    after = Room(inner.crash_clone(seed, survive), ON)
                    assert list(after.engine.catalog.topics) == [OUTCOMES_TOPIC]
                    assert after.engine.transactions.archive.on
                    after.topic()
                    begun = after.begin((FIRST, b"a")).commit().sync()
                    assert [number for number, _, _ in ended(after)] == [begun.number]
            else:
                break
        assert nth > 10

    def test_many_rolled_back_by_a_restart_have_the_same_places_whoever_replays_it(self):
        room = room_with_topic()
        sessions = [9, 3, 7, 5]
        for session in sessions:
            room.begin((FIRST, b"a"), session=session)
        room.engine.sync()
        after = room.crashed()
        numbers = [number for number, _, _ in ended(after)]
        assert len(numbers) == 4
        assert numbers == sorted(numbers)
        assert bare(after.crashed()) == bare(after)


class TestReplay:
    @pytest.mark.parametrize("adds", [1, 3])
    @pytest.mark.parametrize("checkpoint", [False, True])
    def test_the_archive_is_the_same_byte_for_byte_after_any_replay(self, adds, checkpoint):
        room = room_with_topic()
        for number in range(60):
            begun = room.begin(*[(FIRST + n % 2, b"%d-%d" % (number, n)) for n in range(adds)])
            if number % 7 == 3:
                begun.prepare(f"x{number}")
            begun.rollback() if number % 5 == 4 else begun.commit()
            if number % 3 == 0:
                room.engine.sync()
            if checkpoint and number == 30:
                room.checkpoint()
        room.engine.sync()
        live = bare(room)
        for after in (room.crashed(), room.crashed().crashed(), room.killed(), room.stopped()):
            assert bare(after) == live
            assert after.engine.transactions.archive.next_offset == 60

    def test_a_start_archives_nothing_that_the_log_has_already(self):
        room = room_with_topic()
        for number in range(5):
            room.begin((FIRST, b"%d" % number)).commit().sync()
        after = room.crashed()
        assert not after.engine.transactions.archive.waiting
        last = room.engine.last_lsn
        new = [each.record for each in walk_journal(after.inner, last + 1) if not isinstance(each, Finding)]
        assert [type(each).__name__ for each in new] == ["Started"]

    def test_what_the_segments_hold_beyond_the_checkpoint_is_not_made_twice(self):
        room = room_with_topic()
        room.checkpoint()
        for number in range(5):
            room.begin((FIRST, b"%d" % number)).commit().sync()
        room.flush()
        assert room.store(ARCHIVE).flushed_offset == 5
        after = room.killed()
        assert bare(after) == bare(room)
        assert len(entries(after)) == 5


class TestTheCycle:
    def test_entries_are_shown_in_the_turn_that_shows_the_messages(self):
        room = room_with_topic()
        seen = []
        room.engine.on_published = lambda stores: seen.append(
            (room.store(FIRST).high_watermark, room.store(ARCHIVE).high_watermark)
        )
        for _ in range(3):
            room.begin((FIRST, b"a")).commit()
        room.engine.sync()
        assert seen == [(3, 3)]

    def test_a_group_that_is_full_takes_the_entries_of_what_it_decided(self, monkeypatch):
        monkeypatch.setattr(journal.engine, "GROUP_RECORDS", 2)
        room = room_with_topic()
        begun = [room.begin((FIRST, b"%d" % number)) for number in range(4)]
        room.engine.sync()
        for each in begun:
            each.commit()
        while (group := room.engine.take()) is not None:
            room.engine.write(group)
            room.engine.publish(group)
            assert room.store(ARCHIVE).high_watermark == room.store(FIRST).high_watermark
        assert room.store(FIRST).high_watermark == 4
        assert ended(room.crashed()) == ended(room)

    def test_a_group_of_many_outcomes_stays_of_a_bounded_size(self, monkeypatch):
        monkeypatch.setattr(journal.engine, "BATCH", 10)
        room = room_with_topic()
        begun = [room.begin((FIRST, b"a")) for _ in range(35)]
        room.engine.sync()
        for each in begun:
            each.commit()
            assert len(room.engine.transactions.archive.waiting) <= 11
        room.engine.sync()
        assert len(entries(room)) == 35
        assert ended(room.crashed()) == ended(room)

    def test_a_large_commit_is_in_the_archive_before_its_messages_are_shown(self):
        room = room_with_topic()
        room.engine.transactions.small_bytes, room.engine.transactions.slice_bytes = KIB, 8 * KIB
        begun = room.begin(*[(FIRST, b"v" * 5 * KIB) for _ in range(8)])
        begun.sync()
        begun.commit()
        assert room.engine.busy
        group = room.engine.take()
        room.engine.write(group)
        room.engine.publish(group)
        assert room.store(FIRST).high_watermark == 0
        assert [number for number, _, _ in ended(room)] == [begun.number]
        room.engine.sync()
        assert len(room.values(FIRST)) == 8
        assert ended(room.crashed()) == ended(room)

    def test_while_memory_is_short_entries_wait_and_none_is_lost(self):
        room = room_with_topic()
        begun = room.begin((FIRST, b"a")).sync()
        allocator = room.engine.allocator
        taken = allocator.available()
        allocator.reserve(taken)
        begun.rollback()
        room.engine.sync()
        assert len(room.engine.transactions.archive.waiting) == 1
        assert entries(room) == []
        assert ended(room.crashed()) == [(begun.number, State.ROLLED_BACK, Cause.CLIENT)]
        allocator.unreserve(taken)
        room.engine.mark()
        room.engine.sync()
        assert ended(room) == [(begun.number, State.ROLLED_BACK, Cause.CLIENT)]

    def test_a_checkpoint_while_memory_is_short_keeps_what_waits(self):
        room = room_with_topic()
        room.checkpoint()
        begun = room.begin((FIRST, b"a")).sync()
        allocator = room.engine.allocator
        taken = allocator.available()
        allocator.reserve(taken)
        begun.rollback()
        room.engine.sync()
        room.checkpoint()
        assert len(room.engine.transactions.archive.waiting) == 1
        assert entries(room) == []
        for after in (room.crashed(), room.crashed().crashed()):
            assert ended(after) == [(begun.number, State.ROLLED_BACK, Cause.CLIENT)]


class TestSettings:
    def test_without_it_nothing_is_kept_and_no_topic_is_made(self):
        room = Room()
        room.topic()
        room.begin((1, b"a")).commit().sync()
        assert list(room.engine.catalog.topics) == ["t"]
        assert not room.crashed().engine.transactions.archive.next_offset

    def test_turned_off_it_keeps_what_it_has_and_turned_on_again_it_goes_on(self):
        room = room_with_topic()
        first = room.begin((FIRST, b"a")).commit().sync().number
        room.settings = replace(room.settings, outcome_archive=False)
        off = room.stopped()
        unseen = off.begin((FIRST, b"b")).commit().sync().number
        assert [number for number, _, _ in ended(off)] == [first]
        off = off.crashed()
        assert [number for number, _, _ in ended(off)] == [first]
        off.settings = ON
        on = off.stopped()
        last = on.begin((FIRST, b"c")).commit().sync().number
        assert unseen not in (first, last)
        for after in (on, on.crashed(), on.crashed().crashed()):
            assert [number for number, _, _ in ended(after)] == [first, last]

    def test_its_retention_is_that_of_the_settings_and_changes_with_them(self):
        room = room_with_topic(outcome_archive_bytes=5 * MIB, outcome_archive_age=7)
        kept = room.store(ARCHIVE).settings
        assert (kept.retention_bytes, kept.retention_age) == (5 * MIB, 7)
        room.checkpoint()
        room.settings = replace(room.settings, outcome_archive_bytes=None)
        after = room.stopped()
        assert after.store(ARCHIVE).settings.retention_bytes is None
        assert after.engine.catalog.topics[OUTCOMES_TOPIC].settings == after.store(ARCHIVE).settings
        again = after.crashed()
        assert again.store(ARCHIVE).settings.retention_bytes is None
        assert isinstance(again.store(ARCHIVE).settings, TopicSettings)

    def test_a_start_with_the_same_settings_decides_nothing_anew(self):
        room = room_with_topic()
        archive = room.engine.transactions.archive
        assert archive.judge(room.settings.archive, 1) == []


class TestItIsTheBrokersOwn:
    def test_nobody_else_makes_or_fills_such_a_topic(self):
        room = room_with_topic()
        store = room.store(ARCHIVE)
        frames = run_of(b"forged")
        before = room.engine.last_lsn
        for attempt in (
            lambda: room.engine.append(store, frames, 1),
            lambda: room.engine.transactions.add(TransactionNumber(7, 1), ARCHIVE, frames, 1),
            lambda: room.engine.catalog.judge_creation("txbroker.mine", 1, TopicSettings(), 1),
        ):
            with pytest.raises(InvalidName, match="the broker's own"):
                attempt()
        assert room.engine.last_lsn == before

    def test_a_topic_that_goes_before_its_entry_is_made_is_still_named(self):
        room = room_with_topic()
        room.begin((FIRST, b"a")).sync().commit()
        room.engine.accept(TopicDeleted("t", room.engine.now()))
        room.engine.sync()
        [entry] = entries(room)
        assert [(part.topic, part.number) for part in entry.parts] == [("t", FIRST)]
        assert len(entries(room.crashed())) == 1


class TestReadingItFromFiles:
    def written(self) -> Room:
        room = room_with_topic()
        for number in range(300):
            room.clock.advance(1000)
            room.begin((FIRST, b"v" * 200)).commit().sync()
            if number == 199:
                room.checkpoint()
        return room

    def test_segments_have_it_up_to_the_checkpoint_and_the_journal_the_rest(self):
        room = self.written()
        state = archive_state(room.inner)
        assert state is not None
        assert state.flushed_offset == 200
        inside = list(walk_archive(room.inner, state))
        beyond = list(journaled_archive(room.inner, state))
        assert [each.offset for each in (*inside, *beyond)] == list(range(300))
        assert [each.outcome for each in (*inside, *beyond)] == entries(room)
        assert all(isinstance(each, Archived) for each in (*inside, *beyond))
        assert list(journaled_archive(room.inner, None))[:1] != []

    def test_some_of_it_is_read_by_offset_and_found_by_time(self):
        room = self.written()
        state = archive_state(room.inner)
        assert [each.offset for each in walk_archive(room.inner, state, 50, 60)] == list(range(50, 60))
        every = list(walk_archive(room.inner, state))
        for wanted in (0, 1, 77, 199):
            found = archive_from(room.inner, state, every[wanted].outcome.at)
            assert found <= wanted
        assert archive_from(room.inner, state, every[199].outcome.at) > 0, "the index is of use"
        assert archive_from(room.inner, state, every[-1].outcome.at + 10**9) == state.flushed_offset

    def test_a_damaged_entry_is_told_with_its_place_and_the_others_are_read(self):
        room = self.written()
        state = archive_state(room.inner)
        tenth = list(walk_archive(room.inner, state))[10]
        damage(room.inner, tenth.path, tenth.position + 50)
        found = list(walk_archive(room.inner, state))
        [finding] = [each for each in found if isinstance(each, Finding)]
        assert (finding.path, finding.position) == (tenth.path, tenth.position)
        assert finding.affects.first_offset == 10
        assert len(found) == 200

    def test_a_verification_finds_nothing_wrong_with_it(self):
        room = self.written()
        room.engine.close()
        assert [f for f in verify(room.inner, Level.DEEP) if not f.harmless] == []
