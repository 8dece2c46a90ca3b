"""The bytes of one entry of the outcome archive: nothing else packs or unpacks them. ``docs/file_format.md`` has them.

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
from journal.formats.outcome import Outcome
from journal.transaction import Cause, State, TransactionNumber, Xid

OUTCOMES_TOPIC: Final = RESERVED_PREFIX + "outcomes"
"""The log that holds the archive."""
NEVER_PLACED: Final = -1
"""The offset of what was rolled back."""


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a transaction had for one partition.

    ``index`` is the partition within its topic, ``number`` the one that is never reused. ``base_offset`` is that of
    its first message in the log, or :data:`NEVER_PLACED`; the others follow it without a gap. ``bytes`` counts whole
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
    """How one transaction ended, for good.

    ``lsn`` is that of the record that ended it, ``at`` its journal time. ``wall`` (when it ended), ``began`` and
    ``prepared`` (0: never) are µs since 1970 by the wall clock. ``messages``, ``requests`` and ``checksum`` are what
    arrived, and so what was prepared: CRC-32C over the frames of all adds in the order in which they were sent.
    ``heuristic`` says that a person or policy forced the outcome after it was prepared.
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
    by: str
    why: str
    owner: str
    heuristic: bool
    messages: int
    bytes: int
    requests: int
    checksum: int
    parts: list[Part]

    @property
    def number(self) -> TransactionNumber:
        """Which transaction."""
        return TransactionNumber(self.session, self.serial)


_TAG: Final = ArchivedOutcome.__struct_config__.tag
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ArchivedOutcome).decode


def pack(entry: ArchivedOutcome) -> builtins.bytes:
    """The frame of an entry, its id zero: a log stamps it."""
    return frame.encode(_encode(entry), entry.wall)


PartFields = tuple[str, int, int, int, int, int, int]
"""The fields of a :class:`Part`, in its order."""


def pack_outcome(
    lsn: int, outcome: Outcome, requests: int, checksum: int, parts: list[PartFields]
) -> builtins.bytes:
    """As :func:`pack` of an entry with these fields, which is not made: once a transaction, half the time."""
    session, serial = outcome.number
    entry = (
        _TAG, session, serial, outcome.state, outcome.cause, lsn, outcome.at, outcome.wall, outcome.began,
        outcome.prepared, outcome.xid, outcome.by, outcome.why, outcome.owner, outcome.heuristic, outcome.messages,
        outcome.bytes, requests, checksum, parts,
    )  # fmt: skip
    return frame.encode(_encode(entry), outcome.wall)


def unpack_frame(data: builtins.bytes | memoryview) -> ArchivedOutcome:
    """The entry in a frame of the archive's log; raises :class:`InvalidFrame` as :func:`unpack` does."""
    return unpack(memoryview(data)[frame.HEADER_BYTES + frame.HEADER.unpack_from(data)[6] :])


def unpack(payload: builtins.bytes | memoryview) -> ArchivedOutcome:
    """The entry of a message; raises :class:`InvalidFrame` if it is none that is known here."""
    try:
        return _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFrame(
            f"an entry of the outcome archive is of a form that is not known here: {error}"
        ) from error
