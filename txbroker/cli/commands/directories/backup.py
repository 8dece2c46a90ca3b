"""``txbroker backup``: makes, lists, verifies and removes backups of data directories."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from journal.backup import layout
from journal.backup.creation import Hold, Made, make_backup
from journal.backup.holds import StoppedHold
from journal.backup.manifest import Manifest, read_manifest
from journal.backup.object_store import prove
from journal.backup.pace import Pace
from journal.backup.pruning import Pruned
from journal.backup.pruning import prune as prune_backups
from journal.backup.stored_directory import check_stored
from journal.constants import KIB
from journal.errors import CorruptBackup, DirectoryLocked, InvalidSetting, UnknownBackup
from journal.formats import filenames
from journal.quantities import size
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.arguments import Parsed
from txbroker.cli.directory.broker_hold import BrokerHold
from txbroker.cli.directory.data_directory import DIRECTORY, check_place, data_directory
from txbroker.cli.directory.file_failures import failures_told
from txbroker.cli.directory.ownership import check_ours, owner_for_root
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, pass_invocation
from txbroker.cli.output import console, count_text, emit, facts, size_text, table, time_text
from txbroker.errors import ConnectionUnavailable

BACKUPS = click.argument("backups", type=click.Path(file_okay=False))
LEAST_RATE = 64 * KIB
"""Bytes in a second below which a rate is a unit forgotten: a GiB would take five hours."""


def rate_of(text: str) -> int:
    """Return bytes in a second; 0 for as many as can be. Raises ``ValueError`` for a rate that nobody means."""
    found = size(text)
    if 0 < found < LEAST_RATE:
        raise ValueError(
            f"{text} is {found:,} bytes in a second, with which a backup hardly ends. Say a unit, as in 50MiB; 64KiB "
            "is the least"
        )
    return found


RATE = click.option(
    "--rate",
    type=Parsed("size", rate_of),
    default="0",
    metavar="SIZE",
    help="Read and write no more than SIZE in a second, like 50MiB.",
)


class _Backups(Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; where a directory stands in its place, say which command takes it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not os.path.isdir(args[0]):
                raise
            raise click.UsageError(
                f"{error.message} Did you mean 'txbroker backup create {args[0]} BACKUPS'?", error.ctx
            ) from error


@click.group(cls=_Backups)
def backup() -> None:
    """Make, list, verify and remove backups of a data directory.

    BACKUPS is a directory in which all of them are. 'txbroker restore' restores one.
    """


@backup.command(short_help="Make a backup of a data DIRECTORY, beside its running broker.")
@DIRECTORY
@BACKUPS
@RATE
@click.option("--verify", is_flag=True, help="Read all of it again, as 'txbroker verify --deep' does.")
@click.option("--stopped", is_flag=True, help="No broker runs there: lock DIRECTORY meanwhile.")
@pass_invocation
def create(
    invocation: Invocation, directory: str, backups: str, rate: int, verify: bool, stopped: bool
) -> None:
    """Make a backup of DIRECTORY in BACKUPS, which is made if it is missing.

    The broker that runs on DIRECTORY is asked (--broker) to keep its files while they are read; that needs the right
    'backup'. All that it had acknowledged before is in the backup. It counts only if this exits with 0.
    """
    with failures_told(backups, directory, _state_before_making):
        source = data_directory(directory)
        check_apart(backups, directory)
        check_apart(directory, backups)
        target = OSFilesystem(backups, layout.PRIVATE, owner_for_root(backups, directory))
        if not layout.has_backups(target):
            check_place(backups)
        check_private(backups)
        check_ours(backups)
    if stopped:
        with failures_told(backups, directory, _state_before_making):
            hold = _stopped(source, directory)
        emit_made(invocation, _made(source, target, hold, rate, verify))
        return
    try:
        with invocation.connect(client="txbroker backup") as broker:
            emit_made(invocation, _made(source, target, BrokerHold(broker), rate, verify))
    except ConnectionUnavailable as error:
        raise ConnectionUnavailable(f"{error} If none runs on {directory}, say --stopped") from error


def _stopped(source: OSFilesystem, directory: str) -> StoppedHold:
    """Lock a data directory that nobody has open."""
    try:
        lock = source.lock(filenames.LOCK)
    except DirectoryLocked as error:
        raise Failure(
            f"process {error.holder} has {directory} open, and --stopped is for directories that nobody has open; "
            "nothing was done. Beside a running broker, leave out --stopped, and say where it is (--broker). What is "
            "no broker, stop first",
            Exit.UNREACHABLE,
        ) from error
    try:
        return StoppedHold(source, lock)
    except BaseException:
        lock.release()
        raise


def _made(source: OSFilesystem, target: OSFilesystem, hold: Hold, rate: int, verify: bool) -> Made:
    with failures_told(str(target.root), str(source.root), _state_of_making), progress_bar() as progress:
        return make_backup(source, target, hold, SystemClock(), Pace(rate), verify, progress)


def _state_before_making() -> str:
    return "No backup was made, and nothing was written"


def _state_of_making() -> str:
    return (
        "No backup was made, unless 'txbroker backup list' has it; what was written of it counts for nothing, and is "
        "removed (at the latest by the next one)"
    )


def check_apart(outer: str, inner: str) -> None:
    """Raise ``Failure`` if the second directory is in the first one, or would be."""
    if Path(outer).resolve() in Path(inner).resolve().parents:
        raise Failure(
            f"{inner} is in {outer}: data and backups would go with each other, and each is in the way of the other. "
            "Nothing was done. Name a directory elsewhere, best on another disk",
            Exit.USAGE,
        )


def check_private(directory: str) -> None:
    """Raise :class:`InvalidSetting` if others than its owner may read the directory; it may be missing."""
    if not Path(directory).exists():
        return
    mode = stat.S_IMODE(os.stat(directory).st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSetting(
            f"{directory} may be read by others (mode {mode:04o}), and backups are as secret as the data: passwords "
            f"can be guessed with them. Nothing was done. Allow it to its owner: chmod 700 {directory}"
        )


class Bar:
    """Moves a bar on as files are read."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that so many bytes of all are done, and which file is next."""
        self._bar.update(self._task, completed=done, total=total, description=what[:50])


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Show a bar on stderr if it is a terminal."""
    shown = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeRemainingColumn(), console=shown, transient=True, disable=not shown.is_terminal,
    )  # fmt: skip
    with bar:
        yield Bar(bar, bar.add_task("", total=None))


def emit_made(invocation: Invocation, made: Made) -> None:
    """Print what was made."""
    document = {**manifest_json(made.manifest), "written": made.written}
    emit(invocation.as_json, document, lambda: _shown(made))


def manifest_json(manifest: Manifest) -> dict[str, object]:
    """Return a backup for programs."""
    return {
        "name": manifest.name,
        "made": manifest.made,
        "identity": manifest.identity,
        "start": manifest.start,
        "cut": manifest.cut,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }


def data_text(identity: str) -> str:
    """Return whose data a backup holds, for people."""
    return f"of the identity {identity}" if identity else "without identity: no broker has had them"


def _shown(made: Made) -> RenderableType:
    manifest = made.manifest
    return facts(
        [
            ("backup", manifest.name),
            ("data", data_text(manifest.identity)),
            ("holds", f"{size_text(manifest.bytes)} in {count_text(len(manifest.files), 'file')}"),
            ("written", f"{size_text(made.written)}; the rest was stored already"),
            ("cut", f"all up to LSN {manifest.cut}, of start {manifest.start}"),
        ]
    )


def opened(directory: str) -> OSFilesystem:
    """Return a directory of backups; raises :class:`UnknownBackup` for another one. What root makes is its owner's."""
    filesystem = OSFilesystem(directory, layout.PRIVATE, owner_for_root(directory))
    if not filesystem.exists(""):
        raise UnknownBackup(
            f"{directory} does not exist, so there are no backups in it; nothing was done. See whether the disk that "
            "it should be on is mounted. 'txbroker backup create' makes the directory and the first backup"
        )
    if not layout.has_backups(filesystem):
        raise UnknownBackup(
            f"{directory} holds no backups; nothing was done. 'txbroker backup create' makes the first one"
        )
    return filesystem


