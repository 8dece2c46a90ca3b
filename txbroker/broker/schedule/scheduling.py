"""What is scheduled by requests: judged, looked up, taken back and listed (decision 0054)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.errors import CorruptSegment, reserved
from journal.formats import frame
from journal.formats.compression import Room
from journal.formats.envelope import SCHEDULE_TOPIC, Envelope, envelopes, place_of
from journal.formats.frame import HEADER
from journal.log.message_store import MessageStore
from journal.message_headers import ID_HEADER, last_value
from journal.records.access_entries import Resource, Right
from journal.records.record import Scheduled
from journal.schedule.cancelling import Found, cancel, look_up
from journal.schedule.judging import Judge
from journal.schedule.schedule import Schedule
from journal.schedule.steps import Work
from journal.scheduled_id import ScheduledId
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise, Until
from txbroker.broker.sends.sends import disk_full, frame_limit
from txbroker.broker.sessions.rights import Need, Rights, may_describe_topic
from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.sessions.things import exchange_at, named, partition_of
from txbroker.errors import InvalidSetting, LimitExceeded, NotScheduled, OffsetOutOfRange, WrongValue
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_SCHEDULED_IDS,
    AskSchedule,
    CancelScheduled,
    Done,
    ListScheduled,
    ReleaseScheduled,
    Request,
    ScheduledInfo,
    ScheduledList,
    ScheduledPlace,
    ScheduledState,
    ScheduledStates,
    ScheduleTold,
    ShowScheduled,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.sessions.allowance import Allowance

LISTED_AT_ONCE: Final = 32 << 10
"""Bytes of a log that are looked at in one step of a list."""
LISTED_IN_AN_ANSWER: Final = 16 << 20
SHOWN_BYTES: Final = 1 << 20
"""Bytes of frames in one answer; the first one comes always."""
ENVELOPE: Final = 1_000
"""Bytes that it counts for in a session's turns to judge a message for later: 4 µs."""
LOOKED_UP: Final = 100_000
"""Most messages that were looked up and are remembered, 150 bytes each, for transactions that take them back."""


