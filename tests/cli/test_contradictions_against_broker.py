"""Test heuristic outcomes that a coordinator contradicts: both decisions are shown, also after kills and restarts."""

import json
import time

import pytest

import txbroker
from journal.xid import Xid
from tests.cli.in_doubt import prepare, started
from tests.cli.invocations import runner
from txbroker import errors

pytestmark = pytest.mark.slow


def decide_to_commit(url, xid):
    """A coordinator's decision; the error that it gets."""
    with (
        txbroker.connect(url, client="coordinator") as coordinator,
        pytest.raises(errors.HeuristicallyRolledBack) as told,
    ):
        coordinator.tpc_commit(xid)
    return told.value


def test_a_contradiction_is_told_to_coordinator_and_operator_over_kills_and_restarts_until_forgotten(
    tmp_path,
):
    """L22: two parties resolve the same transaction differently, and nobody is told. L11: a restart undoes it."""
    xid = Xid(7, b"order-t", b"broker")
    with started(tmp_path / "data") as (_, url):
        with txbroker.connect(url) as own:
            own.create_topic("t")
        prepare(url, "t", "order")
        runner(url)("transactions", "rollback", str(xid), "--by", "ann", "--why", "ticket 815", "--yes")
    with started(tmp_path / "data") as (process, url):
        assert "DAMAGE" not in process.output
        error = decide_to_commit(url, xid)
        process.wait_for("warn.*DAMAGE")
    assert (error.by, error.why) == ("ann", "ticket 815")
    assert abs(error.wall - time.time_ns() // 1000) < 60_000_000
    assert isinstance(error, errors.TransactionRolledBack)
    with started(tmp_path / "data") as (process, url):
        process.wait_for("warn.*DAMAGE")
        assert decide_to_commit(url, xid).by == "ann"  # one that did not get the answer asks again
        run = runner(url)
        assert "1: DAMAGE" in run("status").stdout
        for command in (("list",), ("list", "--in-doubt"), ("list", "--damaged"), ("show", str(xid))):
            assert "DAMAGE" in run("transactions", *command).stdout
        shown = json.loads(run("transactions", "show", str(xid), "--json").stdout)
        assert (shown["state"], shown["damage"]) == ("rolled-back", True)
        assert shown["coordinator"]["decided"] == "committed"
        assert shown["coordinator"]["by"].startswith("coordinator@127.0.0.1:")
        asked = run("transactions", "forget", str(xid), "--why", "row 42 mended", stdin="y\n")
        assert "DAMAGE" in asked.stderr
        process.wait_for("forgotten by .*: row 42 mended")
        assert "DAMAGE" not in run("transactions", "list").stdout + run("status").stdout
    with started(tmp_path / "data") as (process, url):
        runner(url)("status")
        assert "DAMAGE" not in process.output


def test_a_coordinator_that_decides_as_was_forced_is_noted_and_nothing_is_damaged(
    run, run_json, url, prepared, topic
):
    run("transactions", "commit", prepared, "--by", "ann", "--why", "x", "--yes")
    assert run_json("transactions", "show", prepared)["coordinator"] is None
    with txbroker.connect(url) as coordinator:
        coordinator.tpc_commit(coordinator.xid(7, f"order-{topic}", "broker"))
        with pytest.raises(errors.HeuristicallyCommitted):
            coordinator.tpc_rollback(coordinator.xid(7, f"order-{topic}", "broker"))
    shown = run_json("transactions", "show", prepared)
    assert (shown["coordinator"]["decided"], shown["damage"]) == ("rolled-back", True), "it changed its mind"


@pytest.mark.parametrize(
    ("forced", "decision", "error"),
    [
        ("commit", "tpc_rollback", errors.HeuristicallyCommitted),
        ("rollback", "tpc_commit", errors.HeuristicallyRolledBack),
    ],
)
def test_a_coordinator_that_was_forestalled_is_told_and_can_go_on(run, url, topic, forced, decision, error):
    with txbroker.connect(url) as coordinator:
        xid = coordinator.xid(7, f"own-{topic}", "broker")
        coordinator.tpc_begin(xid)
        coordinator.send(topic, b"x")
        coordinator.tpc_prepare()
        run("transactions", forced, str(xid), "--by", "ann", "--why", "w", "--yes")
        with pytest.raises(error, match=r"by ann at 20\S+Z \(operator\): w"):
            getattr(coordinator, decision)()
        coordinator.tpc_begin(coordinator.xid(7, f"next-{topic}", "broker"))
        coordinator.send(topic, b"y")
        coordinator.tpc_commit()
