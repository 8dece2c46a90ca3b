"""The work of a group is judged: each message has one effect, or one dead letter, in order, and under one claim."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from txbroker.drill.clients.ledger import Call
from txbroker.drill.judgement.expectation import Expectation, Letter, Operation
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.plan import POLICY

Layout = Sequence[tuple[str, int]]


@dataclass(slots=True)
class Task:
    """A message that the workers are to handle, and all that is known of its handling."""

    operation: Operation
    number: int
    place: int
    offset: int
    calls: list[Operation] = field(default_factory=list)
    """The calls of the handler, oldest first."""
    letters: list[Letter] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        """Return the key of the message."""
        return self.operation.began.key(self.number, self.operation.sender)

    @property
    def is_poison(self) -> bool:
        """Return whether its handler always fails."""
        return self.operation.is_poison(self.number)

    @property
    def handled(self) -> list[Operation]:
        """Return the calls whose effect is there."""
        return [call for call in self.calls if call.found]

    @property
    def attempts_seen(self) -> int:
        """Return how many attempts the broker may have counted of these calls: one for each that failed, and one for
        each claim under which the handler was called otherwise, which may have been lost meanwhile.
        """
        calls = list(map(call_of, self.calls))
        lost = {call.generation for call in calls if not call.fails}
        return sum(call.fails for call in calls) + len(lost)


def call_of(operation: Operation) -> Call:
    """Return the call that an operation of a worker is for."""
    call = operation.began.call
    assert call is not None, "only operations of workers are looked at"
    return call


def judge_work(
    expectation: Expectation,
    places: Sequence[int],
    checksums: Sequence[array[int]],
    layout: Layout,
    positions: Mapping[int, int | None],
) -> Iterator[Violation]:
    """Yield what is wrong with the work on the messages of these places; ``positions`` are the group's by place.

    ``checksums`` are those of the values that are there, by place and offset.
    """
    judge = WorkJudge(expectation, places, checksums, layout)
    yield from judge.judge_tasks()
    yield from judge.judge_order()
    yield from judge.judge_claims()
    for place in places:
        end = len(checksums[place])
        if (positions.get(place) or 0) != end:
            text = f"the workers' group stands at {positions.get(place)}, and the partition ends at {end}"
            topic, partition = layout[place]
            yield Violation(wrong=Wrong.OFFSETS, text=text, topic=topic, partition=partition, offset=end)


class WorkJudge:
    """The judge of the workers, who has what is there by message and by call."""

    def __init__(
        self, expectation: Expectation, places: Sequence[int], checksums: Sequence[array[int]], layout: Layout
    ) -> None:
        self._checksums = checksums
        self._layout = layout
        operations = expectation.operations.values()
        self._tasks = _tasks(operations, places)
        self._calls = sorted((each for each in operations if each.began.call), key=_age)
        for call in self._calls:
            task = self._tasks.get((call_of(call).place, call_of(call).offset))
            if task is not None:
                task.calls.append(call)
        self._lanes: dict[tuple[int, bytes], list[Task]] = {}
        for task in self._tasks.values():
            self._lanes.setdefault((task.place, task.key), []).append(task)
        self._deaths = deaths_of(self._calls)
        self._strays: list[Letter] = []
        for letter in expectation.letters:
            whose = self._task_of(letter)
            whose.letters.append(letter) if whose else self._strays.append(letter)

    def _task_of(self, letter: Letter) -> Task | None:
        """Return the message that was where a dead letter says, if it is the one that the letter is."""
        where = letter.topic, letter.partition
        task = self._tasks.get((self._layout.index(where), letter.task)) if where in self._layout else None
        is_it = task is not None and (task.operation, task.number) == (letter.operation, letter.number)
        return task if is_it else None

    # -- each message ------------------------------------------------------------------------------

    def judge_tasks(self) -> Iterator[Violation]:
        """Check that each message was handled or given up, once, and as it was to be; and what is of no message."""
        for task in self._tasks.values():
            yield from self._judge_ends(task)
            yield from self._judge_failures(task)
            for letter in task.letters:
                most = self._most_attempts(task)
                if not POLICY.attempts <= letter.attempts <= most:
                    text = (
                        f"{_name(task)} was given up after {letter.attempts} attempts; the policy has "
                        f"{POLICY.attempts}, and the ledgers know of {most} at most"
                    )
                    yield self._violation(task, Wrong.CONTRADICTED, text)
        for call in self._calls:
            yield from self._judge_call(call)
        for letter in self._strays:
            text = (
                f"a dead letter says that message {letter.number} of {letter.operation.name} was in "
                f"{letter.topic}-{letter.partition} at {letter.task}, and it was not"
            )
            yield self._at(letter.place, letter.offset, Wrong.MOVED, text, letter.operation)

    def _judge_ends(self, task: Task) -> Iterator[Violation]:
        ends = [
            f"as {call.name} ({call.line}) at {offset}"
            for call in task.handled
            for _, _, offset in call.found[:1]
        ]
        ends += [f"by the dead letter at {letter.offset}" for letter in task.letters]
        if not ends:
            text = (
                f"{_name(task)} has no effect, and is no dead letter; {len(task.calls)} calls of the handler"
            )
            yield self._violation(task, Wrong.NEVER_HANDLED, text)
        elif len(ends) > 1:
            text = f"{_name(task)} was handled {', and '.join(ends)}"
            yield self._violation(task, Wrong.HANDLED_TWICE, text)

    def _most_attempts(self, task: Task) -> int:
        """Return how many attempts the broker may have counted. A worker tells the broker of a message just before it
        calls the handler: if it was killed in between, the ledger has no line. That may have been whenever a worker
        died before a later message of the key had its effect.
        """
        later = [
            call.line.entry.at
            for other in self._lanes[task.place, task.key]
            if other.offset > task.offset
            for call in other.handled
        ]
        sent, ended = task.operation.line.entry.at, min(later, default=math.inf)
        return task.attempts_seen + sum(first < ended and last > sent for first, last in self._deaths)

    def _judge_failures(self, task: Task) -> Iterator[Violation]:
        for call in task.handled:
            if task.is_poison or call_of(call).fails:
                text = f"the handler failed with {_name(task)} in {call.name}, and its effect is there"
                yield self._violation(task, Wrong.CONTRADICTED, text, call)

    def _judge_call(self, operation: Operation) -> Iterator[Violation]:
        """Check that a worker was handed a message that is there."""
        call, (key,) = call_of(operation), operation.began.keys
        task = self._tasks.get((call.place, call.offset))
        if task is None and operation.found:
            text = f"{operation.name} is the effect of a message that is not there"
            yield self._at(call.place, call.offset, Wrong.NEVER_SENT, text, operation)
        elif task is None:
            text = f"the message for which {operation.name} was called is not there"
            yield self._at(call.place, call.offset, Wrong.UNSEEN, text, operation)
        elif (self._checksums[call.place][call.offset], task.key) != (call.checksum, key.encode()):
            text = f"{_name(task)} is not what {operation.name} was handed"
            yield self._at(call.place, call.offset, Wrong.CHANGED, text, operation)

    # -- their order -------------------------------------------------------------------------------

    def judge_order(self) -> Iterator[Violation]:
        """Check that messages of one key took effect in their order, and that none was handled, with success, while an
        earlier one of its key was still to come again.
        """
        for tasks in self._lanes.values():
            yield from self._judge_effects(tasks)
            yield from self._judge_waits(tasks)

    def _judge_effects(self, tasks: list[Task]) -> Iterator[Violation]:
        effects = sorted(
            ((offset, task, call) for task in tasks for call in task.handled for _, _, offset in call.found),
            key=lambda effect: effect[0],
        )
        for (_, before, _), (offset, task, call) in pairwise(effects):
            if task.offset < before.offset:
                text = f"the effect of {_name(task)}, at {offset}, is behind that of offset {before.offset} of its key"
                yield self._violation(task, Wrong.OUT_OF_ORDER, text, call)

    def _judge_waits(self, tasks: list[Task]) -> Iterator[Violation]:
        """Look at the calls in the order of time: after one that had its effect, the group hands out no earlier message
        of the key any more. A worker that has lost the partition may still call its handler, with an older claim.
        """
        calls = sorted(
            ((call, task) for task in tasks for call in task.calls), key=lambda each: _age(each[0])
        )
        furthest: tuple[Operation, Task] | None = None
        for call, task in calls:
            if furthest is not None and task.offset < furthest[1].offset:
                if call_of(call).generation >= call_of(furthest[0]).generation:
                    text = (
                        f"{_name(task)} was still to be handled, in {call.name}, when offset {furthest[1].offset} of "
                        f"its key had been, in {furthest[0].name} ({furthest[0].line})"
                    )
                    yield self._violation(task, Wrong.OUT_OF_ORDER, text, call)
            elif call.found:
                furthest = call, task

    # -- claims ------------------------------------------------------------------------------------

    def judge_claims(self) -> Iterator[Violation]:
        """Check that one worker alone used each claim, and that nothing was finished with a claim after a later one had
        been used. The effects of a partition are in one partition, in the order in which they were committed.
        """
        owners: dict[tuple[int, int], Operation] = {}
        for operation in self._calls:
            call = call_of(operation)
            owner = owners.setdefault((call.place, call.generation), operation)
            if owner.sender != operation.sender:
                text = f"{owner.name} ({owner.line}) and {operation.name} have the same generation {call.generation}"
                yield self._at(call.place, call.offset, Wrong.CLAIM, text, operation)
        latest: dict[int, tuple[int, Operation]] = {}
        effects = [(place, offset, each) for each in self._calls for _, place, offset in each.found]
        for place, offset, operation in sorted(effects, key=lambda effect: effect[:2]):
            generation = call_of(operation).generation
            before, whose = latest.get(place, (generation, operation))
            if generation < before:
                text = (
                    f"{operation.name} took effect at {offset} with generation {generation}, after {whose.name} "
                    f"({whose.line}) with {before}"
                )
                yield self._at(
                    call_of(operation).place, call_of(operation).offset, Wrong.CLAIM, text, operation
                )
            else:
                latest[place] = generation, operation

    # -- what is wrong -----------------------------------------------------------------------------

    def _violation(self, task: Task, wrong: Wrong, text: str, call: Operation | None = None) -> Violation:
        return self._at(task.place, task.offset, wrong, text, call or task.operation)

    def _at(self, place: int, offset: int, wrong: Wrong, text: str, operation: Operation) -> Violation:
        topic, partition = self._layout[place]
        return Violation(
            wrong=wrong, text=text, topic=topic, partition=partition, offset=offset, client=operation.sender,
            ledger=operation.acknowledged_at or str(operation.line),
        )  # fmt: skip


def _tasks(operations: Iterable[Operation], places: Sequence[int]) -> dict[tuple[int, int], Task]:
    """Return the messages in these places by place and offset."""
    wanted = set(places)
    return {
        (place, offset): Task(operation, number, place, offset)
        for operation in operations
        for number, place, offset in operation.found
        if place in wanted
    }


def deaths_of(calls: Iterable[Operation]) -> list[tuple[float, float]]:
    """Return when workers may have died: between the last line of one life, and the first of a later one of its client.

    Lives without a line are counted, too; the last life of a client may have been followed by one.
    """
    lives: dict[str, dict[int, list[float]]] = {}
    for call in calls:
        client, _, life = call.sender.rpartition(".")
        lives.setdefault(client, {}).setdefault(int(life), []).append(call.line.entry.at)
    found: list[tuple[float, float]] = []
    for times in lives.values():
        known, end = 1, -math.inf
        for number in sorted(times):
            found += [(end, min(times[number]))] * (number - known)
            known, end = number, max(times[number])
        found.append((end, math.inf))
    return found


def _age(operation: Operation) -> tuple[float, int]:
    return operation.line.entry.at, operation.line.number


def _name(task: Task) -> str:
    return f"message {task.number} of {task.operation.name}"