class Scheduling:
    """The meaning of the requests about the schedule, and the judge of what is sent to it."""

    log = Logger()

    def __init__(self, engine: Engine, settings: BrokerSettings, stepwise: Stepwise) -> None:
        self.schedule = Schedule(engine)
        self._engine = engine
        self._stepwise = stepwise
        self._judge = Judge(self.schedule, settings.max_scheduled, settings.max_scheduled_bytes)
        self._limit = partial(frame_limit, limit=settings.max_frame)
        self.schedule.on_damage = self._damaged
        self.schedule.on_held = self._held
        self.exchange_of: Callable[[int], str] = no_exchange
        """Returns the name of the exchange at an address; "" if there is none."""
        self.gave: Callable[[Allowance, int], object] = unheard
        """Called with bytes of messages that were given out."""
        self._looked_up: dict[ScheduledId, int] = {}
        """The partitions of messages that were looked up, the last ones at the end."""
        self.handlers: dict[type[Request], Any] = {
            AskSchedule: self.tell,
            CancelScheduled: self.cancel,
            ShowScheduled: self.show,
            ListScheduled: self.list,
            ReleaseScheduled: self.release,
        }
        """The commands, each with its meaning."""

    # -- what is sent ------------------------------------------------------------------------------

    def judge(
        self,
        session: Session,
        command: Any,
        store: MessageStore,
        frames: memoryview,
        left: list[Room] | None = None,
        others: int = 0,
    ) -> int:
        """Raise unless these checked frames may be sent to that log of the schedule; return how many there are.

        ``left`` and ``others`` are those of :meth:`Judge.check`.
        """
        if store.topic != SCHEDULE_TOPIC:
            raise reserved(store.topic)
        may = partial(self._judge_rights, session, command)
        count = self._judge.check(store, frames, self._limit, may, left, others)
        session.work += ENVELOPE * count
        return count

    def _judge_rights(
        self, session: Session, command: Any, partitions: set[int], right: Right = Right.WRITE
    ) -> None:
        """Raise AccessDenied without that right on the topics of these partitions, and on the exchanges among them."""
        if session.rights is not None:
            things = [partition_of(number, session.rights) for number in sorted(partitions) if number >= 0]
            session.rights.judge(Need(right, Resource.TOPIC, lambda *_: things), command)
            passed = [exchange_at(number, session.rights) for number in sorted(partitions) if number < 0]
            if passed:
                session.rights.judge(Need(right, Resource.EXCHANGE, lambda *_: passed), command)

    def taken_back(self, session: Session, command: Any, places: Sequence[ScheduledPlace]) -> list[Scheduled]:
        """Return what a transaction takes back; raises NotScheduled for what was not looked up before, AccessDenied."""
        _check_count(places)
        found: list[Scheduled] = []
        for place in places:
            given = _id_of(place)
            target = self._looked_up.get(given)
            if target is None:
                raise NotScheduled(
                    f"message {given} of the schedule was not looked up before it is taken back in a transaction, or "
                    "there is none; nothing has changed"
                )
            found.append((given.number, target))
        self._judge_rights(session, command, {target for _, target in found})
        return found

    # -- requests ----------------------------------------------------------------------------------

    def tell(self, session: Session, command: AskSchedule, data: memoryview) -> ScheduleTold:  # noqa: ARG002
        """Tell where messages are scheduled, and schedule time."""
        if not self.schedule.stores and self._engine.full:
            raise disk_full()
        numbers = [store.number for store in self.schedule.make()]
        return ScheduleTold(command.correlation, numbers, self._now())

    def release(self, session: Session, command: ReleaseScheduled, data: memoryview) -> Done:  # noqa: ARG002
        """Let what is held since the wall clock has jumped go."""
        if self._engine.schedule.holds:
            self.schedule.release(session.as_actor())
        return Done(command.correlation)

    def show(self, session: Session, command: ShowScheduled, data: memoryview) -> None:  # noqa: ARG002
        """Answer what has become of messages."""
        _check_ids(command.ids)
        self._stepwise.answer(session, command, self._show(session, command))

    def _show(self, session: Session, command: ShowScheduled) -> Steps:
        if command.frames and session.allowance is not None and session.allowance.holds_fetches:
            raise LimitExceeded(
                "the quota bytes_out is used up for now; nothing was read. Ask again later, or for no messages"
            )
        most = SHOWN_BYTES if command.frames else 0
        found = yield from look_up(self.schedule, [_id_of(place) for place in command.ids], most)
        self._judge_found(session, command, found, Right.READ if command.frames else Right.DESCRIBE)
        frames = [_frame_of(each) for each in found]
        size = sum(map(len, frames))
        session.work += size
        if session.allowance is not None and size:
            self.gave(session.allowance, size)
        return self._states(command, found, frames)

    def cancel(self, session: Session, command: CancelScheduled, data: memoryview) -> None:  # noqa: ARG002
        """Take messages back."""
        _check_ids(command.ids)
        self._stepwise.answer(session, command, self._cancel(session, command))

    def _cancel(self, session: Session, command: CancelScheduled) -> Steps:
        found = yield from look_up(self.schedule, [_id_of(place) for place in command.ids])
        self._judge_found(session, command, found, Right.WRITE)
        while self._engine.busy:
            yield Until.IDLE
        found = yield from cancel(self.schedule, found, session.as_actor())
        return self._states(command, found, [])

    def _judge_found(self, session: Session, command: Any, found: list[Found], right: Right) -> None:
        numbers = {each.envelope.partition for each in found if each.envelope is not None}
        self._judge_rights(session, command, numbers, right)
        for each in found:
            if each.envelope is not None:
                self._looked_up.pop(each.id, None)
                self._looked_up[each.id] = each.envelope.partition
        while len(self._looked_up) > LOOKED_UP:
            del self._looked_up[next(iter(self._looked_up))]

    def _states(
        self, command: CancelScheduled | ShowScheduled, found: list[Found], frames: list[memoryview]
    ) -> bytes:
        sizes = [len(data) for data in frames] or [0] * len(found)
        states = [self._state_of(each, size) for each, size in zip(found, sizes, strict=True)]
        return encode(ScheduledStates(command.correlation, states, self._now()), b"".join(frames))

    def _state_of(self, found: Found, size: int) -> ScheduledState:
        envelope = found.envelope
        if envelope is None:
            return ScheduledState(found.state.value)
        holder = "" if found.holder is None else str(found.holder)
        partition, offset = (envelope.partition, -1) if found.place is None else found.place
        return ScheduledState(
            found.state.value, envelope.clock, envelope.due, partition, offset, holder, size,
            self.exchange_of(envelope.partition),
        )  # fmt: skip

    # -- lists -------------------------------------------------------------------------------------

    def list(self, session: Session, command: ListScheduled, data: memoryview) -> None:  # noqa: ARG002
        """Answer with messages that wait."""
        if not 1 <= command.limit <= MAX_SCHEDULED_IDS:
            raise InvalidSetting(
                f"a list of {command.limit} scheduled messages; it must be from 1 to {MAX_SCHEDULED_IDS} at a time"
            )
        if session.rights is not None and command.topic:
            need = Need(Right.DESCRIBE, Resource.TOPIC, lambda *_: [named(command.topic)])
            session.rights.judge(need, command)
        if session.rights is not None and command.exchange:
            need = Need(Right.DESCRIBE, Resource.EXCHANGE, lambda *_: [named(command.exchange)])
            session.rights.judge(need, command)
        self._stepwise.answer(session, command, self._list(session, command))

    def _list(self, session: Session, command: ListScheduled) -> Steps:
        page, first = _Page(command), max(0, command.after[0])
        page.is_filtered = session.rights is not None and not (command.topic or command.exchange)
        for store in self.schedule.stores[first:]:
            begin = command.after[1] + 1 if store.index == first else 0
            yield from self._list_log(session, page, store, begin)
            if page.next is not None:
                break
        fold = self._engine.schedule
        told = ScheduledList(
            command.correlation, page.messages, self._now(), page.next, fold.holds, page.is_filtered,
            page.unreadable,
        )  # fmt: skip
        return encode(told)

    def _list_log(
        self, session: Session, page: _Page, store: MessageStore, offset: int
    ) -> Generator[Work | None, Any, None]:
        """Put what waits in a log into the page, from an offset on, until the page is full."""
        log = self._engine.schedule.logs[store.index]
        while True:
            offset = log.over.missing_from(max(offset, log.begins, store.start_offset))
            if offset >= store.high_watermark:
                return
            if page.is_full():
                page.next = store.index, offset - 1
                return
            try:
                data = yield from self._piece(store, offset)
            except OffsetOutOfRange as error:
                offset = error.start
                continue
            except CorruptSegment as error:
                first, offset = offset, error.last_offset + 1
                page.unreadable += 0 if error.lost else sum(map(log.waits, range(first, offset)))
                continue
            page.left -= len(data)
            end = _end_of(data, offset)
            for envelope, checksum in _listed(data):
                if envelope.offset < offset or not log.waits(envelope.offset):
                    continue
                if page.is_full():
                    end = envelope.offset
                    break
                info = self._info(store, envelope, checksum)
                if may_describe(info, session.rights):
                    page.put(info)
            offset = end
            yield None

    def _piece(self, store: MessageStore, offset: int) -> Generator[Work | None, Any, bytes]:
        data = store.at_hand(offset, LISTED_AT_ONCE)
        if data is None:
            data = (yield store.plan_read(offset, LISTED_AT_ONCE).run).data
        assert data is not None
        return data

    def _info(self, store: MessageStore, envelope: Envelope, checksum: int) -> ScheduledInfo:
        target = self._engine.catalog.stores.get(envelope.partition)
        given = ScheduledId(store.index, envelope.offset, checksum)
        topic, index = ("", envelope.partition) if target is None else (target.topic, target.index)
        is_held = given.number in self._engine.schedule.holders
        return ScheduledInfo(
            (given.log, given.offset, given.checksum), topic, index, envelope.clock, envelope.due, len(envelope.frame),
            is_held, _message_id(envelope.frame), self.exchange_of(envelope.partition),
        )  # fmt: skip

    # -- figures -----------------------------------------------------------------------------------

    def gauges(self) -> dict[str, int | float | str]:
        """Return the figures of the schedule."""
        schedule, fold = self.schedule, self._engine.schedule
        waits = schedule.next_in()
        return {
            "scheduled_waiting": schedule.waiting(),
            "scheduled_held": len(fold.holders),
            "scheduled_bytes": sum(store.total_bytes for store in schedule.stores),
            "scheduled_placed": schedule.placed,
            "scheduled_gone": schedule.gone,
            "scheduled_next_in": -1 if waits is None else waits,
            "schedule_holds": int(fold.holds),
        }

    def _damaged(self, number: int, error: Exception) -> None:
        log, offset = place_of(number)
        self.log.error(
            "message {log}-{offset} of the schedule is due and cannot be read: {error}. It is tried again each minute; "
            "the others go on. See 'txbroker verify'",
            log=log, offset=offset, error=error,
        )  # fmt: skip

    def _held(self, jump: int) -> None:
        self.log.error(
            "the wall clock has jumped forward by {seconds:.0f} s: messages that are due by it (at=) are held until "
            "'txbroker scheduled release'. Set the clock right first, if it is wrong",
            seconds=jump / 1e6,
        )

    def _now(self) -> int:
        return self._engine.schedule.time(self._engine.now())


