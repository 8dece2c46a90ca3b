"""Test several who look after one stream: its program, resolvers, and a program that was stopped meanwhile."""

import contextlib
import secrets
import signal
import sqlite3
import threading
import time

import psycopg
import pymysql
import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.databases.outbox.left_rows import leave, packed
from tests.databases.outbox.scene import all_of, send
from tests.databases.outbox.workers import Worker, check
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.operations.streams import claim_stream, list_streams
from txbroker.databases.outbox import lookout
from txbroker.databases.outbox.claims import claim
from txbroker.databases.outbox.table import OutboxTable
from txbroker.databases.tables import xids
from txbroker.databases.urls import connector

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request):
    found = request.getfixturevalue(request.param)
    if request.param == "sqlite":
        sqlite3.connect(found).close()
        found.touch()
    text = f"sqlite:///{found}" if request.param == "sqlite" else found.url
    with contextlib.closing(connector(text)()) as database:
        make_tables(database)
    return text


def resolve_while(url, address, ended, failures):
    """Take all streams over, again and again."""
    try:
        with (
            txbroker.connect(address, timeout=30.0) as broker,
            txbroker.Resolver(connector(url), broker) as resolver,
        ):
            while not ended.is_set():
                try:
                    resolver.resolve()
                except (errors.RequestRefused, errors.StorageUnavailable, *BUSY) as error:
                    failures.append(error)
    except BaseException as error:  # noqa: BLE001 - told by the test
        failures.append(error)


BUSY = (sqlite3.OperationalError, pymysql.err.OperationalError, psycopg.errors.LockNotAvailable)
"""What a pass raises that meets others' locks."""


def test_resolvers_that_take_streams_over_all_the_time_double_and_lose_nothing(
    url, shared_broker, broker, topic
):
    ended, failures = threading.Event(), []
    resolvers = [
        threading.Thread(target=resolve_while, args=(url, shared_broker.address, ended, failures))
        for _ in range(2)
    ]
    with Worker(url, shared_broker.address, topic, threads=2) as worker:
        worker.goes_on()
        for resolver in resolvers:
            resolver.start()
        worker.goes_on(150)
        ended.set()
        for resolver in resolvers:
            resolver.join()
        worker.goes_on(20)
        worker.end()
    check(url, broker, topic, worker)
    assert [error for error in failures if not isinstance(error, (errors.TxBrokerError, *BUSY))] == []


@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.deep)])
def test_a_program_that_was_stopped_while_others_took_over_goes_on_by_itself(
    url, shared_broker, broker, topic, times
):
    opens = connector(url)
    if url.startswith("sqlite"):
        opens = lambda: sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.1)  # noqa: E731
    with (
        Worker(url, shared_broker.address, topic, threads=2) as worker,
        txbroker.Resolver(opens, broker, lock_timeout=0.1) as resolver,
    ):
        for _ in range(times):
            worker.goes_on(10)
            worker.signal(signal.SIGSTOP)
            for _ in range(2):
                with contextlib.suppress(*BUSY, errors.RequestRefused):
                    resolver.resolve()  # SQLite's lock may be the stopped one's
            worker.signal(signal.SIGCONT)
        worker.goes_on(10)
        worker.end()
    check(url, broker, topic, worker)
    assert worker.raised == []


def test_a_program_whose_stream_was_taken_over_delivers_what_follows_at_once(
    url, shared_broker, broker, topic
):
    with (
        contextlib.closing(connector(url)()) as database,
        txbroker.Resolver(connector(url), broker) as resolver,
    ):
        send(database, broker, topic, 1, wait="commit")
        for number in range(2, 12):
            with txbroker.connect(shared_broker.address, timeout=30.0) as other:
                keeper_of(resolver, other, database)
            send(database, broker, topic, number)
        eventually(lambda: all_of(broker, topic) == list(range(1, 12)), 10.0)


def keeper_of(resolver, other, database):
    """Claim each stream of the table, as a sweep does that finds rows."""
    identity = resolver.look()
    for info in other.run(list_streams(other.core, identity.name)):
        other.run(claim_stream(other.core, info.stream, identity.name, identity.generation))


def test_on_another_connection_to_the_database_a_stream_is_claimed_again_before_its_rows_are_read(
    sqlite, lite, shared_broker, topic, monkeypatch
):
    """Rule e: a connection does not survive that its database is set back."""
    monkeypatch.setattr("txbroker.databases.resolver_thread.CLOSE_IDLE", 0.05)
    with txbroker.connect(shared_broker.address, timeout=30.0, max_buffered=2000) as broker:
        send(lite, broker, topic, 1, wait="commit")
        charge = next(iter(broker.resolver._charges.values()))
        (stream,) = charge.streams.all.values()
        before = stream.epoch, stream.life
        eventually(lambda: charge.resolver.connection._database is None)
        with txbroker.atomic(lite, broker, mode="outbox", wait="commit") as tx:
            tx.send(topic, b"2".zfill(3000))  # more than is kept in memory, so it is read
        assert stream.epoch != before[0]
        assert stream.life > before[1]
        assert all_of(broker, topic) == [1, 2]


