"""Test measurements of a real broker: their figures, what they leave behind, and what cannot be measured."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import click
import msgspec
import pytest
from click.testing import CliRunner

import txbroker
from tests.support.broker_process import BrokerProcess
from tests.support.repository import ROOT
from txbroker.bench.histogram import Histogram
from txbroker.bench.result import Report
from txbroker.bench.rows import ADVICE
from txbroker.cli import command_line

pytestmark = pytest.mark.slow

TXBROKER = [sys.executable, "-c", "from txbroker.cli import main; main()"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker
        broker.stop()


@pytest.fixture
def connection(broker):
    with txbroker.connect(broker.address) as connection:
        yield connection


@pytest.fixture
def run(broker):
    def run(*arguments, code=0):
        result = CliRunner().invoke(
            command_line, ["bench", *map(str, arguments)], env={"TXBROKER_URL": broker.address}
        )
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def measure(run):
    def measure(*arguments, code=0):
        result = run(*arguments, "--json", code=code)
        return msgspec.json.decode(result.stdout, type=Report)

    return measure


def topics(connection):
    return {info.name for info in connection.topics()}


def test_produce_counts_verifies_and_removes_its_topic(measure, connection):
    report = measure(
        "produce", "--count", 3000, "--warm-up", "0ms", "--clients", 3, "--size", 200, "--keys", 7
    )
    assert (report.operations, report.messages, report.bytes) == (3000, 3000, 600_000)
    assert report.verification.acknowledged == report.verification.found >= 3000
    assert report.latency.count == 3000
    assert report.latency.p50 <= report.latency.p99 <= report.latency.p999 <= report.latency.max * 1.001
    assert report.errors == {}
    assert not any(name.startswith("bench-") for name in topics(connection))


def test_an_open_loop_begins_exactly_as_many_as_its_rate_says(measure):
    report = measure(
        "produce", "--rate", 500, "--duration", "2s", "--warm-up", "200ms", "--clients", 3, "--processes", 2
    )
    assert report.operations == 1000
    assert report.verification.acknowledged == 1100
    assert sum(report.throughput.by_second) <= 1000
    assert len(report.generator_busy) == 2


def test_latency_tells_when_a_consumer_had_it_and_where_the_time_went(measure):
    report = measure("latency", "--rate", 200, "--duration", "1s", "--warm-up", "0ms")
    assert report.delivered.count == report.latency.count == 200
    rows = {row.phase: row for row in report.phases["send"]}
    assert sum(row.share for row in rows.values()) == pytest.approx(1.0)
    assert rows["force"].p50 > 0
    assert rows["network"].p50 > 0


def test_the_phases_of_lone_messages_add_up_to_what_they_took(measure):
    report = measure("latency", "--count", 200, "--warm-up", "0ms")
    whole = sum(row.mean for row in report.phases["send"])
    assert whole == pytest.approx(report.latency.mean, rel=0.05), (
        "nothing is left out, and nothing is counted twice"
    )


@pytest.mark.parametrize("phases", [[], ["--two-phase"]])
def test_transactions_are_committed_and_their_messages_there(measure, connection, phases):
    report = measure(
        "transactions", "--count", 60, "--warm-up", "0ms", "--messages", 5, "--touch", 3, "--phases", *phases
    )
    assert (report.operations, report.messages, report.unit) == (60, 300, "transactions")
    assert report.verification.sound
    assert report.verification.acknowledged >= 300
    assert list(report.phases) == (["prepare", "commit"] if phases else ["commit"])
    assert connection.transactions() == []


def test_consume_fills_a_topic_and_reads_it_again_and_again(measure, connection):
    report = measure("consume", "--fill", 20_000, "--duration", "1s", "--warm-up", "0ms", "--clients", 2)
    assert report.operations > 20_000, "read more than once"
    assert report.verification.found == 20_000
    assert report.latency.count > 0
    assert not any(name.startswith("bench-") for name in topics(connection))


def test_a_named_topic_is_made_written_to_and_left(measure, connection):
    measure("produce", "--topic", "mine", "--partitions", 2, "--count", 10, "--warm-up", "0ms", "--depth", 1)
    assert sum(part.high_watermark for part in connection.topics(["mine"])[0].partitions) >= 10


def test_a_topic_that_holds_messages_is_not_written_to_unless_told(run, measure, connection):
    connection.create_topic("orders", partitions=2)
    connection.send("orders", b"a real one", partition=1)
    refused = run("produce", "--topic", "orders", "--count", 5, code=2)
    assert "holds 1 messages" in refused.stderr
    assert "--append" in refused.stderr
    assert [part.high_watermark for part in connection.topics(["orders"])[0].partitions] == [0, 1]
    report = measure(
        "produce", "--topic", "orders", "--append", "--count", 5, "--warm-up", "0ms", "--depth", 1
    )
    assert report.verification.acknowledged == report.verification.found >= 5
    assert report.plan.partitions == 2
    first = next(iter(connection.consume("orders", partitions=[1], follow=False)))
    assert first.value == b"a real one"


def test_consume_of_a_named_topic_writes_nothing(run, measure, connection):
    connection.create_topic("read-only")
    assert "is empty" in run("consume", "--topic", "read-only", code=2).stderr
    assert "UnknownTopic" in run("consume", "--topic", "nowhere", code=1).stderr
    for number in range(3):
        connection.send("read-only", b"%d" % number)
    report = measure("consume", "--topic", "read-only", "--duration", "300ms", "--warm-up", "0ms")
    assert report.operations >= 3
    assert report.verification is None
    assert connection.topics(["read-only"])[0].partitions[0].high_watermark == 3


def test_consume_tells_the_size_of_what_it_has_read_not_of_what_it_would_write(run, connection):
    connection.create_topic("small")
    connection.send("small", b"12345")
    shown = run("consume", "--topic", "small", "--duration", "300ms", "--warm-up", "0ms").stdout
    assert re.search(r"^mean size +5 B$", shown, re.MULTILINE)
    assert "100 B" not in shown


def test_on_a_terminal_no_word_is_cut_in_two(broker):
    terminal, inside = os.openpty()
    arguments = ["bench", "latency", "--count", "50", "--warm-up", "0ms"]
    environment = {**os.environ, "TXBROKER_URL": broker.address, "COLUMNS": "50", "TERM": "xterm"}
    done = subprocess.run(
        [*TXBROKER, *arguments],
        env=environment,
        cwd=ROOT,
        stdout=inside,
        stderr=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    os.close(inside)
    shown = click.unstyle(os.read(terminal, 1 << 16).decode()).replace("\r\n", "\n")
    os.close(terminal)
    assert max(map(len, shown.splitlines())) <= 50, done.stderr
    said = re.search(r"^send: most of the time .*", shown, re.MULTILINE | re.DOTALL)
    assert said
    request, _, rest = " ".join(said[0].split()).partition(": most of the time (")
    assert (request, rest.endswith(".")) == ("send", True)
    assert any(f"goes to {phase}: {advice}." in rest for phase, advice in ADVICE.items())


def held(connection):
    """How many messages there are in topics of measurements."""
    own = [info for info in connection.topics() if info.name.startswith("bench-")]
    return sum(part.high_watermark for info in own for part in info.partitions)


def stopped_for_a_second(broker, measure, *arguments):
    """Measure for four seconds, in which the broker's process stands still for one."""
    pid = broker.pid

    def stall():
        with txbroker.connect(broker.address) as watching:
            while held(watching) < 20:
                time.sleep(0.02)
        time.sleep(0.5)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(pid, signal.SIGCONT)

    stalling = threading.Thread(target=stall)
    stalling.start()
    try:
        return measure("produce", *arguments, "--duration", "4s", "--warm-up", "100ms", "--phases")
    finally:
        stalling.join()


