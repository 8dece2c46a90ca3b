"""The methods of AMQP 0-9-1 about connections and channels: each a struct whose fields are the method's arguments.

Source: the specification's XML, and RabbitMQ's for ``connection.blocked`` and ``update-secret``
(https://www.rabbitmq.com/amqp-0-9-1-reference). Names are the specification's.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from txbroker.amqp.fields import Table

Octet: TypeAlias = int
Short: TypeAlias = int
Long: TypeAlias = int
LongLong: TypeAlias = int
ShortText: TypeAlias = str
LongText: TypeAlias = bytes
Bit: TypeAlias = bool
Fields: TypeAlias = Table


class Method(msgspec.Struct, frozen=True, gc=False):
    """A method. ``index`` is its class and its number in that."""

    index: ClassVar[tuple[int, int]] = (0, 0)


class ConnectionStart(Method, frozen=True):
    """The server's first: what it is, how one may log in, and in which languages it speaks."""

    index: ClassVar = (10, 10)
    version_major: Octet
    version_minor: Octet
    server_properties: Fields
    mechanisms: LongText
    locales: LongText


class ConnectionStartOk(Method, frozen=True):
    """The client's answer, with the first message of its login."""

    index: ClassVar = (10, 11)
    client_properties: Fields
    mechanism: ShortText
    response: LongText
    locale: ShortText


class ConnectionSecure(Method, frozen=True):
    """The login's next challenge."""

    index: ClassVar = (10, 20)
    challenge: LongText


class ConnectionSecureOk(Method, frozen=True):
    """The login's next message."""

    index: ClassVar = (10, 21)
    response: LongText


class ConnectionTune(Method, frozen=True):
    """The server's limits; ``heartbeat`` in seconds, 0 for none."""

    index: ClassVar = (10, 30)
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionTuneOk(Method, frozen=True):
    """The limits that hold; 0 for none of the client's."""

    index: ClassVar = (10, 31)
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionOpen(Method, frozen=True):
    """Choose a virtual host."""

    index: ClassVar = (10, 40)
    virtual_host: ShortText
    capabilities: ShortText = ""
    insist: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    """The connection can be used."""

    index: ClassVar = (10, 41)
    known_hosts: ShortText = ""


class ConnectionClose(Method, frozen=True):
    """The connection ends: why, and by which method."""

    index: ClassVar = (10, 50)
    reply_code: Short
    reply_text: ShortText
    class_id: Short
    method_id: Short


class ConnectionCloseOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (10, 51)


class ConnectionBlocked(Method, frozen=True):
    """The server takes no messages for now."""

    index: ClassVar = (10, 60)
    reason: ShortText


class ConnectionUnblocked(Method, frozen=True):
    """It takes them again."""

    index: ClassVar = (10, 61)


class ConnectionUpdateSecret(Method, frozen=True):
    """Log in anew, before a token ends."""

    index: ClassVar = (10, 70)
    new_secret: LongText
    reason: ShortText


class ConnectionUpdateSecretOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (10, 71)


class ChannelOpen(Method, frozen=True):
    """Open a channel."""

    index: ClassVar = (20, 10)
    out_of_band: ShortText = ""


class ChannelOpenOk(Method, frozen=True):
    """It is open."""

    index: ClassVar = (20, 11)
    channel_id: LongText = b""


class ChannelFlow(Method, frozen=True):
    """Send no messages, or send them again."""

    index: ClassVar = (20, 20)
    active: Bit


class ChannelFlowOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (20, 21)
    active: Bit


class ChannelClose(Method, frozen=True):
    """A channel ends, as :class:`ConnectionClose`."""

    index: ClassVar = (20, 40)
    reply_code: Short
    reply_text: ShortText
    class_id: Short
    method_id: Short


class ChannelCloseOk(Method, frozen=True):
    """The answer to that."""

    index: ClassVar = (20, 41)
