"""Sends over lost answers, refusals and restarts: once, in order, and never a false word about any."""

import pytest

from journal import frame
from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker
from txbroker import errors
from txbroker.commands import Refused, Send


@pytest.fixture
def broker():
    return ScriptedBroker()


@pytest.fixture
def rig(broker):
    return Rig(broker)


def sends(broker):
    return [request for request in broker.requests if type(request) is Send]


def refuse_once(broker, *names):
    """Refuse the next sends, one after another, with these errors."""
    left = list(names)

    def before(request, data):
        if type(request) is Send and left:
            return Refused(request.correlation, left.pop(0), "as told")
        return None

    broker.before = before


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


def test_a_send_whose_answer_was_lost_is_stored_once(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    first, _ = rig.send(b"a")
    rig.pump()
    second, _ = rig.send(b"b")
    rig.cut()
    broker.before = lambda request, data: None
    rig.connect()
    assert (first.base_offset, second.base_offset) == (1, 2)
    assert broker.values(1) == [b"warm", b"a", b"b"]


def test_a_send_that_never_arrived_is_stored_once_and_in_order(rig, broker):
    rig.send(b"warm")
    rig.pump()
    first, _ = rig.send(b"a")
    second, _ = rig.send(b"b")
    rig.core.take_output()  # lost on the way
    rig.cut()
    third, _ = rig.send(b"c")
    rig.connect()
    assert broker.values(1) == [b"warm", b"a", b"b", b"c"]
    assert (first.done, second.done, third.done) == (True, True, True)


def test_a_producer_id_outlives_its_connections(rig, broker):
    rig.send(b"a")
    rig.pump()
    rig.cut()
    rig.connect()
    rig.send(b"b")
    rig.pump()
    assert broker.producers == 101
    assert {request.producer_id for request in sends(broker)} == {101}


def test_a_broker_short_of_memory_is_asked_again_and_order_is_kept(broker):
    rig = Rig(broker, batch_bytes=0)
    rig.run(rig.producer.route("t"))
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "MemoryExhausted")
    batches = [rig.send(b"%d" % number)[0] for number in range(5)]
    rig.pump()
    assert not any(batch.done for batch in batches), "the followers met the gap and wait"
    rig.wait(1.0)
    assert broker.values(1) == [b"warm", b"0", b"1", b"2", b"3", b"4"]
    assert [batch.base_offset for batch in batches] == [1, 2, 3, 4, 5]


def test_a_broker_that_stays_full_ends_a_send_as_not_stored(rig, broker):
    broker.before = lambda request, data: (
        Refused(request.correlation, "DiskFull", "full") if type(request) is Send else None
    )
    batch, _ = rig.send(b"a")
    rig.pump()
    rig.wait(35)
    with pytest.raises(errors.DiskFull):
        batch.result()
    broker.before = lambda request, data: None
    later, _ = rig.send(b"b")
    rig.wait(5)
    assert later.base_offset == 0
    assert broker.values(1) == [b"b"]


def test_a_refused_message_takes_no_other_down_with_it(broker):
    rig = Rig(broker, batch_bytes=0)
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "MessageTooLarge")
    refused, *others = [rig.send(b"%d" % number)[0] for number in range(4)]
    rig.pump()
    with pytest.raises(errors.MessageTooLarge):
        refused.result()
    assert [batch.base_offset for batch in others] == [1, 2, 3]
    assert broker.values(1) == [b"warm", b"1", b"2", b"3"]


def test_no_number_is_used_again_while_a_copy_of_what_had_it_may_still_arrive(broker):
    rig = Rig(broker, batch_bytes=0)
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "LimitExceeded")
    refused, _ = rig.send(b"refused")
    first_half = rig.core.take_output()
    late, _ = rig.send(b"late")
    second_half = rig.core.take_output()
    old_connection = rig.feed
    rig.core.received(old_connection(b"".join(first_half)))
    rig.cut()
    rig.connect()  # the second half is still on its way through the old connection
    rig.wait(1)
    old_connection(b"".join(second_half))
    after, _ = rig.send(b"after")
    rig.wait(1)
    with pytest.raises(errors.LimitExceeded):
        refused.result()
    with pytest.raises(errors.OutcomeUnknown, match="may or may not be stored"):
        late.result()
    values = broker.values(1)
    assert values.count(b"late") <= 1
    assert values[after.base_offset] == b"after"


