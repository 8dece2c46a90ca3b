"""Test how a block ends after an interrupt: on a real SQLite file, with a recording stand-in for the broker's side."""

import sqlite3
import sys

import pytest

import txbroker
from journal.transaction_states import State
from tests.databases.test_open_blocks import Side
from txbroker import errors
from txbroker.databases import open_blocks
from txbroker.databases.adapters.adapter import adapt, run
from txbroker.databases.block_progress import Step
from txbroker.databases.open_blocks import Place
from txbroker.databases.protocol import Deciding


class Broker(Side):
    """A broker's side that has something, and is prepared at once."""

    identity = "b" * 32
    is_empty = False

    def open(self, xid):
        self.xid = xid

    async def prepare(self):
        self.told.append("prepared")

    async def put_in_outbox(self, database):
        return None

    async def wait_for_earlier(self, database, table):
        pass

    async def shown(self, told):
        pass


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "rows.db")
    txbroker.create_decision_table(connection)
    connection.execute("CREATE TABLE numbers (number INTEGER)")
    connection.commit()
    yield connection
    connection.close()


@pytest.fixture
def deciding(database):
    made = Deciding(adapt(database), Broker(database))
    run(made.enter(Place.of(sys._getframe())))
    database.execute("INSERT INTO numbers VALUES (1)")
    return made


def is_closed(database):
    try:
        database.in_transaction  # noqa: B018 - raises if it is closed
        database.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def rows(database):
    return [number for (number,) in database.execute("SELECT number FROM numbers")]


@pytest.mark.parametrize("is_prepared", [False, True])
def test_before_commit_both_are_rolled_back_and_that_is_said_once(database, deciding, is_prepared):
    if is_prepared:
        run(deciding.prepare())
    interrupt = KeyboardInterrupt()
    for _ in range(2):
        run(deciding.heal(interrupt))
        run(deciding.rolled_back())
    assert deciding.side.told == ["prepared"] * is_prepared + [(False, "")]
    assert deciding.outcome is State.ROLLED_BACK
    assert not database.in_transaction
    assert rows(database) == []
    assert "rolled back at both sides" in interrupt.__notes__[0]


@pytest.mark.parametrize("way", ["the block's end was interrupted", "COMMIT was"])
def test_during_commit_the_database_decides_and_its_connection_is_closed(database, deciding, way):
    run(deciding.prepare())
    deciding.check_open()
    interrupt = KeyboardInterrupt()
    if way == "COMMIT was":
        with pytest.raises(KeyboardInterrupt):
            run(deciding.failed(interrupt))
        assert str(deciding.xid) in interrupt.__notes__[0]
    else:
        run(deciding.heal(interrupt))
    assert deciding.side.told == ["prepared", "left to the resolver"]
    assert deciding.outcome is State.PREPARED
    assert is_closed(database)


def test_after_commit_the_broker_is_told(database, deciding):
    run(deciding.prepare())
    deciding.check_open()
    database.commit()
    deciding.progress.decide(State.COMMITTED)
    run(deciding.heal(KeyboardInterrupt()))
    assert deciding.side.told == ["prepared", (True, deciding.progress.key)]
    assert (deciding.outcome, deciding.progress.step) == (State.COMMITTED, Step.ENDED)
    assert rows(database) == [1]


def test_a_block_that_has_ended_keeps_neither_its_frame_nor_the_connection(database, deciding):
    run(deciding.heal(KeyboardInterrupt()))
    assert deciding.place.frame is None
    run(Deciding(adapt(database), Broker(database)).enter())


def test_a_block_that_could_not_begin_is_in_nobodys_way(database):
    database.isolation_level = None
    refused = Deciding(adapt(database), Broker(database))
    with pytest.raises(errors.Misuse, match="autocommit"):
        run(refused.enter())
    assert all(entry.block() is not refused for entry in open_blocks._in_block.values())


def test_the_program_is_prepared_for_an_interrupt_before_the_broker_may_be(database, deciding):
    async def interrupted():
        raise KeyboardInterrupt

    deciding.side.prepare = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(deciding.prepare())
    assert deciding.progress.step is Step.PREPARED
    assert deciding.progress.key


def test_what_the_program_has_begun_since_a_block_was_lost_is_joined_and_not_rolled_back(database):
    lost = Deciding(adapt(database), Broker(database))
    run(lost.enter())
    told = lost.side.told
    database.rollback()
    database.execute("INSERT INTO numbers VALUES (2)")
    del lost
    following = Deciding(adapt(database), Broker(database))
    run(following.enter())
    assert told == [(False, "")]
    run(following.prepare())
    following.check_open()
    database.commit()
    run(following.committed())
    assert rows(database) == [2]
