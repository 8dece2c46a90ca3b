"""Test the file of the audit: its end, a full disk, files that are moved and deleted, and lines that find no room.

Seen to fail: without the repair of a torn line, without the look for a moved file, with a write that does not go on
after a full disk, with a queue without bound, and with a name as that of the file looked at alone.
"""

import json
import os

import pytest

from tests.support.audit_room import FaultyFile
from tests.support.waiting import eventually
from txbroker.errors import InvalidSetting
from txbroker.server import audit_log
from txbroker.server.audit_log import BLOCK, AuditFile, AuditLog, StandardOutput, file_of, last_lsn

WALL = 1_700_000_000_000_000


class Trail(AuditLog):
    def __init__(self, path):
        self.file = FaultyFile(str(path))
        self.said = []
        super().__init__(self.file, lambda: WALL, lambda call, text, **named: self.said.append(text))

    def tell(self, *lsns):
        for lsn in lsns:
            self.put({"what": "x", "lsn": lsn}, lsn)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.json"


@pytest.fixture
def trail(path):
    made = Trail(path)
    made.open()
    yield made
    made.file.close()


def lines(path):
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"what": "torn"})
    return found


def lsns(path):
    return [line["lsn"] for line in lines(path) if "lsn" in line]


def test_lines_are_written_in_order_and_the_last_says_where_the_next_start_goes_on(trail, path):
    trail.tell(5, 9)
    trail.put({"what": "login"})
    trail.settle()
    assert lsns(path) == [5, 9]
    assert lines(path)[-1] == {"what": "login", "through": 9}
    assert last_lsn(str(path)) == 9
    assert trail.known() == 9


@pytest.mark.parametrize(
    "end",
    [
        b"",
        b'{"what":"x","ls',
        b'{"what":"x","lsn":',
        b"\0" * 100_000,
        b"\xff\xfe",
        b"\n\n",
        b'{"lsn":7}\n',
        b"[8]\n",
    ],
)
def test_an_end_that_says_nothing_is_passed_over_and_what_follows_stands_in_a_line_of_its_own(path, end):
    path.write_bytes(b'{"what":"x","lsn":3}\n' + end)
    trail = Trail(path)
    trail.open()
    assert trail.known() == 3
    trail.tell(4)
    trail.settle()
    trail.file.close()
    assert lsns(path)[-1] == 4
    assert path.read_bytes().startswith(b'{"what":"x","lsn":3}\n' + end), "what was written stays"


def test_a_whole_line_that_lacks_only_its_end_counts(path):
    path.write_bytes(b'{"what":"x","lsn":3}\n{"what":"x","lsn":4}')
    trail = Trail(path)
    trail.open()
    assert trail.known() == 4
    trail.tell(5)
    trail.settle()
    trail.file.close()
    assert lsns(path) == [3, 4, 5]


