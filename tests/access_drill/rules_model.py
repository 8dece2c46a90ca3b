"""Who may come in and do what, as SECURITY.md says it. It shares no code with the broker that it judges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Way = tuple[str, str]
"""How one proves to be somebody: ``password`` and its text, ``certificate`` and its name, ``token`` and its subject."""


class Shown(NamedTuple):
    """What a client has shown to be let in; ``key`` is the one that a token is signed with."""

    way: Way
    key: str = ""


class Account(NamedTuple):
    """A user. ``prepared`` is the quota of prepared transactions, None for no limit."""

    ways: frozenset[Way]
    roles: frozenset[str] = frozenset()
    prepared: int | None = None


class RuleKey(NamedTuple):
    """What there is one rule for. ``holder`` is a user, or ``role:NAME``; ``effect`` is ``allow`` or ``deny``."""

    holder: str
    effect: str
    kind: str
    pattern: str
    is_prefix: bool


class Need(NamedTuple):
    """A right that an act needs on a thing, or on all things whose names begin so.

    ``also`` is another name of the thing. What is not ``hard`` may have been asked for earlier, and be remembered.
    """

    right: str
    kind: str
    name: str = ""
    is_prefix: bool = False
    also: str = ""
    hard: bool = True


class Standing(NamedTuple):
    """All users, rules and trusted keys at one moment."""

    accounts: Mapping[str, Account] = {}
    rules: Mapping[RuleKey, frozenset[str]] = {}
    keys: frozenset[str] = frozenset()

    def lets_in(self, who: str, shown: Shown) -> bool:
        """Return whether that lets one in as this user."""
        account = self.accounts.get(who)
        return account is not None and shown.way in account.ways and (not shown.key or shown.key in self.keys)

    def allows(self, who: str, need: Need) -> bool:
        """Return whether a user has a right: a rule gives it for all that is meant, and none denies it for a part."""
        account = self.accounts.get(who)
        if account is None:
            return False
        holders = {who, *(f"role:{role}" for role in account.roles)}
        about = [
            (key, rights)
            for key, rights in self.rules.items()
            if key.holder in holders and key.kind == need.kind
        ]
        denied = [key for key, rights in about if key.effect == "deny" and need.right in rights]
        given = [
            key
            for key, rights in about
            if key.effect == "allow" and (need.right in rights or need.right == "describe")
        ]
        return not any(_touches(key, need) for key in denied) and any(_covers(key, need) for key in given)

    # -- what an administrator changes --------------------------------------------------------------

    def with_account(self, who: str, account: Account | None) -> Standing:
        """Return what is so once a user is as given, or gone."""
        others = {name: each for name, each in self.accounts.items() if name != who}
        return self._replace(accounts=others if account is None else others | {who: account})

    def with_rights(self, key: RuleKey, rights: Iterable[str], forget: bool = False) -> Standing:
        """Return what is so once rights have been added to a rule, or taken from it."""
        before = self.rules.get(key, frozenset())
        after = before - set(rights) if forget else before | set(rights)
        others = {each: kept for each, kept in self.rules.items() if each != key}
        return self._replace(rules=others | {key: after} if after else others)


def _name(key: RuleKey, need: Need) -> str:
    """The name by which a rule knows what is meant: its owner's, if the rule is one about owners."""
    return need.also if key.pattern.startswith("owner:") else need.name


def _matches(key: RuleKey, name: str) -> bool:
    return name.startswith(key.pattern) if key.is_prefix else name == key.pattern


def _covers(key: RuleKey, need: Need) -> bool:
    return (key.is_prefix or not need.is_prefix) and _matches(key, _name(key, need))


def _touches(key: RuleKey, need: Need) -> bool:
    return (need.is_prefix and key.pattern.startswith(need.name)) or _matches(key, _name(key, need))
