"""The contracts between the parts of the journal (zope interfaces), and the interfaces that tests replace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from zope.interface import Attribute, Interface


class IFile(Interface):
    """One open file, with positional I/O only. Every failure is the ``OSError`` of the system call."""

    path: str = Attribute("Relative to the file system's root.")

    descriptor: int | None = Attribute(
        "For system calls that go past this interface, on another thread; None if nothing may go past it."
    )

    def read(position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only where the file ends."""

    def read_now(position: int, length: int) -> bytes | None:
        """Read as :meth:`read` does, but return None if that would wait for the disk, or if the platform cannot know.

        Never waits: after None, call :meth:`read` on a thread that may wait.
        """

    def forget_cached(position: int, length: int) -> None:
        """Let the next read of these bytes come from the disk, as far as the platform can; unforced bytes stay
        cached.
        """

    def write_some(position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write the start of ``buffers`` (at most IOV_MAX of them) at ``position``; may be short.

        Returns how many bytes were written, at least one. Use :func:`journal.vfs.filesystem.write_fully`, which
        continues after short writes.
        """

    def force() -> None:
        """Return once every byte written through this file is on disk (fdatasync). Never retry a failure."""

    def size() -> int:
        """The file's length in bytes."""

    def truncate(length: int) -> None:
        """Cut or extend with zeros to ``length`` bytes. Unforced."""

    def close() -> None:
        """Close the descriptor. Forces nothing. A second close does nothing."""


class ILock(Interface):
    """An exclusive lock of a directory, held by a file in it."""

    def check() -> None:
        """Raise :class:`journal.errors.LockLost` if file or directory was removed or replaced since the lock
        was taken.
        """

    def release() -> None:
        """Release the lock. A second release does nothing."""


class IFilesystem(Interface):
    """All calls of the engine on files of the operating system. Paths are relative, with ``/``.

    Creating, renaming and unlinking are durable only after :meth:`force_directory` of the parent. Every failure is an
    ``OSError``.
    """

    def open(path: str, create: bool = False, writable: bool = True) -> Any:
        """Return the :class:`IFile`; with ``create`` a missing file is made (parents must exist)."""

    def rename(old: str, new: str) -> None:
        """Give a file a new name, replacing a file that had it, atomically."""

    def unlink(path: str) -> None:
        """Remove a file."""

    def make_directory(path: str) -> None:
        """Make a directory; parents must exist. Does nothing if it exists already."""

    def remove_directory(path: str) -> None:
        """Remove an empty directory."""

    def list_directory(path: str) -> list[str]:
        """Return the names in a directory, sorted. ``""`` is the root."""

    def exists(path: str) -> bool:
        """Return whether a file or directory has that name."""

    def force_directory(path: str) -> None:
        """Return once all names in the directory are on disk. ``""`` is the root."""

    def force_files(files: Sequence[Any]) -> None:
        """Force several :class:`IFile`, in any order or at once. If it raises, any of them may be unforced."""

    def lock(path: str) -> Any:
        """Take an exclusive lock on a file (made if missing) and on its directory; returns an :class:`ILock`.

        Raises :class:`journal.errors.DirectoryLocked` if another open file system holds either, and
        :class:`journal.errors.StorageUnavailable` where directories cannot be locked.
        """

    def free_bytes() -> int:
        """Return how many bytes can still be written to the disk."""


class IBuffer(Interface):
    """A piece of pooled memory. ``view`` is a writable memoryview of exactly the asked size."""

    view: memoryview = Attribute("The memory; not to be used after release.")

    def retain() -> None:
        """Take one more reference, which needs one more release."""

    def release() -> None:
        """Release a reference, exactly once; the last release frees the memory."""


class IBufferAllocator(Interface):
    """Memory within a byte budget."""

    budget: int = Attribute("How many bytes may be allocated and reserved together.")

    def allocate(size: int) -> Any:
        """Return an :class:`IBuffer` of ``size`` bytes; raises ``MemoryExhausted`` over the budget."""

    def available() -> int:
        """Return how many more bytes may be allocated or reserved now."""

    def reserve(size: int) -> None:
        """Count bytes that are held outside of the pool; raises ``MemoryExhausted`` over the budget."""

    def unreserve(size: int) -> None:
        """Stop counting bytes that were reserved."""

    def trim() -> None:
        """Give memory back to the system that was not needed since the last call."""


class IClock(Interface):
    """Two clocks: one for ages and time-outs, one for people."""

    def monotonic() -> int:
        """Return microseconds that only ever grow; the zero point has no meaning."""

    def seconds() -> float:
        """Return the same clock in seconds, at a third of the cost, to time things on the hot path."""

    def wall() -> int:
        """Return microseconds since 1970 UTC by the operating system. Never decides an outcome."""


class IObserver(Interface):
    """Sees records as the folds do, in their order, live and when the journal is replayed; it keeps no state, so no
    checkpoint has anything of it. What it does must not fail.

    When a record comes it is applied and, unless the journal is being replayed, not forced yet. Of commits only those
    of transactions that had been prepared are shown in a replay.
    """

    name: str = Attribute("What it is called in errors.")
    handles: tuple[type, ...] = Attribute("The record types that it wants to see.")

    def observes(engine: Any) -> None:
        """Note the engine whose records come from now on. The directory is locked, and nothing has been replayed."""

    def apply(lsn: int, record: Any, data: bytes | memoryview) -> None:
        """Take a record. ``engine.forced_lsn`` tells whether it is forced; ``engine.when_forced`` is for what waits."""


class IFold(Interface):
    """A part of the state that is a fold over the journal.

    ``apply`` is total and deterministic: it reads no clock, limit or configuration, and asserts the results which the
    record carries.
    """

    name: str = Attribute("The fold's name in checkpoints; never changed once released.")
    handles: tuple[type, ...] = Attribute("The record types that it wants to see.")

    def apply(lsn: int, record: Any, data: bytes | memoryview) -> Any:
        """Apply one record to the state. ``data`` are the frames that it carries, already stamped.

        Returns None, or a :class:`journal.transactions.commit_application.Applied` if it ended a transaction.
        """

    def snapshot() -> Iterator[Any]:
        """Return rows (of values that msgpack can hold) from which :meth:`restore` rebuilds the state.

        The rows are those of the moment of the call, however late they are drawn.
        """

    def restore(rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""


class IRunFold(IFold):
    """A fold that can apply many sends to a partition at once when the journal is replayed.

    Its state does not depend on their LSNs, nor on the order of sends to different partitions.
    """

    def apply_run(run: Any) -> None:
        """Do what ``apply`` does with each record of a :class:`journal.log.message_run.MessageRun` in turn."""


class ICommitFold(IFold):
    """A fold that ignores prepares and commits of most transactions, and knows which ones it needs."""

    def concerned() -> Any:
        """Return the numbers of transactions whose prepare or commit changes something; a set, or a view of a mapping's
        keys.
        """

    def conflict(positions: Sequence[Any], number: Any = None) -> Any:
        """Return what stands against settling ``positions``, which are ``GroupPositions``; None if nothing does.

        With ``number`` they are settled together with what that transaction, which is not prepared, has staged. Returns
        the lowest offset that a prepared transaction holds, a
        :class:`journal.transactions.pending_offset.PendingOffset`. The store of transactions asks before every record
        that stages, prepares or commits positions, and the broker before those that settle them at once.
        """


class IForcePolicy(Interface):
    """Decides when a partition's tail is written to its segment and forced."""

    def due(messages: int, age: int) -> bool:
        """Return whether a tail is due that has ``messages`` unflushed messages, the oldest ``age`` µs old."""


class IHousekeeping(Interface):
    """The work beside the engine's cycle: :class:`journal.engine.housekeeping.Housekeeping`."""

    free_bytes: int = Attribute("How many bytes of the disk were free at the last look.")
    reserve_bytes: int = Attribute("How many of them are not for new work.")
    checkpoint_lsn: int = Attribute("The LSN of the newest checkpoint, 0 without one.")
    pins: int = Attribute("How many pins keep files from being removed.")
    keep: Callable[[Any, int], int] | None = Attribute(
        "Returns where a log may begin that retention would have begin at that offset: there, or below."
    )

    is_flushing: bool = Attribute("Whether logs are being flushed, or are to be at once.")
    flushed: int = Attribute("How many flushes of a log are over.")

    compactor: Any = Attribute("Compacts segments: :class:`journal.engine.compactor.Compactor`.")

    def jobs(now: int) -> list[Any]:
        """Return the jobs on files that are due."""

    def finish(job: Any) -> None:
        """Note that a job has run."""

    def retain(now: int) -> int:
        """Move the starts of logs forward as retention requires; return how many moved."""

    def settings_changed(stores: Any) -> None:
        """Look at the due times of these stores again."""

    def mark_if_idle(now: int) -> bool:
        """Queue a MARK if nothing has been forced for a while."""

    def want_flush() -> None:
        """Flush all tails that may be flushed."""

    def keep_table(segment: Any, table: bytes) -> None:
        """Have the table of keys of a segment written."""

    def pin() -> Any:
        """Keep all files from being removed; return a :class:`journal.engine.garbage.Pin`. Raises DiskFull if space is
        scarce.
        """

    def unpin(pin: Any) -> None:
        """Release a pin."""

    def reserve_space(size: int) -> bool:
        """Note that messages are about to take so many bytes in further queues; return False if there is no room."""

    def request_checkpoint() -> None:
        """Make a checkpoint due at the next call of :meth:`jobs`."""

    def run_inline() -> None:
        """Run the due jobs on this thread."""

    def checkpoint_inline() -> None:
        """Write a checkpoint on this thread."""


class IJournal(Interface):
    """The journal's files, for the writer."""

    def write(group: Any) -> None:
        """Write one group at the end; rolls to a new file when the current one is full."""

    def force() -> None:
        """Return once everything written is on disk; any failure poisons the journal for good."""


class IMessageStore(Interface):
    """A partition's log: tail in memory, segments on disk, one read path over both.

    Offsets count messages. ``start_offset`` is inclusive; ``high_watermark`` and ``end_offset`` are exclusive.
    """

    number: int = Attribute("The partition's number, never reused.")
    start_offset: int = Attribute("The first offset that can be read.")
    high_watermark: int = Attribute("Readers see offsets below this: committed and forced.")
    end_offset: int = Attribute("The offset that the next accepted message gets.")

    def append(frames: bytes | memoryview, count: int, time: int, wall_offset: int = 0) -> memoryview:
        """Copy frames to the tail and stamp them, offsets from ``end_offset`` on; return the stamped bytes."""

    def publish(end: int) -> bool:
        """Let readers see all messages below ``end``; return whether the force policy now wants the tail flushed."""

    def read(offset: int, max_bytes: int) -> bytes:
        """Return whole frames from the one that holds ``offset`` on, at most ``max_bytes`` but at least one.

        Empty at the high watermark. Raises ``OffsetOutOfRange`` outside the log, ``CorruptSegment`` for damaged bytes.
        """


class ITransactionStore(Interface):
    """Transactions over message stores, durable through the journal. Numbers are ``TransactionNumber``."""

    def add(
        number: Any,
        partition: int,
        frames: bytes | memoryview,
        count: int,
        xid: Any = None,
        seen: int = 0,
        owner: Any = None,
    ) -> int:
        """Stage frames for a partition in a transaction; the first add begins it. Returns the LSN."""

    def prepare(number: Any, xid: Any, totals: Any, seen: int = 0, owner: Any = None) -> None:
        """Make the transaction survive everything until it is committed or rolled back."""

    def commit(
        number: Any, cause: Any, totals: Any = None, seen: int = 0, by: Any = None, why: str = ""
    ) -> Any:
        """Commit: its messages become visible everywhere at once, when the decision is forced."""

    def rollback(number: Any, cause: Any, by: Any = None, why: str = "") -> Any:
        """Roll back: its messages never become visible. Returns how it ended, None if it had ended or never begun."""
