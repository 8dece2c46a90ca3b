"""The facts at the end of a drill, read by SQL, and by the command line as operators use it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.shop.drill.customers import Answer, Customers
from examples.shop.drill.judgement import Facts, Placed
from examples.shop.drill.premises import Premises

TASKS = {"charge": "orders_charge", "ship": "orders_parcel", "ask": "orders_letter"}
"""The table that each task writes to."""

STOCK = 1_000_000
"""What there was of each product that is sold."""


def collect(premises: Premises, customers: Customers) -> Facts:
    """Read all facts. The shop's programs have ended; the broker is stopped at the end."""
    query = premises.query
    orders = [
        Placed(str(number), customer, product, cents)
        for number, customer, product, cents in query(
            "SELECT number, customer, product, cents FROM orders_order"
        )
    ]
    facts = Facts(
        acknowledged=customers.numbers(Answer.ACKNOWLEDGED),
        refused=customers.numbers(Answer.REFUSED),
        unknown=customers.numbers(Answer.UNKNOWN),
        orders=orders,
        tasks={task: ordered(premises, table) for task, table in TASKS.items()},
        spent=dict(query("SELECT name, spent_cents FROM orders_customer")),
        sold=dict(query(f"SELECT name, {STOCK} - stock FROM orders_product WHERE stock > 0")),
        in_doubt=[*in_doubt(premises), *(gid for (gid,) in query("SELECT gid FROM pg_prepared_xacts"))],
        decisions=[
            f"{decision}: {xid}"
            for xid, decision in query("SELECT xid, decision FROM txbroker_decision WHERE xid <> 'identity'")
        ],
        outbox=[
            f"{stream}, number {number}"
            for table in ("txbroker_outbox", "txbroker_outbox_refused")
            for stream, number in query(f"SELECT stream, number FROM {table}")
        ],
        queues=queues(premises),
    )
    premises.broker.stop()
    facts.damage = damage(premises.folder / "broker")
    return facts


def ordered(premises: Premises, table: str) -> list[str]:
    """Return the orders of a table, as often as they are there."""
    return [str(order) for (order,) in premises.query(f'SELECT "order" FROM {table}')]


def in_doubt(premises: Premises) -> list[str]:
    """Return the xids that are prepared at the broker."""
    return [str(each["xid"]) for each in asked(premises, "transactions", "list", "--in-doubt")]


def queues(premises: Premises) -> dict[str, int]:
    """Return how many messages each queue has, also those that somebody has not acknowledged."""
    return {each["name"]: each["messages"] for each in asked(premises, "queues", "list")["queues"]}


def asked(premises: Premises, *words: str) -> Any:
    """Return what the command line says."""
    return json.loads(premises.run("-m", "txbroker", *words, "--json", "--broker", premises.broker.address))


def damage(directory: Path) -> str:
    """Return what ``txbroker verify`` says of a directory, if that is not sound."""
    command: Sequence[str] = [sys.executable, "-m", "txbroker", "verify", "--deep", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout}{done.stderr}"
