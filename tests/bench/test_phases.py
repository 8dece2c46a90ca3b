"""Test how the time of a request is divided into phases."""

import pytest

from txbroker.bench.phases import PHASES, Phases
from txbroker.wire.messages import Times


def rows(phases):
    return {row.phase: row for row in phases.rows()}


def test_the_network_is_what_the_round_trip_took_beside_the_brokers_times():
    phases = Phases()
    phases.record(100, 1000, Times(1, 2, 3, 400, 5, 6))
    found = rows(phases)
    assert list(found) == list(PHASES)
    assert {name: row.p50 for name, row in found.items()} == {
        "client queue": 100, "network": 583, "judge": 1, "wait for group": 2, "write": 3, "force": 400,
        "publish": 5, "answer": 6,
    }  # fmt: skip


def test_the_shares_are_of_all_the_time_that_all_requests_took():
    phases = Phases()
    phases.record(0, 100, Times(0, 0, 0, 100, 0, 0))
    phases.record(700, 200, Times(0, 0, 0, 0, 50, 0))
    found = rows(phases)
    assert found["client queue"].share == pytest.approx(0.7)
    assert found["force"].share == pytest.approx(0.1)
    assert found["network"].share == pytest.approx(0.15)
    assert sum(row.share for row in found.values()) == pytest.approx(1.0)


def test_rounded_clocks_make_no_negative_network():
    phases = Phases()
    phases.record(0, 9, Times(0, 0, 0, 10, 0, 0))
    assert rows(phases)["network"].share == 0


def test_what_two_processes_counted_adds_up():
    whole, part = Phases(), Phases()
    part.record(10, 100, Times(1, 1, 1, 1, 1, 1))
    whole.add(part.packed())
    whole.add(part.packed())
    both = Phases()
    for _ in range(2):
        both.record(10, 100, Times(1, 1, 1, 1, 1, 1))
    assert whole.rows() == both.rows()


def test_of_no_request_there_are_no_rows():
    assert Phases().rows() == []
