"""Brokers that break a promise, for drills that must notice: ``python -m tests.drill.faulty_broker`` is an entry.

The variable TXBROKER_FAULT says which.
"""

import os
import sys
from zlib import crc32

from journal.engine.engine import Engine
from journal.folds.groups import GroupsFold
from journal.folds.schedule import ScheduleFold
from journal.offset_set import OffsetSet
from journal.records.queue_entries import QUEUE_GROUP
from journal.records.record import Cancelled, Started
from journal.schedule.schedule import Schedule
from journal.testing import PowerCutDirectory
from journal.transactions.commit_application import SlicedApply
from journal.transactions.table import TransactionTable
from journal.transactions.unsent import Unsent
from journal.vfs.filesystem import OSFilesystem
from journal.wal.writer import Journal
from txbroker.drill.broker.entry import run
from txbroker.drill.broker.fatal_calls import KillingFile
from txbroker.queues.level import Level
from txbroker.queues.publishing import Publishing


def answer_early():
    """Answers leave before anything is written."""
    Engine.when_forced = lambda self, deliver, answer: deliver(answer)


def believe_the_page_cache():
    """The journal is written, but never forced: a kill loses nothing, a power cut does."""
    Journal.force = lambda self: setattr(self, "_unforced", 0)
    force = KillingFile.force
    KillingFile.force = lambda self: None if self.path.startswith("journal/") else force(self)


def forget_names():
    """No directory is ever forced."""
    OSFilesystem.force_directory = PowerCutDirectory.force_directory = lambda self, path: None


def drop_sends():
    """Every 50th send is acknowledged and stored nowhere."""
    append, calls = Engine.append, 0

    def drop(self, store, *arguments):
        nonlocal calls
        calls += 1
        return append(self, store, *arguments) if calls % 50 else store.end_offset

    Engine.append = drop


def show_half():
    """Of half of the transactions over several partitions one partition's messages do not arrive."""
    begin = SlicedApply.__init__

    class Catalog:
        def __init__(self, catalog, without):
            self.stores = catalog.stores
            self._catalog = catalog
            self._without = without

        def place(self, store, *arguments):
            if store.number != self._without:
                self._catalog.place(store, *arguments)

    def begin_with_half(self, lsn, record, transaction, staging, catalog, *more):
        begin(self, lsn, record, transaction, staging, catalog, *more)
        chosen = crc32(b"%d %d" % (record.session, record.serial)) % 2 == 0
        if chosen and len(record.placements) > 1:
            self._catalog = Catalog(catalog, record.placements[-1].partition)

    SlicedApply.__init__ = begin_with_half


def forget_prepared():
    """A start ends prepared transactions, as if they were active."""
    apply = TransactionTable.apply

    def forget(self, lsn, record, data):
        if isinstance(record, Started):
            for number in list(self.live):
                self._end(number)
        return apply(self, lsn, record, data)

    TransactionTable.apply = forget


def forget_claims():
    """Whoever once had a partition may finish its messages, whoever has it now."""
    GroupsFold.check_generation = lambda self, group, offset: None


def lose_effects():
    """Of a fifth of the transactions that finish a message for a group what they send is left out."""
    begin = Unsent.__init__

    def begin_without(self, runs=(), positions=None):
        frames = b"".join(bytes(run[2]) for run in runs)
        chosen = crc32(frames) % 5 == 0 and any(each.settled for each in positions or ())
        begin(self, () if chosen else runs, positions)

    Unsent.__init__ = begin_without


def come_early():
    """Messages for later are placed 200 ms before they are due."""
    now = Schedule.now
    Schedule.now = lambda self, clock: now(self, clock) + 200_000


def forget_what_was_taken_back():
    """What was taken back comes all the same."""
    apply = ScheduleFold.apply

    def apply_others(self, lsn, record, *more):
        return None if isinstance(record, Cancelled) else apply(self, lsn, record, *more)

    ScheduleFold.apply = apply_others


def lose_what_waits():
    """Every 20th message for later is not seen, and so never sent."""
    see = ScheduleFold.see

    def see_most(self, index, offset, *more):
        return None if offset % 20 == 0 else see(self, index, offset, *more)

    ScheduleFold.see = see_most


def forget_a_queue():
    """Every 5th message that goes to several queues gets into the first of them alone."""
    routed, calls = Publishing.routed, 0

    def routed_to_fewer(self, *arguments, **more):
        nonlocal calls
        runs = routed(self, *arguments, **more)
        for place, (number, count, frames, also) in enumerate(runs):
            calls += bool(also)
            if also and calls % 5 == 0:
                runs[place] = (number, count, frames, ())
        return runs

    Publishing.routed = routed_to_fewer


def forget_acknowledgements():
    """A start forgets what was acknowledged in queues, above the lowest message that is not."""
    apply = GroupsFold.apply

    def forget(self, lsn, record, data):
        apply(self, lsn, record, data)
        if isinstance(record, Started):
            for kept in self.find(QUEUE_GROUP).settlements.values():
                kept.finished = OffsetSet()

    GroupsFold.apply = forget


def say_of_nothing_that_it_comes_again():
    """No delivery is said to be of a message that may have been delivered before."""
    Level.fresh_from = property(lambda self: 0)


FAULTS = {
    fault.__name__: fault
    for fault in (
        answer_early, believe_the_page_cache, forget_names, drop_sends, show_half, forget_prepared, forget_claims,
        lose_effects, come_early, forget_what_was_taken_back, lose_what_waits, forget_a_queue, forget_acknowledgements,
        say_of_nothing_that_it_comes_again,
    )
}  # fmt: skip

if __name__ == "__main__":
    FAULTS[os.environ["TXBROKER_FAULT"]]()
    run(sys.argv[1:])
