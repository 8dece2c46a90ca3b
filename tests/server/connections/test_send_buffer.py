"""Test that bytes that a peer does not read are bounded and counted; others are written once per turn, in order."""

import random

from twisted.internet.task import Clock
from twisted.internet.tcp import Connection

from txbroker.server.connections.send_buffer import CONGESTED, SLAB, SendBuffer, SendBuffers


class Socket(Connection):
    """A plain socket's transport with a kernel buffer of `room` bytes."""

    def __init__(self, room):
        self.room = room
        self.taken = b""
        self.buffered = b""
        self.broken = False

    def getHandle(self):
        return self

    def send(self, data):
        assert not self.buffered, "this would overtake what the transport holds"
        if self.broken:
            raise BrokenPipeError
        if not self.room:
            raise BlockingIOError
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.taken += taken
        return len(taken)

    def write(self, data):
        self.buffered += data

    def drain(self, send_buffer):
        self.taken += self.buffered
        self.buffered = b""
        send_buffer.resumeProducing()


class Wire:
    """A transport that can be told to be full."""

    def __init__(self):
        self.written = []
        self.producer = None
        self.full = False
        self.faulty = False

    def write(self, data):
        assert type(data) is bytes
        if self.faulty:
            raise RuntimeError("a fault of ours")
        self.written.append(data)
        if self.full:
            self.producer.pauseProducing()

    @property
    def value(self):
        return b"".join(self.written)


class Rig:
    def __init__(self, send_buffers, clock):
        self.wire = Wire()
        self.congestion = []
        self.faults = 0
        self.send_buffer = SendBuffer(self.wire, send_buffers, clock, self.congestion.append, self.fault)
        self.wire.producer = self.send_buffer

    def fault(self):
        self.faults += 1


def fail():
    raise AssertionError("no answer is lost here")


def connections(count=1, **settings):
    clock = Clock()
    send_buffers = SendBuffers(clock, **settings)
    return clock, send_buffers, [Rig(send_buffers, clock) for _ in range(count)]


def test_all_answers_of_a_turn_are_one_write():
    _, send_buffers, [one] = connections()
    send_buffers.hold()
    for answer in (b"a", b"b", b"c"):
        one.send_buffer.deliver(answer)
    assert one.wire.written == []
    send_buffers.flush()
    assert one.wire.written == [b"abc"]
    assert send_buffers.unsent == one.send_buffer.unsent == 0


def test_an_answer_outside_of_any_turn_of_ours_goes_out_at_the_end_of_the_reactors():
    clock, _, [one, other] = connections(2)
    one.send_buffer.deliver(b"a")
    other.send_buffer.deliver(b"b")
    assert len(clock.getDelayedCalls()) == 1, "one call for all connections"
    clock.advance(0)
    assert (one.wire.value, other.wire.value) == (b"a", b"b")


def test_what_a_full_transport_does_not_take_waits_and_follows_in_order():
    clock, send_buffers, [one] = connections()
    one.wire.full = True
    whole = random.Random(1).randbytes(5 * SLAB + 17)
    one.send_buffer.deliver(b"head")
    one.send_buffer.deliver(whole)
    one.send_buffer.deliver(b"tail")
    clock.advance(0)
    assert len(one.wire.value) == SLAB
    assert one.send_buffer.unsent == len(whole) + 8
    while one.send_buffer.unsent:
        assert max(map(len, one.wire.written)) <= SLAB
        one.send_buffer.resumeProducing()
    assert one.wire.value == b"head" + whole + b"tail"
    assert send_buffers.unsent == 0


def test_a_lone_answer_of_a_slab_is_not_copied():
    clock, _, [one] = connections()
    answer = bytes(SLAB)
    one.send_buffer.deliver(answer)
    clock.advance(0)
    assert one.wire.written[0] is answer


def test_small_answers_are_joined_and_large_ones_cut():
    clock, _, [one] = connections()
    for size in (10, 100_000, 10, 700_000, 10):
        one.send_buffer.deliver(bytes(size))
    clock.advance(0)
    assert sum(map(len, one.wire.written)) == 800_030
    assert max(map(len, one.wire.written)) <= SLAB
    assert len(one.wire.written) <= 800_030 // SLAB + 3


def test_a_session_waits_while_its_peer_does_not_read():
    clock, _, [one, other] = connections(2)
    one.wire.full = True
    one.send_buffer.deliver(bytes(CONGESTED + 1))
    assert one.congestion == [True], "at once: the next fetch of the same turn must see it"
    clock.advance(0)
    other.send_buffer.deliver(b"x")
    assert other.congestion == []
    while one.send_buffer.unsent > CONGESTED // 2:
        assert one.congestion == [True]
        one.send_buffer.resumeProducing()
    assert one.congestion == [True, False]


