"""Ledgers have each request of a client and each answer it got, one line each, written before the next request.

A line is in the kernel once it is appended, so it survives a SIGKILL of the process that wrote it. Times are in seconds
on the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a ledger."""

    at: float = 0.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a worker's handler: for the message at ``offset`` of a place, whose value has this checksum.

    ``generation`` and ``attempts`` are the message's. A call that ``fails`` raises, whether it has sent its message or
    not.
    """

    place: int
    offset: int
    generation: int
    attempts: int
    checksum: int
    fails: bool


class Began(Entry, frozen=True, kw_only=True, tag="began", tag_field="what"):
    """An operation is about to be requested: its message ``i`` goes to partition ``places[i]`` of the layout.

    ``together``: all messages or none become visible (a transaction). Operations of one ``connection`` keep their
    order. ``moves`` are the group positions that the operation moves: (place, from, to). ``keys`` are those of the
    messages; without them it is the sender's name. The transaction of a worker says which ``call`` it is for.
    ``due``: none of its messages may be in its partition before that moment, in µs since 1970 UTC. ``takes_back`` are
    scheduled messages of the same life that the transaction takes back: (operation, number). Messages for queues have
    no places: message ``i`` goes the way ``published[i]``. ``acknowledges`` are messages of queues that the transaction
    acknowledges: (queue, offset).
    """

    operation: int
    places: list[int]
    together: bool = False
    connection: int = 0
    xid: str = ""
    moves: list[tuple[int, int, int]] = []
    keys: list[str] = []
    call: Call | None = None
    due: list[int] = []
    takes_back: list[tuple[int, int]] = []
    published: list[str] = []
    acknowledges: list[tuple[str, int]] = []

    def key(self, number: int, sender: str) -> bytes:
        """Return the key of one of its messages."""
        return (self.keys[number] if self.keys else sender).encode()


class Acknowledged(Entry, frozen=True, kw_only=True, tag="acknowledged", tag_field="what"):
    """Messages of an operation are stored: (index, offset) of each."""

    operation: int
    offsets: list[tuple[int, int]]


class Scheduled(Entry, frozen=True, kw_only=True, tag="scheduled", tag_field="what"):
    """The broker keeps messages of an operation for later: their numbers."""

    operation: int
    numbers: list[int]


class TakesBack(Entry, frozen=True, kw_only=True, tag="takes back", tag_field="what"):
    """A scheduled message is about to be taken back."""

    operation: int
    number: int


class TookBack(Entry, frozen=True, kw_only=True, tag="took back", tag_field="what"):
    """The broker has answered what became of it: it never comes, or it is at that ``offset``, -1 if it did not say."""

    operation: int
    number: int
    sent: bool
    offset: int = -1


class Delivered(msgspec.Struct, frozen=True):
    """A message that a queue has delivered: which message of which operation, None if that cannot be read.

    ``intact``: its bytes, key and headers are what was published. ``attempts`` is how often it had been returned. Over
    AMQP it has no ``offset``: that is -1. ``again`` is whether the broker says that it may have been delivered before,
    None if nobody looked.
    """

    offset: int
    message: tuple[str, int, int] | None
    intact: bool
    attempts: int
    again: bool | None = None


class Took(Entry, frozen=True, kw_only=True, tag="took", tag_field="what"):
    """Messages were taken from a queue."""

    queue: str
    messages: list[Delivered]


class How(enum.Enum):
    """What settles messages of a queue outside of transactions: they are acknowledged, returned to the queue, or given
    up, which makes them dead letters.
    """

    ACKNOWLEDGE = "acknowledge"
    RETURN = "return"
    GIVE_UP = "give up"


class Settles(Entry, frozen=True, kw_only=True, tag="settles", tag_field="what"):
    """Messages of a queue are about to be settled, outside of transactions of the broker's own protocol.

    They are told by their offsets, or as in :class:`Delivered`.
    """

    operation: int
    queue: str
    offsets: list[int]
    how: How
    messages: list[tuple[str, int, int]] = []

    @property
    def count(self) -> int:
        """Return how many messages that are."""
        return len(self.offsets) + len(self.messages)


class Settled(Entry, frozen=True, kw_only=True, tag="settled", tag_field="what"):
    """The broker has answered that they are settled; or ``lost``: that the client has them no more, and nothing was
    settled.
    """

    operation: int
    lost: bool = False


class Refused(Entry, frozen=True, kw_only=True, tag="refused", tag_field="what"):
    """Messages of an operation are not stored, and never will be."""

    operation: int
    indexes: list[int]
    error: str


class Unknown(Entry, frozen=True, kw_only=True, tag="unknown", tag_field="what"):
    """Messages of an operation, or all of a transaction (no indexes), may be stored or not."""

    operation: int
    error: str
    indexes: list[int] = []


class Prepared(Entry, frozen=True, kw_only=True, tag="prepared", tag_field="what"):
    """The broker has promised to keep the transaction."""

    operation: int


class Decided(Entry, frozen=True, kw_only=True, tag="decided", tag_field="what"):
    """A prepared transaction is to end in this way; the line is written before the broker gets the request.

    ``sender`` names the life whose transaction it was, where another one decides.
    """

    operation: int
    commit: bool
    sender: str = ""


class Ended(Entry, frozen=True, kw_only=True, tag="ended", tag_field="what"):
    """The broker has answered how a transaction ended. ``found_out``: after the first answer had been lost.

    ``runs`` say where the messages are according to the broker: (place, first offset, messages); empty if it did not
    say.
    """

    operation: int
    committed: bool
    found_out: bool = False
    runs: list[tuple[int, int, int]] = []
    sender: str = ""


class Saw(Entry, frozen=True, kw_only=True, tag="saw", tag_field="what"):
    """A reader got ``count`` messages of a place from offset ``first`` on; ``digest`` is over their checksums."""

    place: int
    first: int
    count: int
    digest: int


class HalfSeen(Entry, frozen=True, kw_only=True, tag="half seen", tag_field="what"):
    """A reader saw ``seen`` messages of a transaction, and still not all in a later look at all partitions."""

    sender: str
    operation: int
    seen: int
    together: int


class WentBack(Entry, frozen=True, kw_only=True, tag="went back", tag_field="what"):
    """A reader had read up to offset ``seen``, and then the broker answered that the partition ends at ``end``."""

    place: int
    seen: int
    end: int


class Surprise(Entry, frozen=True, kw_only=True, tag="surprise", tag_field="what"):
    """An answer that no kill explains."""

    doing: str
    error: str


AnyEntry = (
    Began
    | Acknowledged
    | Scheduled
    | TakesBack
    | TookBack
    | Took
    | Settles
    | Settled
    | Refused
    | Unknown
    | Prepared
    | Decided
    | Ended
    | Saw
    | HalfSeen
    | WentBack
    | Surprise
)

SUFFIX = ".jsonl"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyEntry).decode


class Ledger:
    """The ledger of one life of a client, to which lines are appended."""

    def __init__(self, folder: Path, sender: str) -> None:
        self.sender = sender
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(folder / f"{sender}{SUFFIX}", flags, 0o640)

    def write(self, entry: Entry) -> None:
        """Append a line; the kernel has it when this returns."""
        line = _encode(msgspec.structs.replace(entry, at=round(time.monotonic(), 4))) + b"\n"
        if os.write(self._descriptor, line) != len(line):
            raise OSError(f"the ledger of {self.sender} could not be written as a whole: is the disk full?")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Line(NamedTuple):
    """A line of a ledger, with its ledger and number."""

    sender: str
    number: int
    entry: AnyEntry

    def __str__(self) -> str:
        return f"{self.sender}{SUFFIX}:{self.number}"


def read_ledger(path: Path) -> Iterator[Line]:
    """Yield the lines of one ledger. A last line without an end was being written at the kill; it is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield Line(path.name.removesuffix(SUFFIX), number, _decode(line))


def read_ledgers(folder: Path) -> Iterator[Line]:
    """Yield the lines of all ledgers of a folder, ledger by ledger."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield from read_ledger(path)


class Tail:
    """Reads what has been appended to the ledgers of a folder since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[AnyEntry]:
        """Yield the entries that were not there before."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            yield from map(_decode, whole.splitlines())
