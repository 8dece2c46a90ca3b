"""Scheduled messages are looked up by their ids, and taken back."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from journal.errors import CorruptSegment, OffsetOutOfRange
from journal.formats import frame
from journal.formats.envelope import PLACES_TOPIC, Envelope, envelopes, unpack_places
from journal.formats.frame import HEADER, HEADER_BYTES, walk
from journal.log.message_store import MessageStore
from journal.parties import Actor
from journal.records.record import Cancelled
from journal.schedule.schedule import GAP, Schedule
from journal.schedule.seeing import PIECE_BYTES
from journal.schedule.steps import Work
from journal.scheduled_id import ScheduledId, State
from journal.xid import Xid

AT_ONCE: Final = 16 << 10
"""Bytes of a log that are looked through in one step, about 1 ms."""


class Place(NamedTuple):
    """Where a message was placed: partition number, offset. One that went through an exchange has none."""

    partition: int
    offset: int


class Found(NamedTuple):
    """What is known of a scheduled message. ``envelope`` is what waits, with an empty frame unless that was asked for,
    ``place`` where it was sent (None: its topic was gone, it went through an exchange, or it is not known any more),
    ``holder`` the transaction that holds it.
    """

    id: ScheduledId
    state: State
    envelope: Envelope | None = None
    place: Place | None = None
    holder: Xid | None = None


Looking = Generator[Work | None, Any, list[Found]]


def look_up(schedule: Schedule, ids: Sequence[ScheduledId], frame_bytes: int = 0) -> Looking:
    """Return what is known of these messages, each of which is there once, in their order.

    Frames are kept of those that wait, as far as they have ``frame_bytes`` together, and of the first one; of the
    others ``envelope.frame`` is empty.
    """
    found, frames = dict[int, Found](), _Frames(frame_bytes)
    for near in _neighbours(ids):
        yield from _look_up_some(schedule, near, found, frames)
    sent = {number: each for number, each in found.items() if each.state is State.SENT and _has_place(each)}
    places = (yield from _places(schedule, sent)) if sent else {}
    return [found[each.number]._replace(place=places.get(each.number)) for each in ids]


def _has_place(found: Found) -> bool:
    """Return whether a message that was sent went to a partition: through an exchange one goes to any number."""
    return found.envelope is not None and found.envelope.partition >= 0


class _Frames:
    """The frames that are kept, at most so many bytes of them, or one."""

    def __init__(self, most: int) -> None:
        self._left, self._most = most, most

    def keep(self, data: memoryview) -> memoryview:
        """Return a copy of a frame, or of nothing of it."""
        if not self._most or (len(data) > self._left and self._left < self._most):
            return memoryview(b"")
        self._left -= len(data)
        return memoryview(bytes(data))


def _neighbours(ids: Sequence[ScheduledId]) -> Iterator[list[ScheduledId]]:
    """Yield those that lie close together in one log, in the order of their offsets."""
    near = list[ScheduledId]()
    for each in sorted(ids):
        if near and (each.log != near[-1].log or each.offset - near[-1].offset > GAP):
            yield near
            near = []
        near.append(each)
    if near:
        yield near


def _look_up_some(
    schedule: Schedule, ids: list[ScheduledId], found: dict[int, Found], frames: _Frames
) -> Generator[Work | None, Any, None]:
    """Find messages that lie close together in one log, part by part."""
    wanted = dict[int, ScheduledId]()
    for each in ids:
        state, _ = _state(schedule, each)
        found[each.number] = Found(each, state)
        if state is not State.UNKNOWN:
            wanted[each.offset] = each
    while wanted:
        offset, last = min(wanted), max(wanted)
        store, data = schedule.stores[ids[0].log], b""
        try:
            at_hand = store.at_hand(offset, AT_ONCE)
            if at_hand is None:
                at_hand = (yield store.plan_read(offset, AT_ONCE, last + 1).run).data
            data, end, missing = at_hand, offset + 1, State.UNKNOWN
        except CorruptSegment as error:
            end, missing = error.last_offset + 1, State.UNKNOWN if error.lost else State.UNREADABLE
        except OffsetOutOfRange as error:  # it is over, and its file has gone
            end, missing = max(error.start, offset + 1), State.UNKNOWN
        for position, length, at, count in walk(data):
            end = at + count
            if (of := wanted.pop(at, None)) is not None:
                found[of.number] = _seen(schedule, of, data[position : position + length], frames)
        for of in [wanted.pop(at) for at in list(wanted) if at < end]:
            found[of.number] = Found(of, missing)
        yield None


def _seen(schedule: Schedule, each: ScheduledId, data: bytes, frames: _Frames) -> Found:
    """Return what is known of a message whose frame in the schedule's log is this."""
    header = HEADER.unpack_from(data)
    if header[6] & frame.LOST or header[1] != each.checksum:
        return Found(each, State.UNKNOWN)
    [envelope] = envelopes(data)
    state, holder = _state(schedule, each)  # reading may have taken long
    waits = state in (State.WAITS, State.HELD)
    kept = frames.keep(envelope.frame) if waits else memoryview(b"")
    return Found(each, state, envelope._replace(frame=kept), None, holder)


