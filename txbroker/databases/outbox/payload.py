"""The messages of one block, as a row of the outbox has them.

A payload is a fixed head (version, CRC-32C of the list, length of the list), the list in MessagePack (when the block
ended, for each partition its topic, index and bytes, and whether a refusal stops the stream), and the frames of all of
them, as they are sent. Each frame has a checksum of its own, which the broker checks. Topics are named, because a topic
may be made anew before they are delivered. A payload without runs is a mark: its block was rolled back.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from txbroker import errors

VERSION: Final = 1
_HEAD: Final = struct.Struct(">BII")


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Messages of one partition: its index in its topic, how many the topic had when it was chosen, and the bytes of
    its frames.
    """

    topic: str
    partition: int
    partitions: int
    size: int


class _List(msgspec.Struct, array_like=True, frozen=True, gc=False):
    at: int
    runs: list[Run]
    stops: bool = False


class Payload(NamedTuple):
    """What a row says: ``at`` is when its block ended, in µs since 1970 UTC by the program's clock; ``stops`` whether
    the stream waits at it if it is refused for ever, whoever delivers it.
    """

    at: int
    runs: list[Run]
    frames: memoryview
    stops: bool

    @property
    def is_mark(self) -> bool:
        """Whether it only says that its block was rolled back."""
        return not self.runs


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_List).decode


def pack(at: int, runs: list[Run], frames: bytes, stops: bool = False) -> bytes:
    """Return the bytes of a payload."""
    listed = _encode(_List(at, runs, stops))
    return b"".join((_HEAD.pack(VERSION, crc32c(listed), len(listed)), listed, frames))


def mark(at: int) -> bytes:
    """Return the payload of a block that was rolled back."""
    return pack(at, [], b"")


def unpack(data: bytes | memoryview, what: str) -> Payload:
    """Read a payload; raises InvalidFrame if it is none. ``what`` names the row."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise _corrupt(what, f"has {len(view)} bytes")
    version, checksum, length = _HEAD.unpack_from(view)
    if version != VERSION:
        raise _corrupt(what, f"is of version {version}, this program knows {VERSION}")
    listed, frames = view[_HEAD.size : _HEAD.size + length], view[_HEAD.size + length :]
    if crc32c(listed) != checksum:
        raise _corrupt(what, "does not have its checksum")
    try:
        found = _decode(listed)
    except msgspec.MsgspecError as error:
        raise _corrupt(what, str(error)) from error
    if any(run.size < 0 for run in found.runs) or sum(run.size for run in found.runs) != len(frames):
        raise _corrupt(what, f"has {len(frames)} bytes of messages, and lists others")
    return Payload(found.at, found.runs, frames, found.stops)


def _corrupt(what: str, how: str) -> errors.InvalidFrame:
    return errors.InvalidFrame(f"the payload of {what} {how}; it was not delivered")
