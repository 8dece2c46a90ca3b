"""Test that branches of Spark's writes that did not end as decided are named, and that correct ones are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

import txbroker
from journal.check import Level, verify
from journal.engine.settings import JournalSettings
from journal.formats.spark_decision import TOPIC, Decided, xid_of
from journal.parties import Actor
from journal.repair import diagnose
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.facts import What
from spark.sink import branches
from spark.sink import decision as deciding
from spark.sink.branches import Write
from tests.spark.audit.audited import audited, violations
from tests.spark.damages.damages import Damages, Named
from tests.spark.damages.forger import flip, held, store_of
from tests.spark.sink import writes
from tests.spark.world import SEGMENT, World
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow

damage = Damages()

ROWS = 3
FORGOTTEN = "a decided branch is rolled back by hand and forgotten since"


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
                self.engine.transactions.rollback(number, Cause.OPERATOR, by=Actor(by), why="night shift")
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


# -- a job that did not end as decided ------------------------------------------------------------------------


@damage("a decided branch is rolled back by hand")
def _(path, archive=True):
    job = Job(path, archive)
    job.write(1)
    (one, first), (two, second) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.end(second, commit=False, by="root")
    job.close()
    xid = str(xid_of("job", 2, two))
    return {
        "kind": "decision", "topic": TOPIC, "session": second.session, "serial": second.serial, "xid": xid,
        "first": 1, "path": held(path, TOPIC)[1].segment,
        "says": f"job/2 was decided, and its branch {xid} was rolled back by root: night shift; its 3 rows are missing",
    }  # fmt: skip


@damage(FORGOTTEN, harmless=True)
def _(path, archive=True):
    job = Job(path, archive)
    (one, first), (two, second) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.end(second, commit=False, by="root")
    job.engine.transactions.forget(second)
    job.engine.sync()
    job.close()
    return {"kind": "decision", "serial": second.serial, "says": "before it was forgotten"}


@damage("the driver dies behind the decision", harmless=True)
def _(path, archive=True):
    job = Job(path, archive)
    (one, first), (two, _) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.close()
    return {"kind": "decision", "says": "is not committed yet: the next run of the same version finishes it"}


@damage("a decided branch is in doubt, and a later version is decided")
def _(path, archive=True):
    job = Job(path, archive)
    (one, first), (two, _) = job.branch(2), job.branch(2)
    job.decide(2, one, two)
    job.end(first)
    job.write(3)
    job.close()
    return {"kind": "decision", "says": "though a later version is decided"}


@damage("a branch is committed that no decision lists, of a version that is decided")
def _(path, archive=True):
    job = Job(path, archive)
    job.write(1)
    key, number = job.branch(1)
    job.end(number)
    job.close()
    return _unlisted(1, number, key)


@damage("a branch is committed that no decision lists, of a version that is not decided")
def _(path, archive=True):
    job = Job(path, archive)
    job.write(1)
    key, number = job.branch(2)
    job.end(number)
    job.close()
    return _unlisted(2, number, key)


def _unlisted(version: int, number: TransactionNumber, key: str) -> Named:
    says = "no decision lists it: its 3 rows may be there twice"
    return {
        "kind": "decision",
        "serial": number.serial,
        "xid": str(xid_of("job", version, key)),
        "says": says,
    }


@damage("a decision has another number of rows than its branches")
def _(path, archive=True):
    job = Job(path, archive)
    key, number = job.branch(1)
    job.decide(1, key, rows=4)
    job.end(number)
    job.close()
    return {"kind": "decision", "says": "job/1 was decided with 4 rows, its branches hold 3"}


@damage("a message that is no decision is sent there", harmless=True)
def _(path, archive=True):
    job = Job(path, archive)
    job.put(TOPIC, 0, b"by hand")
    job.write(1)
    job.close()
    return {"kind": "decision", "first": 0}


@pytest.mark.parametrize("name", damage.done)
def test_a_job_that_did_not_end_as_decided_is_named_once(tmp_path, name):
    damage.check(name, tmp_path / "data")
    assert len(told(tmp_path / "data")) == 1
    if name != FORGOTTEN:  # only the archive knows it
        damage.kind(name, tmp_path / "unarchived", False)


# -- what is sound, or cannot be known -------------------------------------------------------------------------


def test_writes_that_ended_as_decided_are_sound(job):
    job.write(1)
    job.write(1, "other")
    job.write(2)
    assert told(job.close()) == []


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


def test_prepared_branches_that_nobody_has_decided_about_are_nothing(job):
    job.write(1)
    job.branch(2)
    assert told(job.close()) == []


def test_where_a_decision_is_damaged_no_branch_is_held_against_the_others(job):
    job.write(1)
    job.write(2)
    path = job.close()
    first = held(path, TOPIC)[0]
    flip(path, first.segment, first.entry.position + 60)
    assert {fact.kind for fact in violations(path)} == {"damaged frame", "send"}


def test_of_what_ended_before_the_oldest_decision_that_is_kept_nothing_is_told(tmp_path):
    job = Job(tmp_path / "data", retention_bytes=SEGMENT)
    _, unlisted = job.branch(0, "other")
    job.end(unlisted)
    late, number = job.branch(0, "slow")
    job.decide(0, late, name="slow")
    for version in range(8):
        job.write(version)
        job.put(TOPIC, 0, b"x" * 30_000)
    job.end(number)
    job.checkpoint()
    job.engine.housekeeping.retain(job.engine.now())
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
