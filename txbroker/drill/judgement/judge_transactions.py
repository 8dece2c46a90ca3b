"""Transactions are judged: all or nothing, as decided, in one piece; and what a relay moved, exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from txbroker.drill.judgement.expectation import Operation
from txbroker.drill.judgement.violation import Violation, Wrong

Layout = Sequence[tuple[str, int]]


def judge_transaction(operation: Operation, layout: Layout) -> Iterator[Violation]:
    """Yield what is wrong with one transaction."""
    found, total = len(operation.numbers_found), len(operation.began.places)
    if 0 < found < total:
        text = f"{found} of {total} messages of {operation.name} are there"
        yield _violation(operation, Wrong.HALF_VISIBLE, text, layout)
    yield from judge_fate(operation, found, layout)
    yield from _judge_pieces(operation, layout)


def judge_fate(operation: Operation, found: int, layout: Layout) -> Iterator[Violation]:
    """Check that the decision, the broker's answer and the messages that are there, so many, agree."""
    said = {ended.committed for _, ended in operation.ends}
    decided = {commit for _, commit in operation.decisions}
    proof = str(
        (operation.ends or operation.decisions or [(operation.prepared or operation.line, None)])[-1][0]
    )
    if len(said) > 1:
        text = f"the broker said of {operation.name} that it was committed, and that it was rolled back"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, proof)
    elif True in said and not found:
        text = f"{operation.name} was committed, and none of its messages is there"
        yield _violation(operation, Wrong.LOST, text, layout, proof)
    elif False in said and found:
        text = f"{operation.name} was rolled back, and {found} of its messages are there"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, proof)
    elif operation.prepared and not operation.began.xid:
        raise AssertionError(f"{operation.name} was prepared without an xid")
    elif operation.prepared and False in said and True in decided:
        text = f"{operation.name} was prepared and to be committed, and the broker says it was rolled back"
        yield _violation(operation, Wrong.PREPARE_LOST, text, layout, proof)
    elif operation.prepared and not said:
        yield from _judge_unended(operation, found, decided, layout, proof)


def _judge_unended(
    operation: Operation, found: int, decided: set[bool], layout: Layout, proof: str
) -> Iterator[Violation]:
    """Check a prepared transaction without a known end: it ended as decided, or the broker would still list it."""
    if not decided and not found:
        text = f"{operation.name} was prepared and never ended, and the broker does not list it"
        yield _violation(operation, Wrong.PREPARE_LOST, text, layout, proof)
    elif not decided:
        text = f"{operation.name} was prepared and never ended, and its messages are there"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, proof)
    elif True in decided and not found:
        text = f"{operation.name} was prepared and to be committed, and none of its messages is there"
        yield _violation(operation, Wrong.LOST, text, layout, proof)
    elif True not in decided and found:
        text = f"{operation.name} was prepared and to be rolled back, and {found} of its messages are there"
        yield _violation(operation, Wrong.CONTRADICTED, text, layout, proof)


def _judge_pieces(operation: Operation, layout: Layout) -> Iterator[Violation]:
    """Check that its messages in each partition are together, in the order of the adds, where the broker's
    answer says.
    """
    by_place: dict[int, list[tuple[int, int]]] = {}
    for number, place, offset in operation.found:
        by_place.setdefault(place, []).append((offset, number))
    bases = {place: base for _, ended in operation.ends for place, base, _ in ended.runs}
    for place, pieces in by_place.items():
        offsets = sorted(offset for offset, _ in pieces)
        numbers = [number for _, number in sorted(pieces)]
        first, last = offsets[0], offsets[-1]
        if last - first != len(offsets) - 1 or numbers != sorted(numbers):
            text = f"messages of {operation.name} are not together and in order: {numbers} at {offsets}"
            yield _violation(operation, Wrong.OUT_OF_ORDER, text, layout, "", place, first)
        elif place in bases and bases[place] != first:
            text = f"{operation.name} begins at {first}, the broker had said at {bases[place]}"
            yield _violation(operation, Wrong.MOVED, text, layout, "", place, first)


def judge_relay(
    operations: Iterable[Operation], layout: Layout, positions: Mapping[int, int | None]
) -> Iterator[Violation]:
    """Check that the moves of a group by committed transactions have no gap, and end at the group's position."""
    moves: dict[int, list[tuple[int, int, Operation]]] = {}
    for operation in operations:
        if operation.is_whole:
            for place, start, end in operation.began.moves:
                moves.setdefault(place, []).append((start, end, operation))
    for place, found in moves.items():
        reached = 0
        for start, end, operation in sorted(found, key=lambda move: move[:2]):
            if start != reached:
                how = "twice" if start < reached else "never"
                low, high = sorted((start, reached))
                text = f"messages {low} to {high - 1} were relayed {how}, before or in {operation.name}"
                yield _violation(operation, Wrong.OFFSETS, text, layout, "", place, low)
            reached = max(reached, end)
        if positions.get(place) != reached:
            text = f"the group stands at {positions.get(place)}, what was committed with it ends at {reached}"
            yield _violation(found[-1][2], Wrong.OFFSETS, text, layout, "", place, reached)


def _violation(
    operation: Operation,
    wrong: Wrong,
    text: str,
    layout: Layout,
    proof: str = "",
    place: int | None = None,
    offset: int | None = None,
) -> Violation:
    places = operation.began.places if place is None else [place]
    topic, partition = layout[places[0]] if places else ("", None)  # queues are no places
    return Violation(
        wrong=wrong, text=text, topic=topic, partition=partition, offset=offset, client=operation.sender,
        transaction=operation.transaction, ledger=proof or str(operation.line),
    )  # fmt: skip
