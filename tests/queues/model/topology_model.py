"""The model of declarations: queues, exchanges and bindings are made and ended."""

from __future__ import annotations

from tests.queues.model.queue_model import DONE, Answer, Model, Queue, QueueRules, refused
from tests.queues.model.routing_model import FIRST, HEADERS, Rule

MATCHES = (b"all", b"any", b"all-with-x", b"any-with-x")


def declare_queue(model: Model, name: str, rules: QueueRules, now: int, passive: bool = False) -> Answer:
    known = model.queues.get(name)
    if known is None:
        if passive:
            return refused("UnknownQueue")
        if not name or name.startswith("amq."):
            return refused("InvalidName")
        if rules.dead_key is not None and rules.dead_exchange is None:
            return refused("InvalidSetting")
        known = model.queues[name] = Queue(name, model.next_partition, rules)
        model.next_partition += 1
        model.record()
    elif not passive and known.rules != rules:
        return refused("DeclaredOtherwise")
    return ("QueueDeclared", known.partition, len(known.ready(now)))


def delete_queue(
    model: Model, name: str, partition: int, if_empty: bool = False, if_unused: bool = False
) -> Answer:
    queue = model.queues.get(name)
    if queue is None or queue.partition != partition:
        return refused("UnknownQueue")
    if if_empty and queue.copies:
        return refused("QueueInUse")
    if if_unused and (model.waiting.get(partition) or any(copy.holder for copy in queue.copies.values())):
        return refused("QueueInUse")
    sent = [each for begun in (*model.active.values(), *model.prepared.values()) for each in begun.messages]
    if any(partition in partitions for _, partitions in sent):
        return refused("QueueInUse")
    if any(copy.held and not copy.releasing for copy in queue.copies.values()):
        return refused("QueueInUse")
    del model.queues[name]
    model.topology.drop_queue(name)
    for begun in model.active.values():
        begun.acknowledged = [each for each in begun.acknowledged if each[0] != partition]
    model.record()
    for ticket in model.waiting.pop(partition, ()):
        ticket.answer, ticket.records = refused("UnknownQueue"), model.records
    return ("Counted", len(queue.copies))


def declare_exchange(model: Model, name: str, kind: int, internal: bool, passive: bool = False) -> Answer:
    known = model.topology.exchanges.get(name)
    if known is None:
        if passive:
            return refused("UnknownExchange")
        if name.startswith("amq."):
            return refused("InvalidName")
        known = model.topology.declare(name, kind, internal)
        model.record()
    elif not passive and (known.kind, known.internal) != (kind, internal):
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
    model.topology.drop_exchange(name)
    for addresses in model.producers.values():
        for address in (-2 * number, -2 * number - 1):
            addresses.pop(address, None)
    model.record()
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
        model.topology.rules.remove(rule)
        model.record()
    return DONE


def _ends(model: Model, rule: Rule) -> Answer | None:
    """Return why there can be no such binding."""
    exchanges = model.topology.exchanges
    if rule.exchange not in exchanges or (rule.to_exchange and rule.to not in exchanges):
        return refused("UnknownExchange")
    if not rule.to_exchange and rule.to not in model.queues:
        return refused("UnknownQueue")
    if not rule.exchange or (rule.to_exchange and not rule.to):
        return refused("InvalidSetting")
    return None
