"""Requests of a newer version of the protocol: they cannot be decoded, and are answered by name all the same."""

from __future__ import annotations

from typing import Any, Final, NoReturn, get_args

import msgspec

from journal.formats.version import PROGRAM
from txbroker.errors import PeerViolation, VersionRefused
from txbroker.wire.any_request import AnyRequest
from txbroker.wire.requests import Request


class NewerRequest(Request, frozen=True):
    """A request of a kind, or with fields, that are not known here. It is in no union, so no peer can send it.

    ``extra`` is how many of its fields are not known, 0 for one of an unknown kind.
    """

    kind: int
    extra: int = 0


class _Beginning(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first two elements of every head; the others are passed over, and no objects are made of them."""

    kind: int
    correlation: int


_decode_beginning = msgspec.msgpack.Decoder(_Beginning).decode


def _length_of(kind: Any) -> tuple[int, int]:
    return kind.__struct_config__.tag, 1 + len(kind.__struct_fields__)


LENGTHS: Final[dict[int, int]] = dict(map(_length_of, get_args(AnyRequest)))
"""How many elements a head of each kind has at most."""


def violation(head: memoryview, error: Exception) -> NoReturn:  # noqa: ARG001
    """Raise :class:`PeerViolation` for a head that is none of the protocol's."""
    raise PeerViolation(f"a head is not one of the protocol's: {error}") from error


def unread_request(head: memoryview, error: Exception) -> NewerRequest:
    """Return what stands for a request of a newer version; raises :class:`PeerViolation` for a head that is none."""
    try:
        beginning = _decode_beginning(head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        violation(head, error)
    known = LENGTHS.get(beginning.kind)
    if known is None:
        return NewerRequest(beginning.correlation, beginning.kind)
    extra = _elements(head) - known
    if extra > 0:
        return NewerRequest(beginning.correlation, beginning.kind, extra)
    violation(head, error)


def _elements(head: memoryview) -> int:
    """Return how many elements a msgpack array has."""
    first = head[0]
    if first & 0xF0 == 0x90:
        return first & 0x0F
    return int.from_bytes(head[1 : 3 if first == 0xDC else 5], "big")


def refuse_newer(request: NewerRequest) -> VersionRefused:
    """Return the error for a request that is not known here."""
    what = (
        f"{request.extra} fields of a request of kind {request.kind}"
        if request.extra
        else f"requests of kind {request.kind}"
    )
    return VersionRefused(
        f"this broker, txbroker {PROGRAM}, does not know {what}: the client is newer than the broker. Nothing has "
        "changed. Upgrade the broker first, or do without what was called (docs/upgrading.md)"
    )
