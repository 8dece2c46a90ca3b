"""Test a young directory, whose journal goes back to its first record: changes with valid checksums, and no
checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from journal.formats import filenames
from journal.records.record import (
    ArchiveSet,
    Messages,
    Started,
    TopicCreated,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.transaction_states import Cause, Totals
from journal.xid import Xid
from spark.audit.claims.facts import What
from tests.spark.audit.audited import audited, copied
from tests.spark.damages.damages import Damages
from tests.spark.damages.forger import (
    directory_of,
    flip,
    log_file,
    newest,
    refold,
    reheaded,
    rerecord,
    restate,
    store_of,
)
from tests.spark.world import World

damage = Damages()


def world(path: Path) -> World:
    made = World(path)
    for number in range(4):
        made.put("orders", number % 3, b"sent %d" % number)
        made.among(("orders", 0, b"one phase"), ("quiet", 0, b"beside"))
        made.among(("orders", 1, b"two phases"), ("a", 0, b"too"), end="two")
        made.among(("orders", 1, b"never"), end="rollback")
    made.among(("orders", 2, b"in doubt"), end="prepare", xid="doubt")
    return made


def filled(path: Path) -> Path:
    return world(path).close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("sound") / "data")


def told(path: Path):
    return [fact for fact in audited(path) if fact.what in (What.VIOLATION, What.NOTICE)]


def _changed(path: Path, kind: type, **fields: object) -> dict[str, object]:
    """The first record of that kind says other things."""
    entry = rerecord(path, lambda each: isinstance(each, kind), lambda each: replace(each, **fields))
    session, serial = (getattr(entry.record, name, -1) for name in ("session", "serial"))
    return {"path": entry.path, "position": entry.position, "session": session, "serial": serial}


# -- the journal -----------------------------------------------------------------------------------------------


@damage("a commit is of another transaction")
def _(path):
    _changed(path, TransactionCommitted, serial=999)
    return {"kind": "journal", "serial": 999}


@damage("a commit has become a roll-back")
def _(path):
    def turned(old):
        return TransactionRolledBack(old.session, old.serial, old.at, Cause.CLIENT)

    entry = rerecord(path, lambda each: isinstance(each, TransactionCommitted), turned)
    return {"kind": "archive", "session": entry.record.session, "serial": entry.record.serial}


@damage("a roll-back is of another transaction")
def _(path):
    _changed(path, TransactionRolledBack, serial=999)
    return {"kind": "checkpoint", "serial": 3, "says": "by the journal"}


@damage("a transaction is prepared with other totals")
def _(path):
    return _changed(path, TransactionPrepared, totals=Totals(9, 2, 0)) | {"kind": "journal"}


@damage("a transaction is prepared under another xid")
def _(path):
    _changed(path, TransactionPrepared, xid=Xid(1, b"another", b""))
    return {"serial": 2, "says": "another"}


@damage("an add is for another partition")
def _(path):
    _changed(path, TransactionAdded, partition=store_of(path, "orders", 2).number)
    return {"kind": "journal", "serial": 1}


@damage("a record is of an earlier time than the one before it")
def _(path):
    found = _changed(path, TransactionCommitted, at=0)
    return {"kind": "journal", "path": found["path"], "position": found["position"], "says": "is of 0"}


@damage("a send is of a later time than what follows it")
def _(path):
    _changed(path, Messages, at=10**15)
    return {"kind": "journal", "says": f"a record before it of {10**15}"}


@damage("a topic was made with other settings")
def _(path):
    def other(old):
        return replace(old, settings=replace(old.settings, max_message_bytes=77))

    rerecord(path, lambda each: isinstance(each, TopicCreated) and each.topic == "orders", other)
    return {"kind": "checkpoint", "topic": "orders", "says": "by the journal"}


@damage("the archive was never turned on")
def _(path):
    _changed(path, ArchiveSet, on=False)
    return {"says": "an entry of what did not end"}


@damage("a start has another number")
def _(path):
    return _changed(path, Started, start=5) | {"kind": "journal", "says": "in a file of start 1"}


# -- checkpoints -----------------------------------------------------------------------------------------------


@damage("a log starts later than anybody moved it")
def _(path):
    number = store_of(path, "orders", 0).number
    restate(path, lambda store: replace(store, start_offset=2) if store.number == number else store)
    return {"kind": "checkpoint", "topic": "orders", "partition": 0, "says": "starts at offset 2"}


@damage("a log ended elsewhere when the checkpoint was taken")
def _(path):
    number = store_of(path, "orders", 0).number
    restate(path, lambda store: replace(store, end_offset=3) if store.number == number else store)
    return {"kind": "checkpoint", "topic": "orders", "partition": 0, "says": "ended at offset 3"}


@damage("a log lives by other settings than its topic")
def _(path):
    number = store_of(path, "orders", 0).number

    def changed(store):
        return (
            replace(store, settings=replace(store.settings, retention_bytes=1))
            if store.number == number
            else store
        )

    restate(path, changed)
    return {"kind": "checkpoint", "topic": "orders", "partition": 0, "says": "retention_bytes=1"}


@damage("a transaction in doubt is forgotten")
def _(path):
    refold(path, "transactions", lambda rows: [0, *rows[2:]])
    return {"kind": "checkpoint", "xid": "1:doubt:b", "says": "does not have the transaction"}


@damage("a transaction in doubt is not prepared any more")
def _(path):
    refold(path, "transactions", lambda rows: [1, [*rows[1][:4], 1, *rows[1][5:]], *rows[2:]])
    return {"kind": "checkpoint", "xid": "1:doubt:b", "says": "is ACTIVE"}


@damage("a committed transaction is remembered as rolled back")
def _(path):
    def changed(rows):
        return [*rows[:3], [rows[3][0], 5, *rows[3][2:]], *rows[4:]]

    refold(path, "transactions", changed)
    return {"kind": "checkpoint", "serial": 1, "says": "is ROLLED_BACK"}


@damage("an outcome is remembered that never was")
def _(path):
    refold(path, "transactions", lambda rows: [*rows, [[rows[3][0][0], 77], *rows[3][1:]]])
    return {"kind": "checkpoint", "serial": 77, "says": "it never ended"}


@damage("a start has another nonce than its record")
def _(path):
    refold(path, "starts", lambda rows: [[rows[0][0], b"f" * 16], *rows[1:]])
    return {"kind": "checkpoint", "says": f"the nonce of start 1 is {(b'f' * 16).hex()}, by the journal"}


@damage("a checkpoint says that it needs less of the journal than it does")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    reheaded(path, needed_from=newest(path).header.lsn + 2)
    return {"kind": "checkpoint", "path": file, "says": "are needed from"}


@damage("bytes follow a checkpoint's end")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    size = (path / file).stat().st_size
    with open(path / file, "ab") as opened:
        opened.write(b"more")
    return {"kind": "checkpoint", "path": file, "position": size, "says": "4 bytes follow its end"}


@damage("a file of nobody lies among the checkpoints", harmless=True)
def _(path):
    (path / "checkpoints" / "notes.txt").write_text("mine")
    return {"kind": "checkpoint", "path": "checkpoints/notes.txt"}


# -- without a checkpoint --------------------------------------------------------------------------------------


def _all_checkpoints(path: Path) -> list[str]:
    return [f"checkpoints/{each.name}" for each in (path / "checkpoints").iterdir()]


@damage("all checkpoints are gone")
def _(path):
    file = filenames.checkpoint_file(newest(path).header.lsn)
    for each in _all_checkpoints(path):
        (path / each).unlink()
    return {"kind": "checkpoint", "path": file, "says": "the witness knows"}


@damage("all checkpoints are damaged")
def _(path):
    for each in _all_checkpoints(path):
        flip(path, each, -3)
    return {"kind": "checkpoint", "path": each, "says": "fails its checksum"}


@damage("all checkpoints are empty, and the witness is gone")
def _(path):
    for each in _all_checkpoints(path):
        (path / each).write_bytes(b"")
    (path / "witness").unlink()
    return {"kind": "checkpoint", "path": each, "position": 0}


# -- what is no file -------------------------------------------------------------------------------------------


def _segment(path: Path) -> str:
    store = store_of(path, "orders", 0)
    return log_file(store, store.segments[0])


@damage("a directory is in a segment's place")
def _(path):
    (path / _segment(path)).unlink()
    (path / _segment(path)).mkdir()
    return {"kind": "damaged frame", "path": _segment(path), "first": 0, "says": "Is a directory"}


@damage("a pipe is in a segment's place")
def _(path):
    (path / _segment(path)).unlink()
    os.mkfifo(path / _segment(path))
    return {"kind": "damaged frame", "path": _segment(path), "first": 0, "says": "Not a regular file"}


@damage("a segment is a link to nothing")
def _(path):
    (path / _segment(path)).unlink()
    (path / _segment(path)).symlink_to("nothing")
    return {"kind": "damaged frame", "path": _segment(path), "first": 0, "says": "A link to nothing"}


@damage("a segment is a link to itself")
def _(path):
    (path / _segment(path)).unlink()
    (path / _segment(path)).symlink_to(Path(_segment(path)).name)
    return {"kind": "damaged frame", "path": _segment(path), "first": 0, "says": "cannot be read"}


@damage("the witness is a directory")
def _(path):
    (path / "witness").unlink()
    (path / "witness").mkdir()
    return {"kind": "witness", "path": "witness", "says": "Is a directory"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


# -- sound -----------------------------------------------------------------------------------------------------


def test_one_whose_broker_was_killed_before_its_first_checkpoint_passes_and_its_outcomes_are_told(tmp_path):
    path = world(tmp_path / "data").kill()
    assert not list((path / "checkpoints").iterdir())
    assert told(path) == []
    ended = [fact for fact in audited(path) if fact.what == What.ENTRY]
    assert [fact.kind for fact in ended] == ["committed", "committed", "rolled_back"] * 4
    for _ in range(2):
        World.again(path).kill()
        assert told(path) == []


def test_one_killed_as_soon_as_it_was_made_passes(tmp_path):
    World(tmp_path / "data").kill()
    assert told(tmp_path / "data") == []


def test_links_to_files_elsewhere_are_files(sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    for file in (_segment(path), _all_checkpoints(path)[0], "witness"):
        (path / file).rename(tmp_path / "elsewhere")
        (path / file).symlink_to(tmp_path / "elsewhere")
        assert told(path) == []
        (path / file).unlink()
        (tmp_path / "elsewhere").rename(path / file)
    partition = directory_of(store_of(path, "orders", 0))
    (path / partition).rename(tmp_path / "partition")
    (path / partition).symlink_to(tmp_path / "partition")
    assert told(path) == []
