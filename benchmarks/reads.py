"""Reading back: how much the broker serves, and how much a Python client can decode of it."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from benchmarks.harness.load import Tally
from benchmarks.harness.peer import MAX_DATA, Peer, UnexpectedAnswer, expected, received
from journal.formats.frame import decode_run
from txbroker.wire.codec import encode
from txbroker.wire.messages import OVERHEAD, AnyAnswer, Fetch, Fetched, FetchedPartition

FETCH_BYTES = 1 << 20
_decode_head = msgspec.msgpack.Decoder(AnyAnswer).decode
_LENGTHS = struct.Struct(">II")


def _ask(peer: Peer, partition: int, offset: int) -> None:
    peer.socket.sendall(encode(Fetch(partition, [(partition, offset, 0)], FETCH_BYTES)))


def serve(peer: Peer, partitions: Sequence[int], frame: tuple[int, int], seconds: float) -> Tally:
    """Fetch partitions from start to end again and again, with one fetch unanswered for each; count the bytes.

    All frames take ``frame[0]`` bytes and ``frame[1]`` offsets, so the next offset is known without looking
    at the frames; only the head of an answer is decoded.
    """
    tally = Tally()
    began = time.perf_counter()
    buffer = memoryview(bytearray(MAX_DATA))
    waiting = deque((partition, 0) for partition in partitions)
    for partition, offset in waiting:
        _ask(peer, partition, offset)
    while waiting:
        part = _part(_read_answer(peer.socket, buffer))
        partition, offset = waiting.popleft()
        if part.partition != partition or part.length % frame[0] or not part.length:
            raise UnexpectedAnswer(f"{part} for partition {partition} from {offset} on")
        tally.completed += part.length
        offset += part.length // frame[0] * frame[1]
        if time.perf_counter() - began < seconds:
            waiting.append((partition, 0 if offset == part.high_watermark else offset))
            _ask(peer, *waiting[-1])
    tally.seconds = time.perf_counter() - began
    return tally


def _read_answer(connection: socket.socket, buffer: memoryview) -> AnyAnswer:
    _fill(connection, buffer[:OVERHEAD])
    total, head_length = _LENGTHS.unpack_from(buffer)
    _fill(connection, buffer[OVERHEAD : 4 + total])
    answer: AnyAnswer = _decode_head(buffer[OVERHEAD : OVERHEAD + head_length])
    return answer


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        size = connection.recv_into(view, len(view), socket.MSG_WAITALL)
        if not size:
            raise UnexpectedAnswer("the connection was closed")
        view = view[size:]


def _part(answer: AnyAnswer) -> FetchedPartition:
    [part] = expected(answer, Fetched).partitions
    if part.error:
        raise UnexpectedAnswer(f"{part.error}: {part.message}")
    return part


def decode(peer: Peer, partitions: Sequence[int], value: bytes, seconds: float) -> Tally:
    """Fetch partitions again and again, with one fetch unanswered for each; decode and check every message.

    Every value must be ``value``, every offset follow the one before.
    """
    tally = Tally()
    began = time.perf_counter()
    waiting = deque((partition, 0) for partition in partitions)
    for partition, offset in waiting:
        _ask(peer, partition, offset)
    while waiting:
        found: list[tuple[AnyAnswer, memoryview]] = []
        while not found:
            found = peer.decoder.feed(received(peer.socket, FETCH_BYTES))
        for answer, data in found:
            part = _part(answer)
            partition, offset = waiting.popleft()
            for message in decode_run(data, offset):
                if message.offset != offset or message.value != value:
                    raise UnexpectedAnswer(f"{message} instead of offset {offset}")
                offset += 1
                tally.completed += 1
            if time.perf_counter() - began < seconds:
                waiting.append((partition, 0 if offset == part.high_watermark else offset))
                _ask(peer, *waiting[-1])
    tally.seconds = time.perf_counter() - began
    return tally
