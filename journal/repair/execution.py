"""A repair is carried out in three phases: write beside, decide with one rename, then repeat steps until all are done.

Phase 1 writes every new file to ``repair.new/`` and forces it, and copies to the side folder what only a start would
destroy; no file of the directory has changed yet. Then the plan gets its name. From here on the repair is decided: the
next process that opens the directory carries it out, and no start goes past it. Phase 2 moves the files that are
replaced to the side folder, notes that in the plan, and then moves the new files, and the files found under another
name, into place; each step can be repeated. Phase 3 starts the directory once, rolls back the transactions that can
only be rolled back, makes indexes again, writes a checkpoint, and notes the repair. docs/recovery.md describes what a
crash leaves in each phase.
"""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from journal.engine.settings import JournalSettings
from journal.formats import filenames
from journal.formats.repair_notes import RepairNote, repair_notes
from journal.interfaces import IClock, IFilesystem, ILock
from journal.repair.diagnosis import Diagnosis
from journal.repair.file_pieces import Change, Slice, write_pieces
from journal.repair.first_start import start_once
from journal.transaction_states import TransactionNumber
from journal.vfs.file_window import file_size, read_some
from journal.vfs.filesystem import write_fully

SPARE_BYTES = 1 << 20
"""The space in bytes that must be free beyond what a repair writes."""


class Place(msgspec.Struct, frozen=True):
    """A file that goes to the side folder, and the file that takes its name, if there is one.

    That file is either new, or had another name and is by then in the side folder too.
    """

    path: str
    scratch: str | None


class Plan(msgspec.Struct, frozen=True):
    """The plan of a repair that has been decided: all that is needed to carry it out."""

    note: RepairNote
    places: list[Place]
    rollbacks: list[tuple[int, int]]
    indexes: list[tuple[int, int]]
    cut_logs: bool
    away: bool = False
    """Whether all files that are replaced have gone to the side folder."""
    access_may_be_old: bool = False


def is_unfinished(filesystem: IFilesystem) -> bool:
    """Return whether a repair was decided in this directory and has not been finished."""
    return filesystem.exists(filenames.REPAIR_PLAN)


def execute(
    filesystem: IFilesystem,
    clock: IClock,
    lock: ILock,
    diagnosis: Diagnosis,
    settings: JournalSettings,
) -> RepairNote:
    """Carry out a diagnosis; the caller has held the directory's lock since before the diagnosis was made.

    Raises ``OSError``. Before the plan is written nothing has changed; after it :func:`resume` continues the repair.
    """
    _check_room(filesystem, diagnosis)
    evidence = _side_folder(filesystem, clock)
    _sweep_scratch(filesystem)
    filesystem.make_directory(evidence)
    filesystem.make_directory(filenames.REPAIR_DIRECTORY)
    places = [
        _prepared(filesystem, number, change, evidence) for number, change in enumerate(diagnosis.changes)
    ]
    for path, position in diagnosis.tails:
        _keep_tail(filesystem, evidence, path, position)
    for place in places:
        _make_directories(filesystem, f"{evidence}/{place.path}")
        _make_directories(filesystem, place.path)
    for directory in _directories(
        places
    ):  # what somebody has moved by hand must not come back with a power cut
        filesystem.force_directory(directory)
    filesystem.force_directory(filenames.REPAIR_DIRECTORY)
    filesystem.force_directory("")
    plan = Plan(
        _noted(diagnosis, evidence, clock),
        places,
        [(number.session, number.serial) for number in diagnosis.rollbacks],
        diagnosis.indexes,
        diagnosis.cut_logs,
        access_may_be_old=diagnosis.access_may_be_old,
    )
    _write_plan(filesystem, plan)
    return resume(filesystem, clock, lock, settings)


def resume(filesystem: IFilesystem, clock: IClock, lock: ILock, settings: JournalSettings) -> RepairNote:
    """Carry out the plan that lies in the directory; the call can be repeated any number of times."""
    data = read_some(filesystem, filenames.REPAIR_PLAN, 0, file_size(filesystem, filenames.REPAIR_PLAN))
    plan = msgspec.json.decode(data, type=Plan)
    if not plan.away:
        _put_away(filesystem, plan)
        _write_plan(filesystem, replace(plan, away=True))
    _put_in_place(filesystem, plan)
    numbers = [TransactionNumber(*number) for number in plan.rollbacks]
    start_once(
        filesystem, clock, lock, settings, numbers, plan.indexes, plan.cut_logs, plan.access_may_be_old
    )
    notes = repair_notes(filesystem)
    if plan.note not in notes:
        _write_whole(
            filesystem, filenames.REPAIRS, msgspec.json.format(msgspec.json.encode([*notes, plan.note]))
        )
    filesystem.unlink(filenames.REPAIR_PLAN)
    filesystem.force_directory("")
    _sweep_scratch(filesystem)
    filesystem.remove_directory(filenames.REPAIR_DIRECTORY)
    return plan.note


