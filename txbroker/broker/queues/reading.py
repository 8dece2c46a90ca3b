"""Messages read from the log of a queue."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from journal.log.message_store import MessageStore
from journal.schedule.steps import Work


def read(store: MessageStore, first: int, end: int, most: int) -> Generator[Work | None, Any, bytes]:
    """Return frames from offset ``first`` on, about ``most`` bytes but at least one, none that begins at ``end`` or
    above. Yields work for another thread if they are on the disk, and takes its result.
    """
    with closing(store.plan_read(first, most, end)) as plan:
        found = plan.run_now()
    if found is None:
        found = yield store.plan_read(first, most, end).run
    data: bytes = found.data
    return data