@contextmanager
def reading(backups: OSFilesystem) -> Iterator[OSFilesystem]:
    """Keep a directory of backups from being written to."""
    lock = layout.read_lock(backups)
    try:
        yield backups
    finally:
        lock.release()


def untouched() -> str:
    """Return the state after a command that only reads."""
    return "Nothing was changed"


@backup.command("list", short_help="List the backups, the oldest first.")
@BACKUPS
@pass_invocation
def list_backups(invocation: Invocation, backups: str) -> None:
    """List the backups in BACKUPS, the oldest first. Exits with 6 if the list of what one consists of is damaged."""
    found, damaged = list[Manifest](), list[CorruptBackup]()
    with failures_told(backups, backups, untouched):
        filesystem = opened(backups)
        for name in layout.backup_names(filesystem):
            try:
                found.append(read_manifest(filesystem, name))
            except CorruptBackup as error:
                damaged.append(error)
    document = {
        "backups": [manifest_json(each) for each in found],
        "damaged": [str(error) for error in damaged],
    }
    emit(invocation.as_json, document, lambda: _listed(found, damaged))
    if damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def _listed(found: list[Manifest], damaged: list[CorruptBackup]) -> RenderableType:
    columns = ("name", "made", "data", "start", "files", "bytes")
    rows = [
        (m.name, time_text(m.made), m.identity[:12] or None, m.start, len(m.files), size_text(m.bytes))
        for m in found
    ]
    return Stack(
        table(columns, rows, "There are no backups."),
        *[Text(f"DAMAGED: {error}", style="bold") for error in damaged],
    )


