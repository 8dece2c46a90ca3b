"""The limits of undecided transactions."""

from __future__ import annotations

import msgspec

from journal.constants import MIB
from journal.quantities import Bytes


class TransactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on transactions. Over one of them an add or begin is refused with ``LimitExceeded``.

    ``messages``, ``requests`` (adds), ``bytes`` and ``partitions`` (of messages, and of group positions) are one
    transaction's. Each add takes about 300 bytes of memory beside its frames, also when these are on disk.
    ``outcomes`` is how many ended transactions are remembered, beside the heuristic ones.
    """

    transactions: int = 200_000
    messages: int = 10_000_000
    requests: int = 1_000_000
    bytes: Bytes = 1024 * MIB
    partitions: int = 4_096
    total_messages: int = 100_000_000
    total_requests: int = 4_000_000
    total_offsets: int = 1_000_000
    total_bytes: Bytes = 16 * 1024 * MIB
    outcomes: int = 100_000
