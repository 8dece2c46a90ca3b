"""Test that the Twisted and the asyncio client have the same calls as the blocking one, over the same core."""

import asyncio
import inspect
import subprocess
import sys
from datetime import timedelta

import pytest

from journal.settings import TopicSettings
from tests.client.scripted_broker import ScriptedServer
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors
from txbroker.client import asyncio as asyncio_client
from txbroker.client import blocking
from txbroker.client import twisted as twisted_client
from txbroker.client.core.url import parse
from txbroker.wire.messages import Refused, Send


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


def names(kind):
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("api", [asyncio_client, twisted_client])
def test_an_api_has_every_name_of_the_blocking_client(api):
    only_blocking = {"commit", "rollback", "run"}  # PEP 249's refusals, and the blocking client's own way
    assert names(blocking.Connection) - only_blocking <= names(api.Connection)
    assert names(blocking.Transaction) <= names(api.Transaction)
    assert names(blocking.Consumer) - {"closed"} <= names(api.Consumer)


@pytest.mark.parametrize("api", [asyncio_client, twisted_client])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Connection", "send"),
        ("Connection", "send_async"),
        ("Connection", "transaction"),
        ("Connection", "tpc_begin"),
        ("Connection", "close"),
        ("Transaction", "send"),
        ("Transaction", "send_many"),
        ("Transaction", "send_frames"),
        ("Transaction", "receive"),
        ("Transaction", "cancel"),
        ("Transaction", "prepare"),
        ("Consumer", "poll"),
        ("Consumer", "close"),
    ],
)
def test_a_call_that_the_blocking_client_makes_in_its_own_way_takes_the_same_on_every_api(api, kind, name):
    taken = [
        [(each.name, each.default) for each in inspect.signature(call).parameters.values()]
        for call in (getattr(getattr(client, kind), name) for client in (blocking, api))
    ]
    assert taken[0] == taken[1]


@pytest.mark.parametrize("api", [blocking, asyncio_client, twisted_client])
def test_a_call_that_all_clients_share_shows_its_parameters_and_what_it_does(api):
    shared = api.Connection.show_transaction
    assert list(inspect.signature(shared).parameters) == ["self", "which", "max_bytes"]
    assert shared.__doc__.startswith("Return a transaction, by its number")
    assert api.Transaction.commit.__doc__.startswith("Commit, in one phase")


WEEK = 604_800_000_000


def test_settings_of_a_topic_are_in_seconds_and_bytes(server):
    """``retention_age=7 * 86_400`` was 0.6 s."""
    with blocking.connect(server.url, timeout=5.0) as connection:
        assert connection.create_topic("a", retention_age=7 * 86_400).settings.retention_age == WEEK
        assert connection.create_topic("b", retention_age=timedelta(days=7)).settings.retention_age == WEEK
        made = connection.create_topic("c", segment_bytes=1 << 20, retention_age=None, force_interval=0.5)
        assert made.settings == TopicSettings(segment_bytes=1 << 20, force_interval=500_000)
        with pytest.raises(errors.InvalidSetting, match=r"no setting 'retention'; known are .*retention_age"):
            connection.create_topic("d", retention=7)
        with pytest.raises(errors.InvalidSetting, match="retention_age: '7d' is not a duration: in Python"):
            connection.create_topic("d", retention_age="7d")


async def through_everything(api, url):
    async with await api.connect(url, timeout=5.0) as connection:
        made = await connection.create_topic("week", retention_age=7 * 86_400)
        assert made.settings.retention_age == WEEK
        with pytest.raises(errors.InvalidSetting, match="no setting 'retention'; known are"):
            await connection.create_topic("typo", retention=7)
        receipts = await asyncio.gather(*[connection.send("t", b"%d" % number) for number in range(500)])
        assert [receipt.offset for receipt in receipts] == list(range(500))
        async with connection.transaction() as tx:
            await tx.send("t", b"tx")
        connection.tpc_begin(connection.xid(1, "g", "b"))
        await connection.send("t", b"2pc")
        await connection.tpc_prepare()
        await connection.tpc_commit()
        seen = []
        consumer = connection.consume("t", "g", follow=False)
        async for message in consumer:
            seen.append(message.value)
        await consumer.commit()
        consumer = connection.consume("t", start="latest")
        assert await consumer.poll(0.05) == []
        with pytest.raises(errors.UnknownTopic, match="Create it first"):
            await connection.send("nope", b"x")
    return seen


def test_asyncio_goes_through_everything(broker, server):
    seen = asyncio.run(through_everything(asyncio_client, server.url))
    assert seen == [*(b"%d" % number for number in range(500)), b"tx", b"2pc"]
    assert broker.offsets == {1: 502}


