"""Examples of the wire's messages about queues."""

from __future__ import annotations

from journal.records import queue_entries as q
from txbroker.wire import queues as w

QUEUE = q.Queue(
    "tasks",
    q.QueueSettings(
        3, "dead", "key", overflow=q.Overflow.REJECT_PUBLISH,
        dead_letter_strategy=q.DeadLetterStrategy.AT_LEAST_ONCE, arguments=b"\x01at\x01",
    ),
)  # fmt: skip
EXCHANGE = q.ExchangeSettings(q.ExchangeKind.HEADERS, True, True, delayed=True)
BINDING = q.Binding("orders", "a.#", "tasks", True, (("n", -1), ("t", b"text"), ("v", None), ("x", 0.5)))
REQUESTS = [
    w.DeclareQueue(62, QUEUE.name, QUEUE.settings, True),
    w.DeleteQueue(63, "tasks", 1 << 33, True, True),
    w.PurgeQueue(64, "tasks"),
    w.DeclareExchange(65, "orders", EXCHANGE, True),
    w.DeleteExchange(66, "orders", 1 << 33, True),
    w.Bind(67, BINDING),
    w.Unbind(68, BINDING),
    w.TakeMessages(69, 1 << 33, 100, 1 << 24, 500_000, 1 << 33),
    w.GiveBack(70, 1 << 33, b"\2\5", 1 << 40, True),
    w.ListQueues(71, ["tasks"], "orders", 10),
    w.ListExchanges(72, ["orders"], "", 10, True),
    w.Consume(73, 1 << 33, 1 << 40, True, -1),
    w.StopConsuming(74, 1 << 40),
    w.TakeOver(75, bytes(range(16))),
]
ANSWERS = [
    w.QueueDeclared(62, 1 << 33, 7, 2),
    w.Counted(63, 1 << 33),
    w.ExchangeDeclared(65, 1 << 33),
    w.Taken(69, 1 << 33, [(1 << 40, 2), (7, 1)], [(7, 3)], [(7, 1)]),
    w.TakenOver(75, 1 << 33, 1 << 40, 3, "q"),
    w.Queues(
        71, [w.QueueInfo("tasks", 1 << 33, QUEUE.settings, 9, 4, 3, 2, 1 << 20, -1, 5, 2)], "tasks", True
    ),
    w.Exchanges(
        72, [w.ExchangeInfo("orders", 1 << 33, EXCHANGE, 1 << 40, [BINDING], 1 << 20)], "orders", True
    ),
]
