"""Test the failures of periodic tasks: no peer is there to be told of them."""

import pytest
from twisted.internet.task import Clock

from journal.errors import JournalPoisoned
from tests.support.broker_room import Room
from txbroker.server.running_broker import RunningBroker
from txbroker.server.settings.config import merged


class Reactor(Clock):
    def callFromThread(self, call, *arguments):
        self.callLater(0, call, *arguments)


def test_a_task_that_fails_the_engine_ends_the_process_and_one_that_does_not_is_only_logged():
    room, failures = Room(), []
    serving = RunningBroker(
        room.engine,
        merged({"data": "d"}),
        Reactor(),
        lambda doing, error: failures.append((doing, str(error))),
    )

    def bug(_):
        raise ValueError("a bug")

    def fault(_):
        room.engine.fail("a fold")
        raise JournalPoisoned("a fold")

    with pytest.raises(ValueError, match="a bug"):
        serving._unless_busy(bug)()
    assert failures == []
    with pytest.raises(JournalPoisoned):
        serving._unless_busy(fault)()
    assert failures == [("a periodic task", "a fold")]
    serving._unless_busy(bug)()
