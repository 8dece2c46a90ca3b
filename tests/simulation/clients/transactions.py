"""The acts of clients with transactions: begin, prepare, end, from any session and repeatedly, and ask how they
ended.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from crc32c import crc32c

from journal.records.group_entries import GroupPositions
from journal.transaction_states import State, Totals
from journal.xid import Xid
from tests.simulation.clients.consumers import ConsumingClient
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN, Intent
from txbroker.wire import messages as commands

_COMMITTED = ("TransactionCommitted", "HeuristicallyCommitted")
_ROLLED_BACK = ("TransactionRolledBack", "HeuristicallyRolledBack", "GenerationFenced")


_CONTENT = (
    "UnknownPartition",
    "LimitExceeded",
    "TransactionTooLarge",
    "OffsetOutOfRange",
    "OffsetPending",
    "DiskFull",
    "MessageTooLarge",
    "NotScheduled",
    "ScheduleHeld",
)
"""What is wrong with what a request carries that decides: all of the transaction is rolled back then."""


class Begun(Intent):
    """A transaction, and what its client has counted."""

    def __init__(self, name: str, number: tuple[int, int], xid: Xid) -> None:
        super().__init__(name, name, number=number)
        self.xid = xid
        self.totals = Totals(0, 0, 0)
        """Of what was added."""
        self.unsent: list[tuple[int, bytes]] = []
        """(partition, frames) that the request for its end carries."""
        self.positions: list[GroupPositions] = []
        self.cancels: list[tuple[int, int, int]] = []
        """The scheduled messages that it takes back, by their ids."""
        self.late = False
        """Whether something was added after the end was asked for, so that the broker may count more."""
        self.whole = False
        """Whether all of it comes with the request that decides."""
        self.unsent_messages = 0
        self.age = 0
        """How long it had been prepared when somebody last looked, in µs of the broker's clock."""

    @property
    def all(self) -> Totals:
        """Of what was added and what the request for its end carries."""
        added, checksum = self.totals, self.totals.checksum
        for _, data in self.unsent:
            checksum = crc32c(data, checksum)
        return Totals(added.messages + self.unsent_messages, added.requests, checksum)


