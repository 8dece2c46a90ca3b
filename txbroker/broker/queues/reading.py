"""Messages read from the log of a queue, to be given out, or to be measured."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any, Final

from twisted.logger import Logger

from journal.errors import WHAT_ELSE, CorruptSegment, OffsetOutOfRange
from journal.formats.frame import has_gap
from journal.log.message_store import MessageStore
from journal.log.read_plan import Frames
from journal.schedule.steps import Work
from journal.words import span
from txbroker.queues.measurement import MOST, PIECE, catch_up
from txbroker.queues.queue_deliveries import LevelDeliveries

_log: Final = Logger()


def read(store: MessageStore, first: int, end: int, most: int) -> Generator[Work | None, Any, bytes]:
    """Return frames of messages that are not finished, from offset ``first`` on, about ``most`` bytes but at least one,
    none that begins at ``end`` or above. Yields work for another thread if they are on the disk, and takes its result.
    """
    found = yield from _read(store, first, end, most)
    if store.is_compacted and has_gap(found.data):
        raise _removed(store, first, min(end, found.end) - 1)
    return found.data


def _read(store: MessageStore, first: int, end: int, most: int) -> Generator[Work | None, Any, Frames]:
    with closing(store.plan_read(first, most, end)) as plan:
        found = plan.run_now()
    if found is None:
        found = yield store.plan_read(first, most, end).run
    return found


def _removed(store: MessageStore, first: int, last: int) -> CorruptSegment:
    """Return the error for messages that were not finished, and that a compaction has removed nevertheless."""
    what = f"its {span('offset', first, last)}, or a part of them, were removed by a compaction"
    return CorruptSegment(f"{store.directory}: {what}. {WHAT_ELSE}", store.directory, 0, first, last)


def measure(state: LevelDeliveries) -> Generator[Work | None, Any, bool]:
    """Measure all messages that can be got, in a queue whose bytes are bounded; return whether that is done. If it is
    not, the disk has failed.
    """
    while not catch_up(state, end := state.store.high_watermark):
        first = state.measured
        try:
            found = yield from _read(state.store, first, end, PIECE)
        except OffsetOutOfRange as error:  # a repair or a deletion has moved the start
            state.pass_over_unmeasured(max(first + 1, error.start))
        except CorruptSegment as error:  # they cannot be got
            state.pass_over_unmeasured(min(end, max(first, error.last_offset) + 1))
        except OSError as error:
            _log.error(
                "the messages of queue {queue!r} cannot be measured, and it is tried again: {error}",
                queue=state.queue.name, error=str(error),
            )  # fmt: skip
            return False
        else:
            state.measure(found.data, min(end, first + MOST))
            yield None
    return True
