"""What the ledgers of a drill promise of a backup, and of what is restored from it.

A backup's cut lies between two moments that are known: its command began, and it ended. What was answered before the
first is in it; what was asked before the second may be; what was asked later is not. Clients of the lost time line have
ledgers of their own, of which nothing counts that they asked before the restored broker was there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from txbroker.drill.clients.ledger import (
    AnyEntry,
    Began,
    Decided,
    Delivered,
    HalfSeen,
    How,
    Line,
    Saw,
    Settles,
    Surprise,
    TakesBack,
    Took,
    WentBack,
)
from txbroker.drill.judgement.expectation import Expectation, Operation, Settling

Key = tuple[str, int]
"""An operation: the life of its client, and its number."""

ASKED: Final = (Began, Settles)
"""The lines with which operations begin."""

RESTORED: Final = "restored"
"""Who ends, in a ledger of the drill's own, what was prepared in the backup."""

COMPLAINTS: Final = (HalfSeen, WentBack, Surprise)
"""What the drill itself has judged."""


class Window(NamedTuple):
    """When the command that made a backup began, and had ended, on the monotonic clock: the cut is in between."""

    began: float
    ended: float


def key_of(line: Line) -> Key | None:
    """Return the operation that a line is about; None for what is about none."""
    operation = getattr(line.entry, "operation", None)
    if operation is None or isinstance(line.entry, HalfSeen):
        return None
    return getattr(line.entry, "sender", "") or line.sender, operation


def promised(lines: Iterable[Line], window: Window) -> Iterator[Line]:
    """Yield of a drill's ledgers what is promised of a backup, and what may be in it.

    That is what was asked before the command ended, what was answered before it began, and all decisions. Deliveries
    in between are left to :func:`settle`.
    """
    lines = list(lines)
    asked = {
        key_of(line) for line in lines if isinstance(line.entry, ASKED) and line.entry.at <= window.ended
    }
    for line in lines:
        entry = line.entry
        if isinstance(entry, COMPLAINTS):
            continue
        if isinstance(entry, Took):
            if entry.at <= window.ended:
                yield line
        elif isinstance(entry, Saw):
            if entry.at < window.began:
                yield line
        elif key_of(line) in asked and (
            entry.at < window.began
            or isinstance(entry, (*ASKED, Decided))
            or (isinstance(entry, TakesBack) and entry.at <= window.ended)
        ):
            yield line


# -- clients that met the restored broker ----------------------------------------------------------


class OldClients(NamedTuple):
    """What clients of the lost time line, and those that came after them, asked of the restored broker.

    ``lives`` are those that had worked with the lost one, ``told`` those of them that were told so, and
    ``surprises`` what was told to others.
    """

    lines: list[Line]
    lives: set[str]
    told: set[str]
    surprises: list[tuple[Line, Surprise]]


def asked_since(lines: Iterable[Line], since: float) -> OldClients:
    """Return what counts in the ledgers of clients that worked with the lost broker until shortly before ``since``.

    An operation that began before then was on a session of the lost time line, so nothing of it may be there. A life
    that took messages of a queue before may still settle them later: these are others' now, and nothing may come of it.
    """
    lines = list(lines)
    asked = {key_of(line) for line in lines if isinstance(line.entry, ASKED) and line.entry.at >= since}
    lives = {line.sender for line in lines if line.entry.at < since}
    found = OldClients([], lives, set(), [])
    taken: dict[str, set[tuple[str, int]]] = {}
    for line in lines:
        entry = line.entry
        if isinstance(entry, Surprise):
            if line.sender not in lives:
                found.surprises.append((line, entry))
            elif "BrokerReplaced" in entry.error and entry.at >= since:
                found.told.add(line.sender)
            continue
        if entry.at < since:
            continue
        if isinstance(entry, Took):
            places = ((entry.queue, each.offset) for each in entry.messages)
            taken.setdefault(line.sender, set()).update(places)
        if (key := key_of(line)) is not None:
            if _settled_by(entry) - taken.get(line.sender, set()):
                asked.discard(key)
            if key not in asked:
                continue
        found.lines.append(line)
    return found


def _settled_by(entry: AnyEntry) -> set[tuple[str, int]]:
    """Return the messages of queues that an operation is to settle."""
    match entry:
        case Began():
            return set(entry.acknowledges)
        case Settles():
            return {(entry.queue, offset) for offset in entry.offsets}
    return set()


