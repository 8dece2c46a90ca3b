import errno
import threading

import msgspec
import pytest
from zope.interface.verify import verifyObject

from journal.buffers.budget import BudgetAllocator
from journal.constants import KIB, MIB
from journal.errors import CorruptJournal, MemoryExhausted, OffsetOutOfRange
from journal.filesystem import OSFilesystem
from journal.frame import decode_run, encode, encode_inner, encode_wrapper, walk
from journal.interfaces import IMessageStore
from journal.message_store import MessageStore, StoreState
from journal.open_files import OpenFiles
from journal.settings import TopicSettings
from journal.testing import Fault, FaultFilesystem, FaultPlan, MemoryFilesystem, Operation

DIRECTORY = "partitions/orders-0.17"
BUDGET = 8 * MIB


@pytest.fixture(params=["memory", "disk"])
def filesystem(request, tmp_path):
    return with_directory(MemoryFilesystem() if request.param == "memory" else OSFilesystem(tmp_path))


def with_directory(filesystem):
    filesystem.make_directory("partitions")
    filesystem.force_directory("")
    return filesystem


@pytest.fixture
def allocator():
    return BudgetAllocator(BUDGET, poison=True)


@pytest.fixture
def store(filesystem, allocator):
    return make(filesystem, allocator)


def make(filesystem, allocator, **settings):
    settings = TopicSettings(**{"segment_bytes": 1_000, **settings})
    return MessageStore(17, "orders", 0, settings, OpenFiles(filesystem), allocator)


def frame(size=100):
    return encode(b"v" * (size - 36), 1)


def fill(store, count, size=100):
    for _ in range(count):
        store.append(frame(size), 1, store.last_time + 10)
    store.publish(store.end_offset)


def flush(store):
    job = store.begin_flush()
    job.run()
    store.finish_flush(job)


def in_memory_and_on_disk(store):
    yield
    flush(store)
    yield


def offsets(data):
    return [offset for _, _, offset, _ in walk(data)]


def drain(store, max_bytes=450):
    offset, found = store.start_offset, []
    while data := store.read(offset, max_bytes):
        found += [message.offset for message in decode_run(data, offset)]
        offset = found[-1] + 1
    return found


def reopened(store, filesystem, allocator):
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(store.state()), type=StoreState)
    again = MessageStore.restore(state, OpenFiles(filesystem), allocator)
    again.cut()
    return again


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
        assert offsets(store.plan_read(3, 200).run_now()) == [3, 4]
        flush(store)
        plan = store.plan_read(3, 200)
        assert plan.run_now() is None
        assert offsets(plan.run()) == [3, 4]

    def test_a_plan_in_the_page_cache_is_carried_out_at_once(self, filesystem, allocator):
        store = make(filesystem, allocator)
        fill(store, 20)
        flush(store)
        plan = store.plan_read(3, 200)
        data = plan.run_now()
        assert data is None or offsets(data) == [3, 4]
        plan.close()

    def test_a_planned_read_survives_appends_flushes_and_the_unlinking_of_its_file(self, store, filesystem):
        fill(store, 25)
        flush(store)
        plan = store.plan_read(3, 10_000)
        store.move_start(22)
        for path in store.take_dropped():
            filesystem.unlink(path)
        fill(store, 30)
        flush(store)
        found = []
        thread = threading.Thread(target=lambda: found.extend(offsets(plan.run())))
        thread.start()
        thread.join()
        assert found == list(range(3, 10))

    def test_a_plan_from_memory_survives_the_memory(self, store):
        fill(store, 5)
        plan = store.plan_read(0, 10_000)
        flush(store)
        assert offsets(plan.run()) == [0, 1, 2, 3, 4]

    def test_a_plan_is_carried_out_once_and_gives_its_file_back(self, filesystem, allocator):
        files = OpenFiles(filesystem, limit=0)
        store = MessageStore(17, "orders", 0, TopicSettings(), files, allocator)
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


class TestFlushing:
    def test_only_published_messages_are_flushed(self, store):
        fill(store, 5)
        store.append(frame(), 1, 1_000)
        flush(store)
        assert (store.flushed_offset, store.unflushed_messages, store.unflushed_bytes) == (5, 1, 100)
        assert store.oldest_unflushed_time == 1_000
        assert store.begin_flush() is None

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
        fill(store, 1_000, size=KIB)
        assert allocator.available() < BUDGET - 1_000 * KIB
        flush(store)
        assert allocator.available() == BUDGET

    def test_segments_roll_between_appends_within_their_size(self, store):
        fill(store, 25)
        store.append(frame() * 9, 9, 300)
        fill(store, 1, size=2_000)
        flush(store)
        fill(store, 1)
        flush(store)
        assert [(s.base_offset, s.end_offset, s.size) for s in store.state().segments] == [
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
        store = make(filesystem, BudgetAllocator(64 * KIB))
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

    def test_a_later_unfinished_flush_does_not_hurt_what_a_checkpoint_holds(self, allocator):
        filesystem = with_directory(MemoryFilesystem())
        store = make(filesystem, allocator)
        fill(store, 15)
        flush(store)
        state = store.state()
        fill(store, 30)
        store.begin_flush().run()
        for seed in range(30):
            again = MessageStore.restore(state, OpenFiles(filesystem.crash_clone(seed)), allocator)
            again.cut()
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
        assert filesystem.open(f"{DIRECTORY}/{0:032d}.log").size() == 300
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
            18, "orders", 1, store.settings, OpenFiles(MemoryFilesystem()), BudgetAllocator(MIB)
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
        assert dropped == [f"{DIRECTORY}/{10:032d}.{kind}" for kind in ("log", "index", "time")]
        assert all(filesystem.exists(path) for path in dropped)
        assert store.take_dropped() == []
        assert drain(store) == [20, 21, 22, 23, 24]

    def test_an_active_segment_wholly_below_goes_when_another_is_begun(self, store):
        fill(store, 5)
        flush(store)
        store.move_start(5)
        assert store.take_dropped() == []
        fill(store, 1)
        flush(store)
        assert len(store.take_dropped()) == 3
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
        assert sorted(paths) == sorted(f"{DIRECTORY}/{name}" for name in filesystem.list_directory(DIRECTORY))

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