@backup.command(short_help="Read every byte of backups, and verify them.")
@BACKUPS
@click.argument("names", metavar="[NAME]...", nargs=-1)
@RATE
@pass_invocation
def verify(invocation: Invocation, backups: str, names: tuple[str, ...], rate: int) -> None:
    """Read every byte of the named backups, or of all, compare it with its checksum, and verify what it holds.

    Nothing is written. Exits with 6 if anything is damaged.
    """
    sound, damaged, data = list[str](), list[str](), dict[str, str]()
    with failures_told(backups, backups, untouched), reading(opened(backups)) as filesystem:
        pace, proven = Pace(rate), dict[str, int]()
        for name in names or layout.backup_names(filesystem):
            try:
                manifest = read_manifest(filesystem, name)
                data[name] = manifest.identity
                objects = manifest.objects()
                prove(filesystem, {d: length for d, length in objects.items() if d not in proven}, pace)
                proven |= objects
                check_stored(filesystem, manifest)
                sound.append(name)
            except CorruptBackup as error:
                damaged.append(f"{name}: {error}")
    document = {"sound": sound, "damaged": damaged, "data": data}
    emit(invocation.as_json, document, lambda: _verified(sound, damaged, data))
    if damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def _verified(sound: list[str], damaged: list[str], data: dict[str, str]) -> RenderableType:
    of_each = [
        Text(f"{count_text(len(names), 'backup')} sound, {data_text(identity)}: {', '.join(names)}")
        for identity in sorted(set(data.values()))
        if (names := [name for name in sound if data[name] == identity])
    ]
    return Stack(
        *(of_each or [Text("No backup is sound.")]),
        *[Text(f"DAMAGED: {text}", style="bold") for text in damaged],
    )


@backup.command(short_help="Remove old backups, and what no backup needs.")
@BACKUPS
@click.option(
    "--keep",
    type=click.IntRange(1),
    required=True,
    help="How many to keep of each data directory: the newest.",
)
@pass_invocation
def prune(invocation: Invocation, backups: str, keep: int) -> None:
    """Remove all backups in BACKUPS but the newest ones of each data directory, then what no backup needs.

    A backup of which something is missing is not counted, and told: exits with 6 then. If the list of what a backup
    consists of cannot be read that may be one of those to keep, nothing is removed.
    """
    with failures_told(backups, backups, _state_of_pruning):
        filesystem = opened(backups)
        check_ours(backups)
        pruned = prune_backups(filesystem, keep)
    document = {
        "removed": pruned.removed, "objects": pruned.objects, "bytes": pruned.bytes, "data": pruned.data,
        "damaged": pruned.damaged,
    }  # fmt: skip
    emit(invocation.as_json, document, lambda: _pruned(pruned))
    if pruned.damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def _state_of_pruning() -> str:
    return (
        "Each backup that 'txbroker backup list' still has is whole, and the next prune removes what is left"
    )


def _pruned(pruned: Pruned) -> RenderableType:
    gone = f"{count_text(len(pruned.removed), 'backup')} removed"
    of_each = [
        Text(
            f"{count_text(kept, 'backup')} kept, {data_text(identity)}; removed: "
            f"{', '.join(name for name in pruned.removed if pruned.data.get(name) == identity) or 'none'}"
        )
        for identity, kept in Counter(
            identity for name, identity in pruned.data.items() if name not in pruned.removed
        ).items()
    ]
    return Stack(
        Text(
            f"{gone}, and {count_text(pruned.objects, 'object')} ({size_text(pruned.bytes)}) that no backup needs."
        ),
        *of_each,
        *[
            Text(
                f"DAMAGED, and not counted: {name}: {path} is missing, or has another length. 'txbroker backup verify' "
                "says more, and 'txbroker backup create --verify' stores it again if the data still have it",
                style="bold",
            )
            for name, path in pruned.damaged.items()
        ],
    )
