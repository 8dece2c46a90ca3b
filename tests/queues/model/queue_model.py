"""The model of what a broker with queues has: what its journal keeps, and what its sessions have.

``copy`` keeps what a start finds; it is taken after each record that the broker is thought to have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.queues.model.endings_model import (
    DROP_HEAD,
    EXPIRED,
    REJECT_PUBLISH,
    TOO_MANY,
    QueueRules,
    died,
    goes_round,
    goes_through,
    has_expired,
)
from tests.queues.model.routing_model import Exchange, Message, Topology

ROLLED_BACK = "what was rolled back"
"""Who has what a prepared transaction held that was rolled back, until an attempt is counted for it."""
NEVER, PERHAPS, SURELY = range(3)
"""Whether a message has been delivered before."""

Answer = tuple[Any, ...]
"""What a request must be answered: a kind of answer, and what it says."""
DONE: Answer = ("Done",)


def refused(*errors: str) -> Answer:
    """Return the answer that refuses a request with one of these errors."""
    return ("Refused", tuple(sorted(errors)))


class Copy:
    """A message in a queue. ``holder`` is the session that it is delivered to, ``held`` the xid of the prepared
    transaction that acknowledges it. ``shown``: it is forced. ``releasing``: the rollback of that transaction is not.
    ``appended`` is when it came, by the wall clock. One that is dead has one cause, or several if nobody can tell.
    """

    __slots__ = (
        "appended", "attempts", "causes", "dead", "due", "held", "holder", "message", "releasing", "seen", "shown",
    )  # fmt: skip

    def __init__(self, message: Message, appended: int = 0, shown: bool = False, seen: int = NEVER) -> None:
        self.message, self.appended, self.shown, self.seen = message, appended, shown, seen
        self.attempts = self.due = 0
        self.dead = self.releasing = False
        self.held = self.holder = ""
        self.causes: tuple[str, ...] = ()

    def kept(self) -> Copy:
        """Return what a start makes of it."""
        kept = Copy(self.message, self.appended, True, SURELY)
        kept.attempts, kept.due, kept.dead, kept.causes = self.attempts, self.due, self.dead, self.causes
        kept.held = "" if self.releasing else self.held
        return kept

    def is_ready(self, now: int) -> bool:
        """Whether it may be delivered."""
        return self.shown and not (self.holder or self.held or self.dead) and self.due <= now


class Queue:
    """A queue; ``copies`` are those that are not finished, by their offsets. ``used_at`` is when it was declared, or
    its messages taken or waited for, last.
    """

    def __init__(self, name: str, partition: int, rules: QueueRules) -> None:
        self.name, self.partition, self.rules = name, partition, rules
        self.end = self.used_at = 0
        self.copies: dict[int, Copy] = {}

    def kept(self) -> Queue:
        """Return what a start finds."""
        kept = Queue(self.name, self.partition, self.rules)
        kept.end = self.end
        kept.copies = {offset: copy.kept() for offset, copy in self.copies.items()}
        return kept

    def count_free(self) -> int:
        """Return how many messages could be got if none were due later."""
        return sum(each.shown and not (each.holder or each.held) for each in self.copies.values())

    def put(self, message: Message, wall: int) -> int:
        """Append a message; return its offset."""
        offset, self.end = self.end, self.end + 1
        self.copies[offset] = Copy(message, wall)
        return offset

    def has_expired(self, offset: int, wall: int) -> bool:
        """Whether a message has."""
        copy = self.copies[offset]
        return has_expired(copy.message, copy.appended, self.rules, wall)

    def has_too_much(self, now: int) -> bool:
        """Whether more can be got than the queue has when its oldest are dropped."""
        ready = [self.copies[each].message for each in self.ready(now)]
        return self.rules.overflow == DROP_HEAD and not self._may_have(ready)

    def has_room(self, more: Sequence[Message], now: int) -> bool:
        """Whether it takes these messages, too: what cannot be got, or not any more, is not counted."""
        if self.rules.overflow != REJECT_PUBLISH:
            return True
        ready = [self.copies[each].message for each in self.ready(now)]
        unseen = [each.message for each in self.copies.values() if not each.shown]
        return self._may_have([*ready, *unseen, *more])

    def _may_have(self, messages: Sequence[Message]) -> bool:
        most, most_bytes = self.rules.most, self.rules.most_bytes
        size = sum(len(each.value) for each in messages)
        return (most is None or len(messages) <= most) and (most_bytes is None or size <= most_bytes)

    def ready(self, now: int) -> list[int]:
        """Return the offsets of what may be delivered, in the order in which it is."""
        return [offset for offset, copy in sorted(self.copies.items()) if copy.is_ready(now)]


Sent = tuple[Message, tuple[int, ...]]
"""A message, and the partitions that it was sent to."""
Place = tuple[int, int]
"""A partition and an offset in it."""


@dataclass(eq=False)
class Begun:
    """An undecided transaction."""

    messages: list[Sent] = field(default_factory=list)
    acknowledged: list[Place] = field(default_factory=list)
    doomed: bool = False


@dataclass(eq=False)
class Ticket:
    """A request that waits, for messages or the force; ``answer`` is None until it is answered, after ``records``
    records.
    """

    session: str
    partition: int
    most: int
    deadline: int
    answer: Answer | None = None
    records: int = 0


class Given(NamedTuple):
    """A message as it is delivered. ``seen`` is whether it was delivered before."""

    offset: int
    value: bytes
    key: str
    attempts: int
    seen: int
    message: Message


Log = Callable[[int, int], Message | None]
"""Says which message is in the log of a partition at an offset, if one is; without headers."""


class Model:
    """All of it. ``on_record`` is called after each change that is one record of the journal. ``wall_offset`` is the
    wall clock at journal time 0.
    """

    def __init__(self) -> None:
        self.topology = Topology()
        self.taken: dict[int, int] = {}
        """How many messages each exchange has taken, by its number."""
        self.queues: dict[str, Queue] = {}
        self.next_partition = 1
        self.wall_offset = 0
        self.prepared: dict[str, Begun] = {}
        self.outcomes: dict[str, dict[int, tuple[int, int]] | None] = {}
        """How transactions with an xid ended: with these placements, None for rolled back."""
        self.producers: dict[int, dict[int, list[tuple[int, int, int]]]] = {}
        """What each producer has sent to each address: (sequence, messages, number of the first)."""
        # What follows is in memory alone.
        self.active: dict[tuple[str, int], Begun] = {}
        self.last_serials: dict[str, int] = {}
        self.waiting: dict[int, list[Ticket]] = {}
        self.ended: list[str] = []
        self.letters: list[Place] = []
        self.until_forced: list[tuple[str, Callable[[int], object]]] = []
        """What sessions have asked that is answered once all before it is forced."""
        self.is_forced: Callable[[], bool] = lambda: True
        """Whether all that was accepted is."""
        self.released: list[int] = []
        """The partitions of queues of which a transaction held messages whose rollback is not forced yet."""
        self.records = 0
        self.on_record: Callable[[], object] = lambda: None
        self.note: Callable[[str], object] = lambda what: None
        """Called with what has happened by itself, for histories that count."""
        self.return_some: Callable[[int], object] = lambda now: None
        """Returns what the first of those that have ended has of one queue."""

    def kept(self) -> Model:
        """Return what a start finds."""
        kept = Model()
        kept.topology, kept.taken = self.topology.copy(), dict(self.taken)
        kept.queues = {name: queue.kept() for name, queue in self.queues.items()}
        kept.next_partition = self.next_partition
        kept.prepared, kept.outcomes = dict(self.prepared), dict(self.outcomes)
        kept.producers = {
            number: {address: list(sent) for address, sent in addresses.items()}
            for number, addresses in self.producers.items()
        }
        return kept

    def record(self) -> None:
        """Note that a record has been made."""
        self.records += 1
        self.on_record()

    # -- what is where -----------------------------------------------------------------------------

    def queue_at(self, partition: int) -> Queue | None:
        """Return the queue with that partition."""
        return next((each for each in self.queues.values() if each.partition == partition), None)

    def copy_at(self, place: Place) -> Copy | None:
        """Return what is not finished there."""
        queue = self.queue_at(place[0])
        return None if queue is None else queue.copies.get(place[1])

    def finish(self, place: Place) -> None:
        """Finish a message."""
        queue = self.queue_at(place[0])
        if queue is not None:
            queue.copies.pop(place[1], None)

    def held_by(self, session: str) -> dict[int, list[int]]:
        """Return the offsets of what a session has, by partition."""
        found: dict[int, list[int]] = {}
        for queue in sorted(self.queues.values(), key=lambda each: each.partition):
            offsets = [offset for offset, copy in sorted(queue.copies.items()) if copy.holder == session]
            if offsets:
                found[queue.partition] = offsets
        return found

    def ways(self, exchange: Exchange, message: Message) -> tuple[int, ...]:
        """Return the partitions of the queues that a message goes to."""
        names = self.topology.route(exchange, message, self.queues)
        return tuple(sorted(self.queues[name].partition for name in names))

    def place(self, messages: Iterable[Sent], now: int) -> dict[int, tuple[int, int]]:
        """Append messages to their queues; return where: by partition the first offset, and how many."""
        found: dict[int, tuple[int, int]] = {}
        for message, partitions in messages:
            for partition in partitions:
                queue = self.queue_at(partition)
                assert queue is not None, "a queue that a transaction has messages for is not deleted"
                offset = queue.put(message, now + self.wall_offset)
                first, count = found.get(partition, (offset, 0))
                found[partition] = first, count + 1
        return found

    # -- deliveries --------------------------------------------------------------------------------

    def give(self, session: str, queue: Queue, most: int, now: int, share: int | None = None) -> list[Given]:
        """Deliver messages to a session: those of the first ``most``, or of its ``share``, that have not expired, or of
        all others if none is left. Those before these end. More may be taken then than are given.
        """
        given: list[Given] = []
        some = most if share is None else min(share, most)
        while not given and (ready := queue.ready(now)[:some]):
            for offset in ready:
                if len(given) == most:
                    break
                copy = queue.copies[offset]
                if queue.has_expired(offset, now + self.wall_offset):
                    self.end(queue, offset, EXPIRED, now)
                    continue
                message = copy.message
                given.append(Given(offset, message.value, message.key, copy.attempts, copy.seen, message))
                copy.holder, copy.seen = session, SURELY
            some = queue.end
            if not given:
                for offset in queue.ready(now):
                    queue.copies[offset].seen = max(queue.copies[offset].seen, PERHAPS)
        return given

    def serve(self, now: int, queues: Sequence[Queue] | None = None) -> None:
        """Deliver to those that wait, in the order in which they have come, to each its share."""
        for queue in self.queues.values() if queues is None else queues:
            line = self.waiting.get(queue.partition, [])
            while line:
                share = max(1, -(-queue.count_free() // len(line)))
                given = self.give(line[0].session, queue, line[0].most, now, share)
                if not given:
                    break
                ticket = line.pop(0)
                ticket.answer, ticket.records = ("Taken", given), self.records

    # -- what ends by itself ---------------------------------------------------------------------------

    def end(self, queue: Queue, offset: int, cause: str, now: int) -> None:
        """End a message: it is a dead letter, if the queue has somewhere to send it to."""
        copy = queue.copies[offset]
        self.note(f"messages {cause}")
        is_bounded = queue.rules.most is not None or queue.rules.most_bytes is not None
        may_be_both = is_bounded and queue.has_expired(offset, now + self.wall_offset)
        if queue.rules.dead_exchange is None:
            self.finish((queue.partition, offset))
        else:
            copy.dead, copy.causes = True, (EXPIRED, TOO_MANY) if may_be_both else (cause,)
            self.letters.append((queue.partition, offset))
        self.record()

    def has_to_end(self, now: int) -> list[tuple[Queue, int, str]]:
        """Return the first message of each queue whose first one has to end, and why."""
        found = []
        for queue in self.queues.values():
            first = next(iter(queue.ready(now)), None)
            if first is not None and queue.has_too_much(now):
                found.append((queue, first, TOO_MANY))
            elif first is not None and queue.has_expired(first, now + self.wall_offset):
                found.append((queue, first, EXPIRED))
        return found

    def end_expired(self, now: int) -> None:
        """End all that have expired and can be got, wherever they are."""
        for queue in self.queues.values():
            for offset in queue.ready(now):
                if queue.has_expired(offset, now + self.wall_offset):
                    self.end(queue, offset, EXPIRED, now)

    # -- what follows from the force -----------------------------------------------------------------

    def forced(self, now: int, log: Log | None = None) -> None:
        """All that was accepted is forced: it is shown, what was rolled back is returned, what has to end ends, dead
        letters are moved: in the order in which the logs have them, if there are any.
        """
        while True:
            for queue in self.queues.values():
                for copy in queue.copies.values():
                    copy.shown = True
            self.serve(now)
            released, self.released = self.released, []
            for partition in dict.fromkeys(released):
                self._release(partition, now)
            asked, self.until_forced = self.until_forced, []
            for _, answer in asked:
                answer(now)
            ending = self.has_to_end(now)
            for each in ending:
                self.end(*each, now)
            has_moved = False
            while self._move_next(now, log):
                has_moved = True
            if not (released or ending or has_moved or self.ended):
                return
            while self.ended and not (released or ending or has_moved):
                self.return_some(now)

    def _release(self, partition: int, now: int) -> None:
        queue = self.queue_at(partition)
        for copy in queue.copies.values() if queue is not None else ():
            if copy.releasing:
                copy.held, copy.releasing, copy.holder = "", False, ROLLED_BACK
        if self.held_by(ROLLED_BACK) and ROLLED_BACK not in self.ended:
            self.ended.append(ROLLED_BACK)
            if len(self.ended) == 1:
                self.return_some(now)

    def _move_next(self, now: int, log: Log | None) -> bool:
        """Move a dead letter; return whether there was one that could be.

        One waits while a queue has no room for it.
        """
        for place in self.letters:
            queue, copy = self.queue_at(place[0]), self.copy_at(place)
            if queue is None or copy is None:
                self.letters.remove(place)  # the queue was deleted
                return True
            for message, partitions in self.letters_of(queue, copy):
                to = [each for each in self.queues.values() if each.partition in partitions]
                is_next = log is None or all(_is(message, log(each.partition, each.end)) for each in to)
                if is_next and all(each.has_room([message], now) for each in to):
                    self._note_letter(queue, message, partitions)
                    self.letters.remove(place)
                    self.finish(place)
                    self.place([(message, partitions)], now)
                    self.record()
                    return True
        return False

    def _note_letter(self, queue: Queue, message: Message, partitions: Sequence[int]) -> None:
        exchange = self.topology.exchanges.get(queue.rules.dead_exchange or "")
        ways = () if exchange is None else self.ways(exchange, message)
        self.note("dead letters")
        if len(ways) > len(partitions):
            self.note("circles that end")
        if any(
            goes_through(message, each.name) for each in self.queues.values() if each.partition in partitions
        ):
            self.note("circles that go on")

    def letters_of(self, queue: Queue, copy: Copy) -> list[Sent]:
        """Return the message that a dead letter becomes, and where it goes, for each cause that it may have."""
        rules, name = queue.rules, queue.rules.dead_exchange
        exchange = None if name is None else self.topology.exchanges.get(name)
        found: list[Sent] = []
        for cause in copy.causes:
            message = died(copy.message, queue.name, cause)
            if rules.dead_key is not None:
                message = message._replace(key=rules.dead_key)
            ways = () if exchange is None else self.ways(exchange, message)
            names = {each.partition: each.name for each in self.queues.values()}
            found.append((message, tuple(each for each in ways if not goes_round(message, names[each]))))
        return found


def _is(message: Message, there: Message | None) -> bool:
    return message._replace(headers=()) == there
