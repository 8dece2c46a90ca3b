"""Test receivers and consumers whose partition another one has claimed: what they get next, in every client."""

import asyncio
import sqlite3
import subprocess
import sys
import uuid

import pytest

import txbroker
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors
from txbroker.client.asyncio import connect

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    for number in range(5):
        broker.send(name, b"%d" % number)
    return name


def received(broker, topic, commit=True, partitions=(0,)):
    """What one transaction receives."""
    tx = broker.transaction()
    message = tx.receive(topic, group=topic, timeout=5.0, partitions=partitions)
    (tx.commit if commit else tx.rollback)()
    return message.value


def generation(broker, topic):
    [at] = broker.group_offsets(topic)
    return at.generation


def test_what_another_has_handled_does_not_come_again_after_a_rollback(broker, other, topic):
    assert received(broker, topic, commit=False) == b"0"
    assert [received(other, topic) for _ in range(2)] == [b"0", b"1"]
    assert (
        received(broker, topic, commit=False) == b"2"
    )  # neither what was given back nor what was read ahead
    assert received(broker, topic) == b"2"
    assert [at.offset for at in broker.group_offsets(topic)] == [3]


def test_a_rollback_takes_no_partition_from_anybody_while_the_claim_stands(broker, topic):
    assert received(broker, topic, commit=False) == b"0"
    before = generation(broker, topic)
    assert [received(broker, topic, commit=False) for _ in range(3)] == [b"0"] * 3
    assert received(broker, topic) == b"0"
    assert generation(broker, topic) == before


