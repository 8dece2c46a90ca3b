"""Test attempts to mislead resolvers, sweeps and forked processes: each was a fault, or might become one."""

import contextlib
import os
import sqlite3

import pytest

import txbroker
from txbroker import State, errors
from txbroker.databases.adapters.adapter import run
from txbroker.databases.resolver import Told

pytestmark = pytest.mark.slow


@pytest.fixture
def database(lite):
    return lite


@pytest.fixture
def resolver(sqlite, broker):
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as found:
        yield found


@pytest.fixture
def prepared(database, broker, topic):
    """Blocks that have prepared, and whose process then died: before COMMIT, or after it."""

    def prepare(committed):
        tx = txbroker.atomic(database, broker, mode="two-phase").__enter__()
        broker.resolver.stop(5.0)
        tx.send(topic, b"1")
        assert run(tx.deciding.prepare())
        database.commit() if committed else database.rollback()
        tx.deciding._unregister()
        return tx.xid

    return prepare


def rows(database):
    return database.execute("SELECT xid, decision FROM txbroker_decision").fetchall()


def key(xid):
    return xid.global_id.decode()


# -- somebody else ends it ---------------------------------------------------------------------------


def test_a_decided_one_that_somebody_rolled_back_is_told_by_a_sweep(database, broker, resolver, prepared):
    """``for xid in broker.tpc_recover(): broker.tpc_rollback(xid)``, as programs do that know of no blocks."""
    xid = prepared(committed=True)
    broker.tpc_rollback(xid)
    assert resolver.sweep_rows([(key(xid), "committed")]) == (0, [key(xid)])
    assert rows(database) == [(key(xid), "contradicted")]


def test_a_decided_one_that_somebody_rolled_back_is_told_by_a_resolver(
    database, broker, resolver, prepared, caplog
):
    xid = prepared(committed=True)
    assert resolver.decide(xid) == "committed"
    broker.tpc_rollback(xid)
    assert resolver.tell(xid, "committed") is Told.CONTRADICTED
    assert rows(database) == [(key(xid), "contradicted")]
    assert "Rows are there whose messages are not" in caplog.text


def test_a_late_mark_beside_a_commit_is_no_contradiction(database, broker, resolver, prepared):
    """A resolver that had listed it long ago inserts a mark for what is committed: it proves nothing."""
    xid = prepared(committed=True)
    assert resolver.resolve().committed == [xid]
    assert rows(database) == []
    assert resolver.decide(xid) == "rolled back"
    assert resolver.tell(xid, "rolled back") is Told.ENDED
    assert resolver.sweep_rows([(key(xid), "rolled back")]) == (1, [])
    assert broker.outcome(xid).state is State.COMMITTED


# -- one does not keep the others --------------------------------------------------------------------


class CannotCommitOne(txbroker.Resolver):
    """For one of them, the broker finds its staged messages damaged."""

    damaged = None

    def tell(self, xid, verdict):
        if xid == self.damaged:
            raise errors.CorruptData("the staged messages of this one are damaged", "staged")
        return super().tell(xid, verdict)


def test_one_that_cannot_be_ended_does_not_keep_the_others_in_doubt(
    sqlite, database, broker, topic, prepared
):
    first, second, third = (prepared(committed=True) for _ in range(3))
    with CannotCommitOne(lambda: sqlite3.connect(sqlite), broker) as resolver:
        resolver.damaged = first
        with pytest.raises(errors.CorruptData):
            resolver.resolve()
        assert broker.outcome(second).state is broker.outcome(third).state is State.COMMITTED
        assert rows(database) == [(key(first), "committed")]
        resolver.damaged = None
        assert resolver.resolve().committed == [first]


# -- fork ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [True, False])
def test_a_child_that_leaves_its_parents_block_does_not_touch_it(postgresql, broker, topic, fails):
    """``os.fork()`` inside of a block, and ``sys.exit()`` in the child."""
    with contextlib.closing(postgresql.connect()) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            child = os.fork()
            if child == 0:
                os._exit(leave_as_a_child(tx, fails))
            assert os.waitpid(child, 0)[1] == 0
        assert database.execute("SELECT number FROM orders").fetchall() == [(1,)]
    assert [message.value for message in broker.read(topic, 0, 0)] == [b"1"]


def leave_as_a_child(tx, fails):
    """0 if that was told as it should be."""
    try:
        tx.__exit__(SystemExit, SystemExit(), None) if fails else tx.__exit__(None, None, None)
    except errors.ProcessForked:
        return 1 if fails else 0
    except Exception:  # noqa: BLE001 - told by the status
        return 2
    return 0 if fails else 3


def test_a_forced_commit_beside_a_mark_is_told(sqlite, database, broker, topic):
    """A resolver had decided "rolled back" and died; a person then forced the commit."""
    tx = txbroker.atomic(database, broker, mode="two-phase").__enter__()
    broker.resolver.stop(5.0)
    tx.send(topic, b"1")
    assert run(tx.deciding.prepare())
    database.rollback()
    tx.deciding._unregister()
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
        assert resolver.decide(tx.xid) == "rolled back"
        broker.commit_transaction(tx.xid, by="ann", why="too impatient")
        key = tx.xid.global_id.decode()
        assert resolver.sweep_rows([(key, "rolled back")]) == (0, [key])
        assert database.execute("SELECT decision FROM txbroker_decision").fetchall() == [("contradicted",)]
