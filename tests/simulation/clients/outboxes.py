"""The clients of outboxes: rows of a database that never fails, delivered by whoever holds their stream.

Whoever holds it goes by the rules of docs/decisions/0048-outbox-streams.md, and by nothing else: each row must come
exactly once, in the order of the numbers, whatever dies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.clients.clients import Client
from tests.simulation.model.log_model import require
from tests.simulation.model.model import Intent
from txbroker.wire import messages as commands

if TYPE_CHECKING:
    from tests.simulation.world.world import World

TABLE = "0123456789abcdef"
MANY = 1000
FOR_GOOD = ("UnknownPartition", "MessageTooLarge", "InvalidFrame", "LimitExceeded", "TransactionTooLarge")
"""What a row is refused with for ever: it is moved away, and its stream goes on behind it."""


@dataclass(eq=False)
class Row:
    """What a block has left in the table."""

    number: int
    intent: Intent
    partition: int
    data: bytes


@dataclass(eq=False)
class Outbox:
    """The rows of one stream that are not deleted. ``last`` is the highest number that anybody was told of as delivered
    since a release was asked for, for the ``releases``-th time.
    """

    stream: bytes
    number: int = 0
    last: int = 0
    releases: int = 0
    rows: list[Row] = field(default_factory=list)

    def told(self, last: int, releases: int) -> None:
        """Note what an answer has told, to a question from when there were so many releases."""
        if releases == self.releases:
            self.last = max(self.last, last)

    def delete(self, last: int) -> list[Row]:
        """Delete the rows up to a number; return them."""
        gone = [row for row in self.rows if row.number <= last]
        self.rows = [row for row in self.rows if row.number > last]
        return gone


@dataclass
class Held:
    """What a client knows of a stream that it has claimed."""

    epoch: bytes
    last: int


class OutboxClient(Client):
    """A client that writes rows, and claims, delivers and releases streams: program and resolver in one."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.held: dict[bytes, Held] = {}
        """The streams that it has claimed, whichever connection it has."""

    def play(self, random: Random) -> None:
        """One act with one of the outboxes."""
        outbox = random.choice(self.world.outboxes)
        held = self.held.get(outbox.stream)
        if random.random() < 0.4:
            self._write(random, outbox)
        if held is None or random.random() < 0.1:
            self._claim(outbox)
        elif not outbox.rows and random.random() < 0.3:
            last = held.last if random.random() < 0.9 else held.last + random.choice((-1, 1))
            self._release(outbox, held, last)
        else:
            self._deliver(held, outbox, random.choice((1, 2, 5)))

    def finish(self, outbox: Outbox) -> None:
        """The next step until all its rows are delivered and it is released."""
        held = self.held.get(outbox.stream)
        if held is None:
            self._claim(outbox)
        elif outbox.rows:
            self._deliver(held, outbox, MANY)
        else:
            self._release(outbox, held, held.last)

    def _write(self, random: Random, outbox: Outbox) -> None:
        """A block commits: its row is there."""
        partition = self.world.some_partition(random)
        if partition is None:
            return
        outbox.number += random.choice((1, 1, 2))  # a block that was rolled back has had a number, too
        values, data = self.world.messages(random)
        name = f"row {outbox.number} of {outbox.stream.hex()}"
        intent = Intent(name, f"outbox {outbox.stream.hex()}", outbox.number)
        self.model.put_into(intent, partition, values)
        outbox.rows.append(Row(outbox.number, intent, partition, data))

    def _claim(self, outbox: Outbox) -> None:
        then = partial(self._claimed, outbox, outbox.last, outbox.releases)
        self.ask(commands.ClaimStream, outbox.stream, TABLE, self.world.generation, then=then)

    def _claimed(
        self, outbox: Outbox, least: int, releases: int, answer: Any, data: bytes, since: int
    ) -> None:
        if isinstance(answer, commands.StreamHeld):
            self.model.fresh("epoch", answer.epoch)
            if releases == outbox.releases:
                require(answer.last >= least, f"{least} is delivered", answer)
            outbox.told(answer.last, releases)
            self.held[outbox.stream] = Held(answer.epoch, answer.last)
            self._are_delivered(outbox.delete(answer.last))
        elif answer.error != "OutboxSetBack":  # its generation was read before a release
            self.world.storage_error(answer.error, answer.message)

    def _are_delivered(self, rows: list[Row]) -> None:
        for row in rows:
            self.model.done(row.intent)

    def _deliver(self, held: Held, outbox: Outbox, most: int) -> None:
        """The rows above the last that it knows to be delivered, pipelined."""
        after = held.last
        for row in outbox.rows[:most]:
            if row.number <= after:
                continue
            self.serial += 1
            number = self.session, self.serial
            self.world.deliveries[number] = row
            delivery = commands.Delivery(outbox.stream, held.epoch, row.number, after)
            self.ask(
                commands.Commit, 0, self.serial, runs=[(row.partition, len(row.data))], delivery=delivery,
                data=row.data, then=partial(self._delivered, outbox, row, held, outbox.releases),
            )  # fmt: skip
            self.model.ask(row.intent)
            after = row.number

    def _delivered(
        self, outbox: Outbox, row: Row, held: Held, releases: int, answer: Any, data: bytes, since: int
    ) -> None:
        if isinstance(answer, commands.Committed):
            self.model.done(row.intent, {each.partition: each.base_offset for each in answer.placements})
            held.last = max(held.last, row.number)
            outbox.told(row.number, releases)
            self._are_delivered(outbox.delete(row.number))
            return
        self.model.refused(row.intent)
        if answer.error == "StreamFenced" and self.held.get(outbox.stream) is held:
            del self.held[outbox.stream]
        elif answer.error in FOR_GOOD and row in outbox.rows:
            outbox.rows.remove(row)
        elif answer.error not in ("StreamFenced", "StreamOutOfOrder", *FOR_GOOD):
            self.world.storage_error(answer.error, answer.message)

    def _release(self, outbox: Outbox, held: Held, last: int) -> None:
        """All rows are gone, and the generation with them."""
        self.world.generation += 1
        outbox.last = 0
        outbox.releases += 1
        self.ask(
            commands.ReleaseStream, outbox.stream, held.epoch, last, self.world.generation,
            then=partial(self._released, outbox, held),
        )  # fmt: skip

    def _released(self, outbox: Outbox, held: Held, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Done) or answer.error == "StreamFenced":
            if self.held.get(outbox.stream) is held:
                del self.held[outbox.stream]
        elif answer.error not in ("StreamOutOfOrder", "OutboxSetBack"):
            self.world.storage_error(answer.error, answer.message)
