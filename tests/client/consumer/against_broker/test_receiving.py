"""Test receiving in a transaction of the broker alone: read, process, write, all or nothing."""

import gc
import uuid

import pytest

import txbroker
from txbroker import errors

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    broker.create_topic(f"{name}-on")
    for number in range(5):
        broker.send(name, b"%d" % number)
    return name


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def offsets(broker, group):
    return [at.offset for at in broker.group_offsets(group)]


def test_what_is_read_and_what_is_written_become_real_together(broker, topic):
    for number in range(5):
        with broker.transaction() as tx:
            message = tx.receive(topic, group=topic, timeout=5.0)
            assert message.offset == number
            tx.send(f"{topic}-on", message.value * 2)
    assert values(broker, f"{topic}-on") == [b"00", b"11", b"22", b"33", b"44"]
    assert offsets(broker, topic) == [5]
    with broker.transaction() as tx:
        assert tx.receive(topic, group=topic, timeout=0.1) is None


def test_a_rolled_back_message_comes_again_in_order(broker, topic):
    with pytest.raises(ZeroDivisionError), broker.transaction() as tx:  # noqa: PT012 - the block is what raises
        assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(2)] == [b"0", b"1"]
        _ = 1 / 0
    with broker.transaction() as tx:
        assert [tx.receive(topic, group=topic, timeout=5.0).value for _ in range(3)] == [b"0", b"1", b"2"]
    assert offsets(broker, topic) == [3]


def test_a_position_alone_is_committed(broker, topic):
    with broker.transaction() as tx:
        tx.receive(topic, group=topic, timeout=5.0)
    assert offsets(broker, topic) == [1]


def test_it_can_be_prepared_and_is_held_until_it_is_decided(broker, process, topic):
    tx = broker.transaction(broker.xid(1, uuid.uuid4().hex, "x"))
    assert tx.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"0"
    tx.prepare()
    (held,) = broker.group_offsets(topic)
    assert str(tx.number) in held.pending_by
    with txbroker.connect(process.address) as other, other.transaction() as theirs:
        assert (
            theirs.receive(topic, group=topic, partitions=[0], timeout=0.5) is None
        )  # nobody reads on meanwhile
    tx.commit()
    assert offsets(broker, topic) == [1]
    with txbroker.connect(process.address) as other, other.transaction() as theirs:
        assert theirs.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"1"


def test_two_transactions_of_a_connection_cannot_receive_for_one_group_at_a_time(broker, topic):
    first, second = broker.transaction(), broker.transaction()
    first.receive(topic, group=topic, timeout=5.0)
    with pytest.raises(errors.Misuse, match="a connection per worker"):
        second.receive(topic, group=topic, timeout=5.0)
    assert second.receive(topic, group=f"{topic}-2", timeout=5.0).value == b"0"
    first.rollback()
    assert second.receive(topic, group=topic, timeout=5.0).value == b"0"
    second.commit()
    assert offsets(broker, topic) == offsets(broker, f"{topic}-2") == [1]


@pytest.mark.parametrize("sends", [True, False])
def test_a_transaction_that_was_left_without_an_end_holds_up_no_other(broker, topic, sends):
    left = broker.transaction()
    assert left.receive(topic, group=topic, timeout=5.0).value == b"0"
    if sends:
        left.send(topic, b"x")
    del left
    gc.collect()
    with broker.transaction() as again:
        assert again.receive(topic, group=topic, timeout=5.0).value == b"0"
    assert offsets(broker, topic) == [1]


def test_who_has_lost_the_partition_is_fenced_once_and_then_claims_anew(broker, process, topic):
    with txbroker.connect(process.address) as other:
        fenced = broker.transaction()
        assert fenced.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"0"
        with other.transaction() as theirs:
            assert theirs.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"0"
        with pytest.raises((errors.GenerationFenced, errors.TransactionRolledBack)) as caught:
            fenced.commit()
        error = caught.value
        assert isinstance(
            error if isinstance(error, errors.GenerationFenced) else error.__cause__, errors.GenerationFenced
        )
        with broker.transaction() as again:
            assert again.receive(topic, group=topic, partitions=[0], timeout=5.0).value == b"1"
    assert offsets(broker, topic) == [2]


def test_a_lost_connection_before_the_commit_gives_the_messages_back(broker, process, topic):
    tx = broker.transaction()
    tx.receive(topic, group=topic, timeout=5.0)
    tx.send(f"{topic}-on", b"x")
    broker._driver.link.socket.shutdown(2)
    with pytest.raises(errors.TransactionRolledBack):
        tx.commit()
    tx.rollback()
    with broker.transaction() as again:
        assert again.receive(topic, group=topic, timeout=5.0).value == b"0"
    assert offsets(broker, topic) == [1]


def test_receiving_needs_a_group(broker, topic):
    with broker.transaction() as tx, pytest.raises(errors.Misuse, match="group="):
        tx.receive(topic, group="")
