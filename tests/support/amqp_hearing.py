"""What a client that speaks AMQP 0-9-1 says and hears, as bytes: methods, and messages with their contents."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.fields import Table
from txbroker.amqp.framing import BODY, END, HEADER, HEARTBEAT, METHOD, content_frames, method_frame
from txbroker.amqp.method_codec import decode_method

CONTENTS = (m.BasicDeliver, m.BasicGetOk, m.BasicReturn)
"""The methods that a content follows."""


class Heard(NamedTuple):
    """A method that a client was told, with its content if it has one."""

    channel: int
    method: Any
    properties: bytes = b""
    body: bytes = b""

    @property
    def headers(self) -> Table:
        return props.headers_of(self.properties, props.spans_of(self.properties))


class Hearing:
    """Decodes what a broker says to one connection, in whatever pieces it comes."""

    def __init__(self) -> None:
        self.heartbeats = 0
        self._raw = bytearray()
        self._begun: dict[int, list[Any]] = {}

    def feed(self, data: bytes) -> list[Heard]:
        """Return what is whole by now. A protocol's header is told as a method of eight bytes."""
        found: list[Heard] = []
        self._raw += data
        while len(self._raw) >= 8:
            if self._raw[:4] == b"AMQP":
                found.append(Heard(0, bytes(self._raw[:8])))
                del self._raw[:8]
                continue
            kind, channel, size = struct.unpack_from(">BHI", self._raw)
            if len(self._raw) < size + 8:
                break
            payload = bytes(self._raw[7 : 7 + size])
            assert self._raw[7 + size] == END
            del self._raw[: size + 8]
            found += self._frame(kind, channel, payload)
        return found

    def _frame(self, kind: int, channel: int, payload: bytes) -> list[Heard]:
        if kind == HEARTBEAT:
            self.heartbeats += 1
            return []
        if kind != METHOD:
            return self._content(kind, channel, payload)
        assert channel not in self._begun, "a method within a content"
        method = decode_method(payload)
        if not isinstance(method, CONTENTS):
            return [Heard(channel, method)]
        self._begun[channel] = [method, None, 0, b""]
        return []

    def _content(self, kind: int, channel: int, payload: bytes) -> list[Heard]:
        begun = self._begun[channel]
        if kind == HEADER:
            assert begun[1] is None
            begun[2] = struct.unpack_from(">Q", payload, 4)[0]
            begun[1] = payload[12:]
            props.decoded(begun[1])
        else:
            assert kind == BODY
            begun[3] += payload
        if len(begun[3]) < begun[2]:
            return []
        del self._begun[channel]
        return [Heard(channel, begun[0], begun[1], begun[3])]


def published(
    channel: int,
    key: str,
    body: bytes = b"",
    exchange: str = "",
    properties: bytes = props.NONE,
    **more: bool,
) -> bytes:
    """Return the frames of a message."""
    method = m.BasicPublish(0, exchange, key, more.get("mandatory", False), more.get("immediate", False))
    pieces = content_frames(channel, properties, body, 131_072)
    return b"".join((method_frame(channel, method), *pieces))


def declare(name: str = "q", arguments: Table | None = None, **flags: bool) -> m.QueueDeclare:
    """Return the declaration of a queue, a durable one unless ``flags`` say otherwise."""
    said = {
        "passive": False,
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "no_wait": False,
    } | flags
    return m.QueueDeclare(0, name, arguments=arguments or {}, **said)


def declare_exchange(
    name: str, kind: str = "direct", arguments: Table | None = None, **flags: bool
) -> m.ExchangeDeclare:
    """Return the declaration of an exchange, a durable one unless ``flags`` say otherwise."""
    said = {
        "passive": False,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "no_wait": False,
    } | flags
    return m.ExchangeDeclare(0, name, kind, arguments=arguments or {}, **said)


def consume(
    queue: str = "q", tag: str = "c", arguments: Table | None = None, **flags: bool
) -> m.BasicConsume:
    """Return the method that begins to consume a queue."""
    said = {"no_local": False, "no_ack": False, "exclusive": False, "no_wait": False} | flags
    return m.BasicConsume(0, queue, tag, arguments=arguments or {}, **said)
