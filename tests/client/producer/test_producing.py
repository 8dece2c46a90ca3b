"""Test sends: which messages go in one request, when, how long that may take, and to which partition."""

import pytest

from journal.formats import frame
from tests.client.producer.producing_scene import refuse_once, sends
from tests.client.rig import Rig
from txbroker import errors


def test_a_lone_message_goes_at_once_as_a_plain_frame(rig, broker):
    batch, position = rig.send(b"a")
    rig.pump()
    assert (batch.base_offset, position) == (0, 0)
    assert broker.values(1) == [b"a"]
    assert len(broker.logs[1][0][1]) == frame.HEADER_BYTES + 1


def test_messages_that_wait_together_become_one_request(rig, broker):
    batches = [rig.send(b"%d" % number)[0] for number in range(10)]
    rig.pump()
    assert [request.sequence for request in sends(broker)] == [0, 1]
    assert batches[1] is batches[9]
    assert batches[9].base_offset == 1
    assert broker.values(1) == [b"%d" % number for number in range(10)]


def test_a_full_batch_does_not_wait_for_an_answer(broker):
    rig = Rig(broker, batch_bytes=1000)
    rig.send(b"first")
    rig.pump()
    for _ in range(50):
        rig.send(b"x" * 100)
    assert rig.core.busy >= 7
    rig.pump()
    assert len(broker.values(1)) == 51


def test_no_batch_is_over_its_bound_unless_it_is_one_message(broker):
    rig = Rig(broker, batch_bytes=1000)
    for size in [100] * 30 + [5000] + [100] * 3:
        rig.send(b"x" * size)
    rig.pump()
    sizes = [len(run) for _, run in broker.logs[1]]
    assert [size for size in sizes if size > 1000 + frame.HEADER_BYTES] == [5000 + frame.HEADER_BYTES]


def test_without_batches_each_message_is_a_request(broker):
    rig = Rig(broker, batch_bytes=0)
    for _ in range(5):
        rig.send(b"x")
    rig.pump()
    assert [request.sequence for request in sends(broker)] == [0, 1, 2, 3, 4]


def test_lingering_keeps_a_batch_open_for_that_long(broker):
    rig = Rig(broker, linger=0.1)
    rig.send(b"a")
    rig.wait(0.05)
    rig.send(b"b")
    assert broker.values(1) == []
    rig.wait(0.06)
    assert broker.values(1) == [b"a", b"b"]
    assert len(broker.logs[1]) == 1


def test_a_send_that_found_no_broker_in_time_was_not_sent_and_never_will_be(rig, broker):
    rig.send(b"warm")
    rig.pump()
    rig.cut()
    batch, _ = rig.send(b"a")
    rig.wait(31)
    with pytest.raises(errors.ConnectionUnavailable, match="were not sent and will not be"):
        batch.result()
    rig.connect()
    later, _ = rig.send(b"b")
    rig.pump()
    assert broker.values(1) == [b"warm", b"b"]
    assert later.base_offset == 1
    assert rig.producer.buffered == 0


def test_a_send_that_timed_out_in_flight_keeps_its_place_so_that_later_ones_fit(rig, broker):
    rig.send(b"warm")
    rig.pump()
    lost, _ = rig.send(b"a")
    rig.core.take_output()  # it never arrives
    rig.wait(31)
    with pytest.raises(errors.RequestTimedOut, match="may or may not"):
        lost.result()
    rig.cut(rig.core.abort)
    later, _ = rig.send(b"b")
    rig.connect()
    assert later.base_offset == 2
    assert broker.values(1) == [b"warm", b"a", b"b"]
    assert rig.producer.buffered == 0


def test_closing_ends_every_send_with_the_truth(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW
    sent, _ = rig.send(b"a")
    rig.pump()
    unsent, _ = rig.send(b"b")
    rig.core.stop(errors.ConnectionClosed("closed; nothing was sent"))
    with pytest.raises(errors.OutcomeUnknown):
        sent.result()
    with pytest.raises(errors.ConnectionClosed):
        unsent.result()
    assert rig.producer.buffered == 0


def test_a_message_over_the_brokers_limit_is_refused_here(rig, broker):
    rig.run(rig.producer.route("t"))
    with pytest.raises(errors.MessageTooLarge, match="nothing was sent"):
        rig.send(b"x" * (1 << 20))
    assert sends(broker) == []
    rig.send(b"small")
    rig.pump()
    assert broker.values(1) == [b"small"]


def test_a_topic_that_was_deleted_and_made_again_is_found_anew(rig, broker):
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "UnknownPartition")
    batch, _ = rig.send(b"a")
    rig.pump()
    with pytest.raises(errors.UnknownPartition):
        batch.result()
    broker.topics = [("t", (3,))]
    rig.send(b"b")
    rig.pump()
    assert broker.values(3) == [b"b"]


class TestFlush:
    def test_it_waits_for_all_and_raises_the_first_failure_once(self, rig, broker):
        refuse_once(broker, "InvalidFrame")
        batch, _ = rig.send(b"a")
        batch.watched = True
        flushed = rig.start(rig.producer.flush())
        with pytest.raises(errors.InvalidFrame) as caught:
            flushed.result()
        assert "1 messages failed" in caught.value.__notes__[0]
        rig.run(rig.producer.flush())

    def test_it_also_tells_of_a_failure_from_before(self, rig, broker):
        refuse_once(broker, "InvalidFrame")
        batch, _ = rig.send(b"a")
        batch.watched = True
        rig.pump()
        assert batch.done
        with pytest.raises(errors.InvalidFrame):
            rig.run(rig.producer.flush())

    def test_it_leaves_out_what_its_caller_has_been_told(self, rig, broker):
        refuse_once(broker, "InvalidFrame")
        batch, _ = rig.send(b"a")
        batch.watched = True
        rig.pump()
        batch.watched = False
        rig.run(rig.producer.flush())

    def test_it_sends_what_lingers(self, broker):
        rig = Rig(broker, linger=20.0)
        batch, _ = rig.send(b"a")
        batch.watched = True
        rig.run(rig.producer.flush())
        assert broker.values(1) == [b"a"]


class TestChoosingAPartition:
    def test_without_a_key_a_batch_stays_together_and_the_next_goes_elsewhere(self, rig):
        route = rig.run(rig.producer.route("t2"))
        queues = []
        for _ in range(6):
            queue = route.choose(None, None)
            queue.append(b"x", 1, None, None)
            queues.append(queue.index)
        assert queues == [0, 1, 1, 1, 1, 1] or queues[:2] == [0, 1]
        rig.pump()

    def test_an_explicit_partition_that_is_not_there_is_refused(self, rig):
        route = rig.run(rig.producer.route("t2"))
        assert route.choose(b"any", 1).number == 3
        with pytest.raises(errors.UnknownPartition, match="0 to 1, not 2"):
            route.choose(None, 2)
