"""Forged records of queues, exchanges and bindings, as :mod:`tests.support.damage.forged_records` has others.

Each list begins with what an engine makes, too: two queues of partitions 3 and 4, and a fanout exchange with number 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crc32c import crc32c
from msgspec.structs import replace

from journal.formats import frame
from journal.records.queue_entries import (
    Binding,
    ExchangeKind,
    ExchangeSettings,
    Queue,
    QueueSettings,
    address_of,
)
from journal.records.record import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    Placement,
    Published,
    Run,
    TopicCreated,
    TopicDeleted,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    Unbound,
)
from journal.transaction_states import Cause, Totals, TransactionNumber
from tests.support.damage.forged_records import (
    GROUP_ID,
    NEW,
    SESSION,
    Forge,
    Made,
    Scene,
    commit,
    plain,
    stamped,
)
from tests.support.engine_room import run_of, xid_of

AT = 10**9
SENT = run_of(b"v")
SIZE = len(SENT)
EXCHANGE = 7
FANOUT = ExchangeSettings(ExchangeKind.FANOUT)
ONE, OTHER = 3, 4
"""The partitions of the two queues. Partition 1, which is none's, ends at offset 3."""


def queue(at: Scene, name: str, number: int, **fields: Any) -> Made:
    """Return the record of a queue; then ``fields`` of it."""
    topic, settings = f"txbroker.queue.{number}", at.room.store().settings
    made = TopicCreated(topic, number, 1, settings, AT, GROUP_ID, None, Queue(name, QueueSettings()))
    return plain(replace(made, **fields))


def exchange(name: str = "all", number: int = EXCHANGE) -> Made:
    """Return the record of an exchange."""
    return plain(ExchangeDeclared(name, number, FANOUT, AT))


def bound(destination: str = "one", source: str = "all", *, to_exchange: bool = False) -> Made:
    """Return the record of a binding."""
    return plain(Bound(Binding(source, "", destination, to_exchange), AT))


def begun(at: Scene) -> list[Made]:
    """Return what there is before a forged record."""
    return [queue(at, "one", ONE), queue(at, "other", OTHER), exchange(), bound(), bound("other")]


def published(*ways: Sequence[int], base: int = 0, **fields: Any) -> Made:
    """Return a sound publication, a message for each way into empty queues; then ``fields``."""
    runs, counts = [], dict[int, int]()
    for number, way in enumerate(ways or [(ONE, OTHER)]):
        first, *also = way or (0,)
        runs.append(Run(first, 1, number * SIZE, 0, also))
        for partition in way:
            counts[partition] = counts.get(partition, 0) + 1
    placements = [Placement(partition, 0, count) for partition, count in counts.items()]
    sound = Published(address_of(EXCHANGE, True), base, len(runs), runs, placements, AT)
    data = fields.pop("data", SENT * len(runs))
    return replace(sound, **fields), data


def added(number: TransactionNumber, *ways: Sequence[int], **fields: Any) -> Made:
    """Return a sound add of a message for each way, to a transaction without any; then ``fields``."""
    runs, sums = [], dict[int, int]()
    for place, way in enumerate(ways or [(ONE, OTHER)]):
        for partition in way or (0,):
            sums[partition] = crc32c(SENT, sums.get(partition, 0))
        first, *also = way or (0,)
        runs.append(Run(first, 1, place * SIZE, sums[first], also))
    sound = TransactionAdded(*number, 0, len(runs), AT, 0, None, None, runs)
    data = fields.pop("data", SENT * len(runs))
    return replace(sound, **fields), data


def spread_commit(*more: tuple[int, int], number: TransactionNumber = NEW, **fields: Any) -> Made:
    """Return a sound one-phase commit of a message for both queues, which may have some, and for these: (partition,
    offset); then ``fields``.
    """
    (ones, others), *others_too = (fields.pop("bases", (0, 0)), *more)
    data, checksum = stamped(ones, b"v"), crc32c(SENT)
    runs, placements = (
        [Run(ONE, 1, 0, checksum, [OTHER])],
        [Placement(ONE, ones, 1), Placement(OTHER, others, 1)],
    )
    for partition, base in others_too:
        runs.append(Run(partition, 1, len(data), crc32c(SENT)))
        data += stamped(base, b"v") if partition else SENT
        placements += [Placement(partition, base, 1)] * bool(partition)
        checksum = crc32c(SENT, checksum)
    sound = TransactionCommitted(*number, placements, AT, Cause.CLIENT, runs=runs, checksum=checksum)
    return replace(sound, **fields), data


