"""Test rows that the broker will never take, and those that it takes after all."""

import contextlib
import logging

import pytest

import txbroker
from journal.transaction_states import State
from tests.databases.orders import execute, numbers
from tests.databases.outbox.scene import all_of, has_come, is_empty, rows_of, send
from tests.support.waiting import eventually
from txbroker import errors

pytestmark = pytest.mark.slow

REFUSED = "txbroker_outbox_refused"


@pytest.fixture
def operator(shared_broker):
    """Another connection, which alters topics behind the back of the one with the blocks."""
    with txbroker.connect(shared_broker.address, timeout=60.0) as connection:
        yield connection


@pytest.fixture
def prepared(database, broker, topic):
    """A first block, so that the way to the topic is known and the stream delivers from memory."""
    send(database, broker, topic, 0, wait="commit")


class TestDeletedTopics:
    def test_a_row_for_a_deleted_topic_is_moved_and_the_stream_goes_on_behind_it(
        self, open_database, database, prepared, operator, broker, topic, caplog
    ):
        caplog.set_level(logging.ERROR, "txbroker.outbox")
        other = f"{topic}-other"
        operator.create_topic(other)
        send(database, broker, other, 1, wait="commit")
        operator.delete_topic(topic)
        refused, unknown = [], []
        for number in range(2, 12):
            try:
                tx = send(database, broker, topic if number % 3 == 0 else other, number)
            except errors.UnknownTopic:
                unknown.append(number)  # the program knows by then
                continue
            if number % 3 == 0:
                refused.append(int(tx.xid.global_id.split(b"-")[2], 16))
        has_come(operator, other, 1, 2, 4, 5, 7, 8, 10, 11)
        is_empty(open_database)
        assert refused
        assert [number for _, number in rows_of(open_database, REFUSED)] == refused
        assert sorted([*numbers(open_database), *unknown]) == list(range(12))
        assert f"number {refused[0]} of stream" in caplog.text
        assert "txbroker_outbox_refused" in caplog.text
        status = broker.resolver.status
        assert (status.undelivered, status.refused) == (0, len(refused))

    def test_a_topic_that_was_made_anew_gets_the_messages(
        self, open_database, database, prepared, operator, broker, topic
    ):
        operator.delete_topic(topic)
        operator.create_topic(topic)
        for number in range(1, 4):
            send(database, broker, topic, number)
        has_come(operator, topic, 1, 2, 3)
        is_empty(open_database)
        assert rows_of(open_database, REFUSED) == []

    def test_with_wait_commit_the_caller_is_told_that_both_are_committed(
        self, open_database, database, prepared, operator, broker, topic
    ):
        operator.delete_topic(topic)
        with pytest.raises(errors.DeliveryPending) as caught:
            send(database, broker, topic, 1, wait="commit")
        assert isinstance(caught.value.__cause__, errors.UnknownTopic | errors.UnknownPartition)
        assert sorted(numbers(open_database)) == [0, 1]

    def test_a_block_that_was_refused_afterwards_has_committed(
        self, open_database, database, prepared, operator, broker, topic
    ):
        operator.delete_topic(topic)
        tx = send(database, broker, topic, 1)
        eventually(lambda: rows_of(open_database, REFUSED))
        assert broker.wait_outcome(tx.xid) is State.COMMITTED


def test_a_message_that_a_lowered_limit_does_not_allow_any_more_is_moved(
    open_database, database, prepared, operator, broker, topic
):
    operator.alter_topic(topic, max_message_bytes=200)
    for number, length in ((1, 1), (2, 900), (3, 1)):
        with txbroker.atomic(database, broker, mode="outbox") as tx:
            execute(database, f"INSERT INTO orders VALUES ({number})")
            tx.send(topic, (b"%d" % number).zfill(length))
    has_come(operator, topic, 0, 1, 3)
    is_empty(open_database)
    assert [number for _, number in rows_of(open_database, REFUSED)] == [3]


class TestStop:
    """``on_refused="stop"``: order before progress."""

    def test_a_stream_stops_at_the_row_and_goes_on_when_the_topic_is_there_again(
        self, open_database, database, prepared, operator, broker, topic
    ):
        other = f"{topic}-other"
        operator.create_topic(other)
        operator.delete_topic(topic)
        send(database, broker, topic, 1, on_refused="stop")
        send(database, broker, other, 2, on_refused="stop")
        eventually(lambda: broker.resolver.status.stopped)
        assert "number 2" in broker.resolver.status.stopped[0]
        assert all_of(operator, other) == []
        assert len(rows_of(open_database)) == 2
        assert rows_of(open_database, REFUSED) == []
        operator.create_topic(topic)
        has_come(operator, topic, 1)
        has_come(operator, other, 2)
        is_empty(open_database)
        eventually(lambda: not broker.resolver.status.stopped)

    def test_other_streams_go_on_meanwhile(self, open_database, database, prepared, operator, broker, topic):
        other = f"{topic}-other"
        operator.create_topic(other)
        operator.delete_topic(topic)
        send(database, broker, topic, 1, on_refused="stop")
        eventually(lambda: broker.resolver.status.stopped)
        with contextlib.closing(open_database()) as second:
            for number in range(2, 5):
                send(second, broker, other, number, on_refused="stop", wait="commit")
        assert all_of(operator, other) == [2, 3, 4]

    def test_an_outcome_is_told_although_another_stream_is_stopped(
        self, open_database, database, prepared, operator, broker, topic
    ):
        operator.delete_topic(topic)
        tx = send(database, broker, topic, 1, on_refused="stop")
        eventually(lambda: broker.resolver.status.stopped)
        assert broker.wait_outcome(tx.xid, 5.0) is State.COMMITTED

    def test_a_resolver_that_takes_the_stream_over_stops_as_well(
        self, open_database, database, prepared, operator, broker, topic
    ):
        other = f"{topic}-other"
        operator.create_topic(other)
        operator.delete_topic(topic)
        send(database, broker, topic, 1, on_refused="stop")
        send(database, broker, other, 2, on_refused="stop")
        eventually(lambda: broker.resolver.status.stopped)
        with txbroker.Resolver(open_database, operator) as resolver, pytest.raises(errors.RequestRefused):
            resolver.resolve()
        assert rows_of(open_database, REFUSED) == []
        assert all_of(operator, other) == []
        operator.create_topic(topic)
        has_come(operator, topic, 1)
        has_come(operator, other, 2)
        is_empty(open_database)
