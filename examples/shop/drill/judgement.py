"""The judgement: what customers were answered beside what is stored. It knows neither Django nor txbroker."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


class Fault(enum.Enum):
    """The kinds of fault."""

    ORDER_LOST = "an order that was acknowledged has no row"
    ORDER_KEPT = "an order that was refused has a row"
    ORDER_UNASKED = "an order that nobody has placed has a row"
    TASK_LOST = "a task of an order was not done"
    TASK_TWICE = "a task of an order was done more than once"
    TASK_UNASKED = "a task was done for an order that is not there"
    SUM_WRONG = "a customer has not spent what the orders cost"
    STOCK_WRONG = "a product's stock and its orders differ"
    IN_DOUBT = "a transaction is left in doubt"
    DECISION_LEFT = "a row is left in the decision table"
    OUTBOX_LEFT = "messages are left in the outbox"
    MESSAGE_LEFT = "messages are left in a queue"
    DAMAGED = "the broker's files are damaged"
    IDLE = "too little was done to prove anything"


@dataclass(frozen=True)
class Placed:
    """A row of an order."""

    number: str
    customer: str
    product: str
    cents: int


@dataclass
class Facts:
    """The facts at the end.

    ``tasks`` has for each task the orders for which it was done, as often as it was. ``damage`` is what a verification
    of the broker's stopped directory has said, if it has found any.
    """

    acknowledged: set[str]
    refused: set[str]
    unknown: set[str]
    orders: Sequence[Placed]
    tasks: Mapping[str, Sequence[str]]
    spent: Mapping[str, int]
    sold: Mapping[str, int]
    in_doubt: Sequence[str] = ()
    decisions: Sequence[str] = ()
    outbox: Sequence[str] = ()
    queues: Mapping[str, int] = field(default_factory=dict)
    damage: str = ""
    least_orders: int = 1


def judge(facts: Facts) -> list[tuple[Fault, str]]:
    """Return each fault with what it is about."""
    return [*_orders(facts), *_tasks(facts), *_sums(facts), *_left(facts)]


def _orders(facts: Facts) -> Iterable[tuple[Fault, str]]:
    rows = {order.number for order in facts.orders}
    asked = facts.acknowledged | facts.refused | facts.unknown
    yield from ((Fault.ORDER_LOST, number) for number in sorted(facts.acknowledged - rows))
    yield from ((Fault.ORDER_KEPT, number) for number in sorted(facts.refused & rows))
    yield from ((Fault.ORDER_UNASKED, number) for number in sorted(rows - asked))
    if len(rows) < facts.least_orders:
        yield Fault.IDLE, f"{len(rows)} orders, {facts.least_orders} were expected at least"


def _tasks(facts: Facts) -> Iterable[tuple[Fault, str]]:
    rows = {order.number for order in facts.orders}
    for task, done in facts.tasks.items():
        times = Counter(done)
        yield from ((Fault.TASK_LOST, f"{task} of {number}") for number in sorted(rows - times.keys()))
        yield from ((Fault.TASK_UNASKED, f"{task} of {number}") for number in sorted(times.keys() - rows))
        for number, count in sorted(times.items()):
            if count > 1:
                yield Fault.TASK_TWICE, f"{task} of {number}, {count} times"


def _sums(facts: Facts) -> Iterable[tuple[Fault, str]]:
    due, sold = Counter[str](), Counter[str]()
    for order in facts.orders:
        due[order.customer] += order.cents
        sold[order.product] += 1
    for fault, found, expected in (
        (Fault.SUM_WRONG, facts.spent, due),
        (Fault.STOCK_WRONG, facts.sold, sold),
    ):
        for name in sorted({*found, *expected}):
            if found.get(name, 0) != expected[name]:
                yield fault, f"{name}: {found.get(name, 0)}, and not {expected[name]}"


def _left(facts: Facts) -> Iterable[tuple[Fault, str]]:
    yield from ((Fault.IN_DOUBT, each) for each in facts.in_doubt)
    yield from ((Fault.DECISION_LEFT, each) for each in facts.decisions)
    yield from ((Fault.OUTBOX_LEFT, each) for each in facts.outbox)
    yield from ((Fault.MESSAGE_LEFT, f"{count} in {queue}") for queue, count in facts.queues.items() if count)
    if facts.damage:
        yield Fault.DAMAGED, facts.damage
