"""Test the store against a plain list of messages, through appends, flushes, retention, crashes and replays; some
messages share their bytes with the log of another queue.

Seen to fail: without a reference to what is lent or to the chunk that goes on behind it, with another place in the
lender's memory, without places in a long run, and with the bytes lent without a reference of who lends.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.buffers import PooledAllocator
from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted, OffsetOutOfRange
from journal.formats.frame import decode_run, encode, encode_inner, encode_wrapper, walk
from journal.log.message_store import MessageStore
from journal.log.shared_run import SharedRun
from journal.log.tail import Tail
from journal.settings import TopicSettings
from journal.testing import MemoryFilesystem
from journal.vfs.open_files import OpenFiles
from tests.log.message_store_scene import origin
from tests.support.thoroughness import examples

BUDGET = 2 * MIB
SIZES = st.sampled_from((0, 10, 300, 5 * KIB, 40 * KIB))


class StoreMachine(RuleBasedStateMachine):
    """The model is a list of values; the journal is a list of all that was appended."""

    @initialize(segment_bytes=st.sampled_from((1, 10 * KIB, 200 * KIB)), limit=st.sampled_from((0, 2, 512)))
    def begin(self, segment_bytes, limit):
        self.filesystem = MemoryFilesystem()
        self.filesystem.make_directory("partitions")
        self.filesystem.force_directory("")
        self.settings = TopicSettings(segment_bytes=segment_bytes, retention_bytes=0)
        self.limit = limit
        self.allocator = PooledAllocator(BUDGET, poison=True)
        self.origin = origin()
        self.store = self.make()
        self.make_other()
        self.checkpoint = self.store.state()
        self.values = []
        self.times = []
        self.records = []
        self.published = self.start = self.allowed = 0
        self.job = None
        self.plans = []

    def make(self):
        files = OpenFiles(self.filesystem, self.limit)
        return MessageStore(17, "orders", 0, self.settings, files, self.allocator, self.origin)

    def accept(self, frames, values, gap):
        time = (self.times[-1] if self.times else 0) + gap
        try:
            view = self.store.append(frames, len(values), time)
        except MemoryExhausted:
            assert self.allocator.available() < 64 * KIB
            return
        self.records.append((bytes(view), len(self.values), len(values), time))
        self.values += values
        self.times += [time] * len(values)

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=5), gap=st.integers(0, 3))
    def append_run(self, sizes, gap):
        values = [b"%d " % (len(self.values) + n) + b"v" * size for n, size in enumerate(sizes)]
        self.accept(b"".join(encode(value, 1) for value in values), values, gap)

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=5), gap=st.integers(0, 3))
    def append_wrapper(self, sizes, gap):
        values = [b"%d " % (len(self.values) + n) + b"w" * size for n, size in enumerate(sizes)]
        inner = b"".join(encode_inner(n, value, 1) for n, value in enumerate(values))
        self.accept(encode_wrapper(inner, len(values), 1), values, gap)

    def make_other(self):
        self.other, self.of_other = Tail(self.allocator), []

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=3), gap=st.integers(0, 3), lends=st.booleans())
    def append_shared(self, sizes, gap, lends):
        """Another queue's log takes the same messages: before this one, which borrows its bytes then, or after it."""
        time = (self.times[-1] if self.times else 0) + gap
        values = [b"%d " % (len(self.values) + n) + b"s" * size for n, size in enumerate(sizes)]
        shared = SharedRun(memoryview(b"".join(encode(value, 1) for value in values)))
        try:
            for is_here in (lends, not lends):
                self.take_shared(shared, values, time) if is_here else self.lend(shared, values, time)
        except MemoryExhausted:
            assert self.allocator.available() < 64 * KIB
        finally:
            shared.release()

    def take_shared(self, shared, values, time):
        self.store.replay(shared.frames, len(self.values), len(values), time, 0, shared)
        self.records.append((bytes(shared.frames), len(self.values), len(values), time))
        self.values += values
        self.times += [time] * len(values)

    def lend(self, shared, values, time):
        self.other.append_shared(shared, len(values), time)
        self.of_other += values

    @precondition(lambda self: hasattr(self, "other") and len(self.other))
    @rule(part=st.floats(0, 1), max_bytes=st.sampled_from((1, 10 * KIB, MIB)))
    def drop_other(self, part, max_bytes):
        offset, found = self.other.base_offset, []
        while offset < self.other.end_offset:
            frames = self.other.read(offset, self.other.end_offset, max_bytes)
            found += decode_run(frames.data, offset)
            offset = frames.end
        assert [each.value for each in found] == self.of_other[self.other.base_offset :]
        self.other.drop(round(part * len(self.other)))

    @rule(back=st.integers(0, 3))
    def publish(self, back):
        least = max(self.published, self.allowed)
        ends = [base + count for _, base, count, _ in self.records if base + count >= least]
        if ends:
            self.published = ends[-1 - min(back, len(ends) - 1)]
            self.store.publish(self.published)

    @rule()
    def allow_flush(self):
        self.allowed = len(self.values)
        self.store.allow_flush(self.allowed)

    @precondition(lambda self: self.job is None)
    @rule()
    def begin_flush(self):
        self.job = self.store.begin_flush()
        assert (self.job is None) == (self.store.flushed_offset >= max(self.published, self.allowed))

    @precondition(lambda self: self.job is None)
    @rule()
    def flush_at_once(self):
        self.begin_flush()
        if self.job is not None:
            self.finish_flush()

    @precondition(lambda self: self.job is not None)
    @rule()
    def finish_flush(self):
        self.job.run()
        self.store.finish_flush(self.job)
        assert self.store.flushed_offset == self.job.end_offset
        self.job = None

    @rule()
    def take_checkpoint(self):
        self.checkpoint = self.store.state()
        for path in self.store.take_dropped():
            if self.filesystem.exists(path):  # a short segment need not have index files
                self.filesystem.unlink(path)
        self.filesystem.force_directory(self.store.directory) if self.checkpoint.segments else None

    @precondition(lambda self: self.store.retention_start(0) is not None)
    @rule()
    def retain(self):
        start = self.store.retention_start(0)
        assert self.start < start <= min(self.published, self.store.flushed_offset)
        self.move_start(start)

    @rule(part=st.floats(0, 1))
    def truncate(self, part):
        self.move_start(int(part * self.published))

    def move_start(self, start):
        self.start = max(self.start, start)
        self.store.move_start(start)

    @rule(seed=st.integers(0, 1 << 16), lost=st.booleans())
    def crash(self, seed, lost):
        for plan, *_ in self.plans:
            plan.close()
        self.filesystem = self.filesystem.crash_clone(seed) if lost else self.filesystem.kill_clone()
        self.allocator = PooledAllocator(BUDGET, poison=True)
        self.make_other()
        files = OpenFiles(self.filesystem, self.limit)
        self.store = MessageStore.restore(self.checkpoint, files, self.allocator, self.origin)
        self.store.compare()
        self.plans, self.job = [], None
        for frames, base, count, time in self.records:
            if self.store.unflushed_bytes > MIB:
                self.store.publish(self.store.end_offset)
                job = self.store.begin_flush()
                job.run()
                self.store.finish_flush(job)
            self.store.replay(frames, base, count, time)
        self.published = len(self.values)
        self.store.publish(self.published)
        self.store.move_start(self.start)

    @precondition(lambda self: self.published > self.start)
    @rule(
        part=st.floats(0, 1), max_bytes=st.sampled_from((1, 1_000, 50 * KIB, MIB)), more=st.integers(1, 5_000)
    )
    def plan(self, part, max_bytes, more):
        offset = min(self.published - 1, self.start + int(part * (self.published - self.start)))
        until = min(self.published, offset + more)
        self.plans.append((self.store.plan_read(offset, max_bytes, until), offset, max_bytes, until))

    @precondition(lambda self: self.plans)
    @rule(now=st.booleans())
    def carry_out(self, now):
        plan, offset, max_bytes, until = self.plans.pop()
        found = plan.run_now() if now else plan.run()
        if found is None:
            found = plan.run()
        self.check(found.data, offset, max_bytes, until, found.end)

    def check(self, data, offset, max_bytes, until, end):
        messages = decode_run(data, offset)
        assert messages[0].offset == offset
        assert messages[-1].offset == end - 1
        [*_, (_, _, begin, _)] = walk(data)
        assert begin < until or begin <= offset
        for message in messages:
            assert message.value == self.values[message.offset]
        first = int.from_bytes(data[:4], "big")
        assert len(data) <= max(max_bytes, first)

    @rule(part=st.floats(0, 1))
    def find_time(self, part):
        if not self.published:
            return
        time = int(part * (self.times[-1] + 2))
        exact = next((n for n, at in enumerate(self.times[: self.published]) if at >= time), self.published)
        found = self.store.offset_for_time(time)
        assert self.start <= found <= max(exact, self.start)
        if exact >= self.store.flushed_offset:
            assert found == max(exact, self.start)

    @invariant()
    def ends_agree(self):
        if not hasattr(self, "store"):
            return
        store = self.store
        assert (store.start_offset, store.high_watermark) == (self.start, self.published)
        assert store.end_offset == len(self.values)
        assert store.flushed_offset <= max(self.published, self.allowed)
        for offset in (self.start - 1, self.published + 1):
            with pytest.raises(OffsetOutOfRange) as caught:
                store.plan_read(offset, 1)
            assert (caught.value.start, caught.value.end) == (self.start, self.published)

    def teardown(self):
        if not hasattr(self, "store"):
            return
        offset = self.start
        while offset < self.published:
            data = self.store.read(offset, 100 * KIB)
            end = decode_run(data, offset)[-1].offset + 1
            self.check(data, offset, 100 * KIB, self.published, end)
            offset = end
        assert self.store.read(self.published, KIB) == b""


TestStoreAgainstList = StoreMachine.TestCase
TestStoreAgainstList.settings = settings(max_examples=examples(150), stateful_step_count=40)
