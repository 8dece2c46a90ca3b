"""Test sends to a topic that is not known yet: one question, answers in their order, a bounded number at a time."""

import pytest

from txbroker import errors
from txbroker.client.core.waits import MOST_AT_ONCE
from txbroker.wire.messages import DescribeTopics, Refused


def asked(broker):
    return [request for request in broker.requests if type(request) is DescribeTopics]


def send(rig, value, topic="t"):
    return rig.start(rig.producer.append(topic, value, 1, None, None, None, True))


@pytest.fixture
def held(rig, broker):
    """The broker's bytes wait until they are let go."""
    feed, kept = rig.feed, []

    def hold(data):
        kept.append(data)
        return b""

    rig.feed = hold

    def release():
        rig.feed = feed
        for data in kept:
            rig.core.received(feed(data))

    return release


def test_many_sends_ask_once_and_go_on_some_at_a_time_in_their_order(rig, broker, held):
    count = 3 * MOST_AT_ONCE
    sending = [send(rig, b"%d" % number) for number in range(count)]
    held()
    assert len(asked(broker)) == 1
    assert sum(each.done for each in sending) == MOST_AT_ONCE
    sending.append(send(rig, b"%d" % count))  # does not overtake those who wait
    rig.wait(0.01)
    assert all(each.done for each in sending)
    assert broker.values(1) == [b"%d" % number for number in range(count + 1)]
    send(rig, b"later")
    assert len(asked(broker)) == 1


def test_all_are_told_that_there_is_no_such_topic_and_the_next_asks_anew(rig, broker, held):
    sending = [send(rig, b"a", "none") for _ in range(3)]
    held()
    assert {type(each.error) for each in sending} == {errors.UnknownTopic}
    assert len(asked(broker)) == 1
    broker.topics = [*broker.topics, ("none", [1])]
    assert send(rig, b"a", "none").error is None
    assert len(asked(broker)) == 2


def test_who_gives_up_takes_nobody_along(rig, broker, held):
    sending = [send(rig, b"%d" % number) for number in range(3)]
    sending[0].cancel()
    held()
    rig.pump()
    assert broker.values(1) == [b"1", b"2"]


def test_if_all_give_up_the_next_need_not_ask_again(rig, broker, held):
    sending = [send(rig, b"a") for _ in range(3)]
    for each in sending:
        each.cancel()
    held()
    assert send(rig, b"b").error is None
    assert len(asked(broker)) == 1
    assert broker.values(1) == [b"b"]


def test_a_topic_forgotten_meanwhile_is_asked_for_again(rig, broker, held):
    sending = send(rig, b"a")
    rig.producer.forget_route("t")
    held()
    rig.pump()
    assert sending.done
    send(rig, b"b")
    assert len(asked(broker)) == 2


def test_a_question_that_was_interrupted_is_asked_again(rig, held):
    """Its answer was being taken in, and the connection goes with that."""

    def interrupts(*_):
        rig.producer._route = found
        raise KeyboardInterrupt

    found, rig.producer._route = rig.producer._route, interrupts
    sending = send(rig, b"a")
    with pytest.raises(KeyboardInterrupt):
        held()
    rig.cut(rig.core.abort)
    rig.producer.mend()
    rig.connect()
    assert sending.done
    assert sending.error is None


def test_a_refused_question_ends_all_who_wait(rig, broker, held):
    broker.before = lambda request, data: Refused(request.correlation, "MemoryExhausted", "try later")
    sending = [send(rig, b"a") for _ in range(3)]
    held()
    assert {type(each.error) for each in sending} == {errors.MemoryExhausted}
