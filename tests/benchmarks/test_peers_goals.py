"""Test ratios, targets and their report."""

import json

import pytest

from benchmarks.peers import goals, markdown
from benchmarks.peers.contender import Measure
from benchmarks.peers.forces import Forces
from benchmarks.peers.goals import BY_KEY, GOALS, KAFKA, OWN, RABBITMQ, REDIS, Goal


def results(**figures):
    """By load (its dashes as underscores) and then by system: rates, or seconds where latency is the figure."""
    found = {}
    for load, systems in figures.items():
        key = load.replace("_", "-")
        for system, value in systems.items():
            measure = (
                Measure(1.0, value, value, 9) if BY_KEY[key].by_latency else Measure(value, 0.01, 0.02, 9)
            )
            found[key, system] = goals.result(BY_KEY[key], system, [measure])
    return found


def run_of(*systems, forces=None):
    return markdown.Run(
        {
            name: markdown.System(name, f"durability of {name}", forced, version=f"{name} 1", forces=forces)
            for name, forced in systems
        }
    )


def test_a_figure_is_the_median_of_the_rates_and_so_are_its_latencies():
    measures = [Measure(rate, rate / 1000, None, 9) for rate in (3.0, 1.0, 2.0)]
    found = goals.result(BY_KEY["batches"], OWN, measures)
    assert (found.value, found.samples, found.p50, found.p99) == (2.0, (3.0, 1.0, 2.0), 0.002, None)


def test_one_at_a_time_the_figure_is_the_latency_in_milliseconds():
    found = goals.result(BY_KEY["depth-1"], OWN, [Measure(9.0, 0.0002, 0.001, 9)])
    assert found.samples == (pytest.approx(0.2),)


def test_a_rate_has_to_be_so_many_times_the_best_of_the_others():
    goal = Goal("singles", "", (KAFKA, REDIS), 2.0)
    assert goal.beside(results(singles={KAFKA: 10.0, REDIS: 30.0})) == 60.0
    assert goal.is_met(results(singles={OWN: 60.0, KAFKA: 10.0, REDIS: 30.0})) is True
    assert goal.is_met(results(singles={OWN: 59.0, KAFKA: 10.0, REDIS: 30.0})) is False


def test_a_latency_may_be_at_most_so_many_times_the_least_of_the_others():
    goal = Goal("depth-1", "", (KAFKA, RABBITMQ), 1.5, at_most=True)
    assert goal.is_met(results(depth_1={OWN: 0.0015, KAFKA: 0.001, RABBITMQ: 0.009})) is True
    assert goal.is_met(results(depth_1={OWN: 0.0016, KAFKA: 0.001, RABBITMQ: 0.009})) is False


def test_a_target_is_neither_met_nor_missed_where_one_of_the_others_is_missing():
    goal = Goal("singles", "", (KAFKA, REDIS))
    assert goal.is_met(results(singles={OWN: 60.0, KAFKA: 10.0})) is None
    assert goal.is_met(results(singles={KAFKA: 10.0, REDIS: 30.0})) is None


def test_a_target_of_latency_under_a_load_of_rates_looks_at_its_median():
    [goal] = [one for one in GOALS if one.of_latency]
    assert goal.own(results(batches={OWN: 1e6})) == pytest.approx(10.0)
    assert goal.is_met(results(batches={OWN: 1e6})) is True


def test_every_target_names_a_load_that_there_is():
    assert {goal.load for goal in GOALS} <= set(BY_KEY)


def test_another_way_of_the_same_system_is_a_figure_of_its_own_under_the_same_load():
    run = run_of(("Artemis", True))
    run.add("Artemis", {"one-phase-10:XA in one phase": Measure(5.0, None, None, 9)})
    assert list(run.results()) == [("one-phase-10", goals.ARTEMIS_XA)]
    assert run.system(goals.ARTEMIS_XA).durability == "durability of Artemis"


def test_the_report_has_ratio_durability_and_forces_beside_each_figure():
    run = run_of((OWN, True), ("Slow", False), forces=Forces(50, {"fdatasync": 75, "msync": 9}))
    run.add(OWN, {"singles": Measure(300.0, 0.002, 0.004, 9)})
    run.add("Slow", {"singles": Measure(100.0, None, None, 9)})
    text = markdown.markdown(run)
    assert "| **txbroker** | 300 | 300 – 300 | 2 | 4 | | 1.50 | durability of txbroker |" in text
    assert "| Slow | 100 | 100 – 100 | | | 3.00 × | 1.50 | durability of Slow |" in text
    assert run.unforced() == ["Slow"]


def test_a_latency_that_is_half_of_the_other_one_is_twice_as_good():
    found = results(depth_1={OWN: 0.001, REDIS: 0.002})
    assert markdown.ratio(found["depth-1", OWN], found["depth-1", REDIS]) == "2.00 ×"


def test_what_is_missing_is_in_the_report_with_the_reason():
    run = run_of((OWN, True), ("Gone", True))
    run.systems["Gone"].trouble.append("missing: there is no gone\n  in the PATH")
    assert "| Gone | missing: there is no gone in the PATH |" in markdown.markdown(run)
    assert "Nothing is missing" not in markdown.markdown(run)


def test_all_settings_are_in_the_report_line_by_line():
    run = run_of((OWN, True))
    run.systems[OWN].settings = ["fsync = on", "port = 1"]
    assert "    fsync = on\n    port = 1" in markdown.markdown(run)


def test_the_json_has_every_sample_every_target_and_every_force():
    run = run_of((OWN, True), forces=Forces(10, {"fsync": 10}))
    run.add(OWN, {"singles": Measure(300.0, 0.002, 0.004, 9)})
    run.add(OWN, {"singles": Measure(500.0, 0.002, 0.004, 9)})
    found = json.loads(markdown.document(run))
    [figure] = found["figures"]
    assert (figure["value"], figure["samples"]) == (400.0, [300.0, 500.0])
    assert len(found["targets"]) == len(GOALS)
    assert found["systems"][0]["forces"] == {"acknowledged": 10, "calls": {"fsync": 10}}
