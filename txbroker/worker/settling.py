"""Finishing messages without a transaction: with one request, all that have come since the last request."""

from __future__ import annotations

import logging
from typing import Protocol

from txbroker import errors
from txbroker.client.core.results import Message
from txbroker.worker.face import OVER, Face, Over, Role
from txbroker.worker.failures import described, place_of
from txbroker.worker.pauses import FIRST_PAUSE, longer
from txbroker.worker.schedule import Place, Schedule

log = logging.getLogger("txbroker.worker")

_LATER = (errors.OffsetPending, errors.TooFarAhead)
"""Refusals for now: a transaction holds the offset, or it is too far beyond the first unfinished message."""


class Settled(Protocol):
    """The worker whose messages are finished."""

    schedule: Schedule
    is_over: bool

    @property
    def may_finish_more(self) -> bool:
        """Whether messages are under way."""

    def lose(self, messages: list[Message], error: Exception) -> None:
        """Note that others have the partition of these messages."""

    def fail(self, error: BaseException) -> None:
        """End the worker with an error."""


class Settling:
    """The messages that are to be finished. They stay in hand until they are, so what cannot be finished is bounded."""

    def __init__(self, face: Face, worker: Settled) -> None:
        self._face = face
        self._worker = worker
        self._waiting: list[Message] = []
        self._asked_for: list[Message] = []
        self.has_ended = False
        self.is_too_far_ahead = False
        """Whether some cannot be finished before lower ones."""

    def add(self, messages: list[Message]) -> None:
        """Have messages finished; under the lock."""
        if messages:
            self._waiting += messages
            self._face.wake(Role.SETTLE)

    @property
    def left(self) -> int:
        """How many messages are to be finished, or are being finished."""
        return len(self._waiting) + len(self._asked_for)

    async def run(self) -> None:
        """Finish messages until none can come any more."""
        pause = FIRST_PAUSE
        try:
            while isinstance(messages := await self._face.until(Role.SETTLE, self._next), list):
                self.is_too_far_ahead = False
                left = await self._finish(messages)
                kept = set(map(id, left))
                with self._face.lock:
                    self._worker.schedule.finished(each for each in messages if id(each) not in kept)
                    self._waiting[:0] = left
                    self._asked_for = []
                    self._face.wake(Role.READ)
                if left:
                    await self._face.until(Role.PAUSE, lambda: self._worker.is_over or None, pause)
                pause = longer(pause) if left else FIRST_PAUSE
        finally:
            with self._face.lock:
                self.has_ended = True
                self._face.wake_all()

    def _next(self) -> Over | list[Message] | None:
        if self._worker.is_over:
            return OVER
        if not self._waiting:
            return None if self._worker.may_finish_more else OVER
        self._asked_for, self._waiting = self._waiting, []
        return self._asked_for

    async def _finish(self, messages: list[Message]) -> list[Message]:
        """Finish messages, and return those that cannot be finished yet."""
        try:
            await self._face.done(messages)
        except (errors.StorageUnavailable, errors.OutcomeUnknown) as error:
            log.warning("%d messages are finished later: %s", len(messages), described(error))
            return messages
        except errors.RequestRefused as error:
            return await self._refused(messages, error)
        except Exception as error:  # noqa: BLE001 - the worker ends with it
            self._worker.fail(error)
        return []

    async def _refused(self, messages: list[Message], error: errors.RequestRefused) -> list[Message]:
        """Find out which partitions a refusal is about."""
        by_place: dict[Place, list[Message]] = {}
        for message in messages:
            by_place.setdefault((message.topic, message.partition), []).append(message)
        if len(by_place) > 1:
            left: list[Message] = []
            for each in by_place.values():
                left += await self._finish(each)
            return left
        if isinstance(error, errors.TooFarAhead) and len(messages) > 1:
            # The first unfinished message may be among them: the lower ones first.
            messages.sort(key=lambda message: message.offset)
            half = len(messages) // 2
            lower = await self._finish(messages[:half])
            return lower + (messages[half:] if lower else await self._finish(messages[half:]))
        if isinstance(error, _LATER):
            self.is_too_far_ahead |= isinstance(error, errors.TooFarAhead)
            log.info(
                "%d messages from %s on are finished later: %s", len(messages), place_of(messages[0]), error
            )
            return messages
        if isinstance(error, (errors.GenerationFenced, errors.WrongValue)):  # or not read any more
            self._worker.lose(messages, error)
        else:
            self._worker.fail(error)
        return []
