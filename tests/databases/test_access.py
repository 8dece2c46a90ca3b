"""Test that a missing right never makes a resolver conclude something, and what blocks need.

Seen to fail: with a list of transactions that leaves out what may not be described, and with a refusal taken for "no
such transaction": both times the decision of a prepared transaction was deleted, and its message rolled back later.
"""

import contextlib
import sqlite3

import pytest

import txbroker
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.transaction_states import State
from journal.xid import Xid
from tests.databases.orders import execute, make_tables, numbers
from tests.databases.outbox.scene import rows_of
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.login.verifier import verifier_of
from txbroker.databases.tables import xids
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow


def rule(who, rights, resource, pattern="", prefix=False):
    return Rule(who, Effect.ALLOW, resource, pattern, prefix, rights)


class Scene:
    """A broker at which everybody has to log in, and a database: its program may write to one topic, and prepare."""

    def __init__(self, process, data, path):
        self.process, self.data, self.path = process, data, path
        with contextlib.closing(self.open()) as database:
            make_tables(database)
            self.table = txbroker.create_decision_table(database)
        self.prepares = rule("shop", [Right.PREPARE], Resource.TRANSACTION, f"{self.table}-", True)
        self.writes = rule("shop", [Right.WRITE], Resource.TOPIC, "orders")
        with self.admin() as admin:
            admin.create_topic("orders")
            for name in ("boss", "shop", "resolver"):
                admin.add_user(User(name, verifier_of(name, 4096)))
            admin.allow(rule("boss", [Right.ADMINISTER], Resource.BROKER))
            admin.allow(self.prepares)
            admin.allow(self.writes)
            admin.switch_access(Switch.ENABLE)

    def open(self):
        return sqlite3.connect(self.path, timeout=20)

    def admin(self):
        return txbroker.connect(f"unix:{self.data}/admin.sock", timeout=20)

    def connect(self, user):
        return txbroker.connect(self.process.address, user=user, password=user, timeout=20)

    def messages(self):
        with self.admin() as admin:
            return [int(message.value) for message in admin.read("orders", 0, 0)]

    def decided(self):
        with contextlib.closing(self.open()) as database:
            return execute(database, "SELECT decision FROM txbroker_decision")


@pytest.fixture
def scene(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield Scene(process, tmp_path / "data", tmp_path / "database.sqlite")


def test_blocks_need_no_more_than_to_write_and_to_prepare(scene):
    with scene.connect("shop") as broker, contextlib.closing(scene.open()) as database:
        for number, mode in enumerate(("two-phase", "outbox")):
            with txbroker.atomic(database, broker, mode=mode, wait="commit") as tx:
                execute(database, f"INSERT INTO orders VALUES ({number})")
                tx.send("orders", b"%d" % number)
        assert broker.resolver is not None
        assert broker.resolver.status.failure == ""
    assert numbers(scene.open) == scene.messages() == [0, 1]


class TestResolvers:
    def test_one_that_may_not_see_what_is_prepared_deletes_no_decision(self, scene):
        key = f"{scene.table}-{'0' * 26}-app"
        with scene.connect("shop") as broker:
            broker.tpc_begin(Xid(xids.FORMAT_ID, key.encode(), broker.identity.encode()))
            broker.send("orders", b"1")
            broker.tpc_prepare()
            branch = broker.identity
        with contextlib.closing(scene.open()) as database:
            execute(
                database,
                f"INSERT INTO txbroker_decision (xid, broker, decision) VALUES ('{key}', '{branch}', 'committed')",
            )
            database.commit()
        with (
            scene.connect("resolver") as broker,
            txbroker.Resolver(scene.open, broker) as resolver,
            pytest.raises(errors.AccessDenied, match=f"describe transaction {scene.table}-"),
        ):
            resolver.resolve()
        assert scene.decided() == [("committed",)]
        with scene.admin() as admin:
            admin.allow(rule("resolver", [Right.DECIDE], Resource.TRANSACTION, f"{scene.table}-", True))
        with scene.connect("resolver") as broker, txbroker.Resolver(scene.open, broker) as resolver:
            assert [xid.global_id for xid in resolver.resolve().committed] == [key.encode()]
        assert scene.decided() == []
        assert scene.messages() == [1]


class TestOutbox:
    def test_a_row_for_a_topic_that_may_not_be_written_any_more_is_refused_and_others_go_on(self, scene):
        with scene.admin() as admin:
            admin.create_topic("bills")
            admin.allow(rule("shop", [Right.WRITE], Resource.TOPIC, "bills"))
        with scene.connect("shop") as broker, contextlib.closing(scene.open()) as database:
            for topic in ("orders", "bills"):
                with txbroker.atomic(database, broker, mode="outbox", wait="commit") as tx:
                    tx.send(topic, b"0")
            with scene.admin() as admin:
                admin.forget_rule(rule("shop", [Right.WRITE], Resource.TOPIC, "bills"))
            with txbroker.atomic(database, broker, mode="outbox") as tx:
                tx.send("bills", b"1")
            eventually(lambda: rows_of(scene.open, "txbroker_outbox_refused"))
            with txbroker.atomic(database, broker, mode="outbox", wait="commit") as tx:
                tx.send("orders", b"2")
        assert scene.messages() == [0, 2]

    def test_rows_wait_while_the_right_on_their_stream_is_missing(self, scene):
        with scene.connect("shop") as broker, contextlib.closing(scene.open()) as database:
            with txbroker.atomic(database, broker, mode="outbox", wait="commit") as tx:
                tx.send("orders", b"0")
            with scene.admin() as admin:
                admin.forget_rule(scene.prepares)
                with txbroker.atomic(database, broker, mode="outbox") as tx:
                    tx.send("orders", b"1")
                eventually(lambda: broker.resolver.status.failure or broker.resolver.status.undelivered)
                assert rows_of(scene.open, "txbroker_outbox_refused") == []
                admin.allow(scene.prepares)
            eventually(lambda: not rows_of(scene.open))
        assert scene.messages() == [0, 1]


def test_one_may_ask_for_the_end_of_ones_own_transactions_alone(scene):
    with scene.connect("shop") as broker:
        xid = broker.xid(1, f"{scene.table}-x".encode(), b"")
        broker.tpc_begin(xid)
        broker.send("orders", b"9")
        broker.tpc_prepare()
    with scene.connect("resolver") as other:
        for asked in (
            lambda: other.outcome(xid),
            lambda: other.tpc_rollback(xid),
            lambda: other.show_transaction(xid),
        ):
            with pytest.raises(errors.AccessDenied):
                asked()
        assert other.tpc_recover() == []
        with pytest.raises(errors.AccessDenied):
            other.outcome(broker.xid(1, b"absent", b""))
    with scene.connect("shop") as broker:
        assert broker.outcome(xid).state is State.PREPARED
        broker.tpc_rollback(xid)