def test_asyncio_survives_cut_connections(broker, server):
    async def work():
        async with await asyncio_client.connect(server.url) as connection:
            sends = []
            for number in range(600):
                sends.append(connection.send("t", b"%d" % number))
                if number % 100 == 50:
                    await asyncio.sleep(0)
                    server.cut()
            await asyncio.gather(*sends)

    asyncio.run(work())
    assert broker.values(1) == [b"%d" % number for number in range(600)]


def test_closing_does_not_raise_again_what_an_awaited_send_has_raised(broker, server):
    broker.before = lambda request, data: (
        Refused(request.correlation, "MessageTooLarge", "no") if type(request) is Send else None
    )

    async def send_and_close():
        connection = await asyncio_client.connect(server.url, timeout=5.0)
        with pytest.raises(errors.MessageTooLarge):
            await connection.send("t", b"x")
        await connection.close()

    asyncio.run(send_and_close())


def leave_unanswered(broker):
    """The broker says nothing of sends with the word in it."""
    broker.before = lambda request, data: (
        broker.SWALLOW if type(request) is Send and b"unanswered" in bytes(data) else None
    )


def test_closing_a_connection_of_a_loop_raises_how_what_was_unanswered_has_ended(broker, server):
    leave_unanswered(broker)

    async def send_and_close():
        connection = await asyncio_client.connect(server.url, timeout=5.0)
        await connection.send("t", b"so that the way is known")
        sent = connection.send("t", b"unanswered")
        with pytest.raises(errors.OutcomeUnknown):
            await connection.close(0.1)
        assert isinstance(sent.exception(), errors.OutcomeUnknown)
        await connection.close()

    async def send_and_fail():
        async with await asyncio_client.connect(server.url, timeout=0.2) as connection:
            await connection.send("t", b"so that the way is known")
            connection.send("t", b"unanswered").add_done_callback(lambda sent: sent.exception())
            raise LookupError

    asyncio.run(send_and_close())
    with pytest.raises(LookupError) as raised:
        asyncio.run(send_and_fail())
    assert "and a send failed" in raised.value.__notes__[0]


def test_asyncio_says_in_time_that_there_is_no_broker(server):
    server.close()
    place = parse(server.url).place
    with pytest.raises(errors.ConnectionUnavailable, match=f"to {place}: "):
        asyncio.run(asyncio_client.connect(server.url, timeout=0.3))


TWISTED = """
import sys
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.task import react
from txbroker import errors
from txbroker.client import twisted as client

async def main(reactor):
    connection = await client.connect(sys.argv[1], reactor=reactor, timeout=5.0)
    made = await connection.create_topic("week", retention_age=7 * 86_400)
    assert made.settings.retention_age == 604_800_000_000
    try:
        await connection.create_topic("typo", retention=7)
    except errors.InvalidSetting as error:
        assert "no setting 'retention'; known are" in str(error)
        print("refused")
    receipts = await gatherResults([connection.send("t", b"%d" % n) for n in range(500)])
    assert [receipt.offset for receipt in receipts] == list(range(500))
    async with connection.transaction() as tx:
        await tx.send("t", b"tx")
    connection.tpc_begin(connection.xid(1, "g", "b"))
    await connection.send("t", b"2pc")
    await connection.tpc_prepare()
    await connection.tpc_commit()
    seen = []
    consumer = connection.consume("t", "g", follow=False)
    async for message in consumer:
        seen.append(message.value)
    await consumer.commit()
    try:
        await connection.send("nope", b"x")
    except errors.UnknownTopic:
        print("refused")
    await connection.close()
    connection = await client.connect(sys.argv[1], reactor=reactor)
    await connection.send("t", b"so that the way is known")
    connection.send("t", b"unanswered").addErrback(lambda failure: print(failure.value.__class__.__name__))
    try:
        await connection.close(0.1)
    except errors.OutcomeUnknown:
        print("closed")
    assert len(seen) == 502, seen[:3]
    print("done")

react(lambda reactor: ensureDeferred(main(reactor)))
"""


@pytest.mark.slow
def test_twisted_goes_through_everything(broker, server, tmp_path):
    leave_unanswered(broker)
    script = tmp_path / "through.py"
    script.write_text(TWISTED)
    ran = subprocess.run(
        [sys.executable, str(script), server.url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    assert ran.stdout.split() == ["refused", "refused", "RequestTimedOut", "closed", "done"], ran.stderr
    assert broker.offsets == {1: 502}


def test_importing_the_package_loads_neither_twisted_nor_a_client():
    code = "import sys, txbroker; print([n for n in sys.modules if n.startswith(('twisted', 'txbroker.client'))])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_blocking_client_does_not_load_twisted():
    code = "import sys, txbroker.client.blocking; print([n for n in sys.modules if n.startswith('twisted')])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
