"""Test blocks that do not reach their end, or leave it early: nothing is left behind, and both sides agree."""

# ruff: noqa: PT012 - a whole block is what raises

import pytest

import txbroker
from tests.databases.orders import between_prepare_and_commit, execute, numbers
from tests.databases.topic_content import values
from txbroker import State

pytestmark = pytest.mark.slow


def test_a_block_that_cannot_begin_leaves_the_connection_as_it_was(sqlite, lite, broker, monkeypatch):
    def no_more_threads(background, name, connector):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("txbroker.databases.resolver_thread.Background.watch", no_more_threads)
        with pytest.raises(RuntimeError), txbroker.atomic(lite, broker, mode="two-phase"):
            raise AssertionError("the block was entered")
    assert not lite.in_transaction  # else it would keep all others from writing
    with txbroker.atomic(lite, broker, mode="two-phase"):
        pass


def test_an_interrupted_roll_back_leaves_the_connection_usable(sqlite, lite, broker, topic):
    with pytest.raises(KeyboardInterrupt), txbroker.atomic(lite, broker, mode="two-phase") as tx:
        lite.execute("INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")

        async def interrupted():
            raise KeyboardInterrupt

        tx.database.rollback = interrupted
        _ = 1 / 0
    assert tx.outcome is State.PREPARED  # what becomes of the rows is for whoever has the connection
    lite.rollback()
    with txbroker.atomic(lite, broker, wait="commit", mode="two-phase") as tx:
        tx.send(topic, b"2")
    assert values(broker, topic) == [b"2"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_while_preparing_takes_both_back(open_database, database, broker, topic, kind):
    def interrupt():
        raise kind

    with pytest.raises(kind), txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, interrupt)
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_while_committing_is_no_answer(open_database, database, broker, topic, kind):
    with pytest.raises(kind) as caught, txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        commit = tx.database.commit

        async def interrupted():
            await commit()
            raise kind

        tx.database.commit = interrupted
    assert tx.outcome is State.PREPARED
    assert f"is not known ({kind.__name__})" in caught.value.__notes__[-1]
    assert str(tx.xid) in caught.value.__notes__[-1]
    assert broker.wait_outcome(tx.xid, 15.0) is State.COMMITTED
    assert (numbers(open_database), values(broker, topic)) == ([1], [b"1"])


def test_leaving_a_block_early_commits_both(open_database, database, broker, topic):
    def returns():
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            return tx

    assert returns().outcome is State.COMMITTED
    for number in (2, 3):
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            execute(database, f"INSERT INTO orders VALUES ({number})")
            tx.send(topic, b"%d" % number)
            break
    assert (numbers(open_database), values(broker, topic)) == ([1, 2], [b"1", b"2"])


def test_a_generator_that_is_closed_in_its_block_takes_both_back(open_database, database, broker, topic):
    def works():
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            yield tx

    generator = works()
    tx = next(generator)
    generator.close()
    assert tx.outcome is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])
