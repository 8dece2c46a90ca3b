"""The coordinator of all groups' members: joins, attendance, losses, assignments and hand-overs.

Everything runs on the reactor's thread. Members are in memory only; what entitles one to a partition is a claim in the
journal. See ``docs/decisions/0035-members.md``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.folds.groups import GroupsFold
from journal.formats.filenames import is_internal
from journal.formats.record import ClaimKind
from txbroker.errors import GroupKindConflict, LimitExceeded, MemberNameInUse, TxBrokerError, UnknownMember
from txbroker.members.assignment import share_out
from txbroker.members.claiming import MAX_CLAIMED, CheckRoom, Claiming
from txbroker.members.group_table import GroupTable, Kept
from txbroker.members.member import Member, MemberSession
from txbroker.members.settings import MemberSettings, check_join
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_ASSIGNED,
    AssignedPartition,
    Attend,
    Attended,
    Done,
    Joined,
    JoinGroup,
    LeaveGroup,
)
from txbroker.wire.refusals import check_entries
from txbroker.wire.secret import SECRET_BYTES, Secret

if TYPE_CHECKING:
    from journal.engine.engine import Engine

LATE: Final = 200_000
"""µs that a look may come late; more than that is the broker's own delay, and counts against no member."""

BUSY: Final = 0.05
"""Seconds until the next look while a large commit is applied."""

NEVER: Final = 1 << 60

FULL: Final = 1_000_000
"""µs until claims are tried again that a limit or a full disk has refused."""

RunBlocking = Callable[[Callable[[], Any], Callable[[Any], None], Callable[[BaseException], None]], None]


