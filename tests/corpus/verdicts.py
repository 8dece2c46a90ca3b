"""Verdicts of the code on a damaged directory, by kinds, steps and names of files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, cast

from journal.check import Finding, JournalEntry, Level, verify, walk_any
from journal.check.scrub import JournalPiece, Piece
from journal.constants import KIB
from journal.engine.engine import Engine
from journal.errors import CorruptData, CorruptSegment, Irreparable, TxBrokerError
from journal.folds.table import client_folds
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.recovery.start import recover
from journal.repair import diagnose, execute
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause
from journal.walks.file_walk import FileKind
from journal.walks.findings import Affected
from tests.corpus.damages import Case, damaged, layout_of
from tests.corpus.places import Layout
from tests.support.damage.damaged_store import SETTINGS

PARTS = ("start", "verify", "repair", "dump", "scrub")
Verdict = dict[str, str]


def verdict_of(case: Case) -> Verdict:
    """What each of :data:`PARTS` says, one line for each thing."""
    layout, disk = layout_of(case.world), damaged(case)
    return {
        "start": _start(layout, disk.kill_clone()),
        "verify": _lines(_finding(layout, each) for each in verify(disk, Level.DEEP, records=True)),
        "repair": _repair(layout, disk.kill_clone()),
        "dump": _lines(_dump(layout, disk)),
        "scrub": _lines(_scrub(layout, disk)),
    }


def _lines(found: Iterator[str]) -> str:
    """Sorted, for in which order damage is told is no part of the verdict; equal ones are counted."""
    lines = sorted(found)
    return "\n".join(
        f"{line} (x{lines.count(line)})" if lines.count(line) > 1 else line for line in dict.fromkeys(lines)
    )


# -- a start -----------------------------------------------------------------------------------------------------------


def _start(layout: Layout, disk: MemoryFilesystem) -> str:
    try:
        engine = recover(disk, ManualClock(monotonic=1_000_000), SETTINGS, folds=client_folds())
    except TxBrokerError as error:
        return f"refused: {_error(layout, error)}"
    try:
        return "\n".join(_state(layout, engine))
    finally:
        engine.close()


def _error(layout: Layout, error: Exception) -> str:
    if isinstance(error, CorruptSegment):
        place = f"{layout.alias(error.path)} {error.first_offset}-{error.last_offset}"
        return f"{type(error).__name__} at {place}"
    if isinstance(error, CorruptData) and error.path:
        position = getattr(error, "position", 0)
        return f"{type(error).__name__} at {layout.where(error.path, position)}"
    return type(error).__name__


def _state(layout: Layout, engine: Engine) -> Iterator[str]:
    """What a client can see: logs, groups, what is undecided and what that brings, outcomes."""
    yield f"notes: {len(cast(Any, engine.report).notes)}"
    for store in engine.catalog.stores.values():
        values, errors = _values(store, store.start_offset)
        digest = hashlib.sha256(repr(values).encode()).hexdigest()[:8]
        yield f"{store.topic}-{store.index}: {store.start_offset} to {store.high_watermark}, {digest}"
        yield from (f"{store.topic}-{store.index}: {_error(layout, error)}" for error in errors)
    for outcome in sorted(engine.transactions.outcomes.by_number.values(), key=lambda each: each.number):
        yield f"outcome {outcome.number}: {outcome.state.name}, {outcome.messages} messages"
    for fold in engine.folds:
        if fold.name == "groups":
            for name, group in sorted(cast(Any, fold).groups.items()):
                yield f"group {name}: {sorted(group.positions.items())}, {sorted(group.claims.items())}"
        elif fold.name == "producers":
            for number, producer in sorted(cast(Any, fold).producers.items()):
                sequences = {partition: each.next for partition, each in sorted(producer.partitions.items())}
                yield f"producer {number} {producer.name} {producer.epoch}: {sequences}"
    for transaction in sorted(engine.transactions.live.values(), key=lambda each: each.number):
        brought = _brought(layout, engine, transaction)
        yield f"{transaction.state.name} {transaction.number} {transaction.xid}: {brought}"


def _brought(layout: Layout, engine: Engine, transaction: Any) -> str:
    """What committing it brings."""
    before = {number: store.end_offset for number, store in engine.catalog.stores.items()}
    try:
        engine.transactions.commit(transaction.number, Cause.OPERATOR)
    except CorruptData as error:
        engine.transactions.rollback(transaction.number, Cause.OPERATOR)
        engine.sync()
        return _error(layout, error)
    engine.sync()
    stores = engine.catalog.stores.items()
    found = {
        number: _values(store, before[number])[0]
        for number, store in stores
        if store.end_offset > before[number]
    }
    return hashlib.sha256(repr(found).encode()).hexdigest()[:8]


def _values(store: MessageStore, offset: int) -> tuple[list[Any], list[CorruptSegment]]:
    """All from ``offset`` on, None for what cannot be read."""
    values: list[Any] = []
    errors: list[CorruptSegment] = []
    while offset < store.high_watermark:
        try:
            data = store.read(offset, 256 * KIB)
        except CorruptSegment as error:
            errors.append(error)
            values += [None] * (error.last_offset + 1 - offset)
            offset = error.last_offset + 1
            continue
        for message in frame.decode_run(data, offset):
            assert message.offset == offset
            values.append((message.value, message.key))
            offset += 1
    return values, errors


# -- a verification, a dump, a scrub ---------------------------------------------------------------------------------


def _affected(affects: Affected) -> str:
    """Whose data it is, but for LSNs."""
    parts = [] if affects.topic is None else [f"{affects.topic}-{affects.partition}"]
    if affects.first_offset is not None:
        parts.append(f"{affects.first_offset}-{affects.last_offset}")
    if affects.transaction is not None:
        parts.append(str(affects.transaction))
    if affects.xid is not None:
        parts.append(str(affects.xid))
    if affects.first_lsn is not None:
        parts.append("LSNs")
    return f" ({' '.join(parts)})" if parts else ""


def _finding(layout: Layout, found: Finding) -> str:
    flags = ("harmless", "foreign", "unreadable", "unproven", "of_no_crash", "of_decision")
    said = "".join(f" {flag}" for flag in flags if getattr(found, flag))
    return f"{layout.where(found.path, found.position)}{said}{_affected(found.affects)}"


def _journal_paths(disk: MemoryFilesystem) -> list[str]:
    return [f"journal/{name}" for name in sorted(disk.list_directory("journal")) if name.endswith(".journal")]


def _dump(layout: Layout, disk: MemoryFilesystem) -> Iterator[str]:
    """Of each journal file what a dump shows otherwise than of the sound one."""
    for path in _journal_paths(disk):
        alias, held = layout.alias(path), layout.held.get(path, set())
        shown: set[str] = set()
        beyond: set[str] = set()
        for item in walk_any(disk, path, FileKind.JOURNAL):
            if isinstance(item, JournalEntry):
                (beyond if item.beyond else shown).add(layout.steps.get(item.lsn, "?"))
            elif isinstance(item, Finding):
                yield f"{alias}: {_finding(layout, item)}"
        if missing := held - shown:
            yield f"{alias} lacks {', '.join(sorted(missing))}"
        if more := (shown - held) | beyond:
            yield f"{alias} has {', '.join(sorted(more))}"


def _scrub(layout: Layout, disk: MemoryFilesystem) -> Iterator[str]:
    for path, end in layout.ends.items():
        piece: Piece | None = JournalPiece(disk, path, end)
        while piece is not None:
            scrubbed = piece.run()
            if scrubbed.finding is not None:
                yield _error(layout, scrubbed.finding)
            piece = scrubbed.rest


# -- a repair ----------------------------------------------------------------------------------------------------------


def _repair(layout: Layout, disk: MemoryFilesystem) -> str:
    with_lock = disk.lock("lock")
    try:
        diagnosis = diagnose(disk)
    except Irreparable as error:
        return f"irreparable: {_error(layout, error)}"
    if diagnosis.is_sound:
        return "nothing to repair"
    said = [
        f"{layout.alias(c.path)} {'goes' if c.pieces is None else 'is written'}" for c in diagnosis.changes
    ]
    said += [f"lost:{_affected(loss.what) or ' ' + loss.text.partition(' ')[0]}" for loss in diagnosis.lost]
    said += [f"rolled back: {number}" for number in diagnosis.rollbacks]
    said += ["indexes"] * bool(diagnosis.indexes) + ["logs are cut"] * diagnosis.cut_logs
    execute(disk, ManualClock(wall=1_600_000_000_000_000), with_lock, diagnosis, SETTINGS)
    with_lock.release()
    left = [each for each in verify(disk, Level.DEEP) if not each.harmless]
    said.append(f"findings left: {len(left)}")
    return _lines(iter(said)) + "\n" + _start(layout, disk)
