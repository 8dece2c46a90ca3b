"""Test checkpoints with unreadable rows, or that are no files; and files between those of a log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from journal.formats import filenames, frame
from journal.formats.filenames import SegmentKind
from spark.audit.claims.facts import What
from spark.source.checkpoints import newest_checkpoint
from tests.spark.audit.audited import audited, copied
from tests.spark.damages.damages import Damages, Named
from tests.spark.damages.forger import directory_of, held, log_file, newest, sections, store_of, write
from tests.spark.world import World, everything

pytestmark = pytest.mark.slow

damage = Damages()
HEAD = Struct(">II")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture(scope="module")
def young(tmp_path_factory):
    """With one checkpoint."""
    made = World(tmp_path_factory.mktemp("young") / "data")
    made.put("orders", 0, b"sent")
    made.among(("orders", 1, b"in doubt"), end="prepare", xid="doubt")
    made.checkpoint()
    return made.kill()


def _newest(path: Path) -> str:
    return filenames.checkpoint_file(newest(path).header.lsn)


def _body(fold: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], Named]:
    """The newest checkpoint has other rows of a fold, in a section whose checksum fits."""

    def damaged(path: Path) -> Named:
        file = _newest(path)
        content = (path / file).read_bytes()
        for position in sections(content):
            length = HEAD.unpack_from(content, position)[0]
            end = position + HEAD.size + length
            body = msgspec.msgpack.decode(content[position + HEAD.size : end])
            if body[:2] == [1, fold]:
                body[2] = change(body[2])
                made = msgspec.msgpack.encode(body)
                head = HEAD.pack(len(made), crc32c(made))
                (path / file).write_bytes(content[:position] + head + made + content[end:])
                return {"kind": "checkpoint", "path": file, "position": position, "says": f"its {fold}"}
        raise AssertionError(fold)

    return damaged


def _row(fold: str, number: int, row: object) -> Callable[[Path], Named]:
    return _body(fold, lambda rows: [*rows[:number], row, *rows[number + 1 :]])


damage("an undecided transaction's row is a word")(_row("transactions", 1, "word"))
damage("an undecided transaction's row is short")(_row("transactions", 1, [[1, 2], 3]))
damage("the number of undecided transactions is negative")(_row("transactions", 0, -1))
damage("more transactions are undecided than there are rows")(_row("transactions", 0, 9_999))
damage("the marks are no marks")(_row("transactions", 2, [1, 2, 3]))
damage("an outcome has no state that there is")(_row("transactions", 3, [[1, 2], 99, 1, 0]))
damage("transactions end with their number")(_body("transactions", lambda rows: rows[:1]))
damage("the catalog's head is a number")(_row("catalog", 0, 7))
damage("a topic's name is a number")(_row("catalog", 1, [7, [], 1, 1, 0]))
damage("the archive's head is short")(_row("archive", 0, [True]))
damage("what waits for the archive is no entry")(_body("archive", lambda rows: [*rows, b"x" * 50]))
damage("what waits for the archive is a number")(_body("archive", lambda rows: [*rows, 5]))


# -- what is no file -------------------------------------------------------------------------------------------


def _instead(name: str, says: str, make: Callable[[Path], object]) -> None:
    @damage(f"{name} is in the newest checkpoint's place")
    def _(path):
        file = _newest(path)
        (path / file).unlink()
        make(path / file)
        return {"kind": "checkpoint", "path": file, "says": says}


_instead("a directory", "Is a directory", Path.mkdir)
_instead("a pipe", "Not a regular file", os.mkfifo)
_instead("a link to nothing", "A link to nothing", lambda file: file.symlink_to("nothing"))
_instead("a link to itself", "cannot be read", lambda file: file.symlink_to(file.name))
_instead("a link to a directory", "Is a directory", lambda file: file.symlink_to(".."))


def _segment(path: Path, kind: SegmentKind = SegmentKind.LOG) -> str:
    """Of a segment that is cut into slices."""
    store = store_of(path, "quiet")
    return log_file(store, store.segments[0], kind)


@damage("a pipe is in a large segment's place")
def _(path):
    (path / _segment(path)).unlink()
    os.mkfifo(path / _segment(path))
    return {"kind": "damaged frame", "path": _segment(path), "first": 0, "says": "Not a regular file"}


@damage("a directory is in the place of a large segment's index")
def _(path):
    file = _segment(path, SegmentKind.INDEX)
    (path / file).unlink()
    (path / file).mkdir()
    return {"kind": "partition", "path": file, "says": "Is a directory"}


# -- between a log's files -------------------------------------------------------------------------------------


def _inside(path: Path) -> tuple[str, int, bytes]:
    """The name of a segment that begins inside of the first one, its base, and what the log has from there on."""
    store = store_of(path, "quiet")
    found = held(path, "quiet")[3]
    file = filenames.segment_file(directory_of(store), found.entry.offset, SegmentKind.LOG)
    log = (path / found.segment).read_bytes()
    return file, found.entry.offset, log[:64] + log[found.entry.position :]


@damage("a segment that nobody sent begins inside of another")
def _(path):
    file, base, _ = _inside(path)
    data = bytearray(frame.encode(b"forged", 1_700_000_000_000_000))
    frame.stamp(memoryview(data), base, 1)
    (path / file).write_bytes(bytes(64) + bytes(data))
    return {"kind": "partition", "topic": "quiet", "partition": 0, "path": file, "first": base}


@damage("a segment begins inside of another with other bytes than that has")
def _(path):
    file, base, data = _inside(path)
    (path / file).write_bytes(data[:164] + b"X" + data[165:])
    return {"kind": "partition", "path": file, "first": base, "says": "not what the log has"}


@damage("a directory lies inside of a log's segments")
def _(path):
    file, base, _ = _inside(path)
    (path / file).mkdir()
    return {"kind": "partition", "path": file, "first": base}


@damage("a segment whose removal a power cut has undone begins inside of another", harmless=True)
def _(path):
    file, base, data = _inside(path)
    (path / file).write_bytes(data + bytes(4096))
    return {"kind": "partition", "topic": "quiet", "path": file, "first": base, "says": "a start removes it"}


@damage("bytes follow a sealed segment's end", harmless=True)
def _(path):
    file = _segment(path)
    size = (path / file).stat().st_size
    write(path, file, size, b"more")
    return {"kind": "partition", "topic": "quiet", "path": file, "position": size, "says": "4 bytes follow"}


@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


@pytest.mark.parametrize("name", [name for name in damage.done if "checkpoint's place" in name])
def test_no_file_in_the_place_of_the_only_checkpoint_is_named(young, tmp_path, name):
    path = copied(young, tmp_path / "data")
    assert len(list((path / "checkpoints").iterdir())) == 1
    damage.check(name, path)


@pytest.mark.parametrize("row", [b"\x93", 5, [[1, 2], 3]])
def test_a_row_that_nothing_can_read_in_the_only_checkpoint_is_named(young, tmp_path, row):
    path = copied(young, tmp_path / "data")
    wanted = _row("transactions", 1, row)(path)
    found = [fact for fact in audited(path) if fact.what == What.VIOLATION]
    assert any((fact.path, fact.position) == (wanted["path"], wanted["position"]) for fact in found), found


def test_who_reads_the_logs_takes_the_older_checkpoint_in_place_of_one_that_cannot_be_read(sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    lsn = newest(path).header.lsn
    damage.done["an undecided transaction's row is a word"](path)
    assert newest_checkpoint(str(path)).header.lsn < lsn
