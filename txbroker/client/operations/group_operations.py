"""The requests of every client about consumer groups, written once for all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Unpack

from journal.arguments import NOTHING_CHANGED, NOTHING_READ, listed, octets, text, truth, whole, wrong_type
from journal.records.group_entries import PartitionOffset
from txbroker import errors
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.group_settings import GroupChoices, alter_settings
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.results import (
    GroupDescription,
    GroupPosition,
    Listed,
    ParkedMessage,
    described_group,
)
from txbroker.client.core.results import listed as listed_here
from txbroker.client.operations.parked import parked_messages, release
from txbroker.client.operations.topic_creation import described
from txbroker.client.operations.topic_lookup import number_of, one_topic
from txbroker.wire import messages as commands
from txbroker.wire.messages import Done, GroupInfo, GroupOffsets

MOVES: Final = 10
"""How often a group whose members are to be stopped is moved, if partitions change hands at the same time."""


class GroupOperations:
    """The methods of every client's connection that read or change consumer groups."""

    core: Core

    @client_method
    async def groups(self) -> Listed[GroupInfo]:
        """Return all consumer groups with their positions and lags: those that the client's principal may describe.

        The list's ``is_filtered`` says whether there may be others.
        """
        core = self.core
        found = await core.request(commands.ListGroups(core.correlation()), commands.Groups)
        return listed_here(found.groups, found.is_filtered)

    @client_method
    async def group_offsets(self, group: str) -> Listed[GroupPosition]:
        """Return the positions of a group, sorted by topic and partition, in topics that the client's principal may
        describe. The list's ``is_filtered`` says whether there may be others.
        """
        group, core = text("group", group, NOTHING_READ), self.core
        places = {
            p.number: (topic.name, p.index) for topic in await described(core, None) for p in topic.partitions
        }
        request = commands.FetchOffsets(core.correlation(), group)
        told = await core.request(request, GroupOffsets)
        found = sorted(
            GroupPosition(*places[at.partition], at.offset, at.generation, at.metadata, at.pending_by)
            for at in told.offsets
            if at.partition in places
        )
        return listed_here(found, told.is_filtered)

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
    async def alter_group(self, group: str, **settings: Unpack[GroupChoices]) -> None:
        """Change these settings of a group, whatever they were before, and no others; makes the group.

        ``retry`` is a :class:`RetryPolicy`, or None: each retry says then when the message comes again. It holds from
        the next failure on; what waits already stays due when it is. ``expiry`` is after how many seconds without use
        the group is deleted: 0 for never, None for what the broker does with groups that say nothing. ``tags`` are
        those of which a message has one if it is for the group, None or [] for all; what was examined before stays
        finished. Raises WrongType, WrongValue, InvalidName, LimitExceeded.
        """
        await alter_settings(self.core, text("group", group, NOTHING_CHANGED), settings, NOTHING_CHANGED)

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
        number, meant = number_of(await one_topic(self.core, topic), index), await self._group_id(group)
        await release(self.core, group, meant, number, some, what)

    @client_method
    async def set_offsets(
        self, group: str, topic: str, offsets: Mapping[int, int], *, stop: bool = False
    ) -> None:
        """Move a group to other positions, given as offsets by partition. Claims of its consumers stay valid.

        Raises PositionMoved if a consumer or another program moves the group at the same time, and GroupInUse if the
        group has members, which would go on from where they are: stop them first. Or say ``stop``: then whoever reads
        for the group is fenced, with what it has under way. Its members join again by themselves, and go on at the new
        positions; consumers that name their partitions raise GenerationFenced.
        """
        group, topic = text("group", group, NOTHING_CHANGED), text("topic", topic, NOTHING_CHANGED)
        truth("stop", stop, NOTHING_CHANGED)
        if not isinstance(offsets, Mapping):
            raise wrong_type("offsets", offsets, "a dict of partitions and offsets", NOTHING_CHANGED)
        places = {
            named_index(index): whole("offset", offset, NOTHING_CHANGED) for index, offset in offsets.items()
        }
        info = await one_topic(self.core, topic)
        wanted = {number_of(info, index): offset for index, offset in places.items()}
        for left in reversed(range(MOVES if stop else 1)):
            try:
                return await self._move(group, wanted, stop)
            except errors.GenerationFenced:  # a partition has changed hands meanwhile; nothing was moved
                if not left:
                    raise
        return None

    async def _move(self, group: str, wanted: Mapping[int, int], stop: bool) -> None:
        """Move a group to these positions, by the numbers of the partitions, from where it is."""
        core = self.core
        request = commands.FetchOffsets(core.correlation(), group, list(wanted))
        before = {at.partition: at for at in (await core.request(request, GroupOffsets)).offsets}
        moved = [PartitionOffset(number, at, before[number].generation) for number, at in wanted.items()]
        expected = [before[number].offset for number in wanted]
        move = commands.CommitOffsets(core.correlation(), group, moved, expected=expected, stop=stop)
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
    async def delete_group(self, group: str, group_id: bytes | None = None, *, stop: bool = False) -> None:
        """Delete a group with its positions and its retry policy; raises UnknownGroup, OffsetPending, GroupInUse.

        ``group_id`` is the id of the group to delete, as ``groups()`` returns it; None: the group that has the name
        now. With ``stop`` a group that has members is deleted, too: they join again by themselves, which makes another
        group.
        """
        group, core = text("group", group, NOTHING_CHANGED), self.core
        group_id = None if group_id is None else octets("group_id", group_id, NOTHING_CHANGED)
        truth("stop", stop, NOTHING_CHANGED)
        meant = await self._group_id(group) if group_id is None else group_id
        call = core.request(commands.DeleteGroup(core.correlation(), group, meant, stop), Done)
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