# -- what a ledger cannot tell of the cut ----------------------------------------------------------


def settle(expectation: Expectation, window: Window, checksums: Sequence[array[int]]) -> None:
    """Leave out what was seen in the lost time line after the command began, and proves nothing of the cut.

    Everything that is there has been taken; ``checksums`` are those of the messages by place and offset.
    """
    _settle_calls(expectation, window, checksums)
    _settle_queues(expectation, window)


def _settle_calls(expectation: Expectation, window: Window, checksums: Sequence[array[int]]) -> None:
    """Leave out calls of handlers that came after the cut: other messages are in the places of theirs, or the restored
    group has given others the generation that they had.
    """
    calls = [(each.began.at, each.began.call) for each in expectation.operations.values() if each.began.call]
    given_anew = {(call.place, call.generation) for at, call in calls if at > window.ended}
    for key, operation in list(expectation.operations.items()):
        call = operation.began.call
        if call is None or operation.found or not window.began <= operation.began.at <= window.ended:
            continue
        there = checksums[call.place]
        is_other = call.offset >= len(there) or there[call.offset] != call.checksum
        if is_other or (call.place, call.generation) in given_anew:
            del expectation.operations[key]


def _settle_queues(expectation: Expectation, window: Window) -> None:
    """Leave out deliveries in between that do not show that a message was there at the cut.

    Such a delivery counts if the message must have been there: because its publication was promised, because it was
    delivered before, or because it, or another one of its transaction, is there. One of a transaction that was prepared
    at the cut does not: the restored broker delivers it for the first time. Of the others nobody knows whether they
    were published before the cut and acknowledged before it, too, or neither. A transaction of which that is so may
    have acknowledged what it was to acknowledge.
    """
    known = _Known(expectation, window)
    took = list[tuple[Line, Took]]()
    for line, entry in expectation.took:
        if window.began <= entry.at <= window.ended:
            entry = msgspec.structs.replace(
                entry, messages=[each for each in entry.messages if known.counts(each)]
            )
        took.append((line, entry))
    expectation.took[:] = took
    for key, operation in list(expectation.operations.items()):
        if operation.began.together and operation.began.published and not known.is_determined(operation):
            del expectation.operations[key]
            for number, (queue, offset) in enumerate(operation.began.acknowledges):
                name = f"{key[0]}/{number}", -key[1]
                perhaps = Settles(operation=name[1], queue=queue, offsets=[offset], how=How.ACKNOWLEDGE)
                expectation.settlings[name] = Settling(operation.line, perhaps)


class _Known:
    """The messages of queues of which it is known that they were there at the cut, or came later."""

    def __init__(self, expectation: Expectation, window: Window) -> None:
        self._operations = expectation.operations
        self._window = window
        self._seen = {each.message for each in expectation.queued if each.message is not None}
        self._between_of = set[Key]()
        """Transactions and others of which something was delivered in between."""
        for _, entry in expectation.took:
            messages = [each.message for each in entry.messages if each.message is not None]
            if window.began <= entry.at <= window.ended:
                self._between_of.update(message[:2] for message in messages)
            else:
                self._seen.update(messages)
        self._seen_of = {message[:2] for message in self._seen}

    def counts(self, delivered: Delivered) -> bool:
        """Return whether a delivery in between shows that the message was there."""
        if delivered.message is None:
            return True
        sender, number_of, number = delivered.message
        operation = self._operations.get((sender, number_of))
        if operation is None:
            return False
        if _was_prepared(operation):
            return False  # it came to its queue in the lost time line only, and once more in the restored one
        if operation.began.together:
            return self.is_determined(operation)
        return number in operation.acknowledged or delivered.message in self._seen

    def is_determined(self, operation: Operation) -> bool:
        """Return whether the promises, or what is there, say how a transaction that publishes stood at the cut."""
        key = operation.sender, operation.began.operation
        return bool(operation.ends) or key in self._seen_of or key not in self._between_of


def _was_prepared(operation: Operation) -> bool:
    """Return whether a transaction was prepared, and not decided, at the cut."""
    return any(line.sender == RESTORED for line, _ in operation.ends)
