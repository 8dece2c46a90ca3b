"""Wrong arguments, call by call, the same for every client. Run as a program it tries them with Twisted."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from txbroker import errors
from txbroker.client.core.results import Message
from txbroker.client.core.retry_policy import RetryPolicy

TEXT = (b"x", 5, 1.5, True, ["x"], object(), "\udcff")
WHOLE = ("1", 1.5, b"1", True, [1], 1 << 70)
INDEX = WHOLE[:-1]
"""As an index in a topic the others are numbers of partitions that there are not."""
IDS = (5, 1.5, [b"x"], "", b"", "x" * 256, "\udcff")
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
OCTETS = ("text", 5, True, 1.5, [b"x"], object())
HEADERS = (
    [("a", "b")],
    [("a",)],
    ["ab"],
    iter([("a", b"b")]),
    {"a": "b"},
    {"a": None},
    {b"a": b"b"},
    {5: b"b"},
    {"\udcff": b""},
    5,
    "",
    b"",
)
MOMENT = (1.7e15, "now", True, b"", 1_700_000_000, 1_700_000_000_000, 0, -5, 1 << 63, NAIVE)
SECONDS = ("5", b"", True, math.nan, -1.0, math.inf, None)
AFTER = (*SECONDS[:-1], timedelta(-1), timedelta(3654), 1e9)
SCHEDULED = (5, b"0-1-00000000", True, (0, 1, 0), "", "1-2", "9-1-00000000", "0-1-0000000G", "\udcff")
WAIT = SECONDS[:-1]
"""None is for ever."""
TRUTH = (0, 1, "yes", None)
NAMES = ("t", b"t", 5, [b"t"], [5], ["\udcff"])
WHICH = (5, b"1-2", "1", "a-b", ("1", "2"), (1,), (1 << 70, 1), None)

MESSAGE = Message("t", 0, 1, 1, None, b"")
POLICIES = {
    "attempts": (*WHOLE, 0, -1, 1001, None),
    "pause": (*SECONDS, timedelta(1), 300.1),
    "longest": (*SECONDS, timedelta(1), 366 * 86_400 + 1),
    "ending": (5, b"stop", None, "", "STOP", "skip", "\udcff"),
}
"""What each field of a RetryPolicy does not take, beside the usual values of the others."""
POLICY = (5, "usual", b"", {"attempts": 5}, tuple(RetryPolicy()))


class Case(NamedTuple):
    """One parameter of one call, and what it does not take. ``named`` is what the error calls it."""

    named: str
    call: Callable[[Any, Any], Any]
    wrong: tuple[Any, ...]


CASES = [
    Case("topic", lambda c, w: c.send(w, b"v"), (*TEXT, None)),
    Case("value", lambda c, w: c.send("t", w), OCTETS),
    Case("key", lambda c, w: c.send("t", b"v", key=w), OCTETS),
    Case("key", lambda c, w: c.send("t2", b"v", key=w), OCTETS),
    Case("header", lambda c, w: c.send("t", b"v", headers=w), HEADERS),
    Case("partition", lambda c, w: c.send("t2", b"v", partition=w), INDEX),
    Case("timestamp", lambda c, w: c.send("t", b"v", timestamp=w), MOMENT),
    Case("id", lambda c, w: c.send("t", b"v", id=w), IDS),
    Case("after", lambda c, w: c.send("t", b"v", after=w), AFTER),
    Case("at", lambda c, w: c.send("t", b"v", at=w), MOMENT),
    Case("after", lambda c, w: c.transaction().send("t", b"v", after=w), AFTER),
    Case("at", lambda c, w: c.transaction().send("t", b"v", at=w), MOMENT),
    Case("after", lambda c, w: c.transaction().send_many("t", [b"v"], after=w), AFTER),
    Case("at", lambda c, w: c.transaction().send_many("t", [b"v"], at=w), MOMENT),
    Case("id", lambda c, w: c.transaction().cancel(w), SCHEDULED),
    Case("id", lambda c, w: c.cancel(w), SCHEDULED),
    Case("message_id", lambda c, w: c.cancel(message_id=w), (*IDS, True, False)),
    Case("id", lambda c, w: c.scheduled(w), SCHEDULED),
    Case("with_message", lambda c, w: c.scheduled("0-1-00000000", with_message=w), TRUTH),
    Case("topic", lambda c, w: c.list_scheduled(w), TEXT),
    Case("id", lambda c, w: c.transaction().send("t", b"v", id=w), IDS),
    Case(
        "tags", lambda c, w: c.send("t", b"v", tags=w), (5, b"eu", [b"eu"], [None], "", "\udcff", "x" * 256)
    ),
    Case("tags", lambda c, w: c.transaction().send("t", b"v", tags=w), (5, [5])),
    Case("tags", lambda c, w: c.transaction().send_many("t", [b"v"], tags=w), ("eu", 5)),
    Case("tags", lambda c, w: c.transaction().send_many("t", [b"v"], tags=[w]), (5, [5])),
    Case("ids", lambda c, w: c.transaction().send_many("t", [b"v"], ids=w), ("k", b"k", 5)),
    Case("id", lambda c, w: c.transaction().send_many("t", [b"v"], ids=[w]), IDS),
    Case("topic", lambda c, w: c.transaction().send(w, b"v"), (*TEXT, None)),
    Case("value", lambda c, w: c.transaction().send("t", w), OCTETS),
    Case("key", lambda c, w: c.transaction().send("t", b"v", key=w), OCTETS),
    Case("header", lambda c, w: c.transaction().send("t", b"v", headers=w), HEADERS),
    Case("partition", lambda c, w: c.transaction().send("t2", b"v", partition=w), INDEX),
    Case("timestamp", lambda c, w: c.transaction().send("t", b"v", timestamp=w), MOMENT),
    Case("topic", lambda c, w: c.transaction().send_many(w, [b"v"]), (*TEXT, None)),
    Case("values", lambda c, w: c.transaction().send_many("t", w), ("v", b"v", 5, None, {"a": b"b"})),
    Case("value", lambda c, w: c.transaction().send_many("t", [w]), OCTETS),
    Case("keys", lambda c, w: c.transaction().send_many("t", [b"v"], keys=w), ("k", b"k", 5)),
    Case("key", lambda c, w: c.transaction().send_many("t", [b"v"], keys=[w]), OCTETS),
    Case("header", lambda c, w: c.transaction().send_many("t", [b"v"], headers=[w]), HEADERS),
    Case("partition", lambda c, w: c.transaction().send_many("t2", [b"v"], partitions=[w]), INDEX),
    Case("timestamp", lambda c, w: c.transaction().send_many("t", [b"v"], timestamps=[w]), MOMENT),
    Case("name", lambda c, w: c.create_topic(w), (*TEXT, None)),
    Case("partitions", lambda c, w: c.create_topic("n", w), WHOLE),
    Case("exist_ok", lambda c, w: c.create_topic("n", exist_ok=w), TRUTH),
    Case("name", lambda c, w: c.delete_topic(w), (*TEXT, None)),
    Case("scheduled", lambda c, w: c.delete_topic("t", scheduled=w), TRUTH),
    Case("name", lambda c, w: c.alter_topic(w, force_messages=7), (*TEXT, None)),
    Case("topic_id", lambda c, w: c.alter_topic("t", topic_id=w, force_messages=7), OCTETS),
    Case("partitions", lambda c, w: c.alter_topic("t", partitions=w), WHOLE),
    Case("topic", lambda c, w: c.purge(w, 0), (*TEXT, None)),
    Case("before", lambda c, w: c.purge("t", w), WHOLE),
    Case("before", lambda c, w: c.purge("t", {0: w}), (*WHOLE, None)),
    Case("partition", lambda c, w: c.purge("t", {w: 0}), ("0", 1.5, True, None)),
    Case("topic_id", lambda c, w: c.purge("t", 0, topic_id=w), OCTETS),
    Case("names", lambda c, w: c.topics(w), NAMES),
    Case("topic", lambda c, w: c.read(w, 0, 0), (*TEXT, None)),
    Case("partition", lambda c, w: c.read("t", w, 0), (*WHOLE, None)),
    Case("offset", lambda c, w: c.read("t", 0, w), (*WHOLE, None)),
    Case("max_bytes", lambda c, w: c.read("t", 0, 0, w), (*WHOLE, None)),
    Case("max_wait", lambda c, w: c.read("t", 0, 0, max_wait=w), SECONDS),
    Case("number", lambda c, w: c.read_frames(w, 0), (*WHOLE, None)),
    Case("offset", lambda c, w: c.read_frames(1, w), (*WHOLE, None)),
    Case("topic", lambda c, w: c.offsets_for_time(w, 10**15), (*TEXT, None)),
    Case("time", lambda c, w: c.offsets_for_time("t", w), (*MOMENT, None)),
    Case("topic", lambda c, w: c.find(w, id="x"), (*TEXT, None)),
    Case("id", lambda c, w: c.find("t", id=w), (*IDS, True, False)),
    Case("tag", lambda c, w: c.find("t", tag=w), (5, b"eu", ["eu"], "", "\udcff", "x" * 256)),
    Case("key", lambda c, w: c.find("t", key=w), OCTETS),
    Case("partition", lambda c, w: c.find("t", id="x", partition=w), INDEX),
    Case("start", lambda c, w: c.find("t", id="x", start=w), (*WHOLE, -1, None)),
    Case("limit", lambda c, w: c.find("t", id="x", limit=w), (*WHOLE, 0, None)),
    Case("group", lambda c, w: c.group_offsets(w), (*TEXT, None)),
    Case("group", lambda c, w: c.describe_group(w), (*TEXT, None)),
    Case("group", lambda c, w: c.set_offsets(w, "t", {0: 1}), (*TEXT, None)),
    Case("topic", lambda c, w: c.set_offsets("g", w, {0: 1}), (*TEXT, None)),
    Case("offsets", lambda c, w: c.set_offsets("g", "t", w), (5, "0", [1], None)),
    Case("partition", lambda c, w: c.set_offsets("g", "t", {w: 1}), ("0", 1.5, True, None)),
    Case("offset", lambda c, w: c.set_offsets("g", "t", {0: w}), (*WHOLE, None)),
    Case("stop", lambda c, w: c.set_offsets("g", "t", {0: 1}, stop=w), TRUTH),
    Case("group", lambda c, w: c.parked(w), (*TEXT, None)),
    Case("group", lambda c, w: c.retry_parked(w, "t", 0, [1]), (*TEXT, None)),
    Case("topic", lambda c, w: c.retry_parked("g", w, 0, [1]), (*TEXT, None)),
    Case("offsets", lambda c, w: c.retry_parked("g", "t", 0, w), (5, None, "1", object())),
    Case("offset", lambda c, w: c.skip("g", "t", 0, [w]), (*WHOLE, -1, None)),
    Case("group", lambda c, w: c.delete_group(w), (*TEXT, None)),
    Case("stop", lambda c, w: c.delete_group("g", stop=w), TRUTH),
    Case("group", lambda c, w: c.alter_group(w, retry=RetryPolicy()), (*TEXT, None)),
    Case("retry", lambda c, w: c.alter_group("g", retry=w), (*POLICY, True, False)),
    Case("attempts", lambda c, w: c.alter_group("g", retry=RetryPolicy(attempts=w)), POLICIES["attempts"]),
    Case("pause", lambda c, w: c.alter_group("g", retry=RetryPolicy(pause=w)), POLICIES["pause"]),
    Case(
        "longest", lambda c, w: c.alter_group("g", retry=RetryPolicy(pause=0, longest=w)), POLICIES["longest"]
    ),
    Case("ending", lambda c, w: c.alter_group("g", retry=RetryPolicy(ending=w)), POLICIES["ending"]),
    Case(
        "expiry", lambda c, w: c.alter_group("g", expiry=w), (-1, 59.9, 1e12, float("nan"), "1d", b"", [60])
    ),
    Case(
        "dead_letter_topic",
        lambda c, w: c.alter_group("g", retry=RetryPolicy(dead_letter_topic=w)),
        ("t", "", 5, b"t.dead"),
    ),
    Case("retry", lambda c, w: c.transaction().receive("t", "g", 0, retry=w), (*POLICY, None)),
    Case(
        "attempts",
        lambda c, w: c.transaction().receive("t", "g", 0, retry=RetryPolicy(attempts=w)),
        POLICIES["attempts"],
    ),
    Case("states", lambda c, w: c.transactions(w), (5, "prepared", b"x", [3], ["PREPARED"], None)),
    Case("format_id", lambda c, w: c.transactions(format_id=w), WHOLE),
    Case("global_prefix", lambda c, w: c.transactions(global_prefix=w), (*OCTETS, None)),
    Case("forced", lambda c, w: c.transactions(forced=w), TRUTH),
    Case("which", lambda c, w: c.show_transaction(w), WHICH),
    Case("max_bytes", lambda c, w: c.show_transaction("1-2", w), (*WHOLE, None)),
    Case("which", lambda c, w: c.commit_transaction(w, "me", "so"), WHICH),
    Case("by", lambda c, w: c.commit_transaction("1-2", w, "so"), (*TEXT, None)),
    Case("why", lambda c, w: c.commit_transaction("1-2", "me", w), (*TEXT, None)),
    Case("which", lambda c, w: c.rollback_transaction(w, "me", "so"), WHICH),
    Case("by", lambda c, w: c.rollback_transaction("1-2", w, "so"), (*TEXT, None)),
    Case("which", lambda c, w: c.forget_transaction(w, "me"), WHICH),
    Case("why", lambda c, w: c.forget_transaction("1-2", "me", w), (*TEXT, None)),
    Case("which", lambda c, w: c.outcome(w), WHICH),
    Case("which", lambda c, w: c.wait_outcome(w), WHICH),
    Case("timeout", lambda c, w: c.wait_outcome("1-2", w), SECONDS),
    Case("xid", lambda c, w: c.end_prepared(w, True), (5, "x", ("1", "2", "3"), None)),
    Case("commit", lambda c, w: c.end_prepared(c.xid(1, "g", "b"), w), TRUTH),
    Case("xid", lambda c, w: c.tpc_commit(w), (5, "x", (1, b"g", b"b"))),
    Case("xid", lambda c, w: c.tpc_rollback(w), (5, "x", (1, b"g", b"b"))),
    Case("consumer", lambda c, w: c.transaction().commit_offsets(w), (5, "g", None, object())),
    Case("what to commit", lambda c, w: c.consume("t", "g").commit(w), (5, "t", b"t", [("t", 0)], object())),
    Case("consumer", lambda c, w: c.transaction().done(MESSAGE, w), (5, "g", object())),
    Case("what to finish", lambda c, w: c.transaction().done(w), (5, "t", b"t", [5], [MESSAGE, None], None)),
    Case(
        "what to finish", lambda c, w: c.consume("t", "g").done(w), (5, "t", b"t", [5], [MESSAGE, None], None)
    ),
    Case("group", lambda c, w: c.dead_letter(w, "t", 0, [1]), (*TEXT, None)),
    Case("topic", lambda c, w: c.resend("g", w, 0, [1]), (*TEXT, None)),
    Case("offsets", lambda c, w: c.resend("g", "t", 0, w), (5, None, "1", object())),
    Case("consumer", lambda c, w: c.transaction().dead_letter(MESSAGE, consumer=w), (5, "g", object())),
    Case("why", lambda c, w: c.consume("t", "g").dead_letter([], w), (5, b"why", None)),
    Case("consumer", lambda c, w: c.transaction().retry(MESSAGE, consumer=w), (5, "g", object())),
    Case("what to try again", lambda c, w: c.transaction().retry(w), (5, None, [MESSAGE], object())),
    Case(
        "what to try again",
        lambda c, w: c.consume("t", "g").retry(w),
        (5, "t", b"t", [5], [MESSAGE, None], None),
    ),
    Case("after", lambda c, w: c.consume("t", "g").retry([], w), ("5", b"5", -1, 1e9, True, float("nan"))),
    Case("why", lambda c, w: c.consume("t", "g").retry([], 1, w), (5, b"why", None)),
    Case("place", lambda c, w: c.consume("t", "g").commit({w: 1}), (5, "t", ("t",), ("t", 0, 1))),
    Case("offset", lambda c, w: c.consume("t", "g").commit({("t", 0): w}), (*WHOLE, -1, None)),
    Case("what to commit", lambda c, w: c.consume("t", "g").commit({("t", w): 1}), (0, 7)),
    Case("topic", lambda c, w: c.consume("t", "g").seek(w, 0, 0), (*TEXT, None)),
    Case("partition", lambda c, w: c.consume("t", "g").seek("t", w, 0), (*WHOLE, -1, None)),
    Case("offset", lambda c, w: c.consume("t", "g").seek("t", 0, w), (*WHOLE, -1, None, "committed", NAIVE)),
    Case("partition", lambda c, w: c.consume("t", "g").seek("t", w, 0), (0, 7)),
    Case("timeout", lambda c, w: c.close(w), WAIT),
    Case("timeout", lambda c, w: c.consume("t", "g").poll(w), WAIT),
    Case("max_messages", lambda c, w: c.consume("t", "g").poll(0.0, w), (*WHOLE, 0, -1)),
    Case("timeout", lambda c, w: c.transaction().receive("t", "g", w), WAIT),
    Case("order", lambda c, w: c.transaction().receive("t", "g", 0, order=w), ("offset", b"key", 5, True)),
]
"""Calls that give something to await, where a client does that at all."""

AT_ONCE = [
    Case("topics", lambda c, w: c.consume(w), (b"t", 5, [b"t"], [5], [], None, "\udcff")),
    Case("group", lambda c, w: c.consume("t", w), TEXT),
    Case("partitions", lambda c, w: c.consume("t", partitions=w), (3, "0", b"0", 1.5)),
    Case("partition", lambda c, w: c.consume("t", partitions=[w]), WHOLE),
    Case(
        "start",
        lambda c, w: c.consume("t", start=w),
        ("begin", b"x", 1.5, True, -1, NAIVE, None),
    ),
    Case("max_wait", lambda c, w: c.consume("t", max_wait=w), SECONDS),
    Case("commit_interval", lambda c, w: c.consume("t", "g", commit_interval=w), (*WAIT, 0, 0.001, 3601)),
    Case("auto_done", lambda c, w: c.consume("t", "g", commit_interval=1, auto_done=w), TRUTH),
    Case("handler_timeout", lambda c, w: c.consume("t", "g", handler_timeout=w), (*WAIT, 0)),
    Case("order", lambda c, w: c.consume("t", "g", order=w), ("offset", b"key", 5, True)),
    Case("retry", lambda c, w: c.consume("t", "g", retry=w), (*POLICY, None)),
    Case("pause", lambda c, w: c.consume("t", "g", retry=RetryPolicy(pause=w)), POLICIES["pause"]),
    Case("follow", lambda c, w: c.consume("t", follow=w), TRUTH),
    Case("prefetch", lambda c, w: c.consume("t", prefetch=w), (*WHOLE, 0, None)),
    Case("max_bytes", lambda c, w: c.consume("t", max_bytes=w), (*WHOLE, 0, None)),
    Case("max_run", lambda c, w: c.consume("t", max_run=w), (*WHOLE, 0)),
    Case("claim", lambda c, w: c.consume("t", claim=w), TRUTH),
    Case("out_of_range", lambda c, w: c.consume("t", out_of_range=w), ("first", b"x", 5, None)),
    Case("topic", lambda c, w: c.consume("t").pause(w, 0), (*TEXT, None)),
    Case("partition", lambda c, w: c.consume("t").pause("t", w), (*WHOLE, 0, 7, None)),
    Case("topic", lambda c, w: c.consume("t").resume(w, 0), (*TEXT, None)),
    Case("partition", lambda c, w: c.consume("t").resume("t", w), (*WHOLE, 0, 7, None)),
    Case("topics", lambda c, w: c.work(w, "g", print), (b"t", 5, [b"t"], [5], [], None, "\udcff")),
    Case("group", lambda c, w: c.work("t", w, print), (*TEXT, None, "")),
    Case("handler", lambda c, w: c.work("t", "g", w), (None, "module:handler", 5)),
    Case("concurrency", lambda c, w: c.work("t", "g", print, concurrency=w), (*WHOLE, 0, None)),
    Case("batch", lambda c, w: c.work("t", "g", print, batch=w), (*WHOLE, 0, None)),
    Case("order", lambda c, w: c.work("t", "g", print, order=w), ("offset", b"key", 5, True)),
    Case(
        "transaction", lambda c, w: c.work("t", "g", print, transaction=w), ("database", b"broker", 5, True)
    ),
    Case("retry", lambda c, w: c.work("t", "g", print, retry=w), (*POLICY, None)),
    Case("ending", lambda c, w: c.work("t", "g", print, retry=RetryPolicy(ending=w)), POLICIES["ending"]),
    Case("stop_timeout", lambda c, w: c.work("t", "g", print, stop_timeout=w), SECONDS),
    Case("report_interval", lambda c, w: c.work("t", "g", print, report_interval=w), (*SECONDS, 0)),
    Case("on_start", lambda c, w: c.work("t", "g", print, on_start=w), (5, "hook")),
    Case("on_stop", lambda c, w: c.work("t", "g", print, on_stop=w), (5, "hook")),
    Case("follow", lambda c, w: c.work("t", "g", print, follow=w), TRUTH),
    Case("format_id", lambda c, w: c.xid(w, "g", "b"), (*WHOLE, None)),
    Case("global_transaction_id", lambda c, w: c.xid(1, w, "b"), (5, None, "\udcff", ["g"])),
    Case("branch_qualifier", lambda c, w: c.xid(1, "g", w), (5, None, "\udcff", ["g"])),
    Case("xid", lambda c, w: c.tpc_begin(w), (5, "x", (1, b"g", b"b"), None)),
    Case("xid", lambda c, w: c.transaction(w), (5, "x", (1, b"g", b"b"))),
]
"""Calls that give nothing to await in any client."""

STATE = re.compile(
    r"; nothing (was|has) \w+\.?$|; the messages before it .* have been added|nothing was done with it"
)


def check(case: Case, wrong: object, error: BaseException) -> None:
    """Whether an error says which parameter it is, what was given, what is wanted, and the state."""
    assert isinstance(error, (errors.WrongType, errors.WrongValue)), (case.named, wrong, repr(error))
    assert isinstance(error, (TypeError, ValueError))
    told = str(error)
    assert case.named in told.split(" is ")[0], (case.named, wrong, told)
    assert "must be" in told, told
    assert STATE.search(told), told
    if isinstance(error, errors.WrongType):
        kinds = {type(part).__name__ for part in _parts(wrong)}
        assert any(f"of type {kind}" in told for kind in kinds), (wrong, told)


def _parts(wrong: Any) -> list[Any]:
    """A wrong value, and what is in it: what is named may be one of a list's."""
    if isinstance(wrong, dict):
        return [wrong, *wrong, *wrong.values()]
    if not isinstance(wrong, (list, tuple)):
        return [wrong]
    return [wrong, *(part for each in wrong for part in _parts(each))]


