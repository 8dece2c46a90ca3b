"""Queues are judged: each published message is in all of its queues or in none, and leaves each of them once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import Delivered, How, Line
from txbroker.drill.clients.messages import identity_of
from txbroker.drill.clients.queuer import is_as_published
from txbroker.drill.judgement.expectation import Expectation, Operation, Queued, Settling
from txbroker.drill.judgement.judge_transactions import judge_fate
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.plan import DEAD_LETTERS, DELIVERY_LIMIT, FOLLOW_UPS, WAYS, Plan
from txbroker.wire import dead_letters as names

Which = tuple[str, int, int]
"""Which message of which operation: life, operation, number."""


def queued(plan: Plan, queue: str, message: Message) -> Queued:
    """Return a message that is in a queue at the end, as the judge takes it."""
    identity = identity_of(message.value)
    key = plan.queue(DEAD_LETTERS) if queue == DEAD_LETTERS else None
    intact = (
        identity is not None and identity.drill == plan.name and is_as_published(plan, message, identity, key)
    )
    which = None if identity is None else (identity.sender, identity.operation, identity.number)
    origin = (message.header(names.DEAD_TOPIC) or b"").decode("utf-8", "replace")
    offset, attempts = (
        int(message.header(name) or b"-1") for name in (names.DEAD_OFFSET, names.DEAD_ATTEMPTS)
    )
    return Queued(queue, message.offset, which, intact, origin.removeprefix(plan.queue("")), offset, attempts)


@dataclass(slots=True)
class Copy:
    """A message in one of its queues, and all that is known of it there."""

    operation: Operation
    number: int
    queue: str
    deliveries: list[tuple[Line, Delivered]] = field(default_factory=list)
    there: list[Queued] = field(default_factory=list)
    letters: list[Queued] = field(default_factory=list)
    settlings: list[Settling] = field(default_factory=list)
    transactions: list[Operation] = field(default_factory=list)
    """Those that were to acknowledge it."""

    @property
    def name(self) -> str:
        """Return a name for reports."""
        return f"message {self.number} of {self.operation.name} in queue {self.queue}"

    @property
    def was_there(self) -> bool:
        """Return whether the message has ever been in the queue. What nobody took is there, or a dead letter."""
        return bool(self.deliveries or self.there or self.letters)

    @property
    def remains(self) -> bool:
        """Return whether the message is there, or a dead letter."""
        return bool(self.there or self.letters)

    @property
    def offsets(self) -> list[int]:
        """Return the places in the queue at which it was seen; a delivery over AMQP does not tell them."""
        found = {each.offset for _, each in self.deliveries if each.offset >= 0}
        found |= {each.offset for each in self.there}
        return sorted(found | {each.origin_offset for each in self.letters})

    @property
    def offset(self) -> int | None:
        """Return the first of these places, if one is known."""
        return next(iter(self.offsets), None)

    @property
    def acknowledged(self) -> list[Settling]:
        """Return the acknowledgements outside of transactions that were answered."""
        return [each for each in self.settlings if each.is_done and each.entry.how is How.ACKNOWLEDGE]

    @property
    def is_perhaps_acknowledged(self) -> bool:
        """Return whether it was to be acknowledged, outside of transactions, and nobody knows what came of that."""
        return any(each.answer is None and each.entry.how is How.ACKNOWLEDGE for each in self.settlings)


def judge_queues(expectation: Expectation) -> Iterator[Violation]:
    """Yield what is wrong with the queues, from which nothing is taken any more."""
    judge = QueueJudge(expectation)
    yield from judge.take()
    yield from judge.judge_publishing()
    yield from judge.judge_copies()


class QueueJudge:
    """The judge of the queues, who has all messages by queue. Call :meth:`take` first."""

    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation
        self._operations = [each for each in expectation.operations.values() if each.began.published]
        self._copies = {
            (queue, operation.sender, operation.began.operation, number): Copy(operation, number, queue)
            for operation in self._operations
            for number, way in enumerate(operation.began.published)
            for queue in WAYS[way]
        }
        self._places: dict[tuple[str, int], Copy] = {}
        self._copies_of: dict[tuple[str, int], list[Copy]] = defaultdict(list)
        for copy in self._copies.values():
            self._copies_of[_key(copy.operation)].append(copy)

    def copies_of(self, operation: Operation) -> list[Copy]:
        """Return the messages of an operation, each in each of its queues."""
        return self._copies_of[_key(operation)]

    def is_committed(self, operation: Operation) -> bool:
        """Return whether a transaction was committed, as was said, or else as its messages show."""
        said = {ended.committed for _, ended in operation.ends}
        return True in said if said else any(copy.was_there for copy in self.copies_of(operation))

    # -- what there is and was -----------------------------------------------------------------------

    def take(self) -> Iterator[Violation]:
        """Take what the ledgers and the queues have; yield what belongs to no message, and what is changed."""
        for line, took in self._expectation.took:
            for each in took.messages:
                copy = yield from self._seen(took.queue, each, str(line))
                if copy is not None:
                    copy.deliveries.append((line, each))
        for held in self._expectation.queued:
            is_letter = held.queue == DEAD_LETTERS
            copy = yield from self._seen(held.origin if is_letter else held.queue, held, "")
            if copy is not None:
                (copy.letters if is_letter else copy.there).append(held)
        for settling in self._expectation.settlings.values():
            queue = settling.entry.queue
            of_places = [self._places.get((queue, offset)) for offset in settling.entry.offsets]
            for copy in (*of_places, *[self._copies.get((queue, *each)) for each in settling.entry.messages]):
                if copy is not None:
                    copy.settlings.append(settling)
        for operation in self._operations:
            for place in operation.began.acknowledges:
                if copy := self._places.get(place):
                    copy.transactions.append(operation)

    def _seen(
        self, queue: str, seen: Delivered | Queued, proof: str
    ) -> Generator[Violation, None, Copy | None]:
        """Return the message that was seen, if it was published to that queue."""
        copy = None if seen.message is None else self._copies.get((queue, *seen.message))
        if copy is None:
            kind = Wrong.MOVED if self._is_published(seen.message) else Wrong.NEVER_SENT
            text = f"{seen.message or 'what cannot be read'} was never published to queue {queue!r}"
            yield Violation(wrong=kind, text=text, topic=queue, offset=seen.offset, ledger=proof)
            return None
        if not seen.intact:
            text = f"{copy.name} is not byte for byte what was published"
            yield _violation(copy, Wrong.CHANGED, text, seen.offset, proof)
        if seen.offset >= 0 and not (isinstance(seen, Queued) and seen.queue == DEAD_LETTERS):
            owner = self._places.setdefault((queue, seen.offset), copy)
            if owner is not copy:
                text = f"{copy.name} is where {owner.name} was"
                yield _violation(copy, Wrong.CHANGED, text, seen.offset, proof)
        return copy

    def _is_published(self, which: Which | None) -> bool:
        operation = None if which is None else self._expectation.operations.get(which[:2])
        return operation is not None and which is not None and which[2] < len(operation.began.published)

    # -- what was published --------------------------------------------------------------------------

    def judge_publishing(self) -> Iterator[Violation]:
        """Check that each message got into all of its queues or into none, as the answers say."""
        for operation in self._operations:
            if operation.began.together:
                yield from self._judge_transaction(operation)
                continue
            for number in range(len(operation.began.published)):
                copies = [copy for copy in self.copies_of(operation) if copy.number == number]
                yield from _judge_message(operation, number, copies)

    def _judge_transaction(self, operation: Operation) -> Iterator[Violation]:
        copies = self.copies_of(operation)
        found = sum(copy.was_there for copy in copies)
        yield from judge_fate(operation, found, ())
        if 0 < found < len(copies):
            absent = next(copy for copy in copies if not copy.was_there)
            text = f"{found} of {len(copies)} messages of {operation.name} got into a queue, and never {absent.name}"
            yield _violation(absent, Wrong.HALF_VISIBLE, text)
        for place in operation.began.acknowledges:
            copy = self._places.get(place)
            if copy is None:
                continue  # what it had taken is nobody's
            effect = self._took_effect(copy, operation)
            if found and effect is False:
                text = f"{operation.name} has published, and {copy.name}, which it acknowledged, is there"
                yield _violation(copy, Wrong.HALF_DONE, text, place[1], str(operation.line))
            elif not found and effect:
                text = (
                    f"{copy.name} is gone, and {operation.name}, which acknowledged it, has published nothing"
                )
                yield _violation(copy, Wrong.HALF_DONE, text, place[1], str(operation.line))

    def _took_effect(self, copy: Copy, operation: Operation) -> bool | None:
        """Return whether a transaction has acknowledged a message, as the queue shows; None if that cannot be told."""
        if copy.remains:
            return False
        others = any(self.is_committed(each) for each in copy.transactions if each is not operation)
        return None if others or copy.acknowledged or copy.is_perhaps_acknowledged else True

    # -- each message in each queue ------------------------------------------------------------------

    def judge_copies(self) -> Iterator[Violation]:
        """Check that each message that has been in a queue is there once, is one dead letter, or was acknowledged."""
        for copy in self._copies.values():
            if copy.was_there:
                yield from _judge_places(copy)
                yield from self._judge_acknowledgements(copy)
                yield from _judge_attempts(copy)
                yield from _judge_repetitions(copy)
                if not (
                    copy.remains or copy.transactions or copy.acknowledged or copy.is_perhaps_acknowledged
                ):
                    text = f"{copy.name} is gone, and nobody has acknowledged it"
                    yield _violation(copy, Wrong.LOST, text, copy.offset, str(copy.deliveries[0][0]))

    def _judge_acknowledgements(self, copy: Copy) -> Iterator[Violation]:
        answered = [each.answer[0] for each in copy.acknowledged if each.answer]
        committed = [each for each in copy.transactions if self.is_committed(each)]
        if answered and copy.remains:
            text = f"{copy.name} was acknowledged, and is {'there' if copy.there else 'a dead letter'}"
            yield _violation(copy, Wrong.ACKNOWLEDGED_AND_BACK, text, copy.offset, str(answered[0]))
        if len(committed) > 1:
            text = f"{copy.name} was acknowledged in {committed[0].name} and in {committed[1].name}"
            yield _violation(copy, Wrong.ACKNOWLEDGED_AND_BACK, text, copy.offset, str(committed[1].line))
        answered += [line for each in committed for line, _ in each.ends if line.sender == each.sender]
        for line, delivered in copy.deliveries:
            # Another client may have had it from a session that has ended.
            if any(each.sender == line.sender and each.number < line.number for each in answered):
                text = f"{copy.name} was delivered to the client that had acknowledged it"
                yield _violation(copy, Wrong.ACKNOWLEDGED_AND_BACK, text, delivered.offset, str(line))
        for operation in committed:
            # Outside of transactions an acknowledgement of what another has acknowledged may be answered as its own.
            if any(
                each.entry.at < operation.line.entry.at
                for each in answered
                if each.sender != operation.sender
            ):
                text = f"{copy.name} was acknowledged in {operation.name}, which began after it had been acknowledged"
                yield _violation(copy, Wrong.ACKNOWLEDGED_AND_BACK, text, copy.offset, str(operation.line))


def _judge_message(operation: Operation, number: int, copies: list[Copy]) -> Iterator[Violation]:
    """Judge a message that was published outside of transactions."""
    there, absent = ([each for each in copies if each.was_there is wanted] for wanted in (True, False))
    if number in operation.acknowledged:
        for copy in absent:
            text = f"{copy.name} was published, as the broker said, and never was there"
            yield _violation(copy, Wrong.LOST, text, None, operation.acknowledged_at)
    elif number in operation.refused and there:
        text = f"{there[0].name} was refused, and was there"
        yield _violation(there[0], Wrong.CONTRADICTED, text, there[0].offset)
    elif there and absent:
        text = f"{there[0].name} was there, and never in queue {absent[0].queue}"
        yield _violation(absent[0], Wrong.HALF_VISIBLE, text)


def _judge_places(copy: Copy) -> Iterator[Violation]:
    """Check that a message is in its queue, or is a dead letter of it, once."""
    if len(copy.offsets) > 1:
        text = f"{copy.name} is there twice, at {' and at '.join(map(str, copy.offsets))}"
        yield _violation(copy, Wrong.DUPLICATED, text, copy.offsets[1])
    elif len(copy.letters) > 1:
        text = f"{copy.name} has {len(copy.letters)} dead letters"
        yield _violation(copy, Wrong.DUPLICATED, text, copy.letters[1].offset)
    elif copy.there and copy.letters:
        text = f"{copy.name} is there, and is a dead letter, too"
        yield _violation(copy, Wrong.DUPLICATED, text, copy.offset)


def _judge_attempts(copy: Copy) -> Iterator[Violation]:
    """Check that a message was delivered no more often than its queue allows, and is no dead letter before."""
    given_up = [each for each in copy.settlings if each.entry.how is How.GIVE_UP]
    for letter in copy.letters:
        if letter.attempts <= DELIVERY_LIMIT and all(each.answer and not each.is_done for each in given_up):
            text = f"{copy.name} was given up after {letter.attempts} attempts, {DELIVERY_LIMIT} are allowed"
            yield _violation(copy, Wrong.CONTRADICTED, text, letter.offset)
    for settling in given_up:
        if settling.is_done and copy.there:
            text = f"{copy.name} was given up, and is there"
            yield _violation(copy, Wrong.CONTRADICTED, text, copy.offset, str(settling.line))
    for line, delivered in copy.deliveries:
        if delivered.attempts > DELIVERY_LIMIT and copy.queue != FOLLOW_UPS:
            text = (
                f"{copy.name} was delivered after {delivered.attempts} attempts, {DELIVERY_LIMIT} are allowed"
            )
            yield _violation(copy, Wrong.CONTRADICTED, text, delivered.offset, str(line))


def _judge_repetitions(copy: Copy) -> Iterator[Violation]:
    """Check that of all deliveries of a message one at most is said to be the first."""
    first = [(line, each) for line, each in copy.deliveries if each.again is False]
    if len(first) > 1:
        line, delivered = first[1]
        text = f"{copy.name} was delivered {len(first)} times without the broker saying that it was delivered before"
        yield _violation(copy, Wrong.CONTRADICTED, text, delivered.offset, str(line))


def _key(operation: Operation) -> tuple[str, int]:
    return operation.sender, operation.began.operation


def _violation(copy: Copy, wrong: Wrong, text: str, offset: int | None = None, proof: str = "") -> Violation:
    operation = copy.operation
    return Violation(
        wrong=wrong, text=text, topic=copy.queue, offset=offset, transaction=operation.transaction,
        client=operation.sender, ledger=proof or operation.acknowledged_at or str(operation.line),
    )  # fmt: skip
