"""The tree of errors of the journal and of everything above it.

The type of an error says which side caused it and whether the outcome is known:

* :class:`RequestRefused`: the request is wrong, or exceeds a limit. Nothing has changed.
* :class:`StorageUnavailable`: the broker or its machine cannot do it now. Nothing has changed; a later try may succeed.
* :class:`CorruptData`: bytes on disk are not those that were written. Nothing is guessed or destroyed.
* :class:`OutcomeUnknown`: the change may or may not have happened; the message says how to find out.

Every message says what happened, to what, what state things are in now, and what to do.
"""

from __future__ import annotations

from journal.xid import Xid


class TxBrokerError(Exception):
    """The base class of all errors that this project raises on purpose.

    ``request`` names the refused request, as the broker's log does: session and number; "" if no broker refused one.
    """

    request: str = ""


# -- the request is refused, nothing has changed --------------------------------------------------


class RequestRefused(TxBrokerError):
    """The request cannot be carried out as it was made. Nothing has changed."""


class Misuse(RequestRefused):
    """A call in the wrong order, or with arguments that it cannot use. Nothing was sent, and nothing has changed."""


class WrongType(Misuse, TypeError):
    """A call got an argument of a type that it does not accept; the message names the parameter and both types."""


class WrongValue(Misuse, ValueError):
    """A call got an argument with a value that it does not accept; the message names the parameter and what it
    accepts.
    """


class InvalidFrame(RequestRefused):
    """Bytes that should be message frames are not: wrong length, checksum, count or flag."""


class MessageTooLarge(RequestRefused):
    """A frame or a request is over a limit; the message names the limit and the size."""


class CompressionUnavailable(RequestRefused):
    """A batch is compressed, or should be, with a codec whose package is missing here; the message names the
    package.
    """


class InvalidName(RequestRefused):
    """A topic, group or producer name has characters or a length that are not allowed."""


def reserved(topic: str) -> InvalidName:
    """Return the error for changing a topic that the engine keeps for itself."""
    return InvalidName(
        f"topic {topic!r} is the broker's own: names that begin with 'txbroker.' are, and only the broker makes, fills "
        "and deletes them; reading them is allowed. Nothing was changed. Use another name"
    )


class InvalidSetting(RequestRefused):
    """A setting is unknown, of the wrong type or out of its range."""


class PlatformUnsupported(RequestRefused, ImportError):
    """The imported module runs on Linux only; the message says what this system lacks, and which parts run on it."""


class UnknownBackup(RequestRefused):
    """There is no backup of that name, or none at all. Nothing was done."""


class ForeignDirectory(RequestRefused):
    """The directory holds files of something else, and no data of txbroker: a start would add its own files to them."""


class LogClosed(RequestRefused):
    """The embedded log has been closed, and does nothing more."""


class UnknownTopic(RequestRefused):
    """There is no topic of that name."""


class TopicExists(RequestRefused):
    """A topic of that name exists already."""


class UnknownPartition(RequestRefused):
    """There is no partition of that number (or its topic has been deleted; numbers are never reused)."""


class OffsetOutOfRange(RequestRefused):
    """The offset is below the start of the log (retention removed it) or beyond its end.

    ``start`` and ``end`` are the offsets of the first message that can be read and of the next message to come.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class UnknownTransaction(RequestRefused):
    """No live or remembered transaction has that number or xid."""


class TransactionConflict(RequestRefused):
    """The transaction's state does not allow the request, or its xid is live or remembered already."""


class TransactionRolledBack(RequestRefused):
    """The transaction has been rolled back; the message says when, by whom and why."""


class TransactionCommitted(RequestRefused):
    """The transaction has been committed, so it cannot be rolled back or changed."""


class RestoredTransaction(RequestRefused):
    """The transaction was prepared when the backup was made that these data are restored from. Its coordinator may have
    decided it since, and forgotten it: no rollback is taken that no person forces. Nothing has changed.
    """


class HeuristicOutcome(RequestRefused):
    """The prepared transaction was ended by a person or the orphan policy, without its coordinator.

    ``by`` and ``why`` say who did it and why, with which ``principal`` ("" for none), ``wall`` when: µs since 1970 UTC,
    0 if it is not known.
    """

    by: str = ""
    why: str = ""
    wall: int = 0
    principal: str = ""

    def __init__(self, message: str, by: str = "", why: str = "", wall: int = 0, principal: str = "") -> None:
        super().__init__(message)
        self.by = by
        self.why = why
        self.wall = wall
        self.principal = principal


class HeuristicallyRolledBack(HeuristicOutcome, TransactionRolledBack):
    """A person or the orphan policy rolled the prepared transaction back, without its coordinator.

    XA's ``XA_HEURRB``. A coordinator that decided to commit must make the other participants agree, by hand.
    """


class HeuristicallyCommitted(HeuristicOutcome, TransactionCommitted):
    """A person or the orphan policy committed the prepared transaction, without its coordinator.

    XA's ``XA_HEURCOM``. A coordinator that decided to roll back must make the other participants agree, by hand.
    """


class OutcomeForgotten(RequestRefused):
    """The transaction ended long ago, and its outcome has been evicted. It was *not* just rolled back."""


class ContentMismatch(RequestRefused):
    """Count or checksum of what arrived differs from what the client says it sent: it can only be rolled back."""


