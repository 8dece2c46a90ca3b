"""A broker behind a connection, and the bytes of whole transactions for it."""

from crc32c import crc32c
from msgspec.structs import replace
from twisted.internet.testing import StringTransport

from journal.constants import MIB
from journal.engine.settings import JournalSettings
from journal.log.catalog import Catalog
from journal.transaction import Totals, Xid
from journal.transactions.limits import TransactionLimits
from journal.transactions.outcome_archive import OutcomeArchive
from journal.transactions.table import TransactionTable
from tests.support.broker_room import Room, frames
from txbroker.folds.groups import GroupsFold
from txbroker.folds.producers import ProducersFold
from txbroker.server.config import ServiceSettings
from txbroker.server.connections import BrokerFactory
from txbroker.server.read_limits import Intake
from txbroker.server.send_buffer import Outboxes
from txbroker.wire import messages as commands
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.messages import MAGIC, Add, Commit, Prepare

SMALL = TransactionLimits(transactions=2, messages=4, bytes=400, requests=3, total_messages=6)
"""So small that what is drawn below runs into every one of them."""

XID = Xid(1, b"day-1", b"flights")
OTHER = Xid(1, b"other", b"")


class Door:
    """A broker on a memory file system with one connection of its real protocol, and the records that it queues."""

    def __init__(self, hello=True, long_way=False, max_message_bytes=None, **journal):
        self.room = Room(JournalSettings(low_water_bytes=0, file_bytes=MIB, **journal))
        self.partitions = self.room.topic("orders", 2, max_message_bytes=max_message_bytes)
        broker, clock = self.room.broker, self.room.timers
        if long_way:
            broker.wholes.take = lambda *_: 0
        factory = BrokerFactory(
            broker, Intake(broker.accounts, 1 << 20), Outboxes(clock), ServiceSettings(data="d"), clock
        )
        self.protocol = factory.buildProtocol(None)
        self.transport = StringTransport()
        self.protocol.makeConnection(self.transport)
        if hello:
            self.protocol.dataReceived(encode(commands.Hello(1, MAGIC, [1])))
        self.carry()
        self.transport.clear()
        self.records = []
        queue = self.room.engine.queue

        def noting(decision, data=b""):
            lsn = queue(decision, data)
            self.records.append((lsn, decision, bytes(data)))
            return lsn

        self.room.engine.queue = noting

    def carry(self):
        """Force, publish, and write the answers out."""
        self.room.engine.sync()
        self.room.timers.advance(0)

    def read(self, *reads):
        """The answers to what comes in reads within one turn."""
        for data in reads:
            self.protocol.dataReceived(data)
        self.carry()
        answers = [head for head, _ in answer_decoder(1 << 24).feed(self.transport.value())]
        self.transport.clear()
        return answers

    def state(self):
        """All that folds and logs hold."""
        kinds = (Catalog, TransactionTable, OutcomeArchive, ProducersFold, GroupsFold)
        engine = self.room.engine
        folds = {fold.name: list(fold.snapshot()) for fold in engine.folds if isinstance(fold, kinds)}
        logs = {n: store.read(0, 1 << 20) for n, store in engine.catalog.stores.items()}
        return folds, logs, dict(engine.transactions.outcomes.forgotten_through)


def whole(serial, partition, *values, seen=0, session=0):
    run = frames(*values)
    totals = Totals(len(values), 1, crc32c(run))
    add, commit = Add(2 * serial, serial, partition, None, seen), Commit(2 * serial + 1, session, serial)
    return encode(add, run) + encode(replace(commit, totals=totals, seen=seen))


def own_number(door):
    """What our clients name in a commit; 0 means the same."""
    return door.protocol.session.number


def phases(serial, partition, *values, xid=None, seen=0, session=0):
    """Add and prepare in one read, and the commit."""
    run, xid = frames(*values), xid or Xid(1, b"x%d" % serial, b"")
    prepare = Prepare(3 * serial + 1, serial, xid, Totals(len(values), 1, crc32c(run)), seen)
    first = encode(Add(3 * serial, serial, partition, xid, seen), run) + encode(prepare)
    return first, encode(Commit(3 * serial + 2, session, serial, None, None, seen))
