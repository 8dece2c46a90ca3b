"""The register of a write's name: the last decided version, its epoch, and the next decision.

A register is the position of a consumer group in the topic of decisions. A claim gives its holder a generation. The
broker takes a move of the register, alone or in the transaction that decides, from the newest generation only. So of
any number of drivers that work at the same time one decides. ``docs/spark.md`` has the argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from journal.formats import spark_decision
from journal.formats.spark_decision import GROUPS, Decided
from journal.records.group_entries import PartitionOffset
from spark.sink.branches import Branch, RegisterDamaged, Write, branch_of
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.core.core import Core
from txbroker.wire import messages as commands

TOPIC: Final = spark_decision.TOPIC

RETENTION: Final = timedelta(days=30)
"""How long a decision is kept: a stream may be down so long in the middle of a commit and still finish it."""

NEVER: Final = -1
_NO_TOPIC: Final = -1
_READ_BYTES: Final = 1 << 20


class RegisterState(NamedTuple):
    """The contents of a register. ``decided`` is the last version that was decided, -1 if none was.

    ``epoch`` goes up with each decision and each abort; branches that were begun in an earlier one cannot be decided.
    ``offset`` is where the search for the last decision begins. ``exists``: it has been moved, the last time ``at``
    seconds since 1970, by a driver's or task's clock; 0 in a register of a release that did not record it.
    """

    decided: int = NEVER
    epoch: int = 0
    offset: int = 0
    exists: bool = False
    at: int = 0

    @property
    def metadata(self) -> str:
        """Return it as the metadata of the offset."""
        return f"{self.decided} {self.epoch} {self.at}"


class Decision(Decided, frozen=True, kw_only=True):
    """A decision, for the process that carries it out."""

    @property
    def write(self) -> Write:
        """Return the write that was decided."""
        return Write(self.name, self.version)

    def listed(self) -> list[Branch]:
        """Return the branches, in the order in which they are committed; raises RegisterDamaged."""
        return [branch_of(self.write, key) for key in self.branches]


class Extent(NamedTuple):
    """The number and size of rows, and their topics: what distinguishes a repeated write from another one."""

    rows: int = 0
    bytes: int = 0
    """The size as Arrow counts it."""
    topics: frozenset[str] = frozenset()

    def plus(self, other: Extent) -> Extent:
        """Return both together."""
        return Extent(self.rows + other.rows, self.bytes + other.bytes, self.topics | other.topics)


class _Move(NamedTuple):
    """A group's move, as ``commit_offsets`` takes it."""

    group: str
    moves: list[PartitionOffset]

    def offsets(self) -> list[PartitionOffset]:
        return self.moves


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Decision).decode


