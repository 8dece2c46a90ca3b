"""Test reads with thousands of requests: slow ones wait while other connections have their turn.

Seen to fail: 64 KiB of compressed requests held the reactor, and all other connections, for seconds.
"""

import pytest

from tests.server.connections.test_protocol import Rig, answers
from txbroker.broker.sessions.scheduler import STINT
from txbroker.wire.codec import encode
from txbroker.wire.messages import Ping, Send


@pytest.fixture
def slow():
    """A broker of which every request takes three quarters of a turn."""
    rig = Rig()

    def takes_long(*_):
        rig.clock.rightNow += STINT * 0.75

    rig.broker.action = takes_long
    return rig


def judged(rig):
    return [command.correlation for _, command, _ in rig.broker.commands]


def test_what_takes_longer_than_a_turn_goes_on_in_the_next_and_in_order(slow):
    one, other = slow.connect(), slow.connect()
    one.dataReceived(b"".join(encode(Ping(number)) for number in range(7)))
    assert judged(slow) == [0, 1]
    assert not one.transport.reading
    other.dataReceived(encode(Ping(100)))
    assert judged(slow) == [0, 1], "the other gets in line, and is the first there"
    assert one.transport.writes == 1
    slow.clock.advance(0)
    assert judged(slow) == [0, 1, 100, 2, 3, 4, 5, 6]
    assert [answer.correlation for answer in answers(one)] == list(range(7))
    assert one.transport.writes == 4
    assert one.transport.reading
    assert other.transport.reading
    assert slow.clock.getDelayedCalls() == []


def test_nothing_is_read_until_the_last_of_what_waits_had_its_turn(slow):
    one, takes_long, reading = slow.connect(), slow.broker.action, []
    slow.broker.action = lambda *what: (takes_long(*what), reading.append(one.transport.reading))
    one.dataReceived(b"".join(encode(Ping(number)) for number in range(7)))
    slow.clock.advance(0)
    assert reading == [True] * 2 + [False] * 5


def test_what_comes_though_the_connection_is_paused_waits_behind_it(slow):
    one = slow.connect()
    for start in (0, 3):
        one.dataReceived(b"".join(encode(Ping(start + number)) for number in range(3)))
    assert judged(slow) == [0, 1]
    while not one.transport.reading:
        slow.clock.advance(0)
    assert judged(slow) == list(range(6))


@pytest.mark.parametrize("how", ["it is lost", "it is closed", "it is aborted", "no more is taken"])
def test_what_waits_is_not_carried_out_once_the_connection_has_ended(slow, how):
    one = slow.connect()
    one.dataReceived(b"".join(encode(Ping(number)) for number in range(7)))
    {
        "it is lost": one.transport.end,
        "it is closed": one.close,
        "it is aborted": one.abort,
        "no more is taken": lambda: slow.connections.stop_reading("it is stopping"),
    }[how]()
    slow.clock.advance(0)
    assert judged(slow) == [0, 1]
    assert slow.clock.getDelayedCalls() == []


def test_a_fault_in_a_later_turn_costs_the_connection_and_no_other(slow):
    one, other = slow.connect(), slow.connect()
    one.dataReceived(b"".join(encode(Ping(number)) for number in range(7)))

    def fails(*_):
        raise ArithmeticError("of ours")

    slow.broker.action = fails
    slow.clock.advance(0)
    assert one.transport.lost
    assert not other.transport.lost


def test_time_that_others_had_is_not_held_against_a_peer_amid_a_message(slow):
    one = slow.connect()
    message = encode(Send(9, 1), bytes(100))
    one.dataReceived(b"".join(encode(Ping(number)) for number in range(7)) + message[:50])
    slow.connections.sweep()
    while not one.transport.reading:
        slow.clock.advance(0)
    slow.broker.action = None
    one.dataReceived(message[50:])
    assert judged(slow) == [*range(7), 9]


def test_a_fault_in_a_fetch_whose_turn_has_come_costs_its_connection_and_keeps_no_answer_back(slow):
    one, other = slow.connect(), slow.connect()
    slow.broker.action = None

    def fails():
        one.session.due.clear()
        raise ArithmeticError("of ours")

    one.session.go_on = fails
    one.session.due["a fetch"] = None
    one.session.wake()
    slow.clock.advance(0)
    assert one.transport.lost
    other.dataReceived(encode(Ping(1)))
    assert [answer.correlation for answer in answers(other)] == [1]


def test_one_whose_fetches_wait_for_its_turn_is_read_and_one_whose_requests_do_is_not(slow):
    one = slow.connect()
    one.session.go_on = one.session.due.clear
    slow.broker.action = None
    one.session.due["a fetch"] = None
    one.session.wake()
    assert one.transport.reading
    one.dataReceived(encode(Ping(1)))
    assert not one.transport.reading
    slow.clock.advance(0)
    assert one.transport.reading
    assert judged(slow) == [1]
