"""Test a coordinator with PostgreSQL and two brokers, all real, without kills: commits, refusals, misuse,
heuristics.
"""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import os
import threading

import psycopg
import pytest

import txbroker
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.coordinator import Coordinator
from txbroker.coordinator.broker_resource import BrokerResource, StagingBroker
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.postgresql import PostgresqlResource

pytestmark = pytest.mark.slow


@pytest.fixture
def coordinator(scene):
    with scene.coordinator() as found:
        yield found


@pytest.fixture
def connections(scene):
    found = scene.open()
    yield found
    for connection in found.values():
        connection.close()


def work(scene, connections, number):
    """A row and two messages."""
    connections["pg"].execute("INSERT INTO orders VALUES (%s)", (number,))
    for name in ("orders", "audit"):
        connections[name].send(scene.topic, b"%d" % number)


def test_a_row_and_messages_of_two_brokers_are_committed_together(scene, coordinator, connections):
    for number in (1, 2, 3):
        with coordinator.transaction(**connections) as tx:
            work(scene, connections, number)
            assert 3 not in scene.rows()
        assert tx.outcome is State.COMMITTED
    assert scene.everywhere() == [1, 2, 3]
    assert coordinator.in_doubt() == []


def test_an_exception_in_the_block_rolls_everybody_back(scene, coordinator, connections):
    with pytest.raises(ValueError, match="no"):
        with coordinator.transaction(**connections) as tx:
            work(scene, connections, 1)
            raise ValueError("no")
    assert tx.outcome is State.ROLLED_BACK
    assert scene.everywhere() == []
    with coordinator.transaction(**connections):
        work(scene, connections, 2)
    assert scene.everywhere() == [2]


def test_a_participant_that_refuses_to_prepare_rolls_everybody_back_and_its_error_is_raised(
    scene, coordinator, connections
):
    connections["pg"].execute(
        "ALTER TABLE orders ADD CONSTRAINT once UNIQUE (number) DEFERRABLE INITIALLY DEFERRED, "
        "DROP CONSTRAINT orders_pkey"
    )
    connections["pg"].execute("INSERT INTO orders VALUES (7)")
    connections["pg"].commit()
    # The brokers have prepared when PostgreSQL looks at its deferred constraint.
    order = {name: connections[name] for name in ("orders", "audit", "pg")}
    with pytest.raises(psycopg.errors.UniqueViolation):
        with coordinator.transaction(**order) as tx:
            work(scene, connections, 7)
    assert tx.outcome is State.ROLLED_BACK
    assert scene.rows() == [7]
    assert scene.messages("orders") == scene.messages("audit") == []
    with coordinator.transaction(**order):  # psycopg's connection is as good as before
        work(scene, connections, 8)
    assert scene.rows() == [7, 8]


def test_a_failed_statement_that_the_program_swallowed_is_not_taken_for_a_prepared_one(
    scene, coordinator, connections
):
    """PostgreSQL answers PREPARE TRANSACTION in a failed transaction with success, and rolls back."""
    with pytest.raises(errors.Misuse, match="a statement has failed in it"):
        with coordinator.transaction(**connections):
            work(scene, connections, 1)
            with contextlib.suppress(psycopg.Error):
                connections["pg"].execute("INSERT INTO orders VALUES (1)")
    assert scene.everywhere() == []
    with coordinator.transaction(**connections):
        work(scene, connections, 2)
    assert scene.everywhere() == [2]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_a_program_that_ends_postgresqls_part_itself_gets_no_messages(
    scene, coordinator, connections, statement
):
    with pytest.raises(errors.Misuse, match="the program committed or rolled it back itself"):
        with coordinator.transaction(**connections):
            work(scene, connections, 1)
            connections["pg"].execute(statement)
            connections["pg"].execute("INSERT INTO orders VALUES (2)")
    assert scene.rows() == ([1] if statement == "COMMIT" else [])
    assert scene.messages("orders") == scene.messages("audit") == []


@pytest.mark.parametrize("kind", [BrokerResource, StagingBroker])
@pytest.mark.parametrize("commit", [True, False])
def test_an_empty_branch_of_a_broker_may_be_prepared_and_ended_either_way(scene, connections, kind, commit):
    """XA's read-only vote: what is left out of the decision by who looks first need not be by another manager."""
    resource = kind(connections["orders"])
    for number in (1, 2):
        resource.begin(Branch(f"empty-{number}", "orders"))
        assert resource.look().is_empty
        resource.prepare()
        assert connections["orders"].tpc_recover() == []
        assert resource.finish(commit, "").state is (State.COMMITTED if commit else State.ROLLED_BACK)


