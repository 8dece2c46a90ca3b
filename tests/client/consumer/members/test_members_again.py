"""Test members that lost what they had, or that the broker refuses, and what becomes of it when they come again."""

import contextlib
import threading
import time

import pytest

import txbroker
from tests.client.consumer.members.scene import hear_of_loss, owners, send, shares
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.consumer import consumer
from txbroker.client.consumer.beginning import begin_of, check_topics
from txbroker.client.consumer.notices import Notices
from txbroker.client.core.promise import start
from txbroker.wire.messages import Done, LeaveGroup

pytestmark = pytest.mark.slow


def lost_two(broker, connections, topic):
    """A member with messages of each partition, of which another one got two meanwhile; that one; the messages."""
    one = connections("one").consume(topic, topic, max_handover=0.2)
    send(broker, topic, 8)
    taken = []
    while len(taken) < 8:
        taken += one.poll(5.0)
    two = connections("two").consume(topic, topic)
    two.poll(0.2)
    hear_of_loss(broker, topic, one)
    return one, two, taken


def lost_and_had_again(broker, connections, topic):
    """A member as that of :func:`lost_two`, which was given the two again; their indexes; the messages."""
    one, two, taken = lost_two(broker, connections, topic)
    theirs = owners(broker, topic)["two"]
    two.close()
    eventually(lambda: shares(broker, topic, 4))
    return one, theirs, taken


def test_a_transaction_with_what_was_lost_is_refused_also_if_it_was_given_again(broker, connections, topic):
    one, theirs, _ = lost_and_had_again(broker, connections, topic)
    assert {message.partition for message in one.poll(5.0)} <= set(theirs)
    tx = one._connection.transaction()
    with pytest.raises(errors.GenerationFenced, match="roll it back"):
        tx.commit_offsets(one)
    with pytest.raises(errors.GenerationFenced):
        tx.commit()
    assert [at.offset for at in broker.group_offsets(topic)] == [0] * 4


def test_a_commit_of_what_was_lost_is_refused_also_if_it_was_given_again(broker, connections, topic):
    one, _, _ = lost_and_had_again(broker, connections, topic)
    assert one.poll(5.0)
    with pytest.raises(errors.GenerationFenced, match="went to others"):
        one.commit()
    one.commit()


@pytest.mark.parametrize("way", ["done", "commit", "retry", "in a transaction"])
def test_of_the_two_copies_of_a_message_that_was_lost_and_had_again_only_the_second_is_finished(
    broker, connections, topic, way
):
    """A thread is late with the first one, and who had the partition meanwhile finished nothing."""
    one, _, taken = lost_and_had_again(broker, connections, topic)
    second = one.poll(5.0)[0]
    (first,) = [each for each in taken if (each.partition, each.offset) == (second.partition, second.offset)]
    assert first.generation < second.generation

    def finish(message):
        if way == "in a transaction":
            with one._connection.transaction() as tx:
                tx.send(topic, b"%d" % message.generation, partition=second.partition)
                tx.done(message, one)
        else:
            getattr(one, way)(message)

    with pytest.raises(errors.GenerationFenced, match="another may have handled the message since"):
        finish(first)
    finish(second)


@pytest.mark.parametrize("way", ["commit_offsets", "two-phase"])
def test_after_a_refused_transaction_the_next_one_commits(broker, connections, topic, way):
    one, _, _ = lost_two(broker, connections, topic)
    connection, refused = one._connection, 0
    theirs = owners(broker, topic)["two"]
    for number in range(3):
        try:
            if way == "commit_offsets":
                with connection.transaction() as tx:
                    tx.commit_offsets(one)
            else:
                connection.tpc_begin(connection.xid(1, f"{topic}-{number}", "b"))
                try:
                    one.commit()
                    connection.tpc_commit()
                except errors.GenerationFenced:
                    connection.tpc_rollback()
                    raise
        except errors.GenerationFenced:
            refused += 1
    assert refused == 1
    after = {at.partition: at.offset for at in broker.group_offsets(topic)}
    assert after == {index: 0 if index in theirs else 2 for index in range(4)}


async def leave(core, member):
    """End a membership as its connection would, behind its back."""
    joined = member._joined
    await core.request(
        LeaveGroup(core.correlation(), member._group, joined.member, joined.secret, True), Done
    )


