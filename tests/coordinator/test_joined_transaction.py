"""``txbroker.join`` with the real package ``transaction``, real brokers and PostgreSQL."""

# ruff: noqa: PT012 - a whole transaction is what raises

import os
import subprocess
import sys
import threading

import psycopg
import pytest
import transaction
from transaction.interfaces import IDataManagerSavepoint, ISavepointDataManager
from transaction.tests import savepointsample
from zope.interface.verify import verifyObject

import txbroker
from tests.coordinator import joined_program
from tests.support.dying_program import run_until_killed
from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.coordinator import Coordinator
from txbroker.coordinator.broker_resource import StagingBroker
from txbroker.coordinator.joined_transaction import JoinedTransaction

pytestmark = pytest.mark.slow


@pytest.fixture
def manager():
    return transaction.TransactionManager()


@pytest.fixture
def coordinator(scene):
    with scene.coordinator() as found:
        yield found


@pytest.fixture
def broker(scene):
    with scene.participants["orders"]() as connection:
        yield connection


@pytest.fixture
def database(scene):
    with scene.database.connect() as connection:
        yield connection


@pytest.fixture
def messages(manager, broker, coordinator):
    return txbroker.join(manager, broker, coordinator=coordinator, participant="orders")


class Manager:
    """A data manager that notes what is asked of it, and may fail."""

    def __init__(self, key, fails="", notes=None):
        self.key = key
        self.fails = fails
        self.notes = [] if notes is None else notes

    def _note(self, step):
        self.notes.append((self.key, step))
        if step == self.fails:
            raise ValueError(f"{self.key} fails at {step}")

    def sortKey(self):
        return self.key

    def abort(self, _):
        self._note("abort")

    def tpc_begin(self, _):
        self._note("begin")

    def commit(self, _):
        self._note("commit")

    def tpc_vote(self, _):
        self._note("vote")

    def tpc_finish(self, _):
        self._note("finish")

    def tpc_abort(self, _):
        self._note("tpc_abort")


def test_it_is_what_the_package_asks_of_a_data_manager(manager, messages, scene):
    messages.send(scene.topic, b"1")
    (joined,) = manager.get()._resources
    assert verifyObject(ISavepointDataManager, joined)
    assert verifyObject(IDataManagerSavepoint, joined.savepoint())
    manager.abort()


def test_messages_are_there_after_the_commit_and_not_before(scene, manager, messages):
    with manager:
        messages.send(scene.topic, b"1", key=b"k")
        messages.send(scene.topic, b"2")
        assert scene.messages("orders") == []
    assert scene.messages("orders") == [1, 2]
    with manager:
        messages.send(scene.topic, b"3")
    assert scene.messages("orders") == [1, 2, 3]


def test_an_abort_drops_them(scene, manager, messages):
    with pytest.raises(ValueError, match="no"), manager:
        messages.send(scene.topic, b"1")
        raise ValueError("no")
    with manager:
        messages.send(scene.topic, b"2")
    assert scene.messages("orders") == [2]


def test_what_was_sent_after_a_savepoint_goes_with_it(scene, manager, messages):
    with manager:
        before = manager.savepoint()
        messages.send(scene.topic, b"1")
        before.rollback()  # it had not joined then
        messages.send(scene.topic, b"2")
        savepoint = manager.savepoint()
        messages.send(scene.topic, b"3")
        inner = manager.savepoint()
        messages.send(scene.topic, b"4")
        inner.rollback()
        messages.send(scene.topic, b"5")
        savepoint.rollback()
        messages.send(scene.topic, b"6")
        savepoint.rollback()
        messages.send(scene.topic, b"7")
    assert scene.messages("orders") == [2, 7]


def test_rows_go_with_a_savepoint_too(scene, manager, messages, coordinator, database):
    with manager:
        messages.send(scene.topic, b"1")
        before = manager.savepoint()
        coordinator.join(manager, pg=database)
        database.execute("INSERT INTO orders VALUES (9)")
        before.rollback()  # the connection joined after it: it begins anew
        database.execute("INSERT INTO orders VALUES (1)")
        savepoint = manager.savepoint()
        database.execute("INSERT INTO orders VALUES (2)")
        messages.send(scene.topic, b"2")
        with pytest.raises(psycopg.errors.UniqueViolation):
            database.execute("INSERT INTO orders VALUES (1)")
        savepoint.rollback()
    assert scene.rows() == scene.messages("orders") == [1]


