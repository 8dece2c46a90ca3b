"""The steps of an engine's reactor, writer and flusher, and a list of what was decided."""

from __future__ import annotations

from collections import deque

from crc32c import crc32c
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from journal.constants import KIB
from journal.errors import MemoryExhausted
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import LogStartMoved, TopicDeleted
from journal.transaction_states import Cause, Totals, TransactionNumber
from tests.engine.engine_model import History
from tests.support.engine_room import SMALL, Room, run_of, xid_of

SIZES = st.sampled_from((0, 100, 5 * KIB, 40 * KIB, 150 * KIB))


class EngineSteps(RuleBasedStateMachine):
    """Reactor, writer and flusher take their steps one by one; ``history`` is what was decided."""

    settings = SMALL

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.acknowledged = 0
        self.names = 0
        self.values = 0
        self.writing = None
        self.lane: deque = deque()
        self.sent: dict[TransactionNumber, Totals] = {}
        self.applying_from = 0

    @initialize()
    def begin(self) -> None:
        self.adopt(Room(settings=self.settings))
        self.create_topic(partitions=2)
        self.settle()

    def adopt(self, room: Room) -> None:
        self.room, self.engine = room, room.engine
        application = self.engine.transactions.table.application
        application.small_bytes, application.slice_bytes = 20 * KIB, 60 * KIB
        self.engine.transactions.staging._budget = 100 * KIB  # most of what is added spills
        self.history.note(self.engine.last_lsn, "restart")
        self.acknowledged = max(self.acknowledged, self.engine.forced_lsn)
        self.writing, self.lane = None, deque()
        self.serials: dict[int, int] = {}

    def note(self, what: str, *arguments: object) -> None:
        lsn = self.engine.last_lsn
        self.history.note(lsn, what, *arguments)

        def deliver(answered: int) -> None:
            assert answered <= self.engine.forced_lsn, "answered before it was forced"
            self.acknowledged = max(self.acknowledged, answered)

        self.engine.when_forced(deliver, lsn)

    def fresh(self, size: int) -> bytes:
        self.values += 1
        return b"%d " % self.values + b"v" * size

    @property
    def state(self):
        return self.history.upto(1 << 62)

    free = precondition(lambda self: not self.engine.busy)

    # -- the reactor ------------------------------------------------------------------------------

    @free
    @rule(partitions=st.integers(1, 3), keep=st.sampled_from((None, 0, 100 * KIB)))
    def create_topic(self, partitions, keep=None) -> None:
        if len(self.state.topics) < 3:
            self.names += 1
            named = {} if keep is None else {"retention_bytes": keep}
            self.room.topic_unforced(f"t{self.names}", partitions, segment_bytes=64 * KIB, **named)
            self.note("create", f"t{self.names}", partitions)

    @free
    @rule(data=st.data())
    def delete_topic(self, data) -> None:
        catalog, transactions = self.engine.catalog, self.engine.transactions
        free = [
            name
            for name, topic in catalog.topics.items()
            if not any(transactions.holds_partition(store.number) for store in topic.partitions)
            and name != OUTCOMES_TOPIC
        ]
        if len(free) > 1:
            name = data.draw(st.sampled_from(free))
            self.engine.accept(TopicDeleted(name, self.engine.now()))
            self.note("delete", name)

    def partition(self, data) -> int:
        return data.draw(st.sampled_from(sorted(s.number for s in self.stores())))

    def stores(self):
        return [store for store in self.engine.catalog.stores.values() if not store.internal]

    @free
    @rule(data=st.data(), sizes=st.lists(SIZES, min_size=1, max_size=3))
    def send(self, data, sizes) -> None:
        number = self.partition(data)
        values = [self.fresh(size) for size in sizes]
        store = self.engine.catalog.stores[number]
        try:
            base = self.engine.append(store, run_of(*values), len(values))
        except MemoryExhausted:
            self.engine.want_flush()
        else:
            self.note("send", number, base, values)

    @free
    @rule(data=st.data(), sizes=st.lists(SIZES, min_size=1, max_size=4), session=st.integers(1, 2))
    def begin_transaction(self, data, sizes, session) -> None:
        serial = self.serials[session] = self.serials.get(session, 0) + 1
        number = TransactionNumber(self.engine.start_number << 32 | session, serial)
        self.sent[number] = Totals(0, 0, 0)
        for size in sizes:
            self.add(number, self.partition(data), size)

    def add(self, number, partition, size) -> None:
        value = self.fresh(size)
        frames = run_of(value)
        self.engine.transactions.add(number, partition, frames, 1)
        self.note("add", tuple(number), partition, value)
        sent = self.sent[number]
        self.sent[number] = Totals(sent.messages + 1, sent.requests + 1, crc32c(frames, sent.checksum))

    def some(self, data, prepared: bool):
        found = sorted(n for n, t in self.state.live.items() if t.prepared is prepared)
        return TransactionNumber(*data.draw(st.sampled_from(found))) if found else None

    @free
    @rule(data=st.data(), size=SIZES)
    def add_more(self, data, size) -> None:
        if number := self.some(data, prepared=False):
            self.add(number, self.partition(data), size)

    @free
    @rule(data=st.data())
    def prepare(self, data) -> None:
        if number := self.some(data, prepared=False):
            self.engine.transactions.prepare(number, xid_of(str(number)), self.sent[number])
            self.note("prepare", tuple(number), str(number))

    @free
    @rule(data=st.data(), prepared=st.booleans(), seen=st.integers(0, 2))
    def commit(self, data, prepared, seen) -> None:
        if number := self.some(data, prepared):
            totals = None if prepared else self.sent[number]
            seen = min(seen, number.serial - 1)
            self.applying_from = self.engine.last_lsn
            self.engine.transactions.commit(number, Cause.CLIENT, totals, seen=seen)
            self.note("commit", tuple(number), seen)

    @free
    @rule(data=st.data(), prepared=st.booleans())
    def rollback(self, data, prepared) -> None:
        if number := self.some(data, prepared):
            self.engine.transactions.rollback(number, Cause.CLIENT)
            self.note("rollback", tuple(number))

    @free
    @rule(session=st.integers(1, 2))
    def disconnect(self, session) -> None:
        self.roll_back_by(
            lambda: self.engine.transactions.disconnect(self.engine.start_number << 32 | session)
        )

    @free
    @rule()
    def time_out(self) -> None:
        self.room.clock.advance(1_000_000)
        self.roll_back_by(lambda: self.engine.transactions.expire(self.engine.now(), 2_000_000))

    def roll_back_by(self, what) -> None:
        transactions = self.engine.transactions
        before, lsn = set(transactions.live), self.engine.last_lsn
        what()
        gone = [number for number in transactions.outcomes.by_number if number in before]
        assert set(gone) == {number for number in before if number not in transactions.live}
        assert not any(self.state.live[tuple(number)].prepared for number in gone)
        for number in gone:
            lsn += 1
            self.history.note(lsn, "rollback", tuple(number))
        assert lsn == self.engine.last_lsn

    @free
    @rule(data=st.data())
    def forget(self, data) -> None:
        ended = sorted(n for n, how in self.state.outcomes.items() if how in ("committed", "rolled back"))
        if ended and len(ended) > 4:
            number = TransactionNumber(*ended[-1])
            if any(n[0] == number.session and n[1] < number.serial for n in self.state.live):
                return
            self.engine.transactions.forget(number)
            self.note("forget", tuple(number))

    @free
    @rule()
    def retain(self) -> None:
        stores = self.stores()
        before = {store: store.start_offset for store in stores}
        lsn = self.engine.last_lsn
        self.engine.housekeeping.retain(self.engine.now())
        for store in stores:
            if store.start_offset != before[store]:
                lsn += 1
                self.history.note(lsn, "start_at", store.number, store.start_offset)
        assert lsn == self.engine.last_lsn

    @free
    @rule(data=st.data(), force=st.sampled_from([1, 3, 1000]), more=st.sampled_from([0, 0, 1, 2]))
    def alter(self, data, force, more) -> None:
        names = [name for name in self.engine.catalog.topics if name != OUTCOMES_TOPIC]
        topic = self.engine.catalog.topics[data.draw(st.sampled_from(names))]
        record = self.engine.catalog.judge_alteration(
            topic, {"force_messages": force}, self.engine.now(), len(topic.partitions) + more
        )
        self.engine.accept(record)
        self.engine.housekeeping.settings_changed(topic.partitions)
        self.note("alter", topic.name, record.settings, more)

    @free
    @rule(data=st.data(), part=st.floats(0, 1))
    def truncate(self, data, part) -> None:
        store = self.engine.catalog.stores[self.partition(data)]
        offset = int(part * store.end_offset)
        if offset > store.start_offset:
            self.engine.accept(LogStartMoved(store.number, offset, self.engine.now()))
            self.note("start_at", store.number, offset)

    @rule()
    def mark(self) -> None:
        if self.engine.mark():
            self.note("mark")

    @precondition(lambda self: self.engine.busy)
    @rule(slices=st.integers(1, 6))
    def apply_slices(self, slices) -> None:
        for _ in range(slices):
            if self.engine.busy:
                self.engine.continue_apply()

    @free
    @rule(
        data=st.data(),
        sizes=st.lists(SIZES, min_size=2, max_size=5),
        slices=st.integers(0, 8),
        taken=st.booleans(),
        checkpoint=st.booleans(),
        then=st.booleans(),
    )
    def commit_at_once(self, data, sizes, slices, taken, checkpoint, then) -> None:
        """A whole transaction, amid a checkpoint, its group being written, and something accepted after it."""
        self.begin_transaction(data, sizes, 1)
        number = max(n for n in self.sent if n.session == self.engine.start_number << 32 | 1)
        if checkpoint:
            self.ask_for_a_checkpoint()
        self.applying_from = self.engine.last_lsn
        self.engine.transactions.commit(number, Cause.CLIENT, self.sent[number])
        self.note("commit", tuple(number), 0)
        if taken:
            self.take()
        self.apply_slices(slices)
        if checkpoint:
            self.run_jobs(3)
        if then and not self.engine.busy:
            self.send(data, [100])

    # -- the writer -------------------------------------------------------------------------------

    @rule()
    def take(self) -> None:
        if self.writing is None and (group := self.engine.take()) is not None:
            self.engine.write(group)
            self.writing = group

    @rule()
    def publish(self) -> None:
        if self.writing is not None:
            group, self.writing = self.writing, None
            self.engine.publish(group)

    @rule()
    def settle(self) -> None:
        self.publish()
        for _ in range(100):
            if not self.engine.busy and self.engine.forced_lsn == self.engine.last_lsn:
                break
            self.take()
            self.publish()
            if self.engine.busy:
                self.engine.continue_apply()
                self.look()
                self.run_jobs()
        assert not self.engine.busy

    # -- the flusher ------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        self.lane.extend(self.engine.jobs(self.engine.now()))

    @rule(count=st.integers(1, 4))
    def run_jobs(self, count=100) -> None:
        for _ in range(min(count, len(self.lane))):
            job = self.lane.popleft()
            job.run()
            self.engine.finish(job)

    @rule()
    def flush(self) -> None:
        self.engine.want_flush()
        self.look()

    @rule()
    def ask_for_a_checkpoint(self) -> None:
        self.engine.housekeeping.request_checkpoint()
        self.look()
