"""Test the clients of a drill as processes: which there are, and that one goes on after its pause."""

from pathlib import Path

import pytest

from tests.support.waiting import eventually
from txbroker.drill.clients.crew import WORKER, Crew, client_names
from txbroker.drill.plan.plan import Plan


def test_workers_come_with_a_feeder_and_without_them_there_is_none():
    assert client_names(2) == ["transactor-1", "sender-1", "relay-1", "reader-1"]
    assert client_names(1, workers=2) == [
        "transactor-1",
        "relay-1",
        "reader-1",
        "feeder-1",
        "worker-1",
        "worker-2",
    ]
    assert client_names(1, schedulers=1, queuers=2)[3:] == ["scheduler-1", "queuer-1", "queuer-2"]
    assert client_names(1, queuers=1, amqp=2)[3:] == ["queuer-1", "amqp-1", "amqp-2"]


@pytest.fixture
def crew(tmp_path):
    """Two clients whose broker is away: they wait for it until they are stopped."""
    plan = Plan(
        name="d", seed=1, url="tcp:127.0.0.1:1", folder=str(tmp_path), timeout=0.2, largest=10, workers=1
    )
    plan.write()
    crew = Crew(plan, ["feeder-1", "worker-1"])
    crew.start()
    yield crew
    crew.kill_all()


def is_stopped(crew, name):
    stat = Path(f"/proc/{crew._processes[name].pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@pytest.mark.slow
def test_one_of_a_role_is_paused_until_its_time_is_over(crew):
    assert crew.pause(8, WORKER, 0.0) == "worker-1"
    eventually(lambda: is_stopped(crew, "worker-1"))
    crew.look()
    assert not is_stopped(crew, "worker-1")
    crew.pause(8, WORKER, 1000.0)
    eventually(lambda: is_stopped(crew, "worker-1"))
    crew.look()
    assert is_stopped(crew, "worker-1"), "its time is not over"
    assert not is_stopped(crew, "feeder-1")


@pytest.mark.slow
def test_one_of_a_role_is_killed_and_started_again(crew):
    assert crew.kill(8, WORKER) == "worker-1"
    eventually(lambda: crew.running == 1)
    crew.look()
    assert (crew.running, crew.deaths) == (2, 1)
    assert crew.is_over("worker-1.1")
    assert not crew.is_over("feeder-1.1")


@pytest.mark.slow
def test_all_but_one_role_are_stopped_first_also_those_that_are_paused(crew):
    crew.pause(0, "feeder", 1000.0)
    crew.stop(but=WORKER)
    assert crew.running == 1
    assert not crew.is_over("worker-1.1")
    crew.look()
    assert crew.running == 1, "what was stopped is not started again"
    crew.pause(0, WORKER, 1000.0)
    crew.stop()
    assert crew.running == 0
    assert crew.is_over("worker-1.1")
    assert crew.failures == []
