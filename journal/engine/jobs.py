"""Work on files that housekeeping gives out: each is run on one thread, one at a time, and then handed back.

A job that raises ends the process (:meth:`Engine.fail <journal.engine.engine.Engine.fail>`): nothing is retried.
"""

from __future__ import annotations

import errno
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
from journal.transactions.staging import StagingPlan
from journal.vfs.filesystem import zero_fill
from journal.vfs.open_files import OpenFiles
from journal.wal.writer import RECYCLED_FILES


class Job(ABC):
    """Work on files. If it raises, the process must stop and recover (:meth:`Engine.fail`): nothing is retried."""

    @abstractmethod
    def run(self) -> None:
        """Do it; touches files only. Any thread."""


class FlushStore(Job):
    """One partition's tail to its segment, forced; or left to a :class:`ForceLogs` if it is one of several."""

    def __init__(self, store: MessageStore, flush: FlushJob, alone: bool) -> None:
        self.store = store
        self.flush = flush
        self._alone = alone

    def run(self) -> None:
        """Write, and force if it is alone."""
        self.flush.run(durably=self._alone)


class ForceLogs(Job):
    """The force of what several flushes before it have written: together they share the file system's commits."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files

    def run(self) -> None:
        """Return once all of it is on disk, names too."""
        self._files.force()
        self._files.filesystem.force_directory(filenames.PARTITION_DIRECTORY)


class StageFrames(Job):
    """Frames of long-lived transactions to their staged files."""

    def __init__(self, engine: Engine, plans: list[StagingPlan]) -> None:
        self._engine = engine
        self.plans = plans

    def run(self) -> None:
        """Write and force each, then the directory."""
        for plan in self.plans:
            self._engine.transactions.staging.write(plan)
        self._engine.filesystem.force_directory(filenames.STAGED_DIRECTORY)


class WriteCheckpoint(Job):
    """A checkpoint, all of whose stores have been flushed far enough."""

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
        """Force what the start wrote to logs, and the directory of partitions; then write the checkpoint durably."""
        filesystem = self._files.filesystem
        self._files.force()
        filesystem.force_directory(filenames.PARTITION_DIRECTORY)
        write_checkpoint(filesystem, self.header, self._folds, self._stores)


class CollectGarbage(Job):
    """Files that no kept checkpoint needs."""

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
        for path in self._files:
            if filesystem.exists(path):
                filesystem.unlink(path)
        for path in self._directories:
            if filesystem.exists(path):
                for name in filesystem.list_directory(path):
                    filesystem.unlink(f"{path}/{name}")
                filesystem.remove_directory(path)


class FillSpare(Job):
    """The next journal file, zero-filled ahead of need."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.no_room = False

    def run(self) -> None:
        """Fill and force it. A full disk is no failure here: nothing that was promised depends on it."""
        try:
            self._engine.journal.fill_spare()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.no_room = True
            self._engine.journal.drop_unfilled()


class WriteWitness(Job):
    """What is known of the journal's end, outside of it."""

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
    """Space that is given up when a start finds the disk too full to finish recovery."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine = engine
        self._size = size

    def run(self) -> None:
        """Fill and force it. On a disk that is full meanwhile there is none: no promise depends on it."""
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
