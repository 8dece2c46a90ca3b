"""The judging of messages that are to be scheduled, before anything of them is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from journal.constants import MAX_FRAME
from journal.errors import InvalidFrame, InvalidSetting, LimitExceeded, MessageTooLarge, UnknownPartition
from journal.formats.compression import WHOLE_ROOM, Room
from journal.formats.envelope import HORIZONS, MINUTE, Clock, envelopes
from journal.formats.frame_check import check_run
from journal.log.message_store import MessageStore
from journal.schedule.schedule import Schedule

SLACK: Final = 60 * MINUTE
"""By how much, in µs, a message may be due later than its log is for: a client's clock may differ."""
MAX_SCHEDULED: Final = 1_000_000
MAX_SCHEDULED_BYTES: Final = 8 << 30
"""What an embedded log keeps at most."""


class Judge:
    """Judges runs of envelopes. ``most`` messages may wait, and the schedule's logs may take ``most_bytes``."""

    def __init__(
        self, schedule: Schedule, most: int = MAX_SCHEDULED, most_bytes: int = MAX_SCHEDULED_BYTES
    ) -> None:
        self._schedule = schedule
        self.most, self.most_bytes = most, most_bytes

    def check(
        self,
        store: MessageStore,
        frames: bytes | memoryview,
        limit: Callable[[MessageStore], int] = lambda store: store.settings.max_message_bytes or MAX_FRAME,
        may: Callable[[set[int]], None] = lambda partitions: None,  # noqa: ARG005
        left: list[Room] | None = None,
        others: int = 0,
    ) -> int:
        """Check a run of frames for a log of the schedule, which are whole and sound; return how many they are.

        ``limit`` gives the largest frame of a partition. ``may`` gets the partitions that they are for before anything
        else is said of those, and may raise. ``left`` is what compressed frames may still have uncompressed in this
        request, ``others`` how many messages for later it has beside these.
        Raises InvalidFrame, MessageTooLarge, UnknownPartition, InvalidSetting and LimitExceeded; nothing has changed
        then.
        """
        schedule, stores = self._schedule, self._schedule.engine.catalog.stores
        latest = {clock: schedule.now(clock) + HORIZONS[store.index] + SLACK for clock in Clock}
        found, left = list(envelopes(frames)), [WHOLE_ROOM] if left is None else left
        may({each.partition for each in found})
        self._check_room(len(found) + others, len(frames))
        for envelope in found:
            target = stores.get(envelope.partition)
            if target is None or target.internal:
                raise UnknownPartition(
                    f"there is no partition number {envelope.partition} that a message could be scheduled for; nothing "
                    "was sent. Its topic may have been deleted: ask for the topics again"
                )
            if not 0 < envelope.due <= latest[envelope.clock]:
                raise InvalidSetting(
                    f"a message is due {(envelope.due - schedule.now(envelope.clock)) / 1e6:,.0f} s from now by the "
                    f"broker's clock, and was sent as one within {HORIZONS[store.index] / 1e6:,.0f} s; nothing was "
                    "sent. See whether the clocks of client and broker agree; ten years is the longest"
                )
            try:
                opens = target.settings.check_compressed != 0
                within = check_run(envelope.frame, limit(target), opens, left=left)
            except MessageTooLarge as error:
                raise MessageTooLarge(f"scheduled for {target.topic}-{target.index}: {error}") from error
            if within != 1:
                raise InvalidFrame("the frame in an envelope holds several messages; each is scheduled alone")
        return len(found)

    def _check_room(self, count: int, size: int) -> None:
        schedule = self._schedule
        waiting = schedule.waiting() + count
        if waiting > self.most:
            raise LimitExceeded(
                f"{waiting:,} messages would wait in the schedule, the limit is {self.most:,}; nothing was sent. Wait "
                "until some are due, take some back, or raise max_scheduled"
            )
        held = sum(store.total_bytes for store in schedule.stores) + size
        if held > self.most_bytes:
            raise LimitExceeded(
                f"the logs of the schedule would take {held:,} bytes, the limit is {self.most_bytes:,}; nothing was "
                "sent. Wait until some are due, or raise max_scheduled_bytes"
            )
