"""The coordinator of all groups' members: joins, attendance, losses, assignments and hand-overs.

Everything runs on the reactor's thread. Members are in memory only; what entitles one to a partition is a claim in the
journal. See ``docs/decisions/0035-members.md``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.folds.groups import GroupsFold
from journal.records.group_entries import ClaimKind
from txbroker.errors import (
    GroupKindConflict,
    LimitExceeded,
    MemberNameInUse,
    UnknownMember,
)
from txbroker.members.assignment import assign
from txbroker.members.claiming import MAX_CLAIMED, Claiming, Judge
from txbroker.members.group_table import GroupTable, Kept
from txbroker.members.member import Member, MemberSession, matcher, unknown_member
from txbroker.members.settings import MemberSettings, check_begun, check_finished, check_join, check_owned
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_ASSIGNED,
    AssignedPartition,
    Attend,
    Attended,
    BeginMessages,
    Done,
    Joined,
    JoinGroup,
    LeaveGroup,
)
from txbroker.wire.secret import SECRET_BYTES, Secret

if TYPE_CHECKING:
    from journal.engine.engine import Engine

LATE: Final = 200_000
"""µs that a look may come late; more than that is the broker's own delay, and counts against no member."""

HEARING: Final = 1_000_000
"""µs that members have after such a delay: what they sent in it has not been read yet."""

BUSY: Final = 0.05
"""Seconds until the next look while a large commit is applied."""

NEVER: Final = 1 << 60

AGAIN: Final = 1_000_000
"""µs until something is tried again that has failed: an assignment, or claims that a limit or a full disk refused."""

MAX_LOST: Final = 100
"""Most members that are lost in a turn."""

ROUNDS: Final = 30
"""Answers that have nothing to tell are due at multiples of this part of the session time-out, so that one look serves
many members: a look at 1,000 of them takes 0.7 ms.
"""

RunBlocking = Callable[[Callable[[], Any], Callable[[Any], None], Callable[[BaseException], None]], None]


