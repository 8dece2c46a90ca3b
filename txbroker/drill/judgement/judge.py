"""The judge checks that what the broker holds agrees with what it acknowledged, by ledgers and messages alone."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from journal.message_headers import Headers
from txbroker.drill.clients.ledger import HalfSeen, Line, Surprise, WentBack
from txbroker.drill.clients.messages import MessageId, identity_of, value_of
from txbroker.drill.clients.reader import checksum_of, digest_of
from txbroker.drill.judgement.expectation import Expectation, Letter, Operation
from txbroker.drill.judgement.judge_queues import judge_queues
from txbroker.drill.judgement.judge_schedule import judge_moment, judge_schedule
from txbroker.drill.judgement.judge_transactions import judge_relay, judge_transaction
from txbroker.drill.judgement.judge_work import judge_work
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.wire import dead_letters as names


class Held(Protocol):
    """A message that the broker holds."""

    @property
    def offset(self) -> int:
        """Return its place in the partition."""

    @property
    def appended(self) -> int:
        """Return when it was appended, in µs since 1970 UTC."""

    @property
    def key(self) -> bytes | None:
        """Return its key."""

    @property
    def value(self) -> bytes | None:
        """Return its bytes."""

    @property
    def headers(self) -> Headers:
        """Return its headers."""

    def header(self, name: str) -> bytes | None:
        """Return the value of its last header of that name, None if there is none."""


class Judge:
    """The judge takes all messages of a drill's topics, each partition in the order of offsets, and then judges.

    ``tasks`` are the places whose messages workers handle, ``dead`` those of their dead letters.
    """

    def __init__(
        self,
        name: str,
        layout: Sequence[tuple[str, int]],
        expectation: Expectation,
        tasks: Sequence[int] = (),
        dead: Collection[int] = (),
    ) -> None:
        self.violations: list[Violation] = []
        self.checksums = [array("I") for _ in layout]
        """The checksum of every message by place and offset."""
        self._name = name
        self._layout = layout
        self._expectation = expectation
        self._tasks = tasks
        self._dead = dead

    # -- what is there -----------------------------------------------------------------------------

    def take(self, place: int, message: Held) -> None:
        """Take the next message of a partition."""
        checksums = self.checksums[place]
        if message.offset != len(checksums):
            text = f"offset {message.offset} comes where {len(checksums)} is due"
            self._violate(Wrong.GAP, text, place, message.offset)
            while len(checksums) < message.offset:
                checksums.append(0)
        checksums.append(checksum_of(message.value))
        whose = self._whose(place, message)
        if whose is not None:
            operation, identity = whose
            if place in self._dead:
                self._take_letter(place, message, operation, identity)
            else:
                self._compare(place, message, operation, identity)
                operation.found.append((identity.number, place, message.offset))
                if operation.began.due:
                    self.violations += judge_moment(operation, identity.number, place, message, self._layout)

    def _whose(self, place: int, message: Held) -> tuple[Operation, MessageId] | None:
        """Return the operation of the message, and which one it is; reports a message that is of none."""
        identity = identity_of(message.value)
        operation = None
        if identity is not None and identity.drill == self._name:
            operation = self._expectation.operations.get((identity.sender, identity.operation))
        if identity is None or operation is None or identity.number >= len(operation.began.places):
            said = (message.value or b"")[:80]
            self._violate(Wrong.NEVER_SENT, f"no ledger has asked for {said!r}", place, message.offset)
            return None
        return operation, identity

    def _compare(self, place: int, message: Held, operation: Operation, identity: MessageId) -> None:
        """Report a message that is not what was sent, or not where it was sent to."""
        self._compare_bytes(place, message, operation, identity, message.headers)
        if operation.began.places[identity.number] != place:
            wanted = self._layout[operation.began.places[identity.number]]
            self._violate(
                Wrong.MOVED,
                f"{identity} was sent to {wanted[0]}-{wanted[1]}",
                place,
                message.offset,
                operation,
            )

    def _compare_bytes(
        self, place: int, message: Held, operation: Operation, identity: MessageId, headers: Headers
    ) -> None:
        key = operation.began.key(identity.number, identity.sender)
        labels = key, (("place", b"%d" % operation.began.places[identity.number]),)
        if message.value != value_of(identity) or (message.key, headers) != labels:
            text = f"{identity} is not byte for byte what was sent"
            self._violate(Wrong.CHANGED, text, place, message.offset, operation)

    def _take_letter(self, place: int, message: Held, operation: Operation, identity: MessageId) -> None:
        """Take a dead letter: the message as it was sent, and further headers that say where it was, and why."""
        own = tuple(each for each in message.headers if not each[0].startswith(names.DEAD_PREFIX))
        self._compare_bytes(place, message, operation, identity, own)
        topic = (message.header(names.DEAD_TOPIC) or b"").decode("utf-8", "replace")
        partition, task, attempts = (
            _number(message.header(name))
            for name in (names.DEAD_PARTITION, names.DEAD_OFFSET, names.DEAD_ATTEMPTS)
        )
        letter = Letter(operation, identity.number, place, message.offset, topic, partition, task, attempts)
        self._expectation.letters.append(letter)

    # -- the judgement -----------------------------------------------------------------------------

    def judge(self, positions: Mapping[int, int | None]) -> list[Violation]:
        """Return all violations; ``positions`` are the relay's and the workers' by place, as the broker gives them."""
        for operation in self._expectation.operations.values():
            self._judge_repetitions(operation)
            if operation.began.due or operation.began.published:
                continue
            if operation.began.together:
                self.violations += judge_transaction(operation, self._layout)
            else:
                self._judge_sends(operation)
        self._judge_order()
        self.violations += judge_relay(self._expectation.operations.values(), self._layout, positions)
        self.violations += judge_work(self._expectation, self._tasks, self.checksums, self._layout, positions)
        self.violations += judge_schedule(self._expectation, self._layout)
        self.violations += judge_queues(self._expectation)
        self.violations += self._unseen()
        self.violations += [self._complaint(line, entry) for line, entry in self._expectation.complaints]
        return self.violations

    def _judge_repetitions(self, operation: Operation) -> None:
        seen: dict[int, int] = {}
        for number, place, offset in operation.found:
            if number in seen:
                text = f"message {number} of {operation.name} is at offset {seen[number]} too"
                self._violate(Wrong.DUPLICATED, text, place, offset, operation)
            seen.setdefault(number, offset)

    def _judge_sends(self, operation: Operation) -> None:
        where = {number: offset for number, _, offset in reversed(operation.found)}
        for number, offset in operation.acknowledged.items():
            place = operation.began.places[number]
            text = f"message {number} of {operation.name} was acknowledged at offset {offset}"
            if number not in where:
                self._violate(Wrong.LOST, f"{text} and is not there", place, offset, operation)
            elif where[number] != offset:
                self._violate(Wrong.MOVED, f"{text} and is at {where[number]}", place, offset, operation)
        for number in sorted(operation.refused & set(where)):
            place = operation.began.places[number]
            text = f"message {number} of {operation.name} was refused for good and is there"
            self._violate(Wrong.CONTRADICTED, text, place, where[number], operation)

    def _judge_order(self) -> None:
        """Check that acknowledged messages of one connection keep the order of sending in each partition."""
        last: dict[tuple[str, int, int], tuple[int, str]] = {}
        for operation in sorted(self._expectation.operations.values(), key=_age):
            if operation.began.together or operation.began.published:
                continue
            for number, offset in sorted(operation.acknowledged.items()):
                place = operation.began.places[number]
                lane = operation.sender, operation.began.connection, place
                before, whose = last.get(lane, (-1, ""))
                name = f"message {number} of {operation.name}"
                if offset <= before:
                    text = f"{name} is at {offset}, {whose}, sent before it, at {before}"
                    self._violate(Wrong.OUT_OF_ORDER, text, place, offset, operation)
                last[lane] = offset, name

    def _unseen(self) -> Iterator[Violation]:
        for line, saw in self._expectation.saw:
            there = self.checksums[saw.place][saw.first : saw.first + saw.count]
            if digest_of(there) != saw.digest:
                topic, partition = self._layout[saw.place]
                text = f"{saw.count} messages from offset {saw.first} on are not those that a reader saw"
                yield Violation(
                    wrong=Wrong.UNSEEN, text=text, topic=topic, partition=partition, offset=saw.first,
                    client=line.sender, ledger=str(line),
                )  # fmt: skip

    def _complaint(self, line: Line, entry: HalfSeen | WentBack | Surprise) -> Violation:
        match entry:
            case HalfSeen():
                text = (
                    f"a reader saw {entry.seen} of {entry.together} messages, and a look later still not all"
                )
                whose = self._expectation.operations.get((entry.sender, entry.operation))
                return Violation(
                    wrong=Wrong.HALF_VISIBLE, text=text, client=entry.sender, ledger=str(line),
                    transaction=whose.transaction if whose else f"{entry.sender} operation {entry.operation}",
                )  # fmt: skip
            case WentBack():
                topic, partition = self._layout[entry.place]
                text = f"a reader had read up to {entry.seen}, then the partition ended at {entry.end}"
                return Violation(
                    wrong=Wrong.UNSEEN, text=text, topic=topic, partition=partition, offset=entry.end,
                    client=line.sender, ledger=str(line),
                )  # fmt: skip
            case Surprise():
                text = f"{entry.doing}: {entry.error}"
                return Violation(wrong=Wrong.SURPRISE, text=text, client=line.sender, ledger=str(line))

    def _violate(
        self, wrong: Wrong, text: str, place: int, offset: int, operation: Operation | None = None
    ) -> None:
        topic, partition = self._layout[place]
        found = Violation(wrong=wrong, text=text, topic=topic, partition=partition, offset=offset)
        if operation is not None:
            proof = operation.acknowledged_at or str(operation.line)
            found = Violation(
                wrong=wrong, text=text, topic=topic, partition=partition, offset=offset,
                transaction=operation.transaction, client=operation.sender, ledger=proof,
            )  # fmt: skip
        self.violations.append(found)


def _number(header: bytes | None) -> int:
    """Return a number of a dead letter; -1 if there is none."""
    return int(header) if header is not None and header.isdigit() else -1


def _age(operation: Operation) -> tuple[str, int]:
    return operation.sender, operation.began.operation
