"""Scheduled messages are looked up by their ids, and taken back."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from journal.errors import CorruptData, OffsetOutOfRange
from journal.formats import frame
from journal.formats.envelope import PLACES_TOPIC, Envelope, envelopes, unpack_places
from journal.formats.frame import HEADER, HEADER_BYTES, walk
from journal.log.message_store import MessageStore
from journal.parties import Actor
from journal.records.record import Cancelled
from journal.schedule.schedule import Schedule, Work
from journal.scheduled_id import ScheduledId, State
from journal.xid import Xid

PIECE: Final = 256 << 10
"""Bytes of the log of places that are searched at once."""


class Place(NamedTuple):
    """Where a message was placed: partition number, offset."""

    partition: int
    offset: int


class Found(NamedTuple):
    """What is known of a scheduled message. ``envelope`` is what waits, ``place`` where it was sent (None: its topic
    was gone, or it is not known any more), ``holder`` the transaction that holds it.
    """

    id: ScheduledId
    state: State
    envelope: Envelope | None = None
    place: Place | None = None
    holder: Xid | None = None


Looking = Generator[Work | None, Any, list[Found]]


def look_up(schedule: Schedule, ids: Sequence[ScheduledId]) -> Looking:
    """Return what is known of these messages, in their order."""
    found: list[Found] = []
    for each in ids:
        found.append((yield from _look_up(schedule, each)))
    sent = {each.id.number for each in found if each.state is State.SENT}
    places = (yield from _places(schedule, sent)) if sent else {}
    return [each._replace(place=places.get(each.id.number)) for each in found]


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


def _look_up(schedule: Schedule, each: ScheduledId) -> Generator[Work | None, Any, Found]:
    state, holder = _state(schedule, each)
    if state is State.UNKNOWN:
        return Found(each, state)
    data = yield from _frame(schedule.stores[each.log], each.offset)
    if data is None or HEADER.unpack_from(data)[1] != each.checksum:
        return Found(each, State.UNKNOWN)
    envelope = next(envelopes(data))
    state, holder = _state(schedule, each)  # reading may have taken long
    return Found(each, state, envelope, None, holder)


def _frame(store: MessageStore, offset: int) -> Generator[Work | None, Any, bytes | None]:
    """Return the frame at an offset; None if it is lost, or cannot be read."""
    data = store.at_hand(offset, 1)
    try:
        if data is None:
            data = (yield store.plan_read(offset, 1, offset + 1).run).data
    except (CorruptData, OffsetOutOfRange):
        return None
    assert data is not None
    return None if HEADER.unpack_from(data)[6] & frame.LOST else data


def _places(schedule: Schedule, numbers: set[int]) -> Generator[Work | None, Any, dict[int, Place]]:
    """Search the log of places for where messages were put."""
    store = schedule.engine.catalog.topics[PLACES_TOPIC].partitions[0]
    offset, found = store.start_offset, dict[int, Place]()
    while offset < store.high_watermark and len(found) < len(numbers):
        try:
            data = (yield store.plan_read(offset, PIECE).run).data
        except OffsetOutOfRange as error:
            offset = error.start
            continue
        except CorruptData:
            break
        for position, length, first, count in walk(data):
            offset = first + count
            found.update(_places_in(data[position : position + length], numbers))
        yield None
    return found


def _places_in(data: bytes, numbers: set[int]) -> Iterator[tuple[int, Place]]:
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