def test_rows_and_messages_of_two_brokers_are_one(scene, manager, messages, coordinator, database):
    with scene.participants["audit"]() as other:
        audit = txbroker.join(manager, other, coordinator=coordinator, participant="audit")
        for number in (1, 2):
            with manager:
                coordinator.join(manager, pg=database)
                database.execute("INSERT INTO orders VALUES (%s)", (number,))
                messages.send(scene.topic, b"%d" % number)
                audit.send(scene.topic, b"%d" % number)
                assert len(manager.get()._resources) == 1
    assert scene.everywhere() == [1, 2]


@pytest.mark.parametrize("step", ["begin", "commit", "vote"])
@pytest.mark.parametrize("key", ["a", "~z"])
def test_another_manager_that_refuses_takes_messages_and_rows_with_it(
    scene, manager, messages, coordinator, database, step, key
):
    with pytest.raises(ValueError, match="fails at"), manager:
        manager.get().join(Manager(key, step))
        coordinator.join(manager, pg=database)
        database.execute("INSERT INTO orders VALUES (1)")
        messages.send(scene.topic, b"1")
    assert scene.prepared() == []
    assert scene.rows() == scene.messages("orders") == []
    with manager:
        coordinator.join(manager, pg=database)
        database.execute("INSERT INTO orders VALUES (2)")
    assert scene.rows() == [2]


def test_one_whose_finish_fails_before_ours_takes_ours_with_it(scene, manager, messages):
    with pytest.raises(ValueError, match="fails at finish"), manager:
        manager.get().join(Manager("a", "finish"))
        messages.send(scene.topic, b"1")
    assert scene.messages("orders") == []


def test_a_topic_that_is_not_there_aborts_the_others(scene, manager, messages, coordinator, database):
    with pytest.raises(errors.UnknownTopic), manager:
        coordinator.join(manager, pg=database)
        database.execute("INSERT INTO orders VALUES (1)")
        messages.send("no-such-topic", b"1")
    assert scene.rows() == []


def test_it_votes_after_storages_and_before_those_that_commit_in_their_vote(
    scene, manager, messages, monkeypatch
):
    notes = []
    vote = JoinedTransaction.tpc_vote
    monkeypatch.setattr(
        JoinedTransaction, "tpc_vote", lambda self, txn: (notes.append(("ours", "vote")), vote(self, txn))
    )
    with manager:
        manager.get().join(Manager("~sqlalchemy:1", notes=notes))
        manager.get().join(Manager("/var/Data.fs:1", notes=notes))
        messages.send(scene.topic, b"1")
    assert [key for key, step in notes if step == "vote"] == ["/var/Data.fs:1", "ours", "~sqlalchemy:1"]


def test_a_manager_that_supports_no_savepoints_is_none_of_ours(scene, manager, messages):
    sample = savepointsample.SampleSavepointDataManager(manager)
    with manager:
        sample["name"] = "ann"
        messages.send(scene.topic, b"1")
        savepoint = manager.savepoint()
        sample["name"] = "bob"
        messages.send(scene.topic, b"2")
        savepoint.rollback()
        assert sample["name"] == "ann"
    assert scene.messages("orders") == [1]


def test_too_many_bytes_are_refused_and_the_transaction_goes_on(scene, manager, broker, coordinator):
    messages = txbroker.join(manager, broker, coordinator=coordinator, participant="orders", max_bytes=10)
    with manager:
        messages.send(scene.topic, b"1", key=b"12345678", headers={})
        with pytest.raises(errors.BufferFull, match="the transaction is as it was"):
            messages.send(scene.topic, b"22")
        messages.send(scene.topic, b"2")
    assert scene.messages("orders") == [1, 2]


def test_attempts_are_repeated_for_what_passes_and_not_for_what_is_wrong(
    scene, manager, messages, coordinator, monkeypatch
):
    tries = []
    prepare = StagingBroker.prepare

    def failing(self):
        tries.append(1)
        if len(tries) < 3:
            raise errors.StorageUnavailable("not now; nothing has changed")
        prepare(self)

    monkeypatch.setattr(StagingBroker, "prepare", failing)
    manager.run(lambda: messages.send(scene.topic, b"1"), tries=3)
    assert scene.messages("orders") == [1]
    for attempt in manager.attempts(3):
        with attempt:
            messages.send(scene.topic, b"2")
    assert scene.messages("orders") == [1, 2]
    count = []

    def wrong():
        count.append(1)
        messages.send("no-such-topic", b"1")

    with pytest.raises(errors.UnknownTopic):
        manager.run(wrong, tries=3)
    assert len(count) == 1


