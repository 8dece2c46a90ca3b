"""The model of what is in a queue, and of what waits at a delayed exchange."""

from __future__ import annotations

from collections.abc import Sequence

from tests.queues.model.endings_model import DROP_HEAD, REJECT_PUBLISH, QueueRules, has_expired
from tests.queues.model.routing_model import Message

NEVER, PERHAPS, SURELY = range(3)
"""Whether a message has been delivered before."""


class Copy:
    """A message in a queue. ``holder`` is the session that has it, ``taken_at`` since when, ``held`` the xid of the
    prepared transaction that acknowledges it. ``shown``: it is forced, ``comes``: just now. ``releasing``: the rollback
    of that transaction is not. ``appended`` is when it came, by the wall clock. One that is dead has one cause, or
    several if nobody can tell.
    """

    __slots__ = (
        "appended", "attempts", "causes", "comes", "dead", "due", "held", "holder", "message", "releasing", "seen",
        "shown", "taken_at",
    )  # fmt: skip

    def __init__(self, message: Message, appended: int = 0, shown: bool = False, seen: int = NEVER) -> None:
        self.message, self.appended, self.shown, self.seen = message, appended, shown, seen
        self.attempts = self.due = self.taken_at = 0
        self.comes = self.dead = self.releasing = False
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


class Level:
    """The messages of one priority of a queue, which are in a partition of their own; ``copies`` are those that are not
    finished, by their offsets.
    """

    def __init__(self, queue: Queue, partition: int) -> None:
        self.queue, self.partition = queue, partition
        self.end = 0
        self.copies: dict[int, Copy] = {}

    def put(self, message: Message, wall: int) -> int:
        """Append a message; return its offset."""
        offset, self.end = self.end, self.end + 1
        self.copies[offset] = Copy(message, wall)
        return offset

    def has_expired(self, offset: int, wall: int) -> bool:
        """Whether a message has."""
        copy = self.copies[offset]
        return has_expired(copy.message, copy.appended, self.queue.rules, wall)

    def ready(self, now: int) -> list[int]:
        """Return the offsets of what may be delivered, in the order in which it is."""
        return [offset for offset, copy in sorted(self.copies.items()) if copy.is_ready(now)]

    def late(self, now: int) -> dict[str, list[int]]:
        """Return by session the offsets of what it has had for longer than it may."""
        timeout, found = self.queue.rules.timeout, dict[str, list[int]]()
        for offset, copy in sorted(self.copies.items()):
            if timeout is not None and copy.holder and copy.taken_at + timeout <= now:
                found.setdefault(copy.holder, []).append(offset)
        return found


class Queue:
    """A queue, with a level for each priority, the lowest first. ``used_at`` is when it was declared, or its messages
    taken or waited for, last. ``is_hidden``: it is over, and a transaction needs it.
    """

    def __init__(self, name: str, partition: int, rules: QueueRules) -> None:
        self.name, self.partition, self.rules = name, partition, rules
        self.used_at, self.is_hidden = 0, False
        self.levels = [Level(self, partition + priority) for priority in range(rules.max_priority + 1)]

    def kept(self) -> Queue:
        """Return what a start finds."""
        kept = Queue(self.name, self.partition, self.rules)
        for level, other in zip(kept.levels, self.levels, strict=True):
            level.end = other.end
            level.copies = {offset: copy.kept() for offset, copy in other.copies.items()}
        return kept

    @property
    def copies(self) -> list[Copy]:
        """All that is not finished."""
        return [copy for level in self.levels for copy in level.copies.values()]

    def level_of(self, message: Message) -> Level:
        """Return where a message is put."""
        return self.levels[min(message.priority, self.rules.max_priority)]

    def count_free(self) -> int:
        """Return how many messages could be got if none were due later."""
        return sum(each.shown and not (each.holder or each.held) for each in self.copies)

    def count_ready(self, now: int) -> int:
        """Return how many messages may be delivered."""
        return sum(each.is_ready(now) for each in self.copies)

    def first_level(self, now: int) -> Level | None:
        """Return the highest priority that has messages to be delivered: those come first."""
        return next((each for each in reversed(self.levels) if each.ready(now)), None)

    def last_level(self, now: int) -> Level | None:
        """Return the lowest priority that has messages to be delivered: those go first if there are too many."""
        return next((each for each in self.levels if each.ready(now)), None)

    def has_too_much(self, now: int) -> bool:
        """Whether more can be got than the queue has when its oldest are dropped."""
        ready = [each.message for each in self.copies if each.is_ready(now)]
        return self.rules.overflow == DROP_HEAD and not self._may_have(ready)

    def has_room(self, more: Sequence[Message], now: int) -> bool:
        """Whether it takes these messages, too: what cannot be got, or not any more, is not counted."""
        if self.rules.overflow != REJECT_PUBLISH:
            return True
        there = [each.message for each in self.copies if each.is_ready(now) or not each.shown]
        return self._may_have([*there, *more])

    def _may_have(self, messages: Sequence[Message]) -> bool:
        most, most_bytes = self.rules.most, self.rules.most_bytes
        size = sum(len(each.value) for each in messages)
        return (most is None or len(messages) <= most) and (most_bytes is None or size <= most_bytes)


class WaitingRoom:
    """What waits at a delayed exchange: each message, and when it is due, by the wall clock. ``end`` counts those that
    came, in a partition that nobody may name. It outlives its exchange for transactions that bring it something.
    """

    def __init__(self, partition: int, end: int = 0) -> None:
        self.partition, self.end = partition, end
        self.messages: list[tuple[int, Message]] = []
        self.is_open = True

    def kept(self) -> WaitingRoom:
        """Return what a start finds."""
        kept = WaitingRoom(self.partition, self.end)
        kept.messages, kept.is_open = list(self.messages), self.is_open
        return kept

    def put(self, message: Message, wall: int) -> int:
        """Let a message wait; return its number here."""
        number, self.end = self.end, self.end + 1
        if self.is_open:
            self.messages.append((wall + 1000 * (message.delay or 0), message))
        return number

    def close(self) -> None:
        """Its exchange has ended: nothing waits here any more."""
        self.is_open = False
        self.messages.clear()

    def due(self, wall: int) -> list[tuple[int, Message]]:
        """Return what is due, the earliest first."""
        return sorted((each for each in self.messages if each[0] <= wall), key=lambda each: each[0])
