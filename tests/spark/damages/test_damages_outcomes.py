"""Test outcomes in the newest checkpoint against the outcome archive and the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.check import Level, verify
from journal.engine.settings import JournalSettings
from journal.formats import filenames
from journal.formats.frame import CRC_START, HEADER_BYTES
from journal.parties import Actor, Owner
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC, ArchivedOutcome, unpack
from journal.records.outcome_entry import pack as pack_outcome
from journal.transaction_states import Cause, State
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid
from tests.spark.audit.audited import SETTINGS, Making, copied, violations
from tests.spark.damages.damages import Damages, outcomes
from tests.spark.damages.forger import forge, newest, refold
from tests.spark.world import World, everything

SOMEBODY = Owner("anonymous", "somebody", "host:1")

pytestmark = pytest.mark.slow

damage = Damages()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("sound") / "data")


def _old(path: Path, state: State = State.COMMITTED) -> ArchivedOutcome:
    """An entry of which the journal knows nothing any more."""
    return next(each for each in outcomes(path)[1:] if each.state == state)


def _say(path: Path, old: ArchivedOutcome, new: ArchivedOutcome | None) -> None:
    """Put another entry into the archive, or take it out; everything else agrees."""

    def edit(content):
        entries = [each for frames in content for each in frames]
        at = [unpack(each[HEADER_BYTES:]) for each in entries].index(old)
        was = entries.pop(at)
        if new is not None:
            made = pack_outcome(new)
            entries.insert(at, made[:8] + was[8:CRC_START] + made[CRC_START:])
        content[:] = [entries]

    forge(path, OUTCOMES_TOPIC, 0, edit)


def _checkpoint(path: Path) -> str:
    return filenames.checkpoint_file(newest(path).header.lsn)


def _entry(name: str, state: State = State.COMMITTED, **changes: object) -> None:
    @damage(f"an old entry of the archive says another {name}, {state.name}")
    def _(path):
        old = _old(path, state)
        _say(path, old, replace(old, **changes))
        [field] = changes
        return {"kind": "checkpoint", "path": _checkpoint(path), "session": old.session, "serial": old.serial,
                "says": f"with {field} "}  # fmt: skip


_entry("owner", owner=SOMEBODY)
_entry("person", by=Actor("somebody"))
_entry("reason", why="for no reason")
_entry("xid", xid=Xid(1, b"another", b""))
_entry("begin", began=7)
_entry("time of its prepare", prepared=7)
_entry("time", wall=7)
_entry("cause", cause=Cause.OPERATOR)
_entry("manner of its end", heuristic=True)
_entry("owner", State.ROLLED_BACK, owner=SOMEBODY)


def _turned(path: Path, old: ArchivedOutcome) -> None:
    """The archive says that it was rolled back."""
    parts = [replace(part, base_offset=NEVER_PLACED) for part in old.parts]
    _say(path, old, replace(old, state=State.ROLLED_BACK, parts=parts))


@damage("a transaction is turned to rolled back, and its messages are cut off the ends of the logs")
def _(path):
    last = next(each for each in reversed(outcomes(path)) if each.state == State.COMMITTED)
    store = {(each.topic, each.index): each for each in newest(path).stores}
    for part in last.parts:
        if part.base_offset + part.count == store[part.topic, part.index].flushed_offset:
            forge(path, part.topic, part.index, lambda content: content[-1].pop())
    _turned(path, last)
    return {"kind": "checkpoint", "path": _checkpoint(path), "session": last.session, "serial": last.serial,
            "says": "with state"}  # fmt: skip


@damage("a checkpoint remembers another place")
def _(path):
    old = _old(path)
    row = [old.parts[0].number, old.parts[0].base_offset, old.parts[0].count]

    def moved(given: Any) -> Any:
        if given == row:
            return [row[0], row[1] + 1, row[2]]
        return [moved(each) for each in given] if isinstance(given, list) else given

    refold(path, "transactions", moved)
    return {"kind": "checkpoint", "session": old.session, "serial": old.serial, "says": "placed"}


@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


def test_a_verification_finds_it_too_if_it_is_deep(sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    old = _old(path)
    _say(path, old, replace(old, owner=SOMEBODY))
    found = [each for each in verify(OSFilesystem(path), Level.DEEP) if not each.harmless]
    assert [(each.path, each.affects.transaction) for each in found] == [(_checkpoint(path), old.number)]
    assert "with owner None, the outcome archive with Owner(" in found[0].problem


class TestWithoutAnArchive:
    """A committed transaction is known by the checkpoint alone, once the journal is gone."""

    @pytest.fixture
    def data(self, tmp_path):
        made = World(tmp_path / "data", JournalSettings(file_bytes=1 << 20, low_water_bytes=0))
        made.put("orders", 0, b"first")
        made.among(("orders", 0, b"once"), ("a", 0, b"too"))
        made.turn_over()
        return made.close()

    def test_messages_that_are_cut_off_are_missed_by_who_remembers_them(self, data):
        assert violations(data) == []
        forge(data, "orders", 0, lambda content: content[-1].pop())
        [found] = violations(data)
        assert (found.kind, found.path) == ("checkpoint", _checkpoint(data))
        assert "its messages go up to offset 1 of a log that ends at 1" in found.text

    def test_one_that_is_remembered_at_messages_of_another_is_found(self, data):
        refold(data, "transactions", lambda rows: [*rows, [*_renumbered(rows[-1])]])
        [found] = {each.kind for each in violations(data)}
        assert found == "twice"


def _renumbered(row: list[Any]) -> list[Any]:
    (session, serial), *rest = row
    return [[session, serial + 100], *rest]


def test_an_outcome_from_before_the_archive_was_turned_on_needs_no_entry(tmp_path):
    made = Making(tmp_path / "data", JournalSettings(file_bytes=1 << 20, low_water_bytes=0))
    made.transaction((0, b"before"))
    made = Making.again(made.close(), SETTINGS)
    made.transaction((0, b"after"))
    assert violations(made.close()) == []
