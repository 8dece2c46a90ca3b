"""Test that sound directories pass, whatever their past: killed, restarted, repaired, in use, partly forgotten."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

import journal
import txbroker
from journal.constants import MIB
from journal.errors import DirectoryLocked
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.repair import diagnose, execute
from journal.transaction_states import Cause
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from spark.audit.checks import uncommitted
from spark.audit.claims.directory import held as held_still
from spark.audit.claims.facts import What
from tests.spark.audit.audited import SETTINGS, audited
from tests.spark.damages.forger import flip, forge, held, refold, store_of
from tests.spark.world import SEGMENT, World, everything
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

NO_ARCHIVE = replace(SETTINGS, outcome_archive=False)


def told(path, slice_bytes=20_000, in_use=False):
    """Violations and notices."""
    return [f for f in audited(path, slice_bytes, in_use) if f.what in (What.VIOLATION, What.NOTICE)]


@pytest.mark.parametrize("slice_bytes", [500, 20_000])
@pytest.mark.parametrize("archive", [True, False])
def test_a_directory_with_something_of_everything(tmp_path, archive, slice_bytes):
    path = everything(tmp_path / "data", SETTINGS if archive else NO_ARCHIVE)
    assert told(path, slice_bytes) == []
    assert store_of(path, "old").start_offset > 0


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_one_whose_broker_was_killed_with_sends_on_both_sides_of_the_checkpoint(tmp_path, flushed, archive):
    made = World(tmp_path / "data", SETTINGS if archive else NO_ARCHIVE)
    for number in range(20):
        if number in (7, 12):
            made.checkpoint()
        made.put("a", 0, b"sent %d" % number)
        made.among(("a", 0, b"t"), ("orders", 1, b"t"), end=("commit", "rollback")[number % 2])
    if flushed:
        made.engine.want_flush(list(made.engine.catalog.stores.values()))
        made.engine.housekeeping.run_inline()
        made.put("a", 0, b"and after that")
    path = made.kill()
    assert told(path) == []
    World.again(path, SETTINGS if archive else NO_ARCHIVE).close()
    assert told(path) == []


def test_one_that_holds_nothing(tmp_path):
    with journal.open(tmp_path / "data"):
        pass
    assert told(tmp_path / "data") == []


@pytest.mark.slow
def test_a_transaction_so_large_that_it_is_applied_in_slices(tmp_path):
    made = World(tmp_path / "data", replace(SETTINGS, file_bytes=64 * MIB))
    made.put("a", 0, b"before")
    made.among(("a", 0, b"l" * 9 * MIB), ("orders", 1, b"m" * 9 * MIB), ("a", 0, b"n" * 9 * MIB))
    made.put("a", 0, b"after")
    assert told(made.close()) == []


@pytest.mark.parametrize("end", ["prepare", ""])
def test_undecided_ones_with_staged_files_and_one_of_them_committed_later(tmp_path, end):
    made = World(tmp_path / "data")
    number = made.among(("a", 0, b"staged"), ("orders", 1, b"staged"), end="prepare", xid="first")
    made.among(("a", 0, b"another"), ("a", 1, b"another"), end=end)
    made.turn_over()
    assert list((made.path / "staged").iterdir()) != []
    assert told(made.path, in_use=True) == []
    made.engine.transactions.commit(number, Cause.CLIENT)
    made.engine.sync()
    made.put("a", 0, b"behind it")
    assert told(made.close()) == []


def test_commits_that_both_the_archive_and_the_journal_tell_of_once_it_has_been_turned_off_and_on(tmp_path):
    made = World(tmp_path / "data")
    made.among(("a", 0, b"archived"), ("orders", 1, b"archived"))
    made.among(("a", 1, b"holds the journal"), end="")
    made.log.close()
    for settings in (NO_ARCHIVE, SETTINGS):
        made = World.again(tmp_path / "data", settings)
        made.among(("a", 0, b"t"), ("orders", 1, b"t"))
        assert told(made.kill()) == []


class TestBytesThatComeAgain:
    """The very same frames, times and all, as a program may have kept them."""

    def frames(self, made):
        return made.frames(b"same"), made.frames(b"same, too")

    @pytest.mark.parametrize("turned", [True, False])
    @pytest.mark.parametrize("archive", [True, False])
    @pytest.mark.parametrize("end", ["rollback", "prepare"])
    def test_in_another_transaction(self, tmp_path, end, archive, turned):
        made = World(tmp_path / "data", SETTINGS if archive else NO_ARCHIVE)
        one, two = self.frames(made)
        made.of_frames(("a", 0, one), ("orders", 1, two), end=end)
        made.of_frames(("a", 0, one), ("orders", 1, two))
        if turned:
            made.turn_over()
        # Without an archive, and the journal gone, the checkpoint still says that the second one was committed.
        assert told(made.close()) == []

    def test_in_another_transaction_while_the_archive_was_off_as_far_as_the_journal_goes(self, tmp_path):
        made = World(tmp_path / "data")
        one, two = self.frames(made)
        made.of_frames(("a", 0, one), ("orders", 1, two), end="rollback")
        number = made.among(("a", 1, b"holds the journal"), end="")
        made.log.close()
        made = World.again(tmp_path / "data", NO_ARCHIVE)
        made.of_frames(("a", 0, one), ("orders", 1, two))
        made.kill()
        made = World.again(tmp_path / "data")
        made.among(("a", 0, b"another"))
        made.kill()
        assert number
        assert told(made.path) == []

    def test_sent_plainly_in_a_log_where_they_were_also_committed(self, tmp_path):
        made = World(tmp_path / "data")
        one, _ = self.frames(made)
        made.of_frames(("a", 0, one), end="rollback")
        made.of_frames(("a", 0, one))
        made.resend("a", 0, one, 1)
        made.turn_over()
        [found] = told(made.close())
        assert (found.what, found.kind, found.first) == (What.NOTICE, "rolled back", 1)
        assert "have been committed there" in found.text

    def test_where_so_much_was_compared_that_checksums_meet_by_chance_a_match_is_no_violation(
        self, tmp_path, monkeypatch
    ):
        made = World(tmp_path / "data")
        one, _ = self.frames(made)
        made.of_frames(("a", 0, one), end="rollback")
        made.resend("a", 0, one, 1)
        made.turn_over()
        path = made.close()
        assert [fact.what for fact in told(path)] == [What.VIOLATION]
        monkeypatch.setattr(uncommitted, "BY_CHANCE", 1e-12)
        [found] = told(path)
        assert (found.what, "are to be expected" in found.text) == (What.NOTICE, True)


def test_an_entry_that_only_the_checkpoint_has(tmp_path):
    """As when memory was short: it waits for its place in the log."""
    made = World(tmp_path / "data")
    for number in range(4):
        made.among(("a", 0, b"t%d" % number), ("orders", 0, b"u"))
    made.turn_over()
    path = made.close()
    last = bytes(held(path, OUTCOMES_TOPIC)[-1].entry.frame)
    forge(path, OUTCOMES_TOPIC, 0, lambda content: content[-1].pop())
    refold(path, "archive", lambda rows: [*rows, last])
    assert told(path) == []
    ended = {(fact.session, fact.serial) for fact in audited(path) if fact.what == What.ENTRY}
    assert len(ended) == 4


def test_after_a_repair_that_lost_nothing_and_left_out_a_piece_of_the_journal(tmp_path):
    path = tmp_path / "data"
    made = World(path)
    for number in range(10):
        made.put("a", 0, b"sent %d" % number)
        made.among(("a", 0, b"t"), ("orders", 1, b"t"))
    made.checkpoint()
    path = made.kill()
    World.again(path).close()
    [first, *_] = sorted((path / "journal").glob("*.journal"))
    flip(path, f"journal/{first.name}", 8192 + 60)
    repaired(path)
    again = World.again(path)
    again.put("a", 0, b"after the repair")
    again.among(("a", 0, b"t"), ("orders", 1, b"t"))
    assert [fact for fact in told(again.close()) if fact.what == What.VIOLATION] == []


def repaired(path):
    filesystem = OSFilesystem(path)
    lock = filesystem.lock("lock")
    diagnosis = diagnose(filesystem)
    assert not diagnosis.is_sound
    execute(filesystem, SystemClock(), lock, diagnosis, SETTINGS)
    lock.release()


def test_retention_that_goes_through_a_transaction(tmp_path):
    made = World(tmp_path / "data")
    for number in range(12):
        made.put("old", 0, b"o" * 15_000)
        made.among(("old", 0, b"p" * 20_000), ("old", 0, b"q" * 15_000), ("a", 0, b"r%d" % number))
        made.checkpoint()
    made.engine.housekeeping.retain(made.engine.now())
    made.engine.sync()
    path = made.close()
    assert store_of(path, "old").start_offset > 0
    assert told(path) == []
    assert told(path, 500) == []


def test_segments_that_retention_takes_while_it_is_audited_are_named_as_such(tmp_path, monkeypatch):
    made = World(tmp_path / "data")
    for number in range(6):
        made.put("old", 0, b"o" * 30_000)
        made.among(("old", 0, b"p" * 30_000), ("a", 0, b"r%d" % number))
    made.checkpoint()
    from tests.spark.audit import audited as module

    real = module.look

    def look(*given):
        seen = real(*given)
        made.engine.housekeeping.retain(made.engine.now())
        made.engine.sync()
        made.checkpoint()
        made.put("a", 0, b"more")
        made.checkpoint()
        return seen

    monkeypatch.setattr(module, "look", look)
    found = told(made.path, in_use=True)
    assert {(fact.what, fact.kind, fact.topic) for fact in found} == {(What.NOTICE, "taken", "old")}
    made.log.close()


def test_a_journal_file_that_goes_away_while_it_is_audited_takes_no_send_for_undecided(tmp_path, monkeypatch):
    made = World(tmp_path / "data")
    for number in range(10):
        made.put("quiet", 0, b"sent %d" % number)
    made.checkpoint()
    made.put("quiet", 0, b"behind the checkpoint")
    made.engine.want_flush(list(made.engine.catalog.stores.values()))
    made.engine.housekeeping.run_inline()
    from tests.spark.audit import audited as module

    real = module.look

    def look(*given):
        seen = real(*given)
        assert [tail.topic for tail in seen.tails] == ["quiet"]
        made.turn_over()
        assert not (made.path / seen.journal[0]).exists()
        return seen

    monkeypatch.setattr(module, "look", look)
    assert told(made.path, in_use=True) == []
    made.log.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("archive", "rounds"),
    [("on", 3), *(pytest.param(archive, 8, marks=pytest.mark.deep) for archive in ("on", "off"))],
)
def test_under_a_broker_that_writes_rolls_back_retains_and_checkpoints_meanwhile_and_after_its_death(
    tmp_path, archive, rounds
):
    settings = (f"outcome_archive={archive}", "checkpoint_interval=100ms", "file_bytes=20MiB")
    stop = threading.Event()
    with BrokerProcess(tmp_path / "data", *settings) as process:
        with txbroker.connect(process.address) as broker:
            broker.create_topic("kept", partitions=2)
            broker.create_topic("short", partitions=2, segment_bytes=SEGMENT, retention_bytes=SEGMENT)
        writers = [threading.Thread(target=write, args=(process.address, n, stop)) for n in range(2)]
        for each in writers:
            each.start()
        try:
            wait_until(lambda: list((process.data_dir / "checkpoints").glob("*.checkpoint")))
            checkpoints = set()
            while len(checkpoints) < rounds:
                assert all(each.is_alive() for each in writers)
                with held_still(str(process.data_dir)) as in_use:
                    assert in_use
                checkpoints |= {each.name for each in (process.data_dir / "checkpoints").iterdir()}
                found = told(process.data_dir, MIB, in_use=True)
                assert [fact for fact in found if fact.what == What.VIOLATION] == []
        finally:
            stop.set()
            for each in writers:
                each.join()
        process.kill()
        assert [fact for fact in told(process.data_dir, MIB) if fact.what == What.VIOLATION] == []
        process.start()
        process.stop()
        assert told(process.data_dir, MIB) == []


def wait_until(condition):
    pause = threading.Event()
    for _ in range(500):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come to that")


def write(address, number, stop):
    with txbroker.connect(address) as broker:
        count = 0
        while not stop.is_set():
            count += 1
            broker.send(
                ("kept", "short")[count % 2], b"%d %d" % (number, count) + b"v" * 3000, partition=count % 2
            )
            tx = broker.transaction()
            for partition in (0, 1):
                tx.send("kept", b"t" * 2000, partition=partition)
                tx.send("short", b"t" * 2000, partition=partition)
            (tx.commit if count % 5 else tx.rollback)()
            if count % 50 == 0:
                tx = broker.transaction(broker.xid(7, f"{number}-{count}", b""))
                tx.send("kept", b"in doubt", partition=0)
                tx.prepare()


def test_a_lock_that_a_broker_holds_says_that_the_directory_is_in_use(tmp_path):
    made = World(tmp_path / "data")
    made.checkpoint()
    with held_still(str(made.path)) as in_use:
        assert in_use
    made.log.close()
    with held_still(str(made.path)) as in_use:
        assert not in_use
        with pytest.raises(DirectoryLocked):
            journal.open(made.path)
