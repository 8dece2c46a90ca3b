"""Test that the resolver's thread lives as long as its connection, whatever is raised in it, and reports what it
was.
"""

import logging
import sqlite3
import threading

import pytest

import txbroker
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.databases import resolver_thread


def broker_is_away():
    raise errors.ConnectionUnavailable("nobody is there")


def no_database():
    raise AssertionError("without a broker no database is asked")


@pytest.fixture
def worker():
    found = resolver_thread.Background(broker_is_away)
    found.interval = 0.001
    yield found
    found.stop(5.0)
    assert not found.status.is_running


@pytest.fixture
def ended():
    """What has ended a thread."""
    found, before = [], threading.excepthook
    threading.excepthook = found.append
    yield found
    threading.excepthook = before


def test_tables_may_be_watched_while_the_thread_walks_over_them(worker, ended, monkeypatch, caplog):
    """Each look at when a table is due brings another table: the worst moment, each time."""

    class Charge(resolver_thread.Charge):
        @property
        def due(self):
            if threading.current_thread() is worker._thread and len(worker.status.tables) < 50:
                worker.watch(f"{len(worker.status.tables):016x}", no_database)
            return self._due

        @due.setter
        def due(self, moment):
            self._due = moment

    monkeypatch.setattr(resolver_thread, "Charge", Charge)
    worker.watch("0" * 16, no_database)
    eventually(lambda: len(worker.status.tables) == 50 or ended)
    assert ended == []
    assert worker.status.is_running
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_what_a_program_raises_when_a_connection_is_opened_is_told_and_tried_again(raised, ended):
    """``sys.exit()`` in it ends a thread without a word."""
    asked = []

    def leaving():
        asked.append(1)
        raise raised("enough")

    worker = resolver_thread.Background(leaving)
    worker.interval = 0.001
    worker.watch("0" * 16, no_database)
    worker.watch("1" * 16, no_database)
    told = "; ".join(f"{name * 16}: {raised.__name__}: enough" for name in "01")
    eventually(lambda: (len(asked) > 5 and worker.status.failure == told) or ended)
    assert worker.status.is_running
    worker.stop(5.0)
    assert ended == []


def test_a_round_that_fails_is_told_once_and_the_thread_goes_on(worker, ended, monkeypatch, caplog):
    monkeypatch.setattr(resolver_thread, "TIDY", 0.001)
    caplog.set_level(logging.ERROR, "txbroker.resolver")
    rounds = []

    def failing(now):
        rounds.append(now)
        raise SystemExit(3)

    monkeypatch.setattr(worker, "_round", failing)
    worker.watch("0" * 16, no_database)
    eventually(lambda: len(rounds) > 5 or ended)
    assert ended == []
    assert worker.status.is_running
    assert "SystemExit: 3" in worker.status.failure
    assert [record.message for record in caplog.records] == ["a round of the resolver failed; it goes on"]
    monkeypatch.undo()
    eventually(lambda: "SystemExit" not in worker.status.failure)


def test_the_end_of_the_thread_closes_all_that_it_has_whatever_is_raised(ended, caplog):
    """One of its database connections cannot be closed: the others are, and its own connection to the broker."""
    closed = []

    class Opened:
        def __init__(self, name):
            self.name = name

        def stop_looking(self, patience):
            assert patience <= 1.0
            raise SystemExit(self.name)

        def close_database(self):
            closed.append(self.name)
            raise SystemExit(self.name)

        def close(self, timeout):
            closed.append(self.name)

    worker = resolver_thread.Background(broker_is_away)
    worker._round = lambda now: None  # a round closes what fails in it; here it is the end alone that closes
    for name in "01":
        worker.watch(name * 16, None)
        worker._charges[name * 16].resolver = Opened(name)
    worker._broker = Opened("broker")
    worker.stop(5.0)
    assert sorted(closed) == ["0", "1", "broker"]
    assert ended == []
    assert "SystemExit" in worker.status.failure


def test_a_database_connection_that_is_opened_to_tidy_up_at_the_end_is_closed(tmp_path):
    opened = []

    def connect():
        opened.append(sqlite3.connect(tmp_path / "shop.db"))
        txbroker.create_decision_table(opened[0])
        return opened[0]

    worker = resolver_thread.Background(lambda: None, drive=lambda promise: None)
    charge = resolver_thread.Charge(connect)
    charge.keys.append("a row that may go")
    worker._charges = {"": charge}
    worker._finish()
    assert not charge.keys
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
