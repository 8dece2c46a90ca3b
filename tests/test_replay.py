"""Replaying sends by the run gives what replaying each of them gives, and refuses what that refuses."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from zope.interface import classImplements

from journal.constants import KIB, MIB
from journal.errors import CorruptJournal, MemoryExhausted
from journal.frame import walk
from journal.interfaces import ICommitFold
from journal.message_run import MessageRun
from journal.record import (
    LogStartMoved,
    Messages,
    PartitionOffset,
    Placement,
    ProducerOpened,
    TransactionAdded,
    TransactionCommitted,
    pack,
)
from journal.record_blocks import BLOCK_RECORDS
from journal.recovery import recover
from journal.replay import Replay
from journal.testing import ManualClock
from journal.transaction import Cause, Totals, Xid
from journal.whole_transactions import WholeTransactions
from tests.builders import Recorder
from tests.engine_room import SMALL, Room, run_of, xid_of
from txbroker.producers import ProducersFold

PARTITIONS = 3
PRODUCERS = 2
ROOMY = 64 * MIB
"""A pool that nothing has to be flushed from."""


class Sender:
    """Decisions as a broker would take them, with producers; nothing is flushed or checkpointed unless asked for."""

    def __init__(self, settings=SMALL):
        self.room = Room()
        self.room.engine.close()
        self.filesystem = self.room.inner
        self.clock = ManualClock(monotonic=1_000_000)
        self.engine = recover(self.filesystem, self.clock, settings, [ProducersFold()])
        self.room.engine = self.engine
        self.room.topic("t", PARTITIONS)
        for producer in range(1, PRODUCERS + 1):
            self.engine.accept(ProducerOpened(producer, 1, "", self.engine.now()))
        self.sequences = {}
        self.begun = {}

    def send(self, partition, producer, count, size):
        store = self.engine.catalog.stores[partition]
        frames = run_of(*[b"v" * size] * count)
        sequence = self.sequences.get((producer, partition), 0) if producer else 0
        if self.engine.allocator.available() < 300 * KIB:
            self.engine.sync()
            self.room.flush()
        self.engine.append(store, frames, count, producer, int(producer > 0), sequence)
        self.sequences[producer, partition] = sequence + count
        self.clock.advance(7)

    def spread(self, count):
        """To all partitions in turn, more than is read at once if ``count`` is large."""
        for number in range(count):
            self.send(1 + number % PARTITIONS, number % (PRODUCERS + 1), 1, 10 + number % 2)

    def transact(self, partition):
        self.room.begin((partition, b"in a transaction")).commit()

    def add(self, slot, partition, value=b"in a transaction", seen=False):
        """Begin one in the slot if there is none, and add to it; what the client has seen may be all before it."""
        begun = self.begun.get(slot)
        named = xid_of(f"{slot}-{self.clock.monotonic()}") if slot % 2 and begun is None else None
        begun = self.begun.setdefault(slot, begun or self.room.begin(session=7 + slot % 2))
        frames = run_of(value)
        transactions = self.engine.transactions
        transactions.add(
            begun.number,
            partition,
            frames,
            1,
            named,
            begun.number.serial - 1 if seen else 0,
            f"client {slot}",
        )
        sent = begun.totals
        begun.totals = Totals(sent.messages + 1, sent.requests + 1, crc32c(frames, sent.checksum))
        self.clock.advance(3)

    def stretch(self, count, partitions, sessions, seen, size):
        """Transactions of one message, one after the other; their clients have seen all but the last few, or none."""
        decided = {}
        for number in range(count):
            session = 20 + number % sessions
            begun = self.room.begin(session=session)
            known = decided.setdefault(session, [])
            told = known[-seen] if 0 < seen <= len(known) else 0
            frames = run_of(*[b"v" * (size + number % 100 // 50)] * (1 + number % 50 // 49))
            arguments = (begun.number, 1 + number % partitions, frames, 1 + number % 50 // 49)
            self.engine.transactions.add(*arguments, None, told, "a client")
            totals = Totals(arguments[3], 1, crc32c(frames))
            self.engine.transactions.commit(begun.number, Cause.CLIENT, totals, told)
            known.append(begun.number.serial)
            self.clock.advance(3)

    def add_offsets(self, slot, partition):
        begun = self.begun.setdefault(slot, self.begun.get(slot) or self.room.begin(session=7 + slot % 2))
        self.engine.transactions.add_offsets(
            begun.number, f"group of {begun.number}", [PartitionOffset(partition, 1)]
        )
        begun.totals = replace(begun.totals, requests=begun.totals.requests + 1)

    def prepare(self, slot):
        if begun := self.begun.pop(slot, None):
            begun.prepare(
                f"prepared in {slot} at {self.clock.monotonic()}"
            ) if slot % 2 == 0 else begun.rollback()

    def decide(self, commit):
        """The oldest that is prepared."""
        for number in list(self.engine.transactions.prepared)[:1]:
            if commit:
                self.engine.transactions.commit(number, Cause.OPERATOR, by="somebody", why="a reason")
            else:
                self.engine.transactions.rollback(number, Cause.CLIENT)

    def commit(self, slot, seen=False):
        if begun := self.begun.pop(slot, None):
            told = begun.number.serial - 1 if seen else 0
            self.engine.transactions.commit(begun.number, Cause.CLIENT, begun.totals, told)

    def rollback(self, slot):
        if begun := self.begun.pop(slot, None):
            begun.rollback()

    def move_start(self, partition):
        store = self.engine.catalog.stores[partition]
        self.engine.accept(LogStartMoved(partition, store.high_watermark, self.engine.now()))

    def sync(self):
        self.engine.sync()

    def checkpoint(self):
        self.room.checkpoint()

    def flush(self):
        self.engine.sync()
        self.room.flush()


SLOTS = st.integers(0, 3)
PLACES = st.integers(1, PARTITIONS)
TRANSACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SLOTS, PLACES, st.sampled_from([b"", b"v", b"w" * 3000]), st.booleans()),
        st.tuples(st.just("add"), SLOTS, PLACES),
        st.tuples(st.just("commit"), SLOTS, st.booleans()),
        st.tuples(st.just("commit"), SLOTS),
        st.tuples(st.just("rollback"), SLOTS),
        st.tuples(st.just("add_offsets"), SLOTS, PLACES),
        st.tuples(st.just("prepare"), SLOTS),
        st.tuples(st.just("decide"), st.booleans()),
        st.tuples(st.just("send"), PLACES, st.just(1), st.integers(1, 3), st.just(10)),
        st.sampled_from([("sync",), ("sync",), ("checkpoint",)]),
        st.tuples(
            st.just("stretch"),
            st.integers(1, 60),
            st.integers(1, PARTITIONS),
            st.integers(1, 2),
            st.integers(0, 3),
            st.just(10),
        ),
    ),
    min_size=20,
    max_size=100,
)
"""Of several clients, between each other's."""

ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(1, PARTITIONS),
            st.integers(0, PRODUCERS),
            st.integers(1, 3),
            st.sampled_from([0, 10, 5000]),
        ).map(lambda action: (action, 1)),
        st.tuples(
            st.tuples(
                st.just("send"), st.just(1), st.integers(0, 1), st.just(1), st.sampled_from([10, 3000])
            ),
            st.integers(2, 2 * BLOCK_RECORDS),
        ),
        st.tuples(st.tuples(st.just("spread"), st.integers(1, 2 * BLOCK_RECORDS)), st.just(1)),
        st.tuples(st.tuples(st.just("transact"), st.integers(1, PARTITIONS)), st.just(1)),
        st.tuples(st.tuples(st.just("move_start"), st.integers(1, PARTITIONS)), st.just(1)),
        st.tuples(st.sampled_from([("sync",), ("flush",), ("checkpoint",)]), st.just(1)),
    ),
    max_size=25,
)


