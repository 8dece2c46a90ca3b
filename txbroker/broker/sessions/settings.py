"""The settings of a broker: every limit and time-out by which it judges requests, in one place.

None of them changes what is on disk: a record carries its results, so a broker can be started again with other limits.
``docs/operations.md`` explains how to choose them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from journal.constants import KIB, MAX_FRAME, MAX_PARTITIONS_PER_TOPIC, MAX_REQUEST_DATA, MIB
from journal.errors import InvalidSetting
from journal.quantities import Bytes, Micros, Quantity, check_range, quantities_of, written
from journal.records.group_entries import LEAST_EXPIRY, LONGEST_EXPIRY

SECOND: Final = 1_000_000
DAY: Final = 24 * 3600 * SECOND
YEARS: Final = 10 * 366 * DAY


class OrphanAction(StrEnum):
    """What happens to a transaction that stays prepared beyond ``orphan_age``."""

    ALERT = "alert"
    ROLL_BACK = "rollback"
    COMMIT = "commit"


RANGES: Final[dict[str, tuple[int, int]]] = {
    "max_frame": (64, MAX_FRAME),
    "max_request": (64, MAX_REQUEST_DATA),
    "max_sessions": (1, 1_000_000),
    "hello_timeout": (1_000, 3600 * SECOND),
    "idle_timeout": (SECOND, YEARS),
    "max_topics": (1, 1_000_000),
    "max_topic_partitions": (1, MAX_PARTITIONS_PER_TOPIC),
    "max_producers": (1, 10_000_000),
    "max_producers_per_session": (1, 10_000_000),
    "max_producer_partitions": (1, 100_000_000),
    "producer_age": (SECOND, YEARS),
    "producer_idle": (SECOND, YEARS),
    "max_streams": (1, 10_000_000),
    "max_queues": (1, 1_000_000),
    "max_scheduled": (1, 1_000_000_000),
    "max_scheduled_bytes": (MIB, 1 << 50),
    "max_groups": (1, 1_000_000),
    "max_group_positions": (1, 100_000_000),
    "group_expiry": (LEAST_EXPIRY, LONGEST_EXPIRY),
    "max_members": (1, 1_000_000),
    "assignment_delay": (0, 60 * SECOND),
    "reconnect_grace": (0, 3600 * SECOND),
    "rejoin_timeout": (0, DAY),
    "max_offset_metadata": (0, 64 * KIB),
    "max_ahead": (1, 1_000_000),
    "max_parked": (1, 1_000_000),
    "max_fetch": (64 * KIB, 256 * MIB),
    "max_fetch_positions": (1, 100_000),
    "max_fetch_wait": (0, 3600 * SECOND),
    "max_fetches_per_session": (1, 100_000),
    "max_preview": (0, 16 * MIB),
    "transaction_timeout": (1_000, YEARS),
    "orphan_age": (SECOND, YEARS),
    "pending_bytes": (64 * KIB, 1 << 40),
}
"""Least and greatest value of each number, both allowed."""

OPTIONAL: Final = frozenset({"orphan_age", "idle_timeout", "group_expiry"})
"""Settings that may be None: switched off."""


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and time-outs of a broker; sizes in bytes, times in µs.

    ``max_frame`` is the largest frame (a topic may allow less), ``max_request`` the most data of one request.
    ``hello_timeout`` is how long a peer may take to log in, ``idle_timeout`` how long a session may be
    silent.

    All partitions are bounded by the journal's settings, those that a topic is made with by ``max_topic_partitions``:
    they are made in one go, 4 µs each, while all others wait. A producer is forgotten ``producer_age`` after its last
    message. A client has at most ``max_producers_per_session``, over its reconnections. ``max_producer_partitions``
    bounds the pairs of a producer and a partition that it sends to. When there are so many, or ``max_producers``,
    others are forgotten before a new one is refused (:mod:`txbroker.broker.sends.producer_room`), those that have been
    idle for ``producer_idle`` among them.

    There are at most ``max_streams`` streams of outboxes; none makes room for another.

    There are at most ``max_queues`` queues, each of their priorities counting as one, and as many exchanges.

    At most ``max_scheduled`` messages wait to be due, 8 bytes of memory each, and the logs of the schedule take at most
    ``max_scheduled_bytes``.

    ``max_group_positions`` bounds the pairs of a group and a partition. A group finishes no offset that is more than
    ``max_ahead`` above its lowest unfinished one in that partition, and keeps attempts, due times and reasons of at
    most ``max_parked`` offsets there. A group whose settings do not say when it expires is deleted after
    ``group_expiry`` without use, None for never.

    All groups have at most ``max_members`` members. The partitions of a group are shared out ``assignment_delay`` after
    one has joined, so that several make one assignment. A member whose connection is gone is lost after
    ``reconnect_grace``; the partitions of a static one are kept for it for ``rejoin_timeout`` more.

    A fetch is answered with at most ``max_fetch`` bytes (or one frame) of at most ``max_fetch_positions``
    partitions, waits ``max_fetch_wait`` at most, and a session has ``max_fetches_per_session`` of them
    waiting.

    An active transaction is rolled back ``transaction_timeout`` after it began. A prepared one has no
    time-out; with ``orphan_age`` set, ``orphan_action`` is taken once it has been prepared for that long.

    ``pending_bytes`` is how much may be accepted and not yet forced, or parked, before connections stop being
    read.
    """

    max_frame: Bytes = MAX_FRAME
    max_request: Bytes = MAX_REQUEST_DATA
    max_sessions: int = 20_000
    hello_timeout: Micros = 5 * SECOND
    idle_timeout: Micros | None = None
    max_topics: int = 5_000
    max_topic_partitions: int = 1_000
    max_producers: int = 10_000
    max_producers_per_session: int = 100
    max_producer_partitions: int = 50_000
    producer_age: Micros = DAY
    producer_idle: Micros = 900 * SECOND
    max_streams: int = 20_000
    max_queues: int = 10_000
    max_scheduled: int = 1_000_000
    max_scheduled_bytes: Bytes = 8192 * MIB
    max_groups: int = 5_000
    max_group_positions: int = 100_000
    group_expiry: Micros | None = None
    max_members: int = 10_000
    assignment_delay: Micros = SECOND // 2
    reconnect_grace: Micros = 5 * SECOND
    rejoin_timeout: Micros = 60 * SECOND
    max_offset_metadata: Bytes = 256
    max_ahead: int = 100_000
    max_parked: int = 10_000
    max_fetch: Bytes = 16 * MIB
    max_fetch_positions: int = 1000
    max_fetch_wait: Micros = 60 * SECOND
    max_fetches_per_session: int = 16
    max_preview: Bytes = MIB
    transaction_timeout: Micros = 60 * SECOND
    orphan_age: Micros | None = None
    orphan_action: OrphanAction = OrphanAction.ALERT
    pending_bytes: Bytes = 32 * MIB

    def __post_init__(self) -> None:
        """Raise :class:`InvalidSetting`, naming field, value and range, for the first value out of range."""
        for name, bounds in RANGES.items():
            quantity = quantities_of(BrokerSettings)[name]
            check_range(name, getattr(self, name), quantity, bounds, optional=name in OPTIONAL)
        if not isinstance(self.orphan_action, OrphanAction):
            raise InvalidSetting(
                f"setting orphan_action is {self.orphan_action!r}, it must be one of "
                f"{', '.join(OrphanAction)}; nothing was changed"
            )
        if self.max_frame > self.max_request:
            raise InvalidSetting(
                f"setting max_frame is {written(Quantity.SIZE, self.max_frame)}, it must be at most max_request "
                f"({written(Quantity.SIZE, self.max_request)}): a frame travels inside a request; nothing was changed"
            )
