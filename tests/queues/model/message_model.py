"""The model of messages outside of transactions: published, taken, acknowledged, returned, given back, purged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.queues.model.contents_model import Copy, Level
from tests.queues.model.endings_model import LIMIT, REJECTED
from tests.queues.model.queue_model import DONE, Answer, Model, Place, Queue, Sent, Ticket, refused
from tests.queues.model.routing_model import Message

DONE_OR_PENDING: Answer = ("Done", "OffsetPending")
"""What says again that messages are finished is done, or refused while the lowest that is not finished is held by a
prepared transaction: a fault of the judge of groups, which takes a set that says nothing for one that touches that.
"""


class Retry(NamedTuple):
    """A message that is returned: how many attempts its session knows of, when it is due, whether it is given up."""

    offset: int
    attempts: int
    after: int = 0
    dead: bool = False


# -- publishing -----------------------------------------------------------------------------------


def routed(
    model: Model,
    address: int,
    messages: Sequence[Message],
    now: int,
    added: dict[int, list[Message]] | None = None,
) -> list[Sent] | Answer:
    """Return the messages with where they go, or why they are refused. ``added`` has by partition what the same
    request brings before these.
    """
    added = {} if added is None else added
    exchange = model.topology.by_number(-address // 2)
    if exchange is None:
        return refused("UnknownExchange")
    if exchange.internal:
        return refused("InvalidSetting")
    sent = [(message, model.ways(exchange, message)) for message in messages]
    if address % 2 == 0 and not all(partitions for _, partitions in sent):
        return refused("Unroutable")
    for message, partitions in sent:
        for partition in partitions:
            added.setdefault(partition, []).append(message)
    for queue in model.queues.values():
        more = [message for level in queue.levels for message in added.get(level.partition, ())]
        if more and not queue.has_room(more, now):
            return refused("QueueFull")
    return sent


def publish(
    model: Model, address: int, messages: Sequence[Message], now: int, producer: int = 0, sequence: int = 0
) -> Answer:
    """Send messages through an exchange."""
    if model.topology.by_number(-address // 2) is None:
        return refused("UnknownExchange")
    if producer:
        known = model.producers[producer].get(address, [])
        following = known[-1][0] + known[-1][1] if known else 0
        if sequence < following:
            again = [base for first, count, base in known if (first, count) == (sequence, len(messages))]
            return ("Sent", again[0]) if again else refused("SequenceOutOfOrder")
        if sequence > following:
            return refused("SequenceOutOfOrder")
    sent = routed(model, address, messages, now)
    if isinstance(sent, tuple):
        return sent
    number = -address // 2
    base = model.taken.get(number, 0)
    if producer or any(partitions for _, partitions in sent):
        model.taken[number] = base + len(messages)
        model.place(sent, now)
        if producer:
            model.producers[producer].setdefault(address, []).append((sequence, len(messages), base))
        model.record()
    return ("Sent", base)


# -- taking ---------------------------------------------------------------------------------------


def take(model: Model, session: str, partition: int, most: int, wait: int, now: int) -> Answer | Ticket:
    """Take messages; the answer may come later."""
    queue = model.queue_at(partition)
    if queue is None:
        return refused("UnknownQueue")
    queue.used_at = now
    line = model.waiting.setdefault(partition, [])
    if not line and (given := model.give(session, queue, most, now)):
        return ("Taken", given)
    ticket = Ticket(session, partition, most, now + wait, waits=wait > 0)
    line.append(ticket)
    if not wait and model.is_forced():
        model.serve(now, [queue])
        cancel(model, ticket)
        assert ticket.answer is not None
        return ticket.answer
    if not wait:
        model.until_forced.append((session, lambda _: cancel(model, ticket)))
    return ticket


def cancel(model: Model, ticket: Ticket) -> None:
    """Wait no longer."""
    line = model.waiting.get(ticket.partition, [])
    if ticket in line:
        line.remove(ticket)
        ticket.answer, ticket.records = ("Taken", []), model.records


def note_use(model: Model, now: int) -> None:
    """Time has passed since the last request: queues were used meanwhile of which sessions have or await messages."""
    for queue in model.queues.values():
        late = [offset for level in queue.levels for some in level.late(now).values() for offset in some]
        if sum(bool(copy.holder) for copy in queue.copies) > len(late):
            queue.used_at = now
        for ticket in model.waiting.get(queue.partition, ()):
            queue.used_at = max(queue.used_at, min(ticket.deadline, now))


def time_passes(model: Model, now: int) -> None:
    """What is due by now is delivered to those that wait, and then what sessions have had for too long; then those wait
    no longer whose time is up.
    """
    model.serve(now)
    for level in sorted(model.levels, key=lambda each: each.partition):
        for session, offsets in level.late(now).items():
            model.note("deliveries that were late")
            _count(model, level, session, offsets, now)
    for line in model.waiting.values():
        for ticket in [each for each in line if each.deadline <= now]:
            cancel(model, ticket)


# -- what becomes of what was taken ---------------------------------------------------------------


def settle(
    model: Model, session: str, partition: int, done: Sequence[int], retried: Sequence[Retry], now: int
) -> Answer:
    """Acknowledge messages, and return others."""
    level = model.level_at(partition)
    if level is None:
        return refused("InvalidSetting")
    for offset in done:
        if not _is_finished(level, offset) and not _has(level, session, offset):
            return refused("DeliveryLost")
    for retry in retried:
        if not _is_repetition(level, retry) and not _has(level, session, retry.offset):
            return refused("DeliveryLost")
    for retry in retried:
        if (answer := _refusal(level, retry)) is not None:
            return answer
    again = [level.copies[retry.offset] for retry in retried if retry.offset in level.copies]
    if any(copy.held and not copy.releasing for copy in again):
        return refused("OffsetPending")  # it was returned, and taken since, into a transaction
    said = [*done, *(retry.offset for retry in retried)]
    says_nothing = all(_is_finished(level, offset) for offset in said)
    for offset in done:
        model.finish((partition, offset))
    for retry in retried:
        if (copy := level.copies.get(retry.offset)) is not None:
            _return(model, level, copy, retry, session, now)
    model.record()
    model.serve(now, [level.queue])
    return DONE_OR_PENDING if says_nothing and any(copy.held for copy in level.copies.values()) else DONE


def _refusal(level: Level, retry: Retry) -> Answer | None:
    """Whether a message cannot be returned so."""
    if not 0 <= retry.after <= 366 * 24 * 3600 * 1_000_000:
        return refused("InvalidSetting")
    is_last = level.queue.rules.limit is not None and retry.attempts + 1 > level.queue.rules.limit
    if _is_finished(level, retry.offset) and not (retry.dead or is_last):
        return refused("AlreadyFinished", "OffsetOutOfRange")
    return None


def _is_finished(level: Level, offset: int) -> bool:
    return offset < level.end and offset not in level.copies


def _has(level: Level, session: str, offset: int) -> bool:
    return offset in level.copies and level.copies[offset].holder == session


def _is_repetition(level: Level, retry: Retry) -> bool:
    copy = level.copies.get(retry.offset)
    if copy is None:
        return retry.offset < level.end
    return copy.attempts > retry.attempts and (copy.dead or not retry.dead)


def _return(model: Model, level: Level, copy: Copy, retry: Retry, session: str, now: int) -> None:
    is_counted, is_dead = copy.attempts > retry.attempts, retry.dead
    if copy.dead:
        return
    if not is_counted:
        copy.attempts += 1
        copy.due = now + retry.after
        is_dead = is_dead or (level.queue.rules.limit is not None and copy.attempts > level.queue.rules.limit)
    if copy.holder == session:
        copy.holder = ""
    if is_dead and level.queue.rules.dead_exchange is None and not is_counted:
        del level.copies[retry.offset]
    elif is_dead:
        copy.dead, copy.causes = True, (REJECTED if retry.dead else LIMIT,)
        model.letters.append((level.partition, retry.offset))


def give_back(
    model: Model, session: str, partition: int, offsets: Sequence[int], counted: bool, now: int
) -> None:
    """Give back what the session has of these, with an attempt counted or not."""
    level = model.level_at(partition)
    if level is None:
        return
    had = [offset for offset in sorted(set(offsets)) if _has(level, session, offset)]
    if counted:
        _count(model, level, session, had, now)
        return
    for offset in had:
        level.copies[offset].holder = ""
    model.serve(now, [level.queue])


def _count(model: Model, level: Level, session: str, offsets: Sequence[int], now: int) -> None:
    if offsets:
        for offset in offsets:
            copy = level.copies[offset]
            _return(model, level, copy, Retry(offset, copy.attempts), session, now)
        model.record()
    model.serve(now, [level.queue])


def purge(model: Model, session: str, name: str, now: int) -> Answer | Ticket:
    """Finish what could be delivered once what has been accepted is forced; nothing that comes later."""
    queue = model.queue(name)
    if queue is None:
        return refused("UnknownQueue")
    ends = {level.partition: level.end for level in queue.levels}
    if model.is_forced():
        return _purge_forced(model, queue, ends, now)
    ticket = Ticket(session, queue.partition, 0, now)

    def answer(now: int) -> None:
        ticket.answer, ticket.records = _purge_forced(model, queue, ends, now), model.records

    model.until_forced.append((session, answer))
    return ticket


def _purge_forced(model: Model, queue: Queue, ends: dict[int, int], now: int) -> Answer:
    """Finish what can be delivered below these ends of its partitions."""
    if model.queue_at(queue.partition) is None:
        return ("Counted", 0)
    count = 0
    for level in reversed(queue.levels):
        for offset in [each for each in level.ready(now) if each < ends[level.partition]]:
            del level.copies[offset]
            model.record()
            count += 1
    return ("Counted", count)


# -- sessions that end ----------------------------------------------------------------------------


def leave(model: Model, session: str, now: int) -> None:
    """A session ends: its transactions are rolled back, what it has is returned, queue by queue."""
    for line in model.waiting.values():
        line[:] = [ticket for ticket in line if ticket.session != session]
    model.until_forced = [each for each in model.until_forced if each[0] != session]
    for key in [key for key in model.active if key[0] == session]:
        del model.active[key]
        model.record()
    if model.held_by(session):
        model.ended.append(session)
        if len(model.ended) == 1:
            return_some(model, now)


def return_some(model: Model, now: int) -> None:
    """Return what an ended session had of one queue."""
    while model.ended:
        session = model.ended[0]
        for partition, offsets in model.held_by(session).items():
            level = model.level_at(partition)
            assert level is not None
            _count(model, level, session, offsets, now)
            return
        model.ended.pop(0)


def places(partition: int, offsets: Sequence[int]) -> list[Place]:
    """Return the places of several offsets."""
    return [(partition, offset) for offset in offsets]