def may_describe(info: ScheduledInfo, rights: Rights | None) -> bool:
    """Return whether what a message is for may be described with these rights (None: everything)."""
    if rights is not None and info.partition < 0:
        return rights.allows(Right.DESCRIBE, Resource.EXCHANGE, named(info.exchange))
    return may_describe_topic(info.topic, rights)


def no_exchange(address: int) -> str:  # noqa: ARG001
    """Return that there are no exchanges."""
    return ""


class _Page:
    """What an answer to a list has so far."""

    def __init__(self, command: ListScheduled) -> None:
        self._topic, self._exchange, self._limit = command.topic, command.exchange, command.limit
        self.messages: list[ScheduledInfo] = []
        self.left = LISTED_IN_AN_ANSWER
        """Bytes of logs that may still be looked at."""
        self.next: tuple[int, int] | None = None
        self.is_filtered = False
        self.unreadable = 0
        """Messages that wait and cannot be read."""

    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.messages) >= self._limit or self.left <= 0

    def put(self, info: ScheduledInfo) -> None:
        """Add a message, if it is of the wanted topic or exchange."""
        if self._topic in ("", info.topic) and self._exchange in ("", info.exchange):
            self.messages.append(info)


def _id_of(place: ScheduledPlace) -> ScheduledId:
    log, offset, checksum = place
    return ScheduledId.checked(log, offset, checksum)


