"""The comparison of rows and messages, from what is stored and what the programs have reported."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg

import txbroker
from examples.orders.shop import Order


class Fault(enum.Enum):
    """The kinds of fault."""

    ROW_LOST = "an order that was said to be placed has no row"
    MESSAGE_MISSING = "a row of an order has no message"
    ROW_MISSING = "a message of an order has no row"
    MESSAGE_TWICE = "an order has more than one message"
    DIFFERENT = "row and message of an order differ"
    FALSELY_REFUSED = "an order that was said to be rolled back is there"
    INVOICE_MISSING = "a message of an order has no invoice"
    INVOICE_TWICE = "an order has more than one invoice"
    INVOICE_WITHOUT_ORDER = "an invoice has no message of an order"
    INVOICE_DIFFERENT = "an invoice differs from its order"
    INVOICE_MESSAGES = "invoices and the messages about them are not the same"
    IN_DOUBT = "a transaction is left in doubt"
    STALE_DECISION = "a row is left in the decision table"
    IDLE = "too little was done to prove anything"


@dataclass
class Facts:
    """The facts at the end. ``placed`` and ``refused`` are the order ids that producers have reported."""

    orders: Sequence[Order]
    order_messages: Sequence[Order]
    invoices: Sequence[Order]
    invoice_messages: Sequence[Order]
    placed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    in_doubt: Sequence[str] = ()
    decisions: Sequence[str] = ()
    least_orders: int = 1


def collect(database_url: str, broker_url: str, said: Iterable[str]) -> Facts:
    """Read the facts from the database and the broker, over connections of its own."""
    with psycopg.connect(database_url) as database:
        orders = [Order(*row) for row in database.execute("SELECT id, customer, cents FROM orders")]
        invoices = [Order(*row) for row in database.execute("SELECT order_id, customer, cents FROM invoices")]
        decisions = database.execute(
            "SELECT xid, decision FROM txbroker_decision WHERE xid <> 'identity'"
        ).fetchall()
    with txbroker.connect(broker_url, client="auditor") as broker:
        in_doubt = [str(info.xid) for info in broker.transactions([txbroker.State.PREPARED])]
        facts = Facts(
            orders,
            [
                Order.read(message.value)
                for message in broker.consume("orders", start="earliest", follow=False)
            ],
            invoices,
            [
                Order.read(message.value)
                for message in broker.consume("invoices", start="earliest", follow=False)
            ],
            in_doubt=in_doubt,
            decisions=[f"{decision}: {xid}" for xid, decision in decisions],
        )
    for line in said:
        word, order, *outcome = line.split()
        if word == "placed" or outcome == ["committed"]:
            facts.placed.add(order)
        elif word == "refused" or outcome == ["rolled_back"]:
            facts.refused.add(order)
    return facts


def compare(facts: Facts) -> list[tuple[Fault, str]]:
    """Return every fault, with its order or transaction."""
    rows = {order.id: order for order in facts.orders}
    messages = {order.id: order for order in facts.order_messages}
    found: list[tuple[Fault, str]] = []

    def wrong(fault: Fault, which: Iterable[str]) -> None:
        found.extend((fault, one) for one in sorted(which))

    wrong(Fault.ROW_LOST, facts.placed - set(rows))
    wrong(Fault.FALSELY_REFUSED, facts.refused & (set(rows) | set(messages)))
    wrong(Fault.MESSAGE_MISSING, set(rows) - set(messages))
    wrong(Fault.ROW_MISSING, set(messages) - set(rows))
    wrong(Fault.MESSAGE_TWICE, repeated(facts.order_messages))
    wrong(Fault.DIFFERENT, (one for one in set(rows) & set(messages) if rows[one] != messages[one]))
    billed = {order.id: order for order in facts.invoices}
    wrong(Fault.INVOICE_MISSING, set(messages) - set(billed))
    wrong(Fault.INVOICE_TWICE, repeated(facts.invoices))
    wrong(Fault.INVOICE_WITHOUT_ORDER, set(billed) - set(messages))
    wrong(
        Fault.INVOICE_DIFFERENT, (one for one in set(billed) & set(messages) if billed[one] != messages[one])
    )
    sent, written = Counter(facts.invoice_messages), Counter(facts.invoices)
    wrong(Fault.INVOICE_MESSAGES, {order.id for order in (sent - written) + (written - sent)})
    wrong(Fault.IN_DOUBT, facts.in_doubt)
    wrong(Fault.STALE_DECISION, facts.decisions)
    if len(rows) < facts.least_orders:
        found.append((Fault.IDLE, f"{len(rows)} orders, {facts.least_orders} were expected at least"))
    return found


def repeated(orders: Iterable[Order]) -> list[str]:
    """Return the ids that occur more than once."""
    return [one for one, count in Counter(order.id for order in orders).items() if count > 1]