def test_a_handler_with_a_unique_key_goes_on_behind_what_another_has_handled(broker, other, topic, tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db")
    txbroker.create_decision_table(database)
    database.execute("CREATE TABLE handled (number INTEGER PRIMARY KEY)")
    database.commit()

    def handle(connection):
        with txbroker.atomic(database, connection, wait="commit") as tx:
            message = tx.receive(topic, group=topic, timeout=5.0, partitions=[0])
            database.execute("INSERT INTO handled VALUES (?)", (message.offset,))
        return message.offset

    assert handle(broker) == 0
    assert [handle(other), handle(other)] == [1, 2]
    with pytest.raises((sqlite3.IntegrityError, errors.GenerationFenced)):
        handle(broker)  # of what it has read ahead, unless the broker's word came before
    assert [handle(broker), handle(broker)] == [3, 4]
    assert database.execute("SELECT count(*) FROM handled").fetchone() == (5,)
    database.close()


def test_with_several_partitions_one_that_is_lost_is_enough_to_read_all_anew(broker, other, topic):
    wide = f"{topic}-wide"
    broker.create_topic(wide, partitions=2)
    for partition in range(2):
        broker.send(wide, b"%d" % partition, partition=partition)
    tx = broker.transaction()
    assert {tx.receive(wide, group=wide, timeout=5.0, partitions=[0, 1]).value for _ in range(2)} == {
        b"0",
        b"1",
    }
    tx.rollback()
    consumer = other.consume(wide, group=wide, partitions=[1])
    consumer.commit(next(iter(consumer)))
    assert received(broker, wide, partitions=[0, 1]) == b"0"
    with broker.transaction() as tx:
        assert tx.receive(wide, group=wide, timeout=0.3, partitions=[0, 1]) is None


def test_a_group_that_was_deleted_meanwhile_is_claimed_anew(broker, other, topic):
    assert received(broker, topic, commit=False) == b"0"
    other.delete_group(topic)
    assert received(broker, topic) == b"0"
    assert [at.offset for at in broker.group_offsets(topic)] == [1]


def test_a_topic_that_was_deleted_meanwhile_is_told_and_one_that_was_made_anew_is_read(broker, other, topic):
    assert received(broker, topic, commit=False) == b"0"
    other.delete_topic(topic)
    with broker.transaction() as tx, pytest.raises((errors.UnknownTopic, errors.UnknownPartition)):
        tx.receive(
            topic, group=topic, timeout=5.0, partitions=[0]
        )  # the fetch that hung, or the look at the claim
    for _ in range(2):
        with broker.transaction() as tx, pytest.raises(errors.UnknownTopic, match="Create it first"):
            tx.receive(topic, group=topic, timeout=5.0, partitions=[0])
    other.create_topic(topic)
    other.send(topic, b"new")
    assert received(broker, topic) == b"new"


def test_the_claim_is_looked_up_also_over_a_lost_connection(broker, other, topic):
    assert received(broker, topic, commit=False) == b"0"
    assert received(other, topic) == b"0"
    broker._driver.link.socket.shutdown(2)
    assert received(broker, topic) == b"1"


def test_asyncio_receives_what_another_has_not_handled(process, topic):
    async def handle(connection, commit):
        tx = connection.transaction()
        message = await tx.receive(topic, group=topic, timeout=5.0, partitions=[0])
        await (tx.commit if commit else tx.rollback)()
        return message.value

    async def everything():
        async with await connect(process.address) as first, await connect(process.address) as second:
            assert await handle(first, False) == b"0"
            assert await handle(first, False) == b"0"
            assert [await handle(second, True) for _ in range(2)] == [b"0", b"1"]
            assert await handle(first, True) == b"2"

    asyncio.run(everything())


TWISTED = """
import sys
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react
from txbroker.client.twisted import connect

async def handle(connection, topic, commit):
    tx = connection.transaction()
    message = await tx.receive(topic, group=topic, timeout=5.0, partitions=[0])
    await (tx.commit if commit else tx.rollback)()
    return message.value.decode()

async def everything(reactor, address, topic):
    first, second = await connect(address, reactor=reactor), await connect(address, reactor=reactor)
    steps = [(first, False), (first, False), (second, True), (second, True), (first, True)]
    print(*[await handle(connection, topic, commit) for connection, commit in steps])
    await first.close()
    await second.close()

react(lambda reactor: ensureDeferred(everything(reactor, *sys.argv[1:])))
"""


def test_twisted_receives_what_another_has_not_handled(process, topic, tmp_path):
    script = tmp_path / "receiving.py"
    script.write_text(TWISTED)
    ran = subprocess.run(
        [sys.executable, str(script), process.address, topic], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False, env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    assert ran.stdout.split() == ["0", "0", "0", "1", "2"], ran.stderr


class TestAConsumer:
    """One that commits by itself, without a transaction."""

    def test_fenced_it_hands_out_nothing_more_and_none_of_its_commits_moves_anything(
        self, broker, other, topic
    ):
        fenced = broker.consume(topic, group=topic, partitions=[0])
        messages = iter(fenced)
        first = next(messages)
        theirs = other.consume(topic, group=topic, partitions=[0])
        theirs.commit(next(iter(theirs)))
        with pytest.raises(errors.GenerationFenced, match="no offset has moved"):
            fenced.commit(first)
        with pytest.raises(errors.GenerationFenced):
            next(messages)
        with pytest.raises(errors.GenerationFenced, match="no offset has moved"):
            fenced.commit(first)
        assert [at.offset for at in broker.group_offsets(topic)] == [1]

    def test_a_new_one_claims_anew_and_goes_on_from_where_the_group_is(self, broker, other, topic):
        fenced = broker.consume(topic, group=topic, partitions=[0])
        next(iter(fenced))
        theirs = other.consume(topic, group=topic, partitions=[0])
        theirs.commit(next(iter(theirs)))
        with pytest.raises(errors.GenerationFenced):
            fenced.commit()
        fenced.close()
        again = broker.consume(topic, group=topic, partitions=[0])
        message = next(iter(again))
        assert message.value == b"1"
        again.commit(message)
        with pytest.raises(errors.GenerationFenced):
            theirs.commit()
        assert [at.offset for at in broker.group_offsets(topic)] == [2]
