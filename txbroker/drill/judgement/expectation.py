"""The ledgers say what the broker must hold, may hold, and must not hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from txbroker.drill.clients.fate import ALWAYS, failures_of
from txbroker.drill.clients.ledger import (
    Acknowledged,
    Began,
    Decided,
    Ended,
    HalfSeen,
    Line,
    Prepared,
    Refused,
    Saw,
    Scheduled,
    Settled,
    Settles,
    Surprise,
    TakesBack,
    Took,
    TookBack,
    Unknown,
    WentBack,
)


@dataclass(slots=True)
class Operation:
    """One operation of a client: a batch of sends, or a transaction (``began.together``)."""

    sender: str
    line: Line
    began: Began
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The offsets by message number."""
    acknowledged_at: str = ""
    refused: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    answer_lost: bool = False
    prepared: Line | None = None
    decisions: list[tuple[Line, bool]] = field(default_factory=list)
    ends: list[tuple[Line, Ended]] = field(default_factory=list)
    scheduled: set[int] = field(default_factory=set)
    """The messages that the broker said it keeps for later."""
    asked_back: set[int] = field(default_factory=set)
    """Those that were to be taken back, alone; ``took_back`` has what the broker said of them."""
    took_back: dict[int, tuple[Line, TookBack]] = field(default_factory=dict)
    found: list[tuple[int, int, int]] = field(default_factory=list)
    """The messages of the operation that the broker holds: (number, place, offset)."""

    @property
    def name(self) -> str:
        """Return a name for reports."""
        return f"{self.sender} operation {self.began.operation}"

    @property
    def transaction(self) -> str:
        """Return the xid, or what identifies the transaction instead, for reports; empty if it is no transaction."""
        return self.began.xid or (self.name if self.began.together else "")

    @property
    def numbers_found(self) -> set[int]:
        """Return which of its messages are there."""
        return {number for number, _, _ in self.found}

    @property
    def is_whole(self) -> bool:
        """Return whether all of its messages are there."""
        return len(self.numbers_found) == len(self.began.places)

    def is_poison(self, number: int) -> bool:
        """Return whether the handler of a worker always fails with this message."""
        return failures_of(self.sender, self.began.operation, number) == ALWAYS


@dataclass(slots=True)
class Settling:
    """Messages of a queue that a client has settled outside of transactions; ``answer`` is what it was told, None if
    nobody knows.
    """

    line: Line
    entry: Settles
    answer: tuple[Line, Settled] | None = None

    @property
    def is_done(self) -> bool:
        """Return whether the broker has said that they are settled."""
        return self.answer is not None and not self.answer[1].lost


class Queued(NamedTuple):
    """A message that is in a queue at the end: which one of which operation (None: unreadable), and at which offset.

    ``intact``: it is what was published. A dead letter says in which queue it was, at which offset, and how often it
    had been returned; ``origin`` is empty for others.
    """

    queue: str
    offset: int
    message: tuple[str, int, int] | None
    intact: bool
    origin: str = ""
    origin_offset: int = -1
    attempts: int = 0


class Letter(NamedTuple):
    """A dead letter that the broker holds, at an offset of a place: a message of an operation.

    ``topic``, ``partition`` and ``task`` (an offset) are where the message was, ``attempts`` how often it was tried,
    as the letter says.
    """

    operation: Operation
    number: int
    place: int
    offset: int
    topic: str
    partition: int
    task: int
    attempts: int


@dataclass
class Expectation:
    """All ledgers of a drill, by operation; ``letters`` are the dead letters that are there.

    ``took`` and ``settlings`` are what clients did with messages of queues, ``queued`` what is in the queues.
    """

    operations: dict[tuple[str, int], Operation] = field(default_factory=dict)
    saw: list[tuple[Line, Saw]] = field(default_factory=list)
    complaints: list[tuple[Line, HalfSeen | WentBack | Surprise]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    took: list[tuple[Line, Took]] = field(default_factory=list)
    settlings: dict[tuple[str, int], Settling] = field(default_factory=dict)
    queued: list[Queued] = field(default_factory=list)

    def take(self, lines: Iterable[Line]) -> None:
        """Read ledgers, in any order: the coordinator's lines about a client's operations are taken last."""
        later: list[Line] = []
        for line in lines:
            sender = getattr(line.entry, "sender", "")
            if sender and not isinstance(line.entry, HalfSeen):
                later.append(line)
            else:
                self._take(line, line.sender)
        for line in later:
            self._take(line, getattr(line.entry, "sender", ""))

    def _take(self, line: Line, sender: str) -> None:
        entry = line.entry
        match entry:
            case Began():
                self.operations[sender, entry.operation] = Operation(sender, line, entry)
            case Took():
                self.took.append((line, entry))
            case Settles():
                self.settlings[sender, entry.operation] = Settling(line, entry)
            case Settled():
                self.settlings[sender, entry.operation].answer = line, entry
            case Saw():
                self.saw.append((line, entry))
            case HalfSeen() | WentBack() | Surprise():
                self.complaints.append((line, entry))
            case _:
                self._answered(self.operations[sender, entry.operation], line)

    def _answered(self, operation: Operation, line: Line) -> None:
        match line.entry:
            case Acknowledged(offsets=offsets):
                operation.acknowledged.update(offsets)
                operation.acknowledged_at = str(line)
            case Scheduled(numbers=numbers):
                operation.scheduled.update(numbers)
                operation.acknowledged_at = str(line)
            case TakesBack(number=number):
                operation.asked_back.add(number)
            case TookBack(number=number) as took_back:
                operation.took_back[number] = line, took_back
            case Refused(indexes=indexes):
                operation.refused.update(indexes)
            case Unknown(indexes=indexes):
                operation.unknown.update(indexes)
                operation.answer_lost = True
            case Prepared():
                operation.prepared = line
            case Decided(commit=commit):
                operation.decisions.append((line, commit))
            case Ended() as ended:
                operation.ends.append((line, ended))
