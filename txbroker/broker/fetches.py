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
from journal.log.read_plan import always
from txbroker.broker.accounts import Accounts
from txbroker.broker.fetch_attempt import CallLater, Part, PendingFetch, Reading, run_plans, unreadable
from txbroker.broker.sends import unknown_partition
from txbroker.broker.session import Session
from txbroker.broker.settings import BrokerSettings
from txbroker.errors import CorruptData, LimitExceeded, StorageUnavailable, TxBrokerError
from txbroker.wire.codec import encode_parts
from txbroker.wire.messages import Cancel, Fetch, Fetched
from txbroker.wire.refusals import refusal

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore
    from journal.log.read_plan import Frames, GoesOn

LEAST_COLD_READ = 64 * KIB
"""Partitions that are read on the reader pool share the answer's bytes, but none gets less than this."""

MOST_LOGGED = 1000
"""How many different failures of reading are logged during one start."""

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
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._stores = engine.catalog.stores
        self._waiting: dict[int, dict[PendingFetch, None]] = {}
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._answers = answers
        self.goes_on: GoesOn = always
        """Whether the present read may take longer; the scheduler sets it."""
        self.bytes = 0
        self.fetches = 0
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
        fetch = PendingFetch(session, command)
        session.fetches[fetch] = None
        self._try(fetch)

    def cancel(self, session: Session, command: Cancel, data: memoryview) -> None:  # noqa: ARG002
        """Answer a fetch now. If it waits for the disk, or for unread answers, it is answered after those."""
        for fetch in session.fetches:
            if fetch.command.correlation == command.fetch:
                self._expire(fetch)
                return

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

    def drained(self, session: Session) -> None:
        """Continue with the session's fetches, in order: its peer has taken its answers."""
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
        if session.congested or session.reading:
            return
        session.due.pop(fetch, None)
        reading = self._read(fetch.command)
        least = max(1, min(fetch.command.min_bytes, reading.room))
        if reading.cold:
            self._read_cold(fetch, reading)
        elif reading.found >= least or reading.cut or reading.failed or fetch.expired:
            self._answer(fetch, reading)
        else:
            self._wait(fetch, reading, least)

    def _read(self, command: Fetch) -> Reading:
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
                    room -= self._read_one(reading, part, store, until or store.high_watermark, room, left)
                except TxBrokerError as refused:
                    part.error = refused
                except OSError as failed:  # this may be called while a group is published, which must go on
                    part.error = unreadable(failed)
            reading.failed = reading.failed or part.error is not None
            left -= 1
        return reading

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
        plans, reading.cold = reading.cold, []
        fetch.session.reading = True
        self._run_blocking(
            partial(run_plans, plans),
            partial(self._read_done, fetch, reading),
            partial(self._read_failed, fetch),
        )

    def _read_done(
        self, fetch: PendingFetch, reading: Reading, results: list[tuple[Part, Frames | TxBrokerError]]
    ) -> None:
        session = fetch.session
        session.reading = False
        if fetch in session.fetches:
            for part, result in results:
                if isinstance(result, TxBrokerError):
                    part.error = result
                    reading.failed = True
                elif not reading.found or reading.found + len(result.data) <= reading.room:
                    part.data, part.end = result
                    reading.found += len(result.data)
            self._answer(fetch, reading)
        self.drained(session)

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

    def _answer(self, fetch: PendingFetch, reading: Reading) -> None:
        self._stop(fetch)
        answer = Fetched(fetch.command.correlation, [part.told() for part in reading.parts])
        parts = encode_parts(answer, [part.data for part in reading.parts if part.data])
        session = fetch.session
        deliver = session.deliver
        self.fetches += 1
        self.bytes += reading.found
        session.work += reading.found
        if reading.failed or self._engine.catalog.start_moved_lsn > self._engine.forced_lsn:
            for each in reading.parts:
                if isinstance(each.error, CorruptData | StorageUnavailable):
                    self._tell(str(each.error))
            # An error may report a decision that is not on disk yet, such as a topic's deletion, and the start of a log
            # one of retention's.
            self._answers.put(session, b"".join(parts))
            return
        for part in parts:
            deliver(part)

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
            if self._call_later is not None:
                wait = min(fetch.command.max_wait, self._settings.max_fetch_wait)
                fetch.timer = self._call_later(wait / 1e6, partial(self._timed_out, fetch))
        fetch.wanted = 0
        if least > 1 and all(s.end_offset == s.high_watermark for s in reading.stores):
            fetch.wanted = least - reading.found + sum(s.end_position for s in reading.stores)

    def _stop(self, fetch: PendingFetch) -> None:
        fetch.session.fetches.pop(fetch, None)
        fetch.session.due.pop(fetch, None)
        if fetch.timer is not None:
            fetch.timer.cancel()
            fetch.timer = None
        for store in fetch.waits_for:
            waiting = self._waiting.get(store.number)
            if waiting is not None:
                waiting.pop(fetch, None)
                if not waiting:
                    del self._waiting[store.number]
        fetch.waits_for = []