class Coordinator:
    """The members of all groups. ``answer(session, encoded)`` delivers an answer once all that was accepted is forced.

    ``call_later(seconds, call)`` is the reactor's. ``on_failure(doing, error)`` must end the process.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: MemberSettings,
        groups: GroupsFold,
        judge: Judge,
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
        self._started, self._last_before = engine.now(), groups.last_generation
        self._next_number = engine.start_number << 32 | 1
        self._timers: dict[str, tuple[int, Any]] = {}
        self.on_failure: Callable[[str, BaseException], None] | None = None
        self._claiming = Claiming(engine, groups, judge)
        self.tables: dict[str, GroupTable] = {}
        self.handlers: dict[type, Callable[..., Any]] = {
            JoinGroup: self.join,
            Attend: self.attend,
            BeginMessages: self.begin,
            LeaveGroup: self.leave,
        }

    @property
    def count(self) -> int:
        """How many members there are."""
        return sum(len(table.members) for table in self.tables.values())

    def count_members(self, group: str) -> int:
        """Return how many members a group has now."""
        table = self.tables.get(group)
        return 0 if table is None else len(table.members)

    def member_of(self, group: str, number: int, secret: Secret) -> Member | None:
        """Return the member of that number, if that is its secret."""
        member = self.tables[group].members.get(number) if group in self.tables else None
        return member if member is not None and member.secret.is_same(secret) else None

    # -- requests ---------------------------------------------------------------------------------

    def join(self, session: MemberSession, command: JoinGroup, data: memoryview) -> Joined | None:  # noqa: ARG002
        """Make the session's client a member. Nothing is done for a session that has ended while its request waited."""
        check_join(command)
        if not session.is_open:
            return None
        group, now = command.group, self._engine.now()
        table = self.tables.get(group)
        known = table.by_nonce(command.nonce) if table is not None else None
        if known is None:
            known = self._joined(command, now)
        self._attach(known, session, now)
        due = min(self.tables[group].due(self._settings.reconnect_grace))
        if due <= now:
            self._look(group)
        else:
            self._arm(group, due)
        return Joined(command.correlation, known.number, known.secret)

    def _joined(self, command: JoinGroup, now: int) -> Member:
        group = command.group
        if not self._groups.find(group).may_be_claimed(ClaimKind.MEMBER):
            raise GroupKindConflict(
                f"the partitions of group {group!r} are claimed by consumers that name them, so they are not shared "
                "out to members; nothing has changed. Name partitions here, too, use another group, or delete that one"
            )
        table = self.tables.get(group) or self._new_table(group, command.id)
        namesake = self._namesake(table, command)
        count = self.count - (namesake is not None)
        if count >= self._settings.max_members:
            raise LimitExceeded(
                f"there are {count} members of groups, the limit is {self._settings.max_members} (max_members); "
                "nothing has changed"
            )
        topics = frozenset(command.topics)
        self._claiming.check_room_for(table, group, topics)
        if namesake is not None:
            table.note_begun(namesake)
            self._remove(table, namesake)
        member = Member(
            self._next_number, Secret(self._random(SECRET_BYTES)), command.nonce, group, command.name, topics,
            command.pattern, command.session_timeout, command.max_handover, command.start, now,
            matcher(command.pattern),
        )  # fmt: skip
        self._next_number += 1
        is_first = not table.members
        if is_first:
            table.group_id = command.id
        self.tables[group] = table
        table.members[member.number] = member
        self._take_back(table, member, command.owned)
        self._assign_by(table, now if is_first else now + self._settings.assignment_delay)
        return member

    def _new_table(self, group: str, group_id: bytes) -> GroupTable:
        """Return a table in which the partitions that were claimed before the start are kept for their members."""
        table, settings = GroupTable(group_id), self._settings
        now = self._engine.now()
        if now >= self._started + max(settings.rejoin_timeout, settings.reconnect_grace):
            return table
        names: dict[str, list[int]] = {}
        for number, claim in self._groups.find(group).claims.items():
            if claim.generation <= self._last_before:
                name = claim.member if claim.kind is ClaimKind.STATIC_MEMBER else ""
                names.setdefault(name, []).append(number)
        for name, numbers in names.items():
            until = self._started + (settings.rejoin_timeout if name else settings.reconnect_grace)
            if until > now:
                table.keep(numbers, Kept(until, name))
        return table

    @staticmethod
    def _namesake(table: GroupTable, command: JoinGroup) -> Member | None:
        """Return the static member of that name whose connection is gone; raise if it is there."""
        namesake = table.by_name(command.name)
        if namesake is not None and namesake.session is not None:
            raise MemberNameInUse(
                f"group {command.group!r} has a member {command.name!r} already, client {namesake.client!r} at "
                f"{namesake.peer}; nothing has changed. Give each process a name of its own, or end that one first"
            )
        return namesake

    def _take_back(self, table: GroupTable, member: Member, shown: Iterable[tuple[int, int]]) -> None:
        """Give a member the partitions of which it shows the generation, of topics that it reads: these were judged."""
        claims, stores = self._groups.find(member.group).claims, self._catalog.stores
        for number, generation in shown:
            claim = claims.get(number)
            is_claim = claim is not None and claim.generation == generation and number not in table.owners
            if is_claim and number in stores and member.reads(stores[number].topic):
                table.own(member, number, generation)

    def attend(self, session: MemberSession, command: Attend, data: memoryview) -> None:  # noqa: ARG002
        """Take what a member says of itself, and answer when there is something to tell. Nothing is done for a session
        that has ended while its request waited.
        """
        check_owned(command.group, len(command.owned) + len(command.releasing))
        check_finished(command.group, command.finished)
        table, member = self._known(command.group, command.member, command.secret)
        if not session.is_open:
            return
        now = self._engine.now()
        self._attach(member, session, now)
        member.shown = dict(command.owned)
        member.releasing = member.owned.keys() & command.releasing
        member.waiting = command.correlation
        due = now + member.session_timeout // 3
        member.answer_at = due - due % (member.session_timeout // ROUNDS)
        told, member.told = member.told, frozenset()
        released = [each for each in member.asked if each not in member.shown and each not in told]
        own = member.owned
        table.finished = {
            each.partition: each for each in command.finished if own.get(each.partition) == each.generation
        }
        for number in released:
            table.disown(number)
        if table.to_place:
            self._look(command.group)
        else:
            self._claiming.settle_unclaimed(command.group, table)
            self._tell(member)
            self._arm(command.group, min(member.answer_at, member.lost_at(0)))
        if command.finished and member.waiting == command.correlation:
            self._send(member, Attended(member.waiting))  # it waits for that, to say more or to forget it

    def begin(self, session: MemberSession, command: BeginMessages, data: memoryview) -> Done:  # noqa: ARG002
        """Note what a member is handling."""
        check_begun(command.group, command.begun)
        _, member = self._known(command.group, command.member, command.secret)
        member.handles(command.begun)
        return Done(command.correlation)

    def leave(self, session: MemberSession, command: LeaveGroup, data: memoryview) -> Done:  # noqa: ARG002
        """End a membership."""
        try:
            table, member = self._known(command.group, command.member, command.secret)
        except UnknownMember:
            return Done(command.correlation)
        if command.lost:
            table.note_begun(member)
        self._remove(table, member, for_good=command.for_good)
        self._look(command.group)
        return Done(command.correlation)

    def _known(self, group: str, number: int, secret: Secret) -> tuple[GroupTable, Member]:
        member = self.member_of(group, number, secret)
        if member is None:
            raise unknown_member(group, number)
        return self.tables[group], member

    # -- sessions ---------------------------------------------------------------------------------

    def _attach(self, member: Member, session: MemberSession, now: int) -> None:
        """Note that a member was heard of on that session, and answer its earlier request."""
        before = member.session
        if member.waiting is not None:
            self._send(member, Attended(member.waiting))
        if before is not session:
            if before is not None:
                before.members.pop(member, None)
            session.members[member] = None
            member.session, member.told = session, frozenset()
            member.client, member.peer = session.client, session.peer
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
        self._dismiss(member)
        table.remove(member)
        if member.name and not for_good:
            table.keep(numbers, Kept(now + self._settings.rejoin_timeout, member.name))
        self._assign_by(table, now)

    def _dismiss(self, member: Member) -> None:
        """Tell a member whose request waits that it has lost all that it shows, and take it from its session."""
        if member.session is not None:
            member.session.members.pop(member, None)
            if member.waiting is not None:
                self._send(member, Attended(member.waiting, lost=list(member.shown)))

    # -- what else changes ----------------------------------------------------------------------------

    def topic_changed(self, name: str) -> None:
        """Assign a topic that was made, or that is gone, in the groups that may read it."""
        stores, now = self._catalog.stores, self._engine.now()
        for group, table in self.tables.items():
            table.begun = {number: works for number, works in table.begun.items() if number in stores}
            if any(name in member.topics or member.pattern for member in table.members.values()):
                for number in [each for each in table.owners if each not in stores]:
                    table.disown(number)
                self._assign_by(table, now)
                self._arm(group, now)
            elif not table.members:
                self._arm(group, now)

    def end(self, group: str) -> None:
        """End all memberships of a group whose claims are fenced or gone, and forget for whom partitions are kept and
        what lost members had begun.
        """
        table = self.tables.pop(group, None)
        if table is None:
            return
        self._disarm(group)
        for member in table.members.values():
            self._dismiss(member)
        if table.members:
            self.log.warn(
                "group {group} was moved or deleted: {count} memberships have ended",
                group=group, count=len(table.members),
            )  # fmt: skip

    # -- looking after a group -------------------------------------------------------------------------

    def _assign_by(self, table: GroupTable, at: int) -> None:
        table.assign_at = at if table.assign_at is None else min(table.assign_at, at)

    def _arm(self, group: str, at: int) -> None:
        """Look after a group at that time, or earlier if that is planned already."""
        armed = self._timers.get(group)
        if armed is not None and armed[0] <= at:
            return
        self._disarm(group)
        if self._call_later is not None and at < NEVER:
            wait = max(0, at - self._engine.now()) / 1e6
            self._timers[group] = at, self._call_later(wait, partial(self._rang, group))

    def _disarm(self, group: str) -> int:
        """Cancel the planned look; return when it was to be, :data:`NEVER` if none was planned."""
        at, timer = self._timers.pop(group, (NEVER, None))
        if timer is not None:
            timer.cancel()
        return at

    def _rang(self, group: str) -> None:
        at, _ = self._timers.pop(group)
        if self._engine.failed:
            return
        if self._engine.busy and self._call_later is not None:
            self._timers[group] = at, self._call_later(BUSY, partial(self._rang, group))
            return
        self._guarded(group, partial(self._look, group, at))

    def _guarded(self, group: str, do: Callable[[], None]) -> None:
        """Do something that no request waits for. A fault of ours ends the process if the folds disagree with the
        journal by it; else it is tried again.
        """
        try:
            do()
        except Exception as error:  # noqa: BLE001  (whatever it is, it must not get lost in the reactor)
            self.log.failure("looking after group {group} failed", group=group)
            if not self._engine.failed:
                self._arm(group, self._engine.now() + AGAIN)
            elif self.on_failure is not None:
                self.on_failure(f"looking after group {group!r}", error)

    def _look(self, group: str, planned: int = NEVER) -> None:
        """Do what is due in a group, and plan the next look. ``planned`` is when this one was to be."""
        table, now, grace = self.tables[group], self._engine.now(), self._settings.reconnect_grace
        planned = min(planned, self._disarm(group))
        if now - planned > LATE:
            for member in table.members.values():
                member.heard += now - planned + HEARING
        silent = [each for each in table.members.values() if each.lost_at(grace) <= now]
        for member in silent[:MAX_LOST]:
            if member.session is not None and (member.session.parked or not member.session.is_read()):
                member.heard = now
            else:
                self._lose(table, member, now)
        for number in table.overdue(now):
            table.disown(number)
        table.expire_kept(now)
        if table.assign_at is not None and table.assign_at <= now and not table.is_assigning:
            self._assign(group, table)
        go_on = self._place(group, table, now)
        self._claiming.settle_unclaimed(group, table)
        for member in list(table.members.values()):
            self._tell(member)
            if member.waiting is not None and member.answer_at <= now:
                self._send(member, Attended(member.waiting))
        if not table.members and not table.kept and not table.begun:
            del self.tables[group]
            self._disarm(group)
            return
        self._arm(group, min([go_on, *table.due(grace)]))

    def _lose(self, table: GroupTable, member: Member, now: int) -> None:
        why = "its connection is gone" if member.session is None else "it was silent"
        self.log.warn(
            "group {group} has lost member {number} ({client}): {why} for {seconds:.1f} s",
            group=member.group, number=member.number, client=member.name or member.client, why=why,
            seconds=(now - member.heard) / 1e6,
        )  # fmt: skip
        table.note_begun(member)
        self._remove(table, member)

    def _assign(self, group: str, table: GroupTable) -> None:
        """Compute an assignment off the reactor."""
        table.assign_at, table.is_assigning = None, True
        members = dict(table.members)
        self._run_blocking(
            partial(
                assign, list(self._catalog.topics.items()), list(members.values()), table.owners_by_number()
            ),
            lambda target: self._guarded(group, partial(self._assigned, group, table, members, target)),
            partial(self._not_assigned, group, table),
        )

    def _assigned(
        self, group: str, table: GroupTable, members: Container[int], target: dict[int, int]
    ) -> None:
        """Take an assignment. What has changed while it was computed is taken into account by the next one."""
        table.is_assigning = False
        if self.tables.get(group) is not table:
            return
        stores, known = self._catalog.stores, self._claiming.known_topics(group)
        fresh = {stores[number].topic for number in target if number in stores} - known
        table.new_topics = table.new_topics | fresh if table.to_place or table.refused else fresh
        table.aim(target, members)
        self._arm(group, self._engine.now())

    def _not_assigned(self, group: str, table: GroupTable, error: BaseException) -> None:
        self.log.error(
            "the assignment of group {group} failed: {error}; it is tried again", group=group, error=error
        )
        table.is_assigning = False
        if self.tables.get(group) is table:
            self._assign_by(table, self._engine.now() + AGAIN)
            self._arm(group, self._engine.now() + AGAIN)

    def _place(self, group: str, table: GroupTable, now: int) -> int:
        """Ask partitions back, and claim what is free, as much as fits into a turn. Return when to go on."""
        table.retry_refused(now)
        known = self._groups.find(group)
        claims: dict[tuple[Member, bool], list[int]] = {}
        for count, (member, number) in enumerate(table.placed(now), 1):
            claims.setdefault((member, number in known), []).append(number)
            if count == MAX_CLAIMED:
                break
        for (member, _), numbers in claims.items():
            self._claiming.claim(table, group, member, numbers, now + AGAIN)
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
        revoked = [each for each in asked if shown.get(each) == owned[each] and each not in member.releasing]
        fresh = [each for each in owned if shown.get(each) != owned[each] and each in stores]
        if lost or revoked or fresh:
            assigned = [
                AssignedPartition(number, owned[number], stores[number].topic, stores[number].index)
                for number in fresh[:MAX_ASSIGNED]
            ]
            self._send(member, Attended(member.waiting, assigned, revoked, lost))

    def _send(self, member: Member, answer: Attended) -> None:
        member.waiting, member.shown, member.releasing = None, {}, frozenset()
        member.told = frozenset([each.partition for each in answer.assigned])
        if member.session is not None:
            self._answer(member.session, encode(answer))
