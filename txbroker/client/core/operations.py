"""The requests of every client about topics, groups, files and the broker itself, written once for all clients."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from journal.arguments import (
    MOST,
    NOTHING_CHANGED,
    NOTHING_READ,
    listed,
    micros,
    octets,
    seconds,
    text,
    texts,
    whole,
    wrong_type,
)
from journal.formats.group_entries import PartitionOffset
from journal.settings import TopicChoices, topic_settings
from txbroker import errors
from txbroker.client.core.background_worker import Companion
from txbroker.client.core.call import Call, named_error
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.message_search import checked_question, messages_found
from txbroker.client.core.parked import parked_messages, release
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.positions import requests_of
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import (
    Frames,
    GroupDescription,
    GroupPosition,
    Message,
    ParkedMessage,
    decoded,
    described_group,
)
from txbroker.client.core.topic_creation import create_topic, described
from txbroker.wire import messages as commands
from txbroker.wire.messages import (
    Done,
    Fetched,
    FetchedPartition,
    GroupInfo,
    GroupOffsets,
    TopicInfo,
)


class Operations:
    """The methods of every client's connection that read or change something at the broker."""

    core: Core
    resolver: Companion | None = None
    """The resolver, which ends what blocks of ``atomic`` left undecided. It exists from the first block on."""

    def _hurry_resolver(self) -> None:
        """Have the resolver look now: a consumer waits for an undecided transaction, perhaps of the same database."""
        if self.resolver is not None:
            self.resolver.hurry()

    @property
    def identity(self) -> str:
        """The identity of the broker's data. Xids and numbers of transactions are valid only together with it."""
        return self.core.identity

    # -- topics ------------------------------------------------------------------------------------

    @client_method
    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        exist_ok: bool = False,
        **settings: Unpack[TopicChoices],
    ) -> Coroutine[Promise[Any], None, TopicInfo]:
        """Create a topic with these settings (durations in seconds, sizes in bytes); raises TopicExists.

        The topic has one partition unless ``partitions`` says more. With ``exist_ok``, if a topic of that name exists,
        this returns its description and does not change it. The logger ``txbroker.client`` warns if it differs from the
        arguments.
        """
        return create_topic(self.core, name, partitions, settings, exist_ok)

    @client_method
    async def delete_topic(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete a topic with its messages; raises UnknownTopic, TransactionConflict.

        ``topic_id`` is the id of the topic to delete, as ``topics()`` returns it; None: the topic that has the name
        now.
        """
        name, core = text("name", name, NOTHING_CHANGED), self.core
        topic_id = None if topic_id is None else octets("topic_id", topic_id, NOTHING_CHANGED)
        meant = (await self._topic(name)).id if topic_id is None else topic_id
        call = core.request(commands.DeleteTopic(core.correlation(), name, meant), Done)
        try:
            await call
        except errors.UnknownTopic:
            if call.attempts == 1:
                raise
        for told in core.on_changed:
            told(name, False)

    @client_method
    async def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        topic_id: bytes | None = None,
        **settings: Unpack[TopicChoices],
    ) -> TopicInfo:
        """Change these settings of a topic, and no others (durations in seconds, sizes in bytes); return the topic.

        ``partitions`` is how many it has from then on: more than before, or as many, never fewer. The same keys go to
        other partitions then, so what is sent later may be read before what was sent earlier by the same key:
        docs/clients.md says how to do it safely. Settings and partitions change in one step.

        They hold from then on: messages that are there stay, also larger ones than ``max_message_bytes`` allows now;
        segments that are written already keep their size. A connected producer learns of a lower ``max_message_bytes``
        by MessageTooLarge for a batch, also one of small messages, which is not stored; later ones fit.

        ``topic_id`` is the id of the topic that is meant, as ``topics()`` returns it. Raises UnknownTopic,
        InvalidSetting, LimitExceeded; then nothing has changed.
        """
        name, core = text("name", name, NOTHING_CHANGED), self.core
        count = 0 if partitions is None else whole("partitions", partitions, NOTHING_CHANGED, least=1)
        topic_id = None if topic_id is None else octets("topic_id", topic_id, NOTHING_CHANGED)
        chosen = topic_settings(settings)
        changes = {setting: getattr(chosen, setting) for setting in settings}
        meant = (await self._topic(name)).id if topic_id is None else topic_id
        request = commands.AlterTopic(core.correlation(), name, meant, changes, count)
        topic = (await core.request(request, commands.Topics)).topics[0]
        for told in core.on_changed:
            told(name, True)
        return topic

    @client_method
    async def purge(
        self, topic: str, before: int | datetime | Mapping[int, int] | None, topic_id: bytes | None = None
    ) -> dict[int, int]:
        """Drop a topic's oldest messages for good; return the first offset left in each partition that was purged.

        ``before`` is an offset, or a time (a ``datetime``): messages below it, or appended earlier, are dropped. A dict
        of partitions and offsets purges these partitions, None drops all messages that can be read now. ``topic_id`` is
        the id of the topic that is meant, as ``topics()`` returns it. A group whose position is dropped goes on as
        after retention. Raises UnknownTopic, UnknownPartition, OffsetOutOfRange; then nothing has changed, unless more
        partitions are purged than one request takes (256): then some of them may be.
        """
        topic = text("topic", topic, NOTHING_CHANGED)
        starts: dict[int, int] | None = None
        time = offset = None
        if isinstance(before, Mapping):
            starts = {named_index(each): whole("before", at, NOTHING_CHANGED) for each, at in before.items()}
        elif isinstance(before, datetime):
            time = micros("before", before, NOTHING_CHANGED, MOST)
        elif before is not None:
            offset = whole("before", before, NOTHING_CHANGED)
        topic_id = None if topic_id is None else octets("topic_id", topic_id, NOTHING_CHANGED)
        info, core = await self._topic(topic), self.core
        if topic_id not in (None, info.id):
            raise errors.UnknownTopic(
                f"the topic {topic!r} that was meant has been deleted; the one that is there now was made since. "
                "Nothing was changed. Ask for the topics again"
            )
        if time is not None:
            starts = await _first_since(core, info, time)
        elif starts is None:
            starts = {p.index: p.high_watermark if offset is None else offset for p in info.partitions}
        numbers = {part.index: part.number for part in info.partitions}
        for index in starts.keys() - numbers.keys():
            raise _no_partition(info, index)
        places = [(numbers[index], at) for index, at in starts.items()]
        for first in range(0, len(places), commands.MAX_PURGED):
            some = places[first : first + commands.MAX_PURGED]
            await core.request(commands.Purge(core.correlation(), some), Done)
        return {p.index: max(p.start_offset, starts[p.index]) for p in info.partitions if p.index in starts}

    @client_method
    async def topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """Return descriptions of topics, sorted by name. Names that do not exist are left out."""
        return await described(self.core, None if names is None else texts("names", names, NOTHING_READ))

    async def _topic(self, name: str) -> TopicInfo:
        """Return the description of one topic; raises UnknownTopic."""
        name = text("topic", name, NOTHING_READ)
        found = await described(self.core, [name])
        if not found:
            raise errors.UnknownTopic(f"there is no topic {name!r}")
        return found[0]

    @client_method
    async def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> list[Message]:
        """Read messages from ``offset`` on, in order: about ``max_bytes``, and at least one message if there is one.

        Waits up to ``max_wait`` seconds for a first message, and returns an empty list if none comes. Raises
        OffsetOutOfRange, UnknownTopic, UnknownPartition, CorruptSegment.
        """
        topic, partition = text("topic", topic, NOTHING_READ), named_index(partition)
        _check_range(offset, max_bytes, max_wait)
        number = _number(await self._topic(topic), partition)
        part, data = await self._fetch(number, offset, max_bytes, max_wait)
        _raise_error_of(part)
        found, taken = decoded(topic, partition, data, offset, max_bytes)
        messages = found
        # An answer ends where a segment ends, and where messages begin that are in no file yet.
        # Damage farther on is not in an answer: the read that begins there raises the error.
        while found and messages[-1].offset + 1 < part.high_watermark and max_bytes > taken:
            max_bytes -= taken
            offset = messages[-1].offset + 1
            part, data = await self._fetch(number, offset, max_bytes, 0.0)
            found, taken = decoded(topic, partition, data, offset, max_bytes)
            messages = messages + found
        return messages

    @client_method
    async def read_frames(self, number: int, offset: int, max_bytes: int = 1 << 20) -> Frames:
        """Read frames once, undecoded, from the partition with that number (:class:`PartitionInfo` has it).

        Raises OffsetOutOfRange, UnknownPartition, CorruptSegment.
        """
        number = whole("number", number, NOTHING_READ)
        _check_range(offset, max_bytes, 0.0)
        part, data = await self._fetch(number, offset, max_bytes, 0.0)
        _raise_error_of(part)
        return Frames(data, part.start_offset, part.high_watermark)

    async def _fetch(
        self, number: int, offset: int, max_bytes: int, max_wait: float
    ) -> tuple[FetchedPartition, memoryview]:
        core = self.core
        request = commands.Fetch(core.correlation(), [(number, offset, 0)], max_bytes, int(max_wait * 1e6))
        call = core.request(request, Fetched, timeout=max_wait + core.options.timeout)
        part = (await _polled(core, call)).partitions[0]
        return part, memoryview(call.data)[: part.length]

    @client_method
    async def offsets_for_time(self, topic: str, time: datetime | int) -> dict[int, int]:
        """Return for each partition the first offset appended at ``time`` (``datetime``, or µs since 1970 UTC) or
        later.
        """
        wall = micros("time", time, NOTHING_READ, MOST)  # any later time is behind the last message
        return await _first_since(self.core, await self._topic(topic), wall)

    @client_method
    async def find(
        self,
        topic: str,
        *,
        key: bytes | None = None,
        id: str | bytes | None = None,
        partition: int | None = None,
        start: int = 0,
        limit: int = 100,
    ) -> list[Message]:
        """Return the messages of a topic with this key, this id, or both, in the order of partitions and offsets.

        They are at most ``limit``; of all partitions, or of one, from the offset ``start`` on. The broker looks through
        what the log has at the call. Raises UnknownTopic, UnknownPartition, CorruptSegment (which says where to go on),
        Misuse without key and id, WrongType, WrongValue.
        """
        question = checked_question(key, id, start, limit)
        chosen = None if partition is None else named_index(partition)
        info = await self._topic(text("topic", topic, NOTHING_READ))
        if chosen is not None:
            _number(info, chosen)
        parts = [part for part in info.partitions if chosen in (None, part.index)]
        return await messages_found(self.core, topic, parts, question, self._fetch)

    # -- groups ------------------------------------------------------------------------------------

    @client_method
    async def groups(self) -> list[GroupInfo]:
        """Return all consumer groups with their positions and lags."""
        core = self.core
        return (await core.request(commands.ListGroups(core.correlation()), commands.Groups)).groups

    @client_method
    async def group_offsets(self, group: str) -> list[GroupPosition]:
        """Return the positions of a group, sorted by topic and partition."""
        group, core = text("group", group, NOTHING_READ), self.core
        places = {
            p.number: (topic.name, p.index) for topic in await described(core, None) for p in topic.partitions
        }
        request = commands.FetchOffsets(core.correlation(), group)
        offsets = (await core.request(request, GroupOffsets)).offsets
        return sorted(
            GroupPosition(*places[at.partition], at.offset, at.generation, at.metadata, at.pending_by)
            for at in offsets
            if at.partition in places
        )

    @client_method
    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and partitions: whose each is, its position and lag; raises UnknownGroup."""
        group, core = text("group", group, NOTHING_READ), self.core
        request = commands.DescribeGroup(core.correlation(), group)
        told = await core.request(request, commands.GroupMembers)
        if not (told.id or told.members or told.partitions):
            raise errors.UnknownGroup(f"there is no group {group!r}; groups() returns those that there are")
        return described_group(group, told)

    @client_method
    async def parked(self, group: str) -> list[ParkedMessage]:
        """Return the messages that a group is to try again, sorted by topic, partition and offset."""
        return await parked_messages(self.core, text("group", group, NOTHING_READ))

    @client_method
    async def retry_parked(self, group: str, topic: str, partition: int, offsets: Sequence[int]) -> None:
        """Have messages that a group is to try again tried again now; their attempts stay counted.

        Those that are not to be tried again stay as they are. Raises UnknownGroup, and OffsetPending while a prepared
        transaction holds one of them.
        """
        await self._release(group, topic, partition, offsets, commands.Release.RETRY)

    @client_method
    async def skip(self, group: str, topic: str, partition: int, offsets: Sequence[int]) -> None:
        """Finish messages for a group by hand, whoever reads for it; raises as :meth:`retry_parked`.

        A consumer that has been handed one may still handle it.
        """
        await self._release(group, topic, partition, offsets, commands.Release.SKIP)

    @client_method
    async def dead_letter(self, group: str, topic: str, partition: int, offsets: Sequence[int]) -> None:
        """Have messages that a group is to try again moved to the topic of dead letters instead.

        It ends once that is forced; they are moved after that. Raises InvalidSetting for a topic of dead letters, else
        as :meth:`retry_parked`.
        """
        await self._release(group, topic, partition, offsets, commands.Release.DEAD_LETTER)

    @client_method
    async def resend(self, group: str, topic: str, partition: int, offsets: Sequence[int]) -> None:
        """Make messages that a group has finished unfinished, for this group alone; raises as :meth:`retry_parked`.

        They are handed out when a consumer of the group begins with the partition: one that reads it now has passed
        them. Those that are not finished stay as they are. Raises OffsetOutOfRange for one that retention has removed.
        """
        await self._release(group, topic, partition, offsets, commands.Release.AGAIN)

    async def _release(
        self, group: str, topic: str, partition: int, offsets: Sequence[int], what: commands.Release
    ) -> None:
        group, topic = text("group", group, NOTHING_CHANGED), text("topic", topic, NOTHING_CHANGED)
        index = named_index(partition)
        some = [
            whole("offset", each, NOTHING_CHANGED, least=0)
            for each in listed("offsets", offsets, "int", NOTHING_CHANGED)
        ]
        number, meant = _number(await self._topic(topic), index), await self._group_id(group)
        await release(self.core, group, meant, number, some, what)

    @client_method
    async def set_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Move a group to other positions, given as offsets by partition. Claims of its consumers stay valid.

        Raises PositionMoved if a consumer or another program moves the group at the same time, and GroupInUse if the
        group has members, which would go on from where they are: stop them first.
        """
        group, topic = text("group", group, NOTHING_CHANGED), text("topic", topic, NOTHING_CHANGED)
        if not isinstance(offsets, Mapping):
            raise wrong_type("offsets", offsets, "a dict of partitions and offsets", NOTHING_CHANGED)
        places = {
            named_index(index): whole("offset", offset, NOTHING_CHANGED) for index, offset in offsets.items()
        }
        info = await self._topic(topic)
        core = self.core
        wanted = {_number(info, index): offset for index, offset in places.items()}
        request = commands.FetchOffsets(core.correlation(), group, list(wanted))
        before = {at.partition: at for at in (await core.request(request, GroupOffsets)).offsets}
        moved = [PartitionOffset(number, at, before[number].generation) for number, at in wanted.items()]
        expected = [before[number].offset for number in wanted]
        move = commands.CommitOffsets(core.correlation(), group, moved, expected=expected)
        call = core.request(move, Done)
        try:
            await call
        except (
            errors.PositionMoved,
            errors.GenerationFenced,
            errors.OffsetPending,
            errors.GroupInUse,
        ) as error:
            if call.attempts == 1:
                raise
            request = commands.FetchOffsets(core.correlation(), group, list(wanted))
            now = {at.partition: at.offset for at in (await core.request(request, GroupOffsets)).offsets}
            if now != wanted:
                raise errors.OutcomeUnknown(
                    f"the answer to moving group {group!r} was lost, and it has been moved or claimed by somebody else "
                    f"since ({error}); whether it was at the new position in between is not known. Look at its "
                    "positions with group_offsets()"
                ) from error

    @client_method
    async def delete_group(self, group: str, group_id: bytes | None = None) -> None:
        """Delete a group with its positions; raises UnknownGroup, OffsetPending, GroupInUse.

        ``group_id`` is the id of the group to delete, as ``groups()`` returns it; None: the group that has the name
        now.
        """
        group, core = text("group", group, NOTHING_CHANGED), self.core
        group_id = None if group_id is None else octets("group_id", group_id, NOTHING_CHANGED)
        meant = await self._group_id(group) if group_id is None else group_id
        call = core.request(commands.DeleteGroup(core.correlation(), group, meant), Done)
        try:
            await call
        except errors.UnknownGroup:
            if call.attempts == 1:
                raise

    async def _group_id(self, group: str) -> bytes:
        core = self.core
        found = await core.request(commands.FetchOffsets(core.correlation(), group, []), GroupOffsets)
        if not found.id:
            raise errors.UnknownGroup(f"there is no group {group!r}; nothing has changed")
        return found.id

    # -- the broker --------------------------------------------------------------------------------

    @client_method
    async def status(self) -> dict[str, int | float | str]:
        """Return the broker's counters and gauges by name."""
        core = self.core
        return (await core.request(commands.AskStatus(core.correlation()), commands.Status)).values

    @client_method
    async def pin_files(self) -> int:
        """Keep the broker from removing files of its data directory; return the LSN of its newest checkpoint.

        Programs that read the files use this. The broker keeps the files that this checkpoint and the journal above it
        refer to until :meth:`unpin_files`, until this connection is lost, or until the disk needs the space. Raises
        DiskFull if the disk needs it already. A connection has one pin.
        """
        core = self.core
        return (await core.request(commands.PinFiles(core.correlation()), commands.FilesPinned)).lsn

    @client_method
    async def unpin_files(self) -> bool:
        """Release the files; return whether they have been kept all the time since :meth:`pin_files`."""
        core = self.core
        return (await core.request(commands.UnpinFiles(core.correlation()), commands.FilesPinned)).held

    @client_method
    def ping(self) -> Coroutine[Promise[Any], None, None]:
        """Return once the broker has answered."""
        return self.core.ping()


async def _polled(core: Core, call: Call[Fetched]) -> Fetched:
    """Wait for a fetch that may wait at the broker. If its caller gives up, it is cancelled there, too."""
    try:
        return await call
    finally:
        if not call.done and core.give_up(call):
            core.post(commands.Cancel(core.correlation(), call.request.correlation))


def _check_range(offset: int, max_bytes: int, max_wait: float) -> None:
    whole("offset", offset, NOTHING_READ)
    whole("max_bytes", max_bytes, NOTHING_READ)
    seconds("max_wait", max_wait, NOTHING_READ)


async def _first_since(core: Core, info: TopicInfo, wall: int) -> dict[int, int]:
    """Return the first offset appended at ``wall`` µs or later, by the index of its partition."""
    parts = {part.number: part.index for part in info.partitions}
    found: dict[int, int] = {}
    for some in requests_of(list(parts)):
        request = commands.OffsetsForTime(core.correlation(), some, wall)
        found.update((await core.request(request, commands.Offsets)).offsets)
    return {parts[number]: at for number, at in found.items()}


def _number(info: TopicInfo, index: int) -> int:
    wanted = named_index(index)
    for part in info.partitions:
        if part.index == wanted:
            return part.number
    raise _no_partition(info, index)


def _no_partition(info: TopicInfo, index: int) -> errors.UnknownPartition:
    return errors.UnknownPartition(f"{info.name} has {len(info.partitions)} partitions, none is {index}")


def _raise_error_of(part: FetchedPartition) -> None:
    if part.error == "OffsetOutOfRange":
        raise errors.OffsetOutOfRange(part.message, part.start_offset, part.high_watermark)
    if part.error:
        raise named_error(part.error, part.message, part.numbers or {}, part.texts or {})
