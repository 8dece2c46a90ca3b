"""Test the lines of the log about a full disk and a clock that jumps: each once, when it happens."""

from types import SimpleNamespace

import pytest
from twisted.logger import globalLogPublisher

from journal.testing import ManualClock
from txbroker.broker.sessions.settings import SECOND
from txbroker.server.notices import Notices


class JumpingClock(ManualClock):
    ahead = 0

    def wall(self):
        return super().wall() + self.ahead


@pytest.fixture
def lines():
    found = []

    def observe(event):
        if event.get("log_namespace", "").startswith("txbroker.server.notices"):
            found.append((event["log_level"].name, event["log_format"].format(**event)))

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


@pytest.fixture
def engine():
    space = SimpleNamespace(free_bytes=1000, reserve_bytes=5000)
    return SimpleNamespace(clock=JumpingClock(), full=False, housekeeping=space)


def test_a_jump_is_told_once_with_its_direction_and_size(engine, lines):
    notices = Notices(engine)
    for ahead in (0, 900_000, 900_000 + 5 * SECOND, 900_000 + 5 * SECOND, 0):
        engine.clock.advance(SECOND)
        engine.clock.ahead = ahead
        notices.look()
    assert [(level, text.partition(" s.")[0]) for level, text in lines] == [
        ("warn", "the clock of this machine was set forward by 5.0"),
        ("warn", "the clock of this machine was set back by 5.9"),
    ]


def test_time_that_passes_is_no_jump(engine, lines):
    notices = Notices(engine)
    for seconds in (1, 100, 10_000):
        engine.clock.advance(seconds * SECOND)
        notices.look()
    assert lines == []


def test_a_full_disk_is_told_when_it_is_full_and_when_it_has_room_again(engine, lines):
    notices = Notices(engine)
    for full in (False, True, True, False, False):
        engine.full = full
        notices.look()
    assert [level for level, _ in lines] == ["error", "info"]
    assert "1000 bytes are free, 5000 must stay so" in lines[0][1]
