"""Leases: who knows one takes a delivery over from the session that has it (decision 0059).

A consumer that hands its messages to other processes asks for them. What was taken over is the new session's, in every
respect: its acknowledgement can be part of a transaction there, and with its end the message is returned. The session
that had it before has no part in it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from txbroker.broker.sessions.session import Session
from txbroker.errors import AccessDenied, DeliveryLost
from txbroker.queues.deliveries import Deliveries
from txbroker.wire.messages import Request, TakenOver, TakeOver

LEASE_BYTES: Final = 16


class _Lease(NamedTuple):
    """A delivery of a session of that number, whose principal may take it over. ``on_taken`` is called then."""

    session: int
    principal: str
    partition: int
    offset: int
    on_taken: Callable[[], object]


class Leases:
    """All leases. ``random(n)`` returns n unguessable bytes, ``now()`` is the journal time."""

    def __init__(
        self, deliveries: Deliveries, random: Callable[[int], bytes], now: Callable[[], int]
    ) -> None:
        self._deliveries, self._random, self._now = deliveries, random, now
        self._leases: dict[bytes, _Lease] = {}
        self._of_session: dict[int, set[bytes]] = {}
        self.handlers: dict[type[Request], Any] = {TakeOver: self.take_over}

    def __len__(self) -> int:
        return len(self._leases)

    def grant(self, session: Session, partition: int, offset: int, on_taken: Callable[[], object]) -> bytes:
        """Return a lease for a delivery that the session has."""
        lease = self._random(LEASE_BYTES)
        self._leases[lease] = _Lease(session.number, session.principal, partition, offset, on_taken)
        self._of_session.setdefault(session.number, set()).add(lease)
        return lease

    def end(self, lease: bytes) -> None:
        """End a lease: the delivery has come to its end where it is."""
        found = self._leases.pop(lease, None)
        if found is not None:
            self._of_session[found.session].discard(lease)

    def session_ended(self, session: Session) -> None:
        """End all leases of a session: what it had is delivered again, to somebody."""
        for lease in self._of_session.pop(session.number, ()):
            self._leases.pop(lease, None)

    def take_over(self, session: Session, command: TakeOver, data: memoryview) -> TakenOver:  # noqa: ARG002
        """Make a delivery the session's that asks."""
        found = self._leases.get(command.lease)
        if found is not None and found.principal != session.principal:
            raise AccessDenied(
                f"the delivery is {found.principal}'s, and {session.principal} shows its lease; nothing was done"
            )
        state = None if found is None else self._deliveries.at(found.partition)
        is_there = (
            found is not None
            and state is not None
            and state.hand_over(found.session, session.number, found.offset, self._now())
        )
        if found is None or state is None or not is_there:
            raise DeliveryLost(
                "the lease is of no delivery, or of one that has been acknowledged, returned, or taken over since; "
                "nothing was done. The message may be delivered again: what was done for it must not count"
            )
        self.end(command.lease)
        found.on_taken()
        attempts = state.attempts(found.offset)
        return TakenOver(command.correlation, found.partition, found.offset, attempts, state.queue.name)
