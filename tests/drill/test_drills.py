"""Run whole drills: of the broker, which keeps its promises, and of brokers that break one, which must be found."""

import json
import shutil

import msgspec
import pytest
from click.testing import CliRunner

import journal
import txbroker
from journal.formats.frame import COMPRESSION, COMPRESSION_SHIFT, HEADER, walk
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES
from txbroker.cli import command_line
from txbroker.drill.broker.kill_points import POINTS, RECOVERY
from txbroker.drill.plan.plan import TASKS, WORK_SHAPE
from txbroker.drill.report.result import Report

pytestmark = pytest.mark.slow


@pytest.fixture
def drill(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PACKAGES)

    def drill(*arguments, code=0):
        out = tmp_path / "out"
        words = ["drill", "--out", str(out), *map(str, arguments)]
        result = CliRunner().invoke(command_line, words)
        assert result.exit_code == code, (result.output, result.exception)
        report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
        assert report.command in result.stderr
        return report, result

    return drill


@pytest.fixture
def violations(drill, monkeypatch):
    """Drills a broker with a fault; returns the kinds of violations by which it is found out."""

    def violations(fault, *arguments):
        monkeypatch.setenv("TXBROKER_FAULT", fault)
        report, _ = drill("--fresh", "--entry", "tests.drill.faulty_broker", *arguments, code=1)
        return {violation.wrong.value for violation in report.violations}

    return violations


COMMITS = {"before-commit-force", "after-commit-force"}


@pytest.mark.parametrize(
    ("points", "seconds"),
    [
        (sorted({*list(POINTS)[::4], *COMMITS}, key=list(POINTS).index), 5),
        pytest.param(list(POINTS), 10, marks=pytest.mark.deep),
    ],
    ids=["some", "every"],
)
def test_nothing_is_lost_at_any_point(drill, tmp_path, points, seconds):
    """Some of them here: a power cut at every point, below, takes away what a kill does, and more."""
    kills = len(points) + (RECOVERY in points)  # which takes two
    report, result = drill(
        "--fresh", "--duration", f"{seconds}s", "--kills", kills, "--seed", 1, *at(*points)
    )
    assert report.violations == []
    assert report.kills >= kills
    planned = {each.planned: each.how for each in report.disturbances if each.kind == "kill"}
    assert set(points) <= set(planned)
    there = [how for how in planned.values() if how.startswith("killed there")]
    assert len(there) >= len(points) * 3 // 4, f"too few points are reached: {planned}"
    assert {planned[point] for point in COMMITS} == {"killed there"}, (
        "what ends transactions is not seen to go by"
    )
    assert {each.kind for each in report.disturbances} == {"kill", "pause", "stop", "client kill"}
    counts = report.counts
    assert counts.acknowledged > 30 * seconds
    assert counts.held >= counts.acknowledged
    assert counts.read_live > 0
    assert min(report.recovery) > 0.05
    assert len(report.recovery) == report.restarts - killed_recovering(report)
    assert "No violation" in result.stderr
    assert "LOST" in result.stdout
    assert not (tmp_path / "out/data").exists(), "what nobody needs any more is removed"
    assert "<svg" in (tmp_path / "out/report.html").read_text()


def killed_recovering(report):
    return sum(start.seconds is None for start in report.starts)


def at(*points):
    return [word for point in points for word in ("--at", point)]


def test_old_content_is_copied_kept_and_looked_for_and_the_original_is_not_touched(drill, tmp_path):
    data = tmp_path / "mine"
    with BrokerProcess(data, "checkpoint_interval=1s") as broker:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("mine", partitions=2)
            for number in range(50):
                connection.send("mine", b"%d" % number, key=b"k%d" % number)
            connection.set_offsets("readers", "mine", {0: 3})
            connection.tpc_begin(connection.xid(7, "mine", "b"))
            connection.send("mine", b"in doubt")
            connection.tpc_prepare()
        broker.stop()
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    settings = tmp_path / "settings.toml"
    settings.write_text('checkpoint_interval = "700ms"\n')
    options = ["--data", data, "--config", settings, "--set", "file_bytes=20MiB", "--keep", "--json"]
    report, result = drill(*options, "--duration", "5s", "--kills", 3, "--seed", 2)
    assert report.violations == []
    assert report.counts.old_messages == 50
    assert {file: file.read_bytes() for file in data.rglob("*") if file.is_file()} == before
    assert json.loads(result.stdout)["seed"] == 2
    journals = list((tmp_path / "out/data/journal").glob("*.journal"))
    assert 20 << 20 in {file.stat().st_size for file in journals}, "the broker has not had its settings"