def cancel(schedule: Schedule, found: Sequence[Found], by: Actor | None = None) -> Looking:
    """Take those of the messages back that wait, which were looked up before; return what has become of all. One that
    was taken back before is CANCELLED again. The answer is to be given once the record is forced. The engine must not
    be busy with a large commit when the first step is taken.
    """
    after = {each.id: _now(schedule, each) for each in found}
    waiting = [each for each in after.values() if each.state is State.WAITS]
    taken = [(each.id.number, each.envelope.partition) for each in waiting if each.envelope is not None]
    if taken:
        schedule.engine.accept(Cancelled(taken, schedule.engine.now(), by))
    sent = [each.id for each in found if each.state is not State.SENT and after[each.id].state is State.SENT]
    if sent:  # they were due while others were looked up
        after |= {each.id: each for each in (yield from look_up(schedule, sent))}
    after |= {each.id: each._replace(state=State.CANCELLED) for each in waiting}
    return [after[each.id] for each in found]


def _now(schedule: Schedule, found: Found) -> Found:
    """Return what was found, as it is in this turn."""
    if found.state not in (State.WAITS, State.HELD):
        return found
    state, holder = _state(schedule, found.id)
    return found._replace(state=state, holder=holder)


def _state(schedule: Schedule, each: ScheduledId) -> tuple[State, Xid | None]:
    fold, stores = schedule.fold, schedule.stores
    if not stores or each.offset >= stores[each.log].high_watermark:
        return State.UNKNOWN, None
    log = fold.logs[each.log]
    if log.waits(each.offset):
        holder = fold.holders.get(each.number)
        if holder is None:
            return State.WAITS, None
        return State.HELD, schedule.engine.transactions.live[holder].xid
    if each.offset < max(log.begins, stores[each.log].start_offset):
        return State.UNKNOWN, None
    return (State.CANCELLED if each.offset in log.cancelled else State.SENT), None


def _places(schedule: Schedule, sent: dict[int, Found]) -> Generator[Work | None, Any, dict[int, Place]]:
    """Search the log of places for where messages were put: from when the first of them was due, then before that, in
    case the clocks were set.
    """
    store = schedule.engine.catalog.topics[PLACES_TOPIC].partitions[0]
    found = dict[int, Place]()
    lookup = store.plan_time(min(each.envelope.due for each in sent.values() if each.envelope is not None))
    begin = lookup if isinstance(lookup, int) else store.within((yield lookup.run))
    yield from _search(store, begin, store.high_watermark, sent, found)
    yield from _search(store, store.start_offset, begin, sent, found)
    return found


def _search(
    store: MessageStore, offset: int, end: int, sent: Mapping[int, Found], found: dict[int, Place]
) -> Generator[Work | None, Any, None]:
    """Look through the log of places between these offsets until all are found."""
    while offset < end and len(found) < len(sent):
        try:
            data = (yield store.plan_read(offset, PIECE_BYTES).run).data
        except OffsetOutOfRange as error:
            offset = error.start
            continue
        except CorruptSegment as error:
            offset = error.last_offset + 1
            continue
        for position, length, first, count in walk(data):
            offset = first + count
            found.update(_places_in(data[position : position + length], sent))
        yield None


def _places_in(data: bytes, numbers: Container[int]) -> Iterator[tuple[int, Place]]:
    """Yield the places that a message of the log tells of those of these numbers."""
    header = HEADER.unpack_from(data)
    if header[6] & frame.LOST:
        return
    try:
        places = unpack_places(data[HEADER_BYTES + header[7] :])
    except msgspec.MsgspecError:
        return
    for partition, base, ids in places.placed:
        for index, number in enumerate(ids):
            if number in numbers:
                yield number, Place(partition, base + index)