class LimitExceeded(RequestRefused):
    """A limit (number, bytes or messages of open transactions, producers, ...) would be exceeded.

    ``quota`` names the quota of ``principal`` that it is, with its ``limit`` and what is ``present``; empty if it is
    another limit.
    """

    quota = principal = ""
    limit = present = 0

    def __init__(
        self, message: str, quota: str = "", principal: str = "", limit: int = 0, present: int = 0
    ) -> None:
        super().__init__(message)
        if quota:
            self.quota, self.principal, self.limit, self.present = quota, principal, limit, present
            self.numbers = {"limit": limit, "present": present}
            self.texts = {"quota": quota, "principal": principal}


class TransactionTooLarge(LimitExceeded):
    """A transaction has more than one transaction may have, whatever else there is: trying again does not help."""


class ProducerFenced(RequestRefused):
    """A newer producer of the same name is active; this one must stop."""


class UnknownProducer(RequestRefused):
    """The producer id is not known or has expired: the broker can no longer recognise repetitions of its messages."""


class SequenceOutOfOrder(RequestRefused):
    """A producer's sequence number is not the next one: a message before it was lost or refused."""


class GenerationFenced(RequestRefused):
    """A newer consumer has claimed the partition for the group; this one must stop."""


class OffsetPending(RequestRefused):
    """The group's offset is held by an undecided transaction; the message names it."""


class NotScheduled(RequestRefused):
    """There is no such message in the schedule: there never was, or it was over a day ago."""


class AlreadySent(RequestRefused):
    """The scheduled message was due, and has gone to its partition.

    ``topic``, ``partition`` and ``offset`` say where it is; the topic is empty if its topic was gone, or that is not
    known any more.
    """

    def __init__(self, message: str, topic: str = "", partition: int = 0, offset: int = 0) -> None:
        super().__init__(message)
        self.topic, self.partition, self.offset = topic, partition, offset


class ScheduledForTopic(RequestRefused):
    """Messages are scheduled for the topic that was to be deleted; the message says how many."""


class ScheduleHeld(RequestRefused):
    """A prepared transaction takes the scheduled message back if it is committed; the message names it."""


class AuthenticationFailed(RequestRefused):
    """The login was refused, or none was possible. Nothing was done for the connection, which is closed.

    A broker never says why, not even whether there is such a user: its log does.
    """


class WayInTaken(RequestRefused):
    """Another user is recognised by that certificate or token already. Nothing has changed."""


# -- storage or memory is unavailable: nothing has changed, a later try may succeed -----------------


class StorageUnavailable(TxBrokerError):
    """The broker cannot take this now. Nothing has changed; a later try may succeed."""


class DiskFull(StorageUnavailable):
    """Free space is below the low-water mark: new work is refused; ending transactions and reading work."""


class MemoryExhausted(StorageUnavailable):
    """The byte budget of the buffer pool is used up at present."""


class TooManyLogins(StorageUnavailable):
    """The broker has as many passwords to check as it may. None was judged; the next try may succeed."""


class DirectoryLocked(StorageUnavailable):
    """Another process has the data directory open, or works in the directory of backups.

    ``holder`` is the number of that process, "" if it is not known.
    """

    holder = ""


class FilesReleased(StorageUnavailable):
    """The broker did not keep the files of its data directory until they were read: no backup was made of them."""


# -- corrupt ---------------------------------------------------------------------------------------


NEXT_STEP = (
    "Keep the directory as it is: 'txbroker verify DIR' says what else is damaged, 'txbroker repair DIR --dry-run' "
    "what could be kept"
)
"""The advice of a refused start beside restoring a copy: the end of its message."""

WHAT_ELSE = "'txbroker verify DIR' (once the broker is stopped, or on a copy) says what else is damaged"
"""The advice where damage is found while the broker runs."""


class CorruptData(TxBrokerError):
    """Bytes on disk are not what was written there, and no crash can have caused that.

    ``path`` is relative to the data directory, ``position`` in bytes from the file's start.
    """

    def __init__(self, message: str, path: str, position: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.position = position


class CorruptJournal(CorruptData):
    """A journal file or checkpoint is damaged below a point that is known to have been forced."""


class UnknownFormat(CorruptJournal):
    """A directory, or a checkpoint, has a format version that is unknown here: it may well be sound."""


class Irreparable(CorruptData):
    """The directory cannot be repaired to one that starts without guessing. Nothing was changed."""


class CorruptBackup(CorruptData):
    """A backup is not what was written there: an object, or the list of what it consists of. Nothing was changed.

    ``path`` is relative to the directory of backups.
    """


class CorruptSegment(CorruptData):
    """A partition's segment is damaged. ``first_offset`` to ``last_offset`` (inclusive) cannot be read.

    ``lost``: a repair has found nothing of them, and they never can be.
    """

    lost = False

    def __init__(self, message: str, path: str, position: int, first_offset: int, last_offset: int) -> None:
        super().__init__(message, path, position)
        self.first_offset = first_offset
        self.last_offset = last_offset


class UnprovenLog(CorruptSegment):
    """A partition's log holds sound messages that the journal does not prove: log and journal do not belong together.

    Journal and checkpoints are of an earlier moment than the log; a start would delete the messages.
    """


# -- outcome unknown -------------------------------------------------------------------------------


class OutcomeUnknown(TxBrokerError):
    """The change may or may not be durable. Recovery, or asking again, decides; never assume either.

    ``xid`` is the transaction's, if it has one: ``wait_outcome(xid)`` returns how it ended.
    """

    xid: Xid | None = None

    def __init__(self, message: str = "", xid: Xid | None = None) -> None:
        super().__init__(message)
        self.xid = xid


class JournalPoisoned(OutcomeUnknown):
    """A write or force of the journal failed. It is never retried: the process must stop and recover."""


class LockLost(OutcomeUnknown):
    """The data directory or its lock file was removed or replaced while in use; its owner must stop and recover."""