def test_an_end_is_found_behind_much_that_says_nothing(path):
    path.write_bytes(b'{"what":"x","lsn":3}\n' + (b"rubbish" * 99 + b"\n") * (40 * BLOCK // 694))
    assert last_lsn(str(path)) == 3


@pytest.mark.parametrize("room", [0, 1, 10, 25, 40])
def test_a_full_disk_stops_nothing_and_every_line_comes_once_when_there_is_room(trail, path, room):
    trail.file.room = room
    trail.tell(1, 2, 3)
    assert not trail.carry_out()
    assert trail.has_failed
    assert not trail.carry_out()
    trail.tell(4)
    trail.file.room = None
    trail.settle()
    assert lsns(path) == [1, 2, 3, 4]
    assert len(lines(path)) == 4
    assert not trail.has_failed
    assert [text.partition(",")[0] for text in trail.said] == ["the audit", "the audit goes on"]


@pytest.mark.parametrize("room", [1, 25, 40])
def test_a_line_that_was_written_in_part_is_written_anew_in_another_file(trail, path, room):
    trail.file.room = room
    trail.tell(1, 2, 3)
    assert not trail.carry_out()
    trail.file.room = None
    moved = path.with_name("audit.json.1")
    path.rename(moved)
    trail.reopen()
    trail.carry_out()
    trail.settle()
    assert lsns(moved) + lsns(path) == [1, 2, 3]


def test_a_disk_that_is_full_at_the_start_is_no_obstacle(path, monkeypatch):
    trail = Trail(path)
    with monkeypatch.context() as patched:
        patched.setattr(AuditFile, "open", refuse(28))
        trail.open()
        assert trail.has_failed
        trail.tell(1)
        assert not trail.carry_out()
    trail.settle()
    trail.file.close()
    assert lsns(path) == [1]


def refuse(number):
    def refuses(*_):
        raise OSError(number, os.strerror(number))

    return refuses


@pytest.mark.parametrize("kind", ["no folder", "a folder", "a pipe"])
def test_a_file_that_cannot_be_opened_is_a_mistake_in_the_settings(tmp_path, kind):
    path = tmp_path / "absent" / "audit" if kind == "no folder" else tmp_path / "audit"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    with pytest.raises(InvalidSetting, match="cannot be opened"):
        Trail(path).open()


def test_lines_that_find_no_room_are_counted_and_told_in_the_next_line(trail, path, monkeypatch):
    monkeypatch.setattr(audit_log, "MOST_RECORDS", 3)
    monkeypatch.setattr(audit_log, "MOST_OTHERS", 2)
    trail.tell(1)
    trail.put({"what": "login"})
    trail.tell(2, 3, 4, 5, 6)
    trail.put({"what": "login"})
    assert trail.lost == 5
    trail.settle()
    trail.tell(7)
    trail.settle()
    assert lsns(path) == [1, 2, 7]
    [lost] = [line for line in lines(path) if line["what"] == "audit.lost"]
    assert (lost["lines"], lost["from_lsn"], lost["to_lsn"]) == (5, 3, 6)
    assert lines(path).index(lost) == 3


def test_the_line_of_lost_ones_stands_where_they_would_have_stood(trail, path, monkeypatch):
    monkeypatch.setattr(audit_log, "MOST_RECORDS", 3)
    monkeypatch.setattr(audit_log, "AT_ONCE", 1)
    trail.tell(1, 2, 3, 4)
    trail.carry_out()
    trail.tell(5)
    trail.settle()
    assert [line.get("lsn", line["what"]) for line in lines(path)] == [1, 2, 3, "audit.lost", 5]


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_file_that_is_moved_or_deleted_is_begun_anew_with_where_it_goes_on(trail, path, how):
    trail.tell(1)
    trail.settle()
    moved = path.with_name("audit.json.1")
    if how == "deleted":
        path.unlink()
    else:
        path.rename(moved)
        if how == "replaced":
            path.touch()
    trail.tell(2)
    trail.settle()
    first, *rest = lines(path)
    assert (first["what"], first["through"]) == ("audit.continued", 1)
    assert [line["lsn"] for line in rest] == [2]
    assert trail.known() == 2


def test_a_file_that_cannot_be_opened_again_is_gone_on_with(trail, path, monkeypatch):
    trail.tell(1)
    trail.settle()
    moved = path.with_name("audit.json.1")
    path.rename(moved)
    with monkeypatch.context() as patched:
        patched.setattr(AuditFile, "open", refuse(13))
        trail.reopen()
        trail.tell(2)
        trail.settle()
    assert lsns(moved) == [1, 2]
    assert "cannot be opened again" in trail.said[0]


def test_of_files_beside_a_new_one_the_newest_says_where_to_go_on(path):
    for age, (name, lsn) in enumerate(
        [("audit.json.1", 9), ("audit.json-2", 7), ("audit.json.3.gz", 0), ("other", 20)]
    ):
        beside = path.with_name(name)
        beside.write_bytes(b"\x1f\x8b" if not lsn else b'{"what":"x","lsn":%d}\n' % lsn)
        os.utime(beside, (1_000 - age, 1_000 - age))
    assert Trail(path).known() == 9
    path.with_name("audit.json.1").unlink()
    assert Trail(path).known() == 7
    path.with_name("audit.json-2").unlink()
    assert Trail(path).known() == 0


def test_a_thread_writes_and_ends_with_everything_written(path):
    trail = Trail(path)
    trail.open()
    trail.start()
    trail.tell(*range(1, 3_001))
    eventually(lambda: path.stat().st_size)
    trail.tell(3_001)
    assert trail.stop(20.0)
    assert lsns(path) == list(range(1, 3_002))


def test_a_thread_tries_again_and_ends_though_the_disk_is_full(path, monkeypatch):
    monkeypatch.setattr(audit_log, "RETRY", 0.001)
    trail = Trail(path)
    trail.open()
    trail.file.room = 0
    trail.start()
    trail.tell(1)
    eventually(lambda: trail.has_failed)
    trail.file.room = None
    eventually(lambda: not trail.has_failed)
    trail.file.room = 0
    trail.tell(2)
    assert trail.stop(20.0)
    assert lsns(path) == [1]


def test_standard_output_is_the_processs_own_and_nobody_knows_its_end(capfd):
    file = file_of("-")
    assert isinstance(file, StandardOutput)
    trail = AuditLog(file, lambda: WALL, lambda *_, **__: None)
    trail.open()
    assert trail.known() is None
    trail.put({"what": "x", "lsn": 4}, 4)
    trail.settle()
    trail.reopen()
    assert trail.stop(1.0)
    assert json.loads(capfd.readouterr().out.splitlines()[0]) == {"what": "x", "lsn": 4}
