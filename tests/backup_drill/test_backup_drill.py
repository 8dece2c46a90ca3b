"""Short drills of backups: of the broker, which keeps its promises, and with faults, which must be found."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.backup_drill.__main__ import Quiet, orders_of
from tests.backup_drill.backup_drill_mutants import MUTANTS
from tests.backup_drill.drill import BackupDrill, BackupOrders
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty, run_python

COPIED = ("journal", "txbroker", "tests", "twisted", "setup.cfg", "pyproject.toml")
SHORT = ("--seconds", "12", "--kills", "1", "--backups", "3", "--seed", "5", "--audit-every", "0")
"""What finds each fault: three backups, because a fault may need a transaction that is prepared at the cut."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "kills", "wanted"),
    [
        (5.0, 1, BackupOrders(most=1, audited=0)),
        pytest.param(60.0, 15, BackupOrders(most=8), marks=pytest.mark.deep),
    ],
    ids=["short", "audited"],
)
def test_backups_under_load_and_kills_hold_what_was_promised(tmp_path, seconds, kills, wanted):
    drill = BackupDrill(orders_of(7, seconds, kills, tmp_path / "drill"), Quiet(), wanted)
    report = drill.run()
    drill.end()
    assert report.violations == []
    found = list(drill.judge_all())
    assert [violation for each in found for violation in each.violations] == []
    assert found
    assert all(each.messages > 100 and each.told >= 3 for each in found)
    assert [each.audited is not None for each in found] == [bool(wanted.audited)] * len(found)


def test_each_fault_can_be_made():
    for places in MUTANTS.values():
        for each in places:
            check_can_be_made(each)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


@pytest.mark.deep
def test_the_drill_finds_nothing_where_there_is_nothing(copy, tmp_path):
    ran = drilled(copy, tmp_path)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


@pytest.mark.deep
@pytest.mark.parametrize("name", MUTANTS)
def test_the_drill_finds_the_fault(copy, tmp_path, name):
    with ExitStack() as stack:
        for each in MUTANTS[name]:
            stack.enter_context(faulty(copy, each))
        ran = drilled(copy, tmp_path)
    assert "VIOLATION in 0000" in ran.stdout, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert ran.returncode == 1


def drilled(copy, tmp_path):
    return run_python(copy, "-m", "tests.backup_drill", *SHORT, "--out", str(tmp_path / "drill"), seconds=900)
