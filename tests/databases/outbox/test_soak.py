"""Kill broker, database and programs again and again while they work: in the end each block is there once, in order."""

import contextlib
import random

import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.databases.outbox.workers import Worker, check
from txbroker.databases.urls import connector

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.deep)])
def test_whatever_is_killed_at_any_time_each_block_arrives_once_and_in_order(
    postgresql_server_to_kill, mortal_broker, rounds
):
    server, chance = postgresql_server_to_kill, random.Random(7)
    database = server.create_database()
    with contextlib.closing(connector(database.url)()) as made:
        make_tables(made)
    with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
        broker.create_topic("orders")
    all_workers = []
    with contextlib.ExitStack() as stack:

        def begin():
            serial = len(all_workers)
            worker = stack.enter_context(
                Worker(database.url, mortal_broker.address, "orders", serial, threads=3)
            )
            all_workers.append(worker)
            return worker

        lives = [begin(), begin()]
        for number in range(rounds):
            for worker in lives:
                worker.goes_on(chance.randrange(3, 20))
            victim = ("broker", "program", "database", "both")[number % 4]
            if victim in ("broker", "both"):
                mortal_broker.kill()
            if victim in ("database", "both"):
                server.kill()
                server.start()
            if victim == "broker":
                for worker in lives:
                    worker.goes_on(10)  # the database goes on without the broker
            if victim in ("broker", "both"):
                mortal_broker.start()
            if victim == "program":
                lives.pop(0).kill()
                lives.append(begin())
        for worker in lives:
            worker.goes_on(20)
            worker.end()
    with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
        arrived = check(database.url, broker, "orders", *all_workers)
    assert len(arrived) > 50
