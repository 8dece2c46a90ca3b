"""A short drill of backups, and what must not be forgotten by its judgement."""

from __future__ import annotations

import pytest

from tests.backup_drill.__main__ import Quiet
from tests.backup_drill.drill import BackupDrill, promised
from txbroker.drill.clients.ledger import Acknowledged, Began, Decided, Line
from txbroker.drill.plan.orders import Orders


def test_what_was_answered_later_is_not_promised_and_what_was_asked_may_be_there():
    lines = [
        Line("a", 1, Began(operation=1, places=[0], at=1.0)),
        Line("a", 2, Acknowledged(operation=1, offsets=[(0, 0)], at=2.0)),
        Line("a", 3, Began(operation=2, places=[0], at=5.0)),
        Line("a", 4, Acknowledged(operation=2, offsets=[(0, 1)], at=6.0)),
        Line("a", 5, Decided(operation=3, commit=True, at=9.0)),
    ]
    assert list(promised(lines, 4.0)) == [lines[0], lines[1], lines[2], lines[4]]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "kills"), [(6.0, 1), pytest.param(120.0, 30, marks=pytest.mark.deep)])
def test_backups_under_load_and_kills_hold_what_was_promised(tmp_path, seconds, kills):
    orders = Orders(seed=7, kills=kills, seconds=seconds, points=["random"], out=tmp_path / "drill")
    drill = BackupDrill(orders, Quiet())
    report = drill.run()
    drill.end()
    assert report.violations == []
    found = list(drill.judge_all())
    assert [violation for each in found for violation in each.violations] == []
    assert found
    assert all("No backup was made" in said or "Unavailable" in said for said in drill.failed), drill.failed
