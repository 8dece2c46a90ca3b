"""What the clients of a history of queues remember."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.transaction_states import Totals
from tests.queues.model.message_model import Retry
from tests.queues.model.routing_model import Message


@dataclass
class Draft:
    """What a client has of a transaction that it has begun."""

    serial: int
    count: int = 0
    requests: int = 0
    checksum: int = 0
    is_refused: bool = False

    @property
    def totals(self) -> Totals:
        return Totals(self.count, self.requests, self.checksum)


@dataclass
class Notes:
    """What the clients of a history remember."""

    numbers: int = 0
    drafts: dict[str, list[Draft]] = field(default_factory=dict)
    """Of each session."""
    xids: list[str] = field(default_factory=list)
    producers: dict[str, int] = field(default_factory=dict)
    """Of each client."""
    sent: dict[int, list[tuple[int, int, list[Message]]]] = field(default_factory=dict)
    """What each producer has sent: address, sequence, messages."""
    settled: list[tuple[int, list[int], list[Retry]]] = field(default_factory=list)
    """What somebody has acknowledged and returned before."""
