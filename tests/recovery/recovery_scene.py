"""The scene of starts: directories to start from, and ways in which starts are refused."""

from __future__ import annotations

import pytest

from journal.constants import BLOCK, KIB
from journal.errors import CorruptJournal
from journal.records.journal_headers import FIRST_GROUP
from tests.support.engine_room import Room, contents

BIG = b"v" * (40 * KIB)


def one_file(*, mark=False):
    """A journal file with the start's record, a topic and three sends, each in a group of its own."""
    room = Room()
    room.topic()
    for value in (b"0", b"1", b"2"):
        room.send(value)
    if mark:
        room.engine.mark()
        room.engine.sync()
    return room


def position_of_send(number):
    return FIRST_GROUP + (2 + number) * BLOCK


def rolled():
    """Three journal files, the older two full; no checkpoint."""
    room = Room()
    room.topic()
    while len(room.journals()) < 3:
        room.send(BIG)
    return room


def refusal(inner, error=CorruptJournal):
    """The start is refused, and every byte on the disk is as before."""
    before = contents(inner)
    with pytest.raises(error) as caught:
        Room(inner)
    assert contents(inner) == before, "a refusal must leave the evidence as it was"
    return caught.value
