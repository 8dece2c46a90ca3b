"""A worker of the demo: ``python -m demo.flight_worker BROKER DATABASE NAME``, until SIGTERM.

It handles the rows of flights in batches; the rows that a batch inserts into PostgreSQL and the end of its messages are
one transaction.
"""

from __future__ import annotations

import logging
import signal
import sys
from functools import partial
from typing import Final

import psycopg

import txbroker
from demo.departures import Database, Departure, Effect, NotLeftYet, departure_of, insert
from demo.source import FLIGHTS

GROUP: Final = "departures"
CONCURRENCY: Final = 4
BATCH: Final = 100

READ_AHEAD: Final = 64 << 10
"""Bytes: some batches. What was read ahead behind a row that is to be tried again is read once more."""

POLICY: Final = txbroker.RetryPolicy(attempts=5, pause=0.05, longest=1.0, ending="dead_letter")
"""Two workers are killed, each of which costs what it handles alone an attempt: with 5 only what is malformed fails so
often.
"""


def handle(worker: str, messages: list[txbroker.Message], _: object, database: Database) -> None:
    """Insert a row for each flight."""
    insert(database, [Effect(departure_in(each), worker, each.attempts) for each in messages])


def departure_in(message: txbroker.Message) -> Departure:
    """Return the departure that a message is about; raises MalformedRow, and NotLeftYet at the first attempt."""
    departure = departure_of(int(message.header("row") or b""), message.value or b"")
    if departure.is_very_late and not message.attempts:
        raise NotLeftYet(f"row {departure.number} is {departure.late} minutes late")
    return departure


def main(broker_url: str, database_url: str, name: str) -> None:
    """Work until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with txbroker.connect(broker_url, client=name) as broker:
        worker = broker.work(
            FLIGHTS,
            GROUP,
            partial(handle, name),
            transaction=partial(psycopg.connect, database_url),
            concurrency=CONCURRENCY,
            batch=BATCH,
            order="key",
            retry=POLICY,
            prefetch=READ_AHEAD,
            max_bytes=READ_AHEAD,
        )
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
