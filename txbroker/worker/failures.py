"""What it means for a message that the work on it has ended with an exception."""

from __future__ import annotations

import enum

from txbroker import errors
from txbroker.client.core.results import Message
from txbroker.databases.adapters.database import named


class Meaning(enum.Enum):
    """What an exception says about the message."""

    FAILED = "the handler failed with it"
    LOST = "its partition is another consumer's now; its work is rolled back"
    AGAIN = "nothing of its work is left, and that was not its fault: it is handled again"
    LATER = "the same, once others have been handled"
    UNDECIDED = "its transaction may be committed: the broker is asked"
    COMMITTED = "its transaction was committed all the same"
    FATAL = "no message can be handled any more"


def meaning_of(error: Exception, by_handler: bool, may_ask: bool) -> Meaning:
    """Return what an exception means that ended the work on a message.

    ``by_handler``: the handler raised it. ``may_ask``: it came from the commit, so the broker knows how that ended, or
    will.
    """
    if isinstance(error, errors.GenerationFenced):
        return Meaning.LOST
    if isinstance(error, errors.OutcomeUnknown) and may_ask and not by_handler:
        return Meaning.UNDECIDED
    again = isinstance(error, (errors.TransactionRolledBack, errors.StorageUnavailable, errors.OffsetPending))
    if again:
        return Meaning.AGAIN
    if by_handler:
        return Meaning.FAILED
    if isinstance(error, errors.TooFarAhead):
        return Meaning.LATER
    if isinstance(error, errors.LimitExceeded):
        return Meaning.FAILED  # it sends too much for one transaction, for example
    if isinstance(error, errors.TxBrokerError):
        return Meaning.FATAL
    if isinstance(error, OSError) or named(error, "OperationalError", "InterfaceError"):
        return Meaning.AGAIN  # the database is away, or two transactions met
    # By the database at COMMIT (a constraint that is checked there, for example), or no connection was had at all.
    return Meaning.FAILED if may_ask else Meaning.FATAL


def too_long(seconds: float | None) -> errors.HandlerTimedOut:
    """Return the error for a call of the handler that did not return in time."""
    return errors.HandlerTimedOut(
        f"the handler did not return within handler_timeout={seconds or 0:g} s; what it does is not committed any more"
    )


def place_of(message: Message) -> str:
    """Return where a message is, for people."""
    return f"{message.topic}-{message.partition} offset {message.offset}"


def described(error: BaseException) -> str:
    """Return an exception on one line."""
    return f"{type(error).__name__}: {error}".rstrip(": ")
