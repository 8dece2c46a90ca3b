"""The plan of a measurement: what the command line asks for, and the share of each process of the generator."""

from __future__ import annotations

import enum
from struct import Struct

import msgspec

HEADER = Struct(">IIQQ")
"""The head of each message: the run's number, the client's, the message's, and when it was to be sent (µs)."""

SMALLEST = HEADER.size

MICROS = 1_000_000


class Kind(enum.StrEnum):
    """The kinds of measurement."""

    PRODUCE = "produce"
    CONSUME = "consume"
    TRANSACTIONS = "transactions"
    LATENCY = "latency"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement. Times in seconds, sizes in bytes; exactly one of ``seconds`` and ``count`` is not None.

    ``rate`` is how many operations (messages, or transactions) shall begin each second, over all clients; 0 for a
    closed loop, in which each client has ``depth`` of them under way. ``run`` tells this run's messages from others.
    ``messages`` and ``touched`` are how many messages a transaction has, and for how many partitions. ``phases``:
    ask the broker for the times of each request.
    """

    kind: Kind
    url: str
    topic: str
    run: int
    partitions: int = 1
    size: int = 100
    rate: float = 0.0
    clients: int = 1
    processes: int = 1
    depth: int = 1
    linger: float = 0.0
    batch_bytes: int = 64 << 10
    keys: str = "none"
    seconds: float | None = 10.0
    count: int | None = None
    warm_up: float = 2.0
    messages: int = 1
    touched: int = 1
    two_phase: bool = False
    phases: bool = False
    timeout: float = 30.0

    @property
    def unit(self) -> str:
        """Return the name of one operation."""
        return "transactions" if self.kind is Kind.TRANSACTIONS else "messages"


class Share(msgspec.Struct, frozen=True):
    """One process's share of a plan: clients ``first`` to ``first + clients`` of all, and its part of ``count``."""

    plan: Plan
    first: int
    clients: int
    count: int | None


def shares(plan: Plan) -> list[Share]:
    """Cut the plan into shares of equal size, as far as possible; no more processes than clients."""
    processes = min(plan.processes, plan.clients)
    edges = [plan.clients * number // processes for number in range(processes + 1)]
    done = [None if plan.count is None else plan.count * edge // plan.clients for edge in edges]
    return [
        Share(
            plan,
            edges[number],
            edges[number + 1] - edges[number],
            None if plan.count is None else done[number + 1] - done[number],  # type: ignore[operator]
        )
        for number in range(processes)
    ]
