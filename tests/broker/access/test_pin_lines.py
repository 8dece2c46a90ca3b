"""Test what the audit says of pins: who has had the files kept, as a backup does, up to which LSN, and how it ended."""

import pytest

from tests.support.audit_room import AuditRoom
from txbroker.wire import messages as m


@pytest.fixture
def room(tmp_path):
    made = AuditRoom(tmp_path / "audit.json")
    yield made
    made.file.close()


def pins(room):
    room.write()
    return [line for line in room.lines() if line["what"].startswith("files.")]


def ended(room):
    [_, line] = pins(room)
    return line["what"], line["kept"], line["ended"]


def test_a_pin_and_its_end_are_told_with_who_where_from_up_to_where_and_for_how_long(room):
    peer = room.peer("10.0.0.9:7")
    peer.session.begin(peer.session.number, "operator", None)
    cut = peer.ask(m.PinFiles).cut
    assert peer.ask(m.PinFiles).held, "the same pin again"
    assert peer.ask(m.PinFiles, again=True).held
    room.clock.advance(2_500_000)
    assert peer.ask(m.UnpinFiles).held
    assert not peer.ask(m.UnpinFiles).held, "there is none any more"
    first, last = pins(room)
    assert (first["what"], last["what"]) == ("files.pinned", "files.released")
    for line in (first, last):
        assert (line["principal"], line["by"], line["address"]) == ("operator", "tester", "10.0.0.9:7")
        assert line["cut"] == cut
    assert first["checkpoint_lsn"] == room.engine.housekeeping.checkpoint_lsn
    assert (last["kept"], last["ended"]) == (True, "asked")
    assert 2.5 <= last["seconds"] < 3
    assert first["time"] < last["time"]


def test_a_pin_that_ends_with_its_session_is_told_so(room):
    peer = room.peer()
    peer.ask(m.PinFiles)
    peer.leave()
    assert ended(room) == ("files.released", True, "session ended")


def test_a_pin_that_the_disk_has_ended_was_not_kept(room):
    peer = room.peer()
    peer.ask(m.PinFiles)
    lose(room)
    peer.ask(m.UnpinFiles)
    assert ended(room) == ("files.released", False, "asked")


def test_a_pin_that_is_taken_again_after_the_disk_has_ended_it_is_another_one(room):
    peer = room.peer()
    peer.ask(m.PinFiles)
    lose(room)
    assert peer.ask(m.PinFiles).held
    assert [line["what"] for line in pins(room)] == ["files.pinned", "files.released", "files.pinned"]


def test_a_question_whether_files_are_kept_is_not_told(room):
    room.peer().ask(m.PinFiles, again=True)
    assert pins(room) == []


def lose(room):
    room.filesystem.free = 1
    room.engine.housekeeping.watch_space()
    room.filesystem.free = 1 << 50
