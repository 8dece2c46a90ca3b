"""Test the verification of the outcome archive: a sound one passes, and every entry that was not decided is named.

What is wrong is written by an engine that makes wrong entries, so that every checksum fits.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from journal.check import Level, Tally, verification, verify
from journal.check.archive_check import ArchiveCheck
from journal.formats.frame import HEADER_BYTES
from journal.parties import Actor
from journal.records.outcome_entry import OUTCOMES_TOPIC, pack, unpack
from journal.transaction_states import Cause, State
from journal.transactions import outcome_archive
from tests.support.engine_room import SMALL, Room, decide
from tests.transactions.archive_scene import ARCHIVE, FIRST, SECOND, room_with_topic

LIES = {
    "state": lambda e: replace(e, state=State.ROLLED_BACK),
    "cause": lambda e: replace(e, cause=Cause.TIMEOUT),
    "number": lambda e: replace(e, serial=e.serial + 9),
    "at": lambda e: replace(e, at=e.at + 1),
    "by": lambda e: replace(e, by=Actor("mallory")),
    "checksum": lambda e: replace(e, checksum=e.checksum ^ 1),
    "messages": lambda e: replace(e, messages=e.messages + 1),
    "placements": lambda e: replace(e, parts=[replace(e.parts[0], base_offset=7), *e.parts[1:]]),
    "parts": lambda e: replace(e, parts=[replace(e.parts[0], checksum=7), *e.parts[1:]]),
    "lsn": lambda e: replace(e, lsn=e.lsn + 1),
    "routed": lambda e: replace(e, routed=(1, 50)),
}


def problems(room: Room) -> list:
    return [each for each in verify(room.inner, Level.DEEP) if not each.harmless]


def lying(monkeypatch, lie, about: int) -> None:
    """Let the entry numbered ``about`` be a lie: bytes, as the function makes them of the truth."""
    told = 0
    truth = outcome_archive.pack_outcome

    def packed(*fields):
        nonlocal told
        told += 1
        frame = truth(*fields)
        return pack(lie(unpack(frame[HEADER_BYTES:]))) if told == about + 1 else frame

    monkeypatch.setattr(outcome_archive, "pack_outcome", packed)


def some(room: Room, count: int = 5) -> None:
    for number in range(count):
        room.begin((FIRST, b"a%d" % number), (SECOND, b"b"), (FIRST, b"c")).commit()
    room.engine.sync()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_done_and_however_it_ended_a_sound_archive_passes(seed):
    random = Random(seed)
    room = room_with_topic()
    names = 0
    undecided: list[str] = []
    compared = 0
    for _ in range(60):
        match random.randrange(8):
            case 0 | 1 | 2:
                adds = [
                    (FIRST + random.randrange(2), b"v" * random.randrange(300))
                    for _ in range(random.randrange(4))
                ]
                begun = room.begin(*adds, session=random.randrange(3))
                match random.randrange(4):
                    case 0:
                        begun.commit()
                    case 1 if adds:
                        begun.rollback()
                    case 2:
                        names += 1
                        begun.prepare(f"x{names}")
                        undecided.append(f"x{names}")
            case 3 if undecided:
                room.engine.sync()
                decide(room, undecided.pop(random.randrange(len(undecided))), random.random() < 0.5)
            case 4:
                room.checkpoint()
            case 5:
                room.engine.sync()
                room = random.choice((room.crashed, room.killed))()
                room._serial = 1000 * random.randrange(1, 1000)
            case _:
                room.engine.sync()
        if random.random() < 0.1:
            room.engine.sync()
            tally = Tally()
            assert [f for f in verify(room.inner, Level.DEEP, tally) if not f.harmless] == []
            compared += tally.archived
    room.engine.sync()
    tally = Tally()
    assert [f for f in verify(room.inner, Level.DEEP, tally) if not f.harmless] == []
    assert compared + tally.archived > 0


@pytest.mark.parametrize("what", LIES)
def test_an_entry_that_says_otherwise_is_named_with_its_place_and_transaction(monkeypatch, what):
    room = room_with_topic()
    lying(monkeypatch, LIES[what], about=2)
    some(room)
    found = problems(room)
    assert found
    assert {each.affects.topic for each in found} == {OUTCOMES_TOPIC}
    assert {each.affects.first_offset for each in found} <= {2, 3}
    if what not in ("number", "lsn"):
        [only] = found
        assert only.affects.transaction is not None
        assert what in only.problem or what in ("messages", "checksum", "routed")


def test_an_outcome_without_an_entry_is_missed(monkeypatch):
    room = room_with_topic()
    some(room)
    truth = outcome_archive.OutcomeArchive.note
    monkeypatch.setattr(outcome_archive.OutcomeArchive, "note", lambda *_: None)
    lost = room.begin((FIRST, b"a")).commit().sync()
    lost_at = room.engine.transactions.outcomes.by_number[lost.number]
    monkeypatch.setattr(outcome_archive.OutcomeArchive, "note", truth)
    some(room)
    [only] = problems(room)
    assert "the archive has no entry for the outcome" in only.problem
    assert only.affects.transaction == lost.number
    assert lost_at.state is State.COMMITTED


def test_an_entry_of_what_never_ended_and_one_that_comes_twice_are_found(monkeypatch):
    room = room_with_topic()
    some(room, 2)
    archive = room.engine.transactions.archive
    from journal.records import outcome_entry

    twice = outcome_entry.unpack(room.values(ARCHIVE)[1])
    archive.next_offset += 1
    archive.waiting.append(pack(twice))
    some(room, 1)
    found = problems(room)
    assert ["did not end, or not then" in each.problem for each in found] == [True]
    assert found[0].affects.transaction == twice.number


def test_a_checkpoint_that_counts_otherwise_than_the_log_is_found():
    room = room_with_topic()
    some(room)
    room.engine.transactions.archive.next_offset += 1
    room.checkpoint()
    [only] = problems(room)
    assert "6 outcomes have places in the archive, its log has 5, 0 wait" in only.problem


def test_entries_that_waited_at_the_checkpoint_are_expected_behind_it(monkeypatch):
    room = room_with_topic()
    some(room)
    room.begin((FIRST, b"a")).sync().commit()
    room.engine.housekeeping.request_checkpoint()
    jobs = room.engine.jobs(room.engine.now())  # the state is taken here, before the group and its entry
    assert room.engine.transactions.archive.waiting
    for job in jobs:
        job.run()
        room.engine.finish(job)
    room.engine.sync()
    room.engine.housekeeping.run_inline()
    tally = Tally()
    assert [f for f in verify(room.inner, Level.DEEP, tally) if not f.harmless] == []
    assert tally.archived == 6  # the journal goes back to the first record
    tally = Tally()
    monkeypatch.setattr(verification, "is_whole", lambda files: False)  # as one whose first files are gone
    assert [f for f in verify(room.inner, Level.DEEP, tally) if not f.harmless] == []
    assert tally.archived == 1


def test_without_an_archive_nothing_is_expected():
    room = Room(settings=SMALL)
    room.topic()
    room.begin((1, b"a")).commit().sync()
    assert problems(room) == []
    assert ArchiveCheck(None).compared == 0
