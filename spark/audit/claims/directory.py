"""What an audit needs to know of a data directory before it reads logs; and the verification of all its other files."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from journal.check import Level, verify
from journal.errors import DirectoryLocked, StorageUnavailable
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.store_state import StoreState
from journal.formats.witness import NOTHING, read_witness
from journal.log.catalog import head_of_catalog
from journal.log.segment import segments_of
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.transaction_states import State
from journal.transactions.outcome_archive import head_of
from journal.transactions.table import live_rows
from journal.vfs.filesystem import OSFilesystem
from journal.walks.checkpoint_walk import checkpoints
from journal.walks.findings import Finding, of_partition
from spark.audit.claims.entries import SHAPE, Ground, entry_facts
from spark.audit.claims.facts import Fact, What
from spark.audit.claims.journal_fold import of_journal, wall_offsets
from spark.audit.claims.journal_reader import journal_files, needed_files, unbroken_from
from spark.audit.claims.live_files import stable
from spark.audit.claims.log_tails import Tail, left_over, tails
from spark.audit.claims.slices import SLICE_BYTES, Slice, cut
from spark.source.checkpoints import NoCheckpoint, newest_checkpoint


class Directory(NamedTuple):
    """A data directory at its newest sound checkpoint. ``wall`` is when that was taken, µs since 1970.

    Without one it is at LSN 0, see :func:`spark.audit.claims.journal_fold.of_journal`.
    """

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
    """The first LSN from which on no record of the journal is missing."""
    tails: list[Tail]
    wall_offsets: dict[int, int]
    """The wall clock at journal time 0, by start."""
    in_use: bool
    """Whether a broker works in it: files come and go."""
    live: str = ""
    """The directory where these come and go, if ``root`` is a copy of the state; else ""."""
    tails_root: str = ""
    """The directory of the tails, if they have been copied; else ""."""

    @property
    def identity(self) -> str:
        """The identity of the broker's data; "" where no checkpoint has it."""
        rows = self.checkpoint.folds.get("identity", [])
        return rows[0] if rows and isinstance(rows[0], str) else ""

    @property
    def ground(self) -> Ground:
        """Return the ground on which claims are laid."""
        names = {store.number: (store.topic, store.index) for store in self.checkpoint.stores}
        number, end = (
            (self.archive.number, self.archive.flushed_offset) if self.archive is not None else (0, 0)
        )
        lsn = self.checkpoint.header.lsn
        following = head_of_catalog(self.checkpoint).next_partition
        return Ground(self.slices, names, number, end, lsn, following, self.wall_offsets)


@contextmanager
def held(root: str) -> Iterator[bool]:
    """Keep brokers from starting on it meanwhile; yield whether one works there already."""
    try:
        lock = OSFilesystem(root).read_lock(filenames.LOCK)
    except DirectoryLocked:
        yield True
        return
    except FileNotFoundError:
        yield False  # there is nothing that a broker could start on; :func:`look` reports what is missing
        return
    except OSError as error:
        raise StorageUnavailable(
            f"the data directory {root} cannot be read: {error.strerror}; nothing was audited. Run it as a user who "
            "may read all of it, such as the broker's"
        ) from error
    try:
        yield False
    finally:
        lock.release()


def look(root: str, slice_bytes: int = SLICE_BYTES, in_use: bool = False) -> Directory:
    """Read the checkpoint and plan the audit; raises what prevents it."""
    return stable(root, lambda: _look(root, slice_bytes, in_use))


def _look(root: str, slice_bytes: int, in_use: bool) -> Directory:
    filesystem = OSFilesystem(root)
    try:
        checkpoint = newest_checkpoint(root)
    except NoCheckpoint:
        checkpoint = of_journal(filesystem)
    files = needed_files(journal_files(filesystem), checkpoint.header.needed_from)
    archive = next((store for store in checkpoint.stores if store.topic == OUTCOMES_TOPIC), None)
    return Directory(
        root,
        checkpoint,
        cut(filesystem, checkpoint.stores, slice_bytes),
        checkpoint.header.at + head_of_catalog(checkpoint).wall_offset,
        archive,
        head_of(checkpoint)[0].on,
        [file.path for file in files],
        unbroken_from(files),
        tails(filesystem, checkpoint.stores),
        wall_offsets(filesystem, files, checkpoint),
        in_use,
    )


def check_seen(root: str, lsn: int) -> None:
    """For workers: raise :class:`StorageUnavailable` unless the directory is here, with the checkpoint at ``lsn``.

    0 stands for any, as a broker at work makes and removes them. A worker that sees another directory would take all
    of it for lost.
    """
    filesystem = OSFilesystem(root)
    wanted = filenames.checkpoint_file(lsn) if lsn else filenames.JOURNAL_DIRECTORY
    if not filesystem.exists(wanted):
        raise StorageUnavailable(
            f"the worker on {socket.gethostname()} does not see the data directory {root}: there is no {wanted} in it "
            "for this worker. Nothing is proven. Every worker needs the directory, or the same copy of it, at the path "
            "that --data names, and must be allowed to read it"
        )


