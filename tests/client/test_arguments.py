"""Test arguments of callers: wrong ones are refused by name before anything is sent; mutable ones are read at the call.

Seen at 45bb991: bytes where text belongs closed the connection, again at each new one, ended the transactions of other
threads on it, and told its own caller that something may have happened.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

import txbroker
from journal.formats import frame
from tests.client import wrong_arguments
from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker, ScriptedServer
from tests.support.repository import ROOT
from txbroker import errors
from txbroker.client import asyncio as asyncio_client
from txbroker.client import twisted as twisted_client
from txbroker.client.transactions import bulk
from txbroker.wire import messages as commands
from txbroker.wire.messages import Hello

NOON = 1_767_268_800_000_000
"""2026-01-01 12:00 UTC in µs."""


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


@pytest.fixture
def connection(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        yield connection


def connections(broker):
    return sum(type(request) is Hello for request in broker.requests)


def altered(broker):
    return [request for request in broker.requests if type(request) is commands.AlterGroup]


def messages(broker, partition=1):
    return [message for _, run in broker.logs[partition] for message in frame.decode_run(run)]


@pytest.mark.parametrize("number", range(len(wrong_arguments.CASES)))
def test_what_a_call_does_not_take_is_named_and_leaves_the_connection_as_it_was(connection, broker, number):
    case = wrong_arguments.CASES[number]
    with connection.transaction() as tx:
        tx.send("t", b"before")
        for wrong in case.wrong:
            with pytest.raises(errors.Misuse) as caught:
                case.call(connection, wrong)
            wrong_arguments.check(case, wrong, caught.value)
        tx.send("t", b"after")
    assert broker.values(1) == [b"before", b"after"]
    assert connections(broker) == 1
    assert altered(broker) == []


def test_calls_that_give_nothing_to_await_refuse_at_once(connection, broker):
    wrong_arguments.walk_at_once(connection)
    assert connections(broker) == 1


def test_send_async_refuses_what_send_does(connection, broker):
    for case in wrong_arguments.CASES[:7]:
        for wrong in case.wrong:

            class Asynchronous:
                send = connection.send_async

            with pytest.raises(errors.Misuse) as caught:
                case.call(Asynchronous, wrong)
            wrong_arguments.check(case, wrong, caught.value)
    connection.flush()
    assert connections(broker) == 1


def test_a_wait_for_a_receipt_or_for_all_is_given_seconds(connection, broker):
    future = connection.send_async("t", b"v")
    for wait in (future.result, future.exception, connection.flush):
        for wrong in wrong_arguments.WAIT:
            with pytest.raises(errors.Misuse) as caught:
                wait(wrong)
            wrong_arguments.check(wrong_arguments.Case("timeout", wait, ()), wrong, caught.value)
    assert future.result(5).offset == 0
    assert connections(broker) == 1


def test_on_asyncio_the_awaitable_fails_and_others_work_goes_on(broker, server):
    asyncio.run(wrong_arguments.beside_a_transaction(asyncio_client, server.url))
    assert broker.values(1) == [b"before", b"after"]
    assert connections(broker) == 1


@pytest.mark.slow
def test_on_twisted_the_deferred_fails_and_others_work_goes_on(broker, server):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.client.wrong_arguments", server.url], cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert broker.values(1) == [b"before", b"after"]
    assert connections(broker) == 1


def test_a_twisted_connect_that_makes_no_sense_fails_and_does_not_raise():
    seen = []
    twisted_client.connect("tcp:127.0.0.1:1", reactor=object(), client=5).addErrback(seen.append)
    assert "client is 5, of type int; it must be a str; nothing was opened" in str(seen[0].value)


class TestEncoding:
    """An error while a request is encoded touches nothing, whoever let the wrong thing through."""

    WRONG = (
        (commands.DeleteGroup(9, b"g", b"i" * 16), errors.WrongType),
        (commands.DeleteGroup(9, object(), b"i" * 16), errors.WrongType),
        (commands.DeleteGroup(9, "\udcff", b"i" * 16), errors.WrongValue),
        (commands.FetchOffsets(9, "g", ["0"]), errors.WrongType),
        (commands.FetchOffsets(9, "g", [1 << 70]), errors.WrongValue),
    )

    @pytest.mark.parametrize(("request_", "kind"), WRONG)
    def test_a_request_that_the_broker_could_not_read_is_never_begun(self, rig, request_, kind):
        with pytest.raises(kind, match=r"was given what it does not take .*; nothing was sent$"):
            rig.core.request(request_, commands.Done)
        assert (rig.core.busy, rig.core.output_bytes) == (0, 0)
        rig.run(rig.core.ping())

    @pytest.mark.parametrize(("request_", "kind"), WRONG)
    def test_nor_while_there_is_no_connection(self, rig, request_, kind):
        rig.cut()
        with pytest.raises(kind):
            rig.core.request(request_, commands.Done)
        assert rig.core.busy == 0
        rig.connect()
        rig.run(rig.core.ping())

    def test_a_refused_message_leaves_the_batch_it_would_have_joined_as_it_was(self, broker):
        rig = Rig(broker, linger=1.0)
        rig.send(b"first")
        queue = rig.producer.known_route("t").queues[0]
        held = (queue.open.count, queue.open.size, rig.producer.buffered)
        for wrong in ("text", 5):
            with pytest.raises(errors.WrongType, match=r"^value is of type \w+; it must be bytes"):
                queue.append(wrong, 1, None, None)
        with pytest.raises(errors.WrongValue, match=r"^timestamp is "):
            queue.append(b"late", 1 << 63, None, None)
        assert (queue.open.count, queue.open.size, rig.producer.buffered) == held
        rig.send(b"second")
        rig.wait(2)
        assert broker.values(1) == [b"first", b"second"]


class TestBytes:
    def test_bytes_bytearray_and_memoryview_are_all_taken(self, connection, broker):
        wide = memoryview(b"abcdefgh").cast("i")  # two items of four bytes each
        for kind in (bytes, bytearray, memoryview):
            connection.send("t", kind(b"value"), key=kind(b"key"), headers={"h": kind(b"header")})
        connection.send("t", wide, key=wide, headers={"h": memoryview(b"abcd")[::2]})
        found = [(m.value, m.key, m.headers) for m in messages(broker)]
        assert found == [
            *[(b"value", b"key", (("h", b"header"),))] * 3,
            (b"abcdefgh", b"abcdefgh", (("h", b"ac"),)),
        ]

    def test_the_partition_of_a_key_does_not_depend_on_what_holds_it(self, rig):
        rig.run(rig.producer.route("t2"))
        route = rig.producer.known_route("t2")
        for key in (b"a", b"bc", b"defg", b"hijklmnop"):
            assert len({route.choose(kind(key), None) for kind in (bytes, bytearray, memoryview)}) == 1

    @pytest.mark.parametrize("count", [1, 2])
    def test_what_is_changed_after_the_call_goes_out_as_it_was(self, broker, count):
        """Seen: a message that was alone in its batch was encoded when it went out."""
        rig = Rig(broker, linger=1.0)
        value, key, header = bytearray(b"value"), bytearray(b"key"), bytearray(b"header")
        headers = {"h": header}
        route = rig.run(rig.producer.route("t"))
        for _ in range(count):
            route.choose(key, None).append(value, 1, key, headers)
        for each in (value, key, header):
            each[:] = b"changed"
        headers["other"] = b"x"
        rig.wait(2)
        found = [(m.value, m.key, m.headers) for m in messages(broker)]
        assert found == [(b"value", b"key", (("h", b"header"),))] * count

    def test_in_a_transaction_too(self, rig, broker):
        transaction, value = rig.transaction(), bytearray(b"value")
        rig.run(transaction.send("t", value, None, None, None))
        value[:] = b"changed"
        rig.run(transaction.commit())
        assert broker.values(1) == [b"value"]


class TestMoments:
    AWARE = (
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        NOON,
    )

    @pytest.mark.parametrize("moment", AWARE)
    def test_a_time_is_a_datetime_with_a_zone_or_microseconds(self, connection, broker, moment):
        connection.send("t", b"a", timestamp=moment)
        connection.send_async("t", b"b", timestamp=moment).result()
        with connection.transaction() as tx:
            tx.send("t", b"c", timestamp=moment)
            tx.send_many("t", [b"d", b"e"], timestamps=[moment, None])
        assert [message.timestamp for message in messages(broker)[:4]] == [NOON] * 4
        assert messages(broker)[4].timestamp > NOON - 10**13

    def test_microseconds_of_a_datetime_are_exact_and_years_before_1973_can_be_said_so(
        self, connection, broker
    ):
        connection.send("t", b"a", timestamp=datetime(2262, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
        connection.send("t", b"b", timestamp=datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
        assert [message.timestamp for message in messages(broker)] == [9_214_743_845_678_901, -1]

    @pytest.mark.parametrize(
        ("number", "meant"),
        [
            (1_767_268_800, r"these seem to be seconds, so multiply by 1,000,000"),
            (1_767_268_800_000, r"these seem to be milliseconds, so multiply by 1,000;"),
            (0, r"which is no time since 1973"),
        ],
    )
    def test_a_number_that_is_no_time_in_microseconds_is_refused_with_what_was_meant(
        self, connection, number, meant
    ):
        with pytest.raises(errors.WrongValue, match=rf"^timestamp is {number}.*{meant}"):
            connection.send("t", b"x", timestamp=number)
        with pytest.raises(errors.WrongValue, match=rf"^time is {number}.*{meant}"):
            connection.offsets_for_time("t", number)

    @pytest.mark.parametrize("number", [253_402_300_800_000_000, 1_767_268_800_000_000_000])
    def test_a_number_behind_the_last_year_is_refused_as_nanoseconds(self, rig, connection, number):
        nanoseconds = f"^timestamp is {number}: these seem to be nanoseconds, so divide by 1,000"
        with pytest.raises(errors.WrongValue, match=nanoseconds):
            connection.send("t", b"x", timestamp=number)
        with pytest.raises(errors.WrongValue, match=nanoseconds):
            rig.run(bulk.send_many(rig.transaction(), "t", [b"x"], timestamps=[number]))

    def test_the_last_microsecond_of_the_last_year_is_a_time(self, connection, broker):
        connection.send("t", b"a", timestamp=253_402_300_799_999_999)
        assert [message.timestamp for message in messages(broker)] == [253_402_300_799_999_999]

    def test_a_datetime_without_a_zone_is_refused_with_two_ways_to_say_which(self, connection):
        with pytest.raises(errors.WrongValue, match=r"without a time zone.*datetime\.now\(UTC\).*astimezone"):
            connection.send("t", b"x", timestamp=datetime(2026, 1, 1))  # noqa: DTZ001

    def test_what_comes_before_a_refused_row_has_been_added(self, rig, broker):
        transaction = rig.transaction()
        with pytest.raises(errors.WrongValue, match="messages before it in the columns have been added"):
            rig.run(bulk.send_many(transaction, "t", [b"a", b"b", b"c"], timestamps=[NOON, 5, NOON]))
        rig.run(transaction.commit())
        assert broker.values(1) == [b"a"]


def test_a_program_whose_name_is_no_utf8_still_has_a_connection(monkeypatch, server):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/n\udcffme"])
    with txbroker.connect(server.url, timeout=2.0) as connection:
        connection.ping()


def test_another_threads_wrong_type_ends_no_transaction(connection, broker):
    with connection.transaction() as tx:
        tx.send("t", b"1")
        with pytest.raises(
            errors.WrongType, match=r"^group is None, of type NoneType; it must be a str; nothing was"
        ):
            connection.group_offsets(None)
        tx.send("t", b"2")
    assert broker.values(1) == [b"1", b"2"]


def test_a_scripted_broker_would_notice(broker):
    """What the tests above rely on: bytes where text belongs are no request to it."""
    from txbroker.wire.codec import encode

    with pytest.raises(errors.PeerViolation):
        ScriptedBroker().connection()(encode(commands.DeleteGroup(1, b"g", b"i" * 16)))