@pytest.mark.deep  # the one above looks for old content, too
def test_in_place_the_old_content_stays_where_it_is_and_a_second_drill_has_topics_of_its_own(drill, tmp_path):
    data = tmp_path / "mine"
    with journal.open(data) as log:
        log.create_topic("mine")
        log.append("mine", b"a message")
    with BrokerProcess(data) as broker:  # so that it has what only a broker keeps
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("drill1-orders", partitions=1)
        broker.stop()
    report, _ = drill("--data", data, "--in-place", "--duration", "3s", "--kills", 1, "--seed", 3)
    assert report.violations == []
    assert report.name == "drill2"
    assert not (tmp_path / "out/data").exists()
    with BrokerProcess(data) as broker, txbroker.connect(broker.address) as connection:
        assert [message.value for message in connection.read("mine", 0, 0)] == [b"a message"]
        assert "drill2-orders" in {topic.name for topic in connection.topics()}


def test_nothing_is_lost_when_every_death_is_a_power_cut_and_no_compressed_batch_either(drill, tmp_path):
    ways = [word for way in ("zstd", "lz4", "none") for word in ("--compression", way)]
    options = ("--power-cuts", "--duration", "10s", "--kills", 21, "--seed", 8, "--keep", *ways)
    report, result = drill("--fresh", *options, *at(*POINTS))
    assert report.violations == []
    assert report.power_cuts
    assert "--power-cuts" in report.command
    assert "what is unforced is lost" in result.stdout
    assert report.kills >= 21
    assert report.counts.acknowledged > 300
    assert [left.name for left in (tmp_path / "out").iterdir() if left.name.startswith("data")] == ["data"]
    assert compressions(tmp_path / "out/data") == {0, 1, 2}


def compressions(data_dir):
    """What the frames of all logs are compressed with."""
    frames = [
        HEADER.unpack_from(data, at)[6]
        for log in (data_dir / "partitions").glob("*/*.log")
        for data in [log.read_bytes()[SEGMENT_HEADER_BYTES:]]
        for at, _, _, _ in walk(data)
    ]
    return {(flag & COMPRESSION) >> COMPRESSION_SHIFT for flag in frames}


WORK = ("--workers", 2, "--clients", 1, "--at", "random")


def test_workers_handle_each_message_once_while_they_and_the_broker_are_killed_and_paused(drill):
    report, result = drill("--fresh", *WORK, "--duration", "6s", "--kills", 2, "--seed", 6)
    assert report.violations == []
    assert report.workers == 2
    assert "--workers 2" in report.command
    counts = report.counts
    assert counts.tasks > 50
    assert counts.tasks_handled + counts.tasks_poison + counts.tasks_lost_with_workers == counts.tasks
    assert counts.tasks_poison
    assert counts.handler_failures > counts.tasks_poison
    assert counts.claims > WORK_SHAPE[TASKS], "no partition has changed hands"
    assert report.client_pauses
    done = {(each.kind, each.planned.partition("-")[0]) for each in report.disturbances}
    assert {("client kill", "worker"), ("client pause", "worker")} <= done
    assert "HANDLED TWICE" in result.stdout


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(
    ("fault", "kinds", "seconds"),
    [
        ("lose_effects", {"never handled"}, 3),
        pytest.param("forget_claims", {"handled twice", "claim"}, 60, marks=pytest.mark.deep),
    ],
)
def test_a_broker_that_breaks_a_promise_to_workers_is_found_out(violations, fault, kinds, seconds):
    """A worker that has lost a partition must be stopped in the middle of a call to show it: that takes luck."""
    kills = 1 + seconds // 4
    assert kinds <= violations(fault, *WORK, "--duration", f"{seconds}s", "--kills", kills, "--seed", 5)


LATER = ("--schedulers", 2, "--clients", 1, "--at", "random")


def test_messages_for_later_come_once_or_never_while_the_broker_is_killed(drill):
    report, result = drill("--fresh", *LATER, "--duration", "5s", "--kills", 2, "--seed", 6)
    assert report.violations == []
    assert report.schedulers == 2
    assert "--schedulers 2" in report.command
    counts = report.counts
    assert counts.later > 50
    assert counts.came > 50
    assert counts.taken_back > 0
    assert "EARLY" in result.stdout


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("come_early", {"early"}),
        pytest.param("forget_what_was_taken_back", {"contradicted"}, marks=pytest.mark.deep),
        pytest.param("lose_what_waits", {"lost"}, marks=pytest.mark.deep),
    ],
)
def test_a_broker_that_breaks_a_promise_about_messages_for_later_is_found_out(
    violations, monkeypatch, fault, kinds
):
    monkeypatch.setattr("txbroker.drill.drill.DUE_WITHIN", 20.0)
    assert kinds <= violations(fault, *LATER, "--duration", "3s", "--kills", 1, "--seed", 5)


def queuers(role):
    """The arguments for a drill with two clients that use queues, by the broker's own protocol or over AMQP."""
    return (f"--{role}", 2, "--clients", 1, "--at", "random")


