"""The kinds of journal records about users and rules (decision 0053)."""

from __future__ import annotations

from journal.parties import Actor
from journal.records.access_entries import AccessKey, Rule, User, UserName
from journal.records.record_base import Record


class UserSet(Record, frozen=True, tag=25):
    """A user is as it says from here on, and has no other ways in. ``by`` is who said so."""

    user: User
    by: Actor
    at: int


class UserRemoved(Record, frozen=True, tag=26):
    """There is no user of that name any more; rules about it stay."""

    name: UserName
    by: Actor
    at: int


class RuleSet(Record, frozen=True, tag=27):
    """A rule has these rights from here on; without any it is gone."""

    rule: Rule
    by: Actor
    at: int


class AccessSet(Record, frozen=True, tag=28):
    """Whether everybody has to log in from here on, and whether a person has confirmed who may (decision 0053).

    ``key``, 32 random bytes, is made with the first such record and stays.
    """

    is_on: bool
    is_confirmed: bool
    key: AccessKey
    by: Actor
    at: int

    def __repr__(self) -> str:
        return (
            f"AccessSet(is_on={self.is_on}, is_confirmed={self.is_confirmed}, by={self.by!s}, at={self.at})"
        )
