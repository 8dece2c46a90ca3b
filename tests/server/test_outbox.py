"""What a peer does not read is bounded and counted; what it reads goes out once per turn, in order."""

import random

from twisted.internet.task import Clock
from twisted.internet.tcp import Connection

from txbroker.server.send_buffer import CONGESTED, SLAB, Outbox, Outboxes


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

    def drain(self, outbox):
        self.taken += self.buffered
        self.buffered = b""
        outbox.resumeProducing()


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
    def __init__(self, outboxes, clock):
        self.wire = Wire()
        self.congestion = []
        self.faults = 0
        self.outbox = Outbox(self.wire, outboxes, clock, self.congestion.append, self.fault)
        self.wire.producer = self.outbox

    def fault(self):
        self.faults += 1


def fail():
    raise AssertionError("no answer is lost here")


def connections(count=1, **settings):
    clock = Clock()
    outboxes = Outboxes(clock, **settings)
    return clock, outboxes, [Rig(outboxes, clock) for _ in range(count)]


def test_all_answers_of_a_turn_are_one_write():
    _, outboxes, [one] = connections()
    outboxes.hold()
    for answer in (b"a", b"b", b"c"):
        one.outbox.deliver(answer)
    assert one.wire.written == []
    outboxes.flush()
    assert one.wire.written == [b"abc"]
    assert outboxes.unsent == one.outbox.unsent == 0


def test_an_answer_outside_of_any_turn_of_ours_goes_out_at_the_end_of_the_reactors():
    clock, _, [one, other] = connections(2)
    one.outbox.deliver(b"a")
    other.outbox.deliver(b"b")
    assert len(clock.getDelayedCalls()) == 1, "one call for all connections"
    clock.advance(0)
    assert (one.wire.value, other.wire.value) == (b"a", b"b")


def test_what_a_full_transport_does_not_take_waits_and_follows_in_order():
    clock, outboxes, [one] = connections()
    one.wire.full = True
    whole = random.Random(1).randbytes(5 * SLAB + 17)
    one.outbox.deliver(b"head")
    one.outbox.deliver(whole)
    one.outbox.deliver(b"tail")
    clock.advance(0)
    assert len(one.wire.value) == SLAB
    assert one.outbox.unsent == len(whole) + 8
    while one.outbox.unsent:
        assert max(map(len, one.wire.written)) <= SLAB
        one.outbox.resumeProducing()
    assert one.wire.value == b"head" + whole + b"tail"
    assert outboxes.unsent == 0


def test_a_lone_answer_of_a_slab_is_not_copied():
    clock, _, [one] = connections()
    answer = bytes(SLAB)
    one.outbox.deliver(answer)
    clock.advance(0)
    assert one.wire.written[0] is answer


def test_small_answers_are_joined_and_large_ones_cut():
    clock, _, [one] = connections()
    for size in (10, 100_000, 10, 700_000, 10):
        one.outbox.deliver(bytes(size))
    clock.advance(0)
    assert sum(map(len, one.wire.written)) == 800_030
    assert max(map(len, one.wire.written)) <= SLAB
    assert len(one.wire.written) <= 800_030 // SLAB + 3


def test_a_session_waits_while_its_peer_does_not_read():
    clock, _, [one, other] = connections(2)
    one.wire.full = True
    one.outbox.deliver(bytes(CONGESTED + 1))
    assert one.congestion == [True], "at once: the next fetch of the same turn must see it"
    clock.advance(0)
    other.outbox.deliver(b"x")
    assert other.congestion == []
    while one.outbox.unsent > CONGESTED // 2:
        assert one.congestion == [True]
        one.outbox.resumeProducing()
    assert one.congestion == [True, False]


def test_over_the_budget_of_all_every_session_waits_until_half_of_it_is_free():
    clock, outboxes, [one, two, three] = connections(3, budget=1000)
    one.wire.full = two.wire.full = three.wire.full = True
    one.outbox.deliver(bytes(600))
    two.outbox.deliver(bytes(300))
    assert not outboxes.over
    three.outbox.deliver(bytes(200))
    assert outboxes.over
    assert three.congestion == [True]
    clock.advance(0)
    two.outbox.resumeProducing()
    assert outboxes.over, "800 of 1000 are still unsent"
    one.outbox.resumeProducing()
    assert not outboxes.over
    assert three.congestion == [True, False]


