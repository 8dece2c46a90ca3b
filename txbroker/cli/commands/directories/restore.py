"""``txbroker restore``: makes an empty directory what a backup holds, and begins a new time line there."""

from __future__ import annotations

import os

import click
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from journal.backup.pace import Pace
from journal.backup.restoring import RestoredDirectory
from journal.backup.restoring import restore as restore_backup
from journal.errors import JournalPoisoned
from journal.formats import filenames
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.commands.directories.backup import (
    BACKUPS,
    RATE,
    check_apart,
    data_text,
    opened,
    progress_bar,
    reading,
)
from txbroker.cli.directory.data_directory import check_place, is_started
from txbroker.cli.directory.file_failures import failures_told
from txbroker.cli.directory.ownership import PRIVATE_MODE, Owner, make_private, owner_named, owner_of
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import count_text, emit, facts, size_text, time_text


@click.command(cls=Command, short_help="Restore a backup to an empty DIRECTORY.")
@BACKUPS
@click.argument("directory", type=click.Path(file_okay=False))
@click.option(
    "--backup",
    "name",
    default="",
    metavar="NAME",
    help="The backup (default: the newest, if all are of the same data).",
)
@click.option("--as-copy", is_flag=True, help="The original lives on: decide nothing of its transactions.")
@RATE
@click.option("--owner", metavar="USER", help="The user of the system that the broker will run as; for root.")
@pass_invocation
def restore(
    invocation: Invocation,
    backups: str,
    directory: str,
    name: str,
    as_copy: bool,
    rate: int,
    owner: str | None,
) -> None:
    """Restore a backup from BACKUPS to DIRECTORY, which is empty or does not exist, and begin a new time line.

    Every byte of the backup is read and compared with its checksum first. Clients of the time line before are refused
    (BrokerReplaced), and what was prepared when the backup was made is rolled back by a person alone. What root
    restores belongs to the owner of DIRECTORY, or to --owner.
    """
    named = owner_named(owner)

    def state() -> str:
        if not os.path.lexists(os.path.join(directory, filenames.RESTORE)):
            is_there = " now, unless 'txbroker verify' finds data in there" if is_started(directory) else ""
            return f"Nothing was restored{is_there}"
        return f"{directory} holds a part of the backup, which no start goes past: before you begin again, empty it"

    with failures_told(backups, directory, state):
        source = opened(backups)
        check_apart(backups, directory)
        check_place(directory)
        target = OSFilesystem(directory, PRIVATE_MODE, _owner(directory, named))
        try:
            with reading(source), progress_bar() as progress:
                done = restore_backup(source, target, SystemClock(), name, as_copy, Pace(rate), progress)
        except JournalPoisoned as error:
            raise Failure(
                f"the restore failed: {error}. {state()}. Make room if there is none", Exit.IO_FAILED
            ) from error
    document = {
        "backup": done.manifest.name, "made": done.manifest.made, "identity": done.manifest.identity,
        "start": done.start, "as_copy": as_copy,
        "restored_transactions": [str(number) for number in done.waiting],
    }  # fmt: skip
    emit(invocation.as_json, document, lambda: _shown(done, directory, as_copy))


def _owner(directory: str, named: Owner | None) -> Owner | None:
    """Return whom the files will belong to, and let nobody else enter the directory if it is there, and empty."""
    return make_private(directory, named) if os.path.isdir(directory) else named


def _shown(done: RestoredDirectory, directory: str, as_copy: bool) -> RenderableType:
    manifest = done.manifest
    lines: list[tuple[str, object]] = [
        ("backup", f"{manifest.name}, of {time_text(manifest.made)}"),
        ("data", f"{data_text(manifest.identity)}, of start {manifest.start}"),
        ("restored", f"{size_text(manifest.bytes)} to {directory}, which belongs to {owner_of(directory)}"),
        ("time line", f"begun by start {done.start}" + (", as a copy" if as_copy else "")),
    ]
    if not done.waiting:
        return facts(lines)
    waiting = (
        f"It holds {count_text(len(done.waiting), 'prepared transaction')}, which may have been committed since. "
        + (
            "The original decides them: the copy refuses commit and rollback alike, and resolvers leave it alone."
            if as_copy
            else "Once the broker runs, 'txbroker transactions list --restored' lists what waits; resolvers commit "
            "what their databases have, and docs/backup.md says what to do about the rest."
        )
    )
    return Stack(facts(lines), "", Text(waiting))
