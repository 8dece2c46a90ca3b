"""Test that a port accepts few connections at a time."""

from txbroker.server.endpoints import listening


class Port:
    """A port as Twisted has it: it accepts more each time, as long as more come."""

    numberAccepts = 100

    def __init__(self):
        self.seen = []

    def doRead(self):
        self.seen.append(self.numberAccepts)
        self.numberAccepts += 20


def test_a_port_accepts_few_connections_in_a_turn_however_many_come():
    port = listening.accept_few(Port())
    for _ in range(3):
        port.doRead()
    port.numberAccepts = 1
    port.doRead()
    assert port.seen == [listening.MAX_ACCEPTS] * 3 + [1]


def test_what_is_no_port_of_a_socket_stays_as_it_is():
    assert listening.accept_few(None) is None