def logs_of(engine):
    """Every byte of every log."""
    logs = {}
    for number, store in engine.catalog.stores.items():
        data, offset = b"", store.start_offset
        while offset < store.end_offset:
            found = store.read(offset, 1 << 30)
            *_, (_, _, last, count) = walk(found)
            data, offset = data + found, last + count
        logs[number] = data
    return logs


def state_of(engine):
    """All that the journal decides: logs, producers and outcomes. When memory is flushed is not among it."""
    ends = {
        number: (store.start_offset, store.high_watermark, store.end_offset, store.last_time)
        for number, store in engine.catalog.stores.items()
    }
    [producers] = [fold for fold in engine.folds if fold.name == "producers"]
    head, *rows = producers.snapshot()
    known = [(*row, sorted(sequences)) for *row, sequences in rows]
    return logs_of(engine), ends, head, known, *transactions_of(engine)


def transactions_of(engine):
    """The table, in its order, with what its parts keep for themselves."""
    table = engine.transactions
    outcomes = table.outcomes
    return (
        list(table.snapshot()),
        [list(each) for each in (table.prepared, table.live_xids, table.active)],
        (table._totals, table._partitions, table._pending_offsets, table.ended_files),
        (list(outcomes.by_xid.items()), outcomes.placements, list(outcomes.forced), outcomes._serials),
        engine.report.rolled_back,
    )


