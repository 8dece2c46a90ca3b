"""``txbroker verify``: checks whether a data directory is as it was written, without a broker and without writing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Group, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from journal import check
from journal.check import Finding, Level, Tally
from journal.constants import MIB
from journal.formats import filenames
from journal.formats.version import FORMAT
from journal.formats.version_file import Written, read_version
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.directory.data_directory import DIRECTORY, data_directory, finding_json, held_still
from txbroker.cli.directory.findings import findings_shown
from txbroker.cli.exits import Exit
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import console, count_text, emit, facts, size_text

MOST_SHOWN = 200
"""How many findings the table for people has; all are in the JSON."""


@click.command(cls=Command, short_help="Check every byte of a data DIRECTORY.")
@DIRECTORY
@click.option(
    "--quick", "level", flag_value="quick", help="Check only sizes, indexes and both ends of segments."
)
@click.option(
    "--deep", "level", flag_value="deep", help="Compare the journal with the logs too, message by message."
)
@pass_invocation
def verify(invocation: Invocation, directory: str, level: str | None) -> None:
    """Check every file of DIRECTORY: journal, checkpoints, staged frames, segments, indexes. Nothing is written.

    DIRECTORY is that of a stopped broker, a copy, an archive or a read-only medium; the directory of a running broker
    is refused. Checksums are computed by a second implementation. Exits with 6 if anything is damaged. The torn trace
    of a crash, and an index that a start makes again, are no damage.
    """
    filesystem = data_directory(directory)
    tally, depth = Tally(), Level(level or Level.FULL.value)
    written = read_version(filesystem)
    with held_still(filesystem, directory):
        begun = time.monotonic()
        findings = look(filesystem, depth, tally)
        seconds = time.monotonic() - begun
    damaged = any(not finding.harmless for finding in findings)
    document = {
        "level": depth.value,
        "damaged": damaged,
        "format": _format_of(written),
        "program": written.program if written is not None else None,
        "seconds": round(seconds, 3),
        "checked": tally.facts(),
        "findings": [finding_json(finding) for finding in findings],
    }
    emit(invocation.as_json, document, lambda: _shown(findings, tally, depth, seconds, directory, written))
    if damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def look(filesystem: OSFilesystem, level: Level, tally: Tally) -> list[Finding]:
    """Return all findings; shows a progress bar on stderr if it is a terminal."""
    with progress_of(filesystem, level) as progress:
        return list(check.verify(filesystem, level, tally, progress))


@contextmanager
def progress_of(filesystem: OSFilesystem, level: Level) -> Iterator[Advance]:
    """Show a bar on stderr for a verification of that level, if it is a terminal."""
    shown = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn(),
        console=shown, transient=True, disable=not shown.is_terminal,
    )  # fmt: skip
    with bar:
        yield Advance(bar, bar.add_task("verifying", total=check.planned_bytes(filesystem, level)))


class Advance:
    """Moves a bar on by a MiB at a time: moving it costs more than checking a message."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._read = 0

    def __call__(self, what: str, count: int) -> None:
        """Count ``count`` read bytes of ``what``."""
        self._read += count
        if self._read >= MIB:
            self._bar.update(self._task, advance=self._read, description=what[:40])
            self._read = 0


def _format_of(written: Written | None) -> int:
    """Return the number of the directory's format; ours, if it does not say it: it is known, or nothing was checked."""
    return FORMAT if written is None else written.format


def _shown(
    findings: list[Finding],
    tally: Tally,
    level: Level,
    seconds: float,
    directory: str,
    written: Written | None,
) -> RenderableType:
    program = f", last started by txbroker {written.program}" if written is not None else ""
    lines = [("format", f"{_format_of(written)}{program}"), *_checked(tally, level, seconds)]
    parts: list[RenderableType] = [facts(lines)]
    findings = sorted(findings, key=lambda finding: finding.harmless)
    if findings:
        parts += ["", findings_shown(findings[:MOST_SHOWN], "")]
    if len(findings) > MOST_SHOWN:
        parts.append(Text(f"... and {len(findings) - MOST_SHOWN:,} more: --json gives all of them."))
    return Group(*parts, "", Text(_verdict(findings, level, directory), style="bold"))


def _checked(tally: Tally, level: Level, seconds: float) -> list[tuple[str, object]]:
    lines: list[tuple[str, object]] = [
        ("read", f"{size_text(tally.bytes)} in {tally.files:,} files, {seconds:.1f} s"),
        ("journal", f"{tally.records:,} records in {tally.journal_files:,} files"),
        ("checkpoints", tally.checkpoints),
        ("staged files", tally.staged_files),
    ]
    frames = f"{tally.messages:,} messages in {tally.segments:,} segments"
    if level is Level.QUICK:
        frames = f"sizes and ends of {tally.segments:,} segments"
    lines.append(("logs", f"{frames}, {tally.partitions:,} partitions"))
    if level is Level.DEEP:
        lines.append(("compared", f"{tally.placed:,} messages of the journal with the logs"))
        if tally.archived:
            lines.append(("archive", f"{tally.archived:,} entries of the outcome archive with the journal"))
        lines.append(
            (
                "transactions",
                f"{tally.committed:,} committed ({tally.compared:,} compared whole), {tally.rolled_back:,} rolled "
                f"back, {tally.undecided:,} undecided",
            )
        )
    return lines


def _verdict(findings: list[Finding], level: Level, directory: str) -> str:
    unreadable = sum(finding.unreadable for finding in findings)
    damages = sum(not finding.harmless for finding in findings) - unreadable
    said = []
    if unreadable:
        said.append(
            f"{count_text(unreadable, 'file')} cannot be read, so what is in there is not known: see whose the files "
            "are, and whether the disk is sound (dmesg)."
        )
    if damages:
        said.append("1 place is damaged." if damages == 1 else f"{damages:,} places are damaged.")
    if any(finding.path == filenames.RESTORE for finding in findings):
        said.append(
            "A restore was not finished: remove all that is in there, and run 'txbroker restore' again."
        )
    elif said:
        said.append(
            "Nothing was changed. Restore the files that are named from a copy; without one, 'txbroker repair "
            f"{directory}' says what can be kept."
        )
    if said:
        return " ".join(said)
    if findings:
        said.append("No damage found: what is listed harms nothing, or a start makes it good by itself.")
    else:
        said.append("No damage found.")
    if level is Level.QUICK:
        said.append("The frames inside segments were not read; leave out --quick for that.")
    if level is Level.FULL:
        said.append("(--deep compares the journal with the logs too.)")
    return " ".join(said)
