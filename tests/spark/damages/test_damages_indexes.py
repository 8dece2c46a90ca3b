"""Test damaged indexes: what a power cut may leave of files that are never forced is a notice, all else a violation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from journal.formats.filenames import REPAIRS, SegmentKind
from journal.formats.index import OFFSET_ENTRY, TIME_ENTRY
from journal.formats.segment_header import seed_of
from spark.audit.claims.facts import What
from tests.spark.audit.audited import SETTINGS, audited, copied
from tests.spark.damages.damages import Damages, Named
from tests.spark.damages.forger import flip, log_file, store_of, write
from tests.spark.world import World

damage = Damages()
MANY = 80
"""Entries of the sealed segment: more than two sectors of each index."""
NEWER = 60
"""Those of the newest one: likewise."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("sound") / "data", SETTINGS)
    made.topic("wide", segment_bytes=MANY * 17_000)
    for number in range(MANY + NEWER):
        made.put("wide", 0, b"%03d" % number, b"v" * 16_900)
        if number % 10 == 0:
            made.checkpoint()
    return made.close()


def _file(path: Path, kind: SegmentKind, segment: int = 0) -> str:
    store = store_of(path, "wide")
    assert len(store.segments) == 2
    return log_file(store, store.segments[segment], kind)


def _named(path: Path, kind: SegmentKind, position: int, segment: int = 0, says: str = "damaged") -> Named:
    file = _file(path, kind, segment)
    return {
        "kind": "partition", "topic": "wide", "partition": 0, "path": file, "position": position, "says": says,
    }  # fmt: skip


SIZES = {SegmentKind.INDEX: OFFSET_ENTRY.size, SegmentKind.TIME: TIME_ENTRY.size}

