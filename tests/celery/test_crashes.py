"""Test that a task's row, the task that it sends and its acknowledgement are one, whatever is killed, and when.

The tables have no unique key: what happens twice is there twice.
"""

import os
import signal
import threading
from contextlib import suppress

import pytest

from tests.celery.conftest import ready
from tests.celery.worker_process import WorkerProcess
from tests.support.waiting import eventually
from txbroker.celery import joined

pytestmark = pytest.mark.slow
AT_A_TIME = 12
ROUNDS = {"child": 5, "worker": 3, "broker": 4}
DEEP = 6
"""So many times more are the rounds of a deep test."""


def kill_child(worker, amqp_broker):
    for pid in worker.children()[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_worker(worker, amqp_broker):
    worker.kill()
    worker.start()


def kill_broker(worker, amqp_broker):
    amqp_broker.kill()
    amqp_broker.start()


KILLS = {"child": kill_child, "worker": kill_worker, "broker": kill_broker}


def run(application, amqp_broker, broker, environment, tmp_path, victim, times=1):
    sent, pause = [], threading.Event()
    environment = {**environment, "SHOP_PAUSE": "0.01"}
    with WorkerProcess("tests.celery.shop", tmp_path / "worker.log", environment) as worker:
        for number in range(ROUNDS[victim] * times):
            ids = [f"{number:02}-{each:02}" for each in range(AT_A_TIME)]
            with broker.transaction() as tx, joined(tx):
                for id in ids:
                    application.order.delay(id)
            sent += ids
            pause.wait(0.02 + 0.017 * number)
            KILLS[victim](worker, amqp_broker)
        eventually(lambda: ready(broker) == 0 and len(application.effects("bill")) >= len(sent), 120)
    assert application.effects("order") == sent
    assert application.effects("bill") == sent


@pytest.mark.parametrize("victim", KILLS)
def test_a_task_is_done_once_whatever_is_killed(
    victim, application, amqp_broker, broker, environment, tmp_path
):
    run(application, amqp_broker, broker, environment, tmp_path, victim)


@pytest.mark.deep
@pytest.mark.parametrize("victim", KILLS)
def test_many_tasks_are_done_once_whatever_is_killed(
    victim, application, amqp_broker, broker, environment, tmp_path
):
    run(application, amqp_broker, broker, environment, tmp_path, victim, DEEP)


POINTS = (
    "before the body", "after the row", "after the body", "before COMMIT", "after COMMIT", "after the block",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_task_is_done_once_wherever_its_process_dies(
    point, application, amqp_broker, broker, environment, tmp_path
):
    environment["SHOP_DIES_AT"] = point
    application.order.delay("a")
    with WorkerProcess("tests.celery.shop", tmp_path / "worker.log", environment) as worker:
        eventually(lambda: "signal 9" in worker.output)
        application.order.delay("b")  # its process finds what is in doubt, and ends it
        eventually(lambda: ready(broker) == 0 and application.effects("bill") == ["a", "b"])
        assert application.effects("order") == ["a", "b"]
    assert (tmp_path / "marks" / f"died-{point}").exists()


@pytest.fixture
def in_postgresql(postgresql, environment):
    environment["SHOP_DATABASE"] = postgresql.url


@pytest.mark.parametrize("victim", ["child"])
def test_a_task_is_done_once_with_postgresql(
    in_postgresql, victim, application, amqp_broker, broker, environment, tmp_path
):
    run(application, amqp_broker, broker, environment, tmp_path, victim)
