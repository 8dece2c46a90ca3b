"""Branches of Spark's writes that did not end as decided are found and named, and what nobody did wrong is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

import txbroker
from journal.filesystem import OSFilesystem
from journal.inspect import Level, verify
from journal.journal_settings import JournalSettings
from journal.repair import diagnose
from journal.spark_decision import TOPIC, Decided, xid_of
from journal.transaction import Cause, Totals, TransactionNumber
from spark import branches, deciding
from spark.audit.facts import What
from spark.branches import Write
from tests.broker_process import BrokerProcess
from tests.spark import writes
from tests.spark.audited import audited, violations
from tests.spark.forging import flip, held, store_of
from tests.spark.world import SEGMENT, World
from txbroker import errors

pytestmark = pytest.mark.slow

ROWS = 3


class Job(World):
    """Writes as the sink makes them: branches that are prepared, a decision, and how they end."""

    def __init__(self, path: Path, archive: bool = True, **topic: int) -> None:
        super().__init__(
            path, JournalSettings(outcome_archive=archive, file_bytes=1 << 20, low_water_bytes=0)
        )
        self.topic(TOPIC, **topic)
        self.branches = 0

    def branch(self, version: int, name: str = "job") -> tuple[str, TransactionNumber]:
        """A prepared branch; its key and number."""
        self.branches += 1
        key = f"1.0.{self.branches}.0000000a"
        frames = self.frames(*[b"row"] * ROWS)
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 9, self._serial)
        self.engine.transactions.add(number, self.store("orders").number, frames, ROWS)
        totals = Totals(ROWS, 1, crc32c(frames))
        self.engine.transactions.prepare(number, xid_of(name, version, key), totals)
        self.engine.sync()
        return key, number

    def decide(self, version: int, *keys: str, name: str = "job", rows: int | None = None) -> None:
        rows = ROWS * len(keys) if rows is None else rows
        made = Decided(name=name, version=version, epoch=1, branches=list(keys), rows=rows, bytes=1)
        self.put(TOPIC, 0, msgspec.json.encode(made), key=name.encode())

    def end(self, *numbers: TransactionNumber, commit: bool = True, by: str = "") -> None:
        for number in numbers:
            if commit:
                self.engine.transactions.commit(number, Cause.CLIENT)
            elif by:
                self.engine.transactions.rollback(number, Cause.OPERATOR, by=by, why="night shift")
            else:
                self.engine.transactions.rollback(number, Cause.CLIENT)
        self.engine.sync()

    def write(self, version: int, name: str = "job") -> None:
        """A whole one, with a branch of an attempt that failed."""
        winners = [self.branch(version, name) for _ in range(2)]
        lost = self.branch(version, name)
        self.decide(version, *(key for key, _ in winners), name=name)
        self.end(*(number for _, number in winners))
        self.end(lost[1], commit=False)


@pytest.fixture(params=[True, False], ids=["archived", "unarchived"])
def job(tmp_path, request):
    return Job(tmp_path / "data", request.param)


def told(path):
    return [fact for fact in audited(path) if fact.what in (What.VIOLATION, What.NOTICE)]


def test_writes_that_ended_as_decided_are_sound(job):
    job.write(1)
    job.write(1, "other")
    job.write(2)
    assert told(job.close()) == []


def test_a_decided_branch_that_was_rolled_back_by_hand_is_a_violation(job):
    job.write(1)
    (one, first), (two, second) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.end(second, commit=False, by="root")
    path = job.close()
    [found] = violations(path)
    assert (found.kind, found.topic, found.session, found.serial) == ("decision", TOPIC, *second)
    assert found.xid == str(xid_of("job", 2, two))
    assert (found.first, found.path) == (1, held(path, TOPIC)[1].segment)
    assert "job/2 was decided, and its branch" in found.text
    assert "was rolled back by root: night shift; its 3 rows are missing" in found.text


def test_a_deep_verification_finds_it_and_a_quicker_one_does_not_look(job):
    (one, first), (two, second) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.end(second, commit=False)
    place = OSFilesystem(job.close())
    [found] = verify(place, Level.DEEP)
    assert (found.of_decision, found.affects.transaction, found.harmless) == (True, second, False)
    assert list(verify(place, Level.FULL)) == []
    assert diagnose(place, lambda *_: None).is_sound, "there is nothing that a repair could do"


def test_one_that_was_forgotten_since_is_told_as_a_notice(tmp_path):
    job = Job(tmp_path / "data")
    (one, first), (two, second) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.end(second, commit=False, by="root")
    job.engine.transactions.forget(second)
    job.engine.sync()
    [found] = told(job.close())
    assert (found.what, found.kind, found.serial) == (What.NOTICE, "decision", second.serial)
    assert "before it was forgotten" in found.text


def test_a_write_whose_driver_died_behind_the_decision_is_a_notice(job):
    (one, first), (two, _) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    [found] = told(job.close())
    assert (found.what, found.kind) == (What.NOTICE, "decision")
    assert "is not committed yet: the next run of the same version finishes it" in found.text


def test_it_is_a_violation_once_a_later_version_is_decided(job):
    (one, first), (two, _) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.write(3)
    [found] = violations(job.close())
    assert "though a later version is decided" in found.text


def test_prepared_branches_that_nobody_has_decided_about_are_nothing(job):
    job.write(1)
    job.branch(2)
    assert told(job.close()) == []


def test_a_branch_that_is_committed_and_that_no_decision_lists_is_a_violation(job):
    job.write(1)
    key, number = job.branch(1)
    job.end(number)
    stray, other = job.branch(2)
    job.end(other)
    found = violations(job.close())
    assert sorted((each.kind, each.serial) for each in found) == [
        ("decision", number.serial), ("decision", other.serial)
    ]  # fmt: skip
    assert all("no decision lists it: its 3 rows may be there twice" in each.text for each in found)
    assert key in found[0].text
    assert stray in found[1].text


def test_a_decision_with_another_number_of_rows_than_its_branches_have_is_a_violation(job):
    key, number = job.branch(1)
    job.decide(1, key, rows=4)
    job.end(number)
    [found] = violations(job.close())
    assert "job/1 was decided with 4 rows, its branches hold 3" in found.text


def test_a_message_that_is_no_decision_is_a_notice(job):
    job.put(TOPIC, 0, b"by hand")
    job.write(1)
    [found] = told(job.close())
    assert (found.what, found.kind, found.first) == (What.NOTICE, "decision", 0)


def test_where_a_decision_is_damaged_no_branch_is_held_against_the_others(job):
    job.write(1)
    job.write(2)
    path = job.close()
    first = held(path, TOPIC)[0]
    flip(path, first.segment, first.entry.position + 60)
    assert {fact.kind for fact in violations(path)} == {"damaged frame", "send"}


def test_what_ended_before_the_oldest_decision_that_is_kept_is_not_missed(tmp_path):
    job = Job(tmp_path / "data", retention_bytes=SEGMENT)
    late, number = job.branch(0, "slow")
    job.decide(0, late, name="slow")
    for version in range(8):
        job.write(version)
        job.put(TOPIC, 0, b"x" * 30_000)
    job.end(number)
    job.checkpoint()
    job.engine.retain(job.engine.now())
    job.engine.sync()
    _, stray = job.branch(7)
    job.end(stray)
    path = job.close()
    assert store_of(path, TOPIC).segments[0].base_offset > 0
    found = [fact.serial for fact in violations(path) if fact.kind == "decision"]
    assert found == [stray.serial], "only of this one the decision would be there"


@pytest.mark.parametrize("settings", [(), ("outcome_archive=on",)], ids=["unarchived", "archived"])
def test_at_a_broker_a_branch_that_somebody_rolls_back_between_decision_and_commit_is_found(
    tmp_path, monkeypatch, settings
):
    end = branches.end
    with BrokerProcess(tmp_path / "data", *settings) as process:
        with txbroker.connect(process.address, timeout=10.0) as broker:
            broker.create_topic(writes.TOPIC, partitions=2)
            writes.drive(broker, Write("job", 1), writes.rows("a", 3, 4))
            told_of = writes.prepare(broker, Write("job", 2), writes.rows("b", 2, 4))
            victim = branches.branch_of(Write("job", 2), told_of[1].branches[0])

            def too_late(broker, some, *, commit):
                if commit:
                    broker.rollback_transaction(victim.xid, "ann", "night shift")
                return end(broker, some, commit=commit)

            monkeypatch.setattr(branches, "end", too_late)
            with pytest.raises(errors.HeuristicMixed):
                deciding.commit(broker, Write("job", 2), told_of)
        process.stop()
    [found] = violations(tmp_path / "data")
    assert (found.kind, found.xid) == ("decision", str(victim.xid))
    assert "was rolled back by ann: night shift; its 2 rows are missing" in found.text
    place = OSFilesystem(tmp_path / "data")
    assert [each.of_decision for each in verify(place, Level.DEEP) if not each.harmless] == [True]
