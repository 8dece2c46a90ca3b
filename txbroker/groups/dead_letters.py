"""Dead letters: messages that a group gives up are moved to the topic of dead letters, each by one record.

A record of the group says first that an offset is dead: it waits, and is nobody's any more. Then its message is read
off the reactor, and one transaction of the broker's own, committed in one phase, finishes the offset and appends the
message to the target. So a dead letter is never lost between the two, and never there twice. What cannot be moved yet
(the disk is full, memory is short, a transaction has prepared something about it) is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace
from twisted.logger import Logger

from journal.constants import MAX_FRAME
from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.log.read_plan import ReadPlan
from journal.message_headers import Headers
from journal.offset_set import OffsetSet
from journal.parties import Owner
from journal.random_id import ID_BYTES
from journal.records.group_entries import (
    DEAD,
    GroupPositions,
    PartitionOffset,
    Settled,
    Unfinished,
    finishing,
)
from journal.settings import TopicSettings
from journal.transaction_states import CLIENT
from journal.transactions.unsent import Unsent, UnsentRun
from txbroker.errors import CorruptData, MessageTooLarge, TxBrokerError
from txbroker.groups.own_numbers import OwnNumbers
from txbroker.groups.retries import has_target, is_queue, target_of
from txbroker.queues import further_keys
from txbroker.queues.deaths import CAUSES, header_of, with_death
from txbroker.wire import dead_letters as names
from txbroker.wire.queues import AMQP_PROPERTIES, DEATHS, EXCHANGE, EXPIRATION, KEYS

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MOVER: Final = Owner("", "dead letters", "broker")
"""Whose the transactions are that move messages."""

Settle = Callable[[str, bytes, list[PartitionOffset], Sequence[Settled]], None]
Recorded = Callable[[list[GroupPositions]], list[GroupPositions]]
GIVEN_UP_AT_ONCE: Final = 1000
"""How many messages retention gives up in one record."""
AT_ONCE: Final = 100
"""How many of those that could not be moved are tried again at a time."""

RunBlocking = Callable[[Callable[[], Any], Callable[[Any], None], Callable[[BaseException], None]], None]


class Letter(NamedTuple):
    """A message to be moved: of which group, and where it is."""

    group: str
    partition: int
    offset: int


class Origin(NamedTuple):
    """Where dead letters come from: the ``name`` of a topic or queue, and of a queue the key that they get (None: their
    own) and the exchange that they go through.
    """

    name: str
    key: bytes | None = None
    exchange: str = ""


class DeadLetters:
    """Moves dead letters, one at a time. ``recorded`` judges what a group settles, ``new_session`` gives a number for
    a session that nobody has, ``random`` random bytes. ``on_topic`` is called with the name of a topic that was made,
    ``on_failure(doing, error)`` must end the process.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        groups: GroupsFold,
        recorded: Recorded,
        run_blocking: RunBlocking,
        new_session: Callable[[], int],
        random: Callable[[int], bytes],
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._recorded = recorded
        self._run_blocking = run_blocking
        self._random = random
        self._numbers = OwnNumbers(engine, new_session)
        self._next: dict[Letter, None] = {}
        self._reading = self._is_busy = False
        self.on_topic: Callable[[str], object] | None = None
        self.on_failure: Callable[[str, BaseException], object] | None = None
        self.obstacles: dict[Letter, str] = {}
        """Those that could not be moved, and why; they are tried again."""
        self._said = ""
        self.moved = 0
        """How many were moved since this start."""
        self.queue_runs: Callable[[int, bytes], Sequence[UnsentRun]] = _no_queues
        """Returns where a dead letter of the queue with that partition goes."""
        self.queue_origin: Callable[[int], Origin] = _no_origin
        """Returns what the queue with that partition is, and what its dead letters get."""
        self.settle: Settle | None = None
        """Settles offsets for a group, outside a transaction."""
        groups.on_dead = self._on_dead
        engine.housekeeping.keep = self.keep
        self._next.update(dict.fromkeys(self._found()))

    def __len__(self) -> int:
        """How many wait for being moved."""
        return len(self._next.keys() | self.obstacles.keys()) + self._reading

    def _found(self) -> Iterator[Letter]:
        """Yield what an earlier start has left."""
        for name, group in self._groups.groups.items():
            for partition, kept in group.settlements.items():
                for each in kept.unfinished.values():
                    if each.is_dead:
                        yield Letter(name, partition, each.offset)

    def _on_dead(self, group: str, partition: int, offset: int) -> None:
        """Move it once the record that says so is forced: it is still being applied."""
        self._next[Letter(group, partition, offset)] = None
        self._engine.when_forced(self._go_on, None)

    def try_again(self) -> None:
        """Try to move what could not be moved. Every second or so."""
        self._next.update(dict.fromkeys(islice(self.obstacles, AT_ONCE)))
        self._go_on(None)

    def keep(self, store: MessageStore, start: int) -> int:
        """Return where a log may begin that retention would have begin at ``start``: at the first message below that a
        group has failed with and not finished. It goes to the dead letters first, and retention goes on then.

        What has no topic to go to is not kept.
        """
        lowest = start
        for name, group in self._groups.groups.items():
            kept = group.settlements.get(store.number)
            if kept is not None and kept.unfinished and has_target(store, group):
                failed = [each for each in kept.details_within(store.start_offset, start) if each.attempts]
                if failed:
                    lowest = min(lowest, failed[0].offset)
                    self._give_up(name, store, failed)
        return lowest

    def _give_up(self, name: str, store: MessageStore, failed: Sequence[Unfinished]) -> None:
        """Say that messages are dead, as many as one request says. What cannot be said now is kept until it can."""
        group = self._groups.find(name)
        dead = [replace(each, due=DEAD) for each in failed if not each.is_dead][:GIVEN_UP_AT_ONCE]
        if dead and self.settle is not None and not self._engine.full:
            position = group.position(store.number) or 0
            settled = Settled(store.number, group.generation(store.number), position, unfinished=dead)
            try:
                self.settle(name, group.id, [], [settled])
            except TxBrokerError as error:
                if self._engine.failed:
                    raise
                self.log.warn(
                    "retention waits for messages of {topic}-{index} that group {group!r} is to try again: {why}",
                    topic=store.topic, index=store.index, group=name, why=str(error),
                )  # fmt: skip

    def _go_on(self, _: object) -> None:
        """Move what waits, until one must be read from the disk: then go on when it is there."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._next and not self._reading and not self._engine.busy and not self._engine.failed:
                letter = next(iter(self._next))
                del self._next[letter]
                self._begin(letter)
        finally:
            self._is_busy = False

    def _begin(self, letter: Letter) -> None:
        details = self._details(letter)
        store = self._engine.catalog.stores.get(letter.partition)
        if details is None or store is None or letter.offset < store.start_offset:
            self.obstacles.pop(letter, None)  # somebody has decided otherwise, or it does not exist any more
            return
        if self._engine.full:
            self._blocked(letter, "the disk is full")
            return
        try:
            plan = store.plan_read(letter.offset, 1, letter.offset + 1)
        except TxBrokerError as error:
            self._blocked(letter, str(error))
            return
        self._reading = True
        of_queue = is_queue(store)
        origin = self.queue_origin(letter.partition) if of_queue else Origin(store.topic)
        at = self._engine.now() + self._engine.wall_offset if of_queue else 0
        work = partial(_frame_of, plan, letter, origin, store.index, details, at)
        self._run_blocking(work, partial(self._read, letter, details), partial(self._failed, letter))

    def _details(self, letter: Letter) -> Unfinished | None:
        """Return what is known of a message that is still to be moved; None if it is not."""
        kept = self._groups.find(letter.group).settlements.get(letter.partition)
        details = None if kept is None else kept.unfinished.get(letter.offset)
        return details if details is not None and details.is_dead else None

    def _failed(self, letter: Letter, error: BaseException) -> None:
        self._reading = False
        self._blocked(letter, f"its message cannot be read: {error}")
        self._go_on(None)

    def _blocked(self, letter: Letter, why: str) -> None:
        """Leave it as it is: it waits, and is tried again behind the others. Only a new reason is logged."""
        self.obstacles.pop(letter, None)
        self.obstacles[letter] = why
        if why != self._said:
            self._said = why
            self.log.warn(
                "offset {offset} of partition number {partition} stays where it is for group {group!r}, and is moved "
                "to the dead letters later: {why}",
                offset=letter.offset, partition=letter.partition, group=letter.group, why=why,
            )  # fmt: skip

    def _read(self, letter: Letter, details: Unfinished, framed: bytes) -> None:
        """Move the message, if nothing has changed while it was read."""
        self._reading = False
        engine = self._engine
        if engine.failed:
            return
        store = engine.catalog.stores.get(letter.partition)
        if store is None or self._details(letter) != details or engine.busy:
            self._next[letter] = None  # looked at again, once a large commit has been applied
        elif engine.full:
            self._blocked(letter, "the disk is full")
        else:
            self._try(letter, store, framed)
        self._go_on(None)

    def _try(self, letter: Letter, store: MessageStore, framed: bytes) -> None:
        try:
            self._move(letter, store, framed)
        except Exception as error:  # noqa: BLE001  (whatever it is, the message stays where it is)
            if self._engine.failed:
                if self.on_failure is not None:
                    self.on_failure("moving a dead letter", error)
                return
            if not isinstance(error, TxBrokerError):
                self.log.failure("moving a dead letter failed")
            self._blocked(letter, str(error))
        else:
            if self.obstacles.pop(letter, None) is not None:  # there is room again
                self._next.update(dict.fromkeys(islice(self.obstacles, AT_ONCE)))
            self.moved += 1
            self._said = ""

    def _move(self, letter: Letter, store: MessageStore, framed: bytes) -> None:
        """Finish the offset and append the message to the target, by one record."""
        group = self._groups.find(letter.group)
        done = OffsetSet()
        done.add(letter.offset)
        generation = group.generation(letter.partition)
        settled = finishing(letter.partition, done, generation)
        positions = self._recorded([GroupPositions(letter.group, b"", [], settled)])
        self._engine.transactions.check_unheld(positions)
        if is_queue(store):
            runs: Sequence[UnsentRun] = self.queue_runs(letter.partition, framed)
        else:
            runs = [(self._target(store, group), 1, framed, ())]
        number = self._numbers.following()
        unsent = Unsent(runs, positions)
        self._engine.transactions.commit(
            number, CLIENT, None, number.serial - 1, None, "", unsent, None, MOVER, is_limited=False
        )
        self._numbers.used(number)

    def _target(self, store: MessageStore, group: Group) -> int:
        """Return the number of the partition that takes the messages of a partition; its topic is made if need be.

        The broker's limits of topics do not hold: the message has to go somewhere.
        """
        catalog = self._engine.catalog
        name = target_of(store.topic, group)
        if name not in catalog.topics:
            partitions = len(catalog.topics[store.topic].partitions)
            record = catalog.judge_creation(
                name, partitions, TopicSettings(), self._engine.now(), self._random(ID_BYTES)
            )
            self._engine.accept(record)
            if self.on_topic is not None:
                self.on_topic(name)
        taking = catalog.topics[name].partitions
        return taking[store.index % len(taking)].number


def _no_queues(partition: int, framed: bytes) -> Sequence[UnsentRun]:
    raise AssertionError(f"partition number {partition} is a queue's, and nobody knows it: {framed[:0]!r}")


def _no_origin(partition: int) -> Origin:
    raise AssertionError(f"partition number {partition} is a queue's, and nobody knows it")


def _frame_of(
    plan: ReadPlan,
    letter: Letter,
    origin: Origin,
    index: int,
    details: Unfinished,
    at: int,
) -> bytes:
    """Read a message, and return it as the frame of a dead letter; one of a queue tells that it has died ``at`` that
    time, by the wall clock (0: it is no queue's).

    Raises CorruptData and what a wrapper may raise.
    """
    message = _message_of(plan, letter.offset)
    why = details.reason or (CAUSES[details.death] if at else "")
    headers: Headers = (
        (names.DEAD_TOPIC, origin.name.encode()),
        (names.DEAD_PARTITION, b"%d" % index),
        (names.DEAD_OFFSET, b"%d" % letter.offset),
        (names.DEAD_GROUP, letter.group.encode()),
        (names.DEAD_ATTEMPTS, b"%d" % details.attempts),
        (names.DEAD_FAILED, b"%d" % details.failed),
        (names.DEAD_WHY, why.encode(errors="replace")),
    )
    told = {name for name, _ in headers}
    own = [each for each in message.headers if each[0] not in told]  # of a dead letter that has died again
    kept: Headers = ()
    if at:
        deaths = with_death(message.headers, message.key, origin.name, details.death, at)
        kept = (header_of(deaths), *_exchange_header(message.headers, origin.exchange))
        if origin.key is None:
            kept += further_keys.header_of(further_keys.told_keys(message.headers))
        own = [each for each in own if each[0] not in (DEATHS, EXPIRATION, EXCHANGE, KEYS)]
    given = message.key if origin.key is None else origin.key
    # What was accepted must go on: if it has no room for what is said of it, some of that is left out, at last its own.
    for more in ((*own, *kept, *headers), (*own, *kept, *headers[:-1]), (*own, *kept), tuple(own), kept, ()):
        with suppress(MessageTooLarge):
            whole = frame.encode(message.value, message.timestamp, given, more)
            if len(whole) <= MAX_FRAME:
                return whole
    raise CorruptData(
        "the message takes more bytes than any frame with the key that it is to get", origin.name, 0
    )


def _exchange_header(headers: Headers, exchange: str) -> Headers:
    """Return what says of a dead letter that came over AMQP which exchange it goes through."""
    is_wanted = exchange and any(name == AMQP_PROPERTIES for name, _ in headers)
    return ((EXCHANGE, exchange.encode()),) if is_wanted else ()


def _message_of(plan: ReadPlan, offset: int) -> frame.Message:
    for messages, _ in frame.decode_pieces(plan.run().data, offset):
        for each in messages:
            if each.offset == offset:
                return each
    raise CorruptData(
        f"no message is at offset {offset} any more: a repair has found that it was lost", "", 0
    )
