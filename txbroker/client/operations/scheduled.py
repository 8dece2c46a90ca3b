"""Scheduled messages: looked up, listed and taken back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, NoReturn

from journal.arguments import NOTHING_CHANGED, NOTHING_READ, text, truth, wrong_type
from journal.formats.envelope import SCHEDULE_TOPIC, Clock
from journal.formats.frame import HEADER
from journal.message_headers import message_id as checked_message_id
from journal.scheduled_id import ScheduledId, State
from journal.words import count_text
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.results import decoded
from txbroker.client.core.scheduled_results import ScheduledMessage, ScheduledMessages
from txbroker.client.operations.topic_creation import described
from txbroker.wire import messages as commands
from txbroker.wire.messages import (
    MAX_SCHEDULED_IDS,
    CancelScheduled,
    ListScheduled,
    ScheduledInfo,
    ScheduledList,
    ScheduledState,
    ScheduledStates,
    ShowScheduled,
)

_FOUND_AT_ONCE: Final = 1000


class _Known(NamedTuple):
    """What the broker says of a message."""

    id: ScheduledId
    state: ScheduledState


async def check_waits(core: Core, id: ScheduledId) -> None:
    """Raise AlreadySent, ScheduleHeld or NotScheduled unless the message waits."""
    [known] = (await _shown(core, [id])).known
    if known.state.state != State.WAITS:
        await _refuse(core, known, NOTHING_CHANGED)


async def cancel(
    core: Core, id: ScheduledId | str | None, message_id: str | bytes | None
) -> list[ScheduledId]:
    """Take messages back, the one with that id or those that have the id of their sender; return which.

    Raises AlreadySent, ScheduleHeld and NotScheduled.
    """
    wanted = check_named(id, message_id)
    if wanted is not None:
        return await _cancel_named(core, wanted)
    assert id is not None
    [known] = await _taken_back(core, [ScheduledId.of(id)])
    if known.state.state != State.CANCELLED:
        await _refuse(core, known, NOTHING_CHANGED)
    return [known.id]


def check_named(id: ScheduledId | str | None, message_id: str | bytes | None) -> bytes | None:
    """Return the checked ``message_id``, None if an ``id`` is given in place of it; raises Misuse for both or none."""
    if (id is None) == (message_id is None):
        raise errors.Misuse("cancel takes the id of a scheduled message, or message_id=; nothing has changed")
    if isinstance(message_id, bool):
        raise wrong_type("message_id", message_id, "a str or bytes", NOTHING_CHANGED)
    return checked_message_id(message_id, NOTHING_CHANGED, "message_id")


async def waiting_named(core: Core, wanted: bytes) -> list[ScheduledId]:
    """Return the messages that wait with that id of their sender; raises AlreadySent, ScheduleHeld and NotScheduled if
    there is none, or if one is held.
    """
    known = (await _shown(core, await _named(core, wanted))).known
    waiting = [each.id for each in known if each.state.state == State.WAITS]
    if held := [each for each in known if each.state.state == State.HELD]:
        await _refuse(core, held[0], NOTHING_CHANGED)
    if not waiting:
        await _refuse_named(core, wanted, known)
    return waiting


async def _cancel_named(core: Core, wanted: bytes) -> list[ScheduledId]:
    known = (await _shown(core, await _named(core, wanted))).known
    waiting = [each.id for each in known if each.state.state == State.WAITS]
    after = await _taken_back(core, waiting)
    taken = [each.id for each in after if each.state.state == State.CANCELLED]
    others = [each for each in (*known, *after) if each.state.state != State.WAITS and each.id not in taken]
    if held := [each for each in others if each.state.state == State.HELD]:
        others_of_it = count_text(len(taken), "other message")
        has = "has" if len(taken) == 1 else "have"
        await _refuse(core, held[0], f"{others_of_it} with its id {has} been taken back")
    if taken:
        return taken
    over = [each.id for each in others if each.state.state == State.CANCELLED]
    if not over or any(each.state.state == State.SENT for each in others):
        await _refuse_named(core, wanted, others)
    return over


async def _refuse_named(core: Core, wanted: bytes, others: list[_Known]) -> NoReturn:
    """Raise the error that says why none of the messages with that id waits."""
    if lost := [each for each in others if each.state.state == State.UNREADABLE]:
        await _refuse(core, lost[0], NOTHING_CHANGED)
    if sent := [each for each in others if each.state.state == State.SENT]:
        await _refuse(core, max(sent, key=lambda each: each.state.due), NOTHING_CHANGED)
    if over := [each for each in others if each.state.state == State.CANCELLED]:
        await _refuse(core, over[0], NOTHING_CHANGED)
    raise errors.NotScheduled(
        f"there is no scheduled message with the id {wanted.decode(errors='backslashreplace')!r}: there never was, or "
        f"it was over a day ago; {NOTHING_CHANGED}"
    )


async def _named(core: Core, wanted: bytes) -> list[ScheduledId]:
    """Return the scheduled messages with that id of their sender. What is damaged is passed over, unless nothing is
    found beside it.
    """
    told = await core.request(commands.AskSchedule(core.correlation()), commands.ScheduleTold)
    found, damage = list[ScheduledId](), list[errors.CorruptSegment]()
    try:
        for log, number in enumerate(told.partitions):
            found += await _named_in_log(core, log, number, wanted, damage)
    except errors.AccessDenied:  # it may not read all that is scheduled: then those that wait, of its topics
        return [each.id for each in await list_scheduled(core, None, None) if each.message_id == wanted]
    if damage and not found:
        raise damage[0]
    return found


async def _named_in_log(
    core: Core, log: int, number: int, wanted: bytes, damage: list[errors.CorruptSegment]
) -> list[ScheduledId]:
    found, offset, end = list[ScheduledId](), 0, 1
    while offset < end:
        search = commands.FindMessages(core.correlation(), number, offset, None, wanted, 0, _FOUND_AT_ONCE)
        try:
            answer = await core.request(search, commands.MessagesFound)
        except errors.CorruptSegment as error:
            damage.append(error)
            offset, end = error.last_offset + 1, error.last_offset + 2
            continue
        for place in answer.offsets:
            checksum = await _checksum(core, number, place)
            if checksum is not None:
                found.append(ScheduledId(log, place, checksum))
        offset, end = answer.next_offset, answer.high_watermark
    return found


async def _checksum(core: Core, number: int, place: int) -> int | None:
    """Return the checksum of the envelope at an offset; None if it is not there any more."""
    call = core.request(commands.Fetch(core.correlation(), [(number, place, 0)], 1), commands.Fetched)
    part = (await call).partitions[0]
    data = memoryview(call.data)[: part.length]
    return int(HEADER.unpack_from(data)[1]) if data else None


async def scheduled(core: Core, id: ScheduledId | str, with_message: bool = False) -> ScheduledMessage:
    """Return what has become of a scheduled message; raises NotScheduled."""
    given = ScheduledId.of(id, NOTHING_READ)
    truth("with_message", with_message, NOTHING_READ)
    shown = await _shown(core, [given], with_message)
    [known] = shown.known
    if known.state.state in (State.UNKNOWN, State.UNREADABLE):
        await _refuse(core, known, NOTHING_READ)
    number = known.state.partition
    topic, partition = ("", number) if number < 0 else await _place(core, number)
    state, message, named = known.state, None, None
    if with_message and state.size:
        [message] = decoded(topic, partition, shown.data, 0, state.size)[0]
        named = message.id
    return ScheduledMessage(
        given, state.state, topic, partition, _clock(state.clock),
        *_due(state, shown.now, core.wall()),
        None if state.offset < 0 or state.state != State.SENT else state.offset, state.holder, state.size, named,
        message, _exchange(state),
    )  # fmt: skip


async def list_scheduled(core: Core, topic: str | None, exchange: str | None) -> ScheduledMessages:
    """Return the messages that wait, of a topic, of an exchange, or of all, in the order in which they are due."""
    name = "" if topic is None else text("topic", topic, NOTHING_READ)
    way = "" if exchange is None else text("exchange", exchange, NOTHING_READ)
    if name and way:
        raise errors.Misuse("list_scheduled takes a topic or an exchange=, not both; nothing was read")
    found, after = ScheduledMessages(), (0, -1)
    while True:
        request = ListScheduled(core.correlation(), name, after, MAX_SCHEDULED_IDS, way)
        page = await core.request(request, ScheduledList)
        wall = core.wall()
        found += [_listed(info, page.now, wall) for info in page.messages]
        found.is_filtered = found.is_filtered or page.is_filtered
        found.holds, found.unreadable = page.holds, found.unreadable + page.unreadable
        if page.next is None:
            found.sort(key=lambda each: each.due_at)
            return found
        after = page.next


def _listed(info: ScheduledInfo, now: int, wall: int) -> ScheduledMessage:
    return ScheduledMessage(
        ScheduledId.checked(*info.id), State.HELD if info.is_held else State.WAITS, info.topic, info.partition,
        _clock(info.clock), *_due(info, now, wall), None, "", info.size, info.message_id or None,
        None, _exchange(info),
    )  # fmt: skip


def _exchange(of: ScheduledState | ScheduledInfo) -> str | None:
    """Return the exchange that a message is for; None if it is for a topic."""
    return of.exchange if of.partition < 0 else None


def _clock(clock: int) -> str:
    return Clock(clock).name.lower()


def _due(of: ScheduledState | ScheduledInfo, now: int, wall: int) -> tuple[float, int]:
    """Return in how many seconds it is due, and when; ``now`` is schedule time, ``wall`` the wall clock's."""
    ahead = of.due - (now if of.clock == Clock.ELAPSED else wall)
    return ahead / 1e6, wall + ahead


