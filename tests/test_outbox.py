"""What a peer does not read is bounded and counted; what it reads goes out once per turn, in order."""

import random

from twisted.internet.task import Clock

from txbroker.outbox import CONGESTED, SLAB, Outbox, Outboxes


class Wire:
    """A transport that can be told to be full."""

    def __init__(self):
        self.written = []
        self.producer = None
        self.full = False

    def write(self, data):
        assert type(data) is bytes
        self.written.append(data)
        if self.full:
            self.producer.pauseProducing()

    @property
    def value(self):
        return b"".join(self.written)


class Connection:
    def __init__(self, outboxes, clock):
        self.wire = Wire()
        self.congestion = []
        self.outbox = Outbox(self.wire, outboxes, clock, self.congestion.append)
        self.wire.producer = self.outbox


def connections(count=1, **settings):
    clock = Clock()
    outboxes = Outboxes(clock, **settings)
    return clock, outboxes, [Connection(outboxes, clock) for _ in range(count)]


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
    assert len(one.wire.written) <= 6


def test_a_session_waits_while_its_peer_does_not_read():
    clock, _, [one, other] = connections(2)
    one.wire.full = True
    one.outbox.deliver(bytes(CONGESTED + 1))
    assert one.congestion == [True], "at once: the next fetch of the same turn must see it"
    clock.advance(0)
    other.outbox.deliver(b"x")
    assert other.congestion == []
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
