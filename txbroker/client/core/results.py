"""The results of the clients: receipts, messages, positions."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from journal.formats import frame
from journal.message_headers import Headers, last_value
from txbroker.wire.messages import TransactionInfo


class Durability(enum.Enum):
    """How safe an acknowledged message is."""

    FORCED = "forced"
    """On the broker's disk, forced before the answer."""
    STAGED = "staged"
    """Inside a transaction that is not committed yet."""


class Receipt(NamedTuple):
    """Where a message was stored: ``partition`` is the index in the topic, ``offset`` the place in the partition.

    Inside a transaction ``offset`` is None until the commit; the receipts of ``Transaction.receipts`` have it
    afterwards.
    """

    topic: str
    partition: int
    offset: int | None
    durability: Durability = Durability.FORCED


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message that was read. ``partition`` is the index in the topic, ``timestamp`` the sender's, µs since 1970
    UTC.

    ``value`` is None for a tombstone. ``headers`` are pairs of name and value in the order in which they were sent; a
    name may come more than once.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name, None if there is none."""
        return last_value(self.headers, name)


class Frames(NamedTuple):
    """Frames of one partition as they were read, and where the log of the partition begins and ends.

    The first frame may begin below the offset that was asked for, if it is a wrapper that holds it.
    """

    data: memoryview
    start_offset: int
    high_watermark: int


class GroupPosition(NamedTuple):
    """The position of a group in a partition: the next ``offset`` to read, None if it has none yet.

    ``pending_by`` names the undecided transaction that will move the position, "" if there is none.
    """

    topic: str
    partition: int
    offset: int | None
    generation: int
    metadata: str
    pending_by: str


class Run(NamedTuple):
    """The place of a committed transaction's messages of one partition: the n-th sent is at base_offset + n."""

    topic: str
    partition: int
    base_offset: int
    messages: int


class PartContent(NamedTuple):
    """How many messages and bytes an undecided transaction has for one partition."""

    topic: str
    partition: int
    messages: int
    bytes: int


class GroupMove(NamedTuple):
    """A group's position that a transaction moves when it commits: the next ``offset`` to read."""

    group: str
    topic: str
    partition: int
    offset: int


class TransactionDetails(NamedTuple):
    """A transaction with its first messages (their offsets count from 0 within each part).

    ``contents`` has the size of an undecided transaction, ``runs`` the places of a committed one's messages.
    ``obstacle`` is the reason why its messages cannot be read, "" if they can.
    """

    transaction: TransactionInfo
    messages: list[Message]
    offsets: list[GroupMove]
    contents: list[PartContent]
    runs: list[Run]
    obstacle: str = ""


def decoded(
    topic: str, index: int, data: memoryview, offset: int, max_bytes: int
) -> tuple[list[Message], int]:
    """Return the messages of frames, up to about ``max_bytes`` of decoded bytes, and how many bytes these are."""
    taken, pieces = 0, list[frame.Message]()
    for piece, size in frame.decode_pieces(data, offset):
        pieces += piece
        taken += size
        if taken >= max_bytes:
            break
    messages = [
        Message(topic, index, found.offset, found.timestamp, found.key, found.value, found.headers)
        for found in pieces
    ]
    return messages, taken
