"""Leases of a worker's deliveries: who consumes a queue asks for them, and each delivery comes with one."""

from __future__ import annotations

from typing import Any, Final

from kombu import Queue

LEASE: Final = "x-txbroker-lease"
"""The argument of a consumer that asks for leases, and the header with a delivery's lease."""


def leased(queue: Queue) -> Queue:
    """Have the consumers of a queue ask for leases; return the queue. A broker that knows none passes that over."""
    queue.consumer_arguments = {**(queue.consumer_arguments or {}), LEASE: True}
    return queue


def lease_of(request: Any) -> str | None:
    """Return the lease of a task's delivery, and forget it: a retry must not carry it on."""
    found = getattr(request, LEASE, None)
    if request.headers:
        request.headers.pop(LEASE, None)
    return found if isinstance(found, str) else None