def test_threads_with_the_thread_local_manager_share_a_connection(scene, broker, coordinator):
    messages = txbroker.join(transaction.manager, broker, coordinator=coordinator, participant="orders")

    def several(begin):
        for number in range(begin, begin + 20):
            with transaction.manager:
                messages.send(scene.topic, b"%d" % number)

    threads = [threading.Thread(target=several, args=(begin,)) for begin in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(scene.messages("orders")) == list(range(60))


def test_without_a_coordinator_messages_go_with_the_transaction_too(scene, manager, broker):
    messages = txbroker.join(manager, broker)
    with manager:
        messages.send(scene.topic, b"1")
    with pytest.raises(ValueError, match="fails at vote"), manager:
        manager.get().join(Manager("~z", "vote"))
        messages.send(scene.topic, b"2")
    assert scene.messages("orders") == [1]


@pytest.mark.parametrize("with_log", [True, False], ids=["coordinator", "without"])
@pytest.mark.parametrize("ends", ["finish", "vote"])
def test_a_broker_that_dies_after_the_vote_is_told_when_it_is_back(
    tmp_path, mortal_orders, manager, with_log, ends
):
    participants = {"orders": lambda: txbroker.connect(mortal_orders.address, timeout=1.0)}
    with (
        participants["orders"]() as broker,
        Coordinator(tmp_path / "d", participants, interval=0.2) as coordinator,
    ):
        broker.create_topic("t")
        options = {"coordinator": coordinator, "participant": "orders"} if with_log else {}
        messages = txbroker.join(manager, broker, **options)
        killer = Manager("~z", "vote" if ends == "vote" else "")
        killer.tpc_vote = lambda _, vote=killer.tpc_vote: (mortal_orders.kill(), vote(_))
        messages.send("t", b"1")
        manager.get().join(killer)
        if ends == "vote":
            with pytest.raises(ValueError, match="fails at vote"):
                manager.commit()
            manager.abort()
        else:
            manager.commit()  # it is decided: a finish does not fail
        mortal_orders.start()
        with txbroker.connect(mortal_orders.address) as other:
            eventually(lambda: other.tpc_recover() == [])
            assert [message.value for message in other.read("t", 0, 0)] == ([] if ends == "vote" else [b"1"])


def test_a_decision_that_cannot_be_written_is_no_roll_back(
    scene, manager, messages, coordinator, monkeypatch
):
    def failing(*_):
        raise OSError(5, "the disk is gone")

    with pytest.raises(errors.OutcomeUnknown, match="open the directory again"), manager:
        messages.send(scene.topic, b"1")
        monkeypatch.setattr(coordinator._log._log, "append", failing)
    assert len(scene.prepared()) == 1
    with pytest.raises(errors.StorageUnavailable, match="decides nothing more"):
        messages.send(scene.topic, b"2")
    manager.abort()
    coordinator.close()
    with scene.coordinator(start=False) as again:
        assert len(again.resolve().rolled_back) == 1


def test_without_the_package_it_says_which_extra_to_install():
    code = "import sys; sys.modules['transaction'] = None; import txbroker; txbroker.join"
    failed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'txbroker[zope]'" in failed.stderr.splitlines()[-1]


@pytest.mark.parametrize("moment", joined_program.MOMENTS)
def test_a_program_that_is_killed_between_vote_and_finish_is_made_good(scene, moment):
    arguments = [scene.directory, scene.database.url, scene.orders.address, scene.audit.address, scene.topic]
    run_until_killed("tests.coordinator.joined_program", *arguments, 1, moment)
    with scene.coordinator(start=False) as coordinator:
        assert coordinator.resolve().failed == {}
        assert coordinator.in_doubt() == []
    assert scene.everywhere() == ([1] if moment in joined_program.DECIDED else [])


def test_what_is_sent_is_looked_at_and_copied_where_it_is_sent(manager, messages, scene):
    """It goes out at the vote: refused only there, it would end a transaction that has done all its work."""
    value = bytearray(b"1")
    with manager:
        for wrong in (
            {"topic": b"orders"},
            {"value": "text"},
            {"key": 5},
            {"headers": [("a", "b")]},
            {"partition": "0"},
        ):
            with pytest.raises(errors.WrongType):
                messages.send(**({"topic": scene.topic, "value": b"x"} | wrong))
        messages.send(scene.topic, value)
        value[:] = b"2"
    assert scene.messages("orders") == [1]
