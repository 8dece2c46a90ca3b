"""The model of what is told of scheduled messages, and of what must be there in the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.simulation.model.intent_model import DONE, VOID
from tests.simulation.model.log_model import require
from tests.simulation.model.schedule_model import ScheduleModel
from tests.simulation.model.scheduled_message_model import Clock, Later


def told(schedule: ScheduleModel, later: Later, said: Any, since: int) -> None:
    """Judge what was said of a message to who asked at ``since``."""
    envelope = later.envelope
    if said.state == "not scheduled":
        may_be = schedule.may_be_over(later) or later.carrier.ended_at > since
        require(may_be, f"{later.name} is scheduled", "it is not")
        return
    found, wanted = (said.clock, said.due, said.partition), (envelope.clock, envelope.due, envelope.partition)
    require(found == wanted, f"{later.name} is {wanted}", found)
    schedule.model.done(later.carrier)
    if said.state == "cancelled":
        schedule.taken_back(later)
    elif said.state == "sent":
        dropped = said.offset < 0 and schedule.may_be_dropped(later)
        require(dropped or schedule.may_be_due(later), f"{later.name} is not due", "it was sent")
        require(later.state != VOID, f"{later.name} was taken back", "it was sent")
        if said.offset >= 0:
            schedule.model.done(later, {envelope.partition: said.offset})
    else:
        _waits(later, since)
        holders = [str(getattr(each, "xid", "")) for each in later.takers if "prepare" in each.asked]
        require(said.state == "waits" or said.holder in holders, f"{later.name} is held by {holders}", said)


def _waits(later: Later, since: int) -> None:
    """Somebody who asked at ``since`` was told that it waits."""
    require(later.ended_at > since, f"{later.name} is over: {later.state}", "it waits")
    over = [each.name for each in later.takers if each.state == DONE and each.ended_at < since]
    require(not over, f"{later.name} was taken back by {over}", "it waits")


def listed(schedule: ScheduleModel, found: Iterable[Any], since: int) -> None:
    """Judge a whole list of what waits, for who began to ask at ``since``."""
    there: dict[Later, None] = {}
    by_place = {(each.envelope.log, schedule.offset(each)): each for each in schedule.messages}
    by_id = {each.envelope.message_id: each for each in schedule.messages if each.envelope.message_id}
    for info in found:
        log, offset, checksum = info.id
        later = by_place.get((log, offset)) or by_id.get(info.message_id)
        if later is None:
            continue  # nobody was told where it is
        envelope = later.envelope
        require(later not in there, f"{later.name} is listed once", info)
        there[later] = None
        schedule.model.seen.put(schedule.logs[log], offset, envelope.frame)
        schedule.model.done(later.carrier)
        wanted = (envelope.checksum, envelope.due, envelope.clock, envelope.message_id)
        said = (checksum, info.due, info.clock, info.message_id)
        require(said == wanted, f"{later.name} is {wanted}", said)
        _waits(later, since)
    for later in schedule.messages:
        is_known = later.envelope.message_id or schedule.offset(later) is not None
        sent = later.carrier.state == DONE and later.carrier.ended_at < since
        if is_known and sent and not schedule.may_be_over(later):
            require(later in there, f"{later.name} is listed", "it is not")


# -- the end --------------------------------------------------------------------------------------


def all_came(schedule: ScheduleModel) -> None:
    """All have been due, and everything was read: those that were sent are there, but for those taken back."""
    starts = schedule.model.seen.starts
    for later in schedule.messages:
        partition = later.envelope.partition
        if later.carrier.state != DONE or later.is_in_doubt or later.state == VOID:
            continue
        if not schedule.may_be_dropped(later) and not starts[partition]:
            require(later.state == DONE, f"{later.name} comes to {partition}", "it does not")


def in_order(schedule: ScheduleModel) -> None:
    """What is due earlier comes first, if it was known before the other one was due, and was not held."""
    places = schedule.model.seen.places
    for clock in Clock:
        placed: dict[int, list[tuple[int, Later]]] = {}
        for later in schedule.messages:
            values = [value for sent in later.values.values() for value in sent]
            for value in values if later.envelope.clock is clock else ():
                if place := places.get(value):
                    placed.setdefault(place[0], []).append((place[1], later))
        for found in placed.values():
            found.sort(key=lambda each: each[0])
            for at, (_, first) in enumerate(found):
                for _, second in found[at + 1 :]:
                    _are_in_order(first, second)


def _are_in_order(first: Later, second: Later) -> None:
    if second.settled is None or second.takers or second.settled >= first.envelope.due:
        return
    if -(-second.latest_due // 1000) < -(-first.envelope.due // 1000):
        require(False, f"{second.name} comes before {first.name}, which is due later", "behind it")
