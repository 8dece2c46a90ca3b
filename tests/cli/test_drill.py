"""Test the arguments of `txbroker drill`: mistakes are reported before anything is made."""

import errno
import os
import sys

import pytest
from click.testing import CliRunner

import journal
from tests.support.builders import small_files
from txbroker.cli import command_line
from txbroker.drill.broker.kill_points import POINTS
from txbroker.drill.drill import Drill


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code):
        result = CliRunner().invoke(command_line, ["drill", *map(str, arguments)])
        assert result.exit_code == code, (result.output, result.exception)
        assert list(tmp_path.glob("drill-*")) == []
        return result.output

    return run


@pytest.fixture
def data(tmp_path):
    journal.open(tmp_path / "data", small_files()).close()
    return tmp_path / "data"


def test_the_points_are_listed_without_a_drill(run):
    listed = run("--at", "help", code=0)
    for name in [*POINTS, "random"]:
        assert name in listed


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either --fresh or --data"),
        (["--fresh", "--data", "data"], "either --fresh or --data"),
        (["--fresh", "--in-place"], "needs --data"),
        (["--fresh", "--duration", "30"], "'30' has no unit: write '30s'"),
        (["--fresh", "--duration", "2s"], "--duration must be at least 3s"),
        (["--fresh", "--at", "after-lunch"], "no point after-lunch"),
        (["--fresh", "--kills", "0"], "--kills"),
        (["--fresh", "--two-phase", "1.5"], "--two-phase"),
        (["--fresh", "--set", "max_sesions=5"], "max_sesions"),
        (["--fresh", "--set", "max_sessions=many"], "max_sessions"),
        (["--fresh", "--config", "wrong.toml"], "wrong.toml"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused(run, data, tmp_path, arguments, words):
    (tmp_path / "wrong.toml").write_text("= 3")
    assert words in run(*arguments, code=2)


def test_a_folder_with_something_in_it_is_not_written_to(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/report.json").write_text("mine")
    assert "is not empty" in run("--fresh", "--out", "out", code=2)
    assert (tmp_path / "out/report.json").read_text() == "mine"


@pytest.mark.parametrize("out", ["file/below", "/proc/drill", "x" * 300])
def test_a_folder_that_cannot_be_written_is_no_violation(run, tmp_path, out):
    """It ended with 1, as if something had been lost."""
    (tmp_path / "file").write_text("mine")
    said = run("--fresh", "--out", out, code=2)
    assert "cannot be " in said
    assert "Nothing was changed. Say --out with" in said


def test_data_that_cannot_be_copied_is_no_violation(run, data, tmp_path):
    os.mkfifo(data / "pipe")
    assert f"cannot be copied: {data / 'pipe'}: `" in run("--data", data, "--out", "out", code=2)
    assert not (tmp_path / "out").exists(), "nothing was begun"


def test_a_disk_that_fills_up_amid_a_drill_leaves_no_verdict(run, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "ledgers/probe.1")

    monkeypatch.setattr(Drill, "run", full)
    assert "there is no verdict: [Errno 28] No space left on device" in run("--fresh", code=4)


def test_a_package_that_is_missing_is_named_with_its_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "pip install 'txbroker[zstd]'" in run("--fresh", "--compression", "zstd", code=2)


def test_a_directory_that_is_no_data_directory_is_refused(run, tmp_path):
    (tmp_path / "other").mkdir()
    assert "is not a data directory" in run("--data", "other", "--out", "out", code=2)
    assert not (tmp_path / "out").exists(), "nothing was begun"


@pytest.mark.sampled
@pytest.mark.parametrize("more", [[], ["--in-place"]])
def test_a_directory_that_somebody_has_open_is_refused_and_may_be_tried_again(run, data, more, tmp_path):
    with journal.open(data, small_files()):
        assert "DirectoryLocked" in run("--data", data, "--out", "out", *more, code=4)
    assert not (tmp_path / "out").exists(), "nothing was begun"
