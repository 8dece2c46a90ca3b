"""The requests of every client about topics, files and the broker itself, written once for all clients."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

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
)
from journal.settings import TopicChoices, topic_settings
from txbroker import errors
from txbroker.client.core.background_worker import Companion
from txbroker.client.core.call import Call, named_error
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.positions import requests_of
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import (
    Frames,
    Listed,
    Message,
    PinnedFiles,
    decoded,
)
from txbroker.client.operations.access_operations import AccessOperations
from txbroker.client.operations.group_operations import GroupOperations
from txbroker.client.operations.message_search import checked_question, messages_found
from txbroker.client.operations.queue_operations import QueueOperations
from txbroker.client.operations.schedule_operations import ScheduleOperations
from txbroker.client.operations.topic_creation import create_topic, described
from txbroker.client.operations.topic_lookup import no_partition, number_of, one_topic
from txbroker.wire import messages as commands
from txbroker.wire.messages import (
    CloseSession,
    Done,
    Fetched,
    FetchedPartition,
    ListSessions,
    SessionInfo,
    Sessions,
    TopicInfo,
)


class Operations(GroupOperations, AccessOperations, ScheduleOperations, QueueOperations):
    """The methods of every client's connection that read or change something at the broker."""

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
    async def delete_topic(
        self, name: str, topic_id: bytes | None = None, *, scheduled: bool = False
    ) -> None:
        """Delete a topic with its messages; raises UnknownTopic, TransactionConflict, and ScheduledForTopic.

        With ``scheduled``, messages that are scheduled for the topic do not keep it: they go nowhere when they are due.

        ``topic_id`` is the id of the topic to delete, as ``topics()`` returns it; None: the topic that has the name
        now.
        """
        name, core = text("name", name, NOTHING_CHANGED), self.core
        topic_id = None if topic_id is None else octets("topic_id", topic_id, NOTHING_CHANGED)
        truth("scheduled", scheduled, NOTHING_CHANGED)
        meant = (await one_topic(self.core, name)).id if topic_id is None else topic_id
        call = core.request(commands.DeleteTopic(core.correlation(), name, meant, scheduled), Done)
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
        meant = (await one_topic(self.core, name)).id if topic_id is None else topic_id
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
        info, core = await one_topic(self.core, topic), self.core
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
            raise no_partition(info, index)
        places = [(numbers[index], at) for index, at in starts.items()]
        for first in range(0, len(places), commands.MAX_PURGED):
            some = places[first : first + commands.MAX_PURGED]
            await core.request(commands.Purge(core.correlation(), some), Done)
        return {p.index: max(p.start_offset, starts[p.index]) for p in info.partitions if p.index in starts}

    @client_method
    async def topics(self, names: Iterable[str] | None = None) -> Listed[TopicInfo]:
        """Return descriptions of topics, sorted by name. Names that do not exist are left out.

        Without ``names`` they are those that the client's principal may describe; the list's ``is_filtered`` says
        whether there may be others. Raises AccessDenied for a name that it may not.
        """
        return await described(self.core, None if names is None else texts("names", names, NOTHING_READ))

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
        number = number_of(await one_topic(self.core, topic), partition)
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
        return await _first_since(self.core, await one_topic(self.core, topic), wall)

    @client_method
    async def find(
        self,
        topic: str,
        *,
        key: bytes | None = None,
        id: str | bytes | None = None,
        tag: str | None = None,
        partition: int | None = None,
        start: int = 0,
        limit: int = 100,
    ) -> list[Message]:
        """Return the messages of a topic with this key, this id and this tag, of which two may be left out, in the
        order of partitions and offsets.

        They are at most ``limit``; of all partitions, or of one, from the offset ``start`` on. The broker looks through
        what the log has at the call. Raises UnknownTopic, UnknownPartition, CorruptSegment (which says where to go on),
        Misuse without any of the three, WrongType, WrongValue.
        """
        question = checked_question(key, id, tag, start, limit)
        chosen = None if partition is None else named_index(partition)
        info = await one_topic(self.core, text("topic", topic, NOTHING_READ))
        if chosen is not None:
            number_of(info, chosen)
        parts = [part for part in info.partitions if chosen in (None, part.index)]
        return await messages_found(self.core, topic, parts, question, self._fetch)

    # -- the broker --------------------------------------------------------------------------------

    @client_method
    async def status(self) -> dict[str, int | float | str]:
        """Return the broker's counters and gauges by name."""
        core = self.core
        return (await core.request(commands.AskStatus(core.correlation()), commands.Status)).values

    @client_method
    async def sessions(self) -> list[SessionInfo]:
        """Return the broker's open sessions, by their numbers; this one is among them."""
        core, found, after = self.core, list[SessionInfo](), 0
        while True:
            page = await core.request(ListSessions(core.correlation(), after), Sessions)
            found += page.sessions
            if not page.more or not page.sessions:
                return found
            after = found[-1].session

    @client_method
    async def close_session(self, session: int, *, by: str = "", why: str = "") -> None:
        """End another session, by its number. Its client is told ``why``, and connects again by itself, as a rule.

        ``by`` says who wants that, "" for this client's name; both are logged by the broker. Raises UnknownSession.
        """
        number = whole("session", session, "nothing was done", least=1)
        by, why = text("by", by, "nothing was done"), text("why", why, "nothing was done")
        await self.core.request(CloseSession(self.core.correlation(), number, by, why), Done)

    @client_method
    async def pin_files(self) -> PinnedFiles:
        """Keep the broker from removing files of its data directory; return what the files have then, as LSNs.

        Programs that read the files use this. The broker keeps the files that this checkpoint and the journal above it
        refer to until :meth:`unpin_files`, until this connection is lost, or until the disk needs the space. Raises
        DiskFull if the disk needs it already. A connection has one pin.
        """
        core = self.core
        pinned = await core.request(commands.PinFiles(core.correlation()), commands.FilesPinned)
        return PinnedFiles(pinned.lsn, pinned.cut)

    @client_method
    async def files_pinned(self) -> bool:
        """Return whether the files have been kept all the time since :meth:`pin_files`, and still are."""
        core = self.core
        request = commands.PinFiles(core.correlation(), again=True)
        return (await core.request(request, commands.FilesPinned)).held

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


def _raise_error_of(part: FetchedPartition) -> None:
    if part.error == "OffsetOutOfRange":
        raise errors.OffsetOutOfRange(part.message, part.start_offset, part.high_watermark)
    if part.error:
        raise named_error(part.error, part.message, part.numbers or {}, part.texts or {})
