"""The requests and answers of a login: who is there, and the session that it gets (decision 0053).

A mechanism's messages are bytes here, as in SASL (RFC 4422). What they say is known to :mod:`txbroker.login` and
:mod:`txbroker.client.login`. They may be a password or a token, so none of them is shown by ``repr``.
"""

from __future__ import annotations

from typing import Final

from txbroker.wire.answers import Answer
from txbroker.wire.requests import FormerSession, Request
from txbroker.wire.secret import Secret, shown_without

MAX_LOGIN_DATA: Final = 20 << 10
"""Most bytes of ``data`` in one message: room for a token of 16 KiB."""


class Offered(Answer, frozen=True, tag=95):
    """Answers :class:`Hello`: the version that is spoken, the broker's program, and the mechanisms of a login, as SASL
    names them, the strongest first. With ``ANONYMOUS`` no login is needed.
    """

    version: int
    server: str
    mechanisms: list[str]


class Login(Request, frozen=True, tag=49):
    """A step of a login: the ``mechanism`` and its first message; "" and the next one after each :class:`Challenge`.

    Answered by :class:`Welcome` after the last one, or refused (AuthenticationFailed). ``after`` is the session that
    the client had before: if that was the same principal's it is ended, and its later requests will not be taken.
    Refused (BrokerReplaced), without ending any session, if these data never gave out such a session. In an open
    session the same principal may log in anew, before its token ends; ``after`` says nothing then.
    """

    mechanism: str
    data: bytes = b""
    after: FormerSession | None = None

    def __repr__(self) -> str:
        return shown_without(self, "data")


class Challenge(Answer, frozen=True, tag=96):
    """Answers :class:`Login`, if the mechanism needs another message of the client."""

    data: bytes

    def __repr__(self) -> str:
        return shown_without(self, "data")


class Welcome(Answer, frozen=True, tag=64):
    """Answers the last :class:`Login`. ``session`` is this session's number; limits are in bytes.

    ``identity`` is that of the broker's data: numbers and xids are valid only together with it. ``start``, the random
    nonce of the broker's present start, and ``secret`` are for the client's next login. A fetch may have
    ``max_fetch_positions``. ``data`` is the mechanism's last message. The login is valid for ``valid_for`` µs, 0 for
    without end; the session is ended then, unless the client has logged in anew. ``schedule_time`` is that of this
    moment, µs: from it the client counts when messages are due.
    """

    session: int
    max_frame: int
    max_request: int
    identity: str = ""
    start: bytes = b""
    secret: Secret = Secret(b"")
    max_fetch_positions: int = 1000
    principal: str = ""
    data: bytes = b""
    valid_for: int = 0
    schedule_time: int = 0

    def __repr__(self) -> str:
        return shown_without(self, "data")
