"""Test how a client counts schedule time, and fixes when a message is due."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from journal.formats.envelope import Clock
from tests.client.rig import Rig
from txbroker import errors
from txbroker.wire import messages

SECOND = 1_000_000
WALL = 1_700_000_000 * SECOND


class Told:
    """A scripted broker that tells schedule time: ``ahead`` µs beyond the client's."""

    def __init__(self, broker):
        self.rig, self.ahead = None, 0
        broker.on_login = self._login
        broker.on_askschedule = self._ask
        broker.logs |= {number: [] for number in range(50, 58)}
        broker.ends |= dict.fromkeys(range(50, 58), 0)

    @property
    def now(self):
        return round((self.rig.now if self.rig else 1000.0) * 1e6) + self.ahead

    def due(self, after, at):
        return self.rig.run(self.rig.core.schedule_time.due(after, at))

    def _login(self, session, request, data):
        return messages.Welcome(request.correlation, session, 1 << 20, 1 << 20, schedule_time=self.now)

    def _ask(self, session, request, data):
        return messages.ScheduleTold(request.correlation, list(range(50, 58)), self.now)


@pytest.fixture
def told(broker):
    told = Told(broker)
    told.ahead = WALL
    told.rig = Rig(broker)
    told.rig.core.wall = lambda: WALL
    return told


def test_schedule_time_is_what_the_broker_told_and_goes_on(told):
    assert told.rig.core.schedule_time.now() == told.now
    told.rig.now += 7.5
    assert told.rig.core.schedule_time.now() == told.now


def test_time_that_the_answer_took_counts_as_passed_so_that_nothing_is_due_too_early(told):
    time, now = told.rig.core.schedule_time, told.now
    time.told(now + 5 * SECOND, time.moment() - 2 * SECOND)  # asked 2 s ago, told at some moment since then
    assert time.now() == now + 7 * SECOND


def test_a_slow_answer_does_not_replace_what_is_known_better(told):
    time, before = told.rig.core.schedule_time, told.rig.core.schedule_time.now()
    time.told(told.now - SECOND, time.moment() - 10 * SECOND)
    assert time.now() == before
    time.told(told.now - SECOND, time.moment() - SECOND // 2)
    assert time.now() == told.now - SECOND // 2, "what was known is not among what may be"


def test_after_a_minute_the_broker_is_asked_beside_and_nobody_waits(told, broker):
    time = told.rig.core.schedule_time
    told.rig.now += 60.0
    told.ahead += SECOND
    time.now()
    told.rig.pump()
    assert messages.AskSchedule not in map(type, broker.requests)
    told.rig.now += 0.001
    before = told.now - SECOND
    assert time.now() == before == time.now()
    told.rig.pump()
    assert [type(each) for each in broker.requests].count(messages.AskSchedule) == 1
    assert time.now() == told.now
    told.rig.pump()
    assert [type(each) for each in broker.requests].count(messages.AskSchedule) == 1


def test_without_a_connection_it_is_counted_on(told):
    told.rig.cut()
    told.rig.now += 3600
    assert told.rig.core.schedule_time.now() == told.now
    assert told.rig.core.busy == 0


def test_a_new_session_tells_it_anew(told):
    told.rig.cut()
    told.ahead += 5 * SECOND
    told.rig.connect()
    assert told.rig.core.schedule_time.now() == told.now


def sleep(told, seconds):
    """Have the client's machine sleep; the broker's goes on."""
    before = told.rig.core.schedule_time._elapsed
    told.rig.core.schedule_time._elapsed = lambda: before() + seconds
    told.ahead += round(seconds * SECOND)


def test_seconds_in_which_the_machine_sleeps_count(told):
    sleep(told, 3600.0)
    assert told.rig.core.schedule_time.now() == told.now


@pytest.mark.parametrize("slept_too", [False, True])
def test_after_a_sleep_a_message_waits_for_what_the_broker_says_and_counts_from_its_call(
    told, broker, slept_too
):
    sleep(told, 3600.0)
    if slept_too:
        told.ahead -= 3600 * SECOND
    now = told.now
    feed, told.rig.feed = told.rig.feed, None
    promise = told.rig.start(told.rig.core.schedule_time.due(10, None))
    assert not promise.done
    told.rig.now += 2
    told.rig.feed = feed
    told.rig.pump()
    assert promise.result().at == now + 10 * SECOND + (2 * SECOND if slept_too else 0)
    assert told.due(10, None) is not None
    assert [type(each) for each in broker.requests].count(messages.AskSchedule) == 1


def test_after_a_sleep_a_moment_of_the_wall_clock_needs_no_broker(told):
    sleep(told, 3600.0)
    told.rig.cut()
    assert told.due(None, WALL).at == WALL


def test_an_answer_from_before_a_sleep_is_not_taken_for_a_new_one(told, broker):
    told.rig.now += 61
    told.rig.core.schedule_time.now()
    sleep(told, 3600.0)
    told.ahead -= 3600 * SECOND  # both slept
    assert told.due(10, None).at <= told.now + 10 * SECOND
    assert [type(each) for each in broker.requests].count(messages.AskSchedule) == 2


def test_when_a_message_is_due_is_fixed_at_the_call(told):
    due, now = told.due, told.now
    assert due(None, None) is None
    assert due(90, None) == due(90.0, None) == due(timedelta(seconds=90), None)
    assert due(90, None) == (Clock.ELAPSED, now + 90 * SECOND, 90 * SECOND)
    assert due(0, None) == (Clock.ELAPSED, now, 0)
    moment = datetime.fromtimestamp(WALL / 1e6, UTC) + timedelta(hours=1)
    assert due(None, moment) == (Clock.WALL, WALL + 3600 * SECOND, 3600 * SECOND)
    assert due(None, WALL - SECOND) == (Clock.WALL, WALL - SECOND, -SECOND)
    assert due(None, datetime(1969, 1, 1, tzinfo=UTC)).at == 1, "no envelope is due before 1970"


@pytest.mark.parametrize("after", ["5", b"5", True, [5]])
def test_after_is_seconds_or_a_timedelta(told, after):
    with pytest.raises(errors.WrongType, match=r"after is .* must be a number of seconds; nothing was sent"):
        told.due(after, None)


@pytest.mark.parametrize(
    "after", [-1, math.nan, math.inf, 3654 * 86400.0, timedelta(days=3654), timedelta(-1)]
)
def test_after_is_within_ten_years(told, after):
    with pytest.raises(errors.WrongValue, match=r"after is .*; nothing was sent"):
        told.due(after, None)
    assert told.due(timedelta(days=3653), None) is not None


@pytest.mark.parametrize("at", ["2026-01-01", 1.5, True, timedelta(1)])
def test_at_is_a_moment(told, at):
    with pytest.raises(errors.WrongType, match=r"at is .*; nothing was sent"):
        told.due(None, at)


def test_at_has_a_time_zone_and_is_within_ten_years(told):
    due, most = told.due, WALL + 3653 * 86400 * SECOND
    assert due(None, most).ahead == 3653 * 86400 * SECOND
    for at in (datetime(2026, 1, 1), most + 1, datetime(2060, 1, 1, tzinfo=UTC), 1_700_000_000):  # noqa: DTZ001
        with pytest.raises(errors.WrongValue, match=r"at is .*; nothing was sent"):
            due(None, at)


def test_a_message_is_due_after_a_time_or_at_one(told):
    with pytest.raises(errors.Misuse, match="not both; nothing was sent"):
        told.due(5, WALL)