class TransactionalClient(ConsumingClient):
    """A client that can do everything there is."""

    # -- the owner ------------------------------------------------------------------------------------

    def begin(self, random: Random) -> None:
        """A transaction of some messages in some partitions."""
        begun = self._new()
        for _ in range(random.choice((0, 1, 1, 2, 3, 5))):
            self.add(random, begun)
        if random.random() < 0.3:
            self.add_offsets(random, begun)
        match random.random():
            case x if x < 0.3:
                self.prepare(random, begun)
            case x if x < 0.6:
                self.commit_own(random, begun)

    def begin_wide(self, random: Random) -> Begun:
        """A transaction with messages that go to several partitions, if there are."""
        begun = self._new()
        for _ in range(3):
            self.add(random, begun)
        return begun

    def commit_wholes(self, random: Random) -> None:
        """Transactions that begin and end with one request each, the first of them at the beginning of a read."""
        if self.connection is not None:
            self.connection.deliver(1 << 30)
        for _ in range(random.choice((1, 1, 3))):
            begun = self._new_whole(random)
            self.commit_own(random, begun)
        if self.connection is not None and random.random() < 0.8:
            self.connection.deliver(1 << 30)

    def prepare_wholes(self, random: Random) -> None:
        """The same, prepared; in the next read perhaps the commits of some."""
        if self.connection is not None:
            self.connection.deliver(1 << 30)
        several = [self._new_whole(random) for _ in range(random.choice((1, 1, 3)))]
        for begun in several:
            self.prepare(random, begun)
        if self.connection is not None:
            self.connection.deliver(1 << 30)
        for begun in several:
            if random.random() < 0.5:
                self.commit_own(random, begun, prepared=True)
        if self.connection is not None and random.random() < 0.5:
            self.connection.deliver(1 << 30)

    def commit_and_send(self, random: Random, *several: Begun) -> None:
        """Their commits in one phase, and just after them a send to one of the last one's partitions."""
        for begun in several:
            self.commit_own(random, begun)
        if begun.values:
            self.send(random, random.choice(list(begun.values)))

    def _new_whole(self, random: Random) -> Begun:
        begun = self._new()
        begun.whole = True
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            self.add(random, begun)
        if random.random() < 0.2:
            self.add_offsets(random, begun)
        return begun

    def _new(self) -> Begun:
        self.serial += 1
        number = (self.session, self.serial)
        name = self.world.name_intent()
        begun = Begun(f"transaction {name}", number, Xid(1, self.global_id(name), b"b"))
        self.model.transactions[number] = begun
        self.active.append(begun)
        return begun

    def global_id(self, name: int) -> bytes:
        """Part of the xid of a transaction of this name."""
        return b"x%d" % name

    def go_on(self, random: Random) -> None:
        """Another step of one that is active."""
        if self.active:
            begun = random.choice(self.active)
            step = random.choice(
                (self.add, self.add, self.add_offsets, self.prepare, self.prepare, self.commit_own, self.end)
            )
            step(random, begun)

    def add(self, random: Random, begun: Begun) -> None:
        """Messages for a partition."""
        partition = self.world.some_partition(random)
        if partition is None:
            return
        values, data = self.world.messages(random)
        self.model.put_into(self.add_frames(random, begun, partition, len(values), data), partition, values)

    def add_frames(
        self, random: Random, begun: Begun, partition: int, count: int, data: bytes, waits: bool = False
    ) -> Intent:
        """Frames for a partition, surely with the request that decides if they are to; return what they are part of."""
        if (waits and not begun.asked) or self._waits(random, begun):
            begun.unsent.append((partition, data))
            begun.unsent_messages += count
            return begun
        part: Intent = begun
        if begun.asked:  # too late: it must be refused
            begun.late = True
            part = Intent(f"late add to {begun.name}")
        else:
            totals = begun.totals
            begun.totals = Totals(totals.messages + count, totals.requests + 1, crc32c(data, totals.checksum))
        then = None if begun.asked else partial(self._add_refused, begun)
        xid, seen = self._xid(random, begun), self._seen(random, begun)
        self.ask(commands.Add, begun.number[1], partition, xid, seen, data=data, then=then)
        return part

    def _waits(self, random: Random, begun: Begun) -> bool:
        """Whether what is added now waits for the request that decides; what comes after it does so, too."""
        waits = begun.unsent or begun.positions or begun.cancels or begun.whole or random.random() < 0.3
        return bool(waits) and not begun.asked

    def add_offsets(self, random: Random, begun: Begun) -> None:
        """A position for a group."""
        key = self.some_key(random)
        if key is None:
            return
        if self._waits(random, begun):
            _, offset = self.move(random, begun, key)
            begun.positions.append(GroupPositions(key[0], self.world.name_id(), [offset]))
            return
        late = Intent(f"late offsets of {begun.name}") if begun.asked else begun
        begun.late = begun.late or bool(begun.asked)
        _, offset = self.move(random, late, key)
        if late is begun:
            totals = begun.totals
            begun.totals = Totals(totals.messages, totals.requests + 1, totals.checksum)
        then = None if begun.asked else partial(self._add_refused, begun)
        xid, made = self._xid(random, begun), self.world.name_id()
        self.ask(commands.AddOffsets, begun.number[1], key[0], [offset], xid, id=made, then=then)

    def _xid(self, random: Random, begun: Begun) -> Xid | None:
        return begun.xid if begun.totals.requests % 2 and not begun.whole else None

    def _add_refused(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        begun.doomed = True

    def _end_of(self, begun: Begun) -> int:
        """The serial up to which all outcomes of this session have been seen."""
        serial = begun.number[1]
        seen = 0
        while seen + 1 < serial and self.model.transactions[(self.session, seen + 1)].state != OPEN:
            seen += 1
        return seen

    def _seen(self, random: Random, begun: Begun) -> int:
        """Up to where this client says that it has seen outcomes: in some sessions one or two less than it has."""
        if random.random() < 0.5:
            return 0
        seen = max(self._end_of(begun) - self.session % 3, 0)
        self.model.forgettable[self.session] = max(self.model.forgettable[self.session], seen)
        return seen

    def prepare(self, random: Random, begun: Begun) -> None:
        """The first phase."""
        totals = self._totals(begun)
        if not begun.asked and random.random() < 0.05:
            sent = begun.totals
            totals = Totals(sent.messages + 1, sent.requests, sent.checksum)
            begun.doomed = True
        seen = self._seen(random, begun)
        runs, data = _carried(begun)
        self.ask(
            commands.Prepare, begun.number[1], begun.xid, totals, seen, runs, begun.positions, begun.cancels,
            data=data, then=partial(self._prepared, begun),
        )  # fmt: skip
        self.model.ask(begun, "prepare")

    def _totals(self, begun: Begun) -> Totals | None:
        """What was added; nothing need be said of nothing if the request brings something."""
        carries = begun.unsent or begun.positions or begun.cancels
        return None if carries and not begun.totals.requests else begun.totals

    def _prepared(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Done):
            self.model.prepared(begun, since)
            if begun in self.active:
                self.active.remove(begun)
        else:
            self._refused(begun, answer, since)

    def commit_own(self, random: Random, begun: Begun, prepared: bool = False) -> None:
        """In one phase, or as the second of two."""
        seen = self._seen(random, begun)
        session = random.choice((0, begun.number[0]))
        then = partial(self._committed, begun)
        if prepared:
            self.ask(commands.Commit, session, begun.number[1], None, None, seen, then=then)
        else:
            runs, data = _carried(begun)
            begins = (
                (runs or begun.positions or begun.cancels) and not begun.totals.requests and not begun.asked
            )
            xid = begun.xid if begins and random.random() < 0.5 else None
            self.ask(
                commands.Commit, session, begun.number[1], xid, self._totals(begun), seen, runs=runs,
                positions=begun.positions, cancels=begun.cancels, data=data, then=then,
            )  # fmt: skip
        self.model.ask(begun)

    def _committed(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Committed):
            bases = {each.partition: each.base_offset for each in answer.placements}
            counts = {each.partition: each.count for each in answer.placements}
            wanted = {partition: len(values) for partition, values in begun.values.items()}
            require(counts == wanted, f"{begun.name} has {wanted}", counts)
            self.model.done(begun, bases)
            self._over(begun)
        else:
            self._refused(begun, answer, since)

    # -- whoever ends it --------------------------------------------------------------------------------

    def end(self, random: Random, begun: Begun | None = None) -> None:
        """Commit or roll back any transaction that is not known to have ended, or one that is, again."""
        if begun is None:
            begun = self.world.some_transaction(random)
        if begun is None:
            return
        self.decide(random, begun, random.random() < 0.6)

    def decide(self, random: Random, begun: Begun, commit: bool) -> None:
        """By number or xid, as the owner, another session or an operator."""
        by_xid = random.random() < 0.4
        number, xid = ((0, 0), begun.xid) if by_xid else (begun.number, None)
        operator = (True, "operator", "drill") if random.random() < 0.2 else (False, "", "")
        if commit:
            strange = number[0] not in (0, self.session) and random.random() < 0.3
            totals = Totals(0, 0, 0) if strange else None
            then = partial(self._committed, begun)
            self.ask(commands.Commit, *number, xid, totals, 0, *operator, then=then)
            self.model.ask(begun)
        else:
            self.ask(commands.Rollback, *number, xid, 0, *operator, then=partial(self._rolled_back, begun))
            self.model.ask(begun, "rollback")

    def _rolled_back(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Done):
            self.model.void(begun)
            self._over(begun)
        else:
            self._refused(begun, answer, since)

    def _refused(self, begun: Begun, answer: Any, since: int) -> None:
        model, error = self.model, answer.error
        if error in _COMMITTED:
            model.done(begun)
            self._over(begun)
        elif error == "ContentMismatch":
            require(begun.doomed or begun.late, f"all of {begun.name} has arrived", answer.message)
            model.void(begun)
            self._over(begun)
        elif error in _ROLLED_BACK or (error == "OffsetPending" and "has been rolled back" in answer.message):
            model.void(begun)
            self._over(begun)
        elif error == "OutcomeForgotten":
            model.forgotten(begun)
            self._over(begun)
        elif error == "UnknownTransaction":
            if not self._forgettable(begun):
                model.unprepared(begun, since)
            elif begun.prepared_at <= since:
                model.forgotten(begun)
        elif (begun.unsent or begun.positions or begun.cancels) and error in _CONTENT:
            model.void(begun)
            self._over(begun)
        elif error not in (
            "TransactionConflict",
            "LimitExceeded",
            "TransactionTooLarge",
            "OffsetPending",
            "InvalidSetting",
            "MemoryExhausted",
        ):
            self.world.storage_error(error, answer.message)

    def _forgettable(self, begun: Begun) -> bool:
        session, serial = begun.number
        return self.model.forgetful or self.model.forgettable[session] >= serial

    def _over(self, begun: Begun) -> None:
        if begun in self.active:
            self.active.remove(begun)

    # -- asking -----------------------------------------------------------------------------------------

    def ask_outcome(self, random: Random) -> None:
        """How did some transaction end?"""
        begun = self.world.some_transaction(random)
        if begun is not None and random.random() < 0.3:
            self.ask(commands.AskOutcome, 0, 0, begun.xid, then=partial(self._outcome, begun))
        elif begun is not None:
            self.ask_outcome_of(begun)

    def ask_outcome_of(self, begun: Begun) -> None:
        """How did that one end?"""
        self.ask(commands.AskOutcome, *begun.number, then=partial(self._outcome, begun))

    def _outcome(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        if not isinstance(answer, commands.Outcome):
            self._refused(begun, answer, since)
        elif answer.state is State.COMMITTED:
            self.model.done(begun, {each.partition: each.base_offset for each in answer.placements})
        elif answer.state is State.ROLLED_BACK:
            self.model.void(begun)
        elif answer.state is State.PREPARED:
            self.model.prepared(begun, since)
        else:
            require(begun.ended_at > since, f"{begun.name} is {begun.state}", answer.state.name)
            self.model.unprepared(begun, since)

    def forget(self, random: Random) -> None:
        """Let the broker forget how one ended."""
        begun = self.world.some_transaction(random)
        if begun is not None and begun.state != OPEN:
            session, serial = begun.number
            forgettable = self.model.forgettable
            forgettable[session] = max(forgettable[session], serial)
            self.ask(commands.Forget, *begun.number, random.choice((begun.xid, None)), "operator")

    def show(self, random: Random) -> None:
        """Look into one."""
        begun = self.world.some_transaction(random)
        if begun is not None:
            self.ask(commands.ShowTransaction, *begun.number, None, random.choice((0, 100, 1 << 20)))


def _carried(begun: Begun) -> tuple[list[tuple[int, int]], bytes]:
    """The runs of the request that decides, and its data."""
    return [(partition, len(data)) for partition, data in begun.unsent], b"".join(
        data for _, data in begun.unsent
    )