@pytest.mark.parametrize("fails", [False, True])
def test_looks_at_the_outboxes_of_others_take_a_small_share_of_the_time_however_long_each_takes(
    lite, broker, topic, monkeypatch, fails
):
    """While an old snapshot keeps millions of deleted rows, listing those that are left takes seconds."""
    monkeypatch.setattr(lookout, "LOOK", 0.01)
    looks, streams = [], OutboxTable.streams

    def slow(table, identity):
        looks.append(time.monotonic())
        time.sleep(0.1)
        if fails:
            raise sqlite3.OperationalError("a time-out")
        return streams(table, identity)

    monkeypatch.setattr(OutboxTable, "streams", slow)
    send(lite, broker, topic, 1, wait="commit")
    broker.resolver.interval = 0.01
    if fails:
        eventually(lambda: "a time-out" in broker.resolver.status.failure)
    eventually(lambda: len(looks) >= 2)
    assert looks[1] - looks[0] >= 0.1 / lookout.LOOKING


def test_what_the_keeper_delivers_is_sent_at_once_also_while_a_block_drives_the_connection(
    lite, broker, topic, monkeypatch
):
    """A block that waits for its messages sleeps at the socket, while the keeper, whose claim came late, reads them."""
    claims = []

    def late(*arguments):
        time.sleep(0.2)
        claims.append(arguments)
        return claim(*arguments)

    monkeypatch.setattr("txbroker.databases.outbox.claims.claim", late)
    with txbroker.atomic(lite, broker, mode="outbox", wait="commit", timeout=5.0) as tx:
        tx.send(topic, b"1")
    assert all_of(broker, topic) == [1]
    assert len(claims) == 1


@pytest.fixture
def listing(monkeypatch):
    """Listings of outboxes that take until this event is set."""
    ends, streams = threading.Event(), OutboxTable.streams

    def slow(table, identity):
        assert ends.wait(60.0)
        return streams(table, identity)

    monkeypatch.setattr(OutboxTable, "streams", slow)
    monkeypatch.setattr(lookout, "LOOK", 0.01)
    monkeypatch.setattr(
        lookout, "LOOKING", 0.5
    )  # the next look comes 20 times as long after one as that took
    yield ends
    ends.set()


def test_while_a_listing_takes_long_blocks_are_delivered_and_afterwards_what_others_have_left(
    url, broker, topic, listing
):
    with contextlib.closing(connector(url)()) as database:
        send(database, broker, topic, 1, wait="commit")
    leave(connector(url), broker, secrets.token_hex(16), 1, packed(topic, b"2"))
    broker.resolver.interval = 0.05
    for number in range(3, 6):  # each a stream that has to be claimed: two connections at once
        with contextlib.closing(connector(url)()) as first, contextlib.closing(connector(url)()) as second:
            with txbroker.atomic(first, broker, mode="outbox", wait="commit", timeout=10.0) as tx:
                tx.send(topic, b"%d" % number)
            send(second, broker, topic, number + 10, wait="commit")
    assert all_of(broker, topic) == [1, 3, 13, 4, 14, 5, 15]
    assert any(thread.name == "txbroker-listing" for thread in threading.enumerate())
    listing.set()
    eventually(lambda: 2 in all_of(broker, topic))


def test_when_nothing_can_be_listed_blocks_are_delivered_over_the_same_connection_and_it_is_told_once(
    lite, broker, topic, monkeypatch, caplog
):
    """As where a role may have one connection only."""
    monkeypatch.setattr(lookout, "LOOK", 0.01)
    looks = []

    def fails(table, identity):
        looks.append(identity)
        raise sqlite3.OperationalError("too many connections")

    monkeypatch.setattr(OutboxTable, "streams", fails)
    send(lite, broker, topic, 1, wait="commit")
    charge = next(iter(broker.resolver._charges.values()))
    life = charge.resolver.connection.life
    broker.resolver.interval = 0.01
    eventually(lambda: len(looks) >= 3)
    assert "cannot be listed: OperationalError: too many connections" in broker.resolver.status.failure
    send(lite, broker, topic, 2, wait="commit")
    assert all_of(broker, topic) == [1, 2]
    assert charge.resolver.connection.life == life
    assert len([each for each in caplog.records if "cannot be listed" in each.getMessage()]) == 1


def test_a_listing_that_does_not_end_is_told_of(lite, broker, topic, monkeypatch, listing):
    monkeypatch.setattr("txbroker.databases.charge.LONG", 0.05)
    send(lite, broker, topic, 1, wait="commit")
    broker.resolver.interval = 0.02
    eventually(lambda: "has not been listed" in broker.resolver.status.failure)
    listing.set()
    eventually(lambda: not broker.resolver.status.failure)


def test_a_resolver_that_watches_ends_transactions_while_a_listing_takes_long(url, broker, topic, listing):
    with txbroker.Resolver(connector(url), broker) as resolver:
        xid = xids.make(resolver.look().name, "shop", broker.identity)
        transaction = broker.transaction(xid)
        transaction.send(topic, b"1")
        transaction.prepare()
        assert resolver.resolve(patient=True).rolled_back == [xid]
        leave(connector(url), broker, secrets.token_hex(16), 1, packed(topic, b"2"))
        assert not resolver.resolve(patient=True).outbox.is_busy
        listing.set()
        eventually(lambda: resolver.resolve(patient=True).outbox.delivered == 1)


def test_a_listing_on_a_connection_to_another_table_is_refused(sqlite, lite, tmp_path, broker, topic):
    """As with a search_path that leads elsewhere: what is listed there would be looked for here."""
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as database:
        make_tables(database)
    files = iter([sqlite, other])
    with (
        txbroker.Resolver(lambda: sqlite3.connect(next(files)), broker) as resolver,
        pytest.raises(errors.DecisionTableRefused, match="leads to the decision table"),
    ):
        resolver.resolve(patient=True)
