"""The durable log of decisions: commits that not all participants have acknowledged, and heuristic outcomes.

It is a topic of the embedded journal (:mod:`journal.embedded`), with one message for entries that are written together.
From time to time all entries that are still needed are written once more and the log begins there, so that its size is
bounded by the number of unfinished transactions.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final

import msgspec

from journal.backup.holds import EngineHold
from journal.backup.layout import PRIVATE
from journal.constants import KIB, MIB
from journal.embedded import Log
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull, MemoryExhausted
from journal.interfaces import IClock, IFilesystem
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from txbroker import errors
from txbroker.coordinator.gids import new_identity

TOPIC: Final = "decisions"
SETTINGS: Final = JournalSettings(
    pool_bytes=8 * MIB,
    file_bytes=MIB,
    checkpoint_bytes=128 * KIB,
    low_water_bytes=4 * MIB,
    outcome_archive=False,
)
COMPACT_AFTER: Final = 2_000
"""Messages after which the needed entries are written again, and the log begins there."""
_TOGETHER: Final = 500
"""Most entries of one message."""


class BranchRecord(msgspec.Struct, frozen=True):
    """A prepared participant: its name, the identity of its data, and the witness that it can be asked about later."""

    name: str
    identity: str = ""
    witness: str = ""


class Entry(msgspec.Struct, frozen=True, tag_field="entry"):
    """An entry of the log."""


class Identity(Entry, frozen=True, tag="identity"):
    """The identity of the coordinator: the beginning of its global ids."""

    identity: str
    layout: int = 1


class Decision(Entry, frozen=True, tag="commit"):
    """This transaction is committed; ``branches`` are to be told. ``at`` µs since 1970, for people."""

    gid: str
    branches: list[BranchRecord]
    at: int


class Told(Entry, frozen=True, tag="told"):
    """This participant has acknowledged, others have not yet."""

    gid: str
    participant: str


class Ended(Entry, frozen=True, tag="end"):
    """All participants have acknowledged."""

    gid: str


class Heuristic(Entry, frozen=True, tag="heuristic"):
    """A participant was ended the other way than decided, by ``by``, if that is known."""

    gid: str
    participant: str
    decided: str
    ended: str
    by: str
    why: str
    at: int


class Forgotten(Entry, frozen=True, tag="forgotten"):
    """A person has handled this branch: it is neither waited for nor reported any more."""

    gid: str
    participant: str


_AnyEntry = Identity | Decision | Told | Ended | Heuristic | Forgotten
_DECODER = msgspec.json.Decoder(list[_AnyEntry])


class _Queued:
    """An entry on its way to the disk."""

    __slots__ = ("awaited", "done", "entry", "error")

    def __init__(self, entry: Entry, awaited: bool) -> None:
        self.entry = entry
        self.awaited = awaited
        self.done = False
        self.error: BaseException | None = None


class _Held:
    """A hold of the log's files, which is released when no other thread works on the log."""

    def __init__(self, hold: EngineHold, writing: threading.Lock) -> None:
        self._hold, self._writing = hold, writing
        self.checkpoint, self.cut = hold.checkpoint, hold.cut
        self.start, self.nonce, self.identity = hold.start, hold.nonce, hold.identity
        self.check = hold.check

    def release(self) -> bool:
        """Release the files; return whether they have been held all the time."""
        with self._writing:
            return self._hold.release()


