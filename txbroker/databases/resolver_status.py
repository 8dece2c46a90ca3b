"""What the resolver beside a connection tells of itself."""

from __future__ import annotations

from typing import NamedTuple


class Status(NamedTuple):
    """The state of a connection's background resolver. ``tables`` are the identities of its decision tables.

    ``waiting``, with restored ones, and ``contradicted`` are those of the last passes. ``unacknowledged`` counts
    commits and rollbacks that the broker has not answered yet. ``failure`` is what stopped the last round, or a part of
    it, "" if nothing did.

    Of the outbox: ``undelivered`` counts blocks of this process that are committed and not known to be delivered,
    ``delivered`` rows that were read from the table and delivered, ``refused`` those that were moved away because the
    broker will never take them, and ``stopped`` has the streams that wait at such a row, and why.
    """

    is_running: bool
    tables: list[str]
    passes: int
    committed: int
    rolled_back: int
    removed: int
    waiting: list[str]
    contradicted: list[str]
    unacknowledged: int
    failure: str
    undelivered: int = 0
    delivered: int = 0
    refused: int = 0
    stopped: list[str] = []  # noqa: RUF012 - never changed
