"""The mechanisms of logins over AMQP: those of the broker, under the names that clients of RabbitMQ know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from txbroker.amqp.fields import decode_table, long_text
from txbroker.amqp.reply_codes import AmqpError, Reply

AMQPLAIN: Final = "AMQPLAIN"
"""AMQP's own form of PLAIN, which old clients ask for."""
_KNOWN: Final = ("PLAIN", "EXTERNAL", "OAUTHBEARER")


def mechanisms_told(offered: Sequence[str]) -> list[str]:
    """Return what clients are told of the mechanisms that the broker offers. Where nobody has to log in, PLAIN is among
    them: clients of RabbitMQ know no other, and who it says to be is not looked at.
    """
    names = [each for each in _KNOWN if each in offered]
    if "ANONYMOUS" in offered and "PLAIN" not in names:
        names.insert(0, "PLAIN")
    if "PLAIN" in names:
        names.insert(names.index("PLAIN") + 1, AMQPLAIN)
    if "ANONYMOUS" in offered:
        names.append("ANONYMOUS")
    return names


def plain_of(response: bytes) -> bytes:
    """Return an AMQPLAIN response (a table without its length) as PLAIN's."""
    table, _ = decode_table(long_text(response))
    login, password = table.get("LOGIN"), table.get("PASSWORD")
    if not (isinstance(login, str) and isinstance(password, str)):
        raise AmqpError(Reply.SYNTAX_ERROR, "an AMQPLAIN response without LOGIN and PASSWORD")
    return b"\0" + login.encode() + b"\0" + password.encode()