class DecisionLog:
    """The decisions, from any thread. Decisions of several threads at a time are forced together."""

    def __init__(
        self,
        path: str | os.PathLike[str] | IFilesystem,
        clock: IClock | None = None,
        *,
        create: bool = True,
    ) -> None:
        """Open it, or with ``create`` make it; raises DirectoryLocked if another coordinator has it, CorruptJournal."""
        files = OSFilesystem(path) if isinstance(path, (str, os.PathLike)) else path
        self._log = Log(files, clock or SystemClock(), SETTINGS)
        self.identity = ""
        self.decisions: dict[str, Decision] = {}
        self.heuristics: dict[tuple[str, str], Heuristic] = {}
        self.failure: BaseException | None = None
        self._queue: deque[_Queued] = deque()
        self._writing = threading.Lock()
        self._since = 0
        try:
            self._read(create)
        except BaseException:
            self._log.close()
            raise

    @property
    def start(self) -> int:
        """Return the number of this start; no other start has it."""
        return self._log.engine.start_number

    @property
    def restored(self) -> int:
        """The number of the start that was made from a backup, if the log was restored; else 0.

        Decisions of earlier starts may be missing: they may have been made, and ended, after the backup.
        """
        return self._log.engine.starts.restored

    def back_up(self, backups: str | os.PathLike[str]) -> str:
        """Make a backup of the log in a directory of backups, beside its work; return the backup's name.

        All decisions that were forced before are in it. It needs what txbroker[server] installs. Raises DiskFull,
        FilesReleased, DirectoryLocked, CorruptData.
        """
        from journal.backup.creation import make_backup  # it verifies, which a client's installation cannot

        with self._writing:
            hold = EngineHold(self._log.engine)
        target = OSFilesystem(backups, PRIVATE)
        return make_backup(
            self._log.engine.filesystem, target, _Held(hold, self._writing), SystemClock()
        ).manifest.name

    def _read(self, create: bool) -> None:
        log = self._log
        if log.engine.starts.as_copy:
            raise errors.InvalidSetting(
                "the directory was restored as a copy, and a copy of a coordinator's log decides nothing: its original "
                "may live on. Nothing was done. Restore the backup without --as-copy if it does not"
            )
        if TOPIC not in log.topics:
            if not create:
                raise errors.UnknownTopic(
                    "the directory holds no decisions: it is a broker's, or another log's; nothing was done"
                )
            log.create_topic(TOPIC, segment_bytes=64 * KIB)
        for message in log.read(TOPIC, log.start_offset(TOPIC)):
            self._since += 1
            for entry in _DECODER.decode(message.value or b"[]"):
                self._apply(entry)
        if not self.identity:
            self._write(Identity(new_identity()))

    def _apply(self, entry: Entry) -> None:
        match entry:
            case Identity():
                self.identity = entry.identity
            case Decision():
                self.decisions[entry.gid] = entry
            case Ended():
                self.decisions.pop(entry.gid, None)
            case Heuristic():
                self.heuristics[entry.gid, entry.participant] = entry
            case Forgotten():
                self.heuristics.pop((entry.gid, entry.participant), None)
                self._leave_out(entry.gid, entry.participant)
            case Told():
                self._leave_out(entry.gid, entry.participant)

    def _leave_out(self, gid: str, participant: str) -> None:
        if found := self.decisions.get(gid):
            left = [branch for branch in found.branches if branch.name != participant]
            self.decisions[gid] = Decision(gid, left, found.at)

    # -- writing -----------------------------------------------------------------------------------

    def decide(self, decision: Decision) -> None:
        """Force a decision to commit.

        Raises StorageUnavailable if certainly nothing was written, OutcomeUnknown if that is unknown: then only opening
        the log again shows it.
        """
        self._write(decision)

    def failed(self) -> errors.StorageUnavailable:
        """Return the error of every call after a failure: nothing is tried any more."""
        return errors.StorageUnavailable(
            f"the log of decisions has failed ({self.failure}): this coordinator decides nothing more; nothing was "
            "written for this. Close it and open the directory again"
        )

    def check(self) -> None:
        """Raise StorageUnavailable, or its kind DiskFull, if a decision would be refused now."""
        if self.failure is not None:
            raise self.failed()
        if self._log.engine.full:
            raise DiskFull(
                "the disk of the coordinator's directory is nearly full: nothing can be decided, so nothing was done. "
                "Make room on it, then try again"
            )

    def report(self, heuristic: Heuristic) -> None:
        """Force the report of a heuristic outcome."""
        if (heuristic.gid, heuristic.participant) not in self.heuristics:
            self._write(heuristic)

    def forget(self, gid: str, participant: str) -> None:
        """Force the entry that a person has handled a branch."""
        self._write(Forgotten(gid, participant))

    def told(self, gid: str, participant: str) -> None:
        """Record that one has acknowledged, others have not. Written with the next decision, as :meth:`end`."""
        self._queue.append(_Queued(Told(gid, participant), awaited=False))

    def end(self, gid: str) -> None:
        """Record that all have acknowledged. Written with the next decision: if it is lost, they are asked once
        more.
        """
        self._queue.append(_Queued(Ended(gid), awaited=False))

    def flush(self) -> None:
        """Write the entries that wait for the next decision."""
        with self._writing:
            if self.failure is None:
                self._write_queue()

    def _write(self, entry: Entry) -> None:
        mine = _Queued(entry, awaited=True)
        self._queue.append(mine)
        with self._writing:
            if not mine.done:
                self._write_queue()
        if mine.error is not None:
            raise mine.error

    def _write_queue(self) -> None:
        """Write all that is queued, a batch a message; a waiting thread finds its own entry written, or refused.

        After a refused batch nothing more is tried. Entries behind it may need less room, but their threads would wait
        as long as the batches before theirs are refused.
        """
        for _ in range(0, len(self._queue), _TOGETHER):
            refusal = self.failed() if self.failure is not None else self._write_batch()
            if refusal is not None:
                self._refuse(refusal)
                return

    def _write_batch(self) -> BaseException | None:
        """Write the first of the queue as one message; return why that was refused and nothing written."""
        batch = [self._queue[place] for place in range(min(len(self._queue), _TOGETHER))]
        try:
            self._append([queued.entry for queued in batch])
        except (DiskFull, MemoryExhausted) as error:
            return error
        except BaseException as error:
            self.failure = error
            self._take(batch, _unknown(error))
            if not isinstance(error, Exception):
                raise
            return None
        for queued in batch:
            self._apply(queued.entry)
        self._take(batch, None)
        self._compact()
        return None

    def _take(self, batch: list[_Queued], error: BaseException | None) -> None:
        """Note that entries are on the disk, or may not be, if there is an error; wake the waiting threads."""
        for queued in batch:
            queued.done, queued.error = True, error
            self._queue.popleft()

    def _append(self, entries: list[Entry]) -> None:
        self._log.append(TOPIC, msgspec.json.encode(entries))
        self._since += 1

    def _refuse(self, error: BaseException) -> None:
        """Raise the error in waiting threads, because nothing queued was written; keep other entries for a
        later batch.
        """
        queued = [self._queue.popleft() for _ in range(len(self._queue))]
        for each in queued:
            if each.awaited and not each.done:
                each.done, each.error = True, error
        self._queue.extendleft(each for each in reversed(queued) if not each.awaited)

    def _compact(self) -> None:
        if self._since < COMPACT_AFTER or self._log.engine.full:
            return
        needed: list[Entry] = [Identity(self.identity), *self.decisions.values(), *self.heuristics.values()]
        try:
            first = self._log.append(TOPIC, msgspec.json.encode(needed[:_TOGETHER]))
            for begin in range(_TOGETHER, len(needed), _TOGETHER):
                self._log.append(TOPIC, msgspec.json.encode(needed[begin : begin + _TOGETHER]))
            self._log.trim(TOPIC, first)
        except (DiskFull, MemoryExhausted):
            return  # the entries are still there, and valid although a part of them is repeated
        except Exception as error:  # noqa: BLE001 - told by `failure`; what was to be written before is written
            self.failure = error
            return
        self._since = 1 + (len(needed) - 1) // _TOGETHER

    def close(self) -> None:
        """Write the entries that wait, and release the directory."""
        try:
            self.flush()
        finally:
            self._log.close()


def _unknown(error: BaseException) -> errors.OutcomeUnknown:
    found = errors.OutcomeUnknown(
        f"the log of decisions failed while a decision was written ({type(error).__name__}: {error}): whether it is "
        "on the disk is not known. What is prepared stays prepared, and this coordinator decides nothing more. Close "
        "it and open the directory again: what the log then says is done everywhere"
    )
    found.__cause__ = error
    return found