def test_who_holds_nothing_does_not_prepare_and_a_single_one_commits_in_one_phase(
    scene, coordinator, connections, monkeypatch
):
    prepared = []
    for kind in (PostgresqlResource, BrokerResource):
        original = kind.prepare
        monkeypatch.setattr(
            kind,
            "prepare",
            lambda self, original=original: (prepared.append(self._branch.name), original(self)),
        )
    with coordinator.transaction(**connections):
        connections["pg"].execute("SELECT count(*) FROM orders")
        connections["orders"].send(scene.topic, b"1")
        connections["audit"].send(scene.topic, b"1")
    assert prepared == ["orders", "audit"]
    with coordinator.transaction(**connections):
        connections["pg"].execute("INSERT INTO orders VALUES (1)")
    with coordinator.transaction(**connections):
        connections["orders"].send(scene.topic, b"2")
    with coordinator.transaction(**connections):
        pass
    assert prepared == ["orders", "audit"]
    assert (scene.rows(), scene.messages("orders"), scene.messages("audit")) == ([1], [1, 2], [1])


def test_a_single_one_that_refuses_to_commit_says_why_and_can_be_used_again(scene, coordinator, connections):
    pg = connections["pg"]
    pg.execute("CREATE TABLE late (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    pg.commit()
    with pytest.raises(psycopg.errors.UniqueViolation):
        with coordinator.transaction(pg=pg) as tx:
            pg.execute("INSERT INTO late VALUES (1), (1)")
    assert tx.outcome is State.ROLLED_BACK
    with coordinator.transaction(pg=pg):
        pg.execute("INSERT INTO orders VALUES (1)")
    assert scene.rows() == [1]


def test_postgresql_that_cannot_prepare_is_refused_before_anything_is_done(tmp_path, postgresql):
    with (
        Coordinator(tmp_path / "d", {"pg": postgresql.connect}) as coordinator,
        postgresql.connect() as connection,
    ):
        with pytest.raises(errors.Misuse, match="max_prepared_transactions = 0"):
            with coordinator.transaction(pg=connection):
                pytest.fail("the block was entered")
        connection.execute("SELECT 1")


@pytest.mark.parametrize("state", ["autocommit", "in a transaction"])
def test_a_connection_that_is_not_idle_is_refused(scene, coordinator, connections, state):
    if state == "autocommit":
        connections["pg"].autocommit = True
    else:
        connections["pg"].execute("SELECT 1")
    with pytest.raises(errors.Misuse, match="commit or roll back first; nothing was done"):
        coordinator.transaction(**connections).enter()
    connections["orders"].send(scene.topic, b"1")  # its part was undone


def test_what_is_no_participant_is_refused(scene, coordinator, connections, sqlite):
    import sqlite3

    with pytest.raises(errors.Misuse, match="is no participant of this coordinator"):
        coordinator.transaction(other=connections["pg"])
    with (
        contextlib.closing(sqlite3.connect(sqlite)) as database,
        pytest.raises(errors.Misuse, match=r"has no .*tpc_begin"),
    ):
        coordinator.transaction(pg=database)
    with pytest.raises(errors.InvalidName, match="part of the xids"):
        Coordinator(scene.directory.parent / "other", {"a b": connections["pg"]})


def test_a_connection_to_other_data_than_the_registered_is_refused(scene, coordinator, connections):
    coordinator.resolve()
    connections["audit"], connections["orders"] = connections["orders"], connections["audit"]
    with pytest.raises(errors.Misuse, match="leads to other data"):
        coordinator.transaction(**connections).enter()
    connections["pg"].execute("INSERT INTO orders VALUES (1)")  # it is in no transaction of ours
    connections["pg"].rollback()


def test_a_directory_has_one_coordinator(scene, coordinator):
    with pytest.raises(errors.DirectoryLocked):
        scene.coordinator()


def test_a_child_process_is_told_to_open_its_own(scene, coordinator, connections):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            coordinator.transaction(**connections).enter()
        except errors.ProcessForked as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader, "rb") as told:
        assert b"opened before fork()" in told.read()
    with coordinator.transaction(**connections):
        work(scene, connections, 1)
    assert scene.everywhere() == [1]


