"""Cut the power before every operation of deletions and retention; docs/recovery.md has the windows."""

from __future__ import annotations

import pytest

from journal.check import Level, verify
from journal.constants import KIB
from journal.records.record import TopicDeleted
from journal.walks.findings import Finding
from tests.support.crash_scene import BIG, at_every_operation, topics
from tests.support.engine_room import GroupRoom, Room


def damages(room: Room) -> list[Finding]:
    """What a verification finds in the room's directory."""
    return [each for each in verify(room.inner, Level.DEEP) if not each.harmless]


class TestTopics:
    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_more_partitions_are_all_there_with_the_settings_or_none_and_what_was_sent_to_them_is(self):
        def act(room, done):
            catalog = room.engine.catalog
            topic, changes = catalog.topics["t"], {"force_messages": 7}
            record = catalog.judge_alteration(topic, changes, room.engine.now(), 4)
            room.engine.accept(record)
            room.engine.sync()
            done.append("grown")
            room.send(b"new", number=5)
            done.append("sent")
            room.begin((1, b"in one"), (6, b"step")).commit().sync()
            done.append("committed")
            for _ in range(3):
                room.checkpoint()
                room.engine.mark()

        def prepare(room):
            topics(room)
            room.topic("other")
            room.flush()

        found = set()
        for done, _, after in at_every_operation(prepare, act, kind=GroupRoom):
            topic = after.engine.catalog.topics["t"]
            numbers = [store.number for store in topic.partitions]
            grown = topic.settings.force_messages == 7
            assert numbers == ([1, 2, 5, 6] if grown else [1, 2])
            assert grown or not done
            assert after.engine.catalog.next_partition == (7 if grown else 5)
            sent = after.values(5) if grown else []
            assert sent in ([], [b"new"])
            assert sent or "sent" not in done
            committed = after.values(1) == [b"before", b"in one"]
            assert committed or (after.values(1) == [b"before"] and "committed" not in done)
            assert not grown or after.values(6) == [b"step"] * committed
            assert damages(after) == []
            found.add((grown, bool(sent), committed))
        assert len(found) == 4

    @pytest.mark.slow
    def test_a_deletion_of_a_topic_that_got_more_partitions_may_be_cut_at_any_moment(self):
        def prepare(room):
            topics(room)
            room.topic("other")
            catalog = room.engine.catalog
            room.engine.accept(catalog.judge_alteration(catalog.topics["t"], {}, room.engine.now(), 4))
            room.send(b"before", number=6)
            room.flush()

        def act(room, done):
            room.engine.accept(TopicDeleted("t", room.engine.now()))
            room.engine.sync()
            done.append("deleted")
            for _ in range(3):
                room.checkpoint()
                room.engine.mark()

        left = set()
        for done, _, after in at_every_operation(prepare, act):
            stores = tuple(sorted(after.engine.catalog.stores))
            assert stores == (3, 4) or (stores == (1, 2, 3, 4, 5, 6) and not done)
            if 6 in stores:
                assert (after.values(1), after.values(6)) == ([b"before"], [b"before"])
            assert after.engine.catalog.next_partition == 7
            assert damages(after) == []
            left.add(stores)
        assert len(left) == 2

    @pytest.mark.slow
    def test_a_start_that_was_moved_stays_moved_from_its_force_on(self):
        def prepare(room):
            room.topic(segment_bytes=64 * KIB, retention_bytes=100 * KIB)
            for number in range(6):
                room.send(b"%d" % number + BIG)
            room.checkpoint()

        def act(room, done):
            assert room.engine.housekeeping.retain(room.engine.now()) == 1
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