def spread_prepare(*ways: Sequence[int], **fields: Any) -> Made:
    """Return a sound prepare with a message for each way; then ``fields``."""
    made, data = added(NEW, *ways)
    assert isinstance(made, TransactionAdded)
    return replace(TransactionPrepared(*NEW, xid_of("new"), None, AT, 0, None, made.runs), **fields), data


def _timed(run: bytes) -> bytes:
    """Return a frame as if it had been appended at some time."""
    frame.stamp(memoryview(data := bytearray(run)), 0, 5)
    return bytes(data)


def alike(at: Scene, bad: int, **fields: Any) -> list[Made]:
    """Return forty similar commits to one queue, as a start reads many at a time; one of them differs."""
    made = begun(at)
    for n in range(40):
        each, data = commit((ONE, n), number=TransactionNumber(SESSION, 900 + n))
        made.append((replace(each, **fields) if n == bad else each, data))
    return made


def behind(*made: Made) -> Forge:
    """Return these records behind two queues and an exchange."""
    return lambda at: [*begun(at), *made]


COMMITTED = TransactionCommitted(*NEW, [Placement(ONE, 0, 1), Placement(OTHER, 0, 1)], AT, Cause.CLIENT)

SOUND: dict[str, Forge] = {
    "publications": behind(published(), published((ONE,), (), base=1, placements=[Placement(ONE, 1, 1)])),
    "publications to both queues and to one": behind(published((ONE, OTHER), (OTHER,), (OTHER, ONE), ())),
    "adds and a commit": behind(
        added(NEW, (ONE, OTHER), ()),
        added(NEW, (), (OTHER,), runs=[Run(0, 1, 0, crc32c(SENT)), Run(OTHER, 1, SIZE, crc32c(SENT * 2))]),
        plain(
            replace(
                COMMITTED,
                placements=[Placement(ONE, 0, 1), Placement(OTHER, 0, 2)],
                totals=Totals(4, 2, crc32c(SENT * 4)),
            )
        ),
    ),
    "a one-phase commit": behind(spread_commit((1, 3), (0, 0))),
    "a prepare and a commit": behind(spread_prepare((ONE, OTHER), ()), plain(COMMITTED)),
    "ends of all": behind(
        plain(Unbound(Binding("all", "", "one"), AT)),
        plain(TopicDeleted(f"txbroker.queue.{OTHER}", AT)),
        bound("amq.topic", to_exchange=True),
        plain(ExchangeDeleted("all", EXCHANGE, AT)),
        exchange("all", EXCHANGE + 1),
        plain(TopicDeleted(f"txbroker.queue.{ONE}", AT)),
    ),
}

