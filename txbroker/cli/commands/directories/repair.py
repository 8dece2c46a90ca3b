"""``txbroker repair``: repairs a damaged data directory so that it starts again, and shows the losses before."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from journal import check
from journal.check import Level
from journal.engine.settings import JournalSettings
from journal.errors import DirectoryLocked
from journal.formats import filenames
from journal.formats.repair_notes import RepairNote
from journal.interfaces import ILock
from journal.repair import Diagnosis, diagnose, execute, is_unfinished, resume
from journal.repair.file_pieces import Change
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.commands.directories.verify import progress_of
from txbroker.cli.directory.data_directory import DIRECTORY, data_directory, finding_json, held_still
from txbroker.cli.directory.findings import changes_shown, findings_shown
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, confirm, pass_invocation
from txbroker.cli.output import console, count_text, emit, size_text
from txbroker.quiet_logger import quieted

MOST_SHOWN = 100
"""Lines of each kind for people; all are in the JSON and in repairs.json."""

ACCEPT_HELP = (
    "Keep messages that fulfil their own checksums, though nothing proves that they are of this log."
)

SETTINGS = JournalSettings(low_water_bytes=0)
"""The settings of the one start that a repair makes; none of it is kept."""


@click.command(cls=Command, short_help="Repair the damaged data DIRECTORY of a stopped broker.")
@DIRECTORY
@click.option("--execute", "really", is_flag=True, help="Repair; without this, only the plan is shown.")
@click.option("--dry-run", is_flag=True, help="Only show the plan. That is what happens without --execute.")
@click.option("--accept-unproven", is_flag=True, help=ACCEPT_HELP)
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def repair(
    invocation: Invocation, directory: str, really: bool, dry_run: bool, accept_unproven: bool, yes: bool
) -> None:
    """Change the damaged data DIRECTORY of a stopped broker so that it starts again.

    Without --execute, only the plan is shown: what is damaged, what would be changed, and by name what would be lost.
    A repair invents and reorders nothing, and shows nothing that was not committed. What is replaced is kept in a
    folder inside DIRECTORY. Exits with 6 if there is something to repair, or no way to repair it.
    """
    if really and dry_run:
        raise Failure("--execute and --dry-run are opposites; nothing was read", Exit.USAGE)
    filesystem = data_directory(directory)
    if not really:
        with held_still(filesystem, directory):
            diagnosis = None if is_unfinished(filesystem) else _diagnosed(filesystem, accept_unproven)
        if diagnosis is None:
            raise Failure(
                "a repair was begun here and not finished; --execute goes on with it. Nothing was changed",
                Exit.CORRUPT,
            )
        emit(
            invocation.as_json,
            _plan_json(diagnosis, filesystem),
            lambda: _plan_shown(diagnosis, filesystem, directory),
        )
        if not diagnosis.is_sound:
            raise click.exceptions.Exit(int(Exit.CORRUPT))
        return
    lock = _locked(filesystem)
    try:
        with quieted("journal"):  # the plan names each index that is made again already
            _execute(invocation, filesystem, directory, lock, accept_unproven, yes)
    finally:
        lock.release()


def _locked(filesystem: OSFilesystem) -> ILock:
    try:
        lock: ILock = filesystem.lock(filenames.LOCK)
    except DirectoryLocked as error:
        raise Failure(f"{error}. A repair needs the broker to be stopped", Exit.UNREACHABLE) from error
    return lock


def _execute(
    invocation: Invocation,
    filesystem: OSFilesystem,
    directory: str,
    lock: ILock,
    accept_unproven: bool,
    yes: bool,
) -> None:
    clock = SystemClock()
    if is_unfinished(filesystem):
        confirm(f"A repair of {directory} was begun and not finished. Go on with it?", yes)
        note = resume(filesystem, clock, lock, SETTINGS)
    else:
        diagnosis = _diagnosed(filesystem, accept_unproven)
        if diagnosis.is_sound:
            emit(
                invocation.as_json,
                _plan_json(diagnosis, filesystem),
                lambda: _plan_shown(diagnosis, filesystem, directory),
            )
            return
        if not yes:
            console(stderr=invocation.as_json).print(
                _plan_shown(diagnosis, filesystem, directory, asking=True)
            )
        confirm(f"Repair {directory} like that?", yes)
        note = execute(filesystem, clock, lock, diagnosis, SETTINGS)
    damages = [f for f in check.verify(filesystem, Level.DEEP) if not f.harmless]
    document = {
        "repaired": True, "when": note.when, "evidence": note.evidence, "changed": note.changed, "lost": note.lost,
        "losses": note.losses, "still_damaged": [finding_json(finding) for finding in damages],
    }  # fmt: skip
    emit(invocation.as_json, document, lambda: _done(note, directory, len(damages)))
    if damages:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def _diagnosed(filesystem: OSFilesystem, accept_unproven: bool) -> Diagnosis:
    with progress_of(filesystem, Level.DEEP) as progress:
        return diagnose(filesystem, progress, accept_unproven)


def _plan_json(diagnosis: Diagnosis, filesystem: OSFilesystem) -> dict[str, object]:
    return {
        "repaired": False,
        "sound": diagnosis.is_sound,
        "damage": [finding_json(finding) for finding in diagnosis.damage],
        "changes": [
            {
                "file": change.path,
                "action": _action(change, filesystem),
                "why": change.why,
            }
            for change in diagnosis.changes
        ],
        "lost": [loss.text for loss in diagnosis.lost],
        "losses": [loss.what.facts() for loss in diagnosis.lost],
        "rolled_back": [str(number) for number in diagnosis.rollbacks],
        "bytes": diagnosis.size,
    }


def _action(change: Change, filesystem: OSFilesystem) -> str:
    if change.moved_from:
        return "move"
    if change.pieces is None:
        return "remove"
    return "replace" if filesystem.exists(change.path) else "write"


def _plan_shown(
    diagnosis: Diagnosis, filesystem: OSFilesystem, directory: str, asking: bool = False
) -> RenderableType:
    if diagnosis.is_sound:
        return Text(f"There is nothing to repair in {directory}. Nothing was changed.")
    changes = [(c.path, _action(c, filesystem), c.why) for c in diagnosis.changes]
    parts: list[RenderableType] = [
        Text("Found", style="bold"),
        findings_shown(diagnosis.damage[:MOST_SHOWN], "nothing but what follows"),
        *_more(len(diagnosis.damage)),
        Text("\nWould be changed", style="bold"),
        changes_shown(changes[:MOST_SHOWN]),
        *_more(len(changes)),
        *_lost([loss.text for loss in diagnosis.lost], "Would be lost"),
        Text(
            f"\nA repair writes {size_text(diagnosis.size)}, keeps what it replaces in "
            f"{directory}/{filenames.EVIDENCE}-..., starts the directory once and verifies it."
        ),
    ]
    if all(finding.harmless for finding in diagnosis.damage) and not diagnosis.rollbacks:
        parts.append(Text("There is no need for it: a start makes all of this good by itself."))
    if not asking:
        parts.append(
            Text("Nothing was changed. Take a copy first if you can, then add --execute.", style="bold")
        )
    return Group(*parts)


def _lost(sentences: list[str], title: str) -> list[RenderableType]:
    if not sentences:
        return [Text(f"\n{title}", style="bold"), Text("nothing: all of it is still there, elsewhere")]
    shown = [Padding(Text(sentence), (0, 0, 0, 2)) for sentence in sentences[:MOST_SHOWN]]
    return [Text(f"\n{title}", style="bold"), *shown, *_more(len(sentences))]


def _more(count: int) -> list[RenderableType]:
    if count <= MOST_SHOWN:
        return []
    return [Text(f"... and {count - MOST_SHOWN:,} more: --json gives all of them.")]


def _done(note: RepairNote, directory: str, damages: int) -> RenderableType:
    verdict = "It starts, and nothing in it is damaged any more."
    if damages:
        places = "1 place in it is" if damages == 1 else f"{damages:,} places in it are"
        verdict = f"It starts, but {places} still damaged: 'txbroker verify {directory} --deep' names them."
    return Group(
        Text(f"Repaired: {count_text(len(note.changed), 'file')} changed. {verdict}", style="bold"),
        *_lost(note.lost, "Lost"),
        Text(
            f"\nWhat was replaced is in {directory}/{note.evidence}, what was done in {directory}/{filenames.REPAIRS}."
        ),
    )
