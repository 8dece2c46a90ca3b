"""Test that kills are started where they are planned, and each once."""

import pytest

from demo.killer import Killer
from demo.kills import Kill, Phase
from txbroker.drill.broker.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path):
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log")
    broker.start()
    yield broker
    broker.kill_for_good()


def killer_for(broker, phase):
    return Killer(broker, {"monday": Kill("monday", phase, 0.0)}, tell=print)


def test_a_kill_after_prepare_has_hit_before_the_producer_can_commit(broker):
    killer = killer_for(broker, Phase.PREPARED)
    killer.begins("monday", Phase.ADDING)
    killer.begins("monday", Phase.PREPARED)
    killer.finish()
    (killed,) = killer.killed
    assert (killed.day, killed.phase) == ("monday", Phase.PREPARED)
    assert len(broker.recoveries()) == 2


def test_a_kill_is_set_off_once_however_often_the_phase_begins(broker):
    killer = killer_for(broker, Phase.ADDING)
    for _ in range(3):
        killer.begins("monday", Phase.ADDING)
        killer.finish()
    assert len(killer.killed) == 1


def test_a_phase_that_only_a_later_attempt_reaches_is_hit_then(broker):
    killer = killer_for(broker, Phase.PREPARING)
    killer.begins("monday", Phase.ADDING)
    killer.begins("monday", Phase.ADDING)
    assert killer.killed == []
    killer.begins("monday", Phase.PREPARING)
    killer.finish()
    assert len(killer.killed) == 1


def test_other_days_and_phases_are_left_alone(broker):
    killer = killer_for(broker, Phase.PREPARING)
    killer.begins("tuesday", Phase.PREPARING)
    killer.begins("monday", Phase.COMMITTING)
    killer.finish()
    assert killer.killed == []
