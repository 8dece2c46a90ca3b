"""Priorities of messages: those of a higher one are delivered before the others of their queue.

A queue has its ``max_priority``; each priority up to that has a log of its own (decision 0060).
"""

from __future__ import annotations

from typing import Final

from journal.errors import InvalidFrame
from journal.message_headers import Headers, last_value
from journal.records.queue_entries import MAX_PRIORITY
from txbroker.wire.queues import PRIORITY

_MOST_DIGITS: Final = len(str(MAX_PRIORITY))


def priority_of(headers: Headers) -> int:
    """Return the priority that a message has, 0 by itself; raises :class:`InvalidFrame` if it is none."""
    said = last_value(headers, PRIORITY)
    if said is None:
        return 0
    if len(said) > _MOST_DIGITS or not said.isdigit() or int(said) > MAX_PRIORITY:
        raise InvalidFrame(
            f"header {PRIORITY} is {said[:40]!r}; it must be a number in decimal digits, from 0 to {MAX_PRIORITY}; "
            "nothing was sent"
        )
    return int(said)
