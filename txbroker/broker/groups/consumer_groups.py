"""Consumer groups: what they have finished, claims, and the offsets that undecided transactions hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from journal.constants import MAX_REQUEST_ENTRIES
from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.records.access_entries import Resource
from journal.records.group_entries import (
    ClaimKind,
    GroupPositions,
    PartitionOffset,
    RetryRules,
    Settled,
)
from journal.records.queue_entries import QUEUE_GROUP
from journal.records.record import GroupAltered, GroupDeleted, OffsetsCommitted, PartitionsClaimed
from journal.transaction_states import TransactionNumber
from journal.words import count_text
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sessions.rights import Rights, described, may_describe_topic
from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import (
    GroupInUse,
    GroupKindConflict,
    InvalidSetting,
    LimitExceeded,
    OffsetOutOfRange,
    OffsetPending,
    PositionMoved,
    UnknownGroup,
)
from txbroker.groups.claim_settlement import ClaimSettlement
from txbroker.groups.group_settings import changed_settings
from txbroker.groups.retries import check_said, is_queue
from txbroker.groups.settlement_judge import SettlementJudge
from txbroker.wire.codec import ArrayPieces
from txbroker.wire.messages import (
    AlterGroup,
    Claimed,
    ClaimPartitions,
    CommitOffsets,
    DeleteGroup,
    Done,
    FetchOffsets,
    GroupInfo,
    GroupOffset,
    GroupOffsets,
    Groups,
    ListGroups,
    Request,
)
from txbroker.wire.refusals import (
    check_entries,
    check_id,
    check_name,
    check_not_reserved,
    encode_bounded,
    unknown_partition,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

IN_A_STEP: Final = 256
"""How many positions are reported in one step: 0.2 ms."""


class Consuming:
    """The meaning of the commands for groups."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        groups: GroupsFold,
        stepwise: Stepwise,
        random: Callable[[int], bytes],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._groups = groups
        self._stores = engine.catalog.stores
        self._stepwise = stepwise
        self._judge = SettlementJudge(engine, settings, groups, random)
        self.recorded, self.check_settled = self._judge.recorded, self._judge.check
        self.at_claims = ClaimSettlement(engine, groups, self.recorded, self.check_settled)
        self.catch_up: Callable[[str, list[int]], object] = lambda group, partitions: None  # noqa: ARG005
        """Called with a group and partitions before it is judged what is settled there: what does not match the filter
        of the group may be finished first.
        """
        self.filter_begins: Callable[[str], object] = len
        """Called with the name of a group that gets a filter."""
        self.judge_queues: Callable[[int, Sequence[PartitionOffset], Sequence[Settled], bool], object] = (
            unheard
        )
        """Raises unless the session of that number may settle this of queues."""
        self.on_returned: Callable[[int, Sequence[Settled]], object] = unheard
        """Called with what a session has settled of queues, as it is recorded."""
        self.count_members: Callable[[str], int] = lambda group: 0  # noqa: ARG005
        """Returns how many members a group has now."""
        self.end_memberships: Callable[[str], object] = len
        """Called with the name of a group whose claims have been fenced, or that was deleted."""
        self.handlers: dict[type[Request], Any] = {
            CommitOffsets: self.commit_offsets,
            FetchOffsets: self.fetch_offsets,
            ClaimPartitions: self.claim,
            ListGroups: self.list_groups,
            DeleteGroup: self.delete,
            AlterGroup: self.alter,
        }
        """The commands, each with its meaning."""

    def rules_of_queues(self, rules_of: Callable[[MessageStore], RetryRules]) -> None:
        """Note what returns the rules by which the messages of a queue are delivered again."""
        self._judge.retries.rules_of = lambda group, store: (
            rules_of(store) if is_queue(store) else group.settings.retry
        )

    # -- judging, also for transactions -------------------------------------------------------------

    def judge(
        self,
        name: str,
        group_id: bytes,
        offsets: Sequence[PartitionOffset],
        settled: Sequence[Settled] = (),
        session: int = 0,
        is_final: bool = False,
    ) -> None:
        """Raise if a group may not take these positions, or may not be made with that id if it is new.

        ``session`` is the number of the one that settles; ``is_final`` outside of transactions. What it settles is
        judged by :meth:`recorded`, and by the group's state by :meth:`check_settled`.
        """
        if not offsets and not settled:
            raise InvalidSetting(f"no offsets for group {name!r}; nothing has changed")
        check_entries("positions", len(offsets))
        if name == QUEUE_GROUP:
            self.judge_queues(session, offsets, settled, is_final)
            return
        partitions = [offset.partition for offset in offsets]
        if settled:
            self.catch_up(name, [each.partition for each in settled])
        self.check_room(
            name, group_id, [*partitions, *(each.partition for each in settled)] if settled else partitions
        )
        for offset in offsets:
            store = self._stores.get(offset.partition)
            if store is None:
                raise unknown_partition(offset.partition)
            if not 0 <= offset.offset <= store.high_watermark:
                raise OffsetOutOfRange(
                    f"offset {offset.offset} of {store.topic}-{store.index} for group {name!r} is not within "
                    f"0 to {store.high_watermark}, the end of what can be read; nothing has changed",
                    0,
                    store.high_watermark,
                )
            if len(offset.metadata) > self._settings.max_offset_metadata:
                raise LimitExceeded(
                    f"metadata of {len(offset.metadata)} characters, the limit is "
                    f"{self._settings.max_offset_metadata} (max_offset_metadata); nothing has changed"
                )
            self._groups.check_generation(name, offset)

    def check_staged(self, number: TransactionNumber) -> None:
        """Raise ``GenerationFenced``, ``LimitExceeded`` or ``OffsetPending`` unless what the active transaction has
        staged may be settled now.
        """
        staged = self._groups.staged(number)
        for each in staged:
            for offset in each.offsets:
                self._groups.check_generation(each.group, offset)
            for settled in each.settled:
                self._groups.check_generation(each.group, settled)
            if each.group == QUEUE_GROUP:
                self.judge_queues(number.session, each.offsets, each.settled, False)
        if staged:
            self.check_settled(staged)
            self._engine.transactions.check_unheld(staged)

    def check_room(self, name: str, group_id: bytes, partitions: Iterable[int]) -> None:
        """Raise for a bad name, and for a new group or new positions over a limit or on a full disk."""
        known = self._groups.groups.get(name)
        if known is None:
            check_name("group", name)
            check_id("group", name, group_id)
            if len(self._groups.groups) >= self._settings.max_groups:
                raise LimitExceeded(
                    f"there are {len(self._groups.groups)} groups, the limit is {self._settings.max_groups} "
                    "(max_groups); nothing has changed. Delete one"
                )
        fresh = {number for number in partitions if known is None or number not in known}
        if not fresh:
            return
        if self._engine.full:
            raise disk_full()
        total = self._groups.pairs + len(fresh)
        if total > self._settings.max_group_positions:
            raise LimitExceeded(
                f"{total} positions of groups in partitions, the limit is {self._settings.max_group_positions} "
                "(max_group_positions); nothing has changed. Delete a group"
            )

    def describe(self, number: TransactionNumber) -> str:
        """Return a transaction's number and xid, for people."""
        known = self._engine.transactions.live.get(number)
        return f"{number} (xid {known.xid})" if known is not None and known.xid is not None else str(number)

    # -- commands ---------------------------------------------------------------------------------

    def commit_offsets(self, session: Session, command: CommitOffsets, data: memoryview) -> Done:  # noqa: ARG002
        """Move a group's positions, or settle single offsets."""
        if command.stop:
            self._stop_and_move(session, command)
            return Done(command.correlation)
        if command.expected is not None:
            self._check_no_members(command.group)
        check_said(command.settled)
        self.settle(
            command.group, command.id, command.offsets, command.settled, command.expected, session.number
        )
        return Done(command.correlation)

    def _stop_and_move(self, session: Session, command: CommitOffsets) -> None:
        """Fence whoever reads for a group, move its positions, and end its memberships.

        The claims come before the move, and all that can be refused before the claims; see
        ``docs/decisions/0044-stopped-groups.md``.
        """
        name, offsets = command.group, command.offsets
        check_not_reserved(name)
        if command.expected is None or command.settled:
            raise InvalidSetting(
                f"members of group {name!r} are stopped only to move positions, with what these are expected to be; "
                "nothing has changed"
            )
        self.judge(name, command.id, offsets)
        self._engine.transactions.check_unheld([GroupPositions(name, command.id, offsets)])
        self._check_expected(name, offsets, command.expected, only_unclaimed=True)
        self._fence(name, command.id, session.client, [each.partition for each in offsets])
        group = self._groups.find(name)
        moved = [replace(each, generation=group.generation(each.partition)) for each in offsets]
        self._engine.accept(OffsetsCommitted(name, moved, self._engine.now(), self._made(name, command.id)))
        self.end_memberships(name)

    def _fence(self, name: str, group_id: bytes, client: str, moved: Iterable[int]) -> None:
        """Claim all that a group has claimed, and what is moved, for nobody. Of a group that nobody reads for, nothing
        is claimed: a claim would give it a kind.
        """
        claims = self._groups.find(name).claims
        claim = next(iter(claims.values()), None)
        if claim is None and not self.count_members(name):
            return
        is_for_members = claim is None or claim.kind.is_for_member
        kind = ClaimKind.MEMBER if is_for_members else ClaimKind.CONSUMER
        numbers, generation = sorted({*claims, *moved}), self._groups.last_generation + 1
        for first in range(0, len(numbers), MAX_REQUEST_ENTRIES):
            some = [(number, generation) for number in numbers[first : first + MAX_REQUEST_ENTRIES]]
            made = self._made(name, group_id)
            self._engine.accept(PartitionsClaimed(name, client, some, self._engine.now(), made, kind=kind))

    def settle(
        self,
        name: str,
        group_id: bytes,
        offsets: list[PartitionOffset],
        settled: Sequence[Settled],
        expected: Sequence[int | None] | None = None,
        session: int = 0,
    ) -> None:
        """Move a group's positions, or settle offsets, outside a transaction: the ``expected`` positions, if given."""
        self.judge(name, group_id, offsets, settled, session, is_final=True)
        positions = [GroupPositions(name, group_id, offsets, list(settled))]
        if settled:
            positions = self.recorded(positions)
            self.check_settled(positions)
        self._engine.transactions.check_unheld(positions)
        if expected is not None:
            self._check_expected(name, offsets, expected)
        made = self._made(name, group_id)
        self._engine.accept(OffsetsCommitted(name, offsets, self._engine.now(), made, positions[0].settled))
        if name == QUEUE_GROUP:
            self.on_returned(session, positions[0].settled)

    def _made(self, name: str, group_id: bytes) -> bytes:
        """Return the id for the record that makes a group; empty if the group exists."""
        return b"" if name in self._groups.groups else group_id

    def _check_expected(
        self,
        name: str,
        offsets: Sequence[PartitionOffset],
        expected: Sequence[int | None],
        *,
        only_unclaimed: bool = False,
    ) -> None:
        """Raise ``PositionMoved`` unless the group's positions are the expected ones: all, or those that nobody has
        claimed.
        """
        if len(expected) != len(offsets):
            raise InvalidSetting(
                f"{len(expected)} expected positions for {len(offsets)} offsets of group {name!r}; nothing has changed"
                ". Give one for each"
            )
        group = self._groups.find(name)
        for offset, wanted in zip(offsets, expected, strict=True):
            position = group.position(offset.partition)
            if position != wanted and not (only_unclaimed and offset.partition in group.claims):
                store = self._stores[offset.partition]
                raise PositionMoved(
                    f"group {name!r} stands at {_place(position)} in {store.topic}-{store.index}, not at "
                    f"{_place(wanted)} as expected: somebody has moved it. Nothing has changed; look where it is to go "
                    "from there"
                )

    def fetch_offsets(self, session: Session, command: FetchOffsets, data: memoryview) -> None:  # noqa: ARG002
        """Return a group's positions, and the transactions that hold some."""
        check_name("group", command.group)
        check_entries("partitions", len(command.partitions or ()))
        self._stepwise.answer(session, command, self._positions(command, session.rights))

    def _positions(self, command: FetchOffsets, rights: Rights | None) -> Steps:
        """Make the answer with a group's positions; positions that are in one step are of one moment."""
        group = self._groups.find(command.group)
        wanted, wanted_all = command.partitions, command.partitions is None
        if wanted is None:
            wanted = sorted(group.partitions() | self._groups.holders(command.group).keys())
        found = ArrayPieces()
        for first in range(0, len(wanted), IN_A_STEP):
            some = []
            for number in wanted[first : first + IN_A_STEP]:
                store = self._stores.get(number)
                if store is not None:
                    if wanted_all and not may_describe_topic(store.topic, rights):
                        continue
                    holder = self._groups.holder(command.group, number)
                    some.append(self._position(group, number, holder))
                elif not wanted_all:
                    raise unknown_partition(number)
            found.add(some)
            yield None
        is_filtered = wanted_all and rights is not None
        return encode_bounded(GroupOffsets(command.correlation, found.joined(), group.id, is_filtered))

    def _position(self, group: Group, partition: int, holder: TransactionNumber | None) -> GroupOffset:
        offset, metadata = group.positions.get(partition, (None, ""))
        pending = "" if holder is None else self.describe(holder)
        return GroupOffset(partition, offset, group.generation(partition), metadata, pending)

    def claim(self, session: Session, command: ClaimPartitions, data: memoryview) -> Claimed:  # noqa: ARG002
        """Claim partitions for a member. A partition that a transaction holds can be claimed: its offset is pending."""
        check_name("member", command.member)
        check_not_reserved(command.group)
        check_entries("partitions", len(command.partitions))
        partitions = list(dict.fromkeys(command.partitions))
        if not partitions:
            raise InvalidSetting(f"no partitions to claim for group {command.group!r}; nothing has changed")
        self._check_kind(command.group)
        self.check_room(command.group, command.id, partitions)
        for number in partitions:
            if number not in self._stores:
                raise unknown_partition(number)
        generation = self._groups.last_generation + 1
        claims = [(number, generation) for number in partitions]
        made = self._made(command.group, command.id)
        self._engine.accept(
            PartitionsClaimed(command.group, command.member, claims, self._engine.now(), made)
        )
        return Claimed(command.correlation, claims)

    def _check_kind(self, name: str) -> None:
        """Raise if the group's partitions are shared out to members."""
        if self.count_members(name) or not self._groups.find(name).may_be_claimed(ClaimKind.CONSUMER):
            raise GroupKindConflict(
                f"the partitions of group {name!r} are shared out to its members, so none can be claimed by naming it; "
                "nothing has changed. Join the group (name no partitions), use another one, or delete it"
            )

    def _check_no_members(self, name: str) -> None:
        """Raise if members of the group read now."""
        count = self.count_members(name)
        if count:
            raise GroupInUse(
                f"group {name!r} has {count_text(count, 'member')} now; nothing has changed. Stop them first, or end "
                "their memberships with it: stop=True, on the command line --stop"
            )

    def list_groups(self, session: Session, command: ListGroups, data: memoryview) -> None:  # noqa: ARG002
        """Return every group with its lag."""
        self._stepwise.answer(session, command, self._listed(command.correlation, session.rights))

    def _listed(self, correlation: int, rights: Rights | None) -> Steps:
        groups, found = self._groups.groups, ArrayPieces()
        for name in sorted(described(Resource.GROUP, groups, rights)):
            group = groups.get(name)
            if group is not None and name != QUEUE_GROUP:  # it may have been deleted since
                lags = ArrayPieces()
                places = self._places(group)
                for first in range(0, len(places), IN_A_STEP):
                    lags.add(self._lags(group, places[first : first + IN_A_STEP], rights))
                    yield None
                found.add([GroupInfo(name, lags.joined(), group.id)])
            yield None
        return encode_bounded(Groups(correlation, found.joined(), rights is not None))

    def _places(self, group: Group) -> list[int]:
        """Return the partitions that it has positions in, sorted by the name of the topic, and by index."""
        topics: dict[str, list[int]] = {}
        for number in sorted(group.positions):
            topics.setdefault(self._stores[number].topic, []).append(number)
        return [number for topic in sorted(topics) for number in topics[topic]]

    def _lags(
        self, group: Group, numbers: Sequence[int], rights: Rights | None
    ) -> list[tuple[str, int, int, int]]:
        found = []
        for number in numbers:
            store, position = self._stores.get(number), group.positions.get(number)
            if store is not None and position is not None and may_describe_topic(store.topic, rights):
                found.append((store.topic, store.index, position[0], store.high_watermark - position[0]))
        return found

    def alter(self, session: Session, command: AlterGroup, data: memoryview) -> Done:  # noqa: ARG002
        """Change settings of a group; makes it if it is not there."""
        name = command.group
        check_not_reserved(name)
        self.check_room(name, command.id, ())
        group = self._groups.find(name)
        there, known = name in self._groups.groups, group.settings
        is_in_use = bool(group.positions or group.claims or self.count_members(name))
        wanted = changed_settings(name, known, command, is_in_use=is_in_use)
        if wanted != known or not there:
            if self._engine.full:
                raise disk_full()
            if wanted.tags and not known.tags:
                self.filter_begins(name)
            made = self._made(name, command.id)
            self._engine.accept(GroupAltered(name, wanted, self._engine.now(), made, session.as_actor()))
        return Done(command.correlation)

    def delete(self, session: Session, command: DeleteGroup, data: memoryview) -> Done:  # noqa: ARG002
        """Delete a group unless an undecided transaction will move it."""
        check_not_reserved(command.group)
        known = self._groups.groups.get(command.group)
        if known is None:
            raise UnknownGroup(f"there is no group {command.group!r}; nothing has changed")
        if known.id != command.id:
            raise UnknownGroup(
                f"the group {command.group!r} that was meant has been deleted; the one that is there now was "
                "made since. Nothing has changed. Ask for the groups again"
            )
        if not command.stop:
            self._check_no_members(command.group)
        if holder := next(iter(self._groups.holders(command.group).values()), None):
            raise OffsetPending(
                f"group {command.group!r} is held by the prepared transaction {self.describe(holder)}; "
                "nothing has changed. Commit it or roll it back first"
            )
        self._engine.accept(GroupDeleted(command.group, self._engine.now(), session.as_actor()))
        self.end_memberships(command.group)
        return Done(command.correlation)


def _place(position: int | None) -> str:
    return "no position" if position is None else f"offset {position}"
