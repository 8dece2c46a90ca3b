"""Test one partition's log: it is appended to, read from memory and from disk, never beyond what is forced."""

import errno
import threading

import pytest
from zope.interface.verify import verifyObject

from journal.constants import KIB
from journal.errors import OffsetOutOfRange
from journal.formats.frame import decode_run, encode_inner, encode_wrapper
from journal.interfaces import IMessageStore
from journal.log.message_store import MessageStore
from journal.settings import TopicSettings
from journal.testing import Fault, FaultFilesystem, FaultPlan, MemoryFilesystem, Operation
from journal.vfs.open_files import OpenFiles
from tests.log.message_store_scene import (
    BUDGET,
    DIRECTORY,
    drain,
    fill,
    flush,
    frame,
    in_memory_and_on_disk,
    make,
    offsets,
    origin,
    with_directory,
)


class TestReading:
    def test_the_store_keeps_its_contract(self, store):
        assert verifyObject(IMessageStore, store)

    def test_nothing_is_seen_before_it_is_published(self, store):
        store.append(frame(), 1, 1)
        store.append(frame(), 1, 1)
        assert store.read(0, KIB) == b""
        store.publish(1)
        assert offsets(store.read(0, KIB)) == [0]
        with pytest.raises(OffsetOutOfRange):
            store.read(2, KIB)

    def test_the_watermark_moves_forward_only_and_not_beyond_the_end(self, store):
        fill(store, 2)
        for end in (1, 3):
            with pytest.raises(AssertionError):
                store.publish(end)
        assert store.high_watermark == 2

    def test_memory_and_segments_read_as_one_log(self, store):
        fill(store, 25)
        flush(store)
        fill(store, 10)
        assert store.flushed_offset == 25
        assert drain(store) == list(range(35))
        for offset in range(35):
            assert offsets(store.read(offset, 1)) == [offset]

    def test_a_read_gives_whole_frames_within_its_bytes(self, store):
        fill(store, 9)
        for _ in in_memory_and_on_disk(store):
            assert offsets(store.read(2, 399)) == [2, 3, 4]
            assert len(store.read(2, 399)) == 300

    def test_a_frame_larger_than_asked_is_given_whole(self, store):
        fill(store, 1, size=5 * KIB)
        assert len(store.read(0, 10)) == 5 * KIB
        flush(store)
        assert len(store.read(0, 10)) == 5 * KIB

    def test_a_wrapper_is_given_whole_for_any_offset_inside(self, store):
        fill(store, 1)
        inner = b"".join(encode_inner(n, b"%d" % n, 1) for n in range(5))
        store.append(encode_wrapper(inner, 5, 1), 5, 20)
        fill(store, 1)
        for _ in in_memory_and_on_disk(store):
            assert offsets(store.read(4, 1)) == [1]
            assert [message.value for message in decode_run(store.read(4, 1), 4)] == [b"3", b"4"]

    def test_outside_the_log_the_error_says_what_there_is(self, store):
        fill(store, 20)
        flush(store)
        store.move_start(5)
        assert store.read(20, KIB) == b""
        for offset in (-1, 4, 21):
            with pytest.raises(OffsetOutOfRange, match="from 5 to 20") as caught:
                store.read(offset, KIB)
            assert (caught.value.start, caught.value.end) == (5, 20)

    def test_a_plan_that_would_wait_for_the_disk_says_so_and_waits_elsewhere(self, allocator):
        block = Fault(Operation.READ_NOW, error=errno.EAGAIN, times=1 << 30)
        store = make(FaultFilesystem(with_directory(MemoryFilesystem()), FaultPlan([block])), allocator)
        fill(store, 20)
        assert offsets(store.plan_read(3, 200).run_now().data) == [3, 4]
        flush(store)
        plan = store.plan_read(3, 200)
        assert plan.run_now() is None
        assert offsets(plan.run().data) == [3, 4]

    def test_a_plan_in_the_page_cache_is_carried_out_at_once(self, filesystem, allocator):
        store = make(filesystem, allocator)
        fill(store, 20)
        flush(store)
        plan = store.plan_read(3, 200)
        found = plan.run_now()
        assert found is None or (offsets(found.data), found.end) == ([3, 4], 5)
        plan.close()

    def test_a_planned_read_survives_appends_flushes_and_the_unlinking_of_its_file(self, store, filesystem):
        fill(store, 25)
        flush(store)
        plan = store.plan_read(3, 10_000)
        store.move_start(22)
        for path in filter(filesystem.exists, store.take_dropped()):
            filesystem.unlink(path)
        fill(store, 30)
        flush(store)
        found = []
        thread = threading.Thread(target=lambda: found.extend(offsets(plan.run().data)))
        thread.start()
        thread.join()
        assert found == list(range(3, 10))

    def test_a_plan_from_memory_survives_the_memory(self, store):
        fill(store, 5)
        plan = store.plan_read(0, 10_000)
        flush(store)
        assert offsets(plan.run().data) == [0, 1, 2, 3, 4]

    def test_a_plan_is_carried_out_once_and_gives_its_file_back(self, filesystem, allocator):
        files = OpenFiles(filesystem, limit=0)
        store = MessageStore(17, "orders", 0, TopicSettings(), files, allocator, origin())
        fill(store, 5)
        flush(store)
        plan = store.plan_read(0, 10)
        assert len(files) == 1
        plan.run()
        assert len(files) == 0
        with pytest.raises(RuntimeError, match="carried out or closed"):
            plan.run()
        store.plan_read(0, 10).close()
        del plan
        store.plan_read(0, 10)  # dropped without a word
        assert len(files) == 0