class _Shown(NamedTuple):
    known: list[_Known]
    now: int
    data: memoryview


async def _shown(core: Core, ids: list[ScheduledId], frames: bool = False) -> _Shown:
    known, now, data = list[_Known](), 0, memoryview(b"")
    for some in _parts(ids):
        request = ShowScheduled(core.correlation(), [each.place for each in some], frames)
        call = core.request(request, ScheduledStates)
        answer = await call
        known += map(_Known, some, answer.states)
        now, data = answer.now, memoryview(call.data)
    return _Shown(known, now, data)


async def _taken_back(core: Core, ids: list[ScheduledId]) -> list[_Known]:
    found = list[_Known]()
    for some in _parts(ids):
        request = CancelScheduled(core.correlation(), [each.place for each in some])
        found += map(_Known, some, (await core.request(request, ScheduledStates)).states)
    return found


def _parts(ids: list[ScheduledId]) -> Iterable[list[ScheduledId]]:
    for first in range(0, len(ids), MAX_SCHEDULED_IDS):
        yield ids[first : first + MAX_SCHEDULED_IDS]


async def _place(core: Core, number: int) -> tuple[str, int]:
    """Return the topic and index of a partition; "" and the number if it is gone, or may not be described."""
    for info in await described(core, None):
        for part in info.partitions:
            if part.number == number:
                return info.name, part.index
    return "", number


