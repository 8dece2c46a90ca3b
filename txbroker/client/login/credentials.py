"""The credentials of a client: a password, a token or a certificate, and where they come from."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Credentials(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a client logs in: by user and password, by a token, or by the certificate that it shows in TLS.

    Passwords and tokens are given as text, as a callable that returns the text, or as the path of a file. Callables
    are called and files are read at each login, so they can be renewed while the client runs. A newline at the end
    of a file is none of its secret. A file that others may read is refused.

    ``user`` is needed with a password. With a token or a certificate the broker finds the user, who then must be this
    one if it is given.

    Raises :class:`~txbroker.errors.Misuse` if parts are missing or contradict each other.
    """

    user: str = ""
    password: str | Callable[[], str] | None = None
    password_file: str | None = None
    token: str | Callable[[], str] | None = None
    token_file: str | None = None
    use_certificate: bool = False

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, ...)"
