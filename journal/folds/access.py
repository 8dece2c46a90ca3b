"""The fold of users and rules: who may come in, how, and what they may do (decision 0053)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec
from zope.interface import implementer

from journal.formats.checkpoint_rows import Fact, RowReader
from journal.interfaces import IFold
from journal.records.access_entries import AccessRow, Rule, RuleKey, ScramVerifier, User
from journal.records.record import AccessSet, RuleSet, UserRemoved, UserSet


@implementer(IFold)
class AccessFold:
    """All users by their names and all rules by their keys; and whether everybody has to log in.

    ``is_on``: a login is demanded, and rules decide. ``is_confirmed`` is False in a directory that was repaired since:
    what it says, the switch too, may be old, and nobody is let in by it before a person has seen it. ``changed`` is the
    LSN of the last change of all this.
    """

    name = "access"
    handles: tuple[type, ...] = (UserSet, UserRemoved, RuleSet, AccessSet)

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.rules: dict[RuleKey, Rule] = {}
        self._by_holder: dict[str, dict[RuleKey, Rule]] = {}
        self._users_changed: dict[str, int] = {}
        self.is_on = False
        self.is_confirmed = True
        self.key = b""
        self.changed = 0

    @property
    def demands_login(self) -> bool:
        """Return whether only the administrator comes in without a login; until this is confirmed, only he at all."""
        return self.is_on or not self.is_confirmed

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state; asserts that the record continues it."""
        match record:
            case UserSet():
                self.users[record.user.name] = record.user
                self._users_changed[record.user.name] = lsn
            case UserRemoved():
                del self.users[record.name]
                self._users_changed.pop(record.name, None)
            case RuleSet():
                self._set(record.rule)
            case AccessSet():
                assert self.key in (b"", record.key), "the key of the logins was given a second time"
                self.is_on, self.is_confirmed, self.key = record.is_on, record.is_confirmed, record.key
        self.changed = lsn

    def _set(self, rule: Rule) -> None:
        if rule.rights:
            self.rules[rule.key] = rule
            self._by_holder.setdefault(rule.holder, {})[rule.key] = rule
        else:
            del self.rules[rule.key]
            of_holder = self._by_holder[rule.holder]
            del of_holder[rule.key]
            if not of_holder:
                del self._by_holder[rule.holder]

    def rules_of(self, holder: str) -> Iterable[Rule]:
        """Return the rules about a user or role alone, in the order in which they were made."""
        return self._by_holder.get(holder, {}).values()

    def is_as_of(self, user: str, lsn: int) -> bool:
        """Return whether there is a user of that name, and was not changed after that LSN."""
        return user in self.users and self._users_changed.get(user, 0) <= lsn

    def snapshot(self) -> Iterator[Any]:
        """Return the settings, then users and rules, which do not change; nothing before the first change."""
        if not self.changed:
            return iter(())
        head = AccessRow(self.is_on, self.is_confirmed, self.key, self.changed, len(self.users))
        return iter([head, *self.users.values(), *self.rules.values()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        if rows.left:
            for _ in range(rows.take(AccessRow).users):
                rows.take(User)
            rows.rest(Rule)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the settings, and each user and rule. Of what is secret only whether it is the same."""
        if self.changed:
            yield Fact("access (on, confirmed, key)"), (self.is_on, self.is_confirmed, _told(self.key))
        for user in self.users.values():
            ways = (
                _told_verifier(user.scram), user.certificates, sorted(user.tokens), user.roles, user.quotas.given()
            )  # fmt: skip
            yield Fact(f"user {user.name} (password, certificates, tokens, roles, quotas)"), ways
        for rule in self.rules.values():
            rights = sorted(right.value for right in rule.rights)
            yield Fact(f"rule {msgspec.structs.replace(rule, rights=[])}"), rights

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        found = list(rows)
        AccessFold.__init__(self)
        if found:
            head, *rest = found
            self.is_on, self.is_confirmed, self.key = head.is_on, head.is_confirmed, head.key
            self.changed = head.changed
            self.users = {user.name: user for user in rest[: head.users]}
            for rule in rest[head.users :]:
                self._set(rule)


def _told(secret: bytes) -> str:
    return sha256(b"told:" + secret).hexdigest()[:16] if secret else ""


def _told_verifier(scram: ScramVerifier | None) -> str:
    return "" if scram is None else _told(msgspec.msgpack.encode(scram))
