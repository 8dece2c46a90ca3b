"""Test the audit's command line as users run it: real processes, Python's and ``spark-submit``'s, local and on a
cluster.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

import pyspark
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from journal.formats.frame import HEADER_BYTES
from spark.audit.__main__ import main
from tests.spark.audit.audited import Making, copied
from tests.spark.damages.forger import flip, held
from tests.spark.standalone import Standalone
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES, ROOT

pytestmark = pytest.mark.slow

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
LOCAL = "local[2]"
EARLIER = '{"sound": true}'
HERE = "/proc/self/cwd"
"""Each process has its own: the driver's is not a worker's, as the disks of two machines are not."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The line that is the audit's own; Spark says more before it, and may when it is being ended."""
        return next(line for line in self.err.splitlines() if line.startswith("the audit "))


def program(submit: bool, *arguments: str | Path) -> list[str]:
    given = [str(each) for each in arguments]
    if submit:
        master = given.index("--master")
        before, given = given[master : master + 2], given[:master] + given[master + 2 :]
        return [str(SUBMIT), *before, str(ROOT / "spark" / "audit" / "__main__.py"), *given]
    return [sys.executable, "-m", "spark.audit", *given]


def start(cwd: Path, *arguments: str | Path, submit: bool = False, **environment: str) -> subprocess.Popen:
    given = {"PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(
        program(submit, *arguments),
        cwd=cwd,
        env={**os.environ, **given, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(cwd: Path, *arguments: str | Path, submit: bool = False, **environment: str) -> Ended:
    with start(cwd, *arguments, submit=submit, **environment) as process:
        out, err = process.communicate(timeout=280)
    return Ended(process.returncode, out, err)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    made = Making(tmp_path_factory.mktemp("sound") / "data")
    for number in range(4):
        made.send(number % 2, b"plain %d" % number)
        made.transaction((0, b"a%d" % number), (1, b"b"))
    made.transaction((0, b"in doubt"), end="prepare", xid="<script>alert(1)</script>")
    return made.close()


@pytest.fixture(scope="module")
def damaged(sound, tmp_path_factory) -> Path:
    path = copied(sound, tmp_path_factory.mktemp("damaged") / "data")
    first = held(path, "a", 0)[0]
    flip(path, first.segment, first.entry.position + HEADER_BYTES)
    next(iter((path / "staged").iterdir())).unlink()
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


def check_sound(ended: Ended, out: Path) -> None:
    assert (ended.code, ended.out.splitlines()[-2:]) == (0, ["sound", f"{out}/index.html"]), ended.err
    assert json.loads((out / "summary.json").read_text())["sound"] is True


def check_damaged(ended: Ended, out: Path) -> None:
    assert ended.code == 1, ended.err
    summary = json.loads((out / "summary.json").read_text())
    assert {"damaged frame", "staged"} <= summary["violations"].keys()
    assert f"{sum(summary['violations'].values())} violations" in ended.out.splitlines()
    assert re.search(r"^violation: damaged frame \(1\)", ended.out, re.MULTILINE)
    assert re.search(r"a-0 offset 0: partitions/a-0\.\d+/0+\.log at 64: ", ended.out)
    page = (out / "index.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


class TestWhatAnAuditSays:
    """Of a sound directory in test_audit_beside_brokers.py, too."""

    @pytest.mark.deep
    def test_python_ends_with_0_for_a_sound_directory(self, sound, tmp_path):
        out = tmp_path / "report"
        check_sound(run(tmp_path, "--data", sound, "--out", "report", "--master", LOCAL), out)

    @pytest.mark.deep
    def test_spark_submit_ends_with_1_for_a_damaged_directory(self, damaged, tmp_path):
        out = tmp_path / "report"
        ended = run(tmp_path, "--data", damaged, "--out", out, "--master", LOCAL, submit=True)
        check_damaged(ended, out)

    def test_spark_submit_on_a_cluster_ends_with_1_and_names_the_places(self, damaged, tmp_path, cluster):
        out = tmp_path / "report"
        ended = run(tmp_path, "--data", damaged, "--out", out, "--master", cluster.master, submit=True)
        check_damaged(ended, out)


class TestWorkersThatSeeOtherDisks:
    def test_data_that_workers_do_not_see_is_told_and_is_no_violation(self, sound, tmp_path, cluster):
        copied(sound, tmp_path / "data")
        ended = run(
            tmp_path, "--data", f"{HERE}/data", "--out", tmp_path / "report", "--master", cluster.master
        )
        assert ended.code == 3, ended.err
        assert f"does not see the data directory {HERE}/data" in ended.message
        assert "Every worker needs the directory" in ended.message
        assert json.loads((tmp_path / "report" / "summary.json").read_text())["sound"] is None

    @pytest.mark.deep
    def test_a_report_that_workers_write_elsewhere_is_never_taken_for_one_without_findings(
        self, damaged, tmp_path, cluster
    ):
        ended = run(tmp_path, "--data", damaged, "--out", f"{HERE}/report", "--master", cluster.master)
        assert ended.code == 3, (ended.out, ended.err)
        assert "not all workers share this directory" in ended.message
        assert "sound" not in ended.out


def earlier_report(out: Path) -> Path:
    out.mkdir()
    (out / "summary.json").write_text(EARLIER)
    return out / "summary.json"


def not_to_be_called(*_: object) -> NoReturn:
    raise AssertionError("Spark was started")


def called(cwd: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Ended:
    """The command in this process: for what it refuses before it starts Spark, whose import takes a process 1.5 s."""
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", not_to_be_called)
    ended = CliRunner().invoke(main, arguments)
    assert isinstance(ended.exception, SystemExit), ended.exception
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ([], "Missing option '--data'"),
            (["--data", "{sound}"], "Missing option '--out'"),
            (["--data", "{sound}", "--out", "o", "--window", "0"], "--window 0 is no length of time"),
            (["--data", "{sound}", "--out", "o", "--expect", "t"], "each table needs a topic and a key"),
            (["--data", "{sound}", "--out", "{sound}/report"], "lies in the data directory"),
            (["--data", "{sound}", "--out", "file"], "is a file"),
            (["--data", "{sound}", "--out", "foreign"], "holds findings, and these are no audit's"),
        ],
        ids=["no data", "no out", "no window", "no key", "inside", "a file", "foreign"],
    )
    def test_it_ends_with_2_and_says_what_before_spark_is_started(
        self, sound, tmp_path, monkeypatch, arguments, says
    ):
        (tmp_path / "file").write_text("mine")
        (tmp_path / "foreign" / "findings").mkdir(parents=True)
        (tmp_path / "foreign" / "findings" / "mine").write_text("mine")
        earlier = earlier_report(tmp_path / "o")
        ended = called(tmp_path, monkeypatch, *(each.format(sound=sound) for each in arguments))
        assert (ended.code, says in ended.err) == (2, True), ended.err
        assert (tmp_path / "foreign" / "findings" / "mine").read_text() == "mine"
        assert not (sound / "report").exists()
        assert earlier.read_text() == EARLIER

    def test_a_master_that_spark_does_not_know_ends_it_with_2(self, sound, tmp_path):
        """In a process of its own: where Spark is at work already, its master is taken."""
        earlier = earlier_report(tmp_path / "o")
        ended = run(tmp_path, "--data", sound, "--out", "o", "--master", "spork")
        assert (ended.code, "'spork' is none that Spark knows" in ended.err) == (2, True), ended.err
        assert earlier.read_text() == EARLIER


class TestSparkConnect:
    """An audit cannot be made through it; it says so at once, and an earlier report stays."""

    @pytest.mark.parametrize(
        ("arguments", "environment", "says"),
        [
            (["--master", "sc://127.0.0.1:15002"], {}, "--master sc://127.0.0.1:15002 is of Spark Connect"),
            ([], {"SPARK_REMOTE": "sc://127.0.0.1:15002"}, "the variable SPARK_REMOTE is of Spark Connect"),
            (["--master", LOCAL], {"SPARK_REMOTE": "local"}, "the variable SPARK_REMOTE is of Spark Connect"),
        ],
        ids=["master", "remote", "both"],
    )
    def test_it_ends_with_2_before_anything_is_done(
        self, sound, tmp_path, monkeypatch, arguments, environment, says
    ):
        for name, given in environment.items():
            monkeypatch.setenv(name, given)
        earlier = earlier_report(tmp_path / "report")
        ended = called(tmp_path, monkeypatch, "--data", str(sound), "--out", "report", *arguments)
        assert (ended.code, says in ended.err) == (2, True), ended.err
        assert earlier.read_text() == EARLIER

    def test_a_process_that_has_connect_for_its_session_ends_so_too(self, sound, tmp_path):
        earlier = earlier_report(tmp_path / "report")
        ended = run(tmp_path, "--data", sound, "--out", "report", SPARK_CONNECT_MODE_ENABLED="1")
        assert (ended.code, "the active session is of Spark Connect" in ended.err) == (2, True), ended.err
        assert earlier.read_text() == EARLIER


class TestWhatCannotBeFoundOut:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["--data", "nowhere", "--out", "o"], "there is no directory"),
            (["--data", "other", "--out", "o"], "is no data directory of txbroker"),
            (["--data", "loop", "--out", "o"], "cannot be read: Too many levels of symbolic links"),
            (["--data", "{sound}", "--out", "file/o"], "cannot be written to"),
        ],
        ids=["missing", "not ours", "unreadable", "not writable"],
    )
    def test_it_ends_with_3_and_one_line_that_says_why(self, sound, tmp_path, monkeypatch, arguments, says):
        (tmp_path / "file").write_text("mine")
        (tmp_path / "other").mkdir()
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        earlier = earlier_report(tmp_path / "o")
        ended = called(tmp_path, monkeypatch, *(each.format(sound=sound) for each in arguments))
        assert (ended.code, says in ended.message) == (3, True), ended.err
        assert "Traceback" not in ended.err
        assert earlier.read_text() == EARLIER

    def test_a_master_where_nobody_listens_is_named_in_a_line(self, sound, tmp_path):
        earlier = earlier_report(tmp_path / "o")
        with socket.socket() as held_port:
            held_port.bind(("127.0.0.1", 0))  # and nobody listens
            master = f"spark://127.0.0.1:{held_port.getsockname()[1]}"
            ended = run(tmp_path, "--data", sound, "--out", "o", "--master", master)
        assert (ended.code, "no master of Spark" in ended.message) == (3, True), ended.err
        assert "Traceback" not in ended.err
        assert earlier.read_text() == EARLIER

    def test_java_that_is_not_there_is_named(self, sound, tmp_path):
        ended = run(
            tmp_path, "--data", sound, "--out", "o", "--master", LOCAL, JAVA_HOME=str(tmp_path / "none")
        )
        assert (ended.code, "Java 17" in ended.message) == (3, True), ended.err

    def test_an_audit_that_is_stopped_ends_with_130_and_leaves_no_verdict_of_an_earlier_one(
        self, sound, tmp_path
    ):
        out = tmp_path / "report"
        summary = earlier_report(out)
        (out / "index.html").write_text("an earlier page")
        with start(tmp_path, "--data", sound, "--out", out, "--master", LOCAL) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "NativeCodeLoader" in line:  # Spark has been started
                    break
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=100)
        assert (process.returncode, "was stopped: nothing is proven" in err) == (130, True), err
        assert json.loads(summary.read_text())["sound"] is None
        assert not (out / "index.html").exists()


@pytest.mark.deep  # test_audit_beside_brokers.py has one that writes
def test_a_directory_under_a_broker_at_work_is_audited_as_of_its_checkpoint(sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    with BrokerProcess(path):
        ended = run(tmp_path, "--data", path, "--out", "report", "--master", LOCAL)
    check_sound(ended, tmp_path / "report")
    assert "A broker was at work in it" in (tmp_path / "report" / "index.html").read_text()
