"""Test damaged logs: bytes of frames and batches, and whole files. Each damage is named by its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from journal.formats import filenames, frame
from journal.formats.filenames import SegmentKind
from journal.formats.frame import HEADER_BYTES
from tests.spark.audit.audited import copied
from tests.spark.damages.damages import Damages, Named
from tests.spark.damages.forger import (
    altered,
    directory_of,
    flip,
    forge,
    held,
    holding,
    log_file,
    overwrite,
    restate,
    sealed,
    store_of,
    write,
)
from tests.spark.world import everything

pytestmark = pytest.mark.slow

damage = Damages()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("sound") / "data")


# -- bytes of a log --------------------------------------------------------------------------------------------


def _in_frame(at: int) -> Callable[[Path], Named]:
    def turn(path: Path) -> Named:
        found = holding(path, "quiet", 0, b"quiet 05")
        flip(path, found.segment, found.entry.position + at)
        return {
            "kind": "damaged frame", "topic": "quiet", "partition": 0, "first": found.entry.offset,
            "path": found.segment, "position": found.entry.position,
        }  # fmt: skip

    return turn


for _name, _at in {
    "length": 0, "length's low byte": 3, "checksum": 4, "offset": 8, "offset's low byte": 15, "time": 24,
    "count": 32, "flag": 36, "attribute length": 40, "value": HEADER_BYTES + 2,
}.items():  # fmt: skip
    damage(f"a byte of a frame's {_name} is turned")(_in_frame(_at))


@damage("a byte inside of an inner frame is turned")
def _(path):
    found = holding(path, "a", 1, frame.encode_inner(0, b"one", 0)[:4])
    flip(path, found.segment, found.entry.position + HEADER_BYTES + 60)
    return {"kind": "damaged frame", "topic": "a", "partition": 1, "first": found.entry.offset}


def _inner(change: Callable[[bytearray], None], says: str) -> Callable[[Path], Named]:
    """A wrapper whose checksum fits, and which holds an inner frame that is wrong."""

    def damaged(path: Path) -> Named:
        found = next(each for each in held(path, "quiet") if each.entry.flag & frame.WRAPPER)
        data = bytearray(found.entry.frame)
        change(data)
        write(path, found.segment, found.entry.position, sealed(bytes(data)))
        return {
            "topic": "quiet", "partition": 0, "first": found.entry.offset, "last": found.entry.offset + 2,
            "path": found.segment, "position": found.entry.position, "kind": "damaged frame", "says": says,
        }  # fmt: skip

    return damaged


def _set(at: int, value: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[HEADER_BYTES + at : HEADER_BYTES + at + len(value)] = value

    return change


damage("an inner frame's length goes beyond its wrapper")(
    _inner(_set(0, b"\x00\x00\x10\x00"), "in the wrapper")
)
damage("an inner frame has no length")(_inner(_set(0, bytes(4)), "in the wrapper"))
damage("an inner frame has a checksum")(_inner(_set(4, b"\x01"), "in the wrapper"))
damage("an inner frame has another's number")(_inner(_set(15, b"\x01"), "in the wrapper"))
damage("an inner frame says two messages")(_inner(_set(27, b"\x02"), "in the wrapper"))
damage("an inner frame is a wrapper")(_inner(_set(31, b"\x01"), "in the wrapper"))
damage("an inner frame has attributes that go beyond it")(
    _inner(_set(32, b"\x00\x00\x10\x00"), "in the wrapper")
)


@damage("a wrapper says more messages than it holds, and all offsets behind it are one higher")
def _(path):
    def edit(content):
        for frames in content:
            for n, each in enumerate(frames):
                if frame.HEADER.unpack_from(each)[6] & frame.WRAPPER:
                    frames[n] = altered(each, 32, (4).to_bytes(4, "big"))

    found = next(each for each in held(path, "quiet") if each.entry.flag & frame.WRAPPER)
    forge(path, "quiet", 0, edit)
    return {"kind": "damaged frame", "topic": "quiet", "first": found.entry.offset, "path": found.segment}


@damage("a frame is of a newer format version, with a checksum that fits")
def _(path):
    found = holding(path, "quiet", 0, b"quiet 05")
    write(path, found.segment, found.entry.position, altered(bytes(found.entry.frame), 36, b"\x03"))
    return {
        "kind": "damaged frame", "topic": "quiet", "first": found.entry.offset, "path": found.segment,
        "position": found.entry.position, "says": "its flag is 0x3000000, which is not known",
    }  # fmt: skip


def _single(change: Callable[[bytes], bytes], says: str) -> Callable[[Path], Named]:
    """A message outside of batches whose checksum fits, and whose header is wrong."""

    def damaged(path: Path) -> Named:
        found = holding(path, "quiet", 0, b"quiet 05")
        write(path, found.segment, found.entry.position, change(bytes(found.entry.frame)))
        return {
            "kind": "damaged frame", "topic": "quiet", "first": found.entry.offset, "last": found.entry.offset,
            "path": found.segment, "position": found.entry.position, "says": says,
        }  # fmt: skip

    return damaged


def _flag(flag: int) -> Callable[[bytes], bytes]:
    return lambda data: altered(data, 36, (frame.VERSION | flag).to_bytes(4, "big"))


damage("a tombstone has a value")(_single(_flag(frame.TOMBSTONE), "it is a tombstone with a value"))
damage("a message was given up by a repair")(_single(_flag(frame.LOST), "lost before a repair"))
damage("attributes go beyond their frame, with a checksum that fits")(
    _single(lambda data: altered(data, 40, (9_999).to_bytes(4, "big")), "it says 9999 attribute bytes")
)


@damage("a single message says two, and all offsets behind it are one higher")
def _(path):
    found = holding(path, "quiet", 0, b"quiet 05")

    def edit(content):
        frames = next(each for each in content if bytes(found.entry.frame) in each)
        place = frames.index(bytes(found.entry.frame))
        frames[place] = altered(frames[place], 32, (2).to_bytes(4, "big"))

    forge(path, "quiet", 0, edit)
    return {
        "kind": "damaged frame", "topic": "quiet", "first": found.entry.offset, "path": found.segment,
        "says": "it says 2 messages, it is one",
    }  # fmt: skip


@damage("a hole of zeros in the middle of a segment")
def _(path):
    found = holding(path, "quiet", 0, b"quiet 05")
    write(path, found.segment, found.entry.position + 10, bytes(7000))
    return {
        "kind": "damaged frame", "topic": "quiet", "first": found.entry.offset, "path": found.segment,
        "position": found.entry.position,
    }  # fmt: skip


@damage("a segment's end is zeros")
def _(path):
    last = held(path, "quiet")[-1]
    write(path, last.segment, last.entry.position, bytes(last.entry.length))
    return {"kind": "damaged frame", "topic": "quiet", "first": last.entry.offset, "path": last.segment}


@damage("a whole segment is zeros")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0])
    (path / file).write_bytes(bytes(store.segments[0].size))
    return {"kind": "damaged frame", "topic": "quiet", "first": 0, "path": file, "position": 64}


@damage("a segment is empty")
def _(path):
    store = store_of(path, "a", 1)
    file = log_file(store, store.segments[1])
    (path / file).write_bytes(b"")
    first = store.segments[1].base_offset
    return {"kind": "damaged frame", "topic": "a", "partition": 1, "first": first, "path": file}


@damage("a segment is one byte short")
def _(path):
    last = held(path, "orders", 1)[-1]
    content = (path / last.segment).read_bytes()
    (path / last.segment).write_bytes(content[:-1])
    return {"kind": "damaged frame", "topic": "orders", "partition": 1, "last": last.entry.offset}


# -- files of logs ---------------------------------------------------------------------------------------------


@damage("garbage lies behind a log's end", harmless=True)
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[-1])
    size = (path / file).stat().st_size
    write(path, file, size, b"garbage" * 10)
    return {"kind": "torn", "topic": "quiet", "partition": 0, "path": file, "position": size}


@damage("a segment is deleted")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0])
    (path / file).unlink()
    last = store.segments[0].end_offset - 1
    return {"topic": "quiet", "partition": 0, "first": 0, "last": last, "path": file, "says": "missing"}


@damage("a segment is deleted with its indexes and forgotten by the checkpoints")
def _(path):
    store = store_of(path, "quiet")
    for kind in SegmentKind:
        (path / log_file(store, store.segments[0], kind)).unlink(missing_ok=kind is SegmentKind.KEYS)
    restate(path, lambda s: msgspec.structs.replace(s, segments=s.segments[1:]) if s.topic == "quiet" else s)
    last = store.segments[0].end_offset - 1
    return {"topic": "quiet", "partition": 0, "first": 0, "last": last}


@damage("a middle segment is forgotten by the checkpoints")
def _(path):
    store = store_of(path, "a", 0)
    kept = [each for n, each in enumerate(store.segments) if n != 1]
    restate(path, lambda s: msgspec.structs.replace(s, segments=kept) if s.number == store.number else s)
    gone = store.segments[1]
    return {"topic": "a", "partition": 0, "first": gone.base_offset, "last": gone.end_offset - 1}


@damage("a partition's directory is gone")
def _(path):
    store = store_of(path, "orders", 2)
    shutil.rmtree(path / directory_of(store))
    return {"topic": "orders", "partition": 2, "first": 0, "says": "missing"}


@damage("a partition and its directory are gone, the checkpoints know nothing of it")
def _(path):
    store = store_of(path, "orders", 2)
    shutil.rmtree(path / directory_of(store))
    restate(path, lambda s: None if s.number == store.number else s)
    return {"topic": "orders", "partition": 2}


@damage("two segments of a log have changed names")
def _(path):
    store = store_of(path, "a", 1)
    one, two = (path / log_file(store, each) for each in store.segments[:2])
    aside = path / "aside"
    one.rename(aside), two.rename(one), aside.rename(two)
    return {"topic": "a", "partition": 1, "first": 0, "path": log_file(store, store.segments[0])}


@damage("a segment is a copy of the one before it")
def _(path):
    store = store_of(path, "a", 1)
    one, two = (log_file(store, each) for each in store.segments[:2])
    shutil.copy(path / one, path / two)
    return {"topic": "a", "partition": 1, "first": store.segments[1].base_offset, "path": two}


@damage("a segment is that of another partition")
def _(path):
    ours, theirs = store_of(path, "a", 0), store_of(path, "a", 1)
    shutil.copy(path / log_file(theirs, theirs.segments[0]), path / log_file(ours, ours.segments[0]))
    return {"topic": "a", "partition": 0, "path": log_file(ours, ours.segments[0])}


@damage("a segment of the same length and offsets is that of another partition")
def _(path):
    first = held(path, "quiet")[0]
    other = altered(bytes(first.entry.frame), HEADER_BYTES, b"QUIET")
    overwrite(path, first.segment, first.entry.position, other)
    return {"topic": "quiet", "partition": 0, "first": 0, "path": first.segment, "position": 64}


@damage("a segment is renamed to another base offset")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0])
    (path / file).rename(path / filenames.segment_file(directory_of(store), 3, SegmentKind.LOG))
    return {"topic": "quiet", "first": 0, "path": file, "says": "missing"}


@damage("two partitions' directories have changed names")
def _(path):
    one, two = (path / directory_of(store_of(path, "orders", n)) for n in (0, 1))
    aside = path / "aside"
    one.rename(aside), two.rename(one), aside.rename(two)
    return {"topic": "orders", "partition": 0, "first": 0}


@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))