async def _refuse(core: Core, known: _Known, done: str) -> NoReturn:
    """Raise the error that says why a message does not wait."""
    id, state = known
    if state.state == State.SENT:
        topic, partition = "", 0
        if state.partition < 0:
            passed = f"exchange {state.exchange!r}" if state.exchange else "an exchange that is gone"
            raise errors.AlreadySent(f"message {id} was due, and has gone through {passed}; {done}", "", 0, 0)
        if state.offset >= 0:
            topic, partition = await _place(core, state.partition)
        where = (
            f"it is at offset {state.offset:,} of {topic}-{partition}"
            if topic
            else "where is not known any more"
        )
        raise errors.AlreadySent(
            f"message {id} was due, and has been sent: {where}; {done}",
            topic,
            partition,
            max(0, state.offset),
        )
    if state.state == State.HELD:
        raise errors.ScheduleHeld(
            f"transaction {state.holder}, which is prepared, takes message {id} back if it is committed; {done}. End "
            "it first, or wait for its outcome"
        )
    if state.state == State.UNREADABLE:
        raise errors.CorruptSegment(
            f"what the schedule has of message {id} is damaged and cannot be read; {done}. The broker's operator finds "
            "out more with 'txbroker verify'",
            f"{SCHEDULE_TOPIC}-{id.log}", 0, id.offset, id.offset,
        )  # fmt: skip
    if state.state == State.CANCELLED:
        raise errors.NotScheduled(f"message {id} was taken back before; {done}")
    raise errors.NotScheduled(
        f"there is no scheduled message {id}: there never was, or it was over a day ago; {done}"
    )


async def release(core: Core) -> None:
    """Let messages go that are held since the wall clock has jumped."""
    await core.request(commands.ReleaseScheduled(core.correlation()), commands.Done)