async def walk(connection: Any) -> None:
    """Every case on a loop: the call itself raises nothing, what it gives fails."""
    for case in CASES:
        for wrong in case.wrong:
            awaitable = case.call(connection, wrong)
            try:
                await awaitable
            except Exception as error:  # noqa: BLE001 - it is looked at
                check(case, wrong, error)
            else:
                raise AssertionError((case.named, wrong, "was taken"))
    walk_at_once(connection)


def walk_at_once(connection: Any) -> None:
    """The calls that give nothing to await."""
    for case in AT_ONCE:
        for wrong in case.wrong:
            try:
                case.call(connection, wrong)
            except Exception as error:  # noqa: BLE001 - it is looked at
                check(case, wrong, error)
            else:
                raise AssertionError((case.named, wrong, "was taken"))


async def beside_a_transaction(api: Any, url: str, **more: Any) -> None:
    """A transaction of the same connection goes on, whatever other calls are given."""
    connection = await api.connect(url, timeout=5.0, **more)
    async with connection.transaction() as tx:
        await tx.send("t", b"before")
        await walk(connection)
        await tx.send("t", b"after")
    await connection.close()


if __name__ == "__main__":
    from twisted.internet.defer import ensureDeferred
    from twisted.internet.task import react

    from txbroker.client import twisted

    react(lambda reactor: ensureDeferred(beside_a_transaction(twisted, sys.argv[1], reactor=reactor)))
