"""The scene of a release's fixture: a small data directory with everything that a broker keeps, made by a real broker.

Each kind of thing is there twice: of act ``a`` in the newest checkpoint and in segments, of act ``b`` in the journal
above it, behind which the broker was killed. Only :mod:`tests.releases.make` runs it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import txbroker
from journal.engine.settings import JournalSettings
from journal.folds.table import client_folds
from journal.records.access_entries import Effect, Quotas, Resource, Right, Rule, User
from journal.records.group_entries import PartitionOffset
from journal.records.record import Mark, ProducersExpired, StreamClaimed, TopicAltered, WallClockTold
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.transaction_states import Totals
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import AddOffsets, Done, Prepare, Switch

PASSWORD: Final = "the password of every user of the fixture"
FAR: Final = timedelta(days=3_600)
"""After which messages for later are due: ten years are the most."""
SETTINGS: Final = (
    "file_bytes=1MiB",
    "outcome_archive=on",
    "max_request=64KiB",
    "max_frame=64KiB",
    "pool_bytes=16MiB",
)
QUIET: Final = ("checkpoint_interval=1h",)
OFTEN: Final = ("checkpoint_interval=1s",)
COMPACTED: Final = "compacted"
STREAM: Final = b"a stream of rows"
BIG: Final = b"x" * 30_000


def make_directory(data: Path) -> None:
    """Make a data directory with all of the scene; the broker is killed at the end."""
    with running(data, *QUIET) as broker, txbroker.connect(admin(data)) as client:
        act(client, broker.address, "a", data)
        client.declare_queue(COMPACTED)
    with _opened(data) as engine:
        topic = next(name for name in engine.catalog.topics if _is_log_of(engine, name, COMPACTED))
        engine.accept(TopicAltered(topic, TopicSettings(segment_bytes=4096), engine.now()))
        nonce = engine.starts.newest[1]  # clients release their streams when they go
        engine.accept(StreamClaimed(STREAM, "shop", 1, nonce, "a shop", engine.now()))
        engine.sync()
    with running(data, *OFTEN), txbroker.connect(admin(data)) as client:
        _compact(client)
    with _opened(data) as engine:  # what no client can bring about in a minute
        now = engine.now()
        for record in (
            Mark(now),
            WallClockTold(int(time.time() * 1e6), now, False, None),
            ProducersExpired([max(engine_fold(engine, "producers").producers)], now),
        ):
            engine.accept(record)
        engine.sync()
    with running(data, *QUIET, stops=False) as broker, txbroker.connect(admin(data)) as client:
        act(client, broker.address, "b", data)
        client.switch_access(Switch.ENABLE)


def make_young_directory(data: Path) -> None:
    """Make a data directory that was killed before its first checkpoint: its journal goes back to the first record."""
    with running(data, *QUIET, stops=False), txbroker.connect(admin(data)) as client:
        client.create_topic("young", partitions=1)
        client.send("young", b"first")


def admin(data: Path) -> str:
    """Return the address of the owner of the data."""
    return f"unix:{data / 'admin.sock'}"


@contextmanager
def running(data: Path, *settings: str, stops: bool = True) -> Iterator[BrokerProcess]:
    """A broker, which is stopped in order, or killed."""
    broker = BrokerProcess(data, *SETTINGS, *settings)
    broker.start()
    try:
        yield broker
        if stops:
            broker.stop()
    finally:
        broker.kill()


def engine_fold(engine: Any, name: str) -> Any:
    """Return a fold by its name."""
    return next(fold for fold in engine.folds if fold.name == name)


@contextmanager
def _opened(data: Path) -> Iterator[Any]:
    settings = JournalSettings(file_bytes=1 << 20, low_water_bytes=0, pool_bytes=16 << 20)
    engine = recover(OSFilesystem(data), SystemClock(), settings, folds=client_folds())
    try:
        yield engine
    finally:
        engine.close()


def _is_log_of(engine: Any, topic: str, queue: str) -> bool:
    made = engine_fold(engine, "queues").queues.get(queue)
    return made is not None and engine.catalog.topics[topic].partitions[0].number == made.partition


def _compact(client: Any) -> None:
    for number in range(80):
        client.publish("", COMPACTED, b"%04d" % number + b"." * 100)
    with client.queue(COMPACTED, prefetch=100) as queue:
        taken = [queue.get(5) for _ in range(80)]
        queue.ack([message for n, message in enumerate(taken) if n % 20])
        queue.nack([message for n, message in enumerate(taken) if not n % 20])
    client.create_topic("busy", partitions=1)
    eventually(lambda: client.send("busy", b"so that there is another checkpoint") and compacted(client))


def compacted(client: Any) -> int:
    """Return how many segments the broker has compacted."""
    return int(client.status()["segments_compacted"])


# -- the acts ------------------------------------------------------------------------------------------


def act(client: Any, address: str, name: str, data: Path) -> None:
    """Do one of everything; ``name`` begins the names of all that it makes."""
    _topics(client, address, name)
    _queues(client, name)
    _schedule(client, name)
    _groups(client, address, name)
    _users(client, name)
    _transactions(client, address, name)
    _positions_apart(client, address, name)
    _outbox(address, name, data.parent)


def _topics(client: Any, address: str, name: str) -> None:
    client.create_topic(f"{name}-orders", partitions=2, retention_age=timedelta(days=36_500))
    client.create_topic(f"{name}-gone", partitions=1)
    client.send(f"{name}-gone", b"gone")
    client.delete_topic(f"{name}-gone", scheduled=True)
    client.create_topic(f"{name}-altered", partitions=1)
    for number in range(6):
        client.send(f"{name}-altered", b"%d" % number)
    client.alter_topic(f"{name}-altered", partitions=3, max_message_bytes=40_000)
    client.purge(f"{name}-altered", {0: 2})
    client.send(f"{name}-orders", b"plain", partition=0)
    client.send(f"{name}-orders", None, key=b"tombstone", partition=0)
    headers = [("kind", b"new"), ("kind", b"twice")]
    client.send(
        f"{name}-orders",
        b"dressed",
        b"key",
        headers,
        1,
        1_600_000_000_000_000,
        f"{name}-1",
        ["eu", "express"],
    )
    for compression in (None, "zstd", "lz4"):
        with txbroker.connect(
            address, linger=0.5, compression=compression, producer=f"{name}-producer"
        ) as sender:
            sent = [sender.send_async(f"{name}-orders", b"%d" % n * 50, partition=1) for n in range(5)]
            sender.flush()
            assert {future.result(10).partition for future in sent} == {1}


def _queues(client: Any, name: str) -> None:
    client.declare_exchange(f"{name}-topics", "topic")
    client.declare_exchange(f"{name}-headers", "headers", alternate=f"{name}-topics")
    client.declare_exchange(f"{name}-delayed", "topic", delayed=True)
    client.declare_exchange(f"{name}-gone", "fanout")
    client.declare_queue(
        f"{name}-work",
        delivery_limit=5,
        dead_letter_exchange="",
        dead_letter_key=f"{name}-dead",
        max_priority=3,
    )
    client.declare_queue(
        f"{name}-dead", max_length=1000, max_length_bytes=1 << 20, message_ttl=timedelta(days=3_600)
    )
    client.declare_queue(f"{name}-other", single_active=True, consumer_timeout=timedelta(days=1))
    client.declare_queue(f"{name}-keeping", overflow="reject-publish", dead_letter_strategy="at-least-once")
    client.declare_queue(f"{name}-gone")
    client.bind(f"{name}-topics", f"{name}-work", "task.#")
    client.bind(f"{name}-topics", f"{name}-other", "task.two")
    client.bind(f"{name}-headers", f"{name}-other", arguments={"x-match": "all", "place": b"eu"})
    client.bind(f"{name}-delayed", f"{name}-work", "#")
    client.bind(f"{name}-gone", f"{name}-gone")
    client.bind(f"{name}-headers", to_exchange=f"{name}-topics", arguments={"x-match": "any", "all": b"all"})
    client.unbind(f"{name}-gone", f"{name}-gone")
    client.delete_queue(f"{name}-gone")
    client.delete_exchange(f"{name}-gone")
    client.publish(f"{name}-topics", "task.one", b"one", priority=2)
    client.publish(f"{name}-topics", "task.two", b"two", {"h": b"1"}, id=f"{name}-two", tags="eu")
    client.publish("", f"{name}-work", b"three")
    client.publish("", f"{name}-work", b"acknowledged", priority=3)
    client.publish("", f"{name}-work", b"returned", priority=3)
    client.publish(f"{name}-delayed", "late", b"delayed", {"x-delay": b"31536000000"})
    with client.queue(f"{name}-work", prefetch=2) as queue:
        first, second = queue.get(5), queue.get(5)
        queue.ack(first)
        queue.nack(second)


def _schedule(client: Any, name: str) -> None:
    topic = f"{name}-later"
    client.create_topic(topic, partitions=1)
    client.send(topic, b"in a century", after=FAR)
    client.send(topic, b"after much time", after=FAR, id=f"{name}-later")
    taken = client.send(topic, b"taken back", after=FAR)
    client.cancel(taken.scheduled if hasattr(taken, "scheduled") else taken.id)
    client.send(topic, b"due", after=timedelta(milliseconds=50))
    eventually(lambda: bool(client.read(topic, 0, 0)))


def _groups(client: Any, address: str, name: str) -> None:
    topic, policy = (
        f"{name}-orders",
        txbroker.RetryPolicy(attempts=5, pause=1.0, longest=300.0, ending="dead_letter"),
    )
    client.alter_group(f"{name}-filtering", retry=policy, tags=["eu"], expiry=FAR.total_seconds())
    with txbroker.connect(address, client=f"{name}-reader") as reader:
        consumer = reader.consume(topic, f"{name}-claims", partitions=[0], max_wait=1.0)
        consumer.commit(consumer.poll(5, max_messages=1)[-1])
        consumer.close()
        member = reader.consume(topic, f"{name}-members", max_wait=1.0)
        messages = member.poll(10, max_messages=20)
        member.done(messages[0])
        member.retry(messages[1], timedelta(days=300), "not yet")
        member.dead_letter(messages[2], "never")
        member.close()
        static = reader.consume(topic, f"{name}-static", member=f"{name}-worker", max_wait=1.0)
        static.commit(static.poll(10, max_messages=1)[-1])
        static.close()
    eventually(lambda: any(info.name == f"{topic}.dead" for info in client.topics()))
    client.set_offsets(f"{name}-gone", topic, {0: 1})
    client.delete_group(f"{name}-gone")


def _users(client: Any, name: str) -> None:
    user = User(
        f"{name}-alice", verifier_of(PASSWORD), [f"CN={name}"], [], ["loaders"], Quotas(bytes_in=1 << 30)
    )
    client.add_user(user)
    client.add_user(User(f"{name}-bob", verifier_of(PASSWORD)))
    client.add_user(User(f"{name}-gone", None, ["CN=gone"]))
    client.remove_user(f"{name}-gone")
    for right, kind in (
        (Right.READ, Resource.TOPIC),
        (Right.WRITE, Resource.TOPIC),
        (Right.READ, Resource.GROUP),
    ):
        client.allow(Rule(f"{name}-alice", Effect.ALLOW, kind, "", True, [right]))
    client.allow(Rule(f"{name}-bob", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
    client.allow(Rule("role:loaders", Effect.DENY, Resource.TOPIC, f"{name}-altered", False, [Right.WRITE]))


def _transactions(client: Any, address: str, name: str) -> None:
    topic = f"{name}-orders"
    with client.transaction() as tx:
        tx.send(topic, b"committed", partition=0)
        tx.publish("", f"{name}-other", b"published with it")
    tx = client.transaction()
    tx.send(topic, b"rolled back", partition=0)
    tx.rollback()
    with txbroker.connect(address, client=f"{name}-coordinator", reconnect=False) as other:
        _prepared(other, f"{name}-plain", topic)
        _prepared(other, f"{name}-large", topic, BIG)
        _prepared_with_positions(other, name, topic)
        _prepared_with_queues(other, name, topic)
        for decided in ("committed", "rolled"):
            _prepared(other, f"{name}-{decided}-by-hand", topic)
        client.commit_transaction(xid(client, f"{name}-committed-by-hand"), by="ops", why="it had to be")
        client.rollback_transaction(xid(client, f"{name}-rolled-by-hand"), by="ops", why="so had this")
        try:
            other.tpc_commit(xid(other, f"{name}-rolled-by-hand"))
        except errors.HeuristicallyRolledBack:
            pass
        else:
            raise AssertionError("what was rolled back by hand was committed")
        _prepared(other, f"{name}-forgotten", topic)
        client.rollback_transaction(xid(client, f"{name}-forgotten"), by="ops", why="to be forgotten")
        client.forget_transaction(xid(client, f"{name}-forgotten"), by="ops", why="told")
        _prepared(
            other, f"{name}-open", topic, BIG, prepare=False
        )  # what a kill leaves is rolled back by the start


def xid(client: Any, name: str) -> Any:
    """Return the id of a transaction of the scene."""
    return client.xid(7, name, "branch")


def _prepared(client: Any, name: str, topic: str, value: bytes = b"prepared", prepare: bool = True) -> None:
    tx = client.transaction(xid(client, name))
    for number in range(4 if len(value) > 100 else 1):
        tx.send(topic, b"%d" % number + value, partition=0)
    if prepare:
        tx.prepare()


def _prepared_with_positions(client: Any, name: str, topic: str) -> None:
    tx = client.transaction(xid(client, f"{name}-positions"))
    assert tx.receive(topic, f"{name}-billing", timeout=10) is not None
    tx.send(topic, b"an answer", partition=1)
    tx.prepare()


def _positions_apart(client: Any, address: str, name: str) -> None:
    """Prepare a transaction whose positions came in a request of their own, as those of a very large one do."""
    number = client.topics([f"{name}-orders"])[0].partitions[1].number
    with Peer(int(address.rpartition(":")[2])) as peer:
        peer.say(AddOffsets, 1, f"{name}-apart", [PartitionOffset(number, 1)], xid(client, f"{name}-apart"))
        answer = peer.ask(Prepare, 1, xid(client, f"{name}-apart"), Totals(0, 1, 0))
        assert isinstance(answer, Done), answer


def _prepared_with_queues(client: Any, name: str, topic: str) -> None:
    with client.queue(f"{name}-other") as queue:
        message = queue.get(5)
        tx = client.transaction(xid(client, f"{name}-queues"))
        tx.ack(message)
        tx.publish(f"{name}-topics", "task.three", b"prepared", priority=1)
        tx.cancel(message_id=f"{name}-later")
        tx.send(f"{name}-later", b"prepared, for later", after=FAR)
        tx.prepare()


def _outbox(address: str, name: str, folder: Path) -> None:
    database = sqlite3.connect(folder / f"{name}-shop.db")
    try:
        txbroker.create_decision_table(database)
        with txbroker.connect(address) as broker:
            known = broker.status()["streams"]
            with txbroker.atomic(database, broker) as tx:
                tx.send(f"{name}-orders", b"with a row", partition=0)
            eventually(lambda: broker.status()["streams"] == known + 1)
    finally:
        database.close()
