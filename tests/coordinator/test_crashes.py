"""Kill the coordinator's process, PostgreSQL or a broker at every step: in the end all have committed, or none."""

# ruff: noqa: SIM117 - a whole block is what raises

import contextlib

import psycopg
import pytest

import txbroker
from tests.coordinator import program
from tests.coordinator.conftest import PATIENT, Scene
from tests.support.broker_process import BrokerProcess
from tests.support.dying_program import run_until_killed
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.coordinator import Coordinator
from txbroker.coordinator.broker_resource import BrokerResource, StagingBroker
from txbroker.coordinator.decision_log import DecisionLog
from txbroker.coordinator.postgresql import PostgresqlResource

pytestmark = pytest.mark.slow


def run_program(scene, number, moment):
    arguments = [scene.directory, scene.database.url, scene.orders.address, scene.audit.address, scene.topic]
    run_until_killed("tests.coordinator.program", *arguments, number, moment, killed=moment != "never")


@pytest.mark.sampled(test=6)
@pytest.mark.parametrize("moment", program.MOMENTS)
def test_a_coordinator_that_is_killed_at_any_step_is_made_good_by_the_next(scene, moment):
    run_program(scene, 1, moment)
    with scene.coordinator() as coordinator:
        eventually(lambda: scene.prepared() == [] and coordinator.in_doubt() == [])
        expected = [1] if moment in program.DECIDED else []
        assert scene.everywhere() == expected
        assert coordinator.heuristics() == []
    run_program(scene, 2, "never")
    assert scene.everywhere() == [*expected, 2]
    with scene.coordinator(start=False) as coordinator:
        assert coordinator.resolve() == ([], [], {})


@pytest.mark.parametrize("moment", ["prepared orders", "decided", "told pg"])
def test_a_recovery_that_is_killed_too_is_made_good_by_the_one_after_it(scene, moment):
    run_program(scene, 1, moment)
    # The next one dies while it ends what the first has left, and before its own transaction is decided.
    run_program(scene, 2, "prepared audit")
    with scene.coordinator(start=False) as coordinator:
        assert coordinator.resolve().failed == {}
        assert scene.prepared() == []
        assert coordinator.in_doubt() == []
    assert scene.everywhere() == ([1] if moment in program.DECIDED else [])


# -- participants that die -------------------------------------------------------------------------


class Mortal(Scene):
    """A scene whose participants may be killed."""

    def kill(self, name):
        (self.database.server if name == "pg" else getattr(self, name)).kill()

    def start(self, name):
        (self.database.server if name == "pg" else getattr(self, name)).start()


@pytest.fixture
def mortal(tmp_path, postgresql_server_to_kill, two_brokers):
    with BrokerProcess(tmp_path / "data") as orders:
        database = postgresql_server_to_kill.create_database()
        scene = Mortal(tmp_path / "decisions", database, orders, two_brokers[1])
        scene.prepare()
        yield scene


@pytest.fixture
def at(monkeypatch):
    """Have something happen when a step is done."""
    acts = {}

    def passed(moment):
        acts.pop(moment, lambda: None)()

    with monkeypatch.context() as patch:
        for kind in (PostgresqlResource, BrokerResource, StagingBroker):
            for method in ("prepare", "finish"):
                patch.setattr(kind, method, getattr(kind, method))
        patch.setattr(DecisionLog, "decide", DecisionLog.decide)
        program.watch_all(passed)
        yield acts


MOMENTS = ("worked", "prepared pg", "prepared orders", "prepared audit", "decided", "told pg", "told orders")


