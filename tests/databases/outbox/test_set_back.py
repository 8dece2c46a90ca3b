"""Test databases that are copies, or were set back to one, and memory that is used twice: nothing arrives twice."""

import contextlib
import os
import shutil
import sqlite3

import pytest

import txbroker
from tests.databases.outbox.scene import all_of, is_empty, rows_of, send
from txbroker import errors
from txbroker.databases.outbox.streams import Streams

pytestmark = pytest.mark.slow


@pytest.fixture
def opens(sqlite, lite):
    return lambda: sqlite3.connect(sqlite, timeout=5.0)


def left_in_the_table(sqlite, shared_broker, topic, monkeypatch, *values):
    """Have blocks whose connection is closed before any is delivered."""
    with monkeypatch.context() as patch, txbroker.connect(shared_broker.address, timeout=30.0) as broker:
        patch.setattr(Streams, "flush", lambda *_: None)
        patch.setattr("txbroker.databases.outbox.keeper.Keeper.attend", lambda _: True)
        with contextlib.closing(sqlite3.connect(sqlite)) as database:
            for value in values:
                send(database, broker, topic, value)


class TestSetBack:
    def test_rows_of_a_file_that_was_set_back_before_a_release_are_not_delivered_again(
        self, sqlite, opens, shared_broker, broker, topic, monkeypatch, tmp_path
    ):
        left_in_the_table(sqlite, shared_broker, topic, monkeypatch, 1, 2, 3)
        copy = tmp_path / "copy"
        shutil.copy(sqlite, copy)
        with monkeypatch.context() as patch, txbroker.Resolver(opens, broker) as resolver:
            resolver.resolve()
            patch.setattr("txbroker.databases.outbox.lookout.KEPT", 0.0)
            assert resolver.resolve().outbox.released == 1
        with (  # a program of its own: a file is replaced when nobody has it open
            txbroker.connect(shared_broker.address, timeout=30.0) as program,
            contextlib.closing(opens()) as database,
        ):
            send(database, program, topic, 4, wait="commit")
        assert all_of(broker, topic) == [1, 2, 3, 4]
        os.replace(copy, sqlite)
        with contextlib.closing(opens()) as database:
            with pytest.raises(errors.DecisionTableRefused):
                send(database, broker, topic, 5)
            txbroker.create_decision_table(database, adopt="replacement")
        with txbroker.Resolver(opens, broker) as resolver, pytest.raises(errors.OutboxSetBack):
            resolver.resolve()
        assert all_of(broker, topic) == [1, 2, 3, 4]
        assert len(rows_of(opens)) == 3

    def test_rows_of_a_file_that_was_set_back_while_their_stream_is_known_are_deleted(
        self, sqlite, opens, shared_broker, broker, topic, monkeypatch, tmp_path
    ):
        left_in_the_table(sqlite, shared_broker, topic, monkeypatch, 1, 2, 3)
        copy = tmp_path / "copy"
        shutil.copy(sqlite, copy)
        with txbroker.Resolver(opens, broker) as resolver:
            resolver.resolve()
        os.replace(copy, sqlite)
        with contextlib.closing(opens()) as database:
            txbroker.create_decision_table(database, adopt="replacement")
        with txbroker.Resolver(opens, broker) as resolver:
            resolver.resolve()
        assert all_of(broker, topic) == [1, 2, 3]
        is_empty(opens)

    def test_rows_of_a_copy_that_lives_beside_its_original_are_not_delivered(
        self, sqlite, opens, shared_broker, broker, topic, monkeypatch, tmp_path
    ):
        left_in_the_table(sqlite, shared_broker, topic, monkeypatch, 1, 2)
        copy = tmp_path / "copy"
        shutil.copy(sqlite, copy)
        with txbroker.Resolver(opens, broker) as resolver:
            resolver.resolve()
        with contextlib.closing(sqlite3.connect(copy)) as database:
            txbroker.create_decision_table(database, adopt="separate")
        with txbroker.Resolver(lambda: sqlite3.connect(copy), broker) as resolver:
            resolver.resolve()
        assert len(rows_of(lambda: sqlite3.connect(copy), "txbroker_outbox_refused")) == 2
        with contextlib.closing(sqlite3.connect(copy)) as database:
            send(database, broker, topic, 3, wait="commit")
        assert all_of(broker, topic) == [1, 2, 3]


class TestCopiesOfMemory:
    """A virtual machine's snapshot that is run twice: both copies have the same stream and the same numbers."""

    def twin(self, broker, other, database, second):
        """Give the stream of one connection to that of another program, as a copy of the memory has it."""
        table = next(iter(broker.resolver._charges))
        mine = broker.resolver.streams(table)
        found = mine.of(txbroker.atomic(database, broker).database)
        with txbroker.atomic(second, other, mode="outbox"):
            pass
        theirs = other.resolver.streams(table)
        with theirs.lock:
            copied = theirs._new()
            del theirs.all[copied.name]
            copied.name, copied.text, copied.number = found.name, found.text, found.number
            copied.epoch, copied.last, copied.life = found.epoch, found.last, found.life
            theirs.all[copied.name] = copied
            theirs._holders[id(second)] = theirs._holders[id(second)]._replace(stream=copied)
        return copied

    def test_a_number_whose_row_is_there_gives_the_stream_up_and_the_next_block_has_another(
        self, opens, lite, shared_broker, broker, topic, monkeypatch
    ):
        monkeypatch.setattr("txbroker.databases.outbox.keeper.Keeper.tidy", lambda _: 0)
        with (
            txbroker.connect(shared_broker.address, timeout=30.0) as other,
            contextlib.closing(opens()) as second,
        ):
            send(lite, broker, topic, 1, wait="commit")
            self.twin(broker, other, lite, second)
            send(lite, broker, topic, 2, wait="commit")
            with pytest.raises(sqlite3.IntegrityError) as caught:
                send(second, other, topic, 3)
            assert any("rolled back at both sides" in note for note in caught.value.__notes__)
            send(second, other, topic, 4, wait="commit")
            send(lite, broker, topic, 5, wait="commit")
            assert all_of(broker, topic) == [1, 2, 4, 5]

    def test_a_stream_that_others_went_on_with_is_not_given_to_the_next_connection(
        self, opens, lite, shared_broker, broker, topic
    ):
        with (
            txbroker.connect(shared_broker.address, timeout=30.0) as other,
            contextlib.closing(opens()) as second,
        ):
            send(lite, broker, topic, 1, wait="commit")
            copied = self.twin(broker, other, lite, second)
            for number in (2, 3):
                send(lite, broker, topic, number, wait="commit")
            is_empty(opens)
            theirs = other.resolver.streams(next(iter(other.resolver._charges)))
            theirs.claimed(copied, b"x" * 16, 3, 1)  # what its keeper is told at its next claim
            tx = send(second, other, topic, 4, wait="commit")
            assert copied.text not in str(tx.xid)
            assert all_of(broker, topic) == [1, 2, 3, 4]

    def test_a_child_process_sends_nothing_with_its_parents_stream(self, opens, lite, broker, topic):
        send(lite, broker, topic, 1, wait="commit")
        child = os.fork()
        if not child:
            code = 1
            try:
                with contextlib.suppress(errors.ProcessForked):
                    send(lite, broker, topic, 2)
                    code = 2
                code = 0 if code == 1 else code
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for number in (3, 4):
            send(lite, broker, topic, number, wait="commit")
        assert all_of(broker, topic) == [1, 3, 4]
