"""Which user a certificate or a token belongs to: only one that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from journal.parties import ANONYMOUS
from journal.records.access_entries import TokenSubject, User
from txbroker.errors import InvalidName, TxBrokerError, WayInTaken


class Access(Protocol):
    """The part of ``AccessFold`` that logins read, anew each time. ``changed`` differs after each change of users."""

    users: dict[str, User]
    key: bytes
    changed: int
    is_confirmed: bool


class Ways:
    """Finds the user of a certificate or token."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._seen = -1
        self._certificates: dict[str, set[str]] = {}
        self._tokens: dict[TokenSubject, set[str]] = {}

    def by_certificate(self, names: Iterable[str]) -> set[str]:
        """Return the users that name one of a certificate's names; two or more are a contradiction."""
        self._refresh()
        return set().union(*(self._certificates.get(name, ()) for name in names))

    def by_token(self, subject: TokenSubject) -> set[str]:
        """Return the users that name a token's subject; two or more are a contradiction."""
        self._refresh()
        return set(self._tokens.get(subject, ()))

    def _refresh(self) -> None:
        if self._seen == self._access.changed:
            return
        self._seen = self._access.changed
        self._certificates, self._tokens = {}, {}
        for user in self._access.users.values():
            for name in user.certificates:
                self._certificates.setdefault(name, set()).add(user.name)
            for subject in user.tokens:
                self._tokens.setdefault(subject, set()).add(user.name)


def judge_user(users: Mapping[str, User], user: User) -> TxBrokerError | None:
    """Return why ``user`` may not be set beside (or in the place of its namesake among) ``users``; None if it may.

    Two users may not name the same certificate or token, and none is called ``anonymous``. To be asked in the turn in
    which the user's record is queued.
    """
    if user.name == ANONYMOUS:
        return InvalidName(
            f"a user called {ANONYMOUS!r}: that is the principal of those who do not log in. Nothing was changed. "
            "Use another name"
        )
    certificates, tokens = set(user.certificates), set(user.tokens)
    for other in users.values():
        if other.name == user.name:
            continue
        for name in other.certificates:
            if name in certificates:
                return _taken(f"the certificate {name!r}", user, other)
        for subject in other.tokens:
            if subject in tokens:
                return _taken(f"the token {subject.subject!r} of {subject.issuer!r}", user, other)
    return None


def _taken(what: str, user: User, other: User) -> WayInTaken:
    return WayInTaken(
        f"{what} is named by user {other.name!r} already, so user {user.name!r} cannot have it: a login by it must "
        "mean one user. Nothing was changed. Take it from the other first"
    )
