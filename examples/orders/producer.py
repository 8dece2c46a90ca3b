"""The producer takes orders: ``python -m examples.orders.producer DATABASE BROKER``.

Each order is a row in PostgreSQL and a message in the broker: both, or neither. Its standard output says what came of
each.
"""

from __future__ import annotations

import sys
import time

import psycopg

import txbroker
from examples.orders.shop import Database, OpeningHours, Order, tell
from journal.xid import Xid

OUTCOMES = {
    txbroker.State.COMMITTED: "placed",
    txbroker.State.ROLLED_BACK: "refused",
    txbroker.State.ACTIVE: "refused",  # the block has not begun
    txbroker.State.PREPARED: "unknown",
}


def place(database: Database, broker: txbroker.Connection, order: Order) -> None:
    """Place one order: the row and the message, in one transaction."""
    block = txbroker.atomic(database, broker, application="shop")
    try:
        with block as tx:
            database.execute("INSERT INTO orders VALUES (%s, %s, %s)", order.row)
            tx.send("orders", order.write(), key=order.customer.encode())
    finally:
        tell(OUTCOMES[block.outcome], order.id)


def take_orders(database_url: str, broker_url: str, hours: OpeningHours, rate: float) -> None:
    """Take orders one after the other. After a lost connection it connects again."""
    unsure: tuple[Order, Xid] | None = None
    order = Order.by_chance()
    while hours:
        try:
            with (
                psycopg.connect(database_url) as database,
                txbroker.connect(broker_url, timeout=5.0) as broker,
            ):
                if unsure is not None:  # the connection was lost during COMMIT: ask how the transaction ended
                    tell("resolved", unsure[0].id, broker.wait_outcome(unsure[1]).name.lower())
                    unsure = None
                while hours:
                    order = Order.by_chance()
                    place(database, broker, order)
                    time.sleep(1 / rate)
        except (psycopg.Error, txbroker.errors.TxBrokerError) as error:
            if isinstance(error, txbroker.errors.OutcomeUnknown) and error.xid is not None:
                unsure = unsure or (order, error.xid)
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
            time.sleep(0.1)


if __name__ == "__main__":
    take_orders(sys.argv[1], sys.argv[2], OpeningHours(), float(sys.argv[3]) if len(sys.argv) > 3 else 10.0)
