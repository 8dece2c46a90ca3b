"""The scene of the transaction store's tests: a transaction over two partitions, brought into each of its states."""

from dataclasses import replace

import msgspec

from journal.parties import Owner
from journal.records.group_entries import PartitionOffset
from journal.transaction_states import Cause
from tests.support.builders import frames, number, totals, xid

ME = Owner("anonymous", "me", "host:1")

ONE, TWO = frames(b"a1", b"a2"), frames(b"b1")
SENT = totals(ONE, TWO)
NUMBER, XID = number(1), xid("day-1")
OFFSETS = [PartitionOffset(1, 5)]


def begin(place, which=NUMBER, name=XID):
    place.transactions.add(which, 1, ONE, 2, name, owner=ME)
    place.transactions.add(which, 2, TWO, 1)


def doomed(place):
    begin(place)
    place.transactions.doom(NUMBER)


def prepared(place, which=NUMBER, name=XID):
    begin(place, which, name)
    place.transactions.prepare(which, name, SENT)


def committed(place):
    prepared(place)
    place.transactions.commit(NUMBER, Cause.CLIENT)


def rolled_back(place):
    begin(place)
    place.transactions.rollback(NUMBER, Cause.CLIENT)


def forgotten(place):
    committed(place)
    place.transactions.forget(NUMBER)


STATES = {
    "unknown": lambda place: None,
    "active": begin,
    "doomed": doomed,
    "prepared": prepared,
    "committed": committed,
    "rolled back": rolled_back,
    "forgotten": forgotten,
}
METHODS = {
    "add": lambda store, sent: store.add(NUMBER, 1, ONE, 2),
    "add offsets": lambda store, sent: store.add_offsets(NUMBER, "g", OFFSETS),
    "prepare": lambda store, sent: store.prepare(NUMBER, XID, sent),
    "commit in one": lambda store, sent: store.commit(NUMBER, Cause.CLIENT, sent),
    "commit": lambda store, sent: store.commit(NUMBER, Cause.CLIENT),
    "rollback": lambda store, sent: store.rollback(NUMBER, Cause.CLIENT),
    "refused add": lambda store, sent: store.doom(NUMBER),
    "disconnect": lambda store, sent: store.disconnect(NUMBER.session),
    "timeout": lambda store, sent: store.expire(10_000_000, 1_000_000),
    "forget": lambda store, sent: store.forget(NUMBER, "me"),
}
ADDED, OFFSETS_ADDED, PREPARED = "TransactionAdded", "TransactionOffsetsAdded", "TransactionPrepared"
COMMITTED, ROLLED_BACK, FORGOTTEN = "TransactionCommitted", "TransactionRolledBack", "TransactionsForgotten"


def state_of(place):
    """All that the store holds, as a checkpoint and its questions would tell it."""
    store = place.transactions.table
    rows = [msgspec.to_builtins(row) for row in store.snapshot()]
    return (
        rows,
        dict(store.live_xids),
        list(place.groups.snapshot()),
        dict(store._partitions),
        replace(store.totals),
    )
