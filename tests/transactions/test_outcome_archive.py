"""Test the outcome archive: one entry for every ended transaction, in order; its content, and when it can be read."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from msgspec.structs import replace

import journal.engine.engine
from journal.constants import KIB, MIB
from journal.errors import InvalidName, LimitExceeded
from journal.parties import Actor
from journal.random_id import new_id
from journal.records import outcome_entry
from journal.records.group_entries import PartitionOffset
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC
from journal.records.record import TopicDeleted
from journal.settings import TopicSettings
from journal.transaction_states import Cause, State, TransactionNumber
from tests.support.engine_room import Room, decide, run_of, xid_of
from tests.transactions.archive_scene import ARCHIVE, FIRST, ON, SECOND, ended, entries, room_with_topic


class TestWhatAnEntrySays:
    def test_of_a_commit_it_says_who_when_how_much_where_and_with_what_checksums(self):
        room = room_with_topic()
        room.clock.advance(10)
        begun = room.begin((FIRST, b"one"), (SECOND, b"two"), (FIRST, b"three"))
        room.clock.advance(20)
        begun.prepare("x").sync()
        room.clock.advance(30)
        number = begun.number
        room.engine.transactions.commit(number, Cause.OPERATOR, by=Actor("ann", "ops"), why="stuck")
        lsn = room.engine.last_lsn
        room.engine.sync()
        [entry] = entries(room)
        assert (entry.number, entry.state, entry.cause) == (number, State.COMMITTED, Cause.OPERATOR)
        assert (entry.xid, entry.by, entry.why, entry.heuristic) == (
            xid_of("x"),
            Actor("ann", "ops"),
            "stuck",
            True,
        )
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
        monkeypatch.setattr(journal.engine.engine, "GROUP_RECORDS", 2)
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
        monkeypatch.setattr(journal.engine.engine, "BATCH", 10)
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
        application = room.engine.transactions.table.application
        application.small_bytes, application.slice_bytes = KIB, 8 * KIB
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

    @pytest.mark.parametrize("on", [True, False])
    def test_left_to_the_journal_it_stays_as_it_was(self, on):
        room = Room(settings=replace(ON, outcome_archive=on))
        room.settings = replace(ON, outcome_archive=None, outcome_archive_bytes=5 * MIB)
        again = room.stopped()
        archive = again.engine.transactions.archive
        assert archive.on is on
        assert archive.topic is None or archive.topic.settings.retention_bytes != 5 * MIB

    @pytest.mark.parametrize("end", ["stopped", "killed", "crashed"])
    def test_a_directory_of_a_broker_without_one_gets_it_with_the_next_start(self, end):
        """Its partitions keep their numbers; what ended before is not in it, whoever replays it."""
        room = Room()
        room.topic()
        room.begin((1, b"a")).commit().sync()
        doubtful = room.begin((2, b"b")).prepare("x").sync().number
        room.settings = ON
        started = getattr(room, end)()
        number = started.engine.transactions.archive.store.number
        assert number == 3
        decide(started, "x", commit=True)
        after = started.begin((1, b"c")).commit().sync().number
        for each in (started, started.crashed()):
            assert [outcome_entry.unpack(value).number for value in each.values(number)] == [
                doubtful,
                after,
            ]
            assert (each.values(1), each.values(2)) == ([b"a", b"c"], [b"b"])

    def test_its_partition_is_not_one_of_those_that_topics_may_have(self):
        room = Room(settings=replace(ON, max_partitions=2))
        room.topic()
        catalog = room.engine.catalog
        for each in (catalog, room.crashed().engine.catalog):
            with pytest.raises(LimitExceeded, match="would make 3 in all, the limit is 2"):
                each.judge_creation("more", 1, TopicSettings(), 1, new_id())
        catalog.max_partitions = 3
        assert catalog.judge_creation("more", 1, TopicSettings(), 1, new_id()).partitions == 1

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
            lambda: room.engine.catalog.judge_creation("txbroker.mine", 1, TopicSettings(), 1, new_id()),
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