REFUSED: dict[str, Forge] = {
    "a publication for a partition that is not there": behind(published((9,))),
    "a publication that goes on to a partition that is not there": behind(published((ONE, 9))),
    "a publication that says another count": behind(published(count=2)),
    "a publication whose run says another count": behind(
        published(
            count=2, runs=[Run(ONE, 2, 0, 0, [OTHER])], placements=[Placement(ONE, 0, 2), Placement(OTHER, 0, 2)]
        )
    ),
    "a publication that places less": behind(published(placements=[Placement(ONE, 0, 1)])),
    "a publication that places more": behind(
        published(placements=[Placement(ONE, 0, 1), Placement(OTHER, 0, 1), Placement(1, 3, 1)])
    ),
    "a publication that places another count": behind(
        published(placements=[Placement(ONE, 0, 1), Placement(OTHER, 0, 2)])
    ),
    "a publication that places beyond the end": behind(
        published(placements=[Placement(ONE, 0, 1), Placement(OTHER, 5, 1)])
    ),
    "a publication that goes to a queue twice": behind(
        published(runs=[Run(ONE, 1, 0, 0, [ONE])], placements=[Placement(ONE, 0, 2)])
    ),
    "a publication that goes nowhere, and on": behind(
        published(runs=[Run(0, 1, 0, 0, [OTHER])], placements=[Placement(OTHER, 0, 1)])
    ),
    "a publication that goes on to nowhere": behind(
        published(runs=[Run(ONE, 1, 0, 0, [0])], placements=[Placement(ONE, 0, 1)])
    ),
    "a publication without its data": behind(published(data=b"")),
    "a publication whose data are no frames": behind(published(data=b"\xff" * 50)),
    "a publication of what goes nowhere, whose data are no frames": behind(published((), data=b"\xff" * 50)),
    "a publication of what goes nowhere that says another count": behind(
        published(count=2, runs=[Run(0, 2, 0, 0)], placements=[])
    ),
    "a publication whose runs overlap": behind(
        published((ONE,), (OTHER,), runs=[Run(ONE, 1, 0, 0), Run(OTHER, 1, 5, 0)])
    ),
    "a publication without runs": behind(published(runs=[], placements=[])),
    "a publication of more messages than were due": behind(published((ONE,), (OTHER,), ids=[8])),
    "a publication of fewer messages than were due": behind(published(ids=[8, 16])),
    "a publication of one that was due twice": behind(published((ONE,), (OTHER,), ids=[8, 8])),
    "a delayed exchange without its queue": behind(
        plain(ExchangeDeclared("later", EXCHANGE + 1, replace(FANOUT, delayed=True), AT))
    ),
    "the end of a queue whose exchange lets messages wait": lambda at: [
        queue(at, f"amq.delayed.{EXCHANGE}", ONE),
        plain(ExchangeDeclared("later", EXCHANGE, replace(FANOUT, delayed=True), AT)),
        plain(TopicDeleted(f"txbroker.queue.{ONE}", AT)),
    ],
    "a queue of what waits at no exchange's number": lambda at: [queue(at, "amq.delayed.x", ONE)],
    "a publication of messages that its exchange has taken": behind(published(), published((), base=0)),
    "a publication of messages that its exchange has not got to": behind(published((), base=1)),
    "a publication through an exchange that is not there": behind(published(address=address_of(8, True))),
    "a publication through an exchange that is gone": behind(
        plain(ExchangeDeleted("all", EXCHANGE, AT)), published()
    ),
    "a publication of a producer that nobody opened": behind(published(producer_id=44, epoch=1)),
    "a commit of what goes to two and is placed in one": behind(
        spread_commit(placements=[Placement(ONE, 0, 1)])
    ),
    "a commit of what goes to one twice": behind(
        spread_commit(runs=[Run(ONE, 1, 0, crc32c(SENT), [ONE])], placements=[Placement(ONE, 0, 2)])
    ),
    "a commit of what goes nowhere and is placed": behind(
        spread_commit(runs=[Run(0, 1, 0, crc32c(SENT))], placements=[Placement(ONE, 0, 1)])
    ),
    "a commit amid many of what goes to two and is placed in one": lambda at: alike(
        at, 20, runs=[Run(ONE, 1, 0, crc32c(SENT), [OTHER])]
    ),
    "a commit of a prepared one that places in one of two queues": behind(
        spread_prepare(), plain(replace(COMMITTED, placements=[Placement(ONE, 0, 1)]))
    ),
    "a commit of adds that places in one of two queues": behind(
        added(NEW), plain(replace(COMMITTED, placements=[Placement(ONE, 0, 1)]))
    ),
    "a prepare of what goes on to a partition that is not there": behind(spread_prepare((ONE, 9))),
    "a prepare of what goes nowhere, and on": behind(spread_prepare(runs=[Run(0, 1, 0, crc32c(SENT), [ONE])])),
    "an add for no partition": behind((TransactionAdded(*NEW, 0, 1, AT, 0), SENT)),
    "an add with runs that is for a partition": behind(added(NEW, partition=ONE)),
    "an add with runs that says another count": behind(added(NEW, count=2)),
    "an add whose run says another count": behind(
        added(NEW, count=2, runs=[Run(ONE, 2, 0, crc32c(SENT), [OTHER])])
    ),
    "an add that goes on to a partition that is not there": behind(added(NEW, (ONE, 9))),
    "an add whose runs are no frames": behind(added(NEW, data=b"\xff" * 50)),
    "an add whose runs overlap": behind(added(NEW, (ONE,), (OTHER,), runs=[Run(ONE, 1, 0, 0), Run(OTHER, 1, 5, 0)])),
    "the end of a queue that a transaction has messages for": behind(
        added(NEW), plain(TopicDeleted(f"txbroker.queue.{OTHER}", AT))
    ),
    "a queue that is there": lambda at: [*begun(at), queue(at, "one", 5)],
    "a queue of two partitions": lambda at: [*begun(at), queue(at, "two", 5, partitions=2)],
    "a queue with the topic of another number": lambda at: [
        *begun(at), queue(at, "two", 5, topic="txbroker.queue.6")
    ],
    "a queue with a topic of another name": lambda at: [*begun(at), queue(at, "two", 5, topic="tasks")],
    "a topic that is a queue's by its name alone": lambda at: [*begun(at), queue(at, "", 5, queue=None)],
    "an exchange that is there": behind(exchange(number=8)),
    "an exchange with the number of another": behind(exchange("more")),
    "an exchange with the number of one that is gone": behind(
        plain(ExchangeDeleted("all", EXCHANGE, AT)), exchange("more")
    ),
    "the end of an exchange that is not there": behind(plain(ExchangeDeleted("none", 8, AT))),
    "the end of an exchange with the number of another": behind(plain(ExchangeDeleted("all", 8, AT))),
    "the end of an exchange that is always there": behind(plain(ExchangeDeleted("amq.topic", 4, AT))),
    "a binding that is there": behind(bound()),
    "a binding to a queue that is not there": behind(bound("none")),
    "a binding to an exchange that is not there": behind(bound("one", to_exchange=True)),
    "a binding of an exchange that is not there": behind(bound("one", "none")),
    "the end of a binding that is not there": behind(plain(Unbound(Binding("all", "key", "one"), AT))),
    "the end of a binding of a queue that is gone": behind(
        plain(TopicDeleted(f"txbroker.queue.{ONE}", AT)), plain(Unbound(Binding("all", "", "one"), AT))
    ),
}  # fmt: skip

