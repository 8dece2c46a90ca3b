"""Test that a page is made in short steps, and that no connection lasts, on a clock that is moved by hand."""

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from journal.folds.groups import Group
from tests.support.broker_room import Room
from txbroker.monitoring import site
from txbroker.monitoring.broker_metrics import IN_A_STEP, families
from txbroker.monitoring.health import Health, Phase
from txbroker.monitoring.management import Management
from txbroker.monitoring.site import LIFETIME, PATIENCE, Listener, Pages

ADDRESS = IPv4Address("TCP", "127.0.0.1", 5)
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Transport(StringTransport):
    """A transport that notes how its connection ends."""

    ended = ""

    def abortConnection(self):
        self.ended = self.ended or "aborted"

    def loseConnection(self):
        self.ended = self.ended or "closed"


class Site:
    """A listener, and connections to it."""

    def __init__(self, lines):
        self.clock = Clock()
        self.health = Health()
        self.listener = Listener(
            Pages(self.health, lambda: iter(lines), Management(lambda: None, self.clock.seconds), self.clock),
            self.clock,
        )

    def connect(self, data=b""):
        transport = Transport()
        protocol = self.listener.buildProtocol(ADDRESS)
        protocol.makeConnection(transport)
        if data:
            protocol.dataReceived(data)
        return protocol, transport


@pytest.fixture
def pieces(monkeypatch):
    """The makers of pages that there were."""
    made, begin = [], site.Pieces.begin

    def noted(page):
        made.append(page)
        begin(page)

    monkeypatch.setattr(site.Pieces, "begin", noted)
    return made


def test_a_page_is_made_in_pieces_with_a_turn_between_them():
    made = Site(["a\n", "", "b\n" * 20_000, "c\n"])
    _, transport = made.connect(REQUEST)
    assert b"a\n" not in transport.value(), "nothing is made in the turn that reads"
    made.clock.advance(0)
    assert transport.ended == "closed"
    assert transport.value().count(b"b\n") == 20_000
    assert transport.value().count(b"\r\n") > 6, "three chunks"
    assert all(call.getTime() >= PATIENCE for call in made.clock.getDelayedCalls())


def test_nothing_is_made_while_the_peer_reads_nothing_and_then_its_connection_ends(pieces):
    made = Site(["a\n", "", "b\n", "", "c\n"])
    _, transport = made.connect(REQUEST)
    [page] = pieces
    page.pauseProducing()
    made.clock.advance(PATIENCE - 1)
    assert b"a\n" not in transport.value()
    page.resumeProducing()
    page.pauseProducing()
    made.clock.advance(PATIENCE - 1)
    assert not transport.ended
    made.clock.advance(1)
    assert transport.ended == "aborted"


def test_a_peer_that_is_gone_leaves_no_timer():
    made = Site(["a\n", "", "b\n"])
    protocol, transport = made.connect(REQUEST)
    made.clock.advance(0)
    if transport.producer is not None:
        transport.producer.stopProducing()
    protocol.connectionLost(Failure(ConnectionDone()))
    assert [call for call in made.clock.getDelayedCalls() if call.getTime() < LIFETIME - 1] == []


@pytest.mark.parametrize("data", [b"", b"GET", REQUEST[:-2]])
def test_no_connection_lasts_whatever_its_peer_does(data):
    made = Site(["a\n"])
    protocol, transport = made.connect(data)
    for _ in range(LIFETIME // 9):
        made.clock.advance(9)
        if not transport.ended:
            protocol.dataReceived(b"x")
    made.clock.advance(9)
    assert transport.ended == "aborted" or transport.ended == "closed"
    made.clock.advance(LIFETIME)
    assert transport.ended


def test_many_groups_are_gone_through_in_short_steps():
    room = Room()
    [partition] = room.topic()
    for number in range(1000):
        group = Group(b"x" * 16)
        group.positions = {partition: (0, "")}
        room.broker.groups.groups[f"group-{number:04}"] = group
    steps = run = 0
    for line in families(room.broker, {}, 100):
        steps += not line
        run = 0 if not line else run + 1
        assert run < 200
    assert steps >= 1000 // IN_A_STEP


def test_readiness_has_a_reason_and_a_failure_stays():
    health = Health()
    assert (health.is_ready, health.sentence) == (False, "recovering")
    health.is_now(Phase.RECOVERING, "37 %")
    assert health.sentence == "recovering: 37 %"
    health.is_now(Phase.SERVING)
    assert (health.is_ready, health.sentence) == (True, "ready")
    health.is_now(Phase.FAILED, "writing failed")
    health.is_now(Phase.STOPPING)
    assert (health.is_ready, health.sentence) == (False, "failed: writing failed")
