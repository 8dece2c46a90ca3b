"""Test that whoever waits for a transaction of a program that has died has the resolver look at once."""

import contextlib
import sqlite3
import time

import pytest

import txbroker
from tests.databases.deaths.test_crashes import make_tables
from tests.support.dying_program import run_until_killed


@pytest.mark.slow
def test_a_consumer_that_waits_for_a_dead_programs_transaction_has_the_resolver_look_at_once(
    sqlite, broker, shared_broker, topic
):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        make_tables(database)
        broker.create_topic(f"{topic}-in")
        broker.send(f"{topic}-in", b"a")
        with txbroker.atomic(database, broker, mode="two-phase"):
            pass  # the resolver begins with the first block
        broker.resolver.interval = 3600.0
        run_until_killed(
            "tests.databases.deaths.program",
            f"sqlite:///{sqlite}",
            shared_broker.address,
            topic,
            7,
            "after prepare",
        )
        began = time.monotonic()
        with broker.consume(f"{topic}-in", topic, claim=False) as consumer:
            assert [message.value for message in consumer.poll(20.0)] == [b"a"]
        assert time.monotonic() - began < 10.0
