"""The types of each client's calls. Nothing runs this: mypy reads it (``test_types.py``)."""

from asyncio import Future
from datetime import timedelta
from typing import assert_type

from twisted.internet.defer import Deferred

from journal.scheduled_id import ScheduledId
from journal.transaction_states import State
from journal.xid import Xid
from txbroker.client import asyncio, blocking, twisted
from txbroker.client.blocking.send_future import SendFuture
from txbroker.client.core.results import (
    GroupDescription,
    Listed,
    Message,
    ParkedMessage,
    Receipt,
    TransactionDetails,
)
from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.client.core.scheduled_results import ScheduledMessage, ScheduledMessages
from txbroker.wire.messages import TopicInfo, TransactionInfo

MESSAGE = Message("t", 0, 1, 1, None, b"")
POLICY = RetryPolicy(attempts=3, pause=0.5, ending="stop")


def blocking_calls(c: blocking.Connection, xid: Xid) -> None:
    assert_type(c.send("t", b"v"), Receipt)
    assert_type(c.send_async("t", b"v"), SendFuture)
    assert_type(c.send("t", b"v", after=5).scheduled, ScheduledId | None)
    assert_type(c.cancel("0-1-00000000"), list[ScheduledId])
    assert_type(c.scheduled("0-1-00000000"), ScheduledMessage)
    assert_type(c.list_scheduled("t"), ScheduledMessages)
    assert_type(c.release_scheduled(), None)
    assert_type(c.flush(), None)
    assert_type(c.topics(["t"]), Listed[TopicInfo])
    assert_type(c.find("t", id="x"), list[Message])
    assert_type(c.create_topic("t", 2, exist_ok=True, retention_age=5), TopicInfo)
    assert_type(c.transactions([State.PREPARED], forced=True), list[TransactionInfo])
    assert_type(c.show_transaction("1-2", max_bytes=5), TransactionDetails)
    assert_type(c.describe_group("g"), GroupDescription)
    assert_type(c.parked("g"), list[ParkedMessage])
    assert_type(c.skip("g", "t", 0, [1]), None)
    assert_type(c.alter_group("g", retry=POLICY), None)
    assert_type(c.describe_group("g").retry, RetryPolicy | None)
    assert_type(c.wait_outcome(xid, 1.0), State)
    assert_type(c.tpc_recover(), list[Xid])
    tx, consumer = c.transaction(xid), c.consume("t", group="g", retry=POLICY)
    assert_type(tx.send("t", b"v"), Receipt)
    assert_type(tx.cancel("0-1-00000000"), list[ScheduledId])
    assert_type(tx.scheduled, list[ScheduledId])
    assert_type(tx.receive("t", "g"), Message | None)
    assert_type(tx.commit_offsets(consumer), None)
    assert_type(tx.done(MESSAGE), None)
    assert_type(tx.done([MESSAGE]), None)
    assert_type(consumer.done([MESSAGE]), None)
    assert_type(tx.retry(MESSAGE, 1.5, "why"), None)
    assert_type(tx.dead_letter(MESSAGE, "why"), None)
    assert_type(consumer.dead_letter([MESSAGE]), None)
    assert_type(consumer.retry([MESSAGE], timedelta(1)), None)
    assert_type(tx.commit(), None)
    assert_type(consumer.poll(1.0, max_messages=5), list[Message])
    assert_type(consumer.commit({("t", 0): 5}), None)
    assert_type(consumer.seek("t", 0, 5), None)
    assert_type(consumer.seek("t", 0, "latest"), None)
    consumer.pause("t", 0)
    assert_type(consumer.paused, frozenset[tuple[str, int]])
    consumer.resume("t", 0)
    assert_type(c.work("t", "g", print, concurrency=8).run(), None)


async def asyncio_calls(c: asyncio.Connection, xid: Xid) -> None:
    assert_type(c.send("t", b"v"), Future[Receipt])
    assert_type(c.send_async("t", b"v", partition=2), Future[Receipt])
    assert_type(c.send("t", b"v", at=10**15), Future[Receipt])
    assert_type(c.cancel(message_id="x"), Future[list[ScheduledId]])
    assert_type(c.scheduled("0-1-00000000", with_message=True), Future[ScheduledMessage])
    assert_type(c.list_scheduled(), Future[ScheduledMessages])
    assert_type(c.flush(), Future[None])
    assert_type(c.topics(["t"]), Future[Listed[TopicInfo]])
    assert_type(c.find("t", id="x"), Future[list[Message]])
    assert_type(c.create_topic("t", 2, exist_ok=True, retention_age=5), Future[TopicInfo])
    assert_type(c.transactions([State.PREPARED], forced=True), Future[list[TransactionInfo]])
    assert_type(c.show_transaction("1-2", max_bytes=5), Future[TransactionDetails])
    assert_type(c.wait_outcome(xid, 1.0), Future[State])
    assert_type(c.tpc_recover(), Future[list[Xid]])
    tx, consumer = c.transaction(xid), c.consume("t", group="g")
    assert_type(tx.send("t", b"v", after=timedelta(1)), Future[Receipt])
    assert_type(tx.cancel("0-1-00000000"), Future[list[ScheduledId]])
    assert_type(tx.send_many("t", [b"v"], by_key=False), Future[None])
    assert_type(await tx.receive("t", "g"), Message | None)
    assert_type(tx.prepare(), Future[None])
    assert_type(tx.commit_offsets(consumer), Future[None])
    assert_type(tx.done(MESSAGE), Future[None])
    assert_type(tx.done([MESSAGE]), Future[None])
    assert_type(consumer.done([MESSAGE]), Future[None])
    assert_type(tx.retry(MESSAGE, 1.5, "why"), Future[None])
    assert_type(tx.dead_letter(MESSAGE, "why"), Future[None])
    assert_type(consumer.dead_letter([MESSAGE]), Future[None])
    assert_type(consumer.retry([MESSAGE], timedelta(1)), Future[None])
    assert_type(c.alter_group("g", retry=None, expiry=60), Future[None])
    assert_type(await c.work("t", "g", print, retry=POLICY).run(), None)
    assert_type(tx.commit(), Future[None])
    assert_type(await consumer.poll(1.0, max_messages=5), list[Message])
    assert_type(consumer.commit({("t", 0): 5}), Future[None])
    assert_type(consumer.seek("t", 0, 5), Future[None])
    assert_type(consumer.seek("t", 0, "latest"), Future[None])
    consumer.pause("t", 0)
    assert_type(consumer.paused, frozenset[tuple[str, int]])
    consumer.resume("t", 0)
    assert_type(await c.status(), dict[str, int | float | str])


