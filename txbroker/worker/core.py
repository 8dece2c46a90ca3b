"""A worker without I/O: its parts are coroutines that a client runs as threads or as tasks.

One reads messages, as many as may be in hand; ``concurrency`` of them handle messages; one finishes, with one request,
all that was handled since its last request (with a transaction each message is finished by its own); one reports, and
sees to the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from journal.words import count_text
from txbroker import errors
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.positions import Position
from txbroker.client.core.results import Message
from txbroker.worker.face import OVER, Abandoned, Attempt, Face, Hand, Over, Role
from txbroker.worker.failed_messages import FailedMessages
from txbroker.worker.failures import Meaning, described, meaning_of, place_of, too_long
from txbroker.worker.first_position import set_first_position
from txbroker.worker.options import Job
from txbroker.worker.pauses import FIRST_PAUSE, longer
from txbroker.worker.schedule import Lane, Place, Schedule, Work
from txbroker.worker.settling import Settling
from txbroker.worker.tally import Tally

log = logging.getLogger("txbroker.worker")

SHORTEST_LOOK: Final = 0.05
"""Seconds between looks for calls that take too long, at least."""


class WorkerCore:
    """The state of a worker, and its parts. The state is changed under the lock of the face."""

    def __init__(self, face: Face, job: Job) -> None:
        self.job = job
        self.schedule = Schedule(job.options.order, job.options.batch, job.options.concurrency)
        self.tally = Tally()
        self.failure: BaseException | None = None
        """Why the worker ends, if it was not asked to."""
        self.failed: Message | None = None
        """The message whose handler failed, if the worker ends because of that."""
        self.is_stopping = False
        self.is_over = False
        """Whether nothing may be finished any more."""
        self.settling = Settling(face, self)
        self._face = face
        self._failed_messages = FailedMessages(face, self, self.schedule)
        self._hands = job.options.concurrency
        self._is_read = False
        self._has_begun = False
        self._positions: dict[Place, Position] = {}
        self._begun: set[Position] = set()
        self._lost: set[tuple[Place, int]] = set()
        self._attempts: dict[Attempt, None] = {}
        """Those that are under way."""

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Read no more, finish what is under way, then end. May be called again, and from a signal's handler."""
        with self._face.lock:
            self.is_stopping = True
            self._face.wake_all()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error, which :meth:`result` raises; the first one counts."""
        with self._face.lock:
            if self.failure is None:
                self.failure = error
        self.stop()

    def abandon(self) -> None:
        """End now: nothing that is under way is finished any more."""
        with self._face.lock:
            self.is_stopping = self.is_over = True
            self._face.wake_all()

    @property
    def _is_done(self) -> bool:
        """Whether nothing is under way or to be finished, and nothing will be."""
        return not self.may_finish_more and self.settling.has_ended

    @property
    def may_finish_more(self) -> bool:
        """Whether messages are under way, or may be, of which something can be finished."""
        return self._hands > sum(each.has_timed_out for each in list(self._attempts))

    def result(self) -> None:
        """Raise what the worker ended with, if not in order."""
        if self.failure is not None:
            raise self.failure
        timeout = self.job.options.stop_timeout
        left = self.schedule.under_way
        if left:
            places = ", ".join(place_of(message) for work in left[:5] for message in work.messages[:1])
            raise errors.StopTimedOut(
                f"{count_text(len(left), 'call')} of the handler did not end within stop_timeout={timeout:g} s, among "
                f"them those with {places}; their messages stay unfinished, and come again"
            )
        if self.settling.left:
            raise errors.StopTimedOut(
                f"{count_text(self.settling.left, 'message')} handled could not be finished within stop_timeout="
                f"{timeout:g} s; they come again, unless a request that was not answered has finished them"
            )

    def begin(self) -> None:
        """Note that the worker runs; raises Misuse if it has run before."""
        if self._has_begun:
            raise errors.Misuse("this worker has run, or runs; nothing was done. Make another one")
        self._has_begun = True

    async def attend(self) -> None:
        """Report from time to time; after a stop, see to the end."""
        options = self.job.options
        self.tally.begin(time.monotonic())
        log.info("group %s: %d calls of the handler at once", self.job.group, options.concurrency)
        interval, limit = options.report_interval, options.handler_timeout
        report_due = time.monotonic() + interval
        look = interval if limit is None else min(interval, max(limit / 10, SHORTEST_LOOK))
        try:
            while not await self._face.until(Role.ATTEND, self._may_end, look):
                now = time.monotonic()
                if limit is not None:
                    await self._time_out(now - limit)
                if now >= report_due:
                    await self._report()
                    report_due = now + interval
            await self._face.until(
                Role.ATTEND, lambda: self._is_done or self.is_over or None, options.stop_timeout
            )
        finally:
            self.abandon()
            self._face.ended()

    def _may_end(self) -> bool | None:
        return self.is_stopping or self._is_done or None

    async def _time_out(self, before: float) -> None:
        """Give up calls of the handler that have begun before a time, and stop: their threads cannot be ended. Their
        messages have failed, all of a batch: another process must not get them together again.
        """
        for attempt in [each for each in list(self._attempts) if each.time_out(before)]:
            error = too_long(self.job.options.handler_timeout)
            for message in attempt.messages:
                await self._failed(attempt.work, message, error, [])
            self.fail(error)

    async def _report(self) -> None:
        try:
            described_group = await self._face.description()
            own = {(each.topic, each.index) for each in self._read_positions()}
            lag = sum(
                each.lag or 0 for each in described_group.partitions if (each.topic, each.partition) in own
            )
        except errors.TxBrokerError:
            lag = None
        with self._face.lock:
            under_way = sum(len(work.messages) for work in self.schedule.under_way)
            line = self.tally.line(time.monotonic(), self.job.group, under_way, lag)
        log.info("%s", line)

    # -- reading -----------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read messages while there is room for them."""
        pause = FIRST_PAUSE
        while await self._face.until(Role.READ, self._may_read) is not OVER:
            may_come_again = self.schedule.in_hand > 0
            try:
                delivery = await self._face.delivery()
            except errors.GenerationFenced as error:
                if self._lose_fenced(error):
                    self.fail(error)
            except (errors.StorageUnavailable, errors.OutcomeUnknown) as error:
                if pause == FIRST_PAUSE:
                    log.warning("group %s cannot read, and tries again: %s", self.job.group, described(error))
                await self.paused(pause)
                pause = longer(pause)
            except Exception as error:  # noqa: BLE001 - the worker ends with it
                self.fail(error)
            else:
                pause = FIRST_PAUSE
                if delivery is None:
                    await self._at_end(may_come_again)
                else:
                    await self._begin_partition(delivery.position)
                    await self._take_all(delivery)

    async def _at_end(self, may_come_again: bool) -> None:
        """There is nothing more to read; but while messages are in hand, one may fail, and come again."""
        if may_come_again:
            reported = self._failed_messages.reported

            def may_read_on() -> bool | None:
                has_failed = self._failed_messages.reported > reported
                return self.is_stopping or has_failed or not self.schedule.in_hand or None

            await self._face.until(Role.READ, may_read_on)
            return
        with self._face.lock:
            self._is_read = True
            self._face.wake_all()

    async def _begin_partition(self, position: Position) -> None:
        """With transactions, see to the group's position before the first message of a partition is handled."""
        if self.job.options.transaction is None or position in self._begun:
            return
        pause = FIRST_PAUSE
        while not self.is_stopping:
            try:
                core, group = self._face.consumer().core, self.job.group
                await self._face.run(set_first_position(core, group, position))
            except (errors.StorageUnavailable, errors.OutcomeUnknown):
                await self.paused(pause)
                pause = longer(pause)
                continue
            except (errors.OffsetPending, errors.GenerationFenced) as error:
                log.debug("group %s: its transactions will be told: %s", self.job.group, error)
            except Exception as error:  # noqa: BLE001 - the worker ends with it
                self.fail(error)
            self._begun.add(position)
            return

    def _may_read(self) -> Over | bool | None:
        if self.is_stopping or self._is_read:
            return OVER
        return self.schedule.has_room or self._waits_for_lower or None

    @property
    def _waits_for_lower(self) -> bool:
        """Whether all that is in hand is handled, and can be finished only after lower messages, which come again. How
        far the consumer reads is bounded then, by the broker.
        """
        return self.settling.is_too_far_ahead and self.schedule.all_handled

    async def _take_all(self, delivery: Delivery) -> None:
        """Take the messages of a delivery in hand, as there is room for them. It may be withheld at any time."""
        while not delivery.is_empty and await self._face.until(Role.READ, self._may_read) is not OVER:
            with self._face.lock:
                message = delivery.one()  # and so it is in hand, for all that look under the lock
                if message is not None and not delivery.position.ended:  # else others have the partition now
                    self.schedule.add(message, delivery.is_alone(message))
                if self.schedule.has_ready:
                    self._face.wake(Role.HANDLE)

    def _read_positions(self) -> list[Position]:
        return list(self._face.consumer().positions.values())

    def _position(self, place: Place) -> Position | None:
        known = self._positions.get(place)
        if known is None or self._face.consumer().positions.get(known.number) is not known:
            self._positions = {(each.topic, each.index): each for each in self._read_positions()}
            known = self._positions.get(place)
        return known

    def _lose_fenced(self, error: errors.GenerationFenced) -> bool:
        """Drop what is in hand of partitions that others have claimed; return whether these are all."""
        positions = self._read_positions()
        for each in positions:
            if each.ended:
                self._lose_place((each.topic, each.index), each.generation, error)
        return bool(positions) and all(each.ended for each in positions)

    def lose(self, messages: list[Message], error: Exception) -> None:
        """Note that messages of one partition cannot be finished, because others have it."""
        place = messages[0].topic, messages[0].partition
        with self._face.lock:
            self.tally.lost += len(messages)
            position = self._position(place)
        self._lose_place(place, position.generation if position else -1, error)

    def _lose_place(self, place: Place, generation: int, error: Exception) -> None:
        """Note that others have a partition: drop what is in hand of it and not under way, and log it once."""
        with self._face.lock:
            count = self.schedule.drop(place, generation)
            self.tally.lost += count
            is_news = (place, generation) not in self._lost
            self._lost.add((place, generation))
            self._face.wake(Role.READ)
        if is_news:
            log.warning(
                "group %s has lost %s-%d to another consumer: %d messages are dropped, and those under way are rolled "
                "back or not finished (%s)", self.job.group, *place, count, error,
            )  # fmt: skip

    # -- handling ----------------------------------------------------------------------------------

    async def handle(self, hand: Hand) -> None:
        """Handle one work after the other."""
        try:
            while isinstance(work := await self._face.until(Role.HANDLE, self._next), Work):
                await self._handle(hand, work)
        finally:
            try:
                await hand.renew()
            finally:
                with self._face.lock:
                    self._hands -= 1
                    self._face.wake_all()

    def _next(self) -> Over | Work | None:
        if self.is_stopping:
            return OVER
        work = self.schedule.take()
        while work is not None and not self._has(work):
            self._drop(work)
            work = self.schedule.take()
        if work is not None and self.schedule.has_ready:
            self._face.wake(Role.HANDLE)
        if work is None and self.schedule.has_room:
            self._face.wake(Role.READ)
        if work is None and self._is_read and not self.schedule.under_way:
            return OVER
        return work

    def _has(self, work: Work) -> bool:
        """Return whether the partition is still the worker's, by the claim with which the messages were handed out."""
        position = self._position(work.place)
        return position is not None and position.generation == work.generation

    def _drop(self, work: Work) -> None:
        """Drop messages of a partition that the group has given to others since."""
        self.schedule.ended(work)
        self.schedule.finished(work.messages)
        self.tally.lost += len(work.messages)
        self._lose_place(
            work.place, work.generation, errors.GenerationFenced("the group gave the partition to others")
        )

    async def _handle(self, hand: Hand, work: Work) -> None:
        """Handle a work to its end. If a batch fails, each of its messages is handled alone.

        ``finished`` are those that are still to be finished for the group.
        """
        finished: list[Message] = []
        error = await self._tried(hand, work, work.messages, finished)
        if error is not None and not isinstance(error, Abandoned):
            if len(work.messages) > 1 and self.job.options.retry is not False:
                await self._handle_alone(hand, work, finished)
            else:
                await self._failed(work, work.messages[0], error, work.messages[1:])
        with self._face.lock:
            self.schedule.ended(work)
            self.settling.add(finished)
            kept = set(map(id, finished))
            self.schedule.finished(message for message in work.messages if id(message) not in kept)
            self._face.wake(Role.READ)
            if self._is_read or self.is_stopping:
                self._face.wake_all()

    async def _handle_alone(self, hand: Hand, work: Work, finished: list[Message]) -> None:
        """Handle each message of a batch alone, but for those that are behind one that fails, or is left."""
        held: set[Lane] = set()
        for place, message in enumerate(work.messages, 1):
            lane = self.schedule.lane(message)
            if lane in held:
                continue
            error = await self._tried(hand, work, [message], finished)
            if isinstance(error, Abandoned):
                return
            if error is not None:
                behind = [each for each in work.messages[place:] if lane and self.schedule.lane(each) == lane]
                held.update(self.schedule.lane(each) for each in behind)
                await self._failed(work, message, error, behind)

    async def _failed(self, work: Work, message: Message, error: Exception, later: Sequence[Message]) -> None:
        """See to it that a message that failed comes again, and ``later`` behind it; or end the worker."""
        if isinstance(error, errors.TooFarAhead):
            await self._failed_messages.postpone(work, [message, *later], error)
            return
        with self._face.lock:
            self.tally.failed += 1
        if self.job.options.retry is False:
            log.error("%s failed, and the worker ends: %s", place_of(message), described(error))
            with self._face.lock:
                if self.failure is None:
                    self.failed = message
            self.fail(error)
            return
        log.error(
            "%s failed, attempt %d: %s",
            place_of(message),
            message.attempts + 1,
            described(error),
            exc_info=error,
        )
        await self._failed_messages.report(work, message, error, later)

    async def _tried(
        self, hand: Hand, work: Work, messages: list[Message], finished: list[Message]
    ) -> Exception | None:
        """Handle messages together, again and again if that is not their fault. Return None once they are handled, the
        error if they failed, TooFarAhead if they can be finished only after others, Abandoned if they are left.
        """
        pause = FIRST_PAUSE
        while not self.is_over:
            attempt = Attempt(work, messages, self._face.finishes(), self._face.lock, lambda: self.is_over)
            self._attempts[attempt] = None
            try:
                await self._tell_begun(attempt)
                await hand.attempt(attempt)
            except Abandoned:
                break
            except Exception as caught:  # noqa: BLE001 - what it means is decided here
                error = caught
            else:
                self._handled(messages, finished)
                return None
            finally:
                self._attempts.pop(attempt, None)
                self._not_begun(attempt)
            if attempt.is_over():  # it was cancelled, for example: that is no failure
                break
            meaning = await self._meaning(hand, attempt, error)
            if meaning in (Meaning.FAILED, Meaning.LATER):
                return error
            if meaning is Meaning.COMMITTED:
                self._handled(messages, finished)
                return None
            if meaning is not Meaning.AGAIN:
                self._end_attempt(attempt, error, meaning)
                break
            if pause == FIRST_PAUSE:
                log.warning("%s is handled again: %s", place_of(messages[0]), described(error))
            if error is not attempt.raised:
                await hand.renew()
            if await self.paused(pause):
                break
            pause = longer(pause)
        return Abandoned()

    async def _tell_begun(self, attempt: Attempt) -> None:
        """Tell the broker what is being handled, so that it counts an attempt if this process dies."""
        membership = self._face.consumer().membership
        with self._face.lock:
            position = self._position(attempt.work.place)
        if membership is not None and position is not None and self.job.options.retry is not False:
            is_batch = len(attempt.messages) > 1
            membership.begun.add(attempt, position.number, attempt.messages, is_batch)
            await self._face.tell_begun()

    def _not_begun(self, attempt: Attempt) -> None:
        membership = self._face.consumer().membership
        if membership is not None:
            membership.begun.remove(attempt)

    def _handled(self, messages: list[Message], finished: list[Message]) -> None:
        if self.job.options.transaction is None:  # else they are finished with it
            finished += messages
        with self._face.lock:
            self.tally.handled += len(messages)

    async def _meaning(self, hand: Hand, attempt: Attempt, error: Exception) -> Meaning:
        """Return what an error means for the messages, once that is decided."""
        meaning = meaning_of(error, error is attempt.raised, attempt.ask is not None)
        if meaning is Meaning.UNDECIDED:
            meaning = await self._asked(hand, attempt)
        with self._face.lock:
            self.tally.again += meaning in (Meaning.AGAIN, Meaning.LATER)
        return meaning

    def _end_attempt(self, attempt: Attempt, error: Exception, meaning: Meaning) -> None:
        if meaning is Meaning.LOST:
            with self._face.lock:
                self.tally.lost += len(attempt.messages)
            self._lose_place(attempt.work.place, attempt.work.generation, error)
        elif meaning is Meaning.FATAL:
            self.fail(error)

    async def _asked(self, hand: Hand, attempt: Attempt) -> Meaning:
        """Return whether a transaction was committed whose commit was not answered; UNDECIDED if the worker ended
        before that was known.
        """
        pause = FIRST_PAUSE
        while not self.is_over:
            try:
                return Meaning.COMMITTED if await hand.outcome(attempt) else Meaning.AGAIN
            except errors.TransactionRolledBack:
                return Meaning.AGAIN
            except (errors.OutcomeUnknown, errors.StorageUnavailable):
                if (fatal := self._face.consumer().core.fatal) is not None:  # nobody will ever answer
                    self.fail(fatal)
                    break
                await self._face.until(Role.PAUSE, lambda: self.is_over or None, pause)
                pause = longer(pause)
            except Exception as error:  # noqa: BLE001 - the worker ends with it
                self.fail(error)
                break
        return Meaning.UNDECIDED

    async def paused(self, seconds: float) -> bool:
        """Wait; return whether the worker is to stop."""
        return bool(await self._face.until(Role.PAUSE, lambda: self.is_stopping or None, seconds))
