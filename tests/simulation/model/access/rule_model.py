"""The model of rules: what users may do by rules about them and their roles. Nothing is allowed that no rule allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

ADMINISTRATOR, ANONYMOUS = "@admin", "anonymous"


class RuleKey(NamedTuple):
    """Whom a rule is about, whether it ``denies``, and on what. Of each there is one rule, which has some rights."""

    holder: str
    denies: bool
    resource: str
    pattern: str
    is_prefix: bool


@dataclass(frozen=True)
class Account:
    """A user: the names in certificates by which it comes in, its roles, and its quotas by name."""

    certificates: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """All users and rules at a moment, and whether one has to log in."""

    is_on: bool = False
    users: Mapping[str, Account] = field(default_factory=dict)
    rules: Mapping[RuleKey, frozenset[str]] = field(default_factory=dict)

    def with_user(self, name: str, account: Account | None) -> Access:
        """The same with a user, or without it."""
        others = {each: known for each, known in self.users.items() if each != name}
        return replace(self, users=others if account is None else {**others, name: account})

    def with_rule(self, key: RuleKey, rights: frozenset[str]) -> Access:
        """The same with a rule; one without rights is none."""
        others = {each: given for each, given in self.rules.items() if each != key}
        return replace(self, rules={**others, key: rights} if rights else others)

    def user_of(self, certificate: str) -> str | None:
        """Who comes in by a certificate."""
        found = [name for name, account in self.users.items() if certificate in account.certificates]
        return found[0] if len(found) == 1 else None

    def ways_of(self, name: str) -> frozenset[str]:
        """The certificates by which a user comes in."""
        return self.users[name].certificates if name in self.users else frozenset()

    def holders(self, name: str) -> set[str]:
        """As what rules speak of a user."""
        account = self.users.get(name)
        return set() if account is None else {name, *(f"role:{role}" for role in account.roles)}

    def held_by(self, holder: str) -> set[str]:
        """The users that rules about this holder are about."""
        return {holder} if not holder.startswith("role:") else {
            name for name in self.users if holder in self.holders(name)
        }  # fmt: skip

    def denies_by(self, roles: Iterable[str]) -> bool:
        """Whether a rule about one of these roles denies something."""
        return any(key.denies and key.holder == f"role:{role}" for key in self.rules for role in roles)

    def has_administrator(self) -> bool:
        """Whether a user that can log in may administer."""
        able = [name for name, account in self.users.items() if account.certificates]
        on = replace(self, is_on=True)
        return any(on.allows(name, "administer", "broker", Meant("")) for name in able)

    def allows(self, principal: str, right: str, resource: str, meant: Meant) -> bool:
        """Whether somebody has a right on what is meant."""
        if principal == ADMINISTRATOR or not self.is_on:
            return True
        return has_right(self.rules, self.holders(principal), right, resource, meant)


class Meant(NamedTuple):
    """What a right is needed on: a thing, or all whose names begin so. ``name`` None: it is not known."""

    name: str | None
    is_prefix: bool = False
    also: str = ""
    """``owner:`` and whose it is."""

    def names(self, key: RuleKey) -> list[str]:
        """The name that it has for a rule: that of its owner, if the rule is one about owners."""
        if key.resource == "transaction" and key.pattern.startswith("owner:"):
            return [self.also] if self.also else []
        return [] if self.name is None else [self.name]


def has_right(
    rules: Mapping[RuleKey, frozenset[str]], holders: set[str], right: str, resource: str, meant: Meant
) -> bool:
    """Whether one who goes by these names has a right: by a rule on all that is meant, and denied on no part of it."""
    is_given = False
    for key, rights in rules.items():
        if key.holder not in holders or key.resource != resource:
            continue
        if key.denies:
            if right in rights and _concerns(key, meant):
                return False
        elif right in rights or right == "describe":  # who may do anything with a thing may describe it
            is_given = is_given or _has_all(key, meant)
    return is_given


def _matches(key: RuleKey, name: str) -> bool:
    return name.startswith(key.pattern) if key.is_prefix else name == key.pattern


def _has_all(key: RuleKey, meant: Meant) -> bool:
    """Whether a rule is about all that is meant."""
    if key.resource == "broker":
        return True
    if meant.is_prefix:
        return key.is_prefix and any(name.startswith(key.pattern) for name in meant.names(key))
    is_about_all = key.is_prefix and not key.pattern
    return is_about_all or any(_matches(key, name) for name in meant.names(key))


def _concerns(key: RuleKey, meant: Meant) -> bool:
    """Whether a rule is about some of what is meant, or may be."""
    if key.resource == "broker" or meant.name is None:
        return True
    inside = meant.is_prefix and key.pattern.startswith(meant.name)
    return inside or any(_matches(key, name) for name in meant.names(key))