def is_taken(root: str, part: Slice) -> bool:
    """Return whether a slice's file is missing because a newer checkpoint no longer has it."""
    if OSFilesystem(root).exists(part.path):
        return False
    store = next((s for s in newest_checkpoint(root).stores if s.number == part.number), None)
    return store is None or all(part.path != each.path for each in segments_of(store))


def _is_removed(live: str, path: str) -> bool:
    """Return whether a file of a log was removed after the state was copied: no newer checkpoint there has it."""
    if not path.startswith(filenames.PARTITION_DIRECTORY) or OSFilesystem(live).exists(path):
        return False
    stores = newest_checkpoint(live).stores
    return not any(path in segment.paths for store in stores for segment in segments_of(store))


def verified(root: str, deep: bool, in_use: bool = False, live: str = "") -> Iterator[Fact]:
    """Yield what is wrong with all but the logs' frames; with ``deep`` the logs are compared with the journal, too.

    The check of slices reports damaged frames; bytes that belong elsewhere are reported here. While a broker works, a
    file that is just being written may look damaged: only what is found three times is damage.
    """
    found = stable(root, lambda: _verified(root, deep))
    for _ in range(2 if in_use else 0):
        if not any(fact.what == What.VIOLATION for fact in found):
            break
        second = stable(root, lambda: _verified(root, deep))
        again = {(fact.path, fact.position, fact.text) for fact in second}
        found = [fact for fact in found if (fact.path, fact.position, fact.text) in again]
    yield from (fact for fact in found if not live or not _is_removed(live, fact.path))


def _verified(root: str, deep: bool) -> list[Fact]:
    filesystem = OSFilesystem(root)
    findings = verify(filesystem, Level.DEEP if deep else Level.QUICK, records=True)
    repaired = filesystem.exists(filenames.REPAIRS)
    facts = [of_finding(each, repaired) for each in findings if not _is_of_slices(each)]
    sound = [each for each in checkpoints(filesystem) if isinstance(each, Checkpoint)]
    facts += _witnessed(filesystem, sound[-1].header.lsn if sound else 0)
    return facts + list(left_over(filesystem, sound[-1].stores if sound else ()))


def _is_of_slices(found: Finding) -> bool:
    """Return whether the check of slices reports it: damaged messages, and index entries that are not of their log."""
    if found.of_decision:
        return False
    if found.path.endswith(".index"):
        return found.foreign
    return found.path.endswith(".log") and not found.foreign and found.affects.first_offset is not None


def _witnessed(filesystem: OSFilesystem, newest: int) -> Iterator[Fact]:
    """Return a checkpoint that the witness knows and that is not there; a start uses an older one."""
    try:
        witness = read_witness(filesystem) or NOTHING
    except OSError:
        return  # the verification reports it
    if newest < witness.checkpoint:
        what = f"the witness knows of a checkpoint at LSN {witness.checkpoint}, which is missing or damaged"
        path = filenames.checkpoint_file(witness.checkpoint)
        yield Fact(What.VIOLATION, "checkpoint", path=path, position=0, lsn=witness.checkpoint, text=what)


def _is_of_no_crash(path: str) -> bool:
    """Return whether damage of that file does not come from a crash; a start repairs it, and it is still damage."""
    directory, _, name = path.rpartition("/")
    if directory == filenames.CHECKPOINT_DIRECTORY:
        return filenames.parse_checkpoint_file(name) is not None
    return path in (filenames.CHECKPOINT_DIRECTORY, filenames.WITNESS)


def of_finding(found: Finding, repaired: bool = False) -> Fact:
    """Return a finding of a verification as a row. After a repair there may be old indexes of logs that have
    changed.
    """
    harmless = found.harmless and not _is_of_no_crash(found.path) and (repaired or not found.of_no_crash)
    affects = found.affects
    if affects.topic is None and found.path.startswith(filenames.PARTITION_DIRECTORY):
        place = of_partition(found.path)
        affects = replace(affects, topic=place.topic, partition=place.partition)
    number, xid = affects.transaction, affects.xid
    head = found.path.split("/")[0]
    kind = head if head == filenames.WITNESS else head.removesuffix("s")
    kind = "archive" if affects.topic == OUTCOMES_TOPIC else "decision" if found.of_decision else kind
    return Fact(
        What.NOTICE if harmless else What.VIOLATION,
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


def waiting(directory: Directory, reached: Mapping[int, int]) -> Iterator[Fact]:
    """Entries of the archive that the checkpoint alone has: how far the journal has ``reached`` is given by log."""
    ground = directory.ground
    head, frames = head_of(directory.checkpoint)
    path = filenames.checkpoint_file(directory.checkpoint.header.lsn)
    for offset, frame in enumerate(frames, head.next_offset - len(frames)):
        if offset >= max(ground.archived, reached.get(ground.archive, 0)):
            yield from entry_facts(frame, offset, path, 0, ground)


def undecided(directory: Directory) -> Iterator[Fact]:
    """Return the transactions that were undecided at the checkpoint, with their messages by log."""
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
