"""Frames, sans I/O: a peer's bytes become methods with their contents, and back.

``type u8 | channel u16 | size u32 | payload | 0xCE``; the specification, section 4.2.3. A content is a header frame and
as many body frames as it takes; those of several channels may come in turn.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from txbroker.amqp.connection_methods import Method
from txbroker.amqp.fields import malformed
from txbroker.amqp.method_codec import decode_method, encode_method
from txbroker.amqp.methods import BasicPublish
from txbroker.amqp.properties import NONE
from txbroker.amqp.reply_codes import AmqpError, Reply

PROTOCOL_HEADER: Final = b"AMQP\0\0\x09\1"
"""A connection's first bytes; also a server's answer to another protocol's."""
LEAST_FRAME: Final = 4096
"""The largest frame that each side takes before they have agreed on another size."""
OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""
END: Final = 0xCE
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
HEARTBEAT_FRAME: Final = b"\x08\0\0\0\0\0\0\xce"

_FRAME: Final = Struct(">BHI")
_INDEX: Final = Struct(">I")
_CONTENT: Final = Struct(">HHQ")
_BASIC: Final = 60
_PUBLISH: Final = 60 << 16 | 40
_NO_DATA: Final = memoryview(b"")
_NO_METHOD: Final = BasicPublish(0, "", "", False, False)
_EACH: Final = 640
"""What an unfinished content takes beside its bytes, as objects."""
_WIDEST: Final = 4
"""Bytes that a byte of UTF-8 may take as str."""


class Arrived(NamedTuple):
    """What has come on a channel: a method with the properties of its content, or what is wrong with what has come.

    ``method`` None is the protocol's header.
    """

    channel: int
    method: Method | AmqpError | None
    properties: bytes = NONE


Found = list[tuple[Arrived, memoryview]]


class _Content:
    """A content that has begun: ``left`` bytes of its body are to come, -1 if its header is; ``held`` are kept of it.
    Of one that ``is_dropped`` nothing is kept but that.
    """

    __slots__ = ("body", "held", "is_dropped", "left", "method", "properties")

    def __init__(self, method: BasicPublish, held: int) -> None:
        self.method, self.properties, self.left, self.held = method, NONE, -1, held
        self.body: bytearray | None = None
        self.is_dropped = False


