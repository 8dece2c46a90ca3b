"""Fetches: messages to readers, and fetches that wait for messages.

A fetch is carried out at once if memory or the page cache has the bytes, else on the reader pool. One answer comes from
either, as the first partition with something to read has it: so nothing is held while the disk is waited for, and a
client that rotates its partitions starves none. An answer ends early if reading takes longer than the session's turn. A
fetch waits while there are too few bytes, while its session has a read at the disk, and while its peer does not take
the answers that it has already. So the memory for a slow consumer is bounded by its session's one read and its unsent
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.constants import KIB
from journal.folds.groups import GroupsFold
from journal.formats.frame import append_time
from journal.log.read_plan import Frames, GoesOn, always
from txbroker.broker.fetches.fetch_attempt import (
    CallLater,
    Part,
    PendingFetch,
    Reading,
    run_plans,
    unreadable,
)
from txbroker.broker.fetches.filtered_fetches import FilteredFetches
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.latencies import SKIPPED
from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import CorruptData, LimitExceeded, StorageUnavailable, TxBrokerError
from txbroker.groups.group_position import GroupPosition, Told
from txbroker.groups.group_reading import GroupReading
from txbroker.groups.tag_filtering import TagFiltering
from txbroker.wire.codec import encode_parts
from txbroker.wire.messages import Cancel, Fetch, Fetched
from txbroker.wire.refusals import refusal, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore
    from txbroker.broker.sessions.allowance import Allowance

LEAST_COLD_READ = 64 * KIB
"""Partitions that are read on the reader pool share the answer's bytes, but none gets less than this."""

MOST_LOGGED = 1000
"""How many different failures of reading are logged during one start."""

MOST_SETS: Final = 1 << 20
"""Most bytes of sets of offsets, and of attempts, in one answer."""

SIZE_OF_ATTEMPTS: Final = 12
"""About how many bytes an offset with its attempts takes."""

MOST_COLD_READS: Final = 32
"""How many partitions one fetch reads on the reader pool: each of them holds a file open until its turn."""

Done = Callable[[Any], None]
Failed = Callable[[BaseException], None]
RunBlocking = Callable[[Callable[[], Any], Done, Failed], None]


def run_inline(work: Callable[[], Any], done: Done, failed: Failed) -> None:
    """Run work at once, instead of on a reader pool; for tests and tools."""
    try:
        result = work()
    except Exception as error:  # noqa: BLE001  (whatever it is, the fetch that wanted it is told)
        failed(error)
    else:
        done(result)


