"""The requests and answers about users and rules, for administrators (decision 0053)."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

import msgspec

from journal.records.access_entries import NO_QUOTAS, Quotas, Resource, Right, Rule, TokenSubject, User
from txbroker.wire.answers import Answer
from txbroker.wire.requests import Request

MAX_USERS_LISTED: Final = 1_000
"""Most users, and most rules, of one answer."""

WAYS: Final = ("scram", "certificates", "tokens", "roles", "quotas")
"""What an :class:`AlterUser` may name."""


class Existing(IntEnum):
    """Whether the user must be there already."""

    NO = 0
    """There is none of that name: it is made."""
    YES = 1
    """It is changed."""


class AlterUser(Request, frozen=True, tag=50):
    """Make a user, or change what ``names`` says of one: fields of :class:`User`. Answered by :class:`Done` once
    forced.

    A new one has all of ``user``. Refused with UserExists, UnknownUser, with WayInTaken if another user has one of its
    certificates or tokens. A user may change the own password without the right to administer.
    """

    user: User
    names: list[str]
    existing: Existing = Existing.YES


class RemoveUser(Request, frozen=True, tag=51):
    """Remove a user, and end its sessions. Answered by :class:`Done` once forced; refused with UnknownUser.

    What it has prepared stays, and is decided as before. Rules about it stay, for one of that name that comes later.
    """

    name: str


class ListUsers(Request, frozen=True, tag=52):
    """Answered by :class:`Users`: those whose names are behind ``after``, in their order, 1,000 at a time."""

    after: str = ""


class AlterRule(Request, frozen=True, tag=53):
    """Add rights to a rule, or take them away. Answered by :class:`Rules` with it as it is then, once forced.

    Rights that there are not on the rule's resource are refused (InvalidSetting). With ``forget`` the rights are taken
    away that the rule has of these, and nothing is refused.
    """

    rule: Rule
    forget: bool = False


class ListRules(Request, frozen=True, tag=54):
    """Answered by :class:`Rules`: those behind the first ``after``, in the order in which they were made."""

    after: int = 0


class Switch(Enum):
    """What is done with the access."""

    ENABLE = "enable"
    DISABLE = "disable"
    CONFIRM = "confirm"


class SwitchAccess(Request, frozen=True, tag=55):
    """Demand a login and go by the rules from now on, or do so no more; or confirm users and rules of a directory that
    was repaired. Answered by :class:`Done` once forced.

    Enabling is refused (InvalidSetting) while no user that can log in may administer; disabling and confirming
    (AccessDenied) unless it comes over the administrator's socket.
    """

    what: Switch


class CheckAccess(Request, frozen=True, tag=56):
    """Ask what the rules say of a user's right on a thing by its name, whether it exists or not. Answered by
    :class:`AccessChecked`.
    """

    principal: str
    right: Right
    resource: Resource
    name: str = ""


class UserInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A user. ``iterations`` are those of its password's verifier, 0 if it has none; ``sessions`` are open just now."""

    name: str
    iterations: int
    certificates: list[str]
    tokens: list[TokenSubject]
    roles: list[str]
    sessions: int
    quotas: Quotas = NO_QUOTAS


class Users(Answer, frozen=True, tag=97):
    """Answers :class:`ListUsers`. ``more``: there are others behind the last."""

    users: list[UserInfo]
    more: bool


class Rules(Answer, frozen=True, tag=98):
    """Answers :class:`ListRules` and :class:`AlterRule`. ``is_on``: a login is demanded, and rules decide."""

    rules: list[Rule]
    more: bool = False
    is_on: bool = False
    is_confirmed: bool = True


class AccessChecked(Answer, frozen=True, tag=99):
    """Answers :class:`CheckAccess`: whether it is allowed, and the rules that say so, or deny it."""

    is_allowed: bool
    rules: list[Rule]
