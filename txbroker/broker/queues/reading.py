"""Messages read from the log of a queue."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from journal.errors import WHAT_ELSE, CorruptSegment
from journal.formats.frame import has_gap
from journal.log.message_store import MessageStore
from journal.schedule.steps import Work
from journal.words import span


def read(store: MessageStore, first: int, end: int, most: int) -> Generator[Work | None, Any, bytes]:
    """Return frames from offset ``first`` on, about ``most`` bytes but at least one, none that begins at ``end`` or
    above. Yields work for another thread if they are on the disk, and takes its result.
    """
    with closing(store.plan_read(first, most, end)) as plan:
        found = plan.run_now()
    if found is None:
        found = yield store.plan_read(first, most, end).run
    data: bytes = found.data
    if store.is_compacted and has_gap(data):
        raise _removed(store, first, min(end, found.end) - 1)
    return data


def _removed(store: MessageStore, first: int, last: int) -> CorruptSegment:
    """Return the error for messages that were not finished, and that a compaction has removed nevertheless."""
    what = f"its {span('offset', first, last)}, or a part of them, were removed by a compaction"
    return CorruptSegment(f"{store.directory}: {what}. {WHAT_ELSE}", store.directory, 0, first, last)
