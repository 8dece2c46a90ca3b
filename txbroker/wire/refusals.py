"""The answers that errors become."""

from __future__ import annotations

from journal.constants import MAX_REQUEST_ENTRIES
from journal.random_id import ID_BYTES
from journal.records.queue_entries import QUEUE_GROUP
from txbroker import errors
from txbroker.errors import (
    CorruptData,
    CorruptSegment,
    HeuristicOutcome,
    InvalidName,
    LimitExceeded,
    OffsetOutOfRange,
    TxBrokerError,
    UnknownPartition,
)
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAX_ANSWER_HEAD, Answer, Refused

MAX_NAME = 255
MAX_TEXT = 4096
"""Most characters of a reason that a person gives."""


def error_name(error: TxBrokerError) -> str:
    """Return the name by which clients know the error: its own class's, or that of the nearest public base class."""
    for cls in type(error).__mro__:
        if getattr(errors, cls.__name__, None) is cls:
            return str(cls.__name__)
    return TxBrokerError.__name__


def refusal(correlation: int, error: TxBrokerError) -> Refused:
    """Return the answer for an error."""
    return Refused(correlation, error_name(error), str(error), *extras(error))


def extras(error: TxBrokerError) -> tuple[dict[str, int], dict[str, str]]:
    """Return the fields of an error beside its message: its numbers and its texts."""
    match error:
        case OffsetOutOfRange():
            return {"start": error.start, "end": error.end}, {}
        case HeuristicOutcome():
            return {"wall": error.wall}, {"by": error.by, "why": error.why, "principal": error.principal}
        case CorruptSegment():
            offsets = {"first_offset": error.first_offset, "last_offset": error.last_offset}
            return {"position": error.position, **offsets}, {"path": error.path}
        case CorruptData():
            return {"position": error.position}, {"path": error.path}
    return getattr(error, "numbers", {}), getattr(error, "texts", {})


def encode_bounded(answer: Answer, data: bytes = b"") -> bytes:
    """Encode an answer whose size depends on the broker's state; a refusal if its head is over the protocol's limit."""
    encoded = encode(answer, data)
    size = len(encoded) - len(data)
    if size <= MAX_ANSWER_HEAD:
        return encoded
    error = LimitExceeded(
        f"the answer has {size} bytes, {MAX_ANSWER_HEAD} are allowed: ask for fewer at a time"
    )
    return encode(refusal(answer.correlation, error))


def check_entries(kind: str, count: int) -> None:
    """Raise :class:`LimitExceeded` for a request that lists too many entries."""
    if count > MAX_REQUEST_ENTRIES:
        raise LimitExceeded(
            f"a request with {count} {kind}, the limit is {MAX_REQUEST_ENTRIES}; nothing has changed. Ask for them in "
            "several requests"
        )


def check_name(kind: str, name: str) -> None:
    """Raise :class:`InvalidName` unless a group's, producer's or member's name is 1 to 255 printable characters."""
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        shown = repr(name if len(name) <= 40 else name[:40] + "...")
        raise InvalidName(
            f"{shown} ({len(name)} characters) cannot be the name of a {kind}; nothing has changed. Use 1 to "
            f"{MAX_NAME} printable characters"
        )


def check_not_reserved(group: str) -> None:
    """Raise :class:`InvalidName` for the group of the queues, which clients change by their acknowledgements alone."""
    if group == QUEUE_GROUP:
        raise InvalidName(
            f"{group!r} is the broker's own group, of what was acknowledged in queues; nothing has changed. "
            "Acknowledge messages, or use another group"
        )


def check_id(kind: str, name: str, given: bytes) -> None:
    """Raise :class:`InvalidName` unless the id that a client gives to a new topic or group is 16 bytes."""
    if len(given) != ID_BYTES:
        raise InvalidName(
            f"the id of the new {kind} {name!r} has {len(given)} bytes; nothing has changed. Give "
            f"{ID_BYTES} random ones"
        )


def check_text(kind: str, text: str) -> None:
    """Raise :class:`InvalidName` unless a person's text is printable and not too long."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise InvalidName(
            f"{kind} of {len(text)} characters is not printable text of at most {MAX_TEXT}; nothing has changed"
        )


def unknown_partition(number: int) -> UnknownPartition:
    """Return the error for a partition that does not exist."""
    return UnknownPartition(
        f"there is no partition number {number}; nothing has changed. Its topic may have been deleted: ask "
        "for the topics again"
    )