@pytest.mark.parametrize("has_some", [True, False])
def test_one_that_was_refused_when_it_came_again_joins_once_it_may(broker, connections, topic, has_some):
    first, other = connections("first"), connections("other")
    one = first.consume(topic if has_some else [], topic, pattern=f"{topic}-later*", member="name")
    one.poll(0.2)
    eventually(lambda: len(broker.describe_group(topic).members) == 1)
    two = other.consume(topic, topic, member="name")
    with first._driver.lock:  # it hears of nothing until the name is another's
        other.run(leave(other.core, one._core._membership))
        eventually(lambda: (two.poll(0.01), broker.describe_group(topic).members)[-1])
    with pytest.raises(errors.MemberNameInUse):
        eventually(lambda: one.poll(0.1) is None)
    two.close()
    broker.create_topic(f"{topic}-later")
    broker.send(f"{topic}-later", b"")

    def poll():
        with contextlib.suppress(
            errors.MemberNameInUse
        ):  # the answer to what it asked before the other one left
            return one.poll(1.0)

    eventually(poll)


@pytest.mark.parametrize("end", ["consumer", "connection"])
def test_one_that_is_closed_while_it_joins_leaves(broker, connections, topic, end):
    connection = connections("one")
    one = connection.consume(topic, topic, member="name")
    connection.run(check_topics(connection.core, one._core.options))
    with connection._driver.lock:
        joining = start(one._core._membership.entered())
        connection._driver.push()
        connection._driver._offer()  # as at the end of a call: soon a thread receives the answer
    assert not joining.done
    (one if end == "consumer" else connection).close()
    two = connections("two").consume(topic, topic, member="name")
    if end == "consumer":
        eventually(lambda: not broker.describe_group(topic).members)
    assert two.poll(0.5) == []
    assert owners(broker, topic) == {"two": [0, 1, 2, 3]}


def test_one_that_is_given_nothing_ends_without_follow(broker, connections, topic):
    connections("one").consume(topic, topic).poll(0.2)
    for number in range(4):
        connections(f"further {number}").consume(topic, topic).poll(0.1)
    last = connections("last").consume(topic, topic, follow=False, session_timeout=1.0)
    found = []
    reading = threading.Thread(target=lambda: found.append(list(last)), daemon=True)
    reading.start()
    reading.join(10.0)
    assert found == [[]]


def test_what_the_caller_is_to_be_told_is_looked_up_while_no_other_thread_changes_it(
    broker, connections, topic, monkeypatch
):
    one = connections("one").consume(topic, topic, on_revoked=print)
    found, following = [], Notices.next

    def noted(notices):
        found.append(one._driver.lock.locked())
        return following(notices)

    monkeypatch.setattr(Notices, "next", noted)
    one.poll(0.1)
    assert found
    assert all(found)


def test_callers_may_come_and_go_while_a_thread_looks_who_waits(broker, monkeypatch):
    driver = broker._driver

    def one_goes(thread):
        driver._followers.pop(2, None)
        return False

    monkeypatch.setattr(driver, "_may_drive", one_goes)
    monkeypatch.setattr(driver, "_followers", {1: None, 2: None, 3: None})
    assert driver._has_work()
    monkeypatch.undo()


@pytest.mark.parametrize("error", [errors.UnknownPartition, errors.UnknownTopic])
def test_what_is_there_is_read_though_a_topic_goes_while_it_is_begun(
    broker, connections, topic, monkeypatch, error
):
    raised = []

    async def begin(core, options, given):
        if not raised:
            raised.append(error)
            raise error("gone, with its topic")
        return await begin_of(core, options, given)

    monkeypatch.setattr(consumer, "begin_of", begin)
    send(broker, topic, 4)
    assert connections("one").consume(topic, topic).poll(5.0)
    assert raised


@pytest.mark.parametrize("group", ["g", None])
def test_a_consumer_of_more_partitions_than_a_fetch_may_have_reads_them_in_turns(tmp_path, group):
    with (
        BrokerProcess(tmp_path / "data", "max_fetch_positions=10") as process,
        txbroker.connect(process.address) as connection,
    ):
        connection.create_topic("t", partitions=25)
        consumer, seen = connection.consume("t", group), []
        for first in (0, 25):
            for number in range(25):
                connection.send_async("t", b"%d" % (first + number), partition=number)
            connection.flush()
            begun = time.monotonic()
            while len(seen) < first + 25:
                seen += [message.value for message in consumer.poll(5.0)]
            assert time.monotonic() - begun < 4.0
        assert sorted(seen, key=int) == [b"%d" % number for number in range(50)]


def test_one_that_is_closed_is_seen_to_by_a_thread_until_the_broker_knows(broker, connections, topic):
    one = connections("one").consume(topic, topic)
    one.poll(0.2)
    reading = threading.Thread(target=lambda: list(one), daemon=True)
    reading.start()
    eventually(lambda: shares(broker, topic, 4) and one._driver._asleep)
    with one._driver.lock:
        one._core.close()  # the thread that drives ends then, and may not send what this has put out
        assert list(one._driver.core.attending) == [one._core._membership]
    one.close()
    reading.join(5.0)
    eventually(lambda: not broker.describe_group(topic).members, 2.0)
    eventually(lambda: not one._driver.core.attending)
