"""Who may come in and do what, as SECURITY.md says it. Rules are judged by the model that the simulation has, too.

Neither shares code with the broker that it judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.simulation.model.access.rule_model import Meant, RuleKey, has_right

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
        holders = set() if account is None else {who, *(f"role:{role}" for role in account.roles)}
        meant = Meant(need.name, need.is_prefix, need.also)
        return has_right(self.rules, holders, need.right, need.kind, meant)

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
