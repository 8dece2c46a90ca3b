"""The model of what a broker with queues has: what its journal keeps, and what its sessions have.

``copy`` keeps what a start finds; it is taken after each record that the broker is thought to have made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.queues.model.contents_model import PERHAPS, SURELY, Copy, Level, Queue, WaitingRoom
from tests.queues.model.endings_model import (
    AT_LEAST_ONCE,
    EXPIRED,
    REJECT_PUBLISH,
    TOO_MANY,
    died,
    goes_round,
    goes_through,
)
from tests.queues.model.routing_model import Exchange, Message, Topology, waiting_name

ROLLED_BACK = "what was rolled back"
"""Who has what a prepared transaction held that was rolled back, until an attempt is counted for it."""

Answer = tuple[Any, ...]
"""What a request must be answered: a kind of answer, and what it says."""
DONE: Answer = ("Done",)


def refused(*errors: str) -> Answer:
    """Return the answer that refuses a request with one of these errors."""
    return ("Refused", tuple(sorted(errors)))


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
    waits: bool = True
    """Whether it waits for messages, and not only for the force."""


class Given(NamedTuple):
    """A message as it is delivered. ``seen`` is whether it was delivered before."""

    partition: int
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
        self.rooms: dict[int, WaitingRoom] = {}
        """What waits at delayed exchanges, by their numbers; also of such that are no more."""
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
        self._is_at_rest = False
        self.told: Callable[[Ticket], Place | None] = lambda ticket: None
        """Returns the first message of the broker's answer to somebody who waits, if there is one."""
        self.return_some: Callable[[int], object] = lambda now: None
        """Returns what the first of those that have ended has of one queue."""

    def kept(self) -> Model:
        """Return what a start finds."""
        kept = Model()
        kept.topology, kept.taken = self.topology.copy(), dict(self.taken)
        kept.queues = {name: queue.kept() for name, queue in self.queues.items()}
        kept.rooms = {number: room.kept() for number, room in self.rooms.items()}
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
        """Return the queue that requests name by that partition, its first."""
        return next((each for each in self.shown_queues.values() if each.partition == partition), None)

    def queue(self, name: str) -> Queue | None:
        """Return the queue of that name that requests find."""
        return self.shown_queues.get(name)

    @property
    def shown_queues(self) -> dict[str, Queue]:
        """Those that are not hidden."""
        return {name: each for name, each in self.queues.items() if not each.is_hidden}

    @property
    def levels(self) -> list[Level]:
        """All priorities of all queues."""
        return [level for queue in self.queues.values() for level in queue.levels]

    def level_at(self, partition: int) -> Level | None:
        """Return the priority of a queue with that partition."""
        return next((each for each in self.levels if each.partition == partition), None)

    def copy_at(self, place: Place) -> Copy | None:
        """Return what is not finished there."""
        level = self.level_at(place[0])
        return None if level is None else level.copies.get(place[1])

    def finish(self, place: Place) -> None:
        """Finish a message."""
        level = self.level_at(place[0])
        if level is not None:
            level.copies.pop(place[1], None)

    def held_by(self, session: str) -> dict[int, list[int]]:
        """Return the offsets of what a session has, by partition."""
        found: dict[int, list[int]] = {}
        for level in sorted(self.levels, key=lambda each: each.partition):
            offsets = [offset for offset, copy in sorted(level.copies.items()) if copy.holder == session]
            if offsets:
                found[level.partition] = offsets
        return found

    def ways(self, exchange: Exchange, message: Message) -> tuple[int, ...]:
        """Return the partitions that a message goes to."""
        names = self.topology.route(exchange, message, self.shown_queues)
        waits = [
            self.rooms[each.number].partition
            for each in self.topology.exchanges.values()
            if waiting_name(each) in names
        ]
        queues = [self.queues[name].level_of(message).partition for name in names & self.queues.keys()]
        return tuple(sorted([*queues, *waits]))

    def takers(self, partitions: Iterable[int]) -> list[Level | WaitingRoom]:
        """Return what takes messages there."""
        return [each for each in (*self.levels, *self.rooms.values()) if each.partition in partitions]

    def place(self, messages: Iterable[Sent], now: int) -> dict[int, tuple[int, int]]:
        """Append messages to their queues; return where: by partition the first offset, and how many."""
        found: dict[int, tuple[int, int]] = {}
        for message, partitions in messages:
            takers = self.takers(partitions)
            assert len(takers) == len(partitions), (
                "a queue that a transaction has messages for is not deleted"
            )
            for each in takers:
                offset = each.put(message, now + self.wall_offset)
                first, count = found.get(each.partition, (offset, 0))
                found[each.partition] = first, count + 1
        return found

    # -- deliveries --------------------------------------------------------------------------------

    def give(
        self,
        session: str,
        queue: Queue,
        most: int,
        now: int,
        share: int | None = None,
        has_waited: bool = False,
    ) -> list[Given]:
        """Deliver messages to a session: those of the first ``most``, or of its ``share``, that have not expired, or of
        all others if none is left. Those before these end. More may be taken then than are given. Who ``has_waited``
        gets those that come just now, however short they live.
        """
        given: list[Given] = []
        some = most if share is None else min(share, most)
        while not given and (level := queue.first_level(now)) is not None:
            for offset in level.ready(now)[:some]:
                if len(given) == most:
                    break
                copy = level.copies[offset]
                if level.has_expired(offset, now + self.wall_offset):
                    if not (copy.comes and has_waited):
                        self.end(level, offset, EXPIRED, now)
                        continue
                    self.note("expired messages that somebody waited for")
                message = copy.message
                told = message.value, message.key, copy.attempts, copy.seen, message
                given.append(Given(level.partition, offset, *told))
                copy.holder, copy.seen, copy.taken_at = session, SURELY, now
            some, has_waited = level.end, False
            if not given and (following := queue.first_level(now)) is not None:
                for offset in following.ready(now):
                    copy = following.copies[offset]
                    copy.seen = max(copy.seen, PERHAPS)
        return given

    def serve(self, now: int, queues: Sequence[Queue] | None = None) -> None:
        """Deliver to those that wait, in the order in which they have come, to each its share."""
        for queue in self.queues.values() if queues is None else queues:
            line = self.waiting.get(queue.partition, [])
            while line and not (len(queue.levels) > 1 and self._is_told_of_later(line[0])):
                share = max(1, -(-queue.count_free() // len(line)))
                given = self.give(line[0].session, queue, line[0].most, now, share, line[0].waits)
                if not given:
                    break
                ticket = line.pop(0)
                ticket.answer, ticket.records = ("Taken", given), self.records

    # -- what ends by itself ---------------------------------------------------------------------------

    def end(self, level: Level, offset: int, cause: str, now: int) -> None:
        """End a message: it is a dead letter, if the queue has somewhere to send it to."""
        copy, rules = level.copies[offset], level.queue.rules
        self.note(f"messages {cause}")
        is_bounded = rules.most is not None or rules.most_bytes is not None
        may_be_both = is_bounded and level.has_expired(offset, now + self.wall_offset)
        if rules.dead_exchange is None:
            self.finish((level.partition, offset))
        else:
            copy.dead, copy.causes = True, (EXPIRED, TOO_MANY) if may_be_both else (cause,)
            self.letters.append((level.partition, offset))
        self.record()

    def has_to_end(self, now: int) -> list[tuple[Level, int, str]]:
        """Return the first message of each priority whose first one has to end, and why."""
        found = []
        for level in self.levels:
            first, queue = next(iter(level.ready(now)), None), level.queue
            if first is not None and level is queue.last_level(now) and queue.has_too_much(now):
                found.append((level, first, TOO_MANY))
            elif first is not None and level.has_expired(first, now + self.wall_offset):
                found.append((level, first, EXPIRED))
        return found

    def end_expired(self, now: int) -> None:
        """End all that have expired and can be got, wherever they are."""
        for level in self.levels:
            for offset in level.ready(now):
                if level.has_expired(offset, now + self.wall_offset):
                    self.end(level, offset, EXPIRED, now)

    def has_something_due(self, now: int) -> bool:
        """Whether sessions have had messages for too long, or what waits at exchanges is due."""
        rooms = self.rooms.values()
        return any(each.late(now) for each in self.levels) or any(
            each.due(now + self.wall_offset) for each in rooms
        )

    # -- what follows from the force -----------------------------------------------------------------

    def forced(self, now: int, log: Log | None = None, is_at_rest: bool = False) -> None:
        """All that was accepted is forced: it is shown, what was rolled back is returned, what has to end ends, dead
        letters are moved, and what has waited at exchanges goes on. These two in the order in which the logs have them,
        if there are any. ``is_at_rest``: the logs have all that comes of it.
        """
        self._is_at_rest = is_at_rest
        while True:
            for level in self.levels:
                for copy in level.copies.values():
                    copy.comes, copy.shown = not copy.shown, True
            self.serve(now)
            for level in self.levels:
                for copy in level.copies.values():
                    copy.comes = False
            released, self.released = self.released, []
            self._release(released, now)
            asked, self.until_forced = self.until_forced, []
            for _, answer in asked:
                answer(now)
            ending = self.has_to_end(now)
            for each in ending:
                self.end(*each, now)
            has_moved = False
            while self._move_next(now, log) or self._publish_next(now, log):
                has_moved = True
                self._serve_early(now)
            if not (released or ending or has_moved or self.ended):
                return
            while self.ended and not (released or ending or has_moved):
                self.return_some(now)

    def _is_told_of_later(self, ticket: Ticket) -> bool:
        """Whether the broker has answered somebody with a message that is to come, so with none before that."""
        place = self.told(ticket)
        level = None if place is None else self.level_at(place[0])
        return place is not None and level is not None and place[1] >= level.end

    def _serve_early(self, now: int) -> None:
        """Serve those that wait at queues with priorities what has just been moved there, if the broker has done so
        before more of another priority was moved: each move has a force of its own, or several have one.
        """
        for queue in self.queues.values():
            line = self.waiting.get(queue.partition)
            place = self.told(line[0]) if line and len(queue.levels) > 1 else None
            if place is not None and (copy := self.copy_at(place)) is not None:
                copy.comes, copy.shown = not copy.shown, True
                self.serve(now, [queue])
                copy.comes = False

    def _release(self, partitions: Sequence[int], now: int) -> None:
        for level in self.levels:
            for copy in level.copies.values() if level.partition in partitions else ():
                if copy.releasing:
                    copy.held, copy.releasing, copy.holder = "", False, ROLLED_BACK
                    copy.taken_at = now
        if self.held_by(ROLLED_BACK) and ROLLED_BACK not in self.ended:
            self.ended.append(ROLLED_BACK)
            if len(self.ended) == 1:
                self.return_some(now)

    def _is_next(self, message: Message, partitions: Sequence[int], log: Log | None) -> bool:
        """Whether the logs have that message next."""
        return log is None or all(
            message._replace(headers=()) == log(each.partition, each.end) for each in self.takers(partitions)
        )

    def _move_next(self, now: int, log: Log | None) -> bool:
        """Move a dead letter; return whether there was one that could be.

        While a queue has no room for it, it waits, or is dropped from that one.
        """
        for place in self.letters:
            level, copy = self.level_at(place[0]), self.copy_at(place)
            if level is None or copy is None:
                self.letters.remove(place)  # the queue was deleted
                return True
            for message, partitions in self.letters_of(level.queue, copy):
                full = [
                    each.partition
                    for each in self.levels
                    if each.partition in partitions
                    and (not each.queue.has_room([message], now) or self._has_refused(each, log))
                ]
                if full and level.queue.rules.strategy == AT_LEAST_ONCE:
                    continue
                partitions = tuple(each for each in partitions if each not in full)
                if self._is_next(message, partitions, log):
                    if full:
                        self.note("dead letters that are refused")
                    self._note_letter(level.queue, message, (*partitions, *full))
                    self.letters.remove(place)
                    self.finish(place)
                    self.place([(message, partitions)], now)
                    self.record()
                    return True
        return False

    def _has_refused(self, level: Level, log: Log | None) -> bool:
        """Whether a queue that may refuse messages has none more in its log: when it came, there was no room."""
        may_refuse = level.queue.rules.overflow == REJECT_PUBLISH
        return self._is_at_rest and may_refuse and log is not None and log(level.partition, level.end) is None

    def _publish_next(self, now: int, log: Log | None) -> bool:
        """Publish a message that has waited at an exchange for its time, by the bindings of now; return whether there
        was one. Queues take it that refuse what is too much, too.
        """
        for number, room in self.rooms.items():
            exchange = self.topology.by_number(number)
            for each in room.due(now + self.wall_offset):
                assert exchange is not None, "with an exchange goes what waits at it"
                message = each[1]._replace(delay=-(each[1].delay or 0))
                partitions = self.ways(exchange, message)
                if self._is_next(message, partitions, log):
                    self.note(
                        "messages that have waited" if partitions else "messages that waited for nothing"
                    )
                    room.messages.remove(each)
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
            goes_through(message, each.queue.name) for each in self.levels if each.partition in partitions
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
            round_ = [each.partition for each in self.levels if goes_round(message, each.queue.name)]
            found.append((message, tuple(each for each in ways if each not in round_)))
        return found
