"""Test that a look at a directory is repeated if files go away meanwhile, but not for ever."""

import time

import pytest

from journal.errors import StorageUnavailable
from spark.audit.claims import live_files as module
from spark.audit.claims.live_files import TRIES, stable


def looking(times):
    """A look that so many times misses a file."""
    left = [times]

    def look():
        left[0] -= 1
        if left[0] >= 0:
            raise FileNotFoundError(2, "gone", f"/data/{left[0]}.log")
        return "seen"

    return look


@pytest.mark.parametrize("times", [0, 1, 10 * TRIES])
def test_a_look_is_taken_again_within_the_time(times):
    assert stable("/data", looking(times)) == "seen"


def test_one_that_takes_longer_has_as_many_tries(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    assert stable("/data", looking(TRIES - 1)) == "seen"


def test_it_ends_and_says_what_was_missing(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.01)
    began = time.monotonic()
    with pytest.raises(StorageUnavailable, match=r"went away \d+ times .*log at last; nothing was changed"):
        stable("/data", looking(1 << 40))
    assert 0.01 <= time.monotonic() - began < 10.0


def test_other_errors_are_told_at_once():
    def look():
        raise PermissionError(13, "no", "/data/a")

    with pytest.raises(PermissionError):
        stable("/data", look)