def test_an_open_loop_shows_a_stall_in_its_percentiles_and_a_closed_one_hides_it(broker, measure):
    opened = stopped_for_a_second(broker, measure, "--rate", 200)
    assert opened.operations == 800
    assert opened.latency.p99 > 700_000, (
        "one of four seconds' messages met the stall, a hundredth of all nearly whole"
    )
    assert opened.latency.p90 > 300_000
    closed = stopped_for_a_second(broker, measure, "--depth", 1)
    assert closed.latency.max > 900_000, "the one that met it"
    assert closed.latency.p99 < 200_000, "and of the others nothing is known"
    assert any("Closed loop" in note for note in closed.notes)
    assert not any("Closed loop" in note for note in opened.notes)


def test_a_killed_broker_shows_as_errors_and_the_figures_are_told(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        bench = subprocess.Popen(
            [*TXBROKER, "bench", "produce", "--rate", "500", "--duration", "4s", "--warm-up", "0ms", "--timeout",
             "2s", "--json", "--no-verify", "--topic", "t", "--broker", broker.address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        wait_for_line(bench.stderr, "measuring")
        time.sleep(0.5)
        broker.kill()
        output, said = bench.communicate(timeout=60)
    assert bench.returncode == 0, said
    report = msgspec.json.decode(output, type=Report)
    assert report.operations > 0
    assert sum(report.errors.values()) > 0
    assert any("failed" in note for note in report.notes)


def test_figures_outlive_the_broker_they_were_measured_with(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        bench = subprocess.Popen(
            [*TXBROKER, "bench", "produce", "--duration", "4s", "--warm-up", "0ms", "--timeout", "2s", "--json",
             "--broker", broker.address],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        wait_for_line(bench.stderr, "measuring")
        time.sleep(1.5)
        broker.kill()
        output, said = bench.communicate(timeout=60)
    assert bench.returncode == 4, said
    report = msgspec.json.decode(output, type=Report)
    assert report.operations > 0
    assert report.latency.count == report.operations
    assert report.verification is None
    assert "has not been read back" in report.trouble
    assert "was made for this run and is still there" in report.trouble
    assert report.trouble in said


def test_ctrl_c_while_it_is_read_back_costs_no_figures(run, connection, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("txbroker.bench.measurement.read_back", interrupted)
    done = run("produce", "--count", 100, "--warm-up", "0ms", "--json", code=130)
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.operations == 100
    assert report.trouble == "After the measuring: Ctrl-C. What was acknowledged has not been read back"
    assert not any(name.startswith("bench-") for name in topics(connection))


def test_a_run_in_which_everything_failed_is_no_success(run):
    done = run("produce", "--size", "16MiB", "--count", 3, "--warm-up", "0ms", code=1)
    assert "MessageTooLarge" in done.stdout
    assert "Nothing was measured: every operation failed" in done.stderr


def wait_for_line(stream, word):
    for line in stream:
        if word in line:
            return
    pytest.fail(f"it never said {word!r}")


def test_ctrl_c_gives_the_figures_so_far_and_its_exit_code(broker, connection, tmp_path):
    file = tmp_path / "figures.json"
    bench = subprocess.Popen(
        [*TXBROKER, "bench", "produce", "--duration", "60s", "--warm-up", "0ms", "--json", file, "--broker",
         broker.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    wait_for_line(bench.stderr, " of 60 s")
    bench.send_signal(signal.SIGINT)
    output, said = bench.communicate(timeout=60)
    assert bench.returncode == 130, said
    assert "messages/s" in output
    assert "Stopped with Ctrl-C" in said
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    assert report.interrupted
    assert 0 < report.seconds < 30
    assert report.verification.sound
    assert report.verification.acknowledged >= report.operations > 0
    assert not any(name.startswith("bench-") for name in topics(connection))


def test_a_fresh_broker_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(
        command_line, ["bench", "latency", "--fresh", "--count", "20", "--warm-up", "0ms", "--json", "f.json"]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


def test_the_json_holds_histograms_that_other_tools_read(measure):
    report = measure("produce", "--count", 500, "--warm-up", "0ms", "--depth", 50)
    again = Histogram()
    again.add(report.histograms["latency"])
    assert again.percentiles() == report.latency


def test_the_jsons_fields_are_what_they_were(run):
    document = json.loads(
        run("produce", "--count", 50, "--warm-up", "0ms", "--depth", 5, "--phases", "--json").stdout
    )
    assert document["format"] == 1
    assert set(document) == {
        "format", "began", "plan", "server", "builds", "interrupted", "seconds", "operations", "unit", "messages",
        "bytes", "throughput", "latency", "delivered", "phases", "errors", "verification", "generator_busy",
        "histograms", "notes", "trouble",
    }  # fmt: skip
    assert set(document["latency"]) == {"count", "mean", "p50", "p90", "p99", "p999", "max"}
    assert set(document["throughput"]) == {"mean", "least", "median", "greatest", "deviation", "by_second"}
    assert set(document["phases"]["send"][0]) == {"phase", "share", "mean", "p50", "p99"}
    assert set(document["verification"]) == {"acknowledged", "found", "missing", "twice", "unacknowledged"}
