"""A broker behind a connection of its real protocol, without a socket."""

from twisted.internet.testing import StringTransport

from tests.support.broker_room import Room, opening
from tests.support.builders import small_files
from txbroker.server.connections.connections import Connections
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.connections.read_limits import Intake
from txbroker.server.connections.send_buffer import SendBuffers
from txbroker.server.settings.config import ServiceSettings
from txbroker.wire.codec import answer_decoder


class Door:
    """A broker on a memory file system with one connection of its real protocol, and the records that it queues."""

    def __init__(self, hello=True, max_message_bytes=None, **journal):
        self.room = Room(small_files(**journal))
        self.partitions = self.room.topic("orders", 2, max_message_bytes=max_message_bytes)
        broker, clock = self.room.broker, self.room.timers
        intake, send_buffers = Intake(broker.accounts, 1 << 20), SendBuffers(clock)
        self.connections = Connections(broker, intake, send_buffers, ServiceSettings(data="d"), clock)
        self.protocol = BrokerFactory(self.connections).buildProtocol(None)
        self.transport = StringTransport()
        self.protocol.makeConnection(self.transport)
        if hello:
            self.protocol.dataReceived(opening())
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
