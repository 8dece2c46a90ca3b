"""Test topics that are deleted and created again: nothing of the old ones is kept, and no message is lost."""

import time

import pytest

from tests.client.rig import Rig, add
from txbroker import errors
from txbroker.wire import messages
from txbroker.wire.messages import Refused, Send


def replace(broker, *topics):
    """Delete what topics there are and make these."""
    broker.topics = list(topics)
    broker.logs = {number: [] for _, numbers in topics for number in numbers} | broker.logs
    broker.ends = dict.fromkeys(broker.logs, 0) | broker.ends
    numbers = {number for _, those in topics for number in those}

    def before(request, data):
        partitions = [request.partition] if type(request) in (Send, messages.Add) else []
        partitions += [number for number, _ in request.runs] if type(request) is messages.Commit else []
        if any(number not in numbers for number in partitions):
            return Refused(request.correlation, "UnknownPartition", "there is no such partition")
        return None

    broker.before = before


def test_a_client_that_deletes_its_topics_keeps_nothing_of_them(rig, broker):
    for number in range(10, 40):
        replace(broker, (f"t-{number}", (number, 1000 + number)))
        batch, _ = rig.send(b"a", f"t-{number}")
        rig.pump()
        assert batch.done
        rig.run(rig.operations.delete_topic(f"t-{number}"))
    assert rig.producer._queues == rig.producer._routes == {}
    assert rig.producer._all_queues() == []


def test_a_topic_that_somebody_else_has_deleted_is_kept_until_its_messages_have_ended(rig, broker):
    rig.send(b"a", "t2", b"a")
    rig.pump()
    replace(broker, ("t", (1,)))
    batch, _ = rig.send(b"b", "t2", b"a")
    rig.pump()
    with pytest.raises(errors.UnknownPartition):
        batch.result()
    assert rig.producer._queues == {}
    assert rig.producer._all_queues() == []


def test_what_flies_to_a_topic_that_is_deleted_is_answered_and_waited_for(broker):
    rig = Rig(broker)
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    flying, _ = rig.send(b"a")
    flying.watched = True
    rig.pump()
    waiting, _ = rig.send(b"b")
    waiting.watched = True
    rig.run(rig.operations.delete_topic("t"))
    assert len(rig.producer._all_queues()) == 1
    replace(broker)
    flushing = rig.start(rig.producer.flush())
    assert not flushing.done
    rig.cut()
    rig.connect()
    with pytest.raises(errors.OutcomeUnknown):  # the first one was sent before
        flushing.result()
    with pytest.raises(errors.UnknownPartition):
        waiting.result()
    assert rig.producer._all_queues() == []


def test_a_sender_that_had_the_way_to_a_topic_before_it_was_deleted_is_told(rig, broker):
    way = rig.run(rig.producer.route("t"))
    rig.run(rig.operations.delete_topic("t"))
    with pytest.raises(errors.UnknownPartition, match="'t' that had partition number 1 has been deleted"):
        way.choose(None, None).append(b"a", 1, None, None)


def test_a_refusal_of_the_former_topic_is_none_of_that_which_has_its_name_now(rig, broker):
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    flying, _ = rig.send(b"a")
    rig.pump()
    rig.run(rig.operations.delete_topic("t"))
    replace(broker, ("t", (5,)))
    now = rig.run(rig.producer.route("t"))
    rig.cut()
    rig.connect()
    with pytest.raises(errors.OutcomeUnknown):
        flying.result()
    assert rig.producer.known_route("t") is now
    rig.send(b"b")
    rig.pump()
    assert broker.values(5) == [b"b"]


def test_a_topic_that_is_not_there_any_more_when_it_is_looked_for_is_not_kept(rig, broker):
    rig.send(b"a")
    rig.pump()
    rig.producer.forget_route("t")
    replace(broker)
    with pytest.raises(errors.UnknownTopic):
        rig.run(rig.producer.route("t"))
    assert rig.producer._queues == {}


def test_a_transaction_that_is_refused_for_a_deleted_topic_has_the_next_one_look_again(rig, broker):
    """A client that sent in transactions only never found a topic that was deleted and made again."""
    first = rig.transaction()
    rig.run(add(first, b"a"))
    rig.run(first.commit())
    replace(broker, ("t", (7,)))
    refused = rig.transaction()
    rig.run(add(refused, b"b"))
    with pytest.raises(errors.UnknownPartition):
        rig.run(refused.commit())
    rig.run(refused.rollback())
    again = rig.transaction()
    rig.run(add(again, b"c"))
    rig.run(again.commit())
    assert broker.values(7) == [b"c"]


def test_a_topic_that_is_looked_for_again_in_vain_goes_on_with_its_sequence(rig, broker):
    """A refused transaction does not say which of its topics is gone."""
    rig.send(b"a")
    rig.pump()
    refused = rig.transaction()
    rig.run(add(refused, b"b"))
    rig.run(add(refused, b"b", "t2"))
    replace(broker, ("t", (1,)))
    with pytest.raises(errors.UnknownPartition):
        rig.run(refused.commit())
    assert rig.producer.known_route("t") is None
    rig.send(b"c")
    rig.pump()
    assert broker.values(1) == [b"a", b"c"]


def test_looking_again_for_a_topic_of_ten_thousand_partitions_does_not_hold_the_loop(rig, broker):
    """Comparing each queue with each took 1.1 s, in which a loop's other tasks wait; it takes 2 ms."""
    replace(broker, ("wide", tuple(range(100, 10_100))))
    rig.send(b"a", "wide")
    rig.pump()
    queues = rig.producer._queues["wide"]
    began = time.process_time()
    rig.producer._have("wide", list(queues))
    assert time.process_time() - began < 0.3
    assert rig.producer._queues["wide"] == queues
    assert not any(queue.broken for queue in queues)