class AmqpDecoder:
    """Takes a peer's bytes as they come, returns what they are; in use as :class:`txbroker.wire.codec.Decoder`.

    A body has at most ``max_body`` bytes. ``frame_max`` is the largest frame that is taken. What breaks the protocol
    comes out as the last thing; whatever follows is dropped.
    """

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self.frame_max = LEAST_FRAME
        self._came = _NO_DATA
        self._position = 0
        self.uncut = 0
        """The number of bytes that were not decoded: there may be whole frames in them."""
        self.came = 0
        """How many bytes have come."""
        self.taken = 0
        """The bytes of what :meth:`take` returned last."""
        self._begun = bytearray()
        self._needed = len(PROTOCOL_HEADER)
        self._has_header = self._has_failed = False
        self._contents: dict[int, _Content] = {}
        self._parts = 0
        """Bytes that contents take that are not whole."""
        self._left = 0
        """Bytes that are to come of them, as far as they were announced and will be kept."""

    @property
    def held(self) -> int:
        """How many bytes are kept of frames and contents that are not whole, with the objects that contents take."""
        return len(self._begun) + self._parts

    @property
    def missing(self) -> int:
        """How many bytes the frame that has begun needs, or all contents that have, if that is more; never 0.

        It takes as long with a content on every channel: it is asked for after each read.
        """
        return max(self._needed - len(self._begun), self._left)

    def forget(self, channel: int) -> None:
        """Forget a content that has begun on a channel, which has ended."""
        content = self._contents.pop(channel, None)
        if content is not None:
            self._drop(content)
            self._parts -= _EACH

    def _drop(self, content: _Content) -> None:
        """Keep nothing of a content but that it has begun."""
        if not content.is_dropped:
            self._parts -= content.held - _EACH
            self._left -= max(content.left, 0)
            content.is_dropped = True
            content.method, content.properties, content.body = _NO_METHOD, NONE, None

    def feed(self, data: bytes, work: float = inf, each: int = 0) -> Found:
        """Take bytes, return what they complete."""
        self.add(data)
        return self.take(work, each)

    def add(self, data: bytes) -> None:
        """Take bytes, and keep them for :meth:`take`."""
        self.came += len(data)
        if self._has_failed:
            return
        whole: bytes | bytearray = data
        if self.uncut:
            whole = b"".join((self._came[self._position :], data))
        elif self._begun:
            self._begun += data
            if len(self._begun) < self._needed:
                return
            whole, self._begun = self._begun, bytearray()
        self._came, self._position, self.uncut = memoryview(whole), 0, len(whole)

    def take(self, work: float = inf, each: int = 0) -> Found:
        """Return the next that have come whole, until they reach ``work``, counted in bytes and ``each`` for each."""
        found: Found = []
        start = self._position
        if not self.uncut:
            self.taken = 0
            return found
        try:
            is_all = self._take(found, start + work, each)
        except AmqpError as error:
            found.append((Arrived(error.channel or 0, error), _NO_DATA))
            self.taken = self._position - start
            self._fail()
            return found
        self.taken = self._position - start
        if is_all:
            self._begun += self._came[self._position :]
            self._came, self.uncut, self._position = _NO_DATA, 0, 0
        else:
            self.uncut = len(self._came) - self._position
        return found

    def _fail(self) -> None:
        self._has_failed = True
        self._came, self.uncut, self._position = _NO_DATA, 0, 0
        self._contents, self._parts, self._left, self._needed = {}, 0, 0, OVERHEAD

    def _take(self, found: Found, stop: float, each: int) -> bool:
        """Append the next; return whether there is no other."""
        view, end = self._came, len(self._came)
        if not self._has_header and not self._take_header(found):
            return True
        most = self.frame_max - OVERHEAD
        count, channel = len(found), 0
        try:
            while end - (position := self._position) >= OVERHEAD:
                if position >= stop:
                    return False
                kind, channel, size = _FRAME.unpack_from(view, position)
                if size > most:
                    text = f"a frame of type {kind} with {size} bytes, {most} are allowed"
                    raise AmqpError(Reply.FRAME_ERROR, text)
                after = position + OVERHEAD + size
                if after > end:
                    self._needed = after - position
                    return True
                if view[after - 1] != END:
                    raise AmqpError(Reply.FRAME_ERROR, f"a frame of {size} bytes that does not end there")
                self._frame(kind, channel, view[position + 7 : after - 1], found)
                if len(found) > count:  # by one
                    count += 1
                    stop -= each
                self._position = after
        except AmqpError as error:
            error.channel = channel
            raise
        self._needed = OVERHEAD
        return True

    def _take_header(self, found: Found) -> bool:
        """Take the first bytes of a connection; return whether they are there, and are what they must be."""
        view = bytes(self._came[: len(PROTOCOL_HEADER)])
        if len(view) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(view):
            return False
        if view != PROTOCOL_HEADER:
            raise AmqpError(Reply.FRAME_ERROR, f"not AMQP 0-9-1: {view!r}")
        found.append((Arrived(0, None), _NO_DATA))
        self._has_header, self._position = True, len(PROTOCOL_HEADER)
        return True

    def _frame(self, kind: int, channel: int, payload: memoryview, found: Found) -> None:
        content = self._contents.get(channel)
        if kind == METHOD:
            if content is not None and content.is_dropped:
                self.forget(channel)  # its sender was told, and need not send the rest
            elif content is not None:
                raise AmqpError(Reply.UNEXPECTED_FRAME, "a method within a content")
            if len(payload) >= 4 and _INDEX.unpack_from(payload)[0] == _PUBLISH:
                held = _EACH + _WIDEST * len(payload)
                self._contents[channel] = _Content(_decode_publish(payload), held)
                self._parts += held
            else:
                found.append((Arrived(channel, decode_method(payload)), _NO_DATA))
        elif kind in (HEADER, BODY):
            if content is None:
                raise AmqpError(Reply.UNEXPECTED_FRAME, "a content that no method came with")
            if kind == HEADER:
                self._begin_body(channel, content, payload, found)
            else:
                self._add_body(channel, content, payload, found)
        elif kind != HEARTBEAT:
            raise AmqpError(Reply.FRAME_ERROR, f"a frame of type {kind}, which is none")
        elif channel or payload:
            raise AmqpError(Reply.FRAME_ERROR, "a heartbeat that is no empty frame of channel 0")

    def _begin_body(self, channel: int, content: _Content, payload: memoryview, found: Found) -> None:
        if content.left >= 0:
            raise AmqpError(Reply.UNEXPECTED_FRAME, "a second content header")
        try:
            kind, _, size = _CONTENT.unpack_from(payload)
        except StructError as error:
            raise malformed(f"a content header of {len(payload)} bytes") from error
        if kind != _BASIC:
            raise AmqpError(Reply.FRAME_ERROR, f"a content of class {kind}, the method was of class {_BASIC}")
        if size > self._max_body:
            self._drop(content)
            content.left = size
            text = f"a message of {size} bytes, {self._max_body} are allowed; nothing was sent"
            found.append((Arrived(channel, AmqpError(Reply.CONTENT_TOO_LARGE, text)), _NO_DATA))
            return
        content.left, content.properties = size, bytes(payload[_CONTENT.size :])
        self._left += size
        self._keep(content, len(content.properties))
        if not size:
            self._complete(channel, content, _NO_DATA, found)

    def _keep(self, content: _Content, count: int) -> None:
        content.held += count
        self._parts += count

    def _add_body(self, channel: int, content: _Content, payload: memoryview, found: Found) -> None:
        size, left = len(payload), content.left
        if size > left:
            has = "a body before its header" if left < 0 else f"{size} bytes of a body"
            raise AmqpError(Reply.UNEXPECTED_FRAME, f"{has}, {max(left, 0)} were to come")
        content.left = left - size
        if content.is_dropped:
            if size == left:
                self.forget(channel)
            return
        self._left -= size
        body = content.body
        if body is not None:
            body += payload  # no list of pieces: a peer that sends two bytes at a time would have 20 times as much kept
        elif size < left:
            content.body = bytearray(payload)
        if size < left:
            self._keep(content, size)
        else:
            self._complete(channel, content, payload if body is None else memoryview(body), found)

    def _complete(self, channel: int, content: _Content, body: memoryview, found: Found) -> None:
        del self._contents[channel]
        self._parts -= content.held
        found.append((Arrived(channel, content.method, content.properties), body))


