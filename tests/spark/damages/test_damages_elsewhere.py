"""Test damage to the outcome archive, the journal, checkpoints and other files: each is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from journal.errors import StorageUnavailable
from journal.formats import filenames
from journal.formats.filenames import SegmentKind
from journal.formats.frame import HEADER_BYTES
from journal.records.outcome_entry import OUTCOMES_TOPIC, unpack
from journal.records.outcome_entry import pack as pack_outcome
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import journal_files
from tests.spark.audit.audited import audited, copied
from tests.spark.damages.damages import Damages, outcomes
from tests.spark.damages.forger import (
    directory_of,
    flip,
    forge,
    held,
    log_file,
    newest,
    refold,
    sections,
    store_of,
    write,
)
from tests.spark.world import everything

pytestmark = pytest.mark.slow

damage = Damages()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("sound") / "data")


# -- the archive -----------------------------------------------------------------------------------------------


def _old(path: Path):
    """An entry of which the journal knows nothing any more."""
    return next(each for each in outcomes(path) if each.state == 4 and each.messages == 3)


def _archive(path: Path, change: Callable[[list], None]) -> None:
    """Change the entries, in their order."""

    def edit(content):
        entries = [unpack(each[HEADER_BYTES:]) for frames in content for each in frames]
        change(entries)
        content[:] = [[pack_outcome(each) for each in entries]]

    before = len(outcomes(path))
    forge(path, OUTCOMES_TOPIC, 0, edit)
    more = len(outcomes(path)) - before
    refold(path, "archive", lambda rows: [[rows[0][0], rows[0][1] + more], *rows[1:]])


@damage("a byte of an entry of the archive is turned")
def _(path):
    found = held(path, OUTCOMES_TOPIC)[2]
    flip(path, found.segment, found.entry.position + 60)
    return {"kind": "damaged frame", "topic": OUTCOMES_TOPIC, "first": 2, "path": found.segment}


def _entry(name: str, **changes: object) -> None:
    @damage(f"an old entry of the archive says another {name}")
    def _(path):
        old = _old(path)

        def change(entries):
            entries[entries.index(old)] = msgspec.structs.replace(old, **changes)

        _archive(path, change)
        return {"session": changes.get("session", old.session), "serial": changes.get("serial", old.serial)}


_entry("number of messages", messages=7)
_entry("number of bytes", bytes=7)
_entry("state", state=5)
_entry("LSN, lower than that of the one before", lsn=3)


def _part(name: str, place: int, **changes: object) -> None:
    @damage(f"an old entry of the archive says another {name}")
    def _(path):
        old = _old(path)
        parts = list(old.parts)
        given = {key: value(parts[place]) if callable(value) else value for key, value in changes.items()}
        parts[place] = msgspec.structs.replace(parts[place], **given)

        def change(entries):
            entries[entries.index(old)] = msgspec.structs.replace(old, parts=parts)

        _archive(path, change)
        return {"session": old.session, "serial": old.serial}


_part("offset", 0, base_offset=lambda part: part.base_offset + 1)
_part("count in a partition", 1, count=9)
_part("checksum in a partition", 1, checksum=lambda part: part.checksum ^ 1)
_part("topic of a partition", 2, topic="nowhere")
_part("index of a partition", 2, index=77)
_part("number of a partition, which was never given", 2, number=999)


@damage("an old entry of a committed transaction lacks a partition")
def _(path):
    old = _old(path)

    def change(entries):
        entries[entries.index(old)] = msgspec.structs.replace(old, parts=old.parts[:-1])

    _archive(path, change)
    return {"kind": "archive", "session": old.session, "serial": old.serial}


@damage("an entry of the archive is there twice")
def _(path):
    old = _old(path)
    _archive(path, lambda entries: entries.insert(entries.index(old), old))
    return {"session": old.session, "serial": old.serial}


@damage("an entry of the archive that the journal still has is taken out")
def _(path):
    last = outcomes(path)[-1]
    _archive(path, lambda entries: entries.remove(last))
    return {"topic": OUTCOMES_TOPIC, "says": "ends at offset"}


@damage("an old entry of the archive is taken out")
def _(path):
    old = _old(path)
    _archive(path, lambda entries: entries.remove(old))
    return {"topic": OUTCOMES_TOPIC}


@damage("two entries of the archive have changed places")
def _(path):
    def change(entries):
        entries[3], entries[4] = entries[4], entries[3]

    earlier = outcomes(path)[3]
    _archive(path, change)
    return {"kind": "archive", "session": earlier.session, "serial": earlier.serial}


@damage("the archive's directory is gone")
def _(path):
    shutil.rmtree(path / directory_of(store_of(path, OUTCOMES_TOPIC)))
    return {"topic": OUTCOMES_TOPIC, "first": 0, "says": "missing"}


# -- journal, checkpoints, and what else there is ----------------------------------------------------------------


def _newest_journal(path: Path) -> str:
    return journal_files(OSFilesystem(path))[-1]


@damage("a byte of a record is turned")
def _(path):
    file = _newest_journal(path)
    flip(path, file, 8192 + 90)
    return {"kind": "journal", "path": file, "position": 8192}


@damage("a journal file has another's name")
def _(path):
    file = _newest_journal(path)
    other = filenames.journal_file(int(Path(file).stem) + 5)
    (path / file).rename(path / other)
    return {"kind": "journal", "path": other, "says": "another file under this name"}


@damage("a deleted topic's partition is back", harmless=True)
def _(path):
    gone = filenames.partition_directory("again", 0, 9)
    assert not (path / gone).exists()
    shutil.copytree(path / directory_of(store_of(path, "orders", 0)), path / gone)
    return {"topic": "again", "partition": 0, "path": gone, "says": "no topic has this partition"}


@damage("an older checkpoint lies under the newest one's name")
def _(path):
    older, last = sorted((path / "checkpoints").iterdir())
    shutil.copy(older, last)
    return {"kind": "checkpoint", "path": f"checkpoints/{last.name}"}


@damage("both copies of a journal file's header are damaged")
def _(path):
    file = _newest_journal(path)
    flip(path, file, 20)
    flip(path, file, 4096 + 20)
    return {"kind": "journal", "path": file}


@damage("a journal file is of a newer format")
def _(path):
    file = _newest_journal(path)
    for at in (7, 4096 + 7):
        write(path, file, at, b"\x03")
    return {"kind": "journal", "path": file, "says": "format version 3, which is not known here"}


@damage("the newest journal file is missing")
def _(path):
    file = _newest_journal(path)
    (path / file).unlink()
    return {"kind": "journal"}


@damage("all of the journal is missing")
def _(path):
    shutil.rmtree(path / "journal")
    return {"kind": "journal", "path": "journal", "says": "records were forced to LSN"}


@damage("the newest journal file is cut off behind its first groups")
def _(path):
    file = _newest_journal(path)
    with open(path / file, "r+b") as opened:
        opened.truncate(8192 + 4096)
    return {"kind": "journal", "path": file}


@damage("a journal file is of another directory")
def _(path):
    everything(path.parent / "other")
    file = _newest_journal(path)
    other = _newest_journal(path.parent / "other")
    assert file == other
    shutil.copy(path.parent / "other" / other, path / file)
    return {"kind": "journal", "path": file}


@damage("the newest checkpoint is torn")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    content = (path / file).read_bytes()
    (path / file).write_bytes(content[: len(content) // 2])
    return {"kind": "checkpoint", "path": file}


@damage("the newest checkpoint is missing")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    (path / file).unlink()
    return {"kind": "checkpoint"}


@damage("the older checkpoint is damaged")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    older = next(
        f"checkpoints/{each.name}" for each in (path / "checkpoints").iterdir() if each.name not in file
    )
    at = sections((path / older).read_bytes())[1]
    flip(path, older, at + 12)
    return {"kind": "checkpoint", "path": older, "position": at}


@damage("a staged file is gone")
def _(path):
    [staged] = list((path / "staged").iterdir())
    staged.unlink()
    return {"kind": "staged", "path": f"staged/{staged.name}", "xid": "1:doubt:b"}


@damage("a byte of a staged file is turned")
def _(path):
    [staged] = list((path / "staged").iterdir())
    flip(path, f"staged/{staged.name}", -1)
    return {"kind": "staged", "path": f"staged/{staged.name}", "xid": "1:doubt:b"}


@damage("an index points astray")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0], SegmentKind.INDEX)
    flip(path, file, 10)
    return {"path": file, "topic": "quiet", "partition": 0}


@damage("an index of times is damaged")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0], SegmentKind.TIME)
    flip(path, file, 3)
    return {"topic": "quiet", "partition": 0, "path": file, "position": 0}


@damage("an index is that of another segment")
def _(path):
    one, two = store_of(path, "a", 0), store_of(path, "a", 1)
    for kind in (SegmentKind.INDEX, SegmentKind.TIME):
        shutil.copy(path / log_file(one, one.segments[0], kind), path / log_file(two, two.segments[0], kind))
    return {"topic": "a", "partition": 1, "path": log_file(two, two.segments[0], SegmentKind.INDEX)}


@damage("the index of a closed segment is gone")
def _(path):
    store = store_of(path, "quiet")
    file = log_file(store, store.segments[0], SegmentKind.INDEX)
    (path / file).unlink()
    return {"path": file}


@damage("the witness is damaged")
def _(path):
    flip(path, "witness", 20)
    return {"kind": "witness", "path": "witness"}


@damage("the witness is gone")
def _(path):
    (path / "witness").unlink()
    return {"path": "witness"}


@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


def test_checkpoints_of_a_newer_format_are_no_damage_that_could_be_judged(sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    for each in (path / "checkpoints").iterdir():
        write(path, f"checkpoints/{each.name}", 7, b"\x03")
    with pytest.raises(StorageUnavailable, match="of format version 3, which is not known here"):
        audited(path)