def _frame_of(found: Found) -> memoryview:
    return memoryview(b"") if found.envelope is None else found.envelope.frame


def _check_ids(ids: Sequence[ScheduledPlace]) -> None:
    _check_count(ids)
    if len({(log, offset) for log, offset, _ in ids}) < len(ids):
        raise WrongValue("a request has an id of a scheduled message twice; nothing has changed")


def _check_count(ids: Sequence[ScheduledPlace]) -> None:
    if len(ids) > MAX_SCHEDULED_IDS:
        raise LimitExceeded(
            f"a request with {len(ids)} ids of scheduled messages, the limit is {MAX_SCHEDULED_IDS}; nothing has "
            "changed"
        )


def _listed(data: bytes) -> Iterable[tuple[Envelope, int]]:
    """Yield the envelopes of a run of frames with their checksums."""
    for position, length, _, _ in frame.walk(data):
        piece = data[position : position + length]
        for envelope in envelopes(piece):
            yield envelope, HEADER.unpack_from(piece)[1]


def _end_of(data: bytes, offset: int) -> int:
    """Return the offset behind a run of frames; the next one if nothing could be read."""
    end = offset + 1
    for _, _, first, count in frame.walk(data):
        end = max(end, first + count)
    return end


def _message_id(data: memoryview) -> bytes:
    header = HEADER.unpack_from(data)
    attribute = data[frame.HEADER_BYTES : frame.HEADER_BYTES + header[7]]
    headers = frame.decode_attribute(attribute).headers if attribute else ()
    return last_value(headers, ID_HEADER) or b""
