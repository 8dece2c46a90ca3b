"""Cut the power before every operation of deletions and retention; docs/recovery.md has the windows."""

from __future__ import annotations

import pytest

from journal.constants import KIB
from journal.formats.record import TopicDeleted
from tests.support.crash_scene import BIG, at_every_operation, topics


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