@pytest.mark.parametrize(("role", "kind"), [("queuers", "HALF DONE"), ("amqp", "ACKNOWLEDGED AND BACK")])
def test_messages_leave_their_queues_once_while_the_broker_is_killed(drill, role, kind):
    report, result = drill("--fresh", *queuers(role), "--duration", "3s", "--kills", 1, "--seed", 83)
    assert report.violations == []
    assert (report.queuers, report.amqp) == ((2, 0) if role == "queuers" else (0, 2))
    assert f"--{role} 2" in report.command
    counts = report.counts
    assert counts.published > 50
    assert counts.settled > (10 if role == "amqp" else 0)
    assert counts.settled_with_transactions > 0 or role == "amqp"
    assert counts.queued > 0
    assert kind in result.stdout


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(
    ("fault", "kinds", "seconds"),
    [
        ("forget_a_queue", {"lost", "half-visible"}, 3),
        pytest.param("forget_acknowledgements", {"acknowledged and back"}, 10, marks=pytest.mark.deep),
        pytest.param("lose_effects", {"half done"}, 10, marks=pytest.mark.deep),
    ],
)
def test_a_broker_that_breaks_a_promise_about_queues_is_found_out(violations, fault, kinds, seconds):
    options = (*queuers("queuers"), "--duration", f"{seconds}s", "--kills", 1, "--seed", 68)
    assert kinds & violations(fault, *options)


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(
    ("fault", "kinds", "seconds"),
    [
        ("say_of_nothing_that_it_comes_again", {"contradicted"}, 4),
        pytest.param("forget_acknowledgements", {"acknowledged and back"}, 10, marks=pytest.mark.deep),
    ],
)
def test_a_broker_that_breaks_a_promise_over_amqp_is_found_out(violations, fault, kinds, seconds):
    options = (*queuers("amqp"), "--duration", f"{seconds}s", "--kills", 1, "--seed", 68)
    assert kinds & violations(fault, *options)


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("fault", ["believe_the_page_cache", "forget_names"])
def test_a_broker_that_does_not_force_passes_kills_and_is_found_out_by_power_cuts(
    drill, monkeypatch, tmp_path, fault
):
    monkeypatch.setenv("TXBROKER_FAULT", fault)
    options = [
        "--fresh",
        "--entry",
        "tests.drill.faulty_broker",
        "--duration",
        "4s",
        "--kills",
        3,
        "--seed",
        5,
    ]
    drill(*options, "--at", "random")
    shutil.rmtree(tmp_path / "out")
    report, _ = drill(*options, "--at", "random", "--power-cuts", code=1)
    found = {violation.wrong.value for violation in report.violations}
    assert found & {"lost", "broker", "surprise"}, [str(violation) for violation in report.violations[:5]]


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(
    ("fault", "kinds", "points"),
    [
        ("answer_early", {"lost"}, ["mid-write"]),
        pytest.param("drop_sends", {"lost", "moved"}, ["random"], marks=pytest.mark.deep),
        ("show_half", {"half-visible"}, ["random"]),
        ("forget_prepared", {"lost", "prepare lost"}, ["after-prepare-force"]),
    ],
)
def test_a_broker_that_breaks_a_promise_is_found_out_and_named(
    drill, monkeypatch, tmp_path, fault, kinds, points
):
    monkeypatch.setenv("TXBROKER_FAULT", fault)
    options = ["--entry", "tests.drill.faulty_broker", "--duration", "5s", "--kills", 4, "--seed", 5]
    report, result = drill("--fresh", *options, *at(*points), code=1)
    found = {violation.wrong.value for violation in report.violations}
    assert found & kinds, [str(violation) for violation in report.violations[:5]]
    first = next(violation for violation in report.violations if violation.wrong.value in kinds)
    assert first.client
    ledger, _, line = first.ledger.rpartition(":")
    lines = (tmp_path / "out/ledgers" / ledger).read_text().splitlines()
    assert json.loads(lines[int(line) - 1])["what"] in (
        "began",
        "acknowledged",
        "decided",
        "ended",
        "prepared",
        "half seen",
    )
    assert "VIOLATION" in result.stderr
    assert first.wrong.value in result.stderr
    assert first.wrong.value in (tmp_path / "out/report.html").read_text()
    assert (tmp_path / "out/data").exists(), "the evidence is kept"


def test_a_broker_that_cannot_start_again_is_a_violation_with_the_end_of_its_log(
    drill, tmp_path, monkeypatch
):
    data = tmp_path / "mine"
    with journal.open(data) as log:
        log.create_topic("mine")
        log.append("mine", b"a message")
    for file in (data / "checkpoints").iterdir():
        file.write_bytes(b"no checkpoint")
    report, result = drill("--data", data, "--duration", "3s", "--kills", 1, code=1)
    (violation,) = report.violations
    assert violation.wrong.value == "broker"
    assert "cannot be opened" in violation.text
    assert "cannot be opened" in result.stderr
