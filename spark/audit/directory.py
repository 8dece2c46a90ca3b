"""What an audit needs to know of a data directory before its logs are read; and all that is no log, verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from journal import filenames
from journal.archived_outcome import OUTCOMES_TOPIC
from journal.catalog import HeadRow
from journal.checkpoint import Checkpoint
from journal.filesystem import OSFilesystem
from journal.inspect import Level, verify
from journal.inspect.checkpoint_check import live_rows
from journal.inspect.findings import Finding
from journal.inspect.journal_walk import surveyed
from journal.inspect.verification import needed_from
from journal.message_store import StoreState
from journal.outcome_archive import head_of
from journal.transaction import State
from spark.audit.entries import SHAPE, Ground
from spark.audit.facts import Fact, What
from spark.audit.slices import SLICE_BYTES, Slice, cut
from spark.checkpoints import newest_checkpoint


class Directory(NamedTuple):
    """A data directory at its newest sound checkpoint. ``wall`` is when that was taken, µs since 1970."""

    root: str
    checkpoint: Checkpoint
    slices: list[Slice]
    wall: int
    archive: StoreState | None
    archives: bool
    """Whether outcomes are archived."""
    journal: list[str]
    """The files of the journal that a start would read, oldest first."""
    first_lsn: int
    """Of the journal."""

    @property
    def ground(self) -> Ground:
        """What claims are laid upon."""
        names = {store.number: (store.topic, store.index) for store in self.checkpoint.stores}
        number, end = (
            (self.archive.number, self.archive.flushed_offset) if self.archive is not None else (0, 0)
        )
        return Ground(self.slices, names, number, end, self.checkpoint.header.lsn)


def look(root: str, slice_bytes: int = SLICE_BYTES) -> Directory:
    """Read the checkpoint and plan; raises what keeps that from being done."""
    filesystem = OSFilesystem(root)
    checkpoint = newest_checkpoint(root)
    head = msgspec.convert(checkpoint.folds.get("catalog", [[1, 0]])[0], HeadRow)
    files = surveyed(filesystem)
    files = files[needed_from(files, checkpoint.header.needed_from) :]
    archive = next((store for store in checkpoint.stores if store.topic == OUTCOMES_TOPIC), None)
    return Directory(
        root,
        checkpoint,
        cut(filesystem, checkpoint.stores, slice_bytes),
        checkpoint.header.at + head.wall_offset,
        archive,
        head_of(checkpoint.folds.get("archive", []))[0].on,
        [file.path for file in files],
        files[0].lsn if files else 0,
    )


def verified(root: str, deep: bool) -> Iterator[Fact]:
    """What is wrong with anything but the logs' frames; with ``deep`` these are compared with the journal, too.

    Damaged frames are told by who checks their slices; what lies there and belongs elsewhere is told here.
    """
    for found in verify(OSFilesystem(root), Level.DEEP if deep else Level.QUICK, records=True):
        if found.foreign or not found.path.endswith(".log"):
            yield of_finding(found)


def of_finding(found: Finding) -> Fact:
    """A finding of a verification as a row."""
    affects = found.affects
    number, xid = affects.transaction, affects.xid
    kind = "archive" if affects.topic == OUTCOMES_TOPIC else found.path.split("/")[0].removesuffix("s")
    return Fact(
        What.NOTICE if found.harmless else What.VIOLATION,
        kind,
        affects.topic or "",
        -1 if affects.partition is None else affects.partition,
        first=-1 if affects.first_offset is None else affects.first_offset,
        last=-1 if affects.last_offset is None else affects.last_offset,
        path=found.path,
        position=found.position,
        session=number.session if number is not None else -1,
        serial=number.serial if number is not None else -1,
        xid=str(xid) if xid is not None else "",
        lsn=-1 if affects.first_lsn is None else affects.first_lsn,
        text=found.problem,
    )


def undecided(directory: Directory) -> Iterator[Fact]:
    """The transactions that were undecided at the checkpoint, and what they have for which logs."""
    path = filenames.checkpoint_file(directory.checkpoint.header.lsn)
    names = {store.number: (store.topic, store.index) for store in directory.checkpoint.stores}
    for row in live_rows(directory.checkpoint):
        transaction = type(row).transaction(row)
        prepared = row.state is State.PREPARED
        age = directory.checkpoint.header.at - row.prepared_at if prepared else 0
        about = Fact(
            What.ENTRY, row.state.name.lower(), path=path, session=row.number.session, serial=row.number.serial,
            xid=str(row.xid) if row.xid is not None else "", messages=row.totals.messages, bytes=transaction.bytes,
            checksum=row.totals.checksum, first=age,
        )  # fmt: skip
        yield about
        for number, count, size, checksum in transaction.parts() if row.entries else ():
            topic, index = names.get(number, ("", -1))
            yield about._replace(
                what=SHAPE, kind="undecided", topic=topic, partition=index, number=number, first=-1, messages=count,
                bytes=size, checksum=checksum,
            )  # fmt: skip
