"""Test the allocator against a model: what each buffer holds, and how many bytes there are in all."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.buffers import POISON, LeakDetector, PooledAllocator
from journal.buffers.size_classes import CHUNK, PAGE, rounded
from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted

SIZES = st.one_of(
    st.integers(0, 600), st.integers(0, 9 * KIB), st.integers(0, 400 * KIB),
    st.sampled_from((2 * MIB, CHUNK, CHUNK + 1)),
)  # fmt: skip


def ends(view):
    """The first and the last eight bytes, or all of a short one."""
    return [view] if len(view) < 16 else [view[:8], view[-8:]]


def mark(number, view):
    return (number.to_bytes(8, "little") * 2)[: len(view)]


class AllocatorMachine(RuleBasedStateMachine):
    """Each buffer's bytes say whose they are: its number, at both ends."""

    @initialize(budget=st.sampled_from((64 * KIB, MIB, 20 * MIB, 40 * MIB)), poison=st.booleans())
    def begin(self, budget, poison):
        self.lost = []
        self.allocator = PooledAllocator(budget, poison, leaks=LeakDetector(1, self.lost.append))
        self.live = {}
        self.references = {}
        self.reserved = []
        self.number = 0

    @rule(size=SIZES)
    def allocate(self, size):
        free = self.allocator.budget - self.allocator.usage().reserved - self.allocator.usage().used
        try:
            buffer = self.allocator.allocate(size)
        except MemoryExhausted:
            assert self.allocator.available() < max(PAGE, rounded(size))
            assert free < max(PAGE, rounded(size))
            return
        assert len(buffer.view) == size
        self.number += 1
        for end in ends(buffer.view):
            end[:] = mark(self.number, end)
        self.live[self.number] = buffer
        self.references[self.number] = 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def retain(self, data):
        number = data.draw(st.sampled_from(sorted(self.live)))
        self.live[number].retain()
        self.references[number] += 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data):
        number = data.draw(st.sampled_from(sorted(self.live)))
        buffer = self.live[number]
        self.references[number] -= 1
        late = buffer.view[:8]
        buffer.release()
        if not self.references[number]:
            del self.live[number]
            assert not self.allocator.pool.poison or set(bytes(late)) <= {POISON}
            with pytest.raises(RuntimeError, match="released twice"):
                buffer.release()
            with pytest.raises(ValueError, match="released"):
                buffer.view[:1]

    @rule(size=st.integers(0, 3 * MIB))
    def reserve(self, size):
        try:
            self.allocator.reserve(size)
        except MemoryExhausted:
            assert self.allocator.available() < size
        else:
            self.reserved.append(size)

    @precondition(lambda self: self.reserved)
    @rule()
    def unreserve(self):
        self.allocator.unreserve(self.reserved.pop())

    @rule()
    def trim(self):
        self.allocator.trim()

    @rule()
    def look(self):
        self.allocator.available()

    @invariant()
    def nobody_has_touched_what_another_holds(self):
        for number, buffer in self.live.items():
            assert all(bytes(end) == mark(number, end) for end in ends(buffer.view))

    @invariant()
    def the_budget_is_kept_by_what_is_used_reserved_and_kept(self):
        usage = self.allocator.usage()
        assert usage.used + usage.reserved + usage.kept <= self.allocator.budget
        assert usage.reserved == sum(self.reserved)
        assert usage.used >= sum(len(buffer.view) for buffer in self.live.values())
        assert min(usage) >= 0

    def teardown(self):
        if not hasattr(self, "allocator"):
            return
        for number, buffer in self.live.items():
            for _ in range(self.references[number]):
                buffer.release()
        self.live.clear()
        for size in self.reserved:
            self.allocator.unreserve(size)
        assert self.allocator.available() == self.allocator.budget
        whole = min(self.allocator.budget, CHUNK)
        self.allocator.allocate(whole).release()  # all has become one again
        assert self.allocator.usage().chunks <= 1 + self.allocator.budget // CHUNK
        for _ in range(3):
            self.allocator.trim()
        usage = self.allocator.usage()
        assert usage.used == usage.fragmented == 0
        assert usage.kept <= 4 * MIB
        assert not self.lost


TestAllocatorMachine = pytest.mark.slow(AllocatorMachine.TestCase)
