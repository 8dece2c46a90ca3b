"""The bytes of an outcome archive's entry: only this module packs or unpacks them. See ``docs/file_format.md``.

An entry is the payload of a message in the internal topic :data:`OUTCOMES_TOPIC`, one for each transaction that ended
while the archive was on, in the order of the decisions.
"""

from __future__ import annotations

import builtins
from typing import Final

import msgspec

from journal.errors import InvalidFrame
from journal.formats import frame
from journal.formats.filenames import RESERVED_PREFIX
from journal.parties import Actor, Owner
from journal.records.outcome import Outcome
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from journal.transaction_states import Cause, State, TransactionNumber
from journal.xid import Xid

OUTCOMES_TOPIC: Final = RESERVED_PREFIX + "outcomes"
"""The log that holds the archive."""
NEVER_PLACED: Final = -1
"""The base offset of a rolled back transaction."""


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The messages of a transaction for one partition.

    ``index`` is the partition within its topic, ``number`` the one that is never reused. ``base_offset`` is that of its
    first message in the log, or :data:`NEVER_PLACED`; the others follow it without a gap. ``bytes`` counts whole
    frames. ``checksum`` is CRC-32C over these frames with all ids zero, as they were sent.
    """

    topic: str
    index: int
    number: int
    base_offset: int
    count: int
    bytes: int
    checksum: int


class ArchivedOutcome(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The outcome of one transaction, kept for good.

    ``lsn`` is that of the record that ended it, ``at`` its journal time. ``wall`` (when it ended), ``began`` and
    ``prepared`` (0: never) are µs since 1970 by the wall clock. ``messages``, ``requests`` and ``checksum`` are of what
    arrived, and so of what was prepared: CRC-32C over the frames of all adds in the order in which they were sent.
    ``heuristic``: a person or policy decided the outcome after it was prepared. ``routed`` are the messages and bytes
    that went through exchanges, each once: they are in the parts of all queues that they are for, or in none.
    """

    session: int
    serial: int
    state: State
    cause: Cause
    lsn: int
    at: int
    wall: int
    began: int
    prepared: int
    xid: Xid | None
    by: Actor | None
    why: str
    owner: Owner | None
    heuristic: bool
    messages: int
    bytes: int
    requests: int
    checksum: int
    parts: list[Part]
    routed: tuple[int, int] = (0, 0)

    @property
    def number(self) -> TransactionNumber:
        """The number of the transaction."""
        return TransactionNumber(self.session, self.serial)


_TAG: Final = ArchivedOutcome.__struct_config__.tag
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ArchivedOutcome).decode


def pack(entry: ArchivedOutcome) -> builtins.bytes:
    """Return the frame of an entry, unstamped."""
    return frame.encode(_encode(entry), entry.wall)


PartFields = tuple[str, int, int, int, int, int, int]
"""The fields of a :class:`Part`, in its order."""


def pack_outcome(
    lsn: int, outcome: Outcome, requests: int, checksum: int, parts: list[PartFields]
) -> builtins.bytes:
    """Return what :func:`pack` returns for an entry with these fields, without making it: half the time, once a
    transaction.
    """
    session, serial = outcome.number
    messages, size = outcome.messages, outcome.bytes
    for topic, _, _, _, count, bytes_there, _ in parts:
        if not topic.startswith(QUEUE_TOPIC_PREFIX):
            messages -= count
            size -= bytes_there
    entry = (
        _TAG, session, serial, outcome.state, outcome.cause, lsn, outcome.at, outcome.wall, outcome.began,
        outcome.prepared, outcome.xid, outcome.by, outcome.why, outcome.owner, outcome.heuristic, outcome.messages,
        outcome.bytes, requests, checksum, parts, (messages, size),
    )  # fmt: skip
    return frame.encode(_encode(entry), outcome.wall)


def unpack_frame(data: builtins.bytes | memoryview) -> ArchivedOutcome:
    """Return the entry in a frame of the archive's log; raises :class:`InvalidFrame` as :func:`unpack` does."""
    return unpack(memoryview(data)[frame.HEADER_BYTES + frame.HEADER.unpack_from(data)[7] :])


def unpack(payload: builtins.bytes | memoryview) -> ArchivedOutcome:
    """Return the entry of a message; raises :class:`InvalidFrame` if its form is unknown here."""
    try:
        return _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFrame(
            f"an entry of the outcome archive is of a form that is not known here: {error}"
        ) from error
