"""``txbroker verify`` and ``txbroker dump``: what lies in a data directory, read without a broker, never written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from journal import inspect
from journal.filesystem import OSFilesystem
from journal.inspect import Finding, FrameEntry, JournalEntry
from journal.interfaces import IFilesystem
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import emit, json_line, table, visible

_DIRECTORY = click.argument("directory", type=click.Path(exists=True, file_okay=False))


@click.command(cls=Command)
@_DIRECTORY
@pass_invocation
def verify(invocation: Invocation, directory: str) -> None:
    """Check every checksum in DIRECTORY: journal, checkpoints, segments. Reads only.

    Checksums are computed by a second implementation. Run it on a stopped broker's directory or on a copy: under a
    running one files come and go. Exits with 6 if anything is damaged; the torn trace of a crash is none.
    """
    filesystem = data_directory(directory)
    with files_that_stay(directory):
        findings = list(inspect.verify(filesystem))
        checked = {
            "journal files": len(inspect.journal_files(filesystem)),
            "checkpoints": len(list(inspect.checkpoints(filesystem))),
            "partitions": len(inspect.partitions(filesystem)),
        }
    sound = ", ".join(f"{count} {what}" for what, count in checked.items())
    emit(
        invocation.as_json,
        [finding_json(finding) for finding in findings],
        lambda: table(
            ("file", "position", "damage", "what"),
            [(f.path, f.position, not f.harmless, f.problem) for f in findings],
            f"No damage found ({sound}).",
        ),
    )
    if any(not finding.harmless for finding in findings):
        raise click.exceptions.Exit(int(Exit.CORRUPT))


@click.command(cls=Command)
@_DIRECTORY
@click.option(
    "--from-lsn", type=click.IntRange(min=0), default=0, help="Begin at this record of the journal."
)
@click.option(
    "--partition", metavar="TOPIC-INDEX", help="Dump the frames of this partition's segments instead."
)
@pass_invocation
def dump(invocation: Invocation, directory: str, from_lsn: int, partition: str | None) -> None:
    """Print the records of DIRECTORY's journal, or a partition's frames, one a line. Reads only."""
    filesystem = data_directory(directory)
    walk = (
        inspect.walk_journal(filesystem, from_lsn) if partition is None else frames_of(filesystem, partition)
    )
    damaged = False
    with files_that_stay(directory):
        for each in walk:
            damaged = damaged or (isinstance(each, Finding) and not each.harmless)
            line = line_json(each)
            click.echo(json_line(line) if invocation.as_json else line_text(line))
    if damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def data_directory(directory: str) -> IFilesystem:
    """The files of a data directory; fails for a directory that is none."""
    filesystem = OSFilesystem(directory)
    if not filesystem.exists("journal"):
        raise Failure(
            f"{directory} is not a data directory: it holds no 'journal'. Nothing was read", Exit.USAGE
        )
    return filesystem


@contextmanager
def files_that_stay(directory: str) -> Iterator[None]:
    """Say what it means when a file goes away under a walk."""
    try:
        yield
    except FileNotFoundError as error:
        raise Failure(
            f"{error.filename} went away while {directory} was read: is a broker running on it? Nothing was changed. "
            "Stop the broker, or take a copy",
            Exit.UNREACHABLE,
        ) from error


def frames_of(filesystem: IFilesystem, partition: str) -> Iterator[FrameEntry | Finding]:
    """The frames of all segments of the partition ``topic-index``."""
    found = [d for name, d in inspect.partitions(filesystem) if f"{name.topic}-{name.index}" == partition]
    if not found:
        raise Failure(f"there are no segments of a partition {partition!r} (yet); nothing was read", Exit.NO)
    for base, path in inspect.segments(filesystem, found[-1]):
        yield from inspect.walk_segment(filesystem, path, base)


def finding_json(finding: Finding) -> dict[str, object]:
    """A finding for programs."""
    return {
        "file": finding.path, "position": finding.position, "damage": not finding.harmless,
        "problem": finding.problem,
    }  # fmt: skip


def line_json(each: JournalEntry | FrameEntry | Finding) -> dict[str, Any]:
    """One line of a dump for programs."""
    if isinstance(each, Finding):
        return finding_json(each)
    if isinstance(each, FrameEntry):
        return {
            "offset": each.offset, "messages": each.messages, "timestamp": each.timestamp, "flag": each.flag,
            "position": each.position, "bytes": each.length,
        }  # fmt: skip
    kind = type(each.record)
    fields = {name: msgspec.to_builtins(getattr(each.record, name)) for name in kind.__struct_fields__}
    return {
        "lsn": each.lsn, "record": kind.__name__, **fields, "bytes": len(each.data), "file": each.path,
        "position": each.position,
    }  # fmt: skip


def line_text(line: dict[str, Any]) -> str:
    """The same for people: what it is first, then its fields."""
    first = "DAMAGED" if line.get("damage") else str(line.get("lsn", line.get("offset", "torn")))
    rest = (
        f"{name}={value}" for name, value in line.items() if name not in ("lsn", "offset", "damage", "record")
    )
    return visible(" ".join((first, str(line.get("record", "")), *rest)).replace("  ", " "))