# -- before the decision ---------------------------------------------------------------------------


def _check_room(filesystem: IFilesystem, diagnosis: Diagnosis) -> None:
    needed = diagnosis.size + SPARE_BYTES
    needed += sum(file_size(filesystem, path) - position for path, position in diagnosis.tails)
    free = filesystem.free_bytes()
    if free < needed:
        what = f"a repair writes {needed} bytes beside what is there, {free} are free; nothing was changed. Make room"
        raise OSError(errno.ENOSPC, what)


def _side_folder(filesystem: IFilesystem, clock: IClock) -> str:
    when = _moment(clock).strftime("%Y%m%dT%H%M%SZ")
    number = 0
    while filesystem.exists(name := filenames.evidence_directory(when, number)):
        number += 1
    return name


def _moment(clock: IClock) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.wall())


def _prepared(filesystem: IFilesystem, number: int, change: Change, evidence: str) -> Place:
    path, pieces = change.path, change.pieces
    if pieces is None:
        return Place(path, f"{evidence}/{change.moved_from}" if change.moved_from else None)
    scratch = f"{filenames.REPAIR_DIRECTORY}/{number}"
    file = filesystem.open(scratch, create=True)
    try:
        write_pieces(filesystem, file, pieces)
    finally:
        file.close()
    return Place(path, scratch)


def _keep_tail(filesystem: IFilesystem, evidence: str, path: str, position: int) -> None:
    kept = f"{evidence}/{path}.from-{position}"
    _make_directories(filesystem, kept)
    file = filesystem.open(kept, create=True)
    try:
        write_pieces(filesystem, file, [Slice(path, position, file_size(filesystem, path) - position)])
    finally:
        file.close()
    filesystem.force_directory(kept.rpartition("/")[0])


def _make_directories(filesystem: IFilesystem, path: str) -> None:
    """Make the directories above a path, durably."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        directory = "/".join(parts[:depth])
        if not filesystem.exists(directory):
            filesystem.make_directory(directory)
            filesystem.force_directory("/".join(parts[: depth - 1]))


def _noted(diagnosis: Diagnosis, evidence: str, clock: IClock) -> RepairNote:
    return RepairNote(
        when=_moment(clock).strftime("%Y-%m-%d %H:%M:%S UTC"),
        evidence=evidence,
        damage=[f"{finding.path} at {finding.position}: {finding.problem}" for finding in diagnosis.damage],
        changed=[f"{change.path}: {change.why}" for change in diagnosis.changes],
        lost=[loss.text for loss in diagnosis.lost],
        losses=[loss.what.facts() for loss in diagnosis.lost],
    )


def _sweep_scratch(filesystem: IFilesystem) -> None:
    if filesystem.exists(filenames.REPAIR_DIRECTORY):
        for name in filesystem.list_directory(filenames.REPAIR_DIRECTORY):
            filesystem.unlink(f"{filenames.REPAIR_DIRECTORY}/{name}")


def _write_plan(filesystem: IFilesystem, plan: Plan) -> None:
    _write_whole(filesystem, filenames.REPAIR_PLAN, msgspec.json.format(msgspec.json.encode(plan)))


def _write_whole(filesystem: IFilesystem, path: str, data: bytes) -> None:
    """Write a file so that it exists whole or not at all."""
    file = filesystem.open(filenames.temporary(path), create=True)
    try:
        file.truncate(0)
        write_fully(file, 0, [data])
        file.force()
    finally:
        file.close()
    filesystem.rename(filenames.temporary(path), path)
    filesystem.force_directory("")


# -- after it --------------------------------------------------------------------------------------


def _put_away(filesystem: IFilesystem, plan: Plan) -> None:
    evidence = plan.note.evidence
    directories = _directories(plan.places)
    kept = [f"{evidence}/{directory}".removesuffix("/") for directory in directories]
    for place in plan.places:
        away = f"{evidence}/{place.path}"
        if filesystem.exists(place.path) and not filesystem.exists(away):
            filesystem.rename(place.path, away)
    for directory in [*kept, *directories]:
        filesystem.force_directory(directory)


def _put_in_place(filesystem: IFilesystem, plan: Plan) -> None:
    directories = _directories(plan.places)
    for place in plan.places:
        if place.scratch is not None and filesystem.exists(place.scratch):
            filesystem.rename(place.scratch, place.path)
    for directory in directories:
        filesystem.force_directory(directory)
    for directory in {place.scratch.rpartition("/")[0] for place in plan.places if place.scratch is not None}:
        if filesystem.exists(directory):
            filesystem.force_directory(directory)


def _directories(places: list[Place]) -> list[str]:
    return sorted({place.path.rpartition("/")[0] for place in places})