def test_what_is_in_doubt_is_not_called_refused_by_a_broker_that_has_other_limits_now(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    stored, _ = rig.send(b"a")
    rig.pump()
    rig.cut()
    refuse_once(broker, "MessageTooLarge")
    rig.connect()
    rig.wait(1)
    assert broker.values(1) == [b"warm", b"a"]
    with pytest.raises(errors.OutcomeUnknown):
        stored.result()


def test_what_is_stored_at_offsets_long_forgotten_has_no_receipt_and_breaks_nothing(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    stored, _ = rig.send(b"a")
    rig.pump()
    rig.cut()
    left = [1]

    def before(request, data):
        if type(request) is Send and left:
            return Refused(
                request.correlation, "SequenceOutOfOrder", "stored already", {"expected": 1 + left.pop()}
            )
        return None

    broker.before = before
    rig.connect()
    rig.wait(1)
    with pytest.raises(errors.OutcomeUnknown, match="do not send them again: stored already"):
        stored.result()
    after, _ = rig.send(b"b")
    rig.wait(1)
    assert after.base_offset == 2
    assert broker.values(1) == [b"warm", b"a", b"b"]


def test_a_gap_that_nothing_explains_is_never_closed_by_renumbering(rig, broker):
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "SequenceOutOfOrder")
    first, _ = rig.send(b"a")
    second, _ = rig.send(b"b")
    rig.pump()
    for batch in (first, second):
        with pytest.raises(errors.SequenceOutOfOrder):
            batch.result()
    with pytest.raises(errors.SequenceOutOfOrder):
        rig.send(b"c")
    assert broker.values(1) == [b"warm"]


def test_an_expired_producer_leaves_a_send_in_doubt_open_and_sends_new_ones_under_a_new_id(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    in_doubt, _ = rig.send(b"a")
    rig.pump()
    fresh, _ = rig.send(b"b")
    rig.cut()

    def before(request, data):
        if type(request) is Send and request.producer_id == 101:
            return Refused(request.correlation, "UnknownProducer", "expired")
        return None

    broker.before = before
    rig.connect()
    rig.wait(1)
    with pytest.raises(errors.OutcomeUnknown, match="may or may not be stored"):
        in_doubt.result()
    assert fresh.base_offset == 2
    assert broker.values(1) == [b"warm", b"a", b"b"]
    assert sends(broker)[-1].producer_id == 102


def test_an_expired_producer_does_not_hurt_a_send_that_was_not_tried_before(rig, broker):
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "UnknownProducer")
    batch, _ = rig.send(b"a")
    rig.wait(1)
    assert batch.base_offset == 1


def test_a_fenced_producer_stops_for_good(rig, broker):
    rig.send(b"warm")
    rig.pump()
    refuse_once(broker, "ProducerFenced")
    batch, _ = rig.send(b"a")
    rig.pump()
    with pytest.raises(errors.ProducerFenced):
        batch.result()
    with pytest.raises(errors.ProducerFenced):
        rig.send(b"b")


def test_a_poisoned_journal_is_asked_again_under_the_same_sequence(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: (
        Refused(request.correlation, "JournalPoisoned", "EIO") if type(request) is Send else None
    )
    batch, _ = rig.send(b"a")
    rig.pump()
    rig.cut()
    broker.before = lambda request, data: None
    rig.connect()
    rig.wait(3)
    assert batch.base_offset == 1
    assert {request.sequence for request in sends(broker)[1:]} == {1}


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
        lanes = []
        for _ in range(6):
            lane = route.choose(None, None)
            lane.append(b"x", 1, None, None)
            lanes.append(lane.index)
        assert lanes == [0, 1, 1, 1, 1, 1] or lanes[:2] == [0, 1]
        rig.pump()

    def test_an_explicit_partition_that_is_not_there_is_refused(self, rig):
        route = rig.run(rig.producer.route("t2"))
        assert route.choose(b"any", 1).number == 3
        with pytest.raises(errors.UnknownPartition, match="0 to 1, not 2"):
            route.choose(None, 2)