class TestGoing:
    def test_the_start_moves_forward_only(self, store):
        fill(store, 5)
        store.move_start(3)
        store.move_start(2)
        assert store.start_offset == 3
        with pytest.raises(AssertionError):
            store.move_start(6)

    def test_segments_wholly_below_the_start_are_reported_once(self, store, filesystem):
        fill(store, 25)
        flush(store)
        store.move_start(19)
        assert [path[-7:-4] for path in store.take_dropped() if path.endswith(".log")] == ["000"]
        store.move_start(20)
        dropped = store.take_dropped()
        assert dropped == [f"{DIRECTORY}/{10:032d}.{kind}" for kind in ("log", "index", "time", "keys")]
        assert filesystem.exists(dropped[0])
        assert store.take_dropped() == []
        assert drain(store) == [20, 21, 22, 23, 24]

    def test_an_active_segment_wholly_below_goes_when_another_is_begun(self, store):
        fill(store, 5)
        flush(store)
        store.move_start(5)
        assert store.take_dropped() == []
        fill(store, 1)
        flush(store)
        assert len(store.take_dropped()) == 4
        assert [(s.base_offset, s.end_offset) for s in store.state().segments] == [(5, 6)]
        assert drain(store) == [5]

    def test_retention_follows_the_settings_and_never_takes_unflushed_messages(self, filesystem, allocator):
        store = make(filesystem, allocator, retention_bytes=0, retention_age=0)
        fill(store, 25)
        assert store.retention_start(1 << 40) is None
        flush(store)
        assert store.retention_start(1 << 40) == 20
        store.move_start(20)
        assert store.retention_start(1 << 40) is None

    def test_unflushed_bytes_count_for_retention(self, filesystem, allocator):
        store = make(filesystem, allocator, retention_bytes=2_000)
        fill(store, 25)
        flush(store)
        assert store.retention_start(0) is None
        fill(store, 5)
        assert store.total_bytes == 3_000
        assert store.retention_start(0) == 10

    def test_the_first_offset_of_a_time_is_found_in_memory_and_segments(self, store):
        fill(store, 25)
        flush(store)
        fill(store, 5)
        store.append(frame(), 1, 1_000)
        found = [
            store.offset_for_time(time) for time in (0, 10, 101, 110, 205, 251, 255, 291, 300, 301, 5_000)
        ]
        assert found == [0, 0, 10, 10, 20, 25, 25, 29, 29, 30, 30]
        store.move_start(12)
        assert store.offset_for_time(0) == 12

    def test_a_discarded_log_gives_back_memory_and_names_all_files(self, store, filesystem, allocator):
        fill(store, 25)
        flush(store)
        fill(store, 5)
        store.move_start(10)
        paths = store.discard()
        assert allocator.available() == BUDGET
        there = [f"{DIRECTORY}/{name}" for name in filesystem.list_directory(DIRECTORY)]
        assert len(there) == 3
        assert set(there) <= set(paths)

    def test_a_log_is_not_discarded_amid_a_flush(self, store):
        fill(store, 5)
        assert not store.is_flushing
        store.begin_flush()
        assert store.is_flushing
        with pytest.raises(AssertionError, match="while a flush is under way"):
            store.discard()


class TestLargeCommits:
    """What is decided but not yet published may be flushed, so that a large commit needs little memory."""

    @pytest.fixture
    def large(self, store):
        fill(store, 5)
        store.append(frame() * 2, 2, 100)
        store.append(frame() * 16, 16, 100)
        store.allow_flush(23)
        flush(store)
        return store

    def test_it_is_flushed_and_not_seen(self, large, allocator):
        assert (large.flushed_offset, large.high_watermark) == (23, 5)
        assert allocator.available() == BUDGET
        assert drain(large, max_bytes=10_000) == list(range(5))
        assert large.read(5, KIB) == b""
        with pytest.raises(OffsetOutOfRange):
            large.read(6, KIB)
        assert large.offset_for_time(100) == 5

    def test_it_is_seen_at_once_when_it_is_published(self, large):
        large.publish(23)
        assert drain(large) == list(range(23))

    def test_retention_takes_nothing_that_was_not_seen(self, filesystem, allocator):
        store = make(filesystem, allocator, retention_bytes=0)
        for _ in range(4):
            store.append(frame() * 9, 9, 100)
        store.allow_flush(36)
        flush(store)
        assert store.retention_start(1 << 40) is None
        store.publish(36)
        assert store.retention_start(1 << 40) == 27
