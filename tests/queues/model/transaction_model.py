"""The model of transactions that publish and acknowledge: active, prepared, ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.queues.model.message_model import routed
from tests.queues.model.queue_model import DONE, Answer, Begun, Model, Place, refused
from tests.queues.model.routing_model import Message

Run = tuple[int, Sequence[Message]]
"""Messages that go to an address."""


def add(model: Model, session: str, serial: int, run: Run, now: int) -> Answer | None:
    """Add messages; only a refusal is answered."""
    sent = routed(model, *run, now)
    if isinstance(sent, tuple):
        _doom(model, session, serial)
        return sent
    _active(model, session, serial).messages += sent
    model.record()
    return None


def add_acknowledged(model: Model, session: str, serial: int, places: Sequence[Place]) -> Answer | None:
    """Add acknowledgements; only a refusal is answered."""
    refusal = _lacking(model, session, places)
    if refusal is not None:
        _doom(model, session, serial)
        return refusal
    _active(model, session, serial).acknowledged += places
    model.record()
    return None


def _active(model: Model, session: str, serial: int) -> Begun:
    model.last_serials[session] = max(serial, model.last_serials.get(session, 0))
    return model.active.setdefault((session, serial), Begun())


def _doom(model: Model, session: str, serial: int) -> None:
    model.last_serials[session] = max(serial, model.last_serials.get(session, 0))
    if (session, serial) in model.active:
        model.active[session, serial].doomed = True


def _lacking(model: Model, session: str, places: Iterable[Place]) -> Answer | None:
    """Return why a session cannot acknowledge these."""
    for partition, offset in places:
        level = model.level_at(partition)
        if level is None:
            return refused("InvalidSetting")
        if offset not in level.copies or level.copies[offset].holder != session:
            return refused("DeliveryLost")
    return None


def _content(
    model: Model, session: str, serial: int, runs: Sequence[Run], places: Sequence[Place], now: int
) -> Begun | Answer:
    """Return all of a transaction; what is refused has been rolled back."""
    known = model.active.get((session, serial), Begun())
    model.last_serials[session] = max(serial, model.last_serials.get(session, 0))
    if known.doomed:
        return _undone(model, session, serial, refused("TransactionRolledBack"))
    refusal = _lacking(model, session, known.acknowledged)
    if refusal is not None:
        return _undone(model, session, serial, refusal)
    found = Begun([*known.messages], [*known.acknowledged, *places])
    added = dict[int, list[Message]]()
    for run in runs:
        sent = routed(model, *run, now, added)
        if isinstance(sent, tuple):
            return _undone(model, session, serial, sent)
        found.messages += sent
    refusal = _lacking(model, session, places)
    return found if refusal is None else _undone(model, session, serial, refusal)


def _undone(model: Model, session: str, serial: int, refusal: Answer) -> Answer:
    if model.active.pop((session, serial), None) is not None:
        model.record()
    return refusal


def prepare(
    model: Model, session: str, serial: int, xid: str, runs: Sequence[Run], places: Sequence[Place], now: int
) -> Answer:
    """The first phase: what is acknowledged is the transaction's."""
    found = _content(model, session, serial, runs, places, now)
    if isinstance(found, tuple):
        return found
    model.active.pop((session, serial), None)
    model.prepared[xid] = found
    for place in found.acknowledged:
        copy = model.copy_at(place)
        assert copy is not None
        copy.holder, copy.held = "", xid
    model.record()
    return DONE


def commit(
    model: Model, session: str, serial: int, runs: Sequence[Run], places: Sequence[Place], now: int
) -> Answer:
    """In one phase."""
    found = _content(model, session, serial, runs, places, now)
    if isinstance(found, tuple):
        return found
    model.active.pop((session, serial), None)
    return _committed(model, found, now)


def _committed(model: Model, found: Begun, now: int, xid: str = "") -> Answer:
    for place in found.acknowledged:
        model.finish(place)
    placements = model.place(found.messages, now)
    if xid:
        model.outcomes[xid] = placements
    model.record()
    return ("Committed", placements)


def roll_back(model: Model, session: str, serial: int) -> Answer:
    """End one's own transaction, that there may be or not."""
    model.last_serials[session] = max(serial, model.last_serials.get(session, 0))
    if model.active.pop((session, serial), None) is not None:
        model.record()
    return DONE


def decide(model: Model, xid: str, is_commit: bool, now: int) -> Answer:
    """The second phase, once or again."""
    found = model.prepared.pop(xid, None)
    if found is None:
        ended = model.outcomes[xid]
        if ended is not None:
            return ("Committed", ended) if is_commit else refused("TransactionCommitted")
        # that one was rolled back may be forgotten
        return (
            refused("TransactionRolledBack", "UnknownTransaction")
            if is_commit
            else ("Done", "UnknownTransaction")
        )
    if is_commit:
        return _committed(model, found, now, xid)
    for place in found.acknowledged:
        if (copy := model.copy_at(place)) is not None:
            copy.releasing = True
            model.released.append(place[0])
    model.outcomes[xid] = None
    model.record()
    return DONE