def test_threads_have_transactions_of_their_own(scene, coordinator):
    def several(begin):
        connections = scene.open()
        for number in range(begin, begin + 10):
            with coordinator.transaction(**connections):
                work(scene, connections, number)
        for connection in connections.values():
            connection.close()

    threads = [threading.Thread(target=several, args=(begin,)) for begin in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scene.rows() == list(range(40))
    assert sorted(scene.messages("orders")) == sorted(scene.messages("audit")) == list(range(40))


def test_the_background_leaves_alone_what_is_still_preparing(scene, coordinator, connections):
    tx = coordinator.transaction(**connections)
    tx.enter()
    work(scene, connections, 1)
    tx.prepare()
    assert len(scene.prepared()) == 3
    assert coordinator.resolve() == ([], [], {})
    assert len(scene.prepared()) == 3
    tx.commit()
    assert scene.everywhere() == [1]


def test_another_coordinators_transactions_are_left_alone(scene, coordinator, connections):
    tx = coordinator.transaction(**connections)
    tx.enter()
    work(scene, connections, 1)
    tx.prepare()
    with Coordinator(scene.directory.parent / "other", scene.participants, start=False) as other:
        assert other.resolve() == ([], [], {})
    assert len(scene.prepared()) == 3
    tx.rollback()
    assert scene.everywhere() == []


def prepared_transaction(scene, coordinator, connections, number=1):
    tx = coordinator.transaction(**connections)
    tx.enter()
    work(scene, connections, number)
    tx.prepare()
    return tx


def end_by_hand(scene, name, how):
    """What an operator does at night."""
    if name == "pg":
        (gid,) = scene.database.prepared()
        with scene.database.connect(autocommit=True) as connection:
            connection.execute(f"{how.upper()} PREPARED '{gid}'")
        return
    with scene.participants[name]() as connection:
        (xid,) = connection.tpc_recover()
        end = connection.rollback_transaction if how == "rollback" else connection.commit_transaction
        end(xid, by="ann", why="it was in the way")


@pytest.mark.parametrize("name", ["pg", "orders"])
def test_a_branch_that_an_operator_rolled_back_is_reported_and_kept_until_it_is_forgotten(
    scene, coordinator, connections, name
):
    tx = prepared_transaction(scene, coordinator, connections)
    end_by_hand(scene, name, "rollback")
    with pytest.raises(errors.HeuristicMixed, match=f"'{name}' was rolled back") as raised:
        tx.commit()
    assert raised.value.participants == [name]
    assert tx.outcome is State.COMMITTED
    assert scene.messages("audit") == [1]
    coordinator.close()
    with scene.coordinator(start=False) as again:
        (found,) = again.heuristics()
        assert (found.gid, found.participant, found.decided, found.ended) == (
            tx.gid,
            name,
            "committed",
            "rolled back",
        )
        assert (found.by == "ann") == (name == "orders")
        assert again.in_doubt() == []
        again.forget(tx.gid, name)
        assert again.heuristics() == []
        with pytest.raises(errors.UnknownTransaction):
            again.forget(tx.gid, name)
    with scene.coordinator(start=False) as again:
        assert again.heuristics() == []


@pytest.mark.parametrize("name", ["pg", "orders"])
def test_a_branch_that_an_operator_committed_as_it_was_decided_later_is_no_contradiction(
    scene, coordinator, connections, name
):
    tx = prepared_transaction(scene, coordinator, connections)
    end_by_hand(scene, name, "commit")
    tx.commit()
    assert coordinator.heuristics() == []
    assert scene.everywhere() == [1]


@pytest.mark.parametrize("name", ["pg", "orders"])
def test_a_branch_that_an_operator_committed_of_a_transaction_rolled_back_is_reported(
    scene, coordinator, connections, name
):
    tx = prepared_transaction(scene, coordinator, connections)
    end_by_hand(scene, name, "commit")
    tx.rollback()
    (found,) = coordinator.heuristics()
    assert (found.participant, found.decided, found.ended) == (name, "rolled back", "committed")
    assert scene.messages("audit") == []


def test_a_decision_is_not_looked_for_in_other_data(scene, connections):
    """A function that leads to another database now must not be believed when it knows of no such transaction."""
    with scene.coordinator(start=False) as coordinator:
        tx = prepared_transaction(scene, coordinator, connections)
        tx.decide()
        coordinator.left(tx.gid)
    other = scene.database.server.create_database()
    try:
        with Coordinator(
            scene.directory, {**scene.participants, "pg": other.connect}, start=False
        ) as coordinator:
            done = coordinator.resolve()
            assert "leads to other data" in done.failed["pg"]
            (left,) = coordinator.in_doubt()
            assert list(left.waiting) == ["pg"]
            assert "leads to other data" in left.waiting["pg"]
    finally:
        other.drop()
    with scene.coordinator() as coordinator:
        eventually(lambda: not coordinator.in_doubt())
    assert scene.everywhere() == [1]


def test_a_name_that_is_no_longer_registered_is_said_and_holds_up_nobody(scene, connections):
    with scene.coordinator(start=False) as coordinator:
        tx = prepared_transaction(scene, coordinator, connections)
        tx.decide()
        coordinator.left(tx.gid)
    fewer = {name: connect for name, connect in scene.participants.items() if name != "audit"}
    with Coordinator(scene.directory, fewer, start=False) as coordinator:
        coordinator.resolve()
        (left,) = coordinator.in_doubt()
        assert left.waiting == {"audit": "no participant of that name is registered"}
    with scene.coordinator(start=False) as coordinator:
        coordinator.resolve()
        assert coordinator.in_doubt() == []
    assert scene.everywhere() == [1]


def test_one_connection_of_a_broker_serves_transactions_without_a_coordinator_afterwards(
    scene, coordinator, connections
):
    with coordinator.transaction(**connections):
        work(scene, connections, 1)
    with connections["orders"].transaction() as tx:
        tx.send(scene.topic, b"2")
    assert scene.messages("orders") == [1, 2]
    assert isinstance(connections["orders"], txbroker.Connection)