def test_the_time_since_which_nothing_was_sent_is_known():
    clock, _, [one] = connections()
    one.wire.full = True
    clock.advance(5)
    one.outbox.deliver(bytes(2 * SLAB))
    clock.advance(0)
    assert one.outbox.blocked_since == 5
    clock.advance(3)
    one.outbox.resumeProducing()
    assert one.outbox.blocked_since == 8
    one.outbox.resumeProducing()
    assert one.outbox.blocked_since is None


def test_a_connection_that_is_gone_counts_no_more_and_takes_no_more():
    clock, outboxes, [one, other] = connections(2, budget=1000)
    one.wire.full = True
    one.outbox.deliver(bytes(900))
    other.outbox.deliver(bytes(200))
    assert other.congestion == [True]
    one.outbox.stopProducing()
    assert outboxes.unsent == 200
    assert other.congestion == [True, False]
    one.outbox.deliver(b"late")
    one.outbox.stopProducing()
    clock.advance(0)
    assert one.wire.written == []
    assert other.wire.value == bytes(200)
    assert outboxes.unsent == 0


def test_a_fault_while_answers_are_written_costs_that_connection_alone():
    clock, outboxes, (one, two) = connections(2)
    outboxes.hold()
    one.wire.faulty = True
    one.outbox.deliver(b"x")
    two.outbox.deliver(b"first ")
    outboxes.flush()
    assert (one.faults, two.faults) == (1, 0)
    assert outboxes.unsent == one.outbox.unsent == 0
    one.wire.faulty = False
    one.outbox.deliver(b"what would follow a gap")
    two.outbox.deliver(b"second")
    clock.advance(1)
    assert two.wire.value == b"first second"
    assert one.wire.value == b""
    assert one.faults == 1


def test_a_fault_while_what_is_left_is_written_costs_that_connection_alone():
    clock, outboxes, [one] = connections()
    one.wire.full = True
    one.outbox.deliver(b"x" * SLAB)
    one.outbox.deliver(b"y")
    clock.advance(0)
    one.wire.faulty, one.wire.full = True, False
    one.outbox.resumeProducing()
    assert one.faults == 1
    assert outboxes.unsent == 0


class TestAPlainSocket:
    def made(self, room):
        clock = Clock()
        outboxes, socket = Outboxes(clock), Socket(room)
        return clock, outboxes, socket, Outbox(socket, outboxes, clock, lambda congested: None, fail)

    def test_it_is_given_answers_without_waiting_for_the_reactor(self):
        clock, outboxes, socket, outbox = self.made(room=1000)
        outbox.deliver(b"a")
        outbox.deliver(b"b")
        clock.advance(0)
        assert (socket.taken, socket.buffered) == (b"ab", b"")
        assert outboxes.unsent == outbox.unsent == 0

    def test_what_it_does_not_take_follows_in_order_through_the_transport(self):
        clock, outboxes, socket, outbox = self.made(room=5)
        outbox.deliver(b"first ")
        clock.advance(0)
        assert (socket.taken, socket.buffered) == (b"first", b" ")
        socket.room = 1000
        outbox.deliver(b"second ")
        clock.advance(0)
        assert socket.taken == b"first", "not before the transport has sent what it holds"
        socket.drain(outbox)
        outbox.deliver(b"third")
        clock.advance(0)
        assert socket.taken == b"first second third"
        assert outboxes.unsent == 0

    def test_one_that_is_broken_is_left_to_the_transport_to_find(self):
        clock, _, socket, outbox = self.made(room=5)
        socket.broken = True
        outbox.deliver(b"x")
        clock.advance(0)
        assert socket.buffered == b"x"

    def test_one_with_tls_on_it_is_never_written_to_directly(self):
        clock, outboxes = Clock(), Outboxes(Clock())
        socket = Socket(1000)
        socket.TLS = True
        outbox = Outbox(socket, outboxes, clock, lambda congested: None, fail)
        outbox.deliver(b"secret")
        outbox.flush()
        assert (socket.taken, socket.buffered) == (b"", b"secret")