def test_over_the_budget_of_all_every_session_waits_until_half_of_it_is_free():
    clock, send_buffers, [one, two, three] = connections(3, budget=1000)
    one.wire.full = two.wire.full = three.wire.full = True
    one.send_buffer.deliver(bytes(600))
    two.send_buffer.deliver(bytes(300))
    assert not send_buffers.over
    three.send_buffer.deliver(bytes(200))
    assert send_buffers.over
    assert three.congestion == [True]
    clock.advance(0)
    two.send_buffer.resumeProducing()
    assert send_buffers.over, "800 of 1000 are still unsent"
    one.send_buffer.resumeProducing()
    assert not send_buffers.over
    assert three.congestion == [True, False]


def test_the_time_since_which_nothing_was_sent_is_known():
    clock, _, [one] = connections()
    one.wire.full = True
    clock.advance(5)
    one.send_buffer.deliver(bytes(2 * SLAB))
    clock.advance(0)
    assert one.send_buffer.blocked_since == 5
    clock.advance(3)
    one.send_buffer.resumeProducing()
    assert one.send_buffer.blocked_since == 8
    one.send_buffer.resumeProducing()
    assert one.send_buffer.blocked_since is None


def test_a_connection_that_is_gone_counts_no_more_and_takes_no_more():
    clock, send_buffers, [one, other] = connections(2, budget=1000)
    one.wire.full = True
    one.send_buffer.deliver(bytes(900))
    other.send_buffer.deliver(bytes(200))
    assert other.congestion == [True]
    one.send_buffer.stopProducing()
    assert send_buffers.unsent == 200
    assert other.congestion == [True, False]
    one.send_buffer.deliver(b"late")
    one.send_buffer.stopProducing()
    clock.advance(0)
    assert one.wire.written == []
    assert other.wire.value == bytes(200)
    assert send_buffers.unsent == 0


def test_a_fault_while_answers_are_written_costs_that_connection_alone():
    clock, send_buffers, (one, two) = connections(2)
    send_buffers.hold()
    one.wire.faulty = True
    one.send_buffer.deliver(b"x")
    two.send_buffer.deliver(b"first ")
    send_buffers.flush()
    assert (one.faults, two.faults) == (1, 0)
    assert send_buffers.unsent == one.send_buffer.unsent == 0
    one.wire.faulty = False
    one.send_buffer.deliver(b"what would follow a gap")
    two.send_buffer.deliver(b"second")
    clock.advance(1)
    assert two.wire.value == b"first second"
    assert one.wire.value == b""
    assert one.faults == 1


def test_a_fault_while_what_is_left_is_written_costs_that_connection_alone():
    clock, send_buffers, [one] = connections()
    one.wire.full = True
    one.send_buffer.deliver(b"x" * SLAB)
    one.send_buffer.deliver(b"y")
    clock.advance(0)
    one.wire.faulty, one.wire.full = True, False
    one.send_buffer.resumeProducing()
    assert one.faults == 1
    assert send_buffers.unsent == 0


class TestAPlainSocket:
    def made(self, room):
        clock = Clock()
        send_buffers, socket = SendBuffers(clock), Socket(room)
        return (
            clock,
            send_buffers,
            socket,
            SendBuffer(socket, send_buffers, clock, lambda congested: None, fail),
        )

    def test_it_is_given_answers_without_waiting_for_the_reactor(self):
        clock, send_buffers, socket, send_buffer = self.made(room=1000)
        send_buffer.deliver(b"a")
        send_buffer.deliver(b"b")
        clock.advance(0)
        assert (socket.taken, socket.buffered) == (b"ab", b"")
        assert send_buffers.unsent == send_buffer.unsent == 0

    def test_what_it_does_not_take_follows_in_order_through_the_transport(self):
        clock, send_buffers, socket, send_buffer = self.made(room=5)
        send_buffer.deliver(b"first ")
        clock.advance(0)
        assert (socket.taken, socket.buffered) == (b"first", b" ")
        socket.room = 1000
        send_buffer.deliver(b"second ")
        clock.advance(0)
        assert socket.taken == b"first", "not before the transport has sent what it holds"
        socket.drain(send_buffer)
        send_buffer.deliver(b"third")
        clock.advance(0)
        assert socket.taken == b"first second third"
        assert send_buffers.unsent == 0

    def test_one_that_is_broken_is_left_to_the_transport_to_find(self):
        clock, _, socket, send_buffer = self.made(room=5)
        socket.broken = True
        send_buffer.deliver(b"x")
        clock.advance(0)
        assert socket.buffered == b"x"

    def test_one_with_tls_on_it_is_never_written_to_directly(self):
        clock, send_buffers = Clock(), SendBuffers(Clock())
        socket = Socket(1000)
        socket.TLS = True
        send_buffer = SendBuffer(socket, send_buffers, clock, lambda congested: None, fail)
        send_buffer.deliver(b"secret")
        send_buffer.flush()
        assert (socket.taken, socket.buffered) == (b"", b"secret")
