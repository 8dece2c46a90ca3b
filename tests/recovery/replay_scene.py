"""The scene of replays: a journal of everything that a broker may decide, and a comparison of the ways to replay it."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from crc32c import crc32c
from msgspec.structs import replace

from journal.constants import KIB, MIB
from journal.folds.producers import ProducersFold
from journal.formats.frame import walk
from journal.parties import Actor, Owner
from journal.records.group_entries import PartitionOffset
from journal.records.record import LogStartMoved, ProducerOpened
from journal.recovery.start import recover
from journal.testing import ManualClock
from journal.transaction_states import Cause, Totals
from journal.transactions.unsent import Unsent
from tests.support.builders import Recorder
from tests.support.engine_room import SMALL, Room, run_of, xid_of

PARTITIONS = 3
PRODUCERS = 2
ROOMY = 64 * MIB
"""A pool that nothing has to be flushed from."""
ARCHIVING = replace(SMALL, outcome_archive=True).archive


def owner_of(slot):
    """Whose the transactions of a slot are."""
    return Owner("anonymous", f"client {slot}", "host:1")


class Sender:
    """Decisions as a broker would take them, with producers; nothing is flushed or checkpointed unless asked for."""

    def __init__(self, settings=SMALL, archive=False):
        self.room = Room()
        self.room.engine.close()
        self.filesystem = self.room.inner
        self.clock = ManualClock(monotonic=1_000_000)
        self.engine = recover(self.filesystem, self.clock, settings, [ProducersFold()])
        self.room.engine = self.engine
        self.room.topic("t", PARTITIONS)
        for producer in range(1, PRODUCERS + 1):
            self.engine.accept(ProducerOpened(producer, 1, "", self.engine.now(), bytes(16)))
        self.sequences = {}
        self.begun = {}
        self.archive = archive
        if archive:
            turn_archive_on(self.engine)

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
            owner_of(slot),
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
            count = 1 + number % 50 // 49
            frames = run_of(*[b"v" * (size + number % 100 // 50)] * count)
            self.whole(begun.number, {1 + number % partitions: (count, frames)}, told, owner_of("a"))
            known.append(begun.number.serial)
            self.clock.advance(3)

    def whole(self, number, runs, seen=0, owner=None, name=None):
        """Decide for one with all that it has; as a broker would, once there is room in memory."""
        size = sum(len(frames) for _, frames in runs.values())
        if self.engine.allocator.available() < 300 * KIB + size:
            self.engine.sync()
            self.room.flush()
        unsent = Unsent([(partition, *run, ()) for partition, run in runs.items()])
        self.engine.transactions.commit(
            number, Cause.CLIENT, None, seen, unsent=unsent, xid=name, owner=owner
        )

    def at_once(self, slot, partitions, value=b"all at once", named=False):
        """One that begins and ends with one request, or ends what has begun in the slot."""
        begun = self.begun.pop(slot, None)
        runs = {partition: (1, run_of(value)) for partition in partitions}
        if begun is None:
            begun = self.room.begin(session=7 + slot % 2)
            xid = xid_of(f"once {begun.number}") if named else None
            self.whole(begun.number, runs, 0, owner_of(slot), xid)
        else:
            unsent = Unsent([(partition, *run, ()) for partition, run in runs.items()])
            totals = begun.totals if begun.totals.requests else None
            self.engine.transactions.commit(begun.number, Cause.CLIENT, totals, unsent=unsent)
        self.clock.advance(3)

    def add_offsets(self, slot, partition):
        begun = self.begun.setdefault(slot, self.begun.get(slot) or self.room.begin(session=7 + slot % 2))
        self.engine.transactions.add_offsets(
            begun.number, f"group of {begun.number}", [PartitionOffset(partition, 1)]
        )
        begun.totals = replace(begun.totals, requests=begun.totals.requests + 1)

    def prepare_at_once(self, slot, partitions):
        if slot not in self.begun:
            begun = self.room.begin(session=7 + slot % 2)
            unsent = Unsent([(partition, 1, run_of(b"prepared"), ()) for partition in partitions])
            name = xid_of(f"prepared {begun.number}")
            self.engine.transactions.prepare(begun.number, name, owner=owner_of(slot), unsent=unsent)

    def prepare(self, slot):
        if begun := self.begun.pop(slot, None):
            begun.rollback() if slot % 2 else begun.prepare(f"prepared as {begun.number}")

    def decide(self, commit):
        """The oldest that is prepared."""
        for number in list(self.engine.transactions.prepared)[:1]:
            if commit:
                self.engine.transactions.commit(number, Cause.OPERATOR, by=Actor("somebody"), why="a reason")
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
    known = [replace(row, sequences=sorted(row.sequences, key=_partition)) for row in rows]
    return logs_of(engine), ends, head, known, *transactions_of(engine)


def _partition(row):
    return row.partition


def transactions_of(engine):
    """The table, in its order, with what its parts keep for themselves."""
    table = engine.transactions.table
    outcomes = table.outcomes
    return (
        list(table.archive.snapshot()),
        list(table.snapshot()),
        [list(each) for each in (table.prepared, table.live_xids, table.active)],
        (table.totals, table._partitions, table.ended_files),
        (list(outcomes.by_xid.items()), outcomes.placements, list(outcomes.heuristic), outcomes._serials),
        engine.report.rolled_back,
    )


def times_of(engine):
    """Which message was appended when: exact only of what has not been flushed."""
    return {
        number: [store.offset_for_time(time) for time in range(1_000_000, 1_100_000, 997)]
        for number, store in engine.catalog.stores.items()
    }


@contextmanager
def every_few():
    """Two are as good as hundreds."""
    constants = {
        "recovery.record_batches.FEWEST_EVEN": 2,
        "recovery.record_batches.BLOCK_RECORDS": 20,
        "recovery.replay.SHORT_RUN": 1,
        "transactions.outcome_archive.BATCH": 3,
    }
    with ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(patch(f"journal.{name}", value))
        yield


def turn_archive_on(engine):
    """As the start with that setting does; so partitions have the numbers that they have without it."""
    for record in engine.transactions.archive.judge(ARCHIVING, engine.now()):
        engine.accept(record)
    engine.sync()


def check_replay_of(sender):
    """Records together must give what each alone gives: for a fold that looks at all kinds, none is put together."""
    sender.sync()
    for pool in (SMALL.pool_bytes, ROOMY):
        size = replace(SMALL, pool_bytes=pool, outcome_archive=sender.archive)
        in_runs = recover(sender.filesystem.kill_clone(), sender.clock, size, [ProducersFold()])
        folds = [ProducersFold(), Recorder()]
        one_by_one = recover(sender.filesystem.kill_clone(), sender.clock, size, folds)
        assert state_of(in_runs) == state_of(one_by_one)
        assert in_runs.report.records == one_by_one.report.records
    assert times_of(in_runs) == times_of(one_by_one)
