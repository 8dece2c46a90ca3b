"""Messages for later are judged: none early, each once unless it was taken back, and then never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from txbroker.drill.judgement.expectation import Expectation, Operation
from txbroker.drill.judgement.violation import Violation, Wrong

Layout = Sequence[tuple[str, int]]

SLACK: Final = 50_000
"""By how many µs the clocks of a client and the broker may differ: both read the machine's, and count on by another."""


class Placed(Protocol):
    """A message in its partition."""

    @property
    def offset(self) -> int:
        """Return its place."""

    @property
    def appended(self) -> int:
        """Return when it was placed, in µs since 1970 UTC."""


def judge_moment(
    operation: Operation, number: int, place: int, message: Placed, layout: Layout
) -> Iterator[Violation]:
    """Yield a violation if a message was placed before it was due."""
    early = operation.began.due[number] - message.appended
    if early > SLACK:
        text = f"message {number} of {operation.name} was placed {early / 1e3:,.0f} ms before it was due"
        yield _violation(operation, Wrong.EARLY, text, layout, place, message.offset)


def judge_schedule(expectation: Expectation, layout: Layout) -> Iterator[Violation]:
    """Yield what is wrong with the messages for later, once all of them are due."""
    taken, perhaps = taken_back(expectation)
    for operation in _scheduling(expectation):
        key = operation.sender, operation.began.operation
        yield from _judge_operation(
            operation,
            {number for *whose, number in taken if tuple(whose) == key},
            {number for *whose, number in perhaps if tuple(whose) == key},
            layout,
        )


Messages = set[tuple[str, int, int]]
"""(life, operation, number) of messages."""


def _scheduling(expectation: Expectation) -> list[Operation]:
    return [each for each in expectation.operations.values() if each.began.due]


def taken_back(expectation: Expectation) -> tuple[Messages, Messages]:
    """Return the messages that were certainly taken back, and those of which nobody knows."""
    taken, perhaps = Messages(), Messages()
    for operation in _scheduling(expectation):
        sender, number_of = operation.sender, operation.began.operation
        for number in operation.asked_back:
            answer = operation.took_back.get(number)
            if answer is None:
                perhaps.add((sender, number_of, number))
            elif not answer[1].sent:
                taken.add((sender, number_of, number))
        committed = is_committed(operation)
        if committed is not False:
            into = perhaps if committed is None else taken
            into.update((sender, *each) for each in operation.began.takes_back)
    return taken, perhaps - taken


def is_committed(operation: Operation) -> bool | None:
    """Return whether a transaction of messages for later was committed, as was said or as they show; None: unknown."""
    said = {ended.committed for _, ended in operation.ends}
    if said:
        return True in said
    return True if operation.found else None


def _judge_operation(
    operation: Operation, taken: set[int], perhaps: set[int], layout: Layout
) -> Iterator[Violation]:
    where = {number: (place, offset) for number, place, offset in operation.found}
    everything = set(range(len(operation.began.places)))
    if operation.began.together:
        committed = is_committed(operation)
        kept = everything if committed else set[int]()
        dropped = everything if committed is False else set[int]()
        yield from _judge_answers(operation, layout)
    else:
        kept, dropped = operation.scheduled, operation.refused
    for number in sorted(kept - taken - perhaps - where.keys()):
        text = f"message {number} of {operation.name} was kept for later, is due, and is not there"
        yield _violation(operation, Wrong.LOST, text, layout, operation.began.places[number])
    for number in sorted(taken & where.keys()):
        text = f"message {number} of {operation.name} was taken back, and is there"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, *where[number])
    for number in sorted(dropped & where.keys()):
        text = f"message {number} of {operation.name} was refused or rolled back, and is there"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, *where[number])
    for number, (line, told) in operation.took_back.items():
        place, offset = where.get(number, (operation.began.places[number], -1))
        if told.sent and number not in where:
            text = f"message {number} of {operation.name} had been sent, as the broker said, and is not there"
            yield _violation(operation, Wrong.LOST, text, layout, place, proof=str(line))
        elif told.sent and told.offset not in (-1, offset):
            text = f"message {number} of {operation.name} was said to be at {told.offset}, and is at {offset}"
            yield _violation(operation, Wrong.MOVED, text, layout, place, offset, str(line))


def _judge_answers(operation: Operation, layout: Layout) -> Iterator[Violation]:
    """Yield a violation if what was said of a transaction does not agree."""
    said = {ended.committed for _, ended in operation.ends}
    decided = {commit for _, commit in operation.decisions}
    if len(said) > 1:
        text = f"the broker said of {operation.name} that it was committed, and that it was rolled back"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, operation.began.places[0])
    elif operation.prepared and said == {False} and True in decided:
        text = f"{operation.name} was prepared and to be committed, and the broker says it was rolled back"
        yield _violation(operation, Wrong.PREPARE_LOST, text, layout, operation.began.places[0])


def _violation(
    operation: Operation,
    wrong: Wrong,
    text: str,
    layout: Layout,
    place: int,
    offset: int | None = None,
    proof: str = "",
) -> Violation:
    topic, partition = layout[place]
    return Violation(
        wrong=wrong, text=text, topic=topic, partition=partition, offset=offset, client=operation.sender,
        transaction=operation.transaction, ledger=proof or operation.acknowledged_at or str(operation.line),
    )  # fmt: skip
