"""Test sends that are repeated after lost answers, refusals and restarts: once, in order, never reported wrongly."""

import pytest

from tests.client.producer.producing_scene import refuse_once, sends
from tests.client.rig import Rig
from txbroker import errors
from txbroker.wire.messages import Refused, Send


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
