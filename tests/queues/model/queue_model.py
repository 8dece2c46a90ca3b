"""The model of what a broker with queues has: what its journal keeps, and what its sessions have.

``copy`` keeps what a start finds; it is taken after each record that the broker is thought to have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    """

    __slots__ = (
        "attempts",
        "cause",
        "dead",
        "due",
        "held",
        "holder",
        "message",
        "releasing",
        "seen",
        "shown",
    )

    def __init__(self, message: Message, shown: bool = False, seen: int = NEVER) -> None:
        self.message, self.shown, self.seen = message, shown, seen
        self.attempts = self.due = 0
        self.dead = self.releasing = False
        self.cause = ""
        self.held = self.holder = ""

    def kept(self) -> Copy:
        """Return what a start makes of it."""
        kept = Copy(self.message, True, SURELY)
        kept.attempts, kept.due, kept.dead = self.attempts, self.due, self.dead
        kept.cause = self.cause
        kept.held = "" if self.releasing else self.held
        return kept

    def is_ready(self, now: int) -> bool:
        """Whether it may be delivered."""
        return self.shown and not (self.holder or self.held or self.dead) and self.due <= now


class QueueRules(NamedTuple):
    """How a queue was declared."""

    limit: int | None = None
    dead_exchange: str | None = None
    dead_key: str | None = None


class Queue:
    """A queue; ``copies`` are those that are not finished, by their offsets."""

    def __init__(self, name: str, partition: int, rules: QueueRules) -> None:
        self.name, self.partition, self.rules = name, partition, rules
        self.end = 0
        self.copies: dict[int, Copy] = {}

    def kept(self) -> Queue:
        """Return what a start finds."""
        kept = Queue(self.name, self.partition, self.rules)
        kept.end = self.end
        kept.copies = {offset: copy.kept() for offset, copy in self.copies.items()}
        return kept

    def put(self, message: Message) -> int:
        """Append a message; return its offset."""
        offset, self.end = self.end, self.end + 1
        self.copies[offset] = Copy(message)
        return offset

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
    """A request for messages that waits; ``answer`` is None until it is answered, after ``records`` records."""

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


class Model:
    """All of it. ``on_record`` is called after each change that is one record of the journal."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.taken: dict[int, int] = {}
        """How many messages each exchange has taken, by its number."""
        self.queues: dict[str, Queue] = {}
        self.next_partition = 1
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
        self.released: list[int] = []
        """The partitions of queues of which a transaction held messages whose rollback is not forced yet."""
        self.records = 0
        self.on_record: Callable[[], object] = lambda: None
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

    def place(self, messages: Iterable[Sent]) -> dict[int, tuple[int, int]]:
        """Append messages to their queues; return where: by partition the first offset, and how many."""
        found: dict[int, tuple[int, int]] = {}
        for message, partitions in messages:
            for partition in partitions:
                queue = self.queue_at(partition)
                assert queue is not None, "a queue that a transaction has messages for is not deleted"
                offset = queue.put(message)
                first, count = found.get(partition, (offset, 0))
                found[partition] = first, count + 1
        return found

    # -- deliveries --------------------------------------------------------------------------------

    def give(self, session: str, queue: Queue, most: int, now: int) -> list[Given]:
        """Deliver messages to a session."""
        given = []
        for offset in queue.ready(now)[:most]:
            copy = queue.copies[offset]
            given.append(Given(offset, copy.message.value, copy.message.key, copy.attempts, copy.seen))
            copy.holder, copy.seen = session, SURELY
        return given

    def serve(self, now: int, queues: Sequence[Queue] | None = None) -> None:
        """Deliver to those that wait, in the order in which they have come."""
        for queue in self.queues.values() if queues is None else queues:
            line = self.waiting.get(queue.partition, [])
            while line and queue.ready(now):
                ticket = line.pop(0)
                ticket.answer = ("Taken", self.give(ticket.session, queue, ticket.most, now))
                ticket.records = self.records

    # -- what follows from the force -----------------------------------------------------------------

    def forced(self, now: int) -> None:
        """All that was accepted is forced: it is shown, what was rolled back is returned, dead letters are moved."""
        while True:
            for queue in self.queues.values():
                for copy in queue.copies.values():
                    copy.shown = True
            self.serve(now)
            released, self.released = self.released, []
            for partition in dict.fromkeys(released):
                self._release(partition, now)
            letters, self.letters = self.letters, []
            for place in letters:
                self.move_letter(place)
            if not letters and not released:
                return

    def _release(self, partition: int, now: int) -> None:
        queue = self.queue_at(partition)
        for copy in queue.copies.values() if queue is not None else ():
            if copy.releasing:
                copy.held, copy.releasing, copy.holder = "", False, ROLLED_BACK
        if self.held_by(ROLLED_BACK) and ROLLED_BACK not in self.ended:
            self.ended.append(ROLLED_BACK)
            if len(self.ended) == 1:
                self.return_some(now)

    def move_letter(self, place: Place) -> list[Sent]:
        """Move a dead letter; return what it became."""
        queue, copy = self.queue_at(place[0]), self.copy_at(place)
        if queue is None or copy is None:
            return []  # the queue was deleted
        sent = self.letter_of(queue, copy)
        self.finish(place)
        self.place(sent)
        self.record()
        return sent

    def letter_of(self, queue: Queue, copy: Copy) -> list[Sent]:
        """Return the message that a dead letter becomes, and where it goes."""
        rules, message = queue.rules, copy.message
        exchange = (
            self.topology.exchanges.get(rules.dead_exchange) if rules.dead_exchange is not None else None
        )
        if exchange is None:
            return []
        if rules.dead_key is not None:
            message = message._replace(key=rules.dead_key)
        death = queue.name, copy.cause
        message = message._replace(deaths=(death, *(each for each in message.deaths if each != death)))
        ways = self.ways(exchange, message)
        return [(message, tuple(each for each in ways if not self._is_circle(message, each)))]

    def _is_circle(self, message: Message, partition: int) -> bool:
        """Whether a dead letter has died in that queue, and was not rejected since."""
        queue = self.queue_at(partition)
        for name, cause in message.deaths:
            if cause == "rejected" or queue is None:
                return False
            if name == queue.name:
                return True
        return False
