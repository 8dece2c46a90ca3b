"""The shared parts of the shop's programs: tables, messages, and how a program is stopped."""

from __future__ import annotations

import json
import os
import secrets
import signal
from dataclasses import asdict, dataclass
from typing import Any, Self

import psycopg

import txbroker

CUSTOMERS = ("ann", "bob", "cleo", "dan", "eve")
TOPICS = {"orders": 4, "invoices": 2}
GROUP = "billing"

# Only the transaction prevents a second invoice for an order: there is no unique key on order_id.
TABLES = """
    CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL, cents integer NOT NULL);
    CREATE TABLE invoices (order_id text NOT NULL, customer text NOT NULL, cents integer NOT NULL);
"""

Database = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class Order:
    """An order, as a row and as the body of a message. An invoice has the same fields."""

    id: str
    customer: str
    cents: int

    @classmethod
    def by_chance(cls) -> Self:
        """Return a random new order."""
        return cls(secrets.token_hex(8), secrets.choice(CUSTOMERS), 100 + secrets.randbelow(10_000))

    @classmethod
    def read(cls, value: bytes | None) -> Self:
        """Return the order in the body of a message."""
        assert value is not None
        return cls(**json.loads(value))

    def write(self) -> bytes:
        """Return the body of a message."""
        return json.dumps(asdict(self)).encode()

    @property
    def row(self) -> tuple[str, str, int]:
        """Return the values for an INSERT."""
        return self.id, self.customer, self.cents


def tell(*words: str) -> None:
    """Print a line in one write, so that a kill leaves a whole line or none."""
    print(f"{' '.join(words)}\n", end="", flush=True)


def open_shop(database_url: str, broker_url: str) -> None:
    """Make the tables and topics: once, as a migration would."""
    with psycopg.connect(database_url) as database:
        database.execute(TABLES)
        database.commit()
        txbroker.create_decision_table(database)
    with txbroker.connect(broker_url, client="shop") as broker:
        for topic, partitions in TOPICS.items():
            broker.create_topic(topic, partitions=partitions)


class OpeningHours:
    """True until SIGTERM or Ctrl-C comes, or the parent process has died."""

    def __init__(self) -> None:
        self._closing = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._close)
        signal.signal(signal.SIGINT, self._close)

    def _close(self, *_: object) -> None:
        self._closing = True

    def __bool__(self) -> bool:
        return not self._closing and os.getppid() == self._parent
