"""All errors that a program which uses txbroker may see: those of the journal, and those of the network.

``OutcomeUnknown`` is the only answer to "did it happen?" that is neither yes nor no; see docs/guarantees.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from journal import errors as _journal_errors
from journal.errors import *  # noqa: F403
from journal.errors import (
    HeuristicOutcome,
    LimitExceeded,
    Misuse,
    OutcomeUnknown,
    RequestRefused,
    StorageUnavailable,
    TxBrokerError,
)


class PeerViolation(TxBrokerError):
    """The peer sent bytes that break the protocol. The connection is closed."""


class VersionRefused(RequestRefused):
    """Client and broker have no protocol version in common, or the client asks for what only a newer broker knows.

    The message says which. Nothing has changed.
    """


class BrokerReplaced(RequestRefused):
    """Another broker answers at the address, or the same one with other data or an older copy; nothing was sent
    to it.
    """


class UnknownQueue(RequestRefused):
    """There is no queue of that name."""


class UnknownExchange(RequestRefused):
    """There is no exchange of that name, or at that address."""


class DeclaredOtherwise(RequestRefused):
    """The queue or exchange is there, declared otherwise; nothing has changed."""


class QueueInUse(RequestRefused):
    """An undecided transaction needs the queue, or others do; nothing has changed. The message names them."""


class Unroutable(RequestRefused):
    """An exchange finds no queue for a message that must go to one; nothing of the request was sent."""


class QueueFull(RequestRefused):
    """A queue that refuses more messages than it may have would have more; nothing of the request was sent."""


class DeliveryLost(RequestRefused):
    """A message was to be acknowledged that the session does not have: it was given back, or never delivered to it.

    Nothing has changed. The message is, or will be, delivered again, so whatever was done for it must not be committed.
    """


class UnknownGroup(RequestRefused):
    """There is no group of that name, or it is another one than was meant: that one was deleted, and a new one made."""


class UnknownSession(RequestRefused):
    """There is no session of that number, or it has ended; nothing was done."""


class UnknownUser(RequestRefused):
    """There is no user of that name; nothing has changed."""


class UserExists(RequestRefused):
    """There is a user of that name already; nothing has changed."""


class AccessDenied(RequestRefused):
    """The client's principal has not the right that this needs; nothing was done. It does not tell whether there is
    such a thing.

    ``right`` and ``resource`` are what is missing, as ``txbroker access allow`` takes it.
    """

    def __init__(self, message: str, right: str = "", resource: str = "") -> None:
        super().__init__(message)
        self.right = right
        self.resource = resource
        self.texts = {"right": right, "resource": resource}


class GroupKindConflict(RequestRefused):
    """A group is read by members, or by consumers that name their partitions: not by both. Nothing has changed."""


class GroupSettingsConflict(RequestRefused):
    """The group has another setting than the one that was given; nothing has changed."""


class StreamFenced(RequestRefused):
    """Another has claimed the stream since, or it has been released; nothing was stored. The rows say what there is."""


class StreamOutOfOrder(RequestRefused):
    """A delivery does not continue its stream: one before it is missing; nothing was stored.

    ``last`` is the number that is delivered last.
    """

    def __init__(self, message: str, last: int = 0) -> None:
        super().__init__(message)
        self.last = last
        self.numbers = {"last": last}


class OutboxSetBack(RequestRefused):
    """The database is older than what the broker knows of its outbox: it was set back to a copy; nothing has changed.

    ``generation`` is the one that the broker knows of its decision table.
    """

    def __init__(self, message: str, generation: int = 0) -> None:
        super().__init__(message)
        self.generation = generation
        self.numbers = {"generation": generation}


class GroupInUse(RequestRefused):
    """The group has members; nothing has changed. Stop them, or say that their memberships end with it."""


class UnknownMember(RequestRefused):
    """The group has no such member: it was lost, has left, or the broker was started again. It may join again."""


class MemberNameInUse(RequestRefused):
    """A static member of that name is there; nothing has changed."""


class AlreadyFinished(RequestRefused):
    """A message is to be tried again that the group has finished; nothing has changed."""


class TooManyParked(LimitExceeded):
    """The group has as many messages of the partition to try again as it may; nothing has changed."""


class TooFarAhead(LimitExceeded):
    """A message is too far above the lowest one that the group has not finished (max_ahead); nothing has changed."""


class PositionMoved(RequestRefused):
    """A group's position is not the expected one; nothing has moved."""


class CertificateRefused(RequestRefused):
    """The broker's certificate is not trusted here or is for another host, or it refuses ours; nothing was sent."""


class BrokerNotProven(RequestRefused):
    """The broker did not prove that it knows the user's password, so another may answer in its place. Nothing was done
    there, and the password was not sent.
    """


class ConnectionUnavailable(StorageUnavailable):
    """There is no connection to the broker; nothing was sent. A later try may succeed."""


class ConnectionClosed(RequestRefused):
    """This client has been closed; nothing was sent."""


class BufferFull(RequestRefused):
    """The client's own bound on unanswered bytes is reached, and the caller chose not to wait."""


class BacklogFull(RequestRefused):
    """More blocks are committed and not delivered than the program allows (``max_backlog``); nothing was committed."""


class RequestTimedOut(OutcomeUnknown):
    """No answer came in time. Whether the change happened is not known; the message says how to find out."""


class OutcomeLost(RequestTimedOut):
    """The broker was replaced after a call was sent that changes something, so no answer will come.

    Later calls raise :class:`BrokerReplaced`. This is none: that is a refusal, after which nothing has changed.
    """


class StopTimedOut(OutcomeUnknown):
    """A worker was stopped, and calls of its handler went on for longer than ``stop_timeout``.

    Their messages stay unfinished and come again, and their transactions are rolled back. What else the handler does
    may or may not happen. Everything else that was under way is finished.
    """


class HandlerTimedOut(OutcomeUnknown):
    """A call of a worker's handler went on for longer than ``handler_timeout``, so its message has failed; or a program
    has had a consumer's messages for so long.

    On an event loop the call is cancelled. A thread cannot be ended: the worker stops. Its transaction is rolled back,
    whenever it returns; what else it does may or may not happen.
    """


class DeliveryPending(TxBrokerError):
    """Row and messages are both committed, but the broker did not answer in time, so the messages become visible later.

    That happens by itself. Do not do the work again.
    """


class HeuristicMixed(HeuristicOutcome):
    """XA's ``XA_HEURMIX``: a prepared branch was ended the other way than its coordinator had decided.

    The other participants did as decided. ``participants`` names those that did not; the coordinator's log keeps it
    until a person has made them agree. Nothing was undone.
    """

    def __init__(self, message: str, participants: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.participants = list(participants)


class DecisionTableMissing(RequestRefused):
    """The database has no table ``txbroker_decision``; ``txbroker.create_decision_table`` makes it."""


class DecisionTableRefused(RequestRefused):
    """The table ``txbroker_decision`` has another layout, or belongs to a copy of the database; nothing was decided."""


class DecisionNotDurable(RequestRefused):
    """The settings of the database allow it to lose a committed decision; the message names the setting."""


class ProcessForked(Misuse):
    """A connection made before ``fork()`` is used in the child; open a new one there."""


def by_name(name: str) -> type[TxBrokerError]:
    """Return the error class of that name, for answers off the wire; ``RequestRefused`` for an unknown name."""
    found = globals().get(name, getattr(_journal_errors, name, RequestRefused))
    return found if isinstance(found, type) and issubclass(found, TxBrokerError) else RequestRefused
