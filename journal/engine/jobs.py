"""Jobs of housekeeping on files: each is run on one thread, one at a time, and then handed back.

A job that raises ends the process (:meth:`Engine.fail <journal.engine.engine.Engine.fail>`): nothing is retried.
"""

from __future__ import annotations

import errno
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from journal.engine.engine import Engine
from journal.formats import filenames
from journal.formats.checkpoint import CheckpointHeader, write_checkpoint
from journal.formats.store_state import StoreState
from journal.formats.witness import Witness, write_witness
from journal.interfaces import IFilesystem
from journal.log.flush import FlushJob
from journal.log.message_store import MessageStore
from journal.log.segment import Segment
from journal.transactions.staging import StagingPlan
from journal.vfs.filesystem import write_fully, zero_fill
from journal.vfs.open_files import OpenFiles
from journal.wal.writer import RECYCLED_FILES

log = logging.getLogger(__name__)


class Job(ABC):
    """A piece of work on files. If it raises, the process must stop and recover (:meth:`Engine.fail`)."""

    @abstractmethod
    def run(self) -> None:
        """Do the work; touches files only. Any thread may call it."""


class FlushStore(Job):
    """Writes one partition's tail to its segment and forces it, or leaves that to a :class:`ForceLogs`."""

    def __init__(self, store: MessageStore, flush: FlushJob, alone: bool) -> None:
        self.store = store
        self.flush = flush
        self._alone = alone
        self.no_room = False
        """Whether the disk was full, and nothing depends on that: the messages are a transient queue's."""

    def run(self) -> None:
        """Write, and force unless a :class:`ForceLogs` follows. Transient queues are not forced."""
        try:
            self.flush.run(durably=self._alone)
        except OSError as error:
            if not self.store.is_transient or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.no_room = True


class ForceLogs(Job):
    """Forces what several flushes before it have written: together they share the file system's commits."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files

    def run(self) -> None:
        """Return once all of it is on disk, names too."""
        self._files.force()
        self._files.filesystem.force_directory(filenames.PARTITION_DIRECTORY)


class StageFrames(Job):
    """Writes frames of long-lived transactions to their staged files."""

    def __init__(self, engine: Engine, plans: list[StagingPlan]) -> None:
        self._engine = engine
        self.plans = plans

    def run(self) -> None:
        """Write and force each, then the directory."""
        for plan in self.plans:
            self._engine.transactions.staging.write(plan)
        self._engine.filesystem.force_directory(filenames.STAGED_DIRECTORY)


class WriteCheckpoint(Job):
    """Writes a checkpoint, all of whose stores have been flushed far enough."""

    def __init__(
        self,
        files: OpenFiles,
        header: CheckpointHeader,
        folds: dict[str, Iterator[Any]],
        stores: list[StoreState],
    ) -> None:
        self._files = files
        self.header = header
        self._folds = folds
        self._stores = stores

    def run(self) -> None:
        """Force the logs that the start wrote, and the directory of partitions; then write the checkpoint durably."""
        filesystem = self._files.filesystem
        self._files.force()
        filesystem.force_directory(filenames.PARTITION_DIRECTORY)
        write_checkpoint(filesystem, self.header, self._folds, self._stores)


class CollectGarbage(Job):
    """Removes files that no kept checkpoint needs."""

    def __init__(self, engine: Engine, journals: list[str], files: list[str], directories: list[str]) -> None:
        self._engine = engine
        self._recycle = 0 if engine.full else RECYCLED_FILES
        self._journals = journals
        self._files = files
        self._directories = directories

    def run(self) -> None:
        """Unlink, or keep journal files for reuse."""
        filesystem = self._engine.filesystem
        self._engine.journal.remove(self._journals, self._recycle)
        _remove(filesystem, self._files, self._directories)


class RemoveTransient(Job):
    """Removes files of transient queues that are not needed any more; no checkpoint is asked."""

    def __init__(self, filesystem: IFilesystem, files: list[str], directories: list[str]) -> None:
        self._filesystem = filesystem
        self._files = files
        self._directories = directories
        self.failed = False

    def run(self) -> None:
        """Unlink them. No promise depends on that: what fails is tried again."""
        try:
            _remove(self._filesystem, self._files, self._directories)
        except OSError as error:
            self.failed = True
            log.warning("files of transient queues could not be removed: %s", error)

    @property
    def left(self) -> tuple[list[str], list[str]]:
        """The files and directories of which some may be there yet."""
        return (self._files, self._directories) if self.failed else ([], [])


def _remove(filesystem: IFilesystem, files: list[str], directories: list[str]) -> None:
    for path in files:
        if filesystem.exists(path):
            filesystem.unlink(path)
    for path in directories:
        if filesystem.exists(path):
            for name in filesystem.list_directory(path):
                filesystem.unlink(f"{path}/{name}")
            filesystem.remove_directory(path)


class FillSpare(Job):
    """Makes the next journal file, zero-filled ahead of need."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.no_room = False

    def run(self) -> None:
        """Fill and force it. A full disk is no failure here: no promise depends on the file."""
        try:
            self._engine.journal.fill_spare()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.no_room = True
            self._engine.journal.drop_unfilled()


class WriteWitness(Job):
    """Writes the witness: what is known of the journal's end."""

    def __init__(self, filesystem: IFilesystem, witness: Witness, durably: bool) -> None:
        self._filesystem = filesystem
        self._witness = witness
        self._durably = durably

    def run(self) -> None:
        """Write it. On a full disk the one before stays: no promise depends on it."""
        try:
            write_witness(self._filesystem, self._witness, self._durably)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise


class FillBallast(Job):
    """Fills the ballast: space that is given up when a start finds the disk too full to finish recovery."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine = engine
        self._size = size

    def run(self) -> None:
        """Fill and force it. On a full disk there is none: no promise depends on it."""
        filesystem = self._engine.filesystem
        file = filesystem.open(filenames.BALLAST, create=True)
        try:
            zero_fill(file, 0, self._size)
            file.force()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            filesystem.unlink(filenames.BALLAST)
        finally:
            file.close()
        filesystem.force_directory("")


class WriteKeyTable(Job):
    """Writes the table of keys that a search has made of a segment. It is not forced: a torn one is made again."""

    def __init__(self, filesystem: IFilesystem, segment: Segment, table: bytes) -> None:
        self._filesystem = filesystem
        self._segment = segment
        self._table = table

    def run(self) -> None:
        """Write it, unless the segment is gone. A full or failing disk is no failure here: nothing depends on the
        file.
        """
        filesystem, path = self._filesystem, self._segment.keys_path
        if not filesystem.exists(self._segment.path):
            return  # removed by a job before this one; a later one removes the table with it
        try:
            file = filesystem.open(path, create=True)
            try:
                write_fully(file, 0, [self._table])
                file.truncate(len(self._table))
            finally:
                file.close()
        except OSError as error:
            log.warning("%s could not be written: %s", path, error)