@pytest.mark.sampled(test=6)
@pytest.mark.parametrize("name", ["pg", "orders"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_participant_that_is_killed_at_any_step_heals_when_it_is_back(mortal, at, name, moment):
    connections = mortal.open()
    with mortal.coordinator() as coordinator:
        raised = None
        try:
            with coordinator.transaction(**connections) as tx:
                connections["pg"].execute("INSERT INTO orders VALUES (1)")
                connections["orders"].send(mortal.topic, b"1")
                connections["audit"].send(mortal.topic, b"1")
                if moment == "worked":
                    mortal.kill(name)
                else:
                    at[moment] = lambda: mortal.kill(name)
        except (errors.TxBrokerError, psycopg.OperationalError) as error:
            raised = error
        if tx.outcome is State.COMMITTED:
            told = {"told pg": ["pg"], "told orders": ["pg", "orders"]}.get(moment, [])
            assert (raised is None) == (name in told)
            assert raised is None or isinstance(raised, errors.DeliveryPending)
        else:
            assert tx.outcome is State.ROLLED_BACK
            assert raised is not None
            assert not isinstance(raised, errors.OutcomeUnknown) or raised.__notes__
        mortal.start(name)
        eventually(lambda: mortal.prepared() == [] and coordinator.in_doubt() == [])
        assert mortal.everywhere() == ([1] if tx.outcome is State.COMMITTED else [])
        assert coordinator.heuristics() == []
    for connection in connections.values():
        try:
            connection.close()
        except (errors.TxBrokerError, psycopg.Error) as error:
            print(error)


def test_a_participant_that_is_away_keeps_no_other_waiting(mortal):
    connections = mortal.open(PATIENT)
    with mortal.coordinator(start=False) as coordinator:
        tx = coordinator.transaction(**connections)
        tx.enter()
        connections["pg"].execute("INSERT INTO orders VALUES (1)")
        connections["orders"].send(mortal.topic, b"1")
        connections["audit"].send(mortal.topic, b"1")
        tx.prepare()
        tx.decide()
        coordinator.left(tx.gid)
    for connection in connections.values():
        connection.close()
    mortal.kill("orders")
    with mortal.coordinator() as coordinator:
        eventually(lambda: mortal.rows() == mortal.messages("audit") == [1])

        def is_known():
            (left,) = coordinator.in_doubt()
            return list(left.waiting) == ["orders"] and "ConnectionUnavailable" in left.waiting["orders"]

        eventually(is_known)
        there = mortal.within(PATIENT)
        fresh = {"pg": there["pg"](), "audit": there["audit"]()}
        with coordinator.transaction(**fresh):  # and new work goes on
            fresh["pg"].execute("INSERT INTO orders VALUES (2)")
            fresh["audit"].send(mortal.topic, b"2")
        for connection in fresh.values():
            connection.close()
        mortal.start("orders")
        eventually(lambda: coordinator.in_doubt() == [])
    assert mortal.messages("orders") == [1]
    assert mortal.messages("audit") == mortal.rows() == [1, 2]


def test_a_prepare_that_arrives_after_the_process_has_died_is_rolled_back_by_a_later_pass(scene):
    """Recovery on start sees nothing of it: that is why looking does not end with the start."""
    with scene.coordinator(start=False) as first:
        late = first.begun()
    with scene.coordinator() as coordinator:
        eventually(lambda: coordinator.resolve() == ([], [], {}))
        with txbroker.connect(scene.orders.address) as orphan:
            orphan.tpc_begin(orphan.xid(0x7463, late, "orders"))
            orphan.send(scene.topic, b"1")
            orphan.tpc_prepare()
        with contextlib.closing(scene.database.connect()) as orphan:
            orphan.tpc_begin(orphan.xid(0x7463, late, "pg"))
            orphan.execute("INSERT INTO orders VALUES (1)")
            orphan.tpc_prepare()
            eventually(lambda: scene.prepared() == [])
    assert scene.everywhere() == []


def test_prepared_transactions_of_another_database_of_the_server_are_not_touched(scene):
    other = scene.database.server.create_database()
    try:
        with Coordinator(scene.directory, {"pg": other.connect}, start=False) as coordinator:
            with other.connect() as connection:
                tx = coordinator.transaction(pg=connection)
                tx.enter()
                connection.execute("CREATE TABLE made (id int)")
                tx.prepare()
        with scene.coordinator(start=False) as coordinator:
            assert coordinator.resolve() == ([], [], {})
            assert len(other.prepared()) == 1
    finally:
        other.drop()
