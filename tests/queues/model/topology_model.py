"""The model of declarations: queues, exchanges and bindings are made and ended."""

from __future__ import annotations

from collections.abc import Sequence

from tests.queues.model.contents_model import Queue, WaitingRoom
from tests.queues.model.endings_model import AT_LEAST_ONCE, REJECT_PUBLISH, QueueRules
from tests.queues.model.queue_model import DONE, Answer, Model, refused
from tests.queues.model.routing_model import FIRST, HEADERS, Exchange, Rule

MATCHES = (b"all", b"any", b"all-with-x", b"any-with-x")


def declare_queue(model: Model, name: str, rules: QueueRules, now: int, passive: bool = False) -> Answer:
    known = model.queue(name)
    if known is None and name in model.queues and not passive:
        return refused("QueueInUse")
    if known is None:
        if passive:
            return refused("UnknownQueue")
        if not name or name.startswith("amq."):
            return refused("InvalidName")
        if rules.dead_key is not None and rules.dead_exchange is None:
            return refused("InvalidSetting")
        if rules.strategy == AT_LEAST_ONCE and rules.overflow != REJECT_PUBLISH:
            return refused("InvalidSetting")
        known = model.queues[name] = Queue(name, model.next_partition, rules)
        model.next_partition += len(known.levels)
        model.record()
    elif not passive and known.rules != rules:
        return refused("DeclaredOtherwise")
    if not passive:
        known.used_at = now
    unforced = sum(not each.shown for each in known.copies)
    return ("QueueDeclared", known.partition, known.count_ready(now) + unforced)


def delete_queue(
    model: Model, name: str, partition: int, if_empty: bool = False, if_unused: bool = False
) -> Answer:
    queue = model.queue(name)
    if queue is None or queue.partition != partition:
        return refused("UnknownQueue")
    if if_empty and queue.copies:
        return refused("QueueInUse")
    if if_unused and (model.waiting.get(partition) or any(copy.holder for copy in queue.copies)):
        return refused("QueueInUse")
    if is_needed(model, queue):
        return refused("QueueInUse")
    return ("Counted", _end_queue(model, queue))


def is_needed(model: Model, queue: Queue) -> bool:
    """Whether an undecided transaction has messages for a queue, or holds some of it."""
    return any(brings_something(model, level.partition) for level in queue.levels) or any(
        copy.held and not copy.releasing for copy in queue.copies
    )


def brings_something(model: Model, partition: int) -> bool:
    """Whether an undecided transaction has messages for a partition."""
    sent = [each for begun in (*model.active.values(), *model.prepared.values()) for each in begun.messages]
    return any(partition in partitions for _, partitions in sent)


def expire_queue(model: Model, queue: Queue) -> None:
    """A queue ends that nobody has used for as long as it says."""
    _end_queue(model, queue)


def _end_queue(model: Model, queue: Queue) -> int:
    """End a queue; return how many messages it had."""
    partitions, before = [level.partition for level in queue.levels], model.topology.rules
    del model.queues[queue.name]
    model.topology.drop_queue(queue.name)
    for begun in model.active.values():
        begun.acknowledged = [each for each in begun.acknowledged if each[0] not in partitions]
    model.record()
    for ticket in model.waiting.pop(queue.partition, ()):
        ticket.answer, ticket.records = refused("UnknownQueue"), model.records
    _end_unbound(model, before)
    return len(queue.copies)


def _end_unbound(model: Model, before: Sequence[Rule]) -> None:
    """End the exchanges that go with their last binding, if that was among those that were there before."""
    gone = [each for each in before if each not in model.topology.rules]
    for name in dict.fromkeys(each.exchange for each in gone):
        known = model.topology.exchanges.get(name)
        if known is not None and known.auto_delete and not model.topology.rules_of(name):
            model.note("exchanges that go with their last binding")
            _end_exchange(model, known)


def _end_exchange(model: Model, exchange: Exchange) -> None:
    before = model.topology.rules
    model.topology.drop_exchange(exchange.name)
    if exchange.delayed:
        model.rooms[exchange.number].close()
    for addresses in model.producers.values():
        for address in (-2 * exchange.number, -2 * exchange.number - 1):
            addresses.pop(address, None)
    model.record()
    _end_unbound(model, before)


def declare_exchange(model: Model, wanted: Exchange, passive: bool = False) -> Answer:
    """Have an exchange, whatever its number; a delayed one gets a partition for what waits at it."""
    known = model.topology.exchanges.get(wanted.name)
    if known is None:
        if passive:
            return refused("UnknownExchange")
        if wanted.name.startswith("amq."):
            return refused("InvalidName")
        known = model.topology.declare(wanted)
        if known.delayed:
            model.rooms[known.number] = WaitingRoom(model.next_partition)
            model.next_partition += 1
        model.record()
    elif not passive and known[2:] != wanted[2:]:
        return refused("DeclaredOtherwise")
    return ("ExchangeDeclared", known.number)


def delete_exchange(model: Model, name: str, number: int, if_unused: bool = False) -> Answer:
    known = model.topology.exchanges.get(name)
    if known is None or known.number != number:
        return refused("UnknownExchange")
    if if_unused and model.topology.rules_of(name):
        return refused("QueueInUse")
    if name in FIRST:
        return refused("InvalidSetting")
    if known.delayed and brings_something(model, model.rooms[number].partition):
        return refused("QueueInUse")
    _end_exchange(model, known)
    return DONE


def bind(model: Model, rule: Rule) -> Answer:
    refusal = _ends(model, rule)
    if refusal is not None or rule in model.topology.rules:
        return refusal or DONE
    match = dict(rule.arguments).get("x-match", b"all")
    if model.topology.exchanges[rule.exchange].kind == HEADERS and match not in MATCHES:
        return refused("InvalidSetting")
    model.topology.rules.append(rule)
    model.record()
    return DONE


def unbind(model: Model, rule: Rule) -> Answer:
    refusal = _ends(model, rule)
    if refusal is not None:
        return refusal
    if rule in model.topology.rules:
        before = list(model.topology.rules)
        model.topology.rules.remove(rule)
        model.record()
        _end_unbound(model, before)
    return DONE


def _ends(model: Model, rule: Rule) -> Answer | None:
    """Return why there can be no such binding."""
    exchanges = model.topology.exchanges
    if rule.exchange not in exchanges or (rule.to_exchange and rule.to not in exchanges):
        return refused("UnknownExchange")
    if not rule.to_exchange and rule.to not in model.shown_queues:
        return refused("UnknownQueue")
    if not rule.exchange or (rule.to_exchange and not rule.to):
        return refused("InvalidSetting")
    return None
