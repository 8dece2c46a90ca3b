"""Transactions over the wire in few words, for the tests of transactions in the broker."""

from crc32c import crc32c

from journal.formats.frame import decode_run
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.support.broker_room import frames
from txbroker.wire import messages

XID = Xid(1, b"day-1", b"flights")


OTHER = Xid(1, b"day-2", b"flights")


SECOND = 1_000_000


def totals(*adds, offsets=0):
    run = b"".join(frames(*values) for values in adds)
    return Totals(sum(map(len, adds)), len(adds) + offsets, crc32c(run))


def add(peer, serial, partition, *values, **named):
    """Add values; None if nothing was answered, as it should be."""
    return peer.ask(messages.Add, serial, partition, data=frames(*values), **named)


def prepared(peer, partition, serial=1, xid=XID, *values):
    values = values or (b"a",)
    assert add(peer, serial, partition, *values, xid=xid) is None
    done = peer.ask(messages.Prepare, serial, xid, totals(values))
    assert isinstance(done, messages.Done), done


def values(room, partition):
    store = room.engine.catalog.stores[partition]
    return [message.value for message in decode_run(store.read(0, 1 << 20))]


def commit(peer, serial, *adds, offsets=0):
    return peer.ask(messages.Commit, serial=serial, totals=totals(*adds, offsets=offsets))