def _decode_publish(payload: memoryview) -> BasicPublish:
    """Return the method that the payload of a frame is: by hand, 0.7 instead of 1.4 µs a message."""
    try:
        octets, begin = bytes(payload), 7
        middle = begin + octets[6]
        end = middle + 1 + octets[middle]
        flags = octets[end]
        if end + 1 != len(octets):
            raise malformed("bytes behind the arguments of basic.publish")
        return BasicPublish(
            0, octets[begin:middle].decode(), octets[middle + 1 : end].decode(),
            flags & 1 != 0, flags & 2 != 0,
        )  # fmt: skip
    except (IndexError, UnicodeDecodeError) as error:
        raise malformed(f"the arguments of basic.publish: {error}") from error


def frame_of(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame."""
    return b"".join((_FRAME.pack(kind, channel, len(payload)), payload, b"\xce"))


def method_frame(channel: int, method: Method) -> bytes:
    """Return the frame of a method."""
    return frame_of(METHOD, channel, encode_method(method))


def content_frames(
    channel: int, properties: bytes, body: bytes | memoryview, frame_max: int
) -> list[bytes | memoryview]:
    """Return the frames of a content, as pieces: a header, and a body in frames of ``frame_max`` bytes at most."""
    size, most = len(body), frame_max - OVERHEAD
    head = _CONTENT.pack(_BASIC, 0, size) + properties
    pieces: list[bytes | memoryview] = [_FRAME.pack(HEADER, channel, len(head)), head, b"\xce"]
    if 0 < size <= most:
        pieces += (_FRAME.pack(BODY, channel, size), body, b"\xce")
    elif size:
        view = memoryview(body)
        for begin in range(0, size, most):
            piece = view[begin : begin + most]
            pieces += (_FRAME.pack(BODY, channel, len(piece)), piece, b"\xce")
    return pieces