def times_of(engine):
    """Which message was appended when: exact only of what has not been flushed."""
    return {
        number: [store.offset_for_time(time) for time in range(1_000_000, 1_100_000, 997)]
        for number, store in engine.catalog.stores.items()
    }


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_runs_of_sends_give_what_each_send_alone_gives(actions):
    sender = Sender()
    for (name, *arguments), times in actions:
        for _ in range(times):
            getattr(sender, name)(*arguments)
    check_replay_of(sender)


@settings(max_examples=100, deadline=None)
@given(TRANSACTIONS)
def test_transactions_folded_at_their_commits_give_what_record_by_record_gives(deeds):
    sender = Sender()
    for name, *arguments in deeds:
        getattr(sender, name)(*arguments)
    check_replay_of(sender)


@settings(max_examples=50, deadline=None)
@given(TRANSACTIONS)
def test_so_do_those_of_which_few_are_taken_for_many_that_look_alike(deeds):
    sender = Sender()
    for name, *arguments in deeds:
        getattr(sender, name)(*arguments)
    with every_few():
        check_replay_of(sender)


@contextmanager
def every_few():
    """Two are as good as hundreds."""
    constants = {
        "record_blocks.FEWEST_EVEN": 2, "record_blocks.BLOCK_RECORDS": 20, "whole_transactions.SHORT_RUN": 1,
        "whole_transactions.NO_STRETCH": 1, "whole_transactions.LONG_RUN": 2,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(patch(f"journal.{name}", value))
        yield


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["add", "commit", "commit", "both", "both", "both"]),
        st.integers(1, 2),
        st.integers(1, 8),
        st.integers(1, 2),
        st.one_of(st.just(0), st.integers(0, 9)),
        st.one_of(st.just(0), st.integers(0, 9)),
        st.sampled_from([None, None, None, b"x"]),
    ),
    min_size=1,
    max_size=40,
)
"""Of two sessions, whatever their clients say that they have seen: more than was decided, less than before."""


def records_of(deeds):
    """Adds and commits that a journal could hold, if clients said anything."""
    ends, live, found = {1: 0, 2: 0}, {}, []
    for at, (deed, session, serial, partition, seen, later, xid) in enumerate(deeds, 1):
        key = session, serial
        if deed != "commit":
            named = Xid(1, b"%d-%d" % key, xid) if xid and key not in live else None
            found.append((TransactionAdded(*key, partition, 1, at, seen, named, "c"), run_of(b"v%d" % at)))
            live.setdefault(key, []).append(partition)
        if deed != "add" and key in live:
            added = live.pop(key)
            placed = [Placement(p, ends[p], added.count(p)) for p in dict.fromkeys(added)]
            for p in added:
                ends[p] += 1
            found.append(
                (TransactionCommitted(*key, placed, at, Cause.CLIENT, later, totals=Totals(1, 1, at)), b"")
            )
    return found


