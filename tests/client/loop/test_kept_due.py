"""Test when a message is due that waits in the program: a time counts from the call, a moment stays what it is."""

from datetime import timedelta

import pytest

from txbroker import errors
from txbroker.client.loop import kept_due as module
from txbroker.client.loop.kept_due import arguments_of, kept_due
from txbroker.client.loop.since_boot import since_boot


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "since_boot", lambda: now[0])
    return now


def test_what_is_for_now_has_no_due_time():
    assert kept_due(None, None) is None
    assert arguments_of(None) == {}


def test_of_a_time_only_the_rest_is_left(clock):
    kept = kept_due(90, None)
    assert arguments_of(kept) == {"after": timedelta(seconds=90)}
    clock[0] += 60
    assert arguments_of(kept) == {"after": timedelta(seconds=30)}
    clock[0] += 60
    assert arguments_of(kept) == {"after": timedelta(0)}, "it is due"


def test_a_moment_is_kept(clock):
    kept = kept_due(None, 1_700_000_000_000_000)
    clock[0] += 60
    assert arguments_of(kept) == {"at": 1_700_000_000_000_000}


def test_what_is_no_time_is_refused_at_once():
    for given in ((-1, None), (None, 5), (None, 10**17), (5, 1_700_000_000_000_000), ("5", None)):
        with pytest.raises(errors.Misuse, match="nothing was sent"):
            kept_due(*given)


def test_the_clock_counts_also_while_the_machine_sleeps(monkeypatch):
    first = since_boot()
    assert since_boot() >= first
    monkeypatch.setattr("time.clock_gettime", lambda clock: 5.0)
    assert since_boot() == 5.0
    monkeypatch.setattr("txbroker.client.loop.since_boot._CLOCK", None)
    monkeypatch.setattr("time.monotonic", lambda: 6.0)
    assert since_boot() == 6.0
