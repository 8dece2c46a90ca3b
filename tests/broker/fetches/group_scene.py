"""Groups whose members fetch, for tests: what is claimed, finished, prepared, by the way of the wire and past it."""

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Settled, Unfinished
from journal.xid import Xid
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
AHEAD = 50


def of(*offsets):
    """A set of these."""
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return found


def settled(partition, *offsets, unfinished=(), generation=0):
    """What finishes these, and says something of others."""
    said = [Unfinished(*each) for each in unfinished]
    return Settled(partition, generation, 0, encode_offsets(of(*offsets), 0), said)


def finish(room, *what, offsets=()):
    """Have group g settle this, forced."""
    room.broker.consuming.settle("g", ID, list(offsets), list(what))
    room.engine.sync()


def prepare(room, *what, offsets=()):
    """Have group g settle this in a prepared transaction."""
    positions = [GroupPositions("g", ID, list(offsets), list(what))]
    assert isinstance(room.peer().ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)


def end(room, kind):
    """End that transaction."""
    room.peer().ask(kind, 0, 0, XID)


def claim(room, partition):
    """Claim the partition for group g; return the generation."""
    return room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], ID).claims[0][1]