def both_replays(records, size):
    """Two rooms after the same groups of so many records: read and folded together, and one by one."""
    at_once, one_by_one = Room(), Room()
    for room in (at_once, one_by_one):
        room.topic(partitions=2)
        replay, lsn = Replay(room.engine, 0), 1 << 40
        for start in range(0, len(records), size):
            group = records[start : start + size]
            if room is at_once:
                replay.group(lsn, len(group), b"".join(pack(*each, 0) + each[1] for each in group), "f", 0)
            else:
                for number, (each, data) in enumerate(group):
                    replay.one(lsn + number, each, data)
            lsn += len(group)
        replay.finish()
        assert replay.records == len(records)
    return at_once.engine, one_by_one.engine


def check_both(records, size):
    at_once, one_by_one = both_replays(records, size)
    assert logs_of(at_once) == logs_of(one_by_one)
    assert transactions_of(at_once) == transactions_of(one_by_one)
    assert at_once.forced_lsn == one_by_one.forced_lsn
    return at_once


@settings(max_examples=400, deadline=None)
@given(DEEDS, st.integers(1, 30))
def test_whatever_clients_say_they_have_seen_replay_remembers_what_the_table_would(deeds, size):
    with every_few():
        check_both(records_of(deeds), size)


def test_commits_behind_the_add_of_another_transaction_are_not_taken_for_its_own():
    """Add 2, commit 1, add 3, commit 2 …: what looks alike is no pair."""
    adds, commits = [], []
    for serial in range(1, 60):
        add = TransactionAdded(7, serial, 1, 1, 1000, 0)
        adds.append((add, run_of(b"v%02d" % serial)))
        commits.append(
            (TransactionCommitted(7, serial, [Placement(1, serial - 1, 1)], 1000, Cause.CLIENT), b"")
        )
    mixed = [each for pair in zip(adds[1:], commits, strict=False) for each in pair]
    before = [
        (TransactionAdded(8, serial, 2, 1, 1000, 0), run_of(b"before"))
        if deed == "add"
        else (TransactionCommitted(8, serial, [Placement(2, serial - 1, 1)], 1000, Cause.CLIENT), b"")
        for serial in range(1, 59)
        for deed in ("add", "commit")
    ]
    engine = check_both([*before, adds[0], *mixed], len(before) + 1)  # so a group begins with add 2
    assert engine.catalog.stores[1].end_offset == 58
    assert len(engine.transactions.live) == 1


class Sends:
    """A fold that looks at sends, one by one."""

    name = "sends"
    handles = (Messages,)

    def __init__(self):
        self.bases = []

    def apply(self, lsn, record, data):
        self.bases.append(record.base_offset)

    def snapshot(self):
        return iter(())

    def restore(self, rows):
        assert not list(rows)


@pytest.mark.parametrize("kinds", [[], [Sends]])
@pytest.mark.parametrize("sends", [1, 3, 40])
def test_sends_do_not_pass_the_transactions_before_them(kinds, sends):
    """In one group: what was decided for two partitions waits for more, then one of these is sent to."""
    room = Room()
    room.topic(partitions=2)
    room.engine.sync()
    for number in range(20):
        room.begin((1 + number % 2, b"decided")).commit()
    for _ in range(sends):
        room.accept(b"sent", number=1)
    room.engine.sync()
    folds = [kind() for kind in kinds]
    engine = recover(room.inner.kill_clone(), room.clock, SMALL, folds)
    assert logs_of(engine) == logs_of(room.engine)
    assert engine.catalog.stores[1].end_offset == 10 + sends
    assert all(len(fold.bases) == sends for fold in folds)


