"""Test what goes from a partition's tail to its segments, when, and what a start finds of it."""

import threading
from itertools import pairwise

import pytest

from journal.buffers import PooledAllocator
from journal.constants import INDEX_INTERVAL_BYTES, KIB, MIB
from journal.errors import CorruptJournal, MemoryExhausted
from journal.formats.index import MAX_GAP, OFFSET_ENTRY, TIME_ENTRY, anchors
from journal.log.message_store import MessageStore
from journal.log.segment import run_on
from journal.testing import Fault, FaultFilesystem, FaultPlan, MemoryFilesystem, Operation
from journal.vfs.open_files import OpenFiles
from tests.log.message_store_scene import (
    BUDGET,
    DIRECTORY,
    drain,
    fill,
    flush,
    frame,
    make,
    origin,
    reopened,
    with_directory,
)


def contents(filesystem):
    """The files of the first segment, by kind."""
    found = {}
    for name in filesystem.list_directory(DIRECTORY):
        file = filesystem.open(f"{DIRECTORY}/{name}")
        found[name.rpartition(".")[2]] = file.read(0, file.size())
        file.close()
    return found


class TestFlushing:
    def test_only_published_messages_are_flushed(self, store):
        fill(store, 5)
        store.append(frame(), 1, 1_000)
        flush(store)
        assert (store.flushed_offset, store.unflushed_messages, store.unflushed_bytes) == (5, 1, 100)
        assert store.oldest_unflushed_time == 1_000
        assert store.begin_flush() is None

    def test_a_flush_without_a_new_index_entry_opens_no_index(self, filesystem, allocator, monkeypatch):
        store = make(filesystem, allocator, segment_bytes=MIB)
        opened = []
        acquire = store._files.acquire
        monkeypatch.setattr(
            store._files, "acquire", lambda path, create=False: opened.append(path) or acquire(path, create)
        )
        for _ in range(2):
            fill(store, 5)
            flush(store)
            assert [path.rpartition(".")[2] for path in opened] == ["log"]
            opened.clear()
        fill(store, 2 * INDEX_INTERVAL_BYTES // 100)
        flush(store)
        assert {path.rpartition(".")[2] for path in opened} == {"log", "index", "time"}
        opened.clear()
        fill(store, 5)
        flush(store)
        assert [path.rpartition(".")[2] for path in opened] == ["log"]
        store._files.close()

    def test_a_segment_has_no_index_files_before_it_has_an_entry_and_the_same_ones_then(
        self, filesystem, allocator, caplog
    ):
        store = make(filesystem, allocator, segment_bytes=MIB)
        for number in range(1, 1 + MAX_GAP // 1_000):
            fill(store, 10)
            flush(store)
            entries = len(contents(filesystem).get("index", b"")) // OFFSET_ENTRY.size
            kinds = {"log", "index", "time"} if entries else {"log"}
            assert (entries > 0, contents(filesystem).keys()) == (
                number * 1_000 - 100 >= INDEX_INTERVAL_BYTES,
                kinds,
            )
            assert drain(store) == list(range(store.end_offset))
            assert store.offset_for_time(store.last_time) < store.end_offset
            assert store.offset_for_time(1) == 0
        assert caplog.records == []
        found = contents(filesystem)
        whole = make(again := with_directory(MemoryFilesystem()), allocator, segment_bytes=MIB)
        fill(whole, store.end_offset)
        flush(whole)
        assert found == contents(again)
        store._files.close()

    def test_a_long_segment_without_an_entry_has_index_files_so_that_missing_ones_are_seen(
        self, filesystem, allocator, caplog
    ):
        store = make(filesystem, allocator, segment_bytes=MIB)
        fill(store, 1)
        flush(store)
        fill(store, 1, size=MAX_GAP)
        flush(store)
        found = contents(filesystem)
        assert (found["index"], found["time"]) == (b"", b"")
        assert drain(store) == [0, 1]
        assert caplog.records == []
        filesystem.unlink(f"{DIRECTORY}/{0:032d}.index")
        assert drain(reopened(store, filesystem, allocator)) == [0, 1]
        assert any("is missing" in record.message for record in caplog.records)
        store._files.close()

    def test_index_files_left_by_an_unknown_past_are_not_gone_on_with(self, filesystem, allocator):
        past = make(filesystem, allocator, segment_bytes=MIB)
        fill(past, 3 * MAX_GAP // 100)
        flush(past)
        past._files.close()
        stale = contents(filesystem)
        filesystem.unlink(f"{DIRECTORY}/{0:032d}.log")
        store = make(filesystem, allocator, segment_bytes=MIB)
        fill(store, 1)
        flush(store)
        fill(store, INDEX_INTERVAL_BYTES // 100 + 1)
        flush(store)
        assert len(stale["index"]) > OFFSET_ENTRY.size == len(contents(filesystem)["index"])
        assert TIME_ENTRY.size == len(contents(filesystem)["time"])
        store._files.close()

    def test_index_files_beside_a_segment_left_by_an_unknown_past_are_emptied(self, filesystem, allocator):
        past = make(filesystem, allocator, segment_bytes=MIB)
        fill(past, MAX_GAP // 100)
        flush(past)
        past._files.close()
        store = make(filesystem, allocator, segment_bytes=MIB)
        fill(store, 1)
        flush(store)
        assert (contents(filesystem)["index"], contents(filesystem)["time"]) == (b"", b"")
        store._files.close()

    def test_one_job_is_under_way_at_a_time(self, store):
        fill(store, 5)
        job = store.begin_flush()
        fill(store, 5)
        assert store.begin_flush() is None
        job.run()
        store.finish_flush(job)
        assert store.flushed_offset == 5
        flush(store)
        assert store.flushed_offset == 10

    def test_a_job_that_has_not_run_is_not_finished(self, store):
        fill(store, 5)
        job = store.begin_flush()
        with pytest.raises(AssertionError):
            store.finish_flush(job)
        job.run()
        store.finish_flush(job)
        with pytest.raises(AssertionError):
            store.finish_flush(job)

    def test_appends_and_reads_go_on_while_a_job_runs(self, store):
        fill(store, 15)
        job = store.begin_flush()
        thread = threading.Thread(target=job.run)
        thread.start()
        fill(store, 50)
        assert drain(store) == list(range(65))
        thread.join()
        store.finish_flush(job)
        flush(store)
        assert drain(store) == list(range(65))

    def test_flushing_gives_the_memory_back(self, store, allocator):
        fill(store, 100, size=KIB)
        assert allocator.available() < BUDGET - 100 * KIB
        flush(store)
        assert allocator.available() == BUDGET

    def test_segments_roll_between_appends_within_their_size(self, store):
        fill(store, 25)
        store.append(frame() * 9, 9, 300)
        fill(store, 1, size=2_000)
        flush(store)
        fill(store, 1)
        flush(store)
        assert [(s.base_offset, s.end_offset, s.frame_bytes) for s in store.segments] == [
            (0, 10, 1_000),
            (10, 20, 1_000),
            (20, 25, 500),
            (25, 34, 900),
            (34, 35, 2_000),
            (35, 36, 100),
        ]
        assert drain(store) == list(range(36))

    def test_segments_know_the_times_of_their_messages(self, store):
        fill(store, 12)
        flush(store)
        fill(store, 3)
        flush(store)
        assert [(s.first_time, s.last_time) for s in store.state().segments] == [(10, 100), (110, 150)]

    def test_without_memory_an_append_changes_nothing(self, filesystem):
        store = make(filesystem, PooledAllocator(64 * KIB))
        fill(store, 1, size=60 * KIB)
        with pytest.raises(MemoryExhausted):
            store.append(frame(60 * KIB), 1, 99)
        assert (store.end_offset, store.last_time) == (1, 10)
        flush(store)
        fill(store, 1, size=60 * KIB)
        assert drain(store) == [0, 1]

    def test_what_was_flushed_survives_a_power_cut_of_any_seed(self, allocator):
        filesystem = with_directory(MemoryFilesystem())
        store = make(filesystem, allocator)
        fill(store, 25)
        flush(store)
        fill(store, 10)
        flush(store)
        for seed in range(30):
            clone = filesystem.crash_clone(seed)
            assert drain(reopened(store, clone, allocator)) == list(range(35))

    @pytest.mark.parametrize("durably", [True, False])
    def test_the_indexes_of_a_closed_segment_survive_every_power_cut_and_prove_it(self, allocator, durably):
        filesystem = with_directory(MemoryFilesystem())
        store = make(filesystem, allocator, segment_bytes=200_000)
        for _ in range(5):
            fill(store, 60, size=1_000)
            job = store.begin_flush()
            job.run(durably)
            store.finish_flush(job)
        if not durably:
            store._files.force()
            filesystem.force_directory("partitions")
        closed = store.sealed_segments
        assert closed
        for seed in range(20):
            disk = filesystem.crash_clone(seed)
            for segment in closed:
                index = disk.open(segment.index_path)
                places = anchors(index.read(0, index.size()), segment.seed, segment.end_offset, segment.size)
                assert len(places) == segment.frame_bytes // (17 * 1_000)
                read = disk.open(segment.path).read
                running = segment.seed
                for start, end in pairwise([64, *(place.position for place in places), segment.size]):
                    running = run_on(read, running, start, end)
                    assert running == next((p.running for p in places if p.position == end), segment.checksum)

    def test_a_later_unfinished_flush_does_not_hurt_what_a_checkpoint_holds(self, allocator):
        filesystem = with_directory(MemoryFilesystem())
        store = make(filesystem, allocator)
        fill(store, 15)
        flush(store)
        state = store.state()
        fill(store, 30)
        store.begin_flush().run()
        for seed in range(30):
            again = MessageStore.restore(state, OpenFiles(filesystem.crash_clone(seed)), allocator, origin())
            again.compare()
            for offset in range(12, 45):
                again.replay(frame(), offset, 1, offset * 10 + 10)
            again.publish(45)
            flush(again)
            assert drain(again) == list(range(45))

    @pytest.mark.parametrize("kind", [Operation.WRITE, Operation.FORCE, Operation.FORCE_DIRECTORY])
    def test_a_failure_reaches_the_caller_and_nothing_counts_as_flushed(self, allocator, kind):
        store = make(FaultFilesystem(with_directory(MemoryFilesystem()), FaultPlan([Fault(kind)])), allocator)
        fill(store, 5)
        job = store.begin_flush()
        with pytest.raises(OSError, match=r"[Ii]nput/output"):
            job.run()
        with pytest.raises(AssertionError):
            store.finish_flush(job)
        assert store.flushed_offset == 0
        assert drain(store) == list(range(5))

    def test_a_segment_left_by_an_unknown_past_is_begun_anew(self, store, filesystem, allocator):
        fill(store, 8)
        flush(store)
        fresh = make(filesystem, allocator)
        fill(fresh, 3)
        flush(fresh)
        assert filesystem.open(f"{DIRECTORY}/{0:032d}.log").size() == 64 + 300
        assert drain(fresh) == [0, 1, 2]

    def test_a_flush_takes_no_more_than_it_is_asked_to_but_at_least_one_append(self, store):
        fill(store, 12)
        for most, end in ((350, 3), (1, 4), (0, 5), (500, 10), (None, 12)):
            job = store.begin_flush(most)
            job.run()
            store.finish_flush(job)
            assert store.flushed_offset == end
        assert drain(store) == list(range(12))


class TestRecovery:
    def test_a_store_is_restored_from_its_state(self, store, filesystem, allocator):
        fill(store, 25)
        flush(store)
        store.move_start(3)
        again = reopened(store, filesystem, allocator)
        assert again.state() == store.state()
        assert (again.start_offset, again.flushed_offset, again.high_watermark, again.end_offset) == (
            3,
            25,
            25,
            25,
        )
        assert again.last_time == 250
        assert drain(again) == list(range(3, 25))

    def test_unflushed_messages_are_not_in_the_state(self, store):
        fill(store, 5)
        flush(store)
        before = store.state()
        fill(store, 5)
        assert store.state() == before

    def test_replay_skips_what_the_segments_hold(self, store, filesystem, allocator):
        fill(store, 5)
        flush(store)
        again = reopened(store, filesystem, allocator)
        again.replay(frame(), 4, 1, 50)
        again.replay(frame() * 5, 0, 5, 50)
        assert again.unflushed_messages == 0
        again.replay(frame() * 2, 5, 2, 60)
        again.publish(7)
        assert drain(again) == list(range(7))

    def test_replay_takes_frames_that_were_stamped_already(self, store):
        view = store.append(frame() * 2, 2, 10)
        twin = MessageStore(
            18, "orders", 1, store.settings, OpenFiles(MemoryFilesystem()), PooledAllocator(MIB), origin()
        )
        twin.replay(bytes(view), 0, 2, 10)
        twin.publish(2)
        assert drain(twin) == [0, 1]

    @pytest.mark.parametrize(("base", "count"), [(6, 1), (4, 2), (100, 5)])
    def test_replay_refuses_a_gap_and_an_overlap(self, store, base, count):
        fill(store, 5)
        with pytest.raises(CorruptJournal, match=rf"orders-0 .* offset 5, .* offsets {base} to") as caught:
            store.replay(frame() * count, base, count, 99)
        assert caught.value.path == DIRECTORY
        assert store.end_offset == 5

    def test_appending_goes_on_after_a_restart_in_the_same_segment(self, store, filesystem, allocator):
        fill(store, 5)
        flush(store)
        again = reopened(store, filesystem, allocator)
        fill(again, 3)
        flush(again)
        assert [(s.base_offset, s.end_offset) for s in again.state().segments] == [(0, 8)]
        assert drain(again) == list(range(8))

    def test_the_first_flush_after_a_restart_leaves_indexes_alone_that_need_nothing(
        self, store, filesystem, allocator
    ):
        fill(store, 5)
        flush(store)
        operations = []
        plan = FaultPlan(on_operation=lambda kind, path: operations.append((kind, path.rpartition(".")[2])))
        again = reopened(store, FaultFilesystem(filesystem, plan), allocator)
        fill(again, 1)
        operations.clear()
        flush(again)
        assert operations == [(Operation.WRITE, "log"), (Operation.FORCE, "log")]