class Register:
    """The register of one name, over a connection. For one thread."""

    def __init__(self, broker: Connection, name: str, clock: Callable[[], float] = time.time) -> None:
        self.group = GROUPS + name
        self.name = name
        self._clock = clock
        self._broker = broker
        self._number = _NO_TOPIC

    def read(self) -> RegisterState:
        """Return its present contents."""
        number = self._partition(create=False)
        if number == _NO_TOPIC:
            return RegisterState()
        found = self._broker.run(_position(self._broker.core, self.group, number))
        if found.offset is None:
            return RegisterState()
        try:
            decided, epoch, *at = map(int, found.metadata.split(" "))
        except ValueError:
            raise RegisterDamaged(
                f"group {self.group!r} has {found.metadata!r} where the last decided version and the epoch "
                f"should stand: somebody has moved it by hand. Nothing was changed. {TOPIC!r} has the "
                f"decisions about {self.name!r}"
            ) from None
        return RegisterState(decided, epoch, found.offset, True, *at[:1])

    def reserve(self) -> None:
        """Make it if it does not exist, before there is anything to decide; raises LimitExceeded.

        No driver is fenced: an existing register stays as it is.
        """
        number = self._partition(create=True)
        made = RegisterState(offset=self._decisions_end(), at=round(self._clock()))
        position = PartitionOffset(number, made.offset, 0, made.metadata)
        with _told_of_room(self.name), suppress(errors.PositionMoved, errors.GenerationFenced):
            self._broker.run(_move(self._broker.core, self.group, position, expected=[None]))

    def claim(self, member: str) -> int:
        """Take it from its holder, which can decide nothing from now on; return the generation."""
        number = self._partition(create=True)
        with _told_of_room(self.name):
            return self._broker.run(_claim(self._broker.core, self.group, number, member))

    def end_epoch(self, state: RegisterState, generation: int) -> RegisterState:
        """Begin a new epoch: nothing that was begun before it can be decided; raises GenerationFenced."""
        number = self._partition(create=True)
        moved = state._replace(epoch=generation, exists=True, at=round(self._clock()))
        position = PartitionOffset(number, moved.offset, generation, moved.metadata)
        self._broker.run(_move(self._broker.core, self.group, position))
        return moved

    def decide(self, version: int, branches: Sequence[Branch], extent: Extent, generation: int) -> Decision:
        """Decide to commit these branches, and begin a new epoch; returns once that is forced.

        Raises GenerationFenced if the register has been claimed since, OutcomeUnknown if it is not known whether it is
        decided.
        """
        number = self._partition(create=True)
        keys = [branch.key for branch in branches]
        decision = Decision(
            name=self.name, version=version, epoch=generation, branches=keys,
            rows=extent.rows, bytes=extent.bytes, topics=sorted(extent.topics),
        )  # fmt: skip
        offset = self._decisions_end()
        moved = RegisterState(version, generation, offset, True, round(self._clock()))
        position = PartitionOffset(number, offset, generation, moved.metadata)
        try:
            with self._broker.transaction() as transaction:
                transaction.send(TOPIC, _encode(decision), key=self.name.encode(), partition=0)
                transaction.commit_offsets(_Move(self.group, [position]))
        except errors.TransactionRolledBack as error:
            if isinstance(error.__cause__, errors.GenerationFenced):
                raise error.__cause__ from error
            raise
        return decision

    def last_decision(self, state: RegisterState) -> Decision:
        """Return the decision about the last decided version; raises RegisterDamaged if it is gone."""
        offset = state.offset
        try:
            while messages := self._broker.read(TOPIC, 0, offset, _READ_BYTES):
                for message in messages:
                    if message.key == self.name.encode():
                        decision = _decode(message.value or b"")
                        if decision.version == state.decided:
                            return decision
                offset = messages[-1].offset + 1
        except (errors.OffsetOutOfRange, msgspec.MsgspecError) as error:
            raise self._lost(state, str(error)) from error
        raise self._lost(state, f"it is not among the messages up to {offset}")

    def delete(self) -> None:
        """Delete it, for a name that will not be used again."""
        self._broker.delete_group(self.group)

    def _decisions_end(self) -> int:
        return self._broker.topics([TOPIC])[0].partitions[0].high_watermark

    def _lost(self, state: RegisterState, reason: str) -> RegisterDamaged:
        return RegisterDamaged(
            f"{self.name}/{state.decided} was decided, and which of its branches are to be committed "
            f"stood in {TOPIC!r} from offset {state.offset} on: {reason}. Nothing was changed. Those that are "
            "undecided stay so; with what else is known of the write end them by hand: 'txbroker transactions list "
            "--in-doubt'"
        )

    def _partition(self, *, create: bool) -> int:
        if self._number == _NO_TOPIC:
            found = list(self._broker.topics([TOPIC]))
            if not found and not create:
                return _NO_TOPIC
            if not found:
                found = [create_topic(self._broker)]
            self._number = found[0].partitions[0].number
        return self._number


@contextmanager
def _told_of_room(name: str) -> Iterator[None]:
    """Add to LimitExceeded what to do about it."""
    try:
        yield
    except errors.LimitExceeded as error:
        raise errors.LimitExceeded(
            f"the write {name!r} needs a register, which is a consumer group, and there is no room for it: {error}. "
            "'python -m spark.resolve --registers' shows the registers that there are, '--expire 90d --execute' "
            "deletes those that have not been used for so long"
        ) from error


def create_topic(broker: Connection) -> commands.TopicInfo:
    """Create the topic of decisions; another driver may have been faster."""
    try:
        return broker.create_topic(TOPIC, retention_age=RETENTION)
    except errors.TopicExists:
        return broker.topics([TOPIC])[0]


async def _position(core: Core, group: str, number: int) -> commands.GroupOffset:
    request = commands.FetchOffsets(core.correlation(), group, [number])
    return (await core.request(request, commands.GroupOffsets)).offsets[0]


async def _claim(core: Core, group: str, number: int, member: str) -> int:
    request = commands.ClaimPartitions(core.correlation(), group, member, [number])
    return (await core.request(request, commands.Claimed)).claims[0][1]


async def _move(
    core: Core, group: str, position: PartitionOffset, expected: list[int | None] | None = None
) -> None:
    request = commands.CommitOffsets(core.correlation(), group, [position], expected=expected)
    await core.request(request, commands.Done)
