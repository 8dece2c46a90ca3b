"""Test that errors tell an operator which file, where in it, what is affected, the state, and what to do.

One of each error that damage, a failing or a full disk, or a second process can bring. The texts themselves may change;
what they must tell may not.

Seen to fail: with any of the advice, the position or what is affected taken out of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from journal.errors import (
    CorruptData,
    CorruptSegment,
    DirectoryLocked,
    DiskFull,
    JournalPoisoned,
    StorageUnavailable,
    TxBrokerError,
)
from journal.testing import Fault, MemoryFilesystem, Operation
from journal.words import span
from tests.recovery.test_damage import DAMAGES, KINDS, READ, REFUSED, kind_of
from tests.support.damage.damage_scene import case
from tests.support.engine_room import Room, decide, journal_path, xid_of
from txbroker.broker.sends.sends import disk_full

STATE = re.compile(r"nothing was changed|no record was changed|nothing has changed|outcome|is unknown", re.I)
AFFECTED = re.compile(
    r"LSN \d+|offsets? \d+|transaction|acknowledged|none of its records|all that there was|new work", re.I
)
POSITION = re.compile(
    r"at (byte )?\d+|is missing|there is no journal file|another file under this name|begins with"
)
NEXT = re.compile(r"txbroker (verify|repair) DIR")


@cache
def damage_errors() -> list[tuple[str, Exception]]:
    """Every refusal, and every error on reading, of the files of a store that were damaged."""
    found: list[tuple[str, Exception]] = []
    for path, data in case().files.items():
        for damage, change in DAMAGES.items():
            if data and KINDS[kind_of(path)][damage] in (REFUSED, READ):
                disk = case().store.disk()
                change(disk, path)
                verdict = case().judged(disk)
                if verdict.refused is not None:
                    found.append((path, verdict.refused))
                found += [(path, error) for error in verdict.errors]
    return found


def kind_of_error(error: Exception) -> str:
    """The text without its numbers and names: one of each is enough to read."""
    return re.sub(r"[\d:]+|0x\w+|b'.*?'", "N", str(error))[:60]


def test_there_are_many_kinds_of_errors_to_be_read():
    assert len({kind_of_error(error) for _, error in damage_errors()}) > 8


@pytest.mark.parametrize(
    "part",
    [
        ("the file", lambda path: re.compile(re.escape(path))),
        ("the position", lambda _: POSITION),
        ("what is affected", lambda _: AFFECTED),
        ("the state", lambda _: STATE),
        ("a copy as the way back", lambda _: re.compile("from a copy")),
        ("the next step", lambda _: NEXT),
    ],
    ids=lambda part: part[0],
)
def test_an_error_of_damage_names(part: tuple[str, Callable[[str], re.Pattern[str]]]):
    _, pattern = part
    for path, error in damage_errors():
        assert isinstance(error, CorruptData)
        text = str(error)
        if not pattern(path).search(text):
            # Where a file is missing its neighbour may be the one that tells of it.
            assert pattern(error.path).search(text), text
            assert path.split("/")[0] == error.path.split("/")[0]


def test_an_error_of_damage_carries_file_and_position_for_programs_too():
    for path, error in damage_errors():
        assert isinstance(error, CorruptData)
        assert error.path
        assert error.position >= 0
        if isinstance(error, CorruptSegment):
            assert error.first_offset <= error.last_offset
            assert span("ffset", error.first_offset, error.last_offset) in str(error)
        assert error.path.split("/")[0] == path.split("/")[0]


def poisoned() -> TxBrokerError:
    room = Room()
    room.topic()
    room.plan.faults.append(Fault(Operation.FORCE, path="journal/*"))
    with pytest.raises(JournalPoisoned) as caught:
        room.send(b"x")
    return caught.value


def refused_after_a_failed_flush() -> TxBrokerError:
    room = Room()
    room.topic()
    room.send(b"x")
    room.plan.faults.append(Fault(Operation.WRITE, path="partitions/*"))
    with pytest.raises(OSError, match="partitions/"):
        room.flush()
    with pytest.raises(JournalPoisoned) as caught:
        room.send(b"y")
    return caught.value


def locked() -> TxBrokerError:
    room = Room()
    with pytest.raises(DirectoryLocked) as caught:
        Room(room.inner)
    return caught.value


def staged_file_missing() -> TxBrokerError:
    room = Room()
    room.topic()
    room.begin((1, b"a")).prepare("p").sync()
    for _ in range(3):
        room.checkpoint()
        room.send(b"x")
    disk: MemoryFilesystem = room.inner.crash_clone(0)
    [name] = disk.list_directory("staged")
    disk.unlink(f"staged/{name}")
    after = Room(disk)
    with pytest.raises(CorruptData) as caught:
        decide(after, "p", commit=True)
    assert after.prepared() == {xid_of("p")}
    return caught.value


def group_damaged_at_work() -> TxBrokerError:
    room = Room()
    room.topic()
    room.begin((1, b"a" * 600_000)).prepare("p").sync()  # more than is held in memory
    for lsn in room.journals():
        file = room.inner.open(journal_path(lsn))
        for position in range(8192, file.size(), 4096):
            file.write_some(position, [b"\xff" * 40])
    with pytest.raises(CorruptData) as caught:
        room.engine.transactions.table.preview(
            room.engine.transactions.find(xid_of("p")), 1, room.engine.forced_lsn
        )
    return caught.value


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (poisoned, ["journal/", "Input/output error", "is unknown", "must stop", "the next start recovers"]),
        (refused_after_a_failed_flush, ["partitions/", "Input/output error", "the next start recovers"]),
        (locked, ["lock", "process", "Nothing was read or changed", "Stop that process"]),
        (disk_full, ["low-water", "nothing has changed", "commit and rollback work", "make room"]),
        (staged_file_missing, ["staged/", "missing", "nothing was changed", "roll the transaction back"]),
        (group_damaged_at_work, ["journal/", "damaged at", "LSN", "Nothing was changed", "verify DIR"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_other_error_tells_what_happened_to_what_the_state_and_what_to_do(make, told):
    error = make()
    assert isinstance(error, JournalPoisoned | StorageUnavailable | CorruptData | DiskFull)
    for part in told:
        assert part in str(error), str(error)


@pytest.mark.slow
def test_every_note_of_a_start_names_the_file_and_what_was_done_about_it():
    notes: set[str] = set()
    for path, data in case().files.items():
        for change in DAMAGES.values():
            if data:
                disk = case().store.disk()
                change(disk, path)
                for note in case().judged(disk).notes:
                    notes.add(note)
                    assert path.rpartition(".")[0] in note, note
    told = re.compile(
        r"is used|is taken from|written anew|records are there|again: |was torn|is damaged at byte|restored from a copy"
        r"|writes it anew"
    )
    for note in notes:
        assert told.search(note), note
    assert len({re.sub(r"\d+", "N", note) for note in notes}) > 6
