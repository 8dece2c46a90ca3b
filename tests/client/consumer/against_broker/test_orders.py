"""Test what a consumer hands out while messages wait, by its ``order``, against a real broker; nothing gets lost."""

import uuid

import pytest

from txbroker import errors

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    """Ten messages; the keys of the even ones are a, of the odd ones b, and the last two have none."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    for number in range(10):
        broker.send(name, b"%d" % number, key=None if number > 7 else (b"b" if number % 2 else b"a"))
    return name


def read(consumer, count):
    return [next(consumer) for _ in range(count)]


def offsets(consumer, timeout=0.3):
    """What comes until nothing does for a while."""
    found = []
    while some := consumer.poll(timeout):
        found += [message.offset for message in some]
    return found


def position(broker, group):
    return [at.offset for at in broker.group_offsets(group)]


def hold(connection, topic, *numbers):
    """Prepare a transaction that finishes these messages, by a consumer without a claim."""
    consumer = connection.consume(topic, topic, partitions=[0], claim=False, order=None)
    messages = read(consumer, max(numbers) + 1)
    consumer.done(messages[0])
    tx = connection.transaction(connection.xid(1, uuid.uuid4().hex, "x"))
    for number in numbers:
        tx.done(messages[number], consumer)
    tx.prepare()
    consumer.close()
    return tx


@pytest.mark.parametrize(
    ("order", "before", "behind"),
    [
        ("partition", [1], [3, 4, 5, 6, 7, 8, 9]),
        ("key", [1, 3, 5, 7, 8, 9], [4, 6]),
        (None, [1, 3, 4, 5, 6, 7, 8, 9], []),
    ],
)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_what_waits_holds_up_what_its_order_says(broker, other, topic, order, before, behind, ends):
    tx = hold(other, topic, 2)
    consumer = broker.consume(topic, topic, partitions=[0], order=order, claim=False)
    assert offsets(consumer) == before
    getattr(tx, ends)()
    first = [] if ends == "commit" else [2]
    assert sorted(offsets(consumer)) == [*first, *behind]
    consumer.commit()
    assert position(broker, topic) == [10]


def test_messages_of_a_key_come_in_their_order_and_only_behind_what_waits_of_it(broker, other, topic):
    tx = hold(other, topic, 2, 3)
    consumer = broker.consume(topic, topic, partitions=[0], order="key", claim=False)
    assert offsets(consumer) == [1, 8, 9]
    broker.send(topic, b"10", key=b"a")
    broker.send(topic, b"11", key=b"c")
    assert offsets(consumer) == [11]
    tx.rollback()
    found = offsets(consumer)
    assert [each for each in found if each % 2 == 0] == [2, 4, 6, 10]
    assert [each for each in found if each % 2] == [3, 5, 7]


def test_a_commit_finishes_what_was_handed_out_and_nothing_that_was_left_out(broker, other, topic):
    tx = hold(other, topic, 2, 5)
    consumer = broker.consume(topic, topic, partitions=[0], order=None, claim=False)
    assert len(offsets(consumer)) == 7
    assert [at.offset for at in consumer.offsets()] == [2]
    consumer.commit()
    assert position(broker, topic) == [2]
    tx.rollback()
    with other.consume(topic, topic, partitions=[0], follow=False) as again:
        assert [message.offset for message in again] == [2, 5]


def test_a_transaction_takes_the_same_of_a_consumer(broker, other, topic):
    tx = hold(other, topic, 2)
    consumer = broker.consume(topic, topic, partitions=[0], order=None, claim=False)
    assert len(offsets(consumer)) == 8
    with broker.transaction() as mine:
        mine.commit_offsets(consumer)
    tx.commit()
    assert position(broker, topic) == [10]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_transactions_receive_in_that_order_and_finish_only_what_they_received(broker, other, topic, ends):
    tx = hold(other, topic, 2)
    with broker.transaction() as mine:
        found = [mine.receive(topic, topic, 5.0, order=None, claim=False).offset for _ in range(3)]
    assert found == [1, 3, 4]
    mine = broker.transaction()
    assert mine.receive(topic, topic, 5.0).offset == 5
    mine.rollback()
    getattr(tx, ends)()
    found = []
    with broker.transaction() as mine:
        while message := mine.receive(topic, topic, 0.3):
            found.append(message.offset)
    assert sorted(found) == ([] if ends == "commit" else [2]) + [5, 6, 7, 8, 9]
    assert position(broker, topic) == [10]


def test_a_prepared_position_waits_without_being_asked_for_again_and_again(broker, other, topic):
    held = other.transaction(other.xid(1, uuid.uuid4().hex, "x"))
    for _ in range(3):
        held.receive(topic, topic, 5.0, partitions=[0])
    held.prepare()
    consumer = broker.consume(topic, topic, partitions=[0])
    before = broker.status()["fetches"]
    assert offsets(consumer, 1.5) == []
    assert broker.status()["fetches"] - before <= 2
    held.rollback()
    assert offsets(consumer) == list(range(10))


def test_without_following_it_ends_when_nothing_waits_any_more(broker, other, topic):
    tx = hold(other, topic, 9)
    consumer = broker.consume(topic, topic, partitions=[0], order=None, claim=False, follow=False)
    assert offsets(consumer) == list(range(1, 9))
    assert not consumer.whole
    tx.rollback()
    assert [message.offset for message in consumer] == [9]
    assert consumer.whole


def test_what_others_have_finished_is_skipped(broker, other, topic):
    consumer = other.consume(topic, topic, partitions=[0])
    messages = read(consumer, 9)
    consumer.done([messages[0], messages[3], messages[4], messages[8]])
    with broker.consume(topic, topic, partitions=[0], follow=False) as mine:
        assert [message.offset for message in mine] == [1, 2, 5, 6, 7, 9]


def test_a_claim_ends_the_reading_of_its_predecessor_at_once(broker, other, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    assert offsets(consumer) == list(range(10))
    theirs = other.consume(topic, topic, partitions=[0])
    read(theirs, 1)
    for _ in range(2):
        with pytest.raises(errors.GenerationFenced, match=topic):
            consumer.poll(5.0)
    with pytest.raises(errors.GenerationFenced):
        consumer.commit()


def test_a_transaction_that_received_before_the_claim_is_refused(broker, other, topic):
    tx = broker.transaction()
    assert tx.receive(topic, topic, 5.0, partitions=[0]).offset == 0
    theirs = other.consume(topic, topic, partitions=[0])
    read(theirs, 1)
    with pytest.raises(errors.GenerationFenced):
        [tx.receive(topic, topic, 5.0, partitions=[0]) for _ in range(12)]
    with pytest.raises(errors.GenerationFenced):
        tx.commit()
    with broker.transaction() as tx:
        assert tx.receive(topic, topic, 5.0, partitions=[0]).offset == 0


def test_a_closed_receiver_leaves_what_it_left_out_to_the_next(broker, other, topic):
    tx = hold(other, topic, 2)
    with broker.consume(topic, topic, partitions=[0], order="key", claim=False) as consumer:
        assert offsets(consumer) == [1, 3, 5, 7, 8, 9]
        consumer.commit()
    tx.rollback()
    with broker.consume(topic, topic, partitions=[0], follow=False) as consumer:
        assert [message.offset for message in consumer] == [2, 4, 6]