for _kind, _size in SIZES.items():
    for _at in (0, 7, 8, 11, 12, 15):

        @damage(f"byte {_at} of an entry of a sealed segment's {_kind.value} is turned")
        def _(path, kind=_kind, size=_size, at=_at):
            flip(path, _file(path, kind), 5 * size + at)
            return _named(path, kind, 5 * size, says="as no crash leaves it")

    @damage(f"the last entry of a sealed segment's {_kind.value} is turned")
    def _(path, kind=_kind, size=_size):
        entries = (path / _file(path, kind)).stat().st_size // size
        flip(path, _file(path, kind), (entries - 1) * size + 2)
        return _named(path, kind, (entries - 1) * size, says="as no crash leaves it")

    @damage(f"an entry of the newest segment's {_kind.value} is turned, and sound ones follow it")
    def _(path, kind=_kind, size=_size):
        flip(path, _file(path, kind, 1), 2 * size + 1)
        return _named(path, kind, 2 * size, 1)

    @damage(f"an entry of {_kind.value} is zeros in the middle of a sector")
    def _(path, kind=_kind, size=_size):
        write(path, _file(path, kind), 5 * size, bytes(size))
        return _named(path, kind, 5 * size)

    @damage(f"a sector of {_kind.value} is zeros, and in the next one an entry is turned")
    def _(path, kind=_kind, size=_size):
        write(path, _file(path, kind, 1), 0, bytes(512))
        entry = 2 * 512 // size - 4
        flip(path, _file(path, kind, 1), entry * size + 1)
        return _named(path, kind, entry * size, 1)

    @damage(f"a closed segment's {_kind.value} is gone")
    def _(path, kind=_kind):
        (path / _file(path, kind)).unlink()
        return _named(path, kind, 0, says="the index is missing, as no crash leaves it")

    @damage(f"the last entry of {_kind.value} was not written to its end", harmless=True)
    def _(path, kind=_kind, size=_size):
        length = (path / _file(path, kind, 1)).stat().st_size
        write(path, _file(path, kind, 1), length - 6, bytes(6))
        return _named(path, kind, length - size, 1)

    # What a power cut leaves of the newest segment's index it never leaves of a closed one's: that was forced.
    for _segment in (0, 1):
        _whose = ("a closed", "the newest")[_segment]
        _says = ("as no crash leaves it", "damaged")[_segment]

        @damage(f"a sector of {_whose} segment's {_kind.value} was never written", harmless=bool(_segment))
        def _(path, kind=_kind, segment=_segment, says=_says):
            write(path, _file(path, kind, segment), 512, bytes(512))
            return _named(path, kind, 512 // SIZES[kind] * SIZES[kind], segment, says)

        @damage(f"all of {_whose} segment's {_kind.value} is zeros", harmless=bool(_segment))
        def _(path, kind=_kind, segment=_segment, says=_says):
            file = path / _file(path, kind, segment)
            file.write_bytes(bytes(file.stat().st_size))
            return _named(path, kind, 0, segment, says)

        @damage(f"{_kind.value} of {_whose} segment is empty", harmless=bool(_segment))
        def _(path, kind=_kind, segment=_segment, says=_says):
            (path / _file(path, kind, segment)).write_bytes(b"")
            return _named(path, kind, 0, segment, says if says != "damaged" else "entries")


for _segment in (0, 1):

    @damage(
        f"an entry of times of segment {_segment} lies in two sectors, of which one was never written",
        harmless=bool(_segment),
    )
    def _(path, segment=_segment):
        file = _file(path, SegmentKind.TIME, segment)
        position = 512 // TIME_ENTRY.size * TIME_ENTRY.size
        assert position < 512 < position + TIME_ENTRY.size
        content = (path / file).read_bytes()
        (path / file).write_bytes(content[:512] + bytes(512) + content[1024:])
        return _named(path, SegmentKind.TIME, position, segment)


@damage("indexes are those of another segment")
def _(path):
    for kind in SIZES:
        shutil.copy(path / _file(path, kind, 1), path / _file(path, kind, 0))
    return _named(path, SegmentKind.INDEX, 0)


def _forged(path: Path, entry: int, offset: int, more: int) -> Named:
    """An entry with a checksum that fits says another offset and place."""
    store = store_of(path, "wide")
    file = _file(path, SegmentKind.INDEX)
    old = OFFSET_ENTRY.unpack_from((path / file).read_bytes(), entry * OFFSET_ENTRY.size)
    key = OFFSET_ENTRY.pack(old[0] + offset, old[1] + more, old[2], 0)[:-4]
    made = key + crc32c(key, seed_of(store.segments[0].salt)).to_bytes(4, "big")
    write(path, file, entry * OFFSET_ENTRY.size, made)
    says = "as no crash leaves it"
    return _named(path, SegmentKind.INDEX, entry * OFFSET_ENTRY.size, says=says)


@damage("an entry with a checksum that fits goes back")
def _(path):
    return _forged(path, 5, -4, 0)


@damage("an entry with a checksum that fits is of an offset behind the segment's end")
def _(path):
    return _forged(path, 5, 10_000, 0)


@damage("an entry with a checksum that fits points between two frames")
def _(path):
    return _forged(path, 5, 0, 100)


@damage("an entry with a checksum that fits says the offset of the next frame")
def _(path):
    return _forged(path, 5, 1, 0)


@damage("the last entry of an index, with a checksum that fits, points between two frames")
def _(path):
    entries = (path / _file(path, SegmentKind.INDEX)).stat().st_size // OFFSET_ENTRY.size
    return _forged(path, entries - 1, 0, 100)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


def test_after_a_repair_an_index_is_no_violation(sound, tmp_path):
    """A log may go on otherwise than its indexes had it."""
    path = copied(sound, tmp_path / "data")
    flip(path, _file(path, SegmentKind.INDEX), 5 * OFFSET_ENTRY.size)
    (path / REPAIRS).write_text("[]")
    assert [fact for fact in audited(path) if fact.what == What.VIOLATION] == []


def test_the_directory_is_sound_before(sound):
    assert [fact for fact in audited(sound) if fact.what in (What.VIOLATION, What.NOTICE)] == []
