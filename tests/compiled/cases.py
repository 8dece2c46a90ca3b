"""Cases for both builds of a leaf: calls drawn from a seed, with sound bytes, and with some that were changed."""

from __future__ import annotations

import fcntl
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from struct import Struct, pack_into, unpack_from
from types import ModuleType
from typing import Any

import msgspec
from crc32c import crc32c

from journal.formats import frame
from journal.formats.compression import LZ4, ZSTD, whole_room
from journal.records import record
from journal.records.record import Mark, Messages, Started, TopicDeleted
from journal.vfs import force_calls
from tests.compiled.builds import Builds, outcome
from txbroker.wire import messages
from txbroker.wire.newer_request import unread_request

INTERESTING = (
    0,
    1,
    2,
    3,
    7,
    8,
    11,
    12,
    35,
    36,
    37,
    43,
    44,
    45,
    255,
    256,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
"""Numbers of 32 bits at which something changes."""

FORCING_ROOM = 5000
HEADER_FIELDS = (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)
Outcome = tuple[object, ...]
Case = Callable[[random.Random, Builds], Iterator[tuple[Outcome, Outcome]]]


def value(draw: random.Random) -> bytes:
    """Return the value of a message, mostly short."""
    return draw.randbytes(draw.choice((0, 1, 8, 9, 40, 100, draw.randrange(700))))


def inner(draw: random.Random, position: int) -> bytes:
    """Return a message for the inside of a wrapper."""
    key = draw.choice((None, None, b"", b"key", draw.randbytes(5)))
    headers = draw.choice((None, None, {"a": b"b"}, {"name": b"v", "z": b""}))
    content = None if draw.random() < 0.1 else value(draw)
    return frame.encode_inner(position, content, draw.randrange(1 << 50), key, headers)


def one_frame(draw: random.Random) -> bytes:
    """Return a sound frame: a message, a wrapper, or a compressed one."""
    kind = draw.random()
    if kind < 0.4:
        return frame.encode_alone(inner(draw, 0))
    count = draw.choice((1, 2, 3, draw.randrange(1, 12)))
    content = b"".join(inner(draw, position) for position in range(count))
    if kind < 0.8:
        return frame.encode_wrapper(content, count, 1)
    codec = draw.choice((ZSTD, LZ4))
    return frame.encode_wrapper(compressed(codec.name, content), count, 1, codec.number)


def compressed(name: str, content: bytes) -> bytes:
    """Return the payload of a compressed wrapper, smaller or not."""
    size = len(content).to_bytes(4, "big")
    if name == "zstd":
        import zstandard

        return size + zstandard.ZstdCompressor().compress(content)
    import lz4.block

    return size + bytes(lz4.block.compress(content, store_size=False))


def run(draw: random.Random) -> bytearray:
    """Return a run of frames, in half of the cases with changes, whose checksums may be right all the same."""
    pieces = [bytearray(one_frame(draw)) for _ in range(draw.choice((0, 1, 1, 2, 5)))]
    if pieces and draw.random() < 0.5:
        changed = draw.choice(pieces)
        change(draw, changed)
        if draw.random() < 0.7 and len(changed) >= frame.HEADER_BYTES:
            pack_into(">I", changed, 4, crc32c(bytes(changed[frame.CRC_START :])))
    whole = bytearray(b"".join(pieces))
    if draw.random() < 0.1:
        change(draw, whole)
    return whole


def change(draw: random.Random, data: bytearray) -> None:
    """Change some bytes: a field of a header, single ones, or the end."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        if not data:
            data += draw.randbytes(draw.randrange(60))
            continue
        kind = draw.random()
        at = draw.choice(HEADER_FIELDS) + draw.choice((0, 0, 44, 80))
        if kind < 0.5 and at + 4 <= len(data):
            pack_into(
                ">I",
                data,
                at,
                draw.choice((*INTERESTING, len(data), max(0, len(data) - 44), draw.getrandbits(32))),
            )
        elif kind < 0.8:
            data[draw.randrange(len(data))] = draw.randrange(256)
        elif kind < 0.9:
            del data[draw.randrange(len(data)) :]
        else:
            data += draw.randbytes(draw.randrange(60))


def view(draw: random.Random, data: bytearray) -> memoryview:
    """Return the bytes as a part of larger ones: what is read or written beside them would be seen."""
    before = draw.choice((0, 1, 7))
    return memoryview(bytearray(b"\xee" * before + data + b"\xee" * 9))[before : before + len(data)]


def check_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """The checks of frames: a run, the payload of a wrapper, a stored wrapper."""
    data = run(draw)
    limit = draw.choice((frame.HEADER_BYTES, 60, 200, len(data), 1 << 24, 1 << 62))
    opens, most = draw.random() < 0.8, draw.choice((0, 1, 3, 4096, 1 << 62))
    seen = view(draw, data)
    rest = [whole_room(), whole_room()] if draw.random() < 0.5 else [None, None]
    yield tuple(
        (*outcome(each.check_run, seen, limit, opens, most, left), left)
        for each, left in zip(builds, rest, strict=True)
    )
    yield tuple(outcome(each.check_run, bytes(data)) for each in builds)
    place = draw.choice((0, 4, 44, 44, 44, 80))
    yield tuple(outcome(each.count_inner, seen[place:], 7) for each in builds)
    yield tuple(outcome(each.count_in_wrapper, seen) for each in builds)


def ends(data: bytearray, start: int, until: int, least: int) -> bool:
    """Return whether a walk over lengths ends: one below ``CRC_START``, which no checked frame has, is written over."""
    while start < until and start + least <= len(data):
        length = int(unpack_from(">I", data, start)[0])
        if length < frame.CRC_START:
            return False
        start += length
    return True


def stamp_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """Stamps: what they write, and where they end, also in runs that nobody has checked."""
    data = run(draw)
    base = draw.choice(
        (0, 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, 1 << 64, draw.getrandbits(60))
    )
    appended = draw.choice((0, 1, -1, (1 << 63) - 1, -(1 << 63), 1 << 63, draw.getrandbits(50)))
    if ends(data, 0, len(data), 36):
        views = [view(random.Random(1), data) for _ in builds]
        yield tuple(
            (*outcome(each.stamp, seen, base, appended), bytes(seen.obj))
            for each, seen in zip(builds, views, strict=True)
        )
        yield tuple(outcome(each.stamp, memoryview(bytes(data)), base, appended) for each in builds)
    start = draw.choice((0, 0, len(data), draw.randrange(len(data) + 1)))
    until = draw.choice((start, len(data), start + 1, len(data) + 5))
    if ends(data, start, until, 36):
        views = [view(random.Random(2), data) for _ in builds]
        yield tuple(
            (*outcome(each.stamp_some, seen, start, until, base, appended), bytes(seen.obj))
            for each, seen in zip(builds, views, strict=True)
        )


def record_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """Records: the bytes of several kinds, with numbers of all widths."""
    number = draw.getrandbits(draw.choice((1, 7, 8, 16, 32, 63, 64)))
    decision = draw.choice(
        (
            Mark(number),
            Messages(
                number, draw.getrandbits(33), 1 + draw.getrandbits(9), number, draw.getrandbits(20), 1, 5
            ),
            Started(number, 1, 2, draw.randbytes(16)),
            TopicDeleted("t" * draw.randrange(70), number),
        )
    )
    data: bytes | memoryview = bytes(run(draw))
    if draw.random() < 0.3:
        data = view(draw, bytearray(data))
    seed = draw.choice((0, 1, (1 << 32) - 1, draw.getrandbits(32)))
    yield tuple(outcome(each.pack, decision, data, seed) for each in builds)


def cut_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """Records in a row, cut into heads and data, also where their lengths are anything."""
    pieces = []
    for _ in range(draw.choice((0, 1, 2, 5, 20))):
        data = value(draw)
        number = draw.getrandbits(draw.choice((6, 6, 6, 40)))
        pieces.append(record.pack(Messages(1, number, 1, 5), data, 0) + data)
    body = bytearray(b"".join(pieces))
    if draw.random() < 0.5 and len(body) >= 12:
        at = draw.choice((0, 8, draw.randrange(len(body) - 3)))
        pack_into(
            ">I", body, at, draw.choice((*INTERESTING, len(body), len(body) - 12, draw.getrandbits(32)))
        )
    if draw.random() < 0.3:
        del body[draw.randrange(len(body) + 1) :]
    start = draw.choice((0, 0, 0, len(body), draw.randrange(len(body) + 1)))
    head_length = draw.choice((9, 9, 9, 17, 8, 0, draw.getrandbits(31)))
    arguments = (bytes(body), start, draw.choice((0, 1, 3, 512)), head_length)
    yield tuple(outcome(each.cut_apart, *arguments) for each in builds)


_decode = msgspec.msgpack.Decoder(messages.AnyRequest).decode
_LENGTHS = Struct(">II")


def wire_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """The wire: messages joined, and cut from bytes that may be anything."""
    pieces = []
    for _ in range(draw.choice((0, 1, 2, 3, 9))):
        head: Any = draw.choice(
            (
                messages.Send(draw.getrandbits(20), draw.getrandbits(10), draw.getrandbits(33)),
                messages.AskStatus(draw.getrandbits(8)),
                messages.DescribeTopics(1, ["t" * draw.randrange(40)]),
            )
        )
        data = draw.choice((b"", value(draw), memoryview(value(draw))))
        yield tuple(outcome(each.encode, head, data) for each in builds)
        parts = [value(draw) for _ in range(draw.randrange(3))]
        yield tuple(outcome(each.encode_parts, head, parts) for each in builds)
        pieces.append(bytearray(builds.pure.encode(head, data)))
    if pieces and draw.random() < 0.5:
        changed = draw.choice(pieces)
        at = draw.choice((0, 4, draw.randrange(len(changed))))
        wrong = draw.choice(
            (*INTERESTING, len(changed), len(changed) - 4, len(changed) - 8, draw.getrandbits(32))
        )
        if draw.random() < 0.3:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        elif at + 4 <= len(changed):
            pack_into(">I", changed, at, wrong)
    whole = bytearray(b"".join(pieces)) + draw.randbytes(draw.choice((0, 0, 1, 3, 4, 7, 8, 20)))
    if draw.random() < 0.3:
        del whole[draw.randrange(len(whole) + 1) :]
    seen = view(draw, whole)
    start = draw.choice((0, 0, 0, len(whole), draw.randrange(len(whole) + 1)))
    work = draw.choice((float("inf"), 0, 1, 50, 400))
    each_costs, max_head, max_data = (
        draw.choice((0, 100)),
        draw.choice((16, 200, 1 << 20)),
        draw.choice((0, 64, 1 << 24)),
    )
    found: list[list[Any]] = [[], []]
    yield tuple(
        (
            *outcome(
                each.cut, seen, start, work, each_costs, max_head, max_data, _decode, unread_request, into
            ),
            into,
        )
        for each, into in zip(builds, found, strict=True)
    )


def forcing_cases(draw: random.Random, builds: Builds) -> Iterator[tuple[Outcome, Outcome]]:
    """Jobs to a file in memory and to descriptors of which each call says no: what is in the file, and what is told."""
    jobs = [_job(draw) for _ in range(draw.randrange(1, 5))]
    yield tuple(_forced(each, jobs) for each in builds)  # type: ignore[misc]


Job = tuple[str, int, int, bytes]


def _job(draw: random.Random) -> Job:
    data = draw.randbytes(draw.choice((0, 1, 100, FORCING_ROOM)))
    size = draw.choice((len(data), len(data), len(data), FORCING_ROOM + 1, -1, 1 << 62))
    kind = draw.choice(("file", "file", "file", "sealed", "read", "full", "pipe", "closed"))
    return kind, draw.choice((0, 1, 4096, draw.randrange(1 << 20), 1 << 62, -1)), size, data


def _forced(leaf: ModuleType, jobs: list[Job]) -> Outcome:
    """Return error and stage of each job, and what the files have then."""
    area = bytearray(force_calls.HEADER + FORCING_ROOM)
    numbers = memoryview(area)[: force_calls.HEADER].cast("q")
    with ExitStack() as stack:

        def kept(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        asked, done = kept(os.eventfd(0)), kept(os.eventfd(0))
        sealed = kept(os.memfd_create("sealed", os.MFD_ALLOW_SEALING))
        os.ftruncate(sealed, 4200)
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        files = {
            "file": kept(os.memfd_create("file")),
            "sealed": sealed,
            "read": kept(os.open("/dev/zero", os.O_RDONLY)),
            "full": kept(os.open("/dev/full", os.O_WRONLY)),
            "pipe": [kept(each) for each in os.pipe()][1],
            "closed": 1 << 20,
        }
        thread = threading.Thread(target=leaf.serve, args=(area, asked, done))
        thread.start()
        told = []
        for kind, position, size, data in jobs:
            area[force_calls.HEADER : force_calls.HEADER + len(data)] = data
            numbers[force_calls.DESCRIPTOR], numbers[force_calls.POSITION] = files[kind], position
            numbers[force_calls.SIZE] = size
            os.eventfd_write(asked, 1)
            os.eventfd_read(done)
            told.append((numbers[force_calls.ERROR], numbers[force_calls.STAGE]))
        numbers[force_calls.DESCRIPTOR] = force_calls.END
        os.eventfd_write(asked, 1)
        thread.join()
        size = min(os.fstat(files["file"]).st_size, 1 << 21)
        return told, os.pread(files["file"], size, 0), os.pread(sealed, 4200, 0)


CASES: dict[str, Case] = {
    "journal.formats.frame_check": check_cases,
    "journal.formats.frame_stamp": stamp_cases,
    "journal.records.record_bytes": record_cases,
    "journal.recovery.record_cuts": cut_cases,
    "journal.vfs.forcing": forcing_cases,
    "txbroker.wire.framing": wire_cases,
}
"""What is asked of each leaf."""
