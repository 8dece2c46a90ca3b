"""The meaning of the requests about users and rules, and what a change of them does to open sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from twisted.logger import Logger

from journal.folds.access import AccessFold
from journal.parties import ADMINISTRATOR
from journal.records.access_entries import (
    DEFAULT_ITERATIONS,
    RIGHTS_ON,
    ROLE,
    Effect,
    Resource,
    Right,
    Rule,
    User,
)
from journal.records.record import AccessSet, RuleSet, UserRemoved, UserSet
from txbroker.broker.access.access_policy import AccessPolicy, decided, denied, matching
from txbroker.broker.access.quotas import QuotaBook
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sessions.rights import THE_BROKER
from txbroker.broker.sessions.session import Session
from txbroker.broker.sessions.settings import SECOND
from txbroker.broker.sessions.things import Thing
from txbroker.errors import AccessDenied, InvalidSetting, LimitExceeded, UnknownUser, UserExists
from txbroker.login.ways import judge_user
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_USERS_LISTED,
    WAYS,
    AccessChecked,
    AlterRule,
    AlterUser,
    CheckAccess,
    Done,
    Existing,
    ListRules,
    ListUsers,
    RemoveUser,
    Request,
    Rules,
    Switch,
    SwitchAccess,
    UserInfo,
    Users,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_USERS: Final = 10_000
MAX_RULES: Final = 10_000
KEY_BYTES: Final = 32
PASSWORD_INTERVAL: Final = 10 * SECOND
"""µs that must pass between two changes of a password by its own user."""


class AccessAdministration:
    """Users, rules and the switch. ``end(session, reason)`` ends a session, behind its answers.

    A right that is taken away counts from the next request on; the sessions that it was taken from are ended once the
    record is forced, and with them whatever of theirs waits.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        access: AccessFold,
        policy: AccessPolicy,
        sessions: Mapping[int, Session],
        random: Callable[[int], bytes],
        end: Callable[[Session, str], None],
        quotas: QuotaBook,
        can_log_in: Callable[[User], bool],
    ) -> None:
        self._quotas = quotas
        self._can_log_in = can_log_in
        self._engine = engine
        self._access = access
        self._policy = policy
        self._sessions = sessions
        self._random = random
        self._end = end
        self._password_times: dict[str, int] = {}
        self.on_switched: Callable[[], object] = lambda: None
        """Called once it is forced whether one has to log in."""
        self.handlers: dict[type[Request], Any] = {
            AlterUser: self.alter_user,
            RemoveUser: self.remove_user,
            ListUsers: self.list_users,
            AlterRule: self.alter_rule,
            ListRules: self.list_rules,
            SwitchAccess: self.switch,
            CheckAccess: self.check,
        }
        """The commands, each with its meaning."""

    # -- users ------------------------------------------------------------------------------------

    def alter_user(self, session: Session, command: AlterUser, data: memoryview) -> None:  # noqa: ARG002
        """Make a user, or change one."""
        given, access = command.user, self._access
        known = access.users.get(given.name)
        unknown = [name for name in command.names if name not in WAYS]
        if unknown:
            raise InvalidSetting(f"a user has no {unknown[0]!r}, but {', '.join(WAYS)}; nothing has changed")
        if session.rights is not None and command.names == ["scram"] and given.name != session.principal:
            session.rights.judge(THE_BROKER, command)
        if command.existing is Existing.NO:
            if known is not None:
                raise UserExists(
                    f"there is a user {given.name!r} already; nothing has changed. Choose another name"
                )
            if len(access.users) >= MAX_USERS:
                raise LimitExceeded(f"there are {MAX_USERS} users; nothing has changed. Remove some first")
            made = given
        else:
            if known is None:
                raise _unknown(given.name)
            made = replace(known, **{name: getattr(given, name) for name in command.names})
        if made == known:
            self._answer(session, Done(command.correlation))
            return
        error = judge_user(access.users, made)
        if error is not None:
            raise error
        if known is not None and command.names == ["scram"]:
            self._judge_own_password(session, known, made)
        self._accept(UserSet(made, session.as_actor(), self._engine.now()))
        self._quotas.changed(made.name)
        self._answer(session, Done(command.correlation))
        if known is not None and (
            _has_lost(known, made) or self._is_denied(set(made.roles) - set(known.roles))
        ):
            self._end_those_of({made.name}, f"a way in or a role of {made.name} was taken away")

    def _judge_own_password(self, session: Session, known: User, made: User) -> None:
        """Raise unless who changes nothing but its own password may: it replaces one that there is, now and then.

        Giving oneself the first one, or taking it away, is for administrators: it makes or ends a way in. Each change
        is forced and told in the audit, and a check takes the broker as many iterations as it has.
        """
        if session.rights is None or session.rights.allows(Right.ADMINISTER, Resource.BROKER, Thing("", "")):
            return
        if known.scram is None or made.scram is None:
            raise denied(session.principal, Right.ADMINISTER, Resource.BROKER, "")
        most = max(DEFAULT_ITERATIONS, known.scram.iterations)
        if made.scram.iterations > most:
            raise LimitExceeded(
                f"{made.scram.iterations} iterations, {most} are allowed; the password has not changed"
            )
        now, last = self._engine.clock.monotonic(), self._password_times.get(known.name)
        if last is not None and now - last < PASSWORD_INTERVAL:
            raise LimitExceeded(
                f"{known.name} has changed its password {(now - last) // SECOND} s ago; it has not changed again. Wait "
                f"until {PASSWORD_INTERVAL // SECOND} s have passed"
            )
        self._password_times = {
            name: at for name, at in self._password_times.items() if now - at < PASSWORD_INTERVAL
        } | {known.name: now}

    def _is_denied(self, roles: Iterable[str]) -> bool:
        """Whether a rule about one of the roles denies something: who gets that role loses by it."""
        rules = (rule for role in roles for rule in self._access.rules_of(f"{ROLE}{role}"))
        return any(rule.effect is Effect.DENY for rule in rules)

    def remove_user(self, session: Session, command: RemoveUser, data: memoryview) -> None:  # noqa: ARG002
        """Remove a user, and end its sessions."""
        if command.name not in self._access.users:
            raise _unknown(command.name)
        self._accept(UserRemoved(command.name, session.as_actor(), self._engine.now()), takes_away=True)
        self._quotas.changed(command.name)
        self._answer(session, Done(command.correlation))
        self._end_those_of({command.name}, f"user {command.name} was removed")

    def list_users(self, session: Session, command: ListUsers, data: memoryview) -> Users:  # noqa: ARG002
        """Return a page of users, by their names."""
        names = [name for name in sorted(self._access.users) if name > command.after]
        open_ones = Counter(each.principal for each in self._sessions.values())
        found = [self._info(self._access.users[name], open_ones) for name in names[:MAX_USERS_LISTED]]
        return Users(command.correlation, found, len(names) > MAX_USERS_LISTED)

    @staticmethod
    def _info(user: User, open_ones: Mapping[str, int]) -> UserInfo:
        iterations = user.scram.iterations if user.scram is not None else 0
        return UserInfo(
            user.name,
            iterations,
            user.certificates,
            user.tokens,
            user.roles,
            open_ones[user.name],
            user.quotas,
        )

    # -- rules ------------------------------------------------------------------------------------

    def alter_rule(self, session: Session, command: AlterRule, data: memoryview) -> None:  # noqa: ARG002
        """Add rights to a rule, or take some away."""
        given, access = command.rule, self._access
        if given.resource is Resource.BROKER and (given.pattern or given.is_prefix):
            raise InvalidSetting("there is one broker: a rule about it names nothing; nothing has changed")
        if not command.forget:
            _check_rights(given)
        known = access.rules.get(given.key)
        before = set(known.rights) if known is not None else set()
        after = before - set(given.rights) if command.forget else before | set(given.rights)
        rule = replace(given, rights=[right for right in Right if right in after])
        if after != before:
            if known is None and len(access.rules) >= MAX_RULES:
                raise LimitExceeded(f"there are {MAX_RULES} rules; nothing has changed. Remove some first")
            takes_away = (rule.effect is Effect.ALLOW) is command.forget
            self._accept(RuleSet(rule, session.as_actor(), self._engine.now()), takes_away)
        self._answer(session, Rules(command.correlation, [rule], False, access.is_on, access.is_confirmed))
        if after != before and (rule.effect is Effect.ALLOW) is command.forget:
            self._end_those_of(self._names_of(rule.holder), f"a right was taken away ({given})")

    def _names_of(self, holder: str) -> set[str]:
        if not holder.startswith(ROLE):
            return {holder}
        role = holder.removeprefix(ROLE)
        return {user.name for user in self._access.users.values() if role in user.roles}

    def list_rules(self, session: Session, command: ListRules, data: memoryview) -> Rules:  # noqa: ARG002
        """Return a page of rules, in the order in which they were made."""
        access = self._access
        found = list(islice(access.rules.values(), max(command.after, 0), None))
        page = found[:MAX_USERS_LISTED]
        return Rules(command.correlation, page, len(found) > len(page), access.is_on, access.is_confirmed)

    def check(self, session: Session, command: CheckAccess, data: memoryview) -> AccessChecked:  # noqa: ARG002
        """Say what the rules say; the administrator may do everything, whatever they say."""
        if command.principal == ADMINISTRATOR:
            return AccessChecked(command.correlation, True, [])
        rules, right, resource = self._policy.rules_of(command.principal), command.right, command.resource
        thing = Thing(command.name, command.name)
        found = list(matching(rules, right, resource, thing))
        return AccessChecked(command.correlation, decided(rules, right, resource, thing), found)

    # -- the switch -------------------------------------------------------------------------------

    def switch(self, session: Session, command: SwitchAccess, data: memoryview) -> None:  # noqa: ARG002
        """Demand a login from now on, or do so no more; or take users and rules for confirmed."""
        access, what = self._access, command.what
        if what is Switch.ENABLE:
            self._check_administrator()
        elif session.principal != ADMINISTRATOR:
            command_line = f"access {what.name.lower()}"
            raise AccessDenied(
                f"{command_line} goes only over the broker's own socket, whatever the rules say: who comes in over the "
                "network is not to open it to all. Nothing has changed. On the broker's machine: txbroker --broker "
                f"unix:DATA/admin.sock {command_line}",
                Right.ADMINISTER.value, Resource.BROKER.value,
            )  # fmt: skip
        is_on = access.is_on if what is Switch.CONFIRM else what is Switch.ENABLE
        is_confirmed = access.is_confirmed or what is Switch.CONFIRM
        if (is_on, is_confirmed) != (access.is_on, access.is_confirmed):
            was_on = access.is_on
            self._accept(self._set(is_on, is_confirmed, session), takes_away=True)
            self._answer(session, Done(command.correlation))
            if is_on is not was_on:  # also of who has logged in: without the rules it could do everything
                everybody = {each.principal for each in self._sessions.values()}
                now = "a login is needed from now on" if is_on else "no login is needed any more"
                self._end_those_of(everybody - {ADMINISTRATOR}, now)
                self.log.warn("{now}: {by}", now=now, by=session.as_actor())
            self._engine.when_forced(self._has_switched, None)
        else:
            self._answer(session, Done(command.correlation))

    def _has_switched(self, _: object) -> None:
        self.on_switched()

    def _check_administrator(self) -> None:
        """Raise unless a user that can log in may administer: nobody is to be locked out."""
        for user in self._access.users.values():
            rules = self._policy.rules_of(user.name)
            if self._can_log_in(user) and decided(rules, Right.ADMINISTER, Resource.BROKER, Thing("", "")):
                return
        raise InvalidSetting(
            "no user that can log in may administer the broker: nobody could change users and rules any more but over "
            "its admin.sock. Nothing has changed. Make one: txbroker users add NAME --password-file FILE, then "
            "txbroker access allow NAME administer broker"
        )

    def _set(self, is_on: bool, is_confirmed: bool, session: Session) -> AccessSet:
        key = self._access.key or self._random(KEY_BYTES)
        return AccessSet(is_on, is_confirmed, key, session.as_actor(), self._engine.now())

    # -- what follows -----------------------------------------------------------------------------

    def _accept(self, record: Any, takes_away: bool = False) -> None:
        """Put a change into the journal, and have it count at once. On a full disk something can be taken away only."""
        if self._engine.full and not takes_away:
            raise disk_full()
        if not self._access.key and type(record) is not AccessSet:
            by, access = record.by, self._access
            key = self._random(KEY_BYTES)  # of the record's time: it comes before it
            self._engine.accept(AccessSet(access.is_on, access.is_confirmed, key, by, record.at))
        self._engine.accept(record)
        sessions = self._sessions.values()
        rights = {name: self._policy.rights_of(name) for name in {each.principal for each in sessions}}
        for session in sessions:
            session.rights = rights[session.principal]

    def _answer(self, session: Session, answer: Done | Rules) -> None:
        """Answer once the change is forced: before the end of sessions, of which the one that asks may be one."""
        self._engine.when_forced(session.deliver, encode(answer))

    def _end_those_of(self, principals: Iterable[str], reason: str) -> None:
        """End sessions once what is accepted is forced."""
        names = set(principals)
        ending = [each for each in self._sessions.values() if each.principal in names]

        def end(_: object) -> None:
            for session in ending:
                self._end(session, reason)

        if ending:
            self._engine.when_forced(end, None)


def _check_rights(rule: Rule) -> None:
    """Raise for rights that mean nothing on the rule's resource: it would allow or deny nothing, without a word."""
    known = RIGHTS_ON[rule.resource]
    unknown = [right.value for right in Right if right in rule.rights and right not in known]
    if unknown:
        raise InvalidSetting(
            f"there is no right {', '.join(unknown)} on a {rule.resource.value}, but "
            f"{', '.join(right.value for right in known)}; nothing has changed"
        )


def _has_lost(before: User, after: User) -> bool:
    """Whether a user can do less than before. A new password takes nothing away from who is in."""
    return (
        (before.scram is not None and after.scram is None)
        or not set(before.certificates) <= set(after.certificates)
        or not {*before.tokens} <= {*after.tokens}
        or not set(before.roles) <= set(after.roles)
    )


def _unknown(name: str) -> UnknownUser:
    return UnknownUser(f"there is no user {name!r}; nothing has changed. 'txbroker users list' shows all")
