"""Test that the drill's coordinator ends what is left, and nothing that a client ends meanwhile."""

import pytest

import txbroker
from journal.xid import Xid
from txbroker.drill.clients.coordinator import Coordinator
from txbroker.drill.clients.ledger import Decided, Ended, Ledger, Prepared, read_ledger
from txbroker.drill.clients.transactor import FORMAT_ID
from txbroker.drill.plan.plan import Plan
from txbroker.errors import UnknownTransaction

XID = Xid(FORMAT_ID, b"drill1/transactor-1.1/6", b"drill")


class Connection:
    """A broker with one prepared transaction, whose client may end it in the very moment of a look."""

    def __init__(self):
        self.prepared = [XID]
        self.asked = []
        self.meanwhile = lambda: None

    def tpc_recover(self):
        found = list(self.prepared)
        self.meanwhile()
        return found

    def tpc_commit(self, xid):
        self.asked.append("commit")
        if xid not in self.prepared:
            raise UnknownTransaction(f"{xid} was committed, and forgotten: its client has seen that")
        self.prepared.remove(xid)

    def tpc_rollback(self, xid):
        self.asked.append("rollback")
        self.prepared.remove(xid)

    def close(self, _timeout):
        pass


@pytest.fixture
def scene(tmp_path, monkeypatch):
    plan = Plan(name="drill1", seed=1, url="tcp:127.0.0.1:1", folder=str(tmp_path), largest=1000)
    plan.ledgers.mkdir(exist_ok=True)
    connection = Connection()
    monkeypatch.setattr(txbroker, "connect", lambda *_, **__: connection)
    monkeypatch.setattr("txbroker.drill.clients.coordinator.SLOWEST", 0.0)
    ledger = Ledger(plan.ledgers, "transactor-1.1")
    ledger.write(Prepared(operation=6))
    ledger.write(Decided(operation=6, commit=True))
    return plan, connection, ledger


def entries(plan):
    return [type(line.entry).__name__ for line in read_ledger(plan.ledgers / "coordinator.jsonl")]


def test_what_its_client_ends_while_the_coordinator_looks_is_left_to_it(scene):
    """A look, the client's commit and its end, then the question whether it has ended: a surprise in each round."""
    plan, connection, ledger = scene
    coordinator = Coordinator(plan, lambda _: False)

    def client_commits():
        if connection.prepared:
            connection.prepared.clear()
            ledger.write(Ended(operation=6, committed=True))

    assert coordinator._try_round(patient=True)
    connection.meanwhile = client_commits
    assert coordinator._try_round(patient=True)
    assert coordinator._try_round(patient=True)
    assert (connection.asked, entries(plan)) == ([], [])


def test_what_a_dead_client_left_is_ended_as_it_had_decided(scene):
    plan, connection, _ = scene
    coordinator = Coordinator(plan, lambda _: True)
    for _ in range(2):
        assert coordinator._try_round(patient=True)
    assert connection.asked == ["commit"]
    assert entries(plan) == ["Decided", "Ended"]


def test_what_a_living_client_was_told_has_ended_and_is_still_there_is_asked_for_again(scene):
    plan, connection, ledger = scene
    ledger.write(Ended(operation=6, committed=True))
    coordinator = Coordinator(plan, lambda _: False)
    for _ in range(2):
        assert coordinator._try_round(patient=True)
    assert connection.asked == ["commit"]


def test_a_living_client_is_not_interfered_with(scene):
    plan, connection, _ = scene
    coordinator = Coordinator(plan, lambda _: False)
    for _ in range(3):
        assert coordinator._try_round(patient=True)
    assert connection.asked == []