def test_transactions_do_not_pass_the_sends_before_them():
    room = Room()
    room.topic(partitions=2)
    room.engine.sync()
    for number in range(40):
        room.accept(b"sent", number=1 + number % 2)
    for _ in range(40):
        room.begin((1, b"decided")).commit()
    room.engine.sync()
    engine = recover(room.inner.kill_clone(), room.clock, SMALL, [])
    assert logs_of(engine) == logs_of(room.engine)
    assert engine.catalog.stores[1].end_offset == 60


class Commits:
    """A fold that counts the commits of transactions, and nothing else."""

    name = "commits"
    handles = (TransactionCommitted,)

    def __init__(self):
        self.seen = []

    def apply(self, lsn, record, data):
        self.seen.append((lsn, record.serial))

    def snapshot(self):
        return iter(())

    def restore(self, rows):
        assert not list(rows)


class FewCommits(Commits):
    """One to which only one transaction matters."""

    def concerned(self):
        return {(7 | 1 << 32, 30)}


classImplements(FewCommits, ICommitFold)


@pytest.mark.parametrize("kind", [Commits, FewCommits])
def test_a_fold_that_looks_at_commits_is_shown_those_that_concern_it(kind):
    """All, if it does not say which these are: then none are folded together."""
    room = Room()
    room.topic()
    for _ in range(40):
        room.begin((1, b"v")).commit()
    room.engine.sync()
    fold = kind()
    recover(room.inner.kill_clone(), room.clock, SMALL, [fold])
    assert len({serial for _, serial in fold.seen}) == len(fold.seen)
    if kind is Commits:
        assert len(fold.seen) == 40
    else:
        assert 30 in {serial for _, serial in fold.seen}


