"""The engine machine: an engine whose three threads step in any order, every kind of end, and what must hold after
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from journal.constants import KIB
from journal.errors import JournalPoisoned, OutcomeForgotten
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.testing import Fault, MemoryFilesystem, Operation, PowerCut, cut_power_at
from journal.transaction_states import State as Ended
from journal.transaction_states import TransactionNumber
from tests.engine.engine_steps import EngineSteps
from tests.support.engine_room import Room, xid_of


class EngineMachine(EngineSteps):
    """Cut, killed and failed between any two steps, it has what a prefix of ``history`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, dict[int, bytes]] = {}
        self.noted: dict[int, int] = {}

    # -- how it ends ------------------------------------------------------------------------------

    @rule(
        seed=st.integers(0, 1 << 16),
        cuts=st.lists(st.tuples(st.integers(1, 25), st.integers(0, 99)), max_size=2),
    )
    def cut_power(self, seed, cuts) -> None:
        self.recover(self.room.inner.crash_clone(seed), cuts)

    @rule(seed=st.integers(0, 1 << 16), nth=st.integers(1, 12), flusher=st.booleans())
    def cut_power_amid_work(self, seed, nth, flusher) -> None:
        self.room.plan.on_operation = cut_power_at(nth)
        try:
            if flusher:
                self.ask_for_a_checkpoint()
                self.run_jobs()
                self.look()
                self.run_jobs()
            self.settle()
        except PowerCut:
            pass
        self.room.plan.on_operation = None
        self.recover(self.room.inner.crash_clone(seed), [])

    @rule(cuts=st.lists(st.tuples(st.integers(1, 25), st.integers(0, 99)), max_size=1))
    def kill(self, cuts) -> None:
        self.recover(self.room.inner.kill_clone(), cuts)

    @rule(
        kind=st.sampled_from((Operation.FORCE, Operation.WRITE, Operation.FORCE_DIRECTORY, Operation.RENAME)),
        nth=st.integers(1, 4),
        short=st.sampled_from((0, 4096, 6000)),
        seed=st.integers(0, 1 << 16),
        power=st.booleans(),
    )
    def fail(self, kind, nth, short, seed, power) -> None:
        """An error; then the process stops, the next one starts, and perhaps the power goes after that."""
        self.room.plan.faults.append(Fault(kind, nth=nth, short=short))
        try:
            self.ask_for_a_checkpoint()
            self.run_jobs()
            self.settle()
        except (OSError, JournalPoisoned):
            self.engine.fail("as planned")
            self.recover(self.room.inner.kill_clone(), [])
            if power:
                self.recover(self.room.inner.crash_clone(seed), [])
        else:
            self.room.plan.faults.clear()

    def recover(self, inner: MemoryFilesystem, cuts) -> None:
        visible = {s.number: s.high_watermark for s in self.stores()}
        known = self.history.upto(self.acknowledged)
        for nth, seed in cuts:
            try:
                self.again(inner, nth)
            except PowerCut:
                inner = inner.crash_clone(seed)
            else:
                return
        self.again(inner, 0)
        for number, seen in visible.items():
            if number in known.logs and number in self.engine.catalog.stores:
                assert self.engine.catalog.stores[number].high_watermark >= seen, "a reader saw what is gone"

    def again(self, inner: MemoryFilesystem, cut_at: int) -> None:
        room = Room(inner, self.settings, cut_at=cut_at)
        headers = [written.header for written in room.engine.journal._files]
        end = next(h.previous_end for h in headers if h.first_lsn > self.history.decisions[-1][0])
        lost = self.history.cut(end)
        assert not [d for d in lost if d[0] <= self.acknowledged], "acknowledged, and gone"
        self.adopt(room)
        self.compare()

    # -- what must hold ---------------------------------------------------------------------------

    def compare(self) -> None:
        """Everything, after a start: the state is that of a prefix of the history, no more and no less."""
        state = self.state
        catalog, transactions = self.engine.catalog, self.engine.transactions
        topics = {name: [s.number for s in t.partitions] for name, t in catalog.topics.items()}
        assert self.without_archive(topics) == state.topics
        for name, settings in state.settings.items():
            assert catalog.topics[name].settings == settings
            assert {store.settings for store in catalog.topics[name].partitions} == {settings}
        assert catalog.next_partition == state.next_partition
        for number, log in state.logs.items():
            if self.room.store(number).internal:
                continue
            assert self.room.store(number).start_offset == state.starts[number]
            assert self.room.values(number) == log[state.starts[number] :]
        assert {tuple(n) for n in transactions.live} == set(state.live)
        assert self.room.prepared() == {xid_of(t.xid) for t in state.live.values()}
        for number, how in state.outcomes.items():
            self.compare_outcome(TransactionNumber(*number), how)
        self.compare_frames()

    def compare_frames(self) -> None:
        """The frames that readers have seen are the same again, with offsets and append times."""
        for store in self.stores():
            again = dict(self.frames_of(store, store.start_offset))
            for offset, data in self.seen.get(store.number, {}).items():
                assert again.get(offset, data) == data

    def frames_of(self, store: MessageStore, offset: int) -> Iterator[tuple[int, bytes]]:
        """What readers can see of a log from an offset on, by the frames' offsets."""
        while offset < store.high_watermark:
            data = store.read(offset, 64 * KIB)
            for position, length, first, count in frame.walk(data):
                yield first, data[position : position + length]
                offset = first + count

    @invariant()
    def note_what_readers_see(self) -> None:
        for store in self.stores():
            seen = self.seen.setdefault(store.number, {})
            seen.update(self.frames_of(store, max(self.noted.get(store.number, 0), store.start_offset)))
            self.noted[store.number] = store.high_watermark

    def compare_outcome(self, number, how) -> None:
        transactions = self.engine.transactions
        if how == "forgotten":
            with pytest.raises(OutcomeForgotten):
                transactions.outcome(number)
            return
        try:
            outcome = transactions.outcome(number)
        except OutcomeForgotten:
            # A number that had ended without a record (presumed abort) has since come to lie below a mark.
            assert how == "presumed"
            return
        assert outcome.state is (Ended.COMMITTED if how == "committed" else Ended.ROLLED_BACK)

    @invariant()
    def readers_see_one_moment(self) -> None:
        """In all partitions at once, and only of what is forced."""
        ends = {s.number: s.high_watermark for s in self.stores()}
        moments = [self.engine.forced_lsn]
        if not self.engine.large_commits.are_shown:
            moments.append(self.applying_from)
        states = [self.history.upto(min(moment, self.engine.forced_lsn)) for moment in moments]
        logs = [{n: len(state.logs.get(n, ())) for n in ends} for state in states]
        assert ends in logs

    def without_archive(self, topics):
        assert OUTCOMES_TOPIC not in topics
        return topics

    def teardown(self) -> None:
        if hasattr(self, "room"):
            self.recover(self.room.inner.crash_clone(1), [])
