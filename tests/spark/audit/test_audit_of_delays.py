"""Test an audit of delayed exchanges: what waited there is claimed in the schedule, and in the queues it came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.restoring import restore
from journal.formats.envelope import SCHEDULE_TOPIC
from journal.formats.frame import HEADER_BYTES
from journal.records.queue_entries import ExchangeKind
from journal.records.record import Due, Published
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Totals
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from journal.xid import Xid
from tests.broker.queues.delayed.delays import Delays, delayed
from tests.broker.queues.scene import SECOND, pass_time
from tests.spark.audit.audited import violations
from tests.spark.damages.forger import altered, flip, forge, held, holding, rerecord, write
from tests.support.broker_room import Room
from tests.support.builders import small_files
from tests.support.queue_work import on_disk
from txbroker.wire import messages


def scene_of(archive: bool = False, flushed: bool = True) -> Delays:
    """Return a broker in which a message came to two queues, others in transactions; one waits, one that a prepared
    transaction brings, one that is not scheduled yet; and what waited at an exchange that was deleted has gone with it.
    """
    scene = Delays(room=Room(small_files(outcome_archive=archive)))
    scene.queue("other")
    scene.bind("d", "k", "other")
    scene.wait(1_000, b"came")
    _commit(scene, b"committed", 2_000)
    gone = scene.exchange("gone", ExchangeKind.DIRECT, mandatory=False, delayed=True)
    scene.peer.ask(messages.Send, gone, data=delayed("k", 60_000, b"goes with its exchange"))
    scene.wait(60_000, b"waits")
    pass_time(scene, 3 * SECOND)
    deleted = scene.peer.ask(messages.DeleteExchange, "gone", scene.shown("gone").number)
    assert isinstance(deleted, messages.Done), deleted
    pass_time(scene, 61 * SECOND)
    _commit(scene, b"waits since its commit", 90_000)
    data, xid = delayed("k", 90_000, b"in doubt"), Xid(1, b"doubt", b"")
    runs = [(scene.to, len(data))]
    assert isinstance(
        scene.peer.ask(messages.Prepare, 99, xid, Totals(0, 0, 0), runs=runs, data=data), messages.Done
    )
    scene.wait(90_000, b"waits, too")
    if flushed:
        scene.room.flush()
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"not scheduled")
    return scene


def _commit(scene: Delays, value: bytes, delay: int) -> None:
    data = delayed("k", delay, value)
    serial = len(value)
    answer = scene.peer.ask(messages.Commit, 0, serial, runs=[(scene.to, len(data))], data=data)
    assert isinstance(answer, messages.Committed), answer
    pass_time(scene, 0)


def directory(path: Path, archive: bool = False, flushed: bool = True) -> Delays:
    """Write its files as a kill leaves them."""
    scene = scene_of(archive, flushed)
    on_disk(scene.room.filesystem.kill_clone(), path)
    return scene


def topic_of(scene: Delays, name: str = "q") -> str:
    return scene.room.engine.catalog.stores[scene.info(name).partition].topic


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("archive", [False, True])
def test_a_directory_with_messages_that_wait_audits_clean(
    tmp_path: Path, archive: bool, flushed: bool
) -> None:
    scene = directory(tmp_path, archive, flushed)
    assert scene.taken(scene.q) == [b"came", b"committed", b"waits"]
    assert scene.scheduled() == 2
    kinds = [type(each.record) for each in entries(tmp_path)]
    assert kinds.count(Published) >= 6, "what was sent to wait, and what was due"
    assert Due in kinds, "what has gone with its exchange"
    assert violations(tmp_path) == []


def entries(path: Path) -> list[JournalEntry]:
    return [each for each in walk_journal(OSFilesystem(path)) if isinstance(each, JournalEntry)]


# -- what is found --------------------------------------------------------------------------------


def test_another_message_than_went_on_is_a_violation(tmp_path: Path) -> None:
    topic = topic_of(directory(tmp_path))
    found = holding(tmp_path, topic, 0, b"came")
    data = bytes(found.entry.frame)
    at = data.index(b"came", HEADER_BYTES)
    write(tmp_path, found.segment, found.entry.position, altered(data, at, b"CAME"))
    told = {(fact.kind, fact.topic) for fact in violations(tmp_path)}
    assert ("send", topic) in told
    assert {each for _, each in told} == {topic}


def test_a_message_that_went_on_and_is_missing_is_a_violation_in_that_queue_alone(tmp_path: Path) -> None:
    topic = topic_of(directory(tmp_path), "other")
    assert drop(tmp_path, topic, 0, b"came")
    assert topic in {fact.topic for fact in violations(tmp_path)}


@pytest.mark.parametrize("archive", [False, True])
def test_a_message_that_waits_and_is_missing_is_a_violation(tmp_path: Path, archive: bool) -> None:
    directory(tmp_path, archive)
    assert any(drop(tmp_path, SCHEDULE_TOPIC, log, b"", b"waits, too") for log in range(8))
    assert SCHEDULE_TOPIC in {fact.topic for fact in violations(tmp_path)}


def test_one_that_waits_twice_is_a_violation(tmp_path: Path) -> None:
    directory(tmp_path)

    def doubled(segments: Any) -> None:
        [last] = [each for each in segments if each][-1:]
        last.append(last[-1])

    log = next(
        log
        for log in range(8)
        if any(b"waits, too" in one.value for one in held(tmp_path, SCHEDULE_TOPIC, log))
    )
    forge(tmp_path, SCHEDULE_TOPIC, log, doubled)
    assert SCHEDULE_TOPIC in {fact.topic for fact in violations(tmp_path)}


def drop(path: Path, topic: str, log: int, start: bytes, part: bytes = b"") -> bool:
    """Take the first message with that out of a log, and number the others again; return whether there was one."""
    found = [each for each in held(path, topic, log) if each.value.startswith(start) and part in each.value]
    if not found:
        return False
    gone = bytes(found[0].entry.frame)

    def without(segments: Any) -> None:
        for frames in segments:
            frames[:] = [each for each in frames if each[8:] != gone[8:]]

    forge(path, topic, log, without)
    return True


def is_of_what_was_due(record: Any) -> bool:
    return isinstance(record, Published) and bool(record.ids)


def test_a_record_of_what_was_due_that_is_damaged_proves_nothing(tmp_path: Path) -> None:
    directory(tmp_path)
    record = next(each for each in entries(tmp_path) if is_of_what_was_due(each.record))
    flip(tmp_path, record.path, record.position + 20)
    assert "journal" in {fact.kind for fact in violations(tmp_path)}


@pytest.mark.parametrize(
    "change",
    [
        lambda record: replace(record, placements=record.placements[:1]),
        lambda record: replace(record, ids=[*record.ids, 1]),
        lambda record: replace(record, ids=[]),
        lambda record: replace(
            record,
            placements=[replace(each, base_offset=each.base_offset + 1) for each in record.placements],
        ),
    ],
    ids=["a queue less", "another message is over", "none is over", "elsewhere"],
)
def test_a_forged_record_of_what_was_due_is_a_violation(tmp_path: Path, change: Any) -> None:
    directory(tmp_path)
    rerecord(tmp_path, is_of_what_was_due, change)
    assert violations(tmp_path) != []


def test_a_message_that_is_said_to_be_due_twice_is_a_violation(tmp_path: Path) -> None:
    directory(tmp_path)
    first, second, *_ = [each.record for each in entries(tmp_path) if is_of_what_was_due(each.record)]
    assert first.ids != second.ids
    rerecord(tmp_path, lambda each: each == second, lambda each: replace(each, ids=first.ids))
    assert violations(tmp_path) != []


# -- backups --------------------------------------------------------------------------------------


def test_a_backup_with_messages_that_wait_audits_clean_and_what_is_missing_there_is_found(
    tmp_path: Path,
) -> None:
    scene, backups, target = scene_of(), MemoryFilesystem(), MemoryFilesystem()
    clock = ManualClock(wall=1_800_000_000_000_000)
    make_backup(scene.room.filesystem, backups, EngineHold(scene.room.engine), clock)
    restore(backups, target, clock)
    on_disk(target, tmp_path)
    assert violations(tmp_path) == []
    topic = topic_of(scene, "other")
    assert drop(tmp_path, topic, 0, b"committed")
    assert topic in {fact.topic for fact in violations(tmp_path)}
