"""The credentials of a client: a password, a token or a certificate, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from journal.records.access_entries import MAX_USER, USER_PATTERN
from txbroker.client.login.secret_file import read_secret
from txbroker.client.login.verifier import check_password
from txbroker.errors import Misuse, WrongType, WrongValue

Given = str | Callable[[], str] | None
"""A secret as text, or what returns it."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How a client logs in: by user and password, by a token, or by the certificate that it shows in TLS.

    Passwords and tokens are given as text, as a callable that returns the text, or as the path of a file. Callables
    are called and files are read at each login, so they can be renewed while the client runs. A newline at the end
    of a file is none of its secret. A file that others may read is refused.

    ``user`` is needed with a password. With a token or a certificate the broker finds the user, who then must be this
    one if it is given. ``use_certificate`` stands for whatever the connection proves by itself: the certificate, or
    that it comes through the administrator's socket.

    Raises :class:`~txbroker.errors.Misuse` if parts are missing or contradict each other.
    """

    user: str = ""
    password: Given = None
    password_file: str | None = None
    token: Given = None
    token_file: str | None = None
    use_certificate: bool = False

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, hidden)"

    def __post_init__(self) -> None:
        """Check what was given, without a look into files."""
        if not isinstance(self.user, str):
            raise WrongType(f"user is a {type(self.user).__name__}; it must be a str. Nothing was sent")
        if self.user and not re.match(USER_PATTERN, self.user):
            raise WrongValue(
                f"user has {len(self.user)} characters that cannot be the name of one (they are not shown, for they "
                f"may be a password): 1 to {MAX_USER} of A-Z, a-z, 0-9, '.', '_' and '-'. Nothing was sent"
            )
        for name in ("password", "token"):
            given = getattr(self, name)
            if not (given is None or isinstance(given, str) or callable(given)):
                raise WrongType(
                    f"{name} is a {type(given).__name__}; it must be a str or a callable. Nothing was sent"
                )
        self._check_parts()

    def _check_parts(self) -> None:
        parts = [
            name
            for name in ("password", "password_file", "token", "token_file", "use_certificate")
            if getattr(self, name) not in (None, False)
        ]
        if len(parts) > 1:
            raise Misuse(
                f"credentials with {' and '.join(parts)}: one of them is used. Nothing was sent. Leave the rest"
            )
        if not parts:
            raise Misuse(
                "credentials without password, password_file, token, token_file and use_certificate: one of them is "
                "needed. Nothing was sent"
            )
        if self.has_password and not self.user:
            raise Misuse(f"credentials with {parts[0]}, but no user. Nothing was sent. Name the user")

    @property
    def has_password(self) -> bool:
        """Whether they are a user and a password."""
        return self.password is not None or self.password_file is not None

    @property
    def has_token(self) -> bool:
        """Whether they are a token."""
        return self.token is not None or self.token_file is not None

    def read_password(self) -> str:
        """Return the password as it is now. May block; raises ``Misuse``, and what a callable raises."""
        password = _read("password", self.password, self.password_file)
        check_password(password)
        return password

    def read_token(self) -> str:
        """Return the token as it is now. May block; raises ``Misuse``, and what a callable raises."""
        return _read("token", self.token, self.token_file)


def _read(what: str, given: Given, path: str | None) -> str:
    if path is not None:
        return read_secret(path, what)
    secret = given() if callable(given) else given
    if not isinstance(secret, str):
        raise WrongType(
            f"the callable {what} returned a {type(secret).__name__}, not a str; nothing was sent"
        )
    return secret
