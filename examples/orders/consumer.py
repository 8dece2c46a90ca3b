"""The consumer writes invoices: ``python -m examples.orders.consumer DATABASE BROKER [PARTITION ...]``.

For each order that it receives: a row in PostgreSQL, a message sent on, the group's position moved; all, or nothing.
So each order has one invoice, though the order may be received more than once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import psycopg

import txbroker
from examples.orders.shop import GROUP, Database, OpeningHours, Order, tell


def bill(database: Database, broker: txbroker.Connection, partitions: Sequence[int] | None) -> None:
    """Write one invoice: receive, write, send on, in one transaction."""
    with txbroker.atomic(database, broker, application="billing") as tx:
        message = tx.receive("orders", group=GROUP, timeout=0.5, partitions=partitions)
        if message is None:
            return
        order = Order.read(message.value)
        database.execute("INSERT INTO invoices VALUES (%s, %s, %s)", order.row)
        tx.send("invoices", order.write(), key=order.customer.encode())
    tell("invoiced", order.id)


def write_invoices(
    database_url: str, broker_url: str, hours: OpeningHours, partitions: Sequence[int] | None
) -> None:
    """Write invoices one after the other. After a lost connection it connects again."""
    while hours:
        try:
            with (
                psycopg.connect(database_url) as database,
                txbroker.connect(broker_url, timeout=5.0) as broker,
            ):
                while hours:
                    bill(database, broker, partitions)
        except (psycopg.Error, txbroker.errors.TxBrokerError) as error:
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    write_invoices(sys.argv[1], sys.argv[2], OpeningHours(), [int(number) for number in sys.argv[3:]] or None)