UNREADABLE: dict[str, Forge] = {
    "a publication to a partition": behind(published(address=3)),
    "a publication to no exchange": behind(published(address=-1)),
    "a publication of nothing": behind(published(count=0)),
    "a publication from a negative number on": behind(published(base=-1)),
    "a run that goes on to a negative partition": behind(published(runs=[Run(ONE, 1, 0, 0, [-1])])),
    "an exchange with number 0": behind(exchange(number=0)),
    "an exchange of an unknown kind": behind(
        plain(ExchangeDeclared("x", 8, ExchangeSettings(9), AT))  # type: ignore[arg-type]
    ),
    "a binding with too long a name": behind(bound("q" * 256)),
    "a queue with too long a name": lambda at: [queue(at, "q" * 256, ONE)],
    "a queue with a negative limit of deliveries": lambda at: [
        queue(at, "one", ONE, queue=Queue("one", QueueSettings(-1)))
    ],
}

TOLD: dict[str, Forge] = {
    "a one-phase commit for two queues with another checksum of its run": behind(
        spread_commit(runs=[Run(ONE, 1, 0, 7, [OTHER])])
    ),
    "a one-phase commit with another checksum of what goes nowhere": behind(
        spread_commit((0, 0), runs=[Run(ONE, 1, 0, crc32c(SENT), [OTHER]), Run(0, 1, SIZE, 7)])
    ),
    "a one-phase commit for two queues with a checksum that counts its messages for both": behind(
        spread_commit(checksum=crc32c(SENT * 2))
    ),
    "an add with another checksum of its run": behind(added(NEW, runs=[Run(ONE, 1, 0, 7, [OTHER])])),
    "an add with another checksum of what goes nowhere": behind(added(NEW, (), runs=[Run(0, 1, 0, 7)])),
    "a commit of adds that says that its messages were sent for each queue": behind(
        added(NEW), plain(replace(COMMITTED, totals=Totals(2, 1, crc32c(SENT * 2))))
    ),
    "a publication of a frame that fails its checksum": behind(published(data=SENT[:-1] + b"x")),
    "a publication of a frame with an offset": behind(published(data=stamped(1, b"v"))),
    "a publication of a frame with an append time": behind(published(data=_timed(SENT))),
}
