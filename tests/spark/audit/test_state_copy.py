"""Test an audit from a copy of the state, while a broker starts on the directory and works there."""

from __future__ import annotations

import os

import pytest
from crc32c import crc32c

from journal.errors import StorageUnavailable
from journal.formats import frame
from journal.records.record import TopicDeleted
from spark.audit.claims.directory import held as held_still
from spark.audit.claims.facts import What
from spark.audit.state_copy import look_at_copy
from tests.spark.audit.audited import audited_as_seen, log_of
from tests.spark.damages.forger import flip, held
from tests.spark.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def killed(tmp_path):
    """A directory whose broker was killed: logs go on behind the checkpoint, and the journal behind the logs."""
    made = World(tmp_path / "data")
    for number in range(20):
        if number in (7, 12):
            made.checkpoint()
        made.put("a", 0, b"sent %d" % number + b"v" * 9000)
        made.put("old", 0, b"old %d" % number + b"v" * 9000)
        made.put("again", 0, b"again %d" % number)
        made.among(("a", 0, b"t"), ("orders", 1, b"t"), end=("commit", "rollback")[number % 2])
    made.among(("a", 0, b"in doubt"), end="prepare", xid="doubt")
    made.engine.want_flush(list(made.engine.catalog.stores.values()))
    made.engine.housekeeping.run_inline()
    made.put("a", 0, b"and after that")
    return made.kill()


def found(directory):
    return [fact for fact in audited_as_seen(directory) if fact.what in (What.VIOLATION, What.NOTICE)]


def go_on(path):
    """A start, and all that changes or removes files."""
    made = World.again(path)
    for number in range(30):
        made.put("a", 0, b"new %d" % number + b"v" * 9000)
        made.put("old", 0, b"new %d" % number + b"v" * 9000)
    made.engine.accept(TopicDeleted("again", made.engine.now()))
    made.engine.sync()
    for number in range(4):
        made.engine.housekeeping.retain(made.engine.now())
        made.engine.sync()
        made.put("a", 0, b"once more %d" % number + b"f" * 400_000)
        made.put("a", 0, b"g" * 400_000)
        made.put("a", 0, b"h" * 400_000)
        made.checkpoint()
    made.log.close()


class TestCopy:
    def test_it_is_sound_as_long_as_nothing_happens(self, killed, tmp_path):
        directory = look_at_copy(str(killed), str(tmp_path / "state"))
        assert directory.tails, "the logs go on behind the checkpoint"
        assert found(directory) == []

    def test_what_a_broker_writes_since_is_not_looked_at_and_what_it_removes_is_told(self, killed, tmp_path):
        directory = look_at_copy(str(killed), str(tmp_path / "state"))
        names = {name for name in os.listdir(killed / "journal") if name.endswith(".journal")}
        go_on(killed)
        assert names.isdisjoint(os.listdir(killed / "journal")), "no file of the journal is as it was"
        told = found(directory)
        assert {(fact.what, fact.kind) for fact in told} == {(What.NOTICE, "taken")}
        assert {fact.topic for fact in told} == {"old", "again"}

    @pytest.mark.parametrize("starts", [False, True])
    def test_damage_is_found_whether_a_broker_starts_or_not(self, killed, tmp_path, starts):
        first = held(killed, "a", 0)[0]
        flip(killed, first.segment, first.entry.position + 40)
        directory = look_at_copy(str(killed), str(tmp_path / "state"))
        if starts:
            go_on(killed)
        assert "damaged frame" in {fact.kind for fact in found(directory) if fact.what == What.VIOLATION}

    def test_a_message_put_behind_the_end_is_found_though_it_is_not_there_any_more(self, killed, tmp_path):
        segment, last = log_of(killed, "orders", 1)[-1]
        with (killed / segment).open("r+b") as file:
            file.seek(last.position + len(last.frame))
            file.write(next_message(last))
        directory = look_at_copy(str(killed), str(tmp_path / "state"))
        os.truncate(killed / segment, last.position + len(last.frame))  # a start refuses such a directory
        go_on(killed)
        wrong = [fact for fact in found(directory) if fact.what == What.VIOLATION]
        assert [(fact.kind, fact.topic, fact.partition) for fact in wrong] == [("undecided", "orders", 1)]

    def test_it_takes_no_space_for_files_that_hold_nothing(self, killed, tmp_path):
        look_at_copy(str(killed), str(tmp_path / "state"))
        copy = tmp_path / "state" / "data"
        assert not {"lock", "ballast"} & set(os.listdir(copy))
        assert not [name for name in os.listdir(copy / "journal") if not name.endswith(".journal")]
        assert os.path.realpath(copy / "partitions") == os.path.realpath(killed / "partitions")

    def test_a_place_that_cannot_be_written_is_named(self, killed, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(
            StorageUnavailable, match=r"the state of .* cannot be copied to .*Make room there"
        ):
            look_at_copy(str(killed), str(tmp_path / "file" / "state"))

    def test_the_lock_is_not_held_any_more(self, killed, tmp_path):
        with held_still(str(killed)) as in_use:
            assert not in_use
            directory = look_at_copy(str(killed), str(tmp_path / "state"))
        World.again(killed).log.close()
        assert found(directory) == []


def next_message(last) -> bytes:
    """The next message, as if it had been sent."""
    data = bytearray(last.frame)
    data[8:16] = (last.offset + 1).to_bytes(8, "big")
    data[4:8] = crc32c(bytes(data[frame.CRC_START :])).to_bytes(4, "big")
    return bytes(data)
