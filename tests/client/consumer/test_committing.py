"""Test that a commit is for the consumer that is asked, whatever else reads on the connection, and no more than was
given.

Seen at 45bb991: a connection's ``commit_offsets()`` committed its newest consumer, whoever called: messages that
another group had begun and not done were never read again.
"""

import asyncio
import threading
import time

import pytest

import txbroker
from journal.constants import MAX_REQUEST_ENTRIES
from journal.formats.offset_set_bytes import decode_offsets
from tests.client.scripted_broker import ScriptedServer
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as asyncio_client
from txbroker.client.core.positions import requests_of
from txbroker.wire import messages as commands
from txbroker.wire.messages import AddOffsets, CommitOffsets, Prepare

NAMED = r"consumer\.commit\(\) for all.*consumer\.commit\(message\).*\(topic, partition\): offset.*tx\.commit_offsets"


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


@pytest.fixture
def connection(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        for number in range(5):
            for partition in (0, 1):
                connection.send("t2", b"%d" % number, partition=partition)
        yield connection


def commits(broker):
    """What was committed for whom: group and {partition's number: offset}, oldest first."""
    found = [request for request in broker.requests if type(request) is CommitOffsets]
    return [(request.group, {at.partition: at.offset for at in request.offsets}) for request in found]


def read(consumer, count):
    return [next(consumer) for _ in range(count)]


def test_two_threads_commit_what_each_has_read(connection, broker):
    first, second = (
        connection.consume("t2", "ga", partitions=[0]),
        connection.consume("t2", "gb", partitions=[1]),
    )
    threads = [
        threading.Thread(target=read, args=(first, 2)),
        threading.Thread(target=read, args=(second, 3)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    first.commit()
    assert commits(broker) == [("ga", {2: 2})]
    second.commit()
    assert commits(broker)[1:] == [("gb", {3: 3})]


def test_a_connection_refuses_to_guess_and_says_what_to_call(connection, broker):
    consumer = connection.consume("t2", "g")
    read(consumer, 1)
    with pytest.raises(errors.Misuse, match=NAMED):
        connection.commit_offsets()
    assert commits(broker) == []


def test_on_a_loop_the_awaitable_refuses(server):
    async def main():
        async with await asyncio_client.connect(server.url) as connection:
            awaitable = connection.commit_offsets()
            with pytest.raises(errors.Misuse, match=NAMED):
                await awaitable

    asyncio.run(main())


def test_a_message_commits_all_up_to_it_in_its_partition_and_nothing_else(connection, broker):
    consumer = connection.consume("t2", "g")
    messages = [message for _ in range(2) for message in consumer.poll(5.0)]
    assert {message.partition for message in messages} == {0, 1}
    third = next(message for message in messages if (message.partition, message.offset) == (1, 2))
    consumer.commit(third)
    assert commits(broker) == [("g", {3: 3})]


def test_a_poll_hands_out_at_most_so_many_and_a_commit_covers_no_others(connection, broker):
    consumer = connection.consume("t2", "g", partitions=[0])
    assert [message.offset for message in consumer.poll(5.0, max_messages=2)] == [0, 1]
    consumer.commit()
    assert [message.offset for message in consumer.poll(5.0, max_messages=1)] == [2]
    assert next(consumer).offset == 3
    consumer.commit()
    assert [message.offset for message in consumer.poll(5.0, max_messages=9)] == [4]
    consumer.commit()
    assert commits(broker) == [("g", {2: 2}), ("g", {2: 4}), ("g", {2: 5})]
    assert consumer.poll(0.0, max_messages=1) == []


def test_a_consumer_that_leaves_out_some_finishes_what_a_poll_has_handed_out(connection, broker):
    consumer = connection.consume("t2", "g", partitions=[0], order=None)
    assert [message.offset for message in consumer.poll(5.0, max_messages=3)] == [0, 1, 2]
    assert [(each.partition, each.offset) for each in consumer.offsets()] == [(2, 3)]


def test_offsets_by_place_are_committed_as_they_are_said(connection, broker):
    consumer = connection.consume("t2", "g")
    read(consumer, 1)
    consumer.commit({("t2", 0): 4, ("t2", 1): 0})
    assert commits(broker) == [("g", {2: 4, 3: 0})]
    (request,) = [request for request in broker.requests if type(request) is CommitOffsets]
    assert {at.generation for at in request.offsets} == {1}, "fenced by what the consumer has claimed"


def test_a_place_that_the_consumer_does_not_read_is_refused(connection, broker):
    consumer = connection.consume("t2", "g", partitions=[0])
    (message,) = read(consumer, 1)
    for what in ({("t2", 1): 1}, {("other", 0): 1}, {("t2", 0): 1, ("t2", 1): 1}):
        with pytest.raises(errors.WrongValue, match="which this consumer does not read"):
            consumer.commit(what)
    with pytest.raises(errors.WrongValue, match="has not begun to"):
        connection.consume("t2", "g").commit(message)
    assert commits(broker) == []


def test_without_a_group_there_is_nothing_to_commit(connection, broker):
    consumer = connection.consume("t2")
    (message,) = read(consumer, 1)
    for what in (None, message, {("t2", 0): 1}):
        with pytest.raises(errors.Misuse, match="without a group"):
            consumer.commit(what)
    with connection.transaction() as tx:
        with pytest.raises(errors.Misuse, match="without a group"):
            tx.commit_offsets(consumer)
        tx.send("t", b"goes on")
    assert (commits(broker), broker.values(1)) == ([], [b"goes on"])


def test_between_tpc_begin_and_its_end_a_commit_joins_the_transaction(connection, broker):
    consumer = connection.consume("t2", "g")
    (message,) = read(consumer, 1)
    xid = connection.xid(1, "g", "b")
    connection.tpc_begin(xid)
    consumer.commit(message)
    connection.tpc_prepare()
    (prepare,) = [request for request in broker.requests if type(request) is Prepare]
    (moved,) = prepare.positions
    assert (moved.group, prepare.xid, [at.offset for at in moved.offsets]) == ("g", xid, [1])
    assert commits(broker) == []
    with pytest.raises(errors.Misuse, match="prepared"):
        consumer.commit(message)
    connection.tpc_commit()
    consumer.commit(message)
    assert len(commits(broker)) == 1


def test_another_threads_commit_does_not_slip_into_a_two_phase_transaction(connection, broker):
    consumer = connection.consume("t2", "g")
    read(consumer, 1)
    connection.tpc_begin(connection.xid(1, "g", "b"))
    caught = []

    def work():
        try:
            consumer.commit()
        except errors.Misuse as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert "another thread has begun" in str(caught[0])
    connection.tpc_rollback()
    assert not [request for request in broker.requests if type(request) in (AddOffsets, CommitOffsets)]


def test_a_commit_of_nothing_asks_the_broker_nothing(connection, broker):
    consumer = connection.consume("t2", "g")
    consumer.commit()
    with connection.transaction() as tx:
        tx.commit_offsets(consumer)
    kinds = {type(request) for request in broker.requests}
    assert not kinds & {AddOffsets, CommitOffsets, commands.Commit}


def test_on_a_loop_a_consumers_commit_joins_too(broker, server):
    async def main():
        async with await asyncio_client.connect(server.url) as connection:
            await connection.send("t", b"a")
            consumer = connection.consume("t", "g")
            message = await anext(consumer)
            await consumer.commit(message)
            connection.tpc_begin(connection.xid(1, "g", "b"))
            await consumer.commit()
            await connection.tpc_commit()

    asyncio.run(main())
    kinds = [type(r).__name__ for r in broker.requests if type(r) in (CommitOffsets, commands.Commit)]
    assert kinds == ["CommitOffsets", "Commit"]
    [decided] = [each for each in broker.requests if type(each) is commands.Commit]
    assert [each.group for each in decided.positions] == ["g"]


def test_more_positions_than_one_request_may_list_go_in_several():
    many = range(2 * MAX_REQUEST_ENTRIES + 1)
    parts = list(requests_of(many))
    assert [len(part) for part in parts] == [MAX_REQUEST_ENTRIES, MAX_REQUEST_ENTRIES, 1]
    assert [each for part in parts for each in part] == list(many)
    assert list(requests_of([])) == []


def settlements(broker):
    """How many messages of which partitions were said to be finished, request by request."""
    found = [request for request in broker.requests if type(request) is CommitOffsets and request.settled]
    return [
        {each.partition: len(decode_offsets(each.finished, each.base)) for each in request.settled}
        for request in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("by_itself", [False, True])
def test_what_is_finished_later_is_said_once_and_many_messages_in_one_request(connection, broker, by_itself):
    consumer = connection.consume("t2", "g", partitions=[0, 1], commit_interval=0.05, auto_done=by_itself)
    for _ in range(10):
        message = next(consumer)
        if not by_itself:
            consumer.done(message)
    consumer.poll(0.0)
    eventually(lambda: sum(sum(each.values()) for each in settlements(broker)) == 10)
    assert len(settlements(broker)) < 5
    time.sleep(0.3)
    consumer.poll(0.0)
    time.sleep(0.3)
    consumer.close()
    connection.ping()
    assert sum(sum(each.values()) for each in settlements(broker)) == 10


def test_intervals_are_for_groups_that_claim_and_time_outs_for_members(connection):
    for choices, says in (
        ({"commit_interval": 1}, "say group="),
        ({"group": "g", "claim": False, "commit_interval": 1}, "not claim=False"),
        ({"group": "g", "auto_done": True}, "say commit_interval="),
        ({"handler_timeout": 1}, "members of a group"),
        ({"group": "g", "partitions": [0], "handler_timeout": 1}, "members of a group"),
    ):
        with pytest.raises(errors.Misuse, match=says):
            connection.consume("t2", **choices)
    for choices in ({"auto_done": True}, {"commit_interval": 1, "transaction": "broker"}):
        with pytest.raises(errors.Misuse, match="finishes messages by itself"):
            connection.work("t2", "g", print, **choices)