class Fetching:
    """The meaning of Fetch. ``bytes`` counts the bytes sent."""

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        run_blocking: RunBlocking,
        call_later: CallLater | None,
        answers: Accounts,
        groups: GroupsFold,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._stores = engine.catalog.stores
        self._waiting: dict[int, dict[PendingFetch, None]] = {}
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._answers = answers
        self._groups = GroupReading(engine, settings.max_ahead, groups, self._look)
        self.filtering = TagFiltering(engine, groups, settings.max_ahead)
        self._filtered = FilteredFetches(engine, self.filtering)
        self.goes_on: GoesOn = always
        """Whether the present read may take longer; the scheduler sets it."""
        self.bytes = 0
        self.fetches = 0
        self.on_read: Callable[[int], object] = bool
        """Called with when the first message of some answers was appended."""
        self.gave: Callable[[Allowance, int], object] = unheard
        """Called with the bytes of messages that a principal with quotas gets."""
        self._logged: set[str] = set()

    @property
    def waiting(self) -> int:
        """How many (fetch, partition) pairs wait for messages."""
        return sum(map(len, self._waiting.values()))

    def fetch(self, session: Session, command: Fetch, data: memoryview) -> None:  # noqa: ARG002
        """Answer, now or when there is enough or time is up."""
        settings = self._settings
        if len(command.positions) > settings.max_fetch_positions:
            raise LimitExceeded(
                f"a fetch of {len(command.positions)} partitions, the limit is "
                f"{settings.max_fetch_positions} (max_fetch_positions); ask for fewer at a time"
            )
        if len(session.fetches) >= settings.max_fetches_per_session:
            raise LimitExceeded(
                f"{len(session.fetches)} fetches of this session are unanswered, the limit is "
                f"{settings.max_fetches_per_session} (max_fetches_per_session); wait for their answers"
            )
        fetch = PendingFetch(session, command, self._groups.positions_of(command) if command.readers else {})
        session.fetches[fetch] = None
        self._try(fetch)

    def cancel(self, session: Session, command: Cancel, data: memoryview) -> None:  # noqa: ARG002
        """Answer a fetch now. If it waits for the disk, or for unread answers, it is answered after those."""
        for fetch in session.fetches:
            if fetch.command.correlation == command.fetch:
                self._expire(fetch)
                return

    def read_groups(self) -> set[str]:
        """Return the groups for which claimed partitions were read since this was called last, or are being read."""
        return self._groups.read()

    # -- waking -----------------------------------------------------------------------------------

    def published(self, stores: Iterable[MessageStore]) -> None:
        """Carry out the fetches for which these stores have enough now. Called once per forced group."""
        waiting = self._waiting
        if not waiting:
            return
        woken: dict[PendingFetch, None] = {}
        for store in stores:
            if store.number in waiting:
                woken.update(waiting[store.number])
        for fetch in woken:
            if not fetch.wanted or sum(s.end_position for s in fetch.waits_for) >= fetch.wanted:
                self._later(fetch)

    def look_again(self, numbers: Iterable[int]) -> None:
        """Try the fetches again that wait for these partitions: they are gone, or begin later now."""
        for number in numbers:
            for fetch in list(self._waiting.get(number, ())):
                self._later(fetch)

    def _look(self, fetch: PendingFetch) -> None:
        """Try a fetch again if it still waits: something has changed for a group that it reads for."""
        if fetch in fetch.session.fetches:
            self._later(fetch)

    def _is_due(self, fetch: PendingFetch) -> None:
        fetch.due = None
        self._look(fetch)

    def drained(self, session: Session) -> None:
        """Continue with the session's fetches, in order: its peer has taken its answers, or its quota is not used up
        any more.
        """
        for fetch in list(session.fetches):
            self._later(fetch)

    def _later(self, fetch: PendingFetch) -> None:
        """Try in the session's next turn, because there may be thousands of others."""
        session = fetch.session
        if session.wake is None:
            self._try(fetch)
        else:
            session.due[fetch] = self._try
            session.wake()

    def forget(self, session: Session) -> None:
        """Drop the session's fetches: it has ended."""
        for fetch in list(session.fetches):
            self._stop(fetch)

    def answer_all(self, sessions: Iterable[Session]) -> None:
        """Answer every waiting fetch with what there is: the broker is stopping."""
        for session in sessions:
            for fetch in list(session.fetches):
                self._expire(fetch)

    def _timed_out(self, fetch: PendingFetch) -> None:
        fetch.timer = None
        self._expire(fetch)

    def _expire(self, fetch: PendingFetch) -> None:
        """Answer as soon as possible, with what there is."""
        if fetch in fetch.session.fetches:
            fetch.expired = True
            self._try(fetch)

    # -- reading ----------------------------------------------------------------------------------

    def _try(self, fetch: PendingFetch) -> None:
        session = fetch.session
        fetch.is_stuck = False
        if session.congested or session.reading:
            return
        if session.allowance is not None and session.allowance.holds_fetches:
            return
        session.due.pop(fetch, None)
        reading = self._read(fetch)
        least = max(1, min(fetch.command.min_bytes, reading.room))
        if reading.cold or reading.filtered:
            self._read_cold(fetch, reading)
        elif reading.found >= least or reading.cut or reading.failed or reading.news or fetch.expired:
            self._answer(fetch, reading)
        else:
            self._wait(fetch, reading, least)

    def _read(self, fetch: PendingFetch) -> Reading:
        command, for_groups = fetch.command, fetch.for_groups
        room = max(1, min(command.max_bytes, self._settings.max_fetch))
        reading = Reading(room)
        left = len(command.positions)
        for partition, offset, until in command.positions:
            store = self._stores.get(partition)
            part = Part(partition, offset, store)
            reading.parts.append(part)
            if store is None:
                part.error = unknown_partition(partition)
            elif room > 0 and not self._is_over(reading):
                try:
                    end = until or store.high_watermark
                    if for_groups:
                        place = len(reading.parts) - 1
                        position = for_groups.get(place)
                        if position is not None:
                            end = self._skip(fetch, reading, place, position, end)
                        if position is not None and position.tags:
                            if len(reading.cold) + len(reading.filtered) < MOST_COLD_READS:
                                room -= self._filtered.plan(fetch, reading, place, store, until, room, left)
                            left -= 1
                            continue
                    room -= self._read_one(reading, part, store, end, room, left)
                except TxBrokerError as refused:
                    part.error = refused
                except OSError as failed:  # this may be called while a group is published, which must go on
                    part.error = unreadable(failed)
            reading.failed = reading.failed or part.error is not None
            left -= 1
        return reading

    def _skip(
        self, fetch: PendingFetch, reading: Reading, place: int, position: GroupPosition, until: int
    ) -> int:
        """Go over what the group has finished that a position is read for, and over what was examined for its filter;
        return where to end.
        """
        position.check()
        part = reading.parts[place]
        end = position.readable(min(until, part.high_watermark))
        part.end = position.first_unfinished(end)
        reading.news = reading.news or part.end > position.offset or position.news()
        if fetch.examined is not None:
            part.end = max(part.end, fetch.examined.end(place, position.tags))
        return end

    def _is_over(self, reading: Reading) -> bool:
        """Return whether there is something to answer, and others wait for their turn."""
        over = reading.found > 0 and not self.goes_on()
        reading.cut = reading.cut or over
        return over

    def _read_one(
        self, reading: Reading, part: Part, store: MessageStore, until: int, room: int, left: int
    ) -> int:
        """Read one partition of ``left`` to go, or keep a plan for it; return how many bytes of the answer that
        takes.
        """
        reading.stores.append(store)
        offset = part.end
        if offset == store.high_watermark or until <= offset < store.high_watermark:
            return 0  # most of a thousand partitions: 0.5 ms instead of 2 for all
        share = min(room, max(LEAST_COLD_READ, room // left))
        if reading.cold:
            if (
                len(reading.cold) == MOST_COLD_READS
                or not store.start_offset <= offset < store.flushed_offset
            ):
                return 0
            reading.cold.append((part, store.plan_read(offset, share, until)))
            return share
        plan = store.plan_read(offset, room, until)
        frames = plan.run_now(self.goes_on)
        if frames is None:
            plan.close()
            if reading.found:
                reading.cut = True
                return 0
            reading.cold.append((part, store.plan_read(offset, share, until)))
            return share
        size = len(frames.data)
        if size > room and reading.found:
            return room  # one frame that is too large for the rest: the next fetch gets it
        part.data, part.end = frames
        reading.found += size
        self._is_over(reading)  # then there may be more than was read
        return size

    def _read_cold(self, fetch: PendingFetch, reading: Reading) -> None:
        plans = [*reading.cold, *reading.filtered]
        reading.cold, reading.filtered = [], []
        fetch.session.reading = True
        self._run_blocking(
            partial(run_plans, plans),
            partial(self._read_done, fetch, reading),
            partial(self._read_failed, fetch),
        )

    def _read_done(self, fetch: PendingFetch, reading: Reading, results: list[tuple[Part, Any]]) -> None:
        session = fetch.session
        session.reading = False
        if fetch in session.fetches:
            goes_on = False
            for part, result in results:
                if isinstance(result, TxBrokerError):
                    part.error = result
                    reading.failed = True
                elif not isinstance(result, Frames):
                    goes_on = self._filtered.take(fetch, reading, part, result) or goes_on
                elif not reading.found or reading.found + len(result.data) <= reading.room:
                    part.data, part.end = result
                    reading.found += len(result.data)
            if fetch.examined is None or self._is_answer(fetch, reading):
                self._answer(fetch, reading)
            else:
                self._start_timer(fetch)
                fetch.is_stuck = not goes_on
                if fetch.is_stuck:
                    self._wait(fetch, reading, 1)
        self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """Continue with the session's fetches, in order, but for those that have just got no further."""
        for fetch in list(session.fetches):
            if not fetch.is_stuck:
                self._later(fetch)

    def _is_answer(self, fetch: PendingFetch, reading: Reading) -> bool:
        """Return whether what was examined for a fetch is to be answered, or it goes on."""
        is_told = reading.found > 0 or reading.failed or reading.news or fetch.expired
        return is_told or self._filtered.is_enough(fetch)

    def _read_failed(self, fetch: PendingFetch, error: BaseException) -> None:
        """Refuse this fetch, because the disk or the pool failed, not one partition; the session continues."""
        session = fetch.session
        session.reading = False
        if fetch in session.fetches:
            self._stop(fetch)
            self._tell(f"reading failed: {error}")
            unreadable = TxBrokerError(f"reading failed: {error}; try again, and look at the broker's log")
            for part in encode_parts(refusal(fetch.command.correlation, unreadable), []):
                session.deliver(part)
        self.drained(session)

    # -- answering --------------------------------------------------------------------------------

    def _tell_groups(self, fetch: PendingFetch, reading: Reading) -> None:
        """Add to the results what groups have finished and what waits, as things are now."""
        room = MOST_SETS
        for place, position in fetch.for_groups.items():
            part = reading.parts[place]
            if part.error is not None:
                continue
            try:
                position.check()
                unmatched = None if fetch.examined is None else fetch.examined.unmatched.get(place)
                told = position.told(part.end, unmatched)
            except TxBrokerError as error:
                reading.found -= len(part.data)
                part.error, part.data, reading.failed = error, b"", True
                continue
            room -= len(told.finished) + len(told.waiting) + SIZE_OF_ATTEMPTS * len(told.attempts)
            if room < 0:  # the next fetch gets the rest
                reading.found -= len(part.data)
                part.data, part.end = b"", position.offset
                told = Told(b"", position.still(), [])
            part.finished, part.waiting, part.attempts = told

    def _answer(self, fetch: PendingFetch, reading: Reading) -> None:
        self._stop(fetch)
        if fetch.for_groups:
            if fetch.examined is not None:
                self._filtered.finish(fetch, reading)
            self._tell_groups(fetch, reading)
        answer = Fetched(fetch.command.correlation, [part.told() for part in reading.parts])
        parts = encode_parts(answer, [part.data for part in reading.parts if part.data])
        session = fetch.session
        deliver = session.deliver
        self.fetches += 1
        self.bytes += reading.found
        session.work += reading.found
        if session.allowance is not None:
            self.gave(session.allowance, reading.found)
        if self._is_undecided(fetch, reading):
            for each in reading.parts:
                if isinstance(each.error, CorruptData | StorageUnavailable):
                    self._tell(str(each.error))
            self._answers.put(session, b"".join(parts))
        else:
            for part in parts:
                deliver(part)
        if not self.fetches & SKIPPED:
            self._tell_age(reading)

    def _tell_age(self, reading: Reading) -> None:
        first = next((part.data for part in reading.parts if part.data), None)
        if first is not None:
            self.on_read(append_time(first))

    def _is_undecided(self, fetch: PendingFetch, reading: Reading) -> bool:
        """Return whether an answer tells of a decision that is not on disk yet.

        An error may tell of a topic's deletion or a claim, and the start of a log of retention's. What a group may read
        tells of what was finished, and of the ends of transactions.
        """
        if reading.failed or self._engine.catalog.start_moved_lsn > self._engine.forced_lsn:
            return True
        return bool(fetch.for_groups) and self._groups.is_unforced(fetch)

    def _tell(self, error: str) -> None:
        """Log an error for the operator, not only for the reader; each once, because readers try again."""
        if error not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(error)
            self.log.error("{error}", error=error)

    def _wait(self, fetch: PendingFetch, reading: Reading, least: int) -> None:
        if not fetch.waits_for:
            fetch.waits_for = reading.stores
            for store in reading.stores:
                self._waiting.setdefault(store.number, {})[fetch] = None
            self._start_timer(fetch)
            if fetch.for_groups:
                self._groups.wait(fetch)
        if fetch.for_groups:
            self._wait_until_due(fetch)
        fetch.wanted = 0
        if (
            least > 1
            and fetch.examined is None
            and all(s.end_offset == s.high_watermark for s in reading.stores)
        ):
            fetch.wanted = least - reading.found + sum(s.end_position for s in reading.stores)

    def _start_timer(self, fetch: PendingFetch) -> None:
        """Have a fetch be answered in time, with what there is then."""
        if fetch.timer is None and self._call_later is not None:
            wait = min(fetch.command.max_wait, self._settings.max_fetch_wait)
            fetch.timer = self._call_later(wait / 1e6, partial(self._timed_out, fetch))

    def _wait_until_due(self, fetch: PendingFetch) -> None:
        """Set the timer for the next offset that becomes due of what the fetch waits for."""
        if fetch.due is not None:
            fetch.due.cancel()
            fetch.due = None
        due = min(filter(None, [each.next_due() for each in fetch.for_groups.values()]), default=0)
        if due and self._call_later is not None:
            wait = max(due - self._engine.now(), 0)
            fetch.due = self._call_later(wait / 1e6, partial(self._is_due, fetch))

    def _stop(self, fetch: PendingFetch) -> None:
        fetch.session.fetches.pop(fetch, None)
        fetch.session.due.pop(fetch, None)
        if fetch.timer is not None:
            fetch.timer.cancel()
            fetch.timer = None
        if fetch.for_groups:
            self._groups.stop(fetch)
            if fetch.due is not None:
                fetch.due.cancel()
                fetch.due = None
        for store in fetch.waits_for:
            waiting = self._waiting.get(store.number)
            if waiting is not None:
                waiting.pop(fetch, None)
                if not waiting:
                    del self._waiting[store.number]
        fetch.waits_for = []
