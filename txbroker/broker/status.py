"""The status of a broker: its counters and gauges by name; docs/operations.md explains each."""

from __future__ import annotations

from typing import Any, Protocol

import journal
from journal.formats.version import FORMAT, PROGRAM


class Counted(Protocol):
    """The parts of a broker that count something."""

    access: Any
    access_policy: Any
    coordinator: Any
    dead_letters: Any
    delivering: Any
    describing: Any
    engine: Any
    entrance: Any
    fetching: Any
    groups: Any
    orphans: Any
    parked_requests: Any
    producers: Any
    queues: Any
    scheduling: Any
    scrubbed: Any
    sending: Any
    sessions: Any
    started_at: int


def status_of(broker: Counted) -> dict[str, int | float | str]:
    """Return the figures of this moment."""
    sending, fetching = broker.sending, broker.fetching
    return {
        **broker.describing.gauges(),
        **broker.orphans.gauges(broker.engine.now()),
        "version": PROGRAM,
        "format": FORMAT,
        "build": journal.BUILD.value,
        "uptime": broker.engine.now() - broker.started_at,
        "sessions": len(broker.sessions),
        "access_enabled": int(broker.access.is_on),
        "users": len(broker.access.users),
        "logins": broker.entrance.succeeded,
        "logins_refused": broker.entrance.failed,
        "access_denied": broker.access_policy.denied,
        "producers": len(broker.producers.producers),
        "streams": len(broker.delivering.fold.streams),
        "groups": len(broker.groups.groups),
        "members": broker.coordinator.count,
        "dead_letters_waiting": len(broker.dead_letters),
        "dead_letters_moved": broker.dead_letters.moved,
        **broker.scheduling.gauges(),
        **broker.queues.gauges(),
        "messages_in": sending.messages,
        "bytes_in": sending.bytes,
        "repeated_sends": sending.repeats,
        "fetches": fetching.fetches,
        "fetches_waiting": fetching.waiting,
        "bytes_out": fetching.bytes,
        "requests_parked": len(broker.parked_requests.line),
        "bytes_parked": broker.parked_requests.bytes,
        **broker.scrubbed(),
    }
