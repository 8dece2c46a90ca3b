"""``txbroker dump``: prints a file of a data directory, or its journal, item by item, including damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from journal import check
from journal.check import FileKind, Finding, FrameEntry, Item, JournalEntry
from journal.formats.segment_header import SegmentHeader
from journal.formats.staged_header import StagedHeader
from journal.interfaces import IFilesystem
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.directory.data_directory import data_directory, files_that_stay
from txbroker.cli.directory.dump_lines import line_json, line_text
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import json_line


@click.command(cls=Command, short_help="Print what is in a data directory, or in one file of it.")
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--from-lsn", type=click.IntRange(min=0), default=0, help="Begin at this record of the journal."
)
@click.option(
    "--from-offset",
    type=click.IntRange(min=0),
    default=0,
    help="Begin at this message of a segment or index.",
)
@click.option("--limit", type=click.IntRange(1, sys.maxsize), help="End after so many lines.")
@click.option(
    "--partition", metavar="TOPIC-INDEX", help="Print the frames of this partition of a data directory."
)
@click.option("--values", is_flag=True, help="Show keys and the beginnings of values too.")
@pass_invocation
def dump(
    invocation: Invocation,
    path: str,
    from_lsn: int,
    from_offset: int,
    limit: int | None,
    partition: str | None,
    values: bool,
) -> None:
    """Print what is in PATH, one item a line.

    PATH is a file: a journal file (its records), a segment or a staged file (frames), an index (entries), a
    checkpoint (sections). Or it is a data directory: the records of its journal, or the frames of --partition.

    Nothing is written. Damage is shown where it is; after it the dump goes on where sound bytes begin again, and says
    so. Exits with 6 if there is damage.
    """
    damaged = False
    with files_that_stay(path):
        for each in islice(_beginning(_items(path, from_lsn, partition), from_lsn, from_offset), limit):
            damaged = damaged or (isinstance(each, Finding) and not each.harmless)
            shown = json_line(line_json(each, values)) if invocation.as_json else line_text(each, values)
            click.echo(shown)
    if damaged:
        raise click.exceptions.Exit(int(Exit.CORRUPT))


def _items(path: str, from_lsn: int, partition: str | None) -> Iterator[Item]:
    given = Path(path)
    if given.is_dir():
        filesystem = data_directory(path)
        if partition is not None:
            return frames_of(filesystem, partition)
        return check.walk_journal(filesystem, from_lsn, beyond=True)
    if partition is not None:
        raise Failure("--partition is for a data directory, not for a file; nothing was read", Exit.USAGE)
    kind = check.kind_of(given.name)
    if kind is None:
        *known, last = (each.value for each in FileKind)
        raise Failure(
            f"{path} cannot be dumped: by its name it is no {', '.join(known)} or {last}. Nothing was read",
            Exit.USAGE,
        )
    root, name = _placed(given.absolute())
    return check.walk_any(OSFilesystem(root), name, kind, from_lsn)


def _placed(file: Path) -> tuple[Path, str]:
    """Return a directory, and the file's path in it with its own directory's name, which names the partition."""
    return file.parent.parent, f"{file.parent.name}/{file.name}"


def _beginning(items: Iterator[Item], from_lsn: int, from_offset: int) -> Iterator[Item]:
    for each in items:
        if isinstance(each, JournalEntry):
            if each.lsn < from_lsn:
                continue
        elif isinstance(each, FrameEntry):
            if each.offset + each.messages <= from_offset:
                continue
        elif (isinstance(each, SegmentHeader | StagedHeader) and from_offset) or (
            isinstance(each, check.IndexItem) and each.offset < from_offset
        ):
            continue
        yield each


def frames_of(filesystem: IFilesystem, partition: str) -> Iterator[Item]:
    """Yield the frames of all segments of the partition ``topic-index``."""
    found = [d for name, d in check.partitions(filesystem) if f"{name.topic}-{name.index}" == partition]
    if not found:
        raise Failure(f"there are no segments of a partition {partition!r} (yet); nothing was read", Exit.NO)
    for base, path in check.segments(filesystem, found[-1]):
        yield from check.walk_segment(filesystem, path, base)