def test_transactions_that_fit_into_no_memory_stop_the_start_with_advice():
    room = Room()
    room.topic()
    replay = Replay(room.engine, 0)
    frames = run_of(b"v" * (300 * KIB))
    body = b""
    for serial in range(1, 1 + SMALL.pool_bytes // len(frames) + 2):
        add = TransactionAdded(7, serial, 1, 1, serial, serial - 1)
        commit = TransactionCommitted(
            7, serial, [Placement(1, serial - 1, 1)], serial, Cause.CLIENT, serial - 1
        )
        body += pack(add, frames, 0) + frames + pack(commit, b"", 0)
    with pytest.raises(MemoryExhausted, match=r"They stay committed: start again with a larger pool_bytes"):
        replay.group(1 << 40, 2 * serial, body, "f", 0)


def test_what_an_add_says_was_seen_counts_from_the_add_on():
    """Not from its commit on: an outcome between the two is one that the client has not seen."""
    sender = Sender()
    sender.add(0, 1)
    sender.add(2, 2, seen=True)
    sender.commit(0)
    sender.commit(2)
    check_replay_of(sender)
    [first, _] = sender.engine.transactions.outcomes.by_number
    assert sender.engine.transactions.outcomes.forgotten_through == {first.session: first.serial}


@pytest.mark.parametrize("placement", [Placement(1, 0, 2), Placement(2, 0, 1)])
def test_a_commit_that_says_otherwise_than_its_add_is_refused(room, placement):
    room.topic()
    whole = WholeTransactions(room.engine.transactions, room.engine.catalog, ())
    whole.add(5, TransactionAdded(7, 1, 1, 1, 0, 0), run_of(b"x"))
    with pytest.raises(CorruptJournal, match="a record is missing from the journal"):
        whole.commit(6, TransactionCommitted(7, 1, [placement], 0, Cause.CLIENT))
    assert room.engine.catalog.stores[1].end_offset == 0


def test_adds_that_wait_long_for_their_commits_become_the_tables_own(monkeypatch):
    monkeypatch.setattr("journal.whole_transactions.WAITING_BYTES", 4 * KIB)
    sender = Sender()
    for turn in range(3):
        for slot in range(20):
            sender.add(slot, 1 + slot % PARTITIONS, b"v" * 300 * turn)
        for slot in reversed(range(20)):
            sender.commit(slot)
    waiting = []
    whole = WholeTransactions.commit
    monkeypatch.setattr(
        "journal.whole_transactions.WholeTransactions.commit",
        lambda self, *rest: (waiting.append(self._bytes), whole(self, *rest)),
    )
    check_replay_of(sender)
    assert 0 < max(waiting) <= 4 * KIB


def check_replay_of(sender):
    """Records together must give what each alone gives: for a fold that looks at all kinds, none is put together."""
    sender.sync()
    for pool in (SMALL.pool_bytes, ROOMY):
        size = replace(SMALL, pool_bytes=pool)
        in_runs = recover(sender.filesystem.kill_clone(), sender.clock, size, [ProducersFold()])
        folds = [ProducersFold(), Recorder()]
        one_by_one = recover(sender.filesystem.kill_clone(), sender.clock, size, folds)
        assert state_of(in_runs) == state_of(one_by_one)
        assert in_runs.report.records == one_by_one.report.records
    assert times_of(in_runs) == times_of(one_by_one)


@pytest.mark.parametrize("more", [3, 100])
def test_sends_to_one_partition_do_not_pass_those_before_them_that_wait_for_others(more):
    """One group: a block of sends to all partitions, then few, or many that look alike, to one of these."""
    sender = Sender()
    sender.sync()
    sender.spread(BLOCK_RECORDS)
    for _ in range(more):
        sender.send(1, 1, 1, 10)
    sender.sync()
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    assert logs_of(engine) == logs_of(sender.engine)


def test_a_start_that_finds_the_sends_in_a_full_pool_flushes_and_goes_on():
    sender = Sender()
    for _ in range(3000):
        sender.send(1, 1, 1, 1000)
    sender.sync()
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    store = engine.catalog.stores[1]
    assert store.end_offset == 3000
    assert 0 < store.flushed_offset < 3000
    assert logs_of(engine) == logs_of(sender.engine)


def test_a_run_that_is_larger_than_the_pool_is_flushed_as_it_goes():
    sender = Sender(replace(SMALL, pool_bytes=8 * MIB, file_bytes=8 * MIB))
    for _ in range(12):
        sender.send(1, 1, 1, 200 * KIB)
    sender.sync()  # one group
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    assert logs_of(engine) == logs_of(sender.engine)
    assert engine.catalog.stores[1].flushed_offset > 4


def test_room_is_made_until_what_needs_it_fits_and_no_more():
    room = Room()
    room.topic(partitions=14)
    for number in range(1, 15):
        room.send(b"v" * (40 * KIB), number=number)
    room.send(b"large" * (60 * KIB), number=1)
    after = room.killed()
    assert after.values(1) == room.values(1)
    unflushed = [store for store in after.engine.catalog.stores.values() if store.unflushed_messages]
    assert 2 < len(unflushed) < 12


def test_a_hole_between_the_log_and_a_run_is_refused(room):
    store = room.topic()[0]
    run = MessageRun.of_records([Messages(1, base, 1, base) for base in (1, 2, 3)], [run_of(b"x")] * 3)
    with pytest.raises(CorruptJournal, match="ends at offset 0, the journal goes on with offsets 1 to 1"):
        room.engine.catalog.apply_run(run)
    assert store.end_offset == 0


def test_a_hole_inside_a_run_is_refused_after_what_comes_before_it(room):
    store = room.topic()[0]
    run = MessageRun.of_records([Messages(1, base, 1, base) for base in (0, 1, 3)], [run_of(b"x")] * 3)
    with pytest.raises(CorruptJournal, match="ends at offset 2, the journal goes on with offsets 3 to 3"):
        room.engine.catalog.apply_run(run)
    assert store.end_offset == 2


@pytest.fixture
def room():
    return Room()
