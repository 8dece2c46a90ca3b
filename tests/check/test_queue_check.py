"""Test what a verification proves of queues: their logs against the journal, and their rows against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from journal.check import (
    FrameEntry,
    JournalEntry,
    Level,
    Tally,
    is_behind,
    newest_checkpoint,
    verify,
    walk_journal,
    walk_segment,
)
from journal.formats import frame
from journal.formats.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from journal.formats.filenames import checkpoint_file
from journal.log.segment import segments_of
from journal.records.outcome_entry import ArchivedOutcome, pack, unpack
from journal.records.queue_entries import PREDECLARED, QUEUE_GROUP, QueueSettings
from journal.records.record import Published, TransactionAdded, TransactionCommitted
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause
from journal.transactions import outcome_archive
from journal.walks.checkpoint_walk import checkpoint_lsns
from tests.support.queue_work import QueueWork, everything, without_journal
from txbroker.wire import messages

Rows = dict[str, list[Any]]
FAN, TOPIC = len(PREDECLARED) + 1, len(PREDECLARED) + 2
"""The places of the rows of exchanges that were declared; then come those of queues a, b, c and five bindings."""
A, BINDING = len(PREDECLARED) + 3, len(PREDECLARED) + 6


def damages(filesystem: MemoryFilesystem, level: Level = Level.DEEP, tally: Tally | None = None) -> list[str]:
    return [str(each.problem) for each in verify(filesystem, level, tally) if not each.harmless]


# -- logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("archive", [False, True])
def test_a_sound_directory_has_nothing_to_tell(archive: bool, sliced: bool, level: Level) -> None:
    work = everything(archive, sliced)
    spread = {
        type(each.record)
        for each in walk_journal(work.files())
        if isinstance(each, JournalEntry) and any(run.also for run in getattr(each.record, "runs", ()))
    }
    assert {Published, TransactionAdded, TransactionCommitted} < spread
    tally = Tally()
    assert damages(work.files(), level, tally) == []
    if level is Level.DEEP:
        flushed = sum(store.flushed_offset for store in work.room.engine.catalog.stores.values())
        assert (tally.committed, tally.compared, tally.undecided) == (12, 12, 1)
        assert tally.placed == tally.messages == flushed > 60


@pytest.mark.parametrize("survive", [0.0, 1.0])
def test_neither_has_one_after_a_power_cut_and_the_end_of_what_was_in_doubt(survive: float) -> None:
    work = everything()
    work.room.filesystem = work.room.filesystem.crash_clone(1, survive)
    work.room.start()
    assert damages(work.files()) == []
    for number in list(work.room.engine.transactions.prepared):
        work.room.engine.transactions.commit(number, Cause.OPERATOR)
    assert damages(work.files()) == []
    work.checkpoint()
    work.checkpoint()
    assert damages(work.files()) == []


def test_nor_one_whose_transaction_in_doubt_is_committed_when_only_its_staged_file_has_its_messages() -> None:
    work = without_journal(everything())
    assert damages(work.files()) == []
    for number in list(work.room.engine.transactions.prepared):
        work.room.engine.transactions.commit(number, Cause.OPERATOR)
    tally = Tally()
    assert damages(work.files(), tally=tally) == []
    assert (tally.staged_files, tally.committed, tally.compared) == (1, 1, 1)


@pytest.mark.parametrize(
    ("queue", "value", "kind"),
    [
        ("a", b"fanned 1", "Published"),
        ("c", b"fanned 2", "Published"),
        ("b", b"both 1", "Published"),
        ("a", b"one", "Published"),
        ("a", b"in all at once 1", "TransactionCommitted"),
        ("b", b"in both at once 2", "TransactionCommitted"),
        ("c", b"in all added 1", "TransactionCommitted"),
        ("b", b"in both added 2", "TransactionCommitted"),
        ("c", b"in all prepared 2", "TransactionCommitted"),
        ("b", b"in both prepared 1", "TransactionCommitted"),
    ],
)
def test_another_message_in_the_log_of_a_queue_is_told_with_the_record_that_placed_it(
    queue: str, value: bytes, kind: str
) -> None:
    work = everything()
    disk, store = work.files(), work.room.engine.catalog.stores[getattr(work, queue)]
    found = next(
        (segment.path, each)
        for segment in segments_of(store.state())
        for each in walk_segment(disk, segment.path, segment.base_offset, segment.size)
        if isinstance(each, FrameEntry) and frame.decode_run(bytes(each.frame))[0].value == value
    )
    path, entry = found
    other = bytearray(frame.encode(b"\x01" * (entry.length - frame.HEADER_BYTES), 1))
    frame.stamp(memoryview(other), entry.offset, entry.appended)
    disk.open(path).write_some(entry.position, [bytes(other)])
    told = [each for each in verify(disk, Level.DEEP) if "the log does not hold what" in each.problem]
    [finding] = told
    assert f"({kind}) put at offset {entry.offset}" in finding.problem
    assert (finding.affects.topic, finding.affects.first_offset) == (store.topic, entry.offset)


@pytest.mark.parametrize("published", [False, True])
def test_files_are_behind_the_journal_if_it_has_publications_for_which_there_is_no_checkpoint(
    published: bool,
) -> None:
    work = QueueWork()
    work.publish("a", b"one")
    work.checkpoint()
    if published:
        work.publish("a", b"two")
    disk = work.files()
    assert is_behind(disk, newest_checkpoint(disk)) is published


LIES: dict[str, Callable[[ArchivedOutcome], ArchivedOutcome]] = {
    "less went through exchanges": lambda e: replace(e, routed=(e.routed[0] - 1, e.routed[1])),
    "fewer bytes went through exchanges": lambda e: replace(e, routed=(e.routed[0], e.routed[1] - 1)),
    "a queue did not get it": lambda e: replace(e, parts=[e.parts[0], *e.parts[2:]]),
    "a queue got other messages": lambda e: replace(
        e, parts=[e.parts[0], replace(e.parts[1], checksum=7), *e.parts[2:]]
    ),
    "each queue's messages count": lambda e: replace(e, messages=sum(part.count for part in e.parts)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("about", [0, 2, 3, 4], ids=["at once", "added", "prepared", "rolled back"])
def test_an_entry_of_the_archive_that_says_otherwise_of_queues_is_told(
    monkeypatch: pytest.MonkeyPatch, lie: str, about: int
) -> None:
    truth, told = outcome_archive.pack_outcome, []

    def packed(*fields: Any) -> bytes:
        made = truth(*fields)
        told.append(made)
        return pack(LIES[lie](unpack(made[frame.HEADER_BYTES :]))) if len(told) == about + 1 else made

    monkeypatch.setattr(outcome_archive, "pack_outcome", packed)
    work = QueueWork()
    work.round(b"1")
    [found] = damages(work.files())
    assert found.startswith("outcome archive: an entry that says")


# -- rows -----------------------------------------------------------------------------------------


def newest(disk: MemoryFilesystem) -> Checkpoint:
    return read_checkpoint(disk, checkpoint_lsns(disk)[-1])


def reworded(disk: MemoryFilesystem, change: Callable[[Rows], object]) -> MemoryFilesystem:
    """Change the rows of the newest checkpoint, with checksums that fit."""
    old = newest(disk)
    change(old.folds)
    disk.unlink(checkpoint_file(old.header.lsn))
    write_checkpoint(disk, old.header, {name: iter(rows) for name, rows in old.folds.items()}, old.stores)
    return disk


def put(fold: str, place: tuple[int, ...], value: object) -> Callable[[Rows], None]:
    def change(folds: Rows) -> None:
        row: Any = folds[fold]
        for each in place[:-1]:
            row = row[each]
        row[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ((0, 0), 99, "the number of the next exchange is 99, by the journal 9"),
        ((FAN, 3), 5, "exchange 'fan' (number, settings, messages taken) is (7, ExchangeSettings("),
        (
            (FAN, 2, 0),
            0,
            "exchange 'fan' (number, settings, messages taken) is (7, ExchangeSettings(kind=<Ex",
        ),
        ((FAN, 2, 2), True, "auto_delete=True, alternate=None, durable=True, delayed=False), "),
        ((1, 3), 7, "exchange '' (number, settings, messages taken) is (1, "),
        ((A, 3, 0), 3, "queue 'a' (topic, partition, settings) is ('txbroker.queue."),
        ((A, 0), "renamed", "queue 'a' (topic, partition, settings) is not there, by the journal"),
        ((BINDING, 1), "key", "binding 0 of exchange 'fan' is Binding(exchange='fan', key='key'"),
        ((BINDING + 3, 1), "x", "binding 0 of exchange 'topic' is Binding(exchange='topic', key='x', "),
        ((BINDING, 4), [["n", b"v"]], "arguments=(('n', b'v'),)), by the journal Binding("),
    ],
)
def test_what_a_checkpoint_says_otherwise_of_queues_is_named(
    place: tuple[int, ...], value: object, says: str
) -> None:
    def change(folds: Rows) -> None:
        put("queues", place, value)(folds)
        for binding in folds["queues"][BINDING:]:
            binding[2] = "renamed" if (binding[2], value) == ("a", "renamed") else binding[2]

    assert any(says in each for each in damages(reworded(everything(archive=False).files(), change)))


def test_a_binding_that_is_missing_or_in_another_place_is_named() -> None:
    disk = everything(archive=False).files()
    assert any(
        "binding 1 of exchange 'topic' is not there" in each
        for each in damages(reworded(disk, lambda folds: folds["queues"].pop()))
    )
    swapped = reworded(
        everything(archive=False).files(), lambda folds: folds["queues"].append(folds["queues"].pop(BINDING))
    )
    assert any("binding 0 of exchange 'fan' is" in each for each in damages(swapped))


@pytest.mark.parametrize(
    ("change", "says"),
    {
        "a binding to a queue that is not there": (
            put("queues", (BINDING, 2), "none"), "it binds 'none', which is not there",
        ),
        "a binding of an exchange that is not there": (put("queues", (BINDING, 0), "none"), "there is no 'none'"),
        "a binding twice": (
            lambda folds: folds["queues"].append(folds["queues"][-1]), "which is there already",
        ),
        "two queues of one name": (put("queues", (A, 0), "b"), "queue 'b' was declared twice"),
        "a queue with another's topic": (put("queues", (A, 1), "txbroker.queue.2"), "has topic 'txbroker.queue.2'"),
        "two queues with one topic": (
            lambda folds: folds["queues"][A + 1].__setitem__(slice(1, 3), folds["queues"][A][1:3]),
            "topic 'txbroker.queue.1' is of two queues",
        ),
        "two exchanges of one name": (put("queues", (TOPIC, 0), "fan"), "exchange 'fan' is there twice"),
        "two exchanges of one number": (put("queues", (TOPIC, 1), 7), "exchange number 7 is there twice"),
        "an exchange with a later number than the next": (
            put("queues", (0, 0), 8), "exchange 'topic' has number 8, the next one gets 8",
        ),
        "no default exchange": (put("queues", (1, 0), "other"), "exchange number 1 is always '', it has 'other'"),
        "too few exchanges": (put("queues", (0, 1), 2), "there are 6 exchanges from the start on, it has 2"),
        "too few rows": (lambda folds: folds["queues"].__delitem__(slice(A, None)), "its queues end with row"),
        "an unknown kind": (put("queues", (FAN, 2, 0), 9), "Invalid enum value 9"),
    }.values(),
)  # fmt: skip
def test_a_row_of_queues_that_cannot_be_is_refused_and_a_start_goes_back_to_the_checkpoint_before(
    change: Callable[[Rows], object], says: str
) -> None:
    disk = reworded(everything(archive=False).files(), change)
    [finding] = [each for each in verify(disk.kill_clone(), Level.QUICK) if says in each.problem]
    assert finding.path == checkpoint_file(checkpoint_lsns(disk)[-1])
    work = everything(archive=False)
    work.room.filesystem = disk
    work.room.start()
    work.peer = work.room.peer()
    assert set(work.room.broker.groups.groups[QUEUE_GROUP].positions) == {work.a, work.b, work.c}
    assert isinstance(work.publish("a", b"more"), messages.Sent)


def group_row(folds: Rows) -> list[Any]:
    found: list[Any] = next(each for each in folds["groups"][1:] if each[0] == QUEUE_GROUP)
    return found


def without_position(folds: Rows) -> None:
    row = group_row(folds)
    row[2] = row[2][:-1]


def with_position(folds: Rows) -> None:
    row = group_row(folds)
    row[2] = [*row[2], [4, 0, ""]]


def acknowledged_too_far(folds: Rows) -> None:
    row = group_row(folds)
    row[2] = [[partition, 1000, ""] if partition == 3 else [partition, *more] for partition, *more in row[2]]


def finished_too_far(folds: Rows) -> None:
    group_row(folds)[4][0][1] = [b"\x02" + b"\xfe" * 90]


def without_queue(folds: Rows) -> None:
    del folds["queues"][A]
    folds["queues"][0][2] -= 1
    folds["queues"] = [each for each in folds["queues"] if len(each) != 5 or each[2] != "a"]


def without_topic(folds: Rows) -> None:
    folds["catalog"] = [each for each in folds["catalog"] if each[0] != "txbroker.queue.1"]


def with_more_partitions(folds: Rows) -> None:
    next(each for each in folds["catalog"] if each[0] == "txbroker.queue.1")[2] = [[1, 1], [9, 1]]


@pytest.mark.parametrize(
    ("change", "says", "topic"),
    [
        (without_position, "queue 'c': group 'txbroker.queues' has no position in it", "txbroker.queue.3"),
        (
            with_position,
            "group 'txbroker.queues' has something of partition number 4, which is no queue's",
            "orders",
        ),
        (acknowledged_too_far, "queue 'c': messages up to offset 999 are acknowledged", "txbroker.queue.3"),
        (finished_too_far, "queue 'a': messages up to offset 7", "txbroker.queue.1"),
        (
            without_queue,
            "topic 'txbroker.queue.1' is a queue's by its name, and there is no queue",
            "txbroker.queue.1",
        ),
        (
            without_topic,
            "queue 'a' has topic 'txbroker.queue.1', and there is none",
            "txbroker.queue.1",
        ),
        (
            with_more_partitions,
            "queue 'a' is partition number 1, its topic has [1, 9]",
            "txbroker.queue.1",
        ),
    ],
)
def test_rows_of_queues_topics_and_acknowledgements_that_disagree_are_told_without_the_journal(
    change: Callable[[Rows], None], says: str, topic: str
) -> None:
    disk = reworded(everything(archive=False).files(), change)
    [finding] = [each for each in verify(disk, Level.QUICK) if says in each.problem]
    assert (finding.affects.topic, finding.path) == (topic, checkpoint_file(checkpoint_lsns(disk)[-1]))


def test_a_log_of_a_queue_that_begins_behind_what_is_not_acknowledged_is_told() -> None:
    work = QueueWork(archive=False)
    work.publish("a", b"one", b"two", b"three")
    work.taken(work.a)
    work.acknowledge(work.a, 0)
    work.checkpoint()
    assert damages(work.files()) == []
    disk = work.files()
    old = newest(disk)
    stores = [replace(store, start_offset=2) if store.number == work.a else store for store in old.stores]
    write_checkpoint(disk, old.header, {name: iter(rows) for name, rows in old.folds.items()}, stores)
    told = damages(disk, Level.QUICK)
    assert "queue 'a': message 1 is not acknowledged, and the log starts at 2" in told


def with_fewer_partitions(folds: Rows) -> None:
    next(each for each in folds["catalog"] if each[0] == "txbroker.queue.5")[2] = [[5, 3]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without_position, "queue 'levels', priority 3: group 'txbroker.queues' has no position in it"),
        (with_fewer_partitions, "queue 'levels' is partition numbers 5 to 8, its topic has [5, 6, 7]"),
    ],
)
def test_the_priorities_of_a_queue_are_compared_each(change: Callable[[Rows], None], says: str) -> None:
    work = QueueWork(archive=False)
    made = work.peer.ask(messages.DeclareQueue, "levels", QueueSettings(max_priority=3))
    assert made.partition == 5
    work.checkpoint()
    assert damages(work.files()) == []
    disk = reworded(work.files(), change)
    [finding] = [each for each in verify(disk, Level.QUICK) if says in each.problem]
    assert finding.affects.topic == "txbroker.queue.5"