class Coordinator:
    """The members of all groups. ``answer(session, encoded)`` delivers an answer once all that was accepted is forced.

    ``call_later(seconds, call)`` is the reactor's.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: MemberSettings,
        groups: GroupsFold,
        check_room: CheckRoom,
        answer: Callable[[Any, bytes], object],
        run_blocking: RunBlocking,
        call_later: Callable[..., Any] | None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._groups = groups
        self._answer = answer
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._random = random
        self._catalog = engine.catalog
        self._started = engine.now()
        self._next_number = engine.start_number << 32 | 1
        self._timers: dict[str, tuple[int, Any]] = {}
        self.claiming = Claiming(engine, groups, check_room)
        self.tables: dict[str, GroupTable] = {}
        self.handlers: dict[type, Callable[..., Any]] = {
            JoinGroup: self.join,
            Attend: self.attend,
            LeaveGroup: self.leave,
        }

    @property
    def count(self) -> int:
        """How many members there are."""
        return sum(len(table.members) for table in self.tables.values())

    def has_members(self, group: str) -> bool:
        """Return whether a group has members now."""
        table = self.tables.get(group)
        return table is not None and bool(table.members)

    # -- requests ---------------------------------------------------------------------------------

    def join(self, session: MemberSession, command: JoinGroup, data: memoryview) -> Joined:  # noqa: ARG002
        """Make the session's client a member."""
        check_join(command)
        now = self._engine.now()
        table = self.tables.get(command.group)
        known = table.by_nonce(command.nonce) if table is not None else None
        if known is None:
            known = self._joined(command, now)
        self._attach(known, session, now)
        self._look(command.group)
        return Joined(command.correlation, known.number, known.secret)

    def _joined(self, command: JoinGroup, now: int) -> Member:
        group = command.group
        if not self._groups.find(group).may_be_claimed(ClaimKind.MEMBER):
            raise GroupKindConflict(
                f"the partitions of group {group!r} are claimed by consumers that name them, so they are not shared "
                "out to members; nothing has changed. Name partitions here, too, use another group, or delete that one"
            )
        if self.count >= self._settings.max_members:
            raise LimitExceeded(
                f"there are {self.count} members of groups, the limit is {self._settings.max_members} (max_members); "
                "nothing has changed"
            )
        table = self.tables.get(group) or self._new_table(group, command.id)
        self._check_name(table, command)
        member = Member(
            self._next_number, Secret(self._random(SECRET_BYTES)), command.nonce, group, command.name,
            frozenset(command.topics), command.pattern, command.session_timeout, command.max_handover, command.start,
            now,
        )  # fmt: skip
        self._check_room_for(table, member)
        self._next_number += 1
        is_first = not table.members
        if is_first:
            table.group_id = command.id
        self.tables[group] = table
        table.members[member.number] = member
        table.changes += 1
        self._take_back(table, member, command.owned)
        self._assign_by(table, now if is_first else now + self._settings.assignment_delay)
        return member

    def _new_table(self, group: str, group_id: bytes) -> GroupTable:
        """Return a table in which the partitions that were claimed before the start are kept for their members."""
        table, settings = GroupTable(group_id), self._settings
        for number, claim in self._groups.find(group).claims.items():
            is_static = claim.kind is ClaimKind.STATIC_MEMBER
            wait = settings.rejoin_timeout if is_static else settings.reconnect_grace
            table.keep([number], Kept(self._started + wait, claim.member if is_static else ""))
        return table

    def _check_name(self, table: GroupTable, command: JoinGroup) -> None:
        """Raise if a static member of that name is there; one whose connection is gone makes room for it."""
        namesake = table.by_name(command.name)
        if namesake is None:
            return
        if namesake.session is not None:
            raise MemberNameInUse(
                f"group {command.group!r} has a member {command.name!r} already, client {namesake.client!r} at "
                f"{namesake.peer}; nothing has changed. Give each process a name of its own, or end that one first"
            )
        self._remove(table, namesake)

    def _check_room_for(self, table: GroupTable, member: Member) -> None:
        """Raise if the group may not have so many partitions more."""
        numbers = [number for numbers in self._topics_of([member]).values() for number in numbers]
        self.claiming.check_room(member.group, table.group_id, numbers)

    def _take_back(self, table: GroupTable, member: Member, shown: Iterable[tuple[int, int]]) -> None:
        """Give a member the partitions of which it shows the generation."""
        claims = self._groups.find(member.group).claims
        for number, generation in shown:
            claim = claims.get(number)
            if claim is not None and claim.generation == generation and number not in table.owners:
                table.own(member, number, generation)

    def attend(self, session: MemberSession, command: Attend, data: memoryview) -> None:  # noqa: ARG002
        """Take what a member says of itself, and answer when there is something to tell."""
        check_entries("partitions", len(command.owned) + len(command.releasing))
        table, member = self._known(command.group, command.member, command.secret)
        now = self._engine.now()
        self._attach(member, session, now)
        member.shown = dict(command.owned)
        member.releasing = frozenset(command.releasing)
        member.waiting = command.correlation
        member.answer_at = now + member.session_timeout // 3
        for number in [each for each in member.asked if each not in member.shown]:
            table.disown(number)
        if table.to_place:
            self._look(command.group)
        else:
            self._tell(member)
            self._arm(command.group, min(member.answer_at, member.lost_at(0)))

    def leave(self, session: MemberSession, command: LeaveGroup, data: memoryview) -> Done:  # noqa: ARG002
        """End a membership."""
        try:
            table, member = self._known(command.group, command.member, command.secret)
        except UnknownMember:
            return Done(command.correlation)
        self._remove(table, member, for_good=command.for_good)
        self._look(command.group)
        return Done(command.correlation)

    def _known(self, group: str, number: int, secret: Secret) -> tuple[GroupTable, Member]:
        table = self.tables.get(group)
        member = table.members.get(number) if table is not None else None
        if table is None or member is None or not member.secret.is_same(secret):
            raise UnknownMember(
                f"group {group!r} has no member {number} with that secret: it has left, was not heard of in time, or "
                "the broker was started again. Its partitions may be others' by now; join again"
            )
        return table, member

    # -- sessions ---------------------------------------------------------------------------------

    def _attach(self, member: Member, session: MemberSession, now: int) -> None:
        """Note that a member was heard of on that session. Its earlier request is answered, or gone."""
        before = member.session
        if before is not session:
            if before is not None:
                before.members.pop(member, None)
            session.members[member] = None
            member.session, member.waiting = session, None
            member.client, member.peer = session.client, session.peer
        elif member.waiting is not None:
            self._send(member, Attended(member.waiting))
        member.heard = now

    def forget(self, session: MemberSession) -> None:
        """Take note that a session has ended: its members may come again within the grace."""
        now = self._engine.now()
        for member in list(session.members):
            member.session, member.waiting, member.heard = None, None, now
            self._arm(member.group, member.lost_at(self._settings.reconnect_grace))
        session.members.clear()

    def _remove(self, table: GroupTable, member: Member, for_good: bool = False) -> None:
        numbers, now = list(member.owned), self._engine.now()
        if member.session is not None:
            member.session.members.pop(member, None)
            if member.waiting is not None:
                self._send(member, Attended(member.waiting, lost=list(member.shown)))
        table.remove(member)
        if member.name and not for_good:
            table.keep(numbers, Kept(now + self._settings.rejoin_timeout, member.name))
        table.changes += 1
        self._assign_by(table, now)

    # -- topics -----------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Assign anew where topics were made, or have gone."""
        stores, now = self._catalog.stores, self._engine.now()
        for group, table in self.tables.items():
            for number in [each for each in table.owners if each not in stores]:
                table.disown(number)
            table.changes += 1
            self._assign_by(table, now)
            self._arm(group, now)

    def _topics_of(self, members: Iterable[Member]) -> dict[str, list[int]]:
        """Return the partitions of the topics that these members may read, by topic."""
        found: dict[str, list[int]] = {}
        asked = list(members)
        named = {topic for member in asked for topic in member.topics}
        with_pattern = {member.pattern: member for member in asked if member.pattern}
        for name, topic in self._catalog.topics.items():
            is_read = name in named or any(member.reads(name) for member in with_pattern.values())
            if is_read and not is_internal(name):
                found[name] = [store.number for store in topic.partitions]
        return found

    # -- looking after a group -------------------------------------------------------------------------

    def _assign_by(self, table: GroupTable, at: int) -> None:
        table.assign_at = at if table.assign_at is None else min(table.assign_at, at)

    def _arm(self, group: str, at: int) -> None:
        """Look after a group at that time, or earlier if that is planned already."""
        armed = self._timers.get(group)
        if armed is not None and armed[0] <= at:
            return
        if armed is not None:
            armed[1].cancel()
            del self._timers[group]
        if self._call_later is not None and at < NEVER:
            wait = max(0, at - self._engine.now()) / 1e6
            self._timers[group] = at, self._call_later(wait, partial(self._rang, group))

    def _rang(self, group: str) -> None:
        at, _ = self._timers.pop(group)
        now = self._engine.now()
        table = self.tables.get(group)
        if table is None or self._engine.failed:
            return
        if self._engine.busy and self._call_later is not None:
            self._timers[group] = at, self._call_later(BUSY, partial(self._rang, group))
            return
        if now - at > LATE:
            for member in table.members.values():
                member.heard += now - at
        self._look(group)

    def _look(self, group: str) -> None:
        """Do what is due in a group, and plan the next look."""
        table, now, grace = self.tables[group], self._engine.now(), self._settings.reconnect_grace
        for member in [each for each in table.members.values() if each.lost_at(grace) <= now]:
            if member.session is not None and not member.session.is_read():
                member.heard = now
            else:
                self._lose(table, member, now)
        for number in table.overdue(now):
            table.disown(number)
        for number in [each for each, kept in table.kept.items() if kept.until <= now]:
            del table.kept[number]
            table.to_place[number] = None
        if table.assign_at is not None and table.assign_at <= now and not table.is_assigning:
            self._assign(group, table)
        retry = self._place(group, table, now)
        for member in list(table.members.values()):
            self._tell(member)
            if member.waiting is not None and member.answer_at <= now:
                self._send(member, Attended(member.waiting))
        if not table.members and not table.kept:
            del self.tables[group]
            return
        self._arm(group, min([retry, *table.due(grace)], default=retry))

    def _lose(self, table: GroupTable, member: Member, now: int) -> None:
        why = "its connection is gone" if member.session is None else "it was silent"
        self.log.warn(
            "group {group} has lost member {number} ({client}): {why} for {seconds:.1f} s",
            group=member.group, number=member.number, client=member.name or member.client, why=why,
            seconds=(now - member.heard) / 1e6,
        )  # fmt: skip
        self._remove(table, member)

    def _assign(self, group: str, table: GroupTable) -> None:
        """Compute an assignment off the reactor."""
        table.assign_at, table.is_assigning = None, True
        changes, members = table.changes, list(table.members.values())
        topics = self._topics_of(members)
        owners = table.owners_by_number()
        self._run_blocking(
            lambda: share_out(
                {each.number: [topic for topic in topics if each.reads(topic)] for each in members},
                topics,
                owners,
            ),
            partial(self._assigned, group, table, changes),
            partial(self._not_assigned, group, table),
        )

    def _assigned(self, group: str, table: GroupTable, changes: int, target: dict[int, int]) -> None:
        table.is_assigning = False
        if self.tables.get(group) is not table:
            return
        if table.changes != changes:
            self._assign_by(table, self._engine.now())
        else:
            stores, known = self._catalog.stores, self.claiming.known_topics(group)
            topics = {stores[number].topic for number in target if number in stores}
            table.new_topics = (table.new_topics | topics) - known if table.to_place else topics - known
            table.aim(target)
        self._arm(group, self._engine.now())

    def _not_assigned(self, group: str, table: GroupTable, error: BaseException) -> None:
        self.log.error(
            "the assignment of group {group} failed: {error}; it is tried again", group=group, error=error
        )
        table.is_assigning = False
        self._assign_by(table, self._engine.now() + FULL)
        self._arm(group, self._engine.now() + FULL)

    def _place(self, group: str, table: GroupTable, now: int) -> int:
        """Ask partitions back, and claim what is free, as much as fits into a turn. Return when to go on."""
        claims: dict[Member, list[int]] = {}
        for count, (member, number) in enumerate(table.placed(now), 1):
            claims.setdefault(member, []).append(number)
            if count == MAX_CLAIMED:
                break
        try:
            while claims:
                member = next(iter(claims))
                self.claiming.claim(table, group, member, claims[member])
                del claims[member]
        except TxBrokerError as error:
            if self._engine.failed:
                raise
            self.log.warn(
                "group {group}: partitions wait for their claims: {error}", group=group, error=error
            )
            table.to_place.update(dict.fromkeys(number for numbers in claims.values() for number in numbers))
            return now + FULL
        return now if table.to_place else NEVER

    # -- answers ----------------------------------------------------------------------------------

    def _tell(self, member: Member) -> None:
        """Answer a member's request if there is something that it does not know."""
        if member.waiting is None:
            return
        shown, owned, asked = member.shown, member.owned, member.asked
        if shown == owned and not asked:
            return
        stores = self._catalog.stores
        lost = [number for number, generation in shown.items() if owned.get(number) != generation]
        revoked = [
            each for each in asked if each in shown and each not in member.releasing and each not in lost
        ]
        fresh = [
            each for each in owned if shown.get(each) != owned[each] and each not in asked and each in stores
        ]
        if lost or revoked or fresh:
            assigned = [
                AssignedPartition(number, owned[number], stores[number].topic, stores[number].index)
                for number in fresh[:MAX_ASSIGNED]
            ]
            self._send(member, Attended(member.waiting, assigned, revoked, lost))

    def _send(self, member: Member, answer: Attended) -> None:
        member.waiting = None
        if member.session is not None:
            self._answer(member.session, encode(answer))
