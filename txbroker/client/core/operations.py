"""Everything beside sending, transactions and consuming: topics, groups, and what operators ask and force."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

from journal.arguments import (
    MOST,
    NOTHING_CHANGED,
    NOTHING_READ,
    micros,
    octets,
    seconds,
    text,
    texts,
    truth,
    whole,
    wrong_type,
)
from journal.formats.record import PartitionOffset
from journal.settings import TopicChoices
from journal.transaction import State, Xid, checked_xid
from txbroker import errors
from txbroker.client.core.call import Call, named_error
from txbroker.client.core.core import Core
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.positions import requests_of
from txbroker.client.core.results import (
    Frames,
    GroupMove,
    GroupPosition,
    Message,
    PartContent,
    Run,
    TransactionDetails,
    decoded,
)
from txbroker.client.core.shared_fetch import polled
from txbroker.client.core.topic_creation import create_topic, described
from txbroker.client.core.transaction_names import Which, named, states_of
from txbroker.wire import messages as commands
from txbroker.wire.messages import (
    Answer,
    Committed,
    Done,
    Fetched,
    FetchedPartition,
    GroupInfo,
    GroupOffsets,
    Outcome,
    TopicInfo,
    TransactionInfo,
)

log = logging.getLogger("txbroker.client")

MAX_LISTED = 1000
"""How many transactions are asked for at a time."""


class Operations:
    """Each method is one question or order to the broker, as a coroutine for :func:`promise.start`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- topics ------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int | None, settings: TopicChoices, exist_ok: bool = False
    ) -> TopicInfo:
        """Create a topic; see :func:`txbroker.client.core.topic_creation.create_topic`."""
        return await create_topic(self._core, name, partitions, settings, exist_ok)

    async def delete_topic(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete a topic with its messages; raises UnknownTopic, TransactionConflict.

        ``topic_id`` says which topic of that name is meant, as ``topics()`` tells it; None: the one that is there now.
        """
        name, core = text("name", name, NOTHING_CHANGED), self._core
        topic_id = None if topic_id is None else octets("topic_id", topic_id, NOTHING_CHANGED)
        meant = (await self.topic(name)).id if topic_id is None else topic_id
        call = core.request(commands.DeleteTopic(core.correlation(), name, meant), Done)
        try:
            await call
        except errors.UnknownTopic:
            if call.attempts == 1:
                raise

    async def topics(self, names: Iterable[str] | None) -> list[TopicInfo]:
        """Describe topics, by name; unknown ones are left out."""
        return await described(self._core, None if names is None else texts("names", names, NOTHING_READ))

    async def topic(self, name: str) -> TopicInfo:
        """Describe one; raises UnknownTopic."""
        name = text("topic", name, NOTHING_READ)
        found = await self.topics([name])
        if not found:
            raise errors.UnknownTopic(f"there is no topic {name!r}")
        return found[0]

    async def read(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_wait: float
    ) -> list[Message]:
        """Read from an offset on; raises OffsetOutOfRange, UnknownTopic, UnknownPartition, CorruptSegment.

        An answer ends where a segment does, and where messages begin that are in no file yet: this goes on behind it.
        """
        topic, partition = text("topic", topic, NOTHING_READ), named_index(partition)
        _check_range(offset, max_bytes, max_wait)
        number = _number(await self.topic(topic), partition)
        part, data = await self._fetch(number, offset, max_bytes, max_wait)
        _raise_error_of(part)
        found, taken = decoded(topic, partition, data, offset, max_bytes)
        messages = found
        # Of what is wrong farther on there is nothing in an answer: the read that begins there raises it.
        while found and messages[-1].offset + 1 < part.high_watermark and max_bytes > taken:
            max_bytes -= taken
            offset = messages[-1].offset + 1
            part, data = await self._fetch(number, offset, max_bytes, 0.0)
            found, taken = decoded(topic, partition, data, offset, max_bytes)
            messages = messages + found
        return messages

    async def read_frames(self, number: int, offset: int, max_bytes: int, max_wait: float) -> Frames:
        """Read once from the partition with that number; raises OffsetOutOfRange, UnknownPartition, CorruptSegment."""
        number = whole("number", number, NOTHING_READ)
        _check_range(offset, max_bytes, max_wait)
        part, data = await self._fetch(number, offset, max_bytes, max_wait)
        _raise_error_of(part)
        return Frames(data, part.start_offset, part.high_watermark)

    async def _fetch(
        self, number: int, offset: int, max_bytes: int, max_wait: float
    ) -> tuple[FetchedPartition, memoryview]:
        core = self._core
        request = commands.Fetch(core.correlation(), [(number, offset, 0)], max_bytes, int(max_wait * 1e6))
        call = core.request(request, Fetched, timeout=max_wait + core.options.timeout)
        part = (await polled(core, call)).partitions[0]
        return part, memoryview(call.data)[: part.length]

    async def offsets_for_time(self, topic: str, time: datetime | int) -> dict[int, int]:
        """Per partition the first offset appended at ``time`` (or µs since 1970 UTC) or later."""
        wall = micros("time", time, NOTHING_READ, MOST)  # any end of time is behind the last message
        parts = {part.number: part.index for part in (await self.topic(topic)).partitions}
        core = self._core
        found: dict[int, int] = {}
        for some in requests_of(list(parts)):
            request = commands.OffsetsForTime(core.correlation(), some, wall)
            found.update((await core.request(request, commands.Offsets)).offsets)
        return {parts[number]: at for number, at in found.items()}

    # -- groups ------------------------------------------------------------------------------------

    async def groups(self) -> list[GroupInfo]:
        """All consumer groups with their positions and lags."""
        core = self._core
        return (await core.request(commands.ListGroups(core.correlation()), commands.Groups)).groups

    async def group_offsets(self, group: str) -> list[GroupPosition]:
        """A group's positions."""
        group, core = text("group", group, NOTHING_READ), self._core
        places = {
            p.number: (topic.name, p.index) for topic in await self.topics(None) for p in topic.partitions
        }
        request = commands.FetchOffsets(core.correlation(), group)
        offsets = (await core.request(request, GroupOffsets)).offsets
        return sorted(
            GroupPosition(*places[at.partition], at.offset, at.generation, at.metadata, at.pending_by)
            for at in offsets
            if at.partition in places
        )

    async def set_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Move a group to other positions (offset by partition), as if its consumers had: claims outlive them.

        Raises PositionMoved if somebody moves it at the same time.
        """
        group, topic = text("group", group, NOTHING_CHANGED), text("topic", topic, NOTHING_CHANGED)
        if not isinstance(offsets, Mapping):
            raise wrong_type("offsets", offsets, "a dict of partitions and offsets", NOTHING_CHANGED)
        places = {
            named_index(index): whole("offset", offset, NOTHING_CHANGED) for index, offset in offsets.items()
        }
        info = await self.topic(topic)
        core = self._core
        wanted = {_number(info, index): offset for index, offset in places.items()}
        request = commands.FetchOffsets(core.correlation(), group, list(wanted))
        before = {at.partition: at for at in (await core.request(request, GroupOffsets)).offsets}
        moved = [PartitionOffset(number, at, before[number].generation) for number, at in wanted.items()]
        expected = [before[number].offset for number in wanted]
        move = commands.CommitOffsets(core.correlation(), group, moved, expected=expected)
        call = core.request(move, Done)
        try:
            await call
        except (errors.PositionMoved, errors.GenerationFenced, errors.OffsetPending) as error:
            if call.attempts == 1:
                raise
            request = commands.FetchOffsets(core.correlation(), group, list(wanted))
            now = {at.partition: at.offset for at in (await core.request(request, GroupOffsets)).offsets}
            if now != wanted:
                raise errors.OutcomeUnknown(
                    f"the answer to moving group {group!r} was lost, and it has been moved or claimed by somebody else "
                    f"since ({error}); whether it stood where it was moved to in between is not known. Look where it "
                    "stands"
                ) from error

    async def delete_group(self, group: str, group_id: bytes | None = None) -> None:
        """Forget a group and its positions; raises UnknownGroup, OffsetPending.

        ``group_id`` says which group of that name is meant, as ``groups()`` tells it; None: the one that is there now.
        """
        group, core = text("group", group, NOTHING_CHANGED), self._core
        group_id = None if group_id is None else octets("group_id", group_id, NOTHING_CHANGED)
        meant = await self._group_id(group) if group_id is None else group_id
        call = core.request(commands.DeleteGroup(core.correlation(), group, meant), Done)
        try:
            await call
        except errors.UnknownGroup:
            if call.attempts == 1:
                raise

    async def _group_id(self, group: str) -> bytes:
        core = self._core
        found = await core.request(commands.FetchOffsets(core.correlation(), group, []), GroupOffsets)
        if not found.id:
            raise errors.UnknownGroup(f"there is no group {group!r}; nothing has changed")
        return found.id

    # -- transactions, as operators see them -------------------------------------------------------

    async def transactions(
        self, states: Iterable[State], format_id: int | None, global_prefix: bytes, forced: bool
    ) -> list[TransactionInfo]:
        """All transactions in these states, page by page; none given: the undecided ones."""
        core, found, after, wanted = self._core, list[TransactionInfo](), (0, 0), states_of(states)
        format_id = None if format_id is None else whole("format_id", format_id, NOTHING_READ)
        global_prefix = octets("global_prefix", global_prefix, NOTHING_READ)
        truth("forced", forced, NOTHING_READ)
        while True:
            request = commands.ListTransactions(
                core.correlation(), wanted, after, MAX_LISTED, format_id, global_prefix, forced
            )
            page = await core.request(request, commands.Transactions)
            found += page.transactions
            if not page.more or not page.transactions:
                return found
            after = (found[-1].session, found[-1].serial)

    async def show_transaction(self, which: Which, max_bytes: int) -> TransactionDetails:
        """One transaction with its first messages; raises UnknownTransaction."""
        core, which_one = self._core, named(which)
        max_bytes = whole("max_bytes", max_bytes, NOTHING_READ, least=0)
        places = {
            p.number: (topic.name, p.index) for topic in await self.topics(None) for p in topic.partitions
        }
        request = commands.ShowTransaction(core.correlation(), *which_one, max_bytes)
        call = core.request(request, commands.TransactionShown)
        shown = await call
        data, begin, messages, obstacle = memoryview(call.data), 0, list[Message](), shown.obstacle
        for number, length in shown.parts:
            topic, index = places.get(number, _gone(number))
            try:
                messages += decoded(topic, index, data[begin : begin + length], 0, max_bytes)[0]
            except errors.CompressionUnavailable as error:
                obstacle = obstacle or str(error)
            begin += length
        contents = [PartContent(*places.get(n, _gone(n)), *held) for n, *held in shown.contents]
        runs = [
            Run(*places.get(at.partition, _gone(at.partition)), at.base_offset, at.count)
            for at in shown.placements
        ]
        moved = [
            GroupMove(group, *places.get(at.partition, _gone(at.partition)), at.offset)
            for group, at in shown.offsets
        ]
        return TransactionDetails(
            shown.transaction, messages, moved, sorted(contents), sorted(runs), obstacle
        )

    async def commit_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a prepared transaction to commit; who and why are kept (a heuristic outcome)."""
        core = self._core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        request = commands.Commit(core.correlation(), *which_one, operator=True, by=by, why=why)
        await core.request(request, Committed)

    async def rollback_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a transaction to roll back; who and why are kept (a heuristic outcome)."""
        core = self._core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        await core.request(
            commands.Rollback(core.correlation(), *which_one, operator=True, by=by, why=why), Done
        )

    async def forget_transaction(self, which: Which, by: str, why: str) -> None:
        """Forget a decided transaction's outcome; who and why are journaled."""
        core = self._core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        shown = await core.request(
            commands.ShowTransaction(core.correlation(), *which_one, 0), commands.TransactionShown
        )
        meant = shown.transaction
        request = commands.Forget(core.correlation(), meant.session, meant.serial, meant.xid, by, why)
        call = core.request(request, Done)
        try:
            await call
        except (errors.UnknownTransaction, errors.OutcomeForgotten):
            if call.attempts == 1:
                raise

    async def outcome(self, which: Which) -> Outcome:
        """How a transaction ended, or its state; raises OutcomeForgotten, UnknownTransaction."""
        core = self._core
        return await core.request(commands.AskOutcome(core.correlation(), *named(which)), Outcome)

    async def wait_outcome(self, which: Which, timeout: float) -> State:
        """COMMITTED or ROLLED_BACK, once it is decided; raises OutcomeUnknown after ``timeout`` seconds."""
        core = self._core
        deadline, pause = core.clock() + seconds("timeout", timeout, NOTHING_READ), 0.01
        while True:
            state = (await self.outcome(which)).state
            if state in (State.COMMITTED, State.ROLLED_BACK):
                return state
            if core.clock() + pause >= deadline:
                raise errors.OutcomeUnknown(
                    f"transaction {which} is still {state.name.lower().replace('_', ' ')} after {timeout:g} s: whoever "
                    "decides it has not come by yet. It waits for that at the broker; ask again later",
                    xid=which if isinstance(which, Xid) else None,
                )
            await core.waits.sleep(pause)
            pause = min(1.0, pause * 2)

    async def end_prepared(self, xid: Xid, commit: bool) -> None:
        """The second phase of a transaction prepared by another session, as its coordinator decides."""
        core, xid = self._core, checked_xid(xid)
        truth("commit", commit, NOTHING_CHANGED)
        call: Call[Committed] | Call[Done]
        if commit:
            call = core.request(commands.Commit(core.correlation(), xid=xid), Committed)
        else:
            call = core.request(commands.Rollback(core.correlation(), xid=xid), Done)
        try:
            await cast("Call[Answer]", call)
        except errors.UnknownTransaction as error:
            if call.attempts == 1:
                raise
            # Ended meanwhile and forgotten: by the first try, or by somebody else and the other way.
            raise errors.OutcomeUnknown(
                f"the answer was lost; asked again, the broker says: {error}"
            ) from error

    # -- the broker --------------------------------------------------------------------------------

    async def status(self) -> dict[str, int | float | str]:
        """Counters and gauges by name."""
        core = self._core
        return (await core.request(commands.AskStatus(core.correlation()), commands.Status)).values

    async def pin_files(self) -> int:
        """See the faces."""
        core = self._core
        return (await core.request(commands.PinFiles(core.correlation()), commands.FilesPinned)).lsn

    async def unpin_files(self) -> bool:
        """See the faces."""
        core = self._core
        return (await core.request(commands.UnpinFiles(core.correlation()), commands.FilesPinned)).held


def _check_range(offset: int, max_bytes: int, max_wait: float) -> None:
    whole("offset", offset, NOTHING_READ)
    whole("max_bytes", max_bytes, NOTHING_READ)
    seconds("max_wait", max_wait, NOTHING_READ)


def _gone(number: int) -> tuple[str, int]:
    """The place of a partition whose topic has been deleted."""
    return f"(partition {number})", 0


def _number(info: TopicInfo, index: int) -> int:
    wanted = named_index(index)
    for part in info.partitions:
        if part.index == wanted:
            return part.number
    raise errors.UnknownPartition(f"{info.name} has {len(info.partitions)} partitions, none is {index}")


def _raise_error_of(part: FetchedPartition) -> None:
    if part.error == "OffsetOutOfRange":
        raise errors.OffsetOutOfRange(part.message, part.start_offset, part.high_watermark)
    if part.error:
        raise named_error(part.error, part.message, part.numbers or {}, part.texts or {})
