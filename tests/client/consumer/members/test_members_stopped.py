"""Test that consumers go on by themselves when their group is moved or deleted, and commit nothing from before."""

from contextlib import suppress

import pytest

from tests.client.consumer.members.scene import read_until, send, shares
from tests.support.waiting import eventually
from txbroker import errors

pytestmark = pytest.mark.slow

MESSAGES = [b"%d" % number for number in range(40)]


@pytest.fixture
def pair(broker, connections, topic):
    """Two members that have two partitions each, and have read and committed forty messages."""
    one, two = (connections(name).consume(topic, topic) for name in ("one", "two"))
    eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(broker, topic, 2, 2))[-1])
    send(broker, topic, 40)
    read_until([one, two], [], 40)
    return one, two


def to_start(broker, topic, **choices):
    broker.set_offsets(topic, topic, dict.fromkeys(range(4), 0), **choices)


def test_after_a_reset_they_read_from_the_new_positions(broker, topic, pair):
    with pytest.raises(errors.GroupInUse, match="has 2 members now"):
        to_start(broker, topic)
    to_start(broker, topic, stop=True)
    seen = []
    read_until(pair, seen, 40)
    assert sorted(seen, key=int) == MESSAGES
    send(broker, topic, 4, 40)
    read_until(pair, seen, 44)
    assert len(set(seen)) == 44
    assert shares(broker, topic, 2, 2)
    assert [at.offset for at in broker.group_offsets(topic)] == [11] * 4


def test_what_they_hold_from_before_cannot_be_committed(broker, topic, pair):
    send(broker, topic, 8, 40)
    held = []
    read_until(pair[:1], held, 4, commit=False)
    to_start(broker, topic, stop=True)
    with pytest.raises(errors.GenerationFenced):
        pair[0].commit()
    assert [at.offset for at in broker.group_offsets(topic)] == [0] * 4
    seen = set()

    def read_on():
        for consumer in pair:
            seen.update(message.value for message in consumer.poll(0.02))
            with suppress(errors.GenerationFenced):  # if it hears only now what it has lost
                consumer.commit()
        return len(seen) == 48

    eventually(read_on)


def test_a_transaction_from_before_is_refused_and_the_next_one_receives_from_the_new_position(
    broker, connections, topic
):
    send(broker, topic, 8)
    with connections("one") as connection:
        with connection.transaction() as tx:
            assert all(tx.receive(topic, topic, 5.0) for _ in range(8))
        send(broker, topic, 1, 8)
        tx = connection.transaction()
        assert tx.receive(topic, topic, 5.0).value == b"8"
        to_start(broker, topic, stop=True)
        with pytest.raises((errors.GenerationFenced, errors.TransactionRolledBack)):
            tx.commit()
        tx.rollback()
        assert [at.offset for at in broker.group_offsets(topic)] == [0] * 4
        with connection.transaction() as tx:
            seen = [tx.receive(topic, topic, 5.0).value for _ in range(9)]
        assert sorted(seen) == [b"%d" % number for number in range(9)]


def test_after_a_deletion_they_make_the_group_anew(broker, topic, pair):
    [was] = [group.id for group in broker.groups() if group.name == topic]
    with pytest.raises(errors.GroupInUse):
        broker.delete_group(topic)
    broker.delete_group(topic, stop=True)
    seen = []
    read_until(pair, seen, 40)
    assert sorted(seen, key=int) == MESSAGES
    assert [group.id for group in broker.groups() if group.name == topic] != [was]


def test_a_consumer_that_names_its_partitions_is_fenced(broker, connections, topic):
    send(broker, topic, 4)
    consumer = connections("one").consume(topic, topic, partitions=[0])
    assert consumer.poll(5.0)
    consumer.commit()
    to_start(broker, topic)
    consumer.commit()
    to_start(broker, topic, stop=True)
    with pytest.raises(errors.GenerationFenced):
        consumer.poll(5.0)
    assert [m.value for m in connections("two").consume(topic, topic, partitions=[0]).poll(5.0)] == [b"0"]