async def twisted_calls(c: twisted.Connection, xid: Xid) -> None:
    assert_type(c.send("t", b"v"), Deferred[Receipt])
    assert_type(c.send_async("t", b"v", partition=2), Deferred[Receipt])
    assert_type(c.send("t", b"v", at=10**15), Deferred[Receipt])
    assert_type(c.cancel(message_id="x"), Deferred[list[ScheduledId]])
    assert_type(c.scheduled("0-1-00000000", with_message=True), Deferred[ScheduledMessage])
    assert_type(c.list_scheduled(), Deferred[ScheduledMessages])
    assert_type(c.flush(), Deferred[None])
    assert_type(c.topics(["t"]), Deferred[Listed[TopicInfo]])
    assert_type(c.find("t", id="x"), Deferred[list[Message]])
    assert_type(c.create_topic("t", 2, exist_ok=True, retention_age=5), Deferred[TopicInfo])
    assert_type(c.transactions([State.PREPARED], forced=True), Deferred[list[TransactionInfo]])
    assert_type(c.show_transaction("1-2", max_bytes=5), Deferred[TransactionDetails])
    assert_type(c.wait_outcome(xid, 1.0), Deferred[State])
    assert_type(c.tpc_recover(), Deferred[list[Xid]])
    tx, consumer = c.transaction(xid), c.consume("t", group="g")
    assert_type(tx.send("t", b"v", after=timedelta(1)), Deferred[Receipt])
    assert_type(tx.cancel("0-1-00000000"), Deferred[list[ScheduledId]])
    assert_type(tx.send_many("t", [b"v"], by_key=False), Deferred[None])
    assert_type(tx.receive("t", "g"), Deferred[Message | None])
    assert_type(tx.prepare(), Deferred[None])
    assert_type(tx.commit_offsets(consumer), Deferred[None])
    assert_type(tx.done(MESSAGE), Deferred[None])
    assert_type(tx.done([MESSAGE]), Deferred[None])
    assert_type(consumer.done([MESSAGE]), Deferred[None])
    assert_type(tx.retry(MESSAGE, 1.5, "why"), Deferred[None])
    assert_type(tx.dead_letter(MESSAGE, "why"), Deferred[None])
    assert_type(consumer.dead_letter([MESSAGE]), Deferred[None])
    assert_type(consumer.retry([MESSAGE], timedelta(1)), Deferred[None])
    assert_type(c.alter_group("g", retry=POLICY), Deferred[None])
    assert_type(c.work("t", "g", print).run(), Deferred[None])
    assert_type(tx.commit(), Deferred[None])
    assert_type(consumer.poll(1.0, max_messages=5), Deferred[list[Message]])
    assert_type(consumer.commit({("t", 0): 5}), Deferred[None])
    assert_type(consumer.seek("t", 0, 5), Deferred[None])
    assert_type(consumer.seek("t", 0, "latest"), Deferred[None])
    consumer.pause("t", 0)
    assert_type(consumer.paused, frozenset[tuple[str, int]])
    consumer.resume("t", 0)
    assert_type(await c.status(), dict[str, int | float | str])


def wrong_calls(a: asyncio.Connection, b: blocking.Connection, t: twisted.Connection) -> None:
    b.topics(names=5)  # type: ignore[arg-type]
    a.create_topic("t", retention=5)  # type: ignore[call-arg]
    t.send(b"t", b"v")  # type: ignore[arg-type]
    a.transaction().send("t")  # type: ignore[call-arg]
    t.consume("t").poll("soon")  # type: ignore[arg-type]
    b.consume("t", "g", retry="usual")  # type: ignore[arg-type]
    t.alter_group("g", retry=5)  # type: ignore[arg-type]
    a.consume("t").seek("t", 0, 1.5)  # type: ignore[arg-type]
    b.consume("t").pause(("t", 0))  # type: ignore[call-arg, arg-type]
