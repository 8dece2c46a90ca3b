"""The broker that foreign tests speak AMQP to: ours, or RabbitMQ, which shows what the tests ask of a broker.

``FOREIGN_BROKER=rabbitmq`` chooses RabbitMQ from Debian's package (.ci/need-debian installs it).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

from benchmarks.peers.rabbitmq import RabbitServer
from benchmarks.peers.server import DIES_WITH_US
from tests.support.broker_process import ENVIRONMENT, SMALL_FILES
from txbroker.drill.broker.broker_process import BrokerProcess, free_port

CHOSEN = os.environ.get("FOREIGN_BROKER", "txbroker")
PATIENCE = 30.0


@contextmanager
def amqp_broker(folder: Path) -> Iterator[int]:
    """Run the chosen broker with its data in the folder; yields its port for AMQP 0-9-1 on the loopback interface."""
    if CHOSEN == "rabbitmq":
        # The server has a user of its own, who may not enter the folders of pytest.
        with TemporaryDirectory(prefix="foreign-rabbitmq-") as own:
            Path(own).chmod(0o755)
            with RabbitServer(Path(own) / "server") as server:
                yield server.port
        return
    port = free_port()
    options = ["--set", SMALL_FILES, "--listen-amqp", f"tcp:{port}:interface=127.0.0.1"]
    with BrokerProcess(folder / "data", folder / "broker.log", options, environment=ENVIRONMENT) as broker:
        yield port
        broker.stop()


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Run a Redis that keeps nothing, for the results of Celery's tasks; yields its port."""
    port = free_port()
    process = subprocess.Popen(
        [*DIES_WITH_US, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for_redis(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_for_redis(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    with redis.Redis("127.0.0.1", port) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return
