"""A real broker that listens for AMQP too, an application with a database, and what runs its workers."""

import importlib

import pytest

import txbroker
from tests.celery import shop
from tests.celery.worker_process import WorkerProcess
from tests.support.broker_process import AmqpBroker


@pytest.fixture
def amqp_broker(tmp_path):
    with AmqpBroker(tmp_path / "data") as process:
        yield process


@pytest.fixture
def broker(amqp_broker):
    with txbroker.connect(amqp_broker.address, timeout=60.0) as connection:
        yield connection


@pytest.fixture
def environment(amqp_broker, tmp_path):
    (tmp_path / "marks").mkdir()
    (tmp_path / "results").mkdir()
    return {
        "SHOP_AMQP": amqp_broker.amqp_url,
        "SHOP_BROKER": amqp_broker.address,
        "SHOP_DATABASE": str(tmp_path / "shop.sqlite"),
        "SHOP_MARKS": str(tmp_path / "marks"),
        "SHOP_RESULTS": str(tmp_path / "results"),
    }


@pytest.fixture
def application(environment, monkeypatch):
    """The module of the application, as a program has it that sends."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = importlib.reload(shop)
    found.make_tables()
    yield found
    found.app.close()


@pytest.fixture
def worker(application, environment, tmp_path):
    process = WorkerProcess("tests.celery.shop", tmp_path / "worker.log", environment)
    with process:
        yield process


def ready(broker, queue="celery"):
    """How many messages of a queue are not finished."""
    return broker.queues(queue)[0].messages


__all__ = ["AmqpBroker", "ready"]
