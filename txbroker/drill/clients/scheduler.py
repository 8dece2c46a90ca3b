"""The role ``scheduler`` sends messages for later, and takes some of them back, alone and in transactions."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final, NamedTuple

import txbroker
from journal.scheduled_id import ScheduledId
from txbroker.client.blocking.send_future import SendFuture
from txbroker.drill.clients.ledger import Began, Refused, Scheduled, TakesBack, TookBack, Unknown
from txbroker.drill.clients.life import EXPECTED, LOST, Life, text_of
from txbroker.drill.clients.messages import value_of
from txbroker.drill.clients.transactor import Carrying, Later, TakenBack, Work
from txbroker.drill.plan.plan import LATER
from txbroker.errors import AlreadySent, OutcomeUnknown, ScheduleHeld, TxBrokerError

BATCHES: Final = (1, 1, 5, 20, 60)
"""How many messages are sent before the client waits for the first answer."""

AHEAD: Final = (0.0, 0.2, 1.0, 3.0, 8.0)
"""Seconds after which messages are due, up to twice that: many while the broker is down, some hardly before they are
sent. A plan may have a bound."""

REMEMBERED: Final = 500
"""Of so many messages it remembers the ids, to take some of them back."""

TRANSACTIONS: Final = 0.3
TAKING_BACK: Final = 0.3
"""Shares of what it does: transactions, and single messages taken back."""


class _Waits(NamedTuple):
    operation: int
    number: int
    id: ScheduledId


def schedule(life: Life) -> None:
    """Run the role ``scheduler``; the client asks again for lost answers."""
    connection, waiting = life.connect(), list[_Waits]()
    while life.goes_on():
        del waiting[:-REMEMBERED]
        drawn = life.chance.random()
        if drawn < TRANSACTIONS:
            if not _transact(life, connection, waiting):
                life.drop(connection)
                life.pause()
                connection = life.connect()
        elif drawn < TRANSACTIONS + TAKING_BACK and waiting:
            _take_back(life, connection, _drawn(life, waiting))
        elif not _send(life, connection, waiting):
            life.pause()
    life.drop(connection)


def _later(life: Life) -> Later:
    """Draw when a message is due, by one of the two clocks."""
    chance = life.chance
    ahead = int(min(chance.choice(AHEAD), life.plan.furthest) * chance.uniform(1.0, 2.0) * 1e6)
    earliest = time.time_ns() // 1000 + ahead
    if chance.random() < 0.5:
        return Later({"at": earliest}, earliest)
    return Later({"after": timedelta(microseconds=ahead)}, earliest)


def _drawn(life: Life, waiting: list[_Waits]) -> _Waits:
    return waiting.pop(life.chance.randrange(len(waiting)))


def _transact(life: Life, connection: txbroker.Connection, waiting: list[_Waits]) -> bool:
    """Carry out a transaction; returns whether the connection may be used again."""
    chance, operation = life.chance, life.next_operation()
    count = chance.choice((1, 2, 5))
    taken = [_drawn(life, waiting) for _ in range(min(len(waiting), chance.choice((0, 1, 3))))]
    work = Work(
        operation,
        chance.choices(life.plan.places(LATER), k=count),
        [life.identity(operation, number, 1) for number in range(count)],
        chance.random() < life.plan.two_phase,
        chance.random() >= 0.15,
        later=[_later(life) for _ in range(count)],
        taken_back=[TakenBack(*each) for each in taken],
    )
    carrying = Carrying(life, connection, work)
    goes_on = carrying.run()
    waiting += [_Waits(operation, number, id) for number, id in enumerate(carrying.scheduled)]
    life.pace(count)
    return goes_on


def _send(life: Life, connection: txbroker.Connection, waiting: list[_Waits]) -> bool:
    """Send a batch of messages for later; returns whether all are kept."""
    chance, operation = life.chance, life.next_operation()
    places = chance.choices(life.plan.places(LATER), k=chance.choice(BATCHES))
    later = [_later(life) for _ in places]
    due = [each.earliest for each in later]
    life.ledger.write(Began(operation=operation, places=places, connection=life.connections, due=due))
    futures: list[SendFuture] = []
    try:
        for number, place in enumerate(places):
            topic, partition = life.plan.layout[place]
            value = value_of(life.identity(operation, number, 1))
            labels = life.sender.encode(), {"place": b"%d" % place}
            futures.append(
                connection.send_async(topic, value, *labels, partition=partition, **later[number].argument)
            )
    except EXPECTED as error:
        refused = list(range(len(futures), len(places)))
        life.ledger.write(Refused(operation=operation, indexes=refused, error=text_of(error)))
    kept = _put_down(life, operation, futures)
    waiting += kept
    life.pace(len(places))
    return len(kept) == len(places)


def _put_down(life: Life, operation: int, futures: list[SendFuture]) -> list[_Waits]:
    """Wait for all answers, each in the ledger before the next; return the messages that are kept."""
    kept = list[_Waits]()
    for number, future in enumerate(futures):
        try:
            id = future.result().scheduled
        except OutcomeUnknown as error:
            life.ledger.write(Unknown(operation=operation, indexes=[number], error=text_of(error)))
        except TxBrokerError as error:
            life.ledger.write(Refused(operation=operation, indexes=[number], error=text_of(error)))
            if not isinstance(error, LOST):
                life.surprised(f"operation {operation}, sending message {number} for later", error)
        else:
            assert id is not None, "what is sent for later has an id"
            life.ledger.write(Scheduled(operation=operation, numbers=[number]))
            kept.append(_Waits(operation, number, id))
    return kept


def _take_back(life: Life, connection: txbroker.Connection, which: _Waits) -> None:
    """Take a message back, and note what became of it; without an answer nobody knows."""
    operation, number, id = which
    life.ledger.write(TakesBack(operation=operation, number=number))
    try:
        connection.cancel(id)
    except AlreadySent as error:
        offset = error.offset if error.topic else -1
        life.ledger.write(TookBack(operation=operation, number=number, sent=True, offset=offset))
    except (*EXPECTED, ScheduleHeld):
        life.pause()  # it may have been taken back, and may not: the ledger says that this was asked for
    except TxBrokerError as error:
        life.surprised(f"taking message {number} of operation {operation} back", error)
    else:
        life.ledger.write(TookBack(operation=operation, number=number, sent=False))
    life.pace(1)
