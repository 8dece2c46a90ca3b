"""The scene of the archive's tests: a room with an outcome archive, and its entries."""

from __future__ import annotations

from msgspec.structs import replace

from journal.constants import KIB
from journal.formats import frame
from journal.records import outcome_entry
from tests.support.engine_room import SMALL, Room

ON = replace(SMALL, outcome_archive=True)


ENDS = [(0, 0.0), (1, 1.0), *((seed, None) for seed in range(2, 6))]


ARCHIVE, FIRST, SECOND = 1, 2, 3
"""Numbers of partitions: the archive's is made by the first start."""


def room_with_topic(**settings) -> Room:
    room = Room(settings=replace(ON, **settings))
    room.topic()
    return room


def entries(room: Room):
    return [outcome_entry.unpack(value) for value in room.values(ARCHIVE)]


def ended(room: Room):
    return [(each.number, each.state, each.cause) for each in entries(room)]


def bare(room: Room) -> bytes:
    """The archive's log byte for byte."""
    store = room.store(ARCHIVE)
    found, offset = b"", store.start_offset
    while data := store.read(offset, 64 * KIB):
        found += data
        offset = frame.decode_run(data)[-1].offset + 1
    return found
