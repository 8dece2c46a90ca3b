"""Test that a peer with an unfinished message is read in larger pieces, and only such a peer."""

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock

from journal.constants import KIB, MIB
from tests.server.connections.test_protocol import HELLO, Rig
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.connections.protocol import BULK_READ, SHORT_READ
from txbroker.wire.codec import encode
from txbroker.wire.messages import Ping, Send

USUAL = FileDescriptor.bufferSize
BATCH = encode(Send(2, 1), bytes(66 * KIB))


class Socket(FileDescriptor):
    """A descriptor that takes no part in any reactor."""

    def getPeer(self):
        return IPv4Address("TCP", "192.0.2.7", 4321)

    def startReading(self):
        pass

    def stopReading(self):
        pass

    def startWriting(self):
        pass


def connected():
    protocol = Rig().factory.buildProtocol(None)
    protocol.makeConnection(Socket(Clock()))
    return protocol


def test_a_peer_amid_a_message_is_read_in_larger_pieces_until_the_message_is_whole():
    protocol = connected()
    protocol.dataReceived(HELLO)
    assert protocol.transport.bufferSize == USUAL
    protocol.dataReceived(BATCH[:USUAL])
    assert protocol.transport.bufferSize == BULK_READ > USUAL
    protocol.dataReceived(BATCH[USUAL:] + BATCH[:100])
    assert protocol.transport.bufferSize == BULK_READ
    protocol.dataReceived(BATCH[100:])
    assert protocol.transport.bufferSize == USUAL


def test_whole_messages_need_no_larger_reads():
    protocol = connected()
    protocol.dataReceived(HELLO + encode(Ping(2)) + encode(Ping(3)))
    assert protocol.transport.bufferSize == USUAL


def test_a_stranger_gets_no_larger_reads():
    protocol = connected()
    protocol.dataReceived(HELLO[:10])
    assert protocol.transport.bufferSize == USUAL


def test_one_connection_does_not_change_another():
    first, second = connected(), connected()
    first.dataReceived(HELLO + BATCH[:100])
    assert (first.transport.bufferSize, second.transport.bufferSize) == (BULK_READ, USUAL)


def test_while_memory_is_short_little_is_read_at_a_time_of_anybody():
    protocol = connected()
    protocol.dataReceived(HELLO)
    connections = protocol.connections
    later = BrokerFactory(connections).buildProtocol(None)
    connections.intake.holds(protocol, 40 * MIB)
    assert protocol.transport.bufferSize == SHORT_READ
    later.makeConnection(Socket(Clock()))
    assert later.transport.bufferSize == SHORT_READ
    protocol.dataReceived(BATCH[:USUAL])
    connections.intake.holds(protocol, 40 * MIB)
    assert protocol.transport.bufferSize == SHORT_READ, "though it is amid a message"
    protocol.dataReceived(BATCH[USUAL:])
    assert (protocol.transport.bufferSize, later.transport.bufferSize) == (USUAL, USUAL)
