"""Logs of transient queues: no checkpoint has them, so what they do not need any more goes at once (decision 0068)."""

from __future__ import annotations

from journal.engine.due_stores import DueStores
from journal.engine.engine import Engine
from journal.engine.jobs import FlushStore, RemoveTransient
from journal.log.message_store import MessageStore


class TransientLogs:
    """Finds what is to be removed of these logs; one per engine, on the engine's thread."""

    def __init__(self, engine: Engine, due: DueStores) -> None:
        self._engine, self._due = engine, due
        self._flushed: set[MessageStore] = set()
        """Those with files, and whose queues are there."""
        self._left: tuple[list[str], list[str]] = ([], [])
        """Files and directories that could not be removed."""

    def flushed(self, job: FlushStore) -> None:
        """Note that messages of one are in its files now, or that the disk had no room for them."""
        self._flushed.add(job.store)
        if job.no_room:
            job.store.abandon_flush(job.flush)
        else:
            job.store.finish_flush(job.flush)
        self._due.flushed(job.store)

    def job(self) -> RemoveTransient | None:
        """Discard the logs of queues that were deleted; return the job that removes files, if any are to go."""
        gone, waiting = list[MessageStore](), list[MessageStore]()
        for store in self._engine.catalog.deleted_transient:
            (waiting if store.is_flushing else gone).append(store)
        self._engine.catalog.deleted_transient = waiting
        if gone:
            self._due.forget(gone)
            for store in gone:
                store.discard()
            self._engine.on_idle()
        directories = [store.directory for store in gone if store in self._flushed]
        self._flushed.difference_update(gone)
        files = [file for store in self._flushed for file in store.take_dropped()]
        if not (files or directories):
            return None
        (more_files, more_directories), self._left = self._left, ([], [])
        return RemoveTransient(self._engine.filesystem, files + more_files, directories + more_directories)

    def removed(self, job: RemoveTransient) -> None:
        """Note that a job has run; what it could not remove is tried again with the next one, once there is more."""
        self._left = job.left
