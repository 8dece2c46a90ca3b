"""Test ``txbroker serve``: a process that is what twistd would be, and whose options twistd's plugin alone reads."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import txbroker
from tests.support.broker_process import ENVIRONMENT, PATIENCE, SMALL_FILES, ToldBroker
from txbroker.cli import command_line
from txbroker.server.settings import config

pytestmark = pytest.mark.slow

TXBROKER = (sys.executable, "-m", "txbroker")


class Served(ToldBroker):
    """A broker that was started with ``txbroker serve``."""

    def _command(self, *first):
        words = super()._command(*first)
        return [*TXBROKER, "serve", *words[words.index("txbroker") + 1 :]]


def serve(*words):
    return subprocess.run(
        [*TXBROKER, "serve", *map(str, words)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def test_it_serves_until_sigterm_and_writes_no_file_beside_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = Served(tmp_path / "data", tmp_path / "log", ("--set", SMALL_FILES), environment=ENVIRONMENT)
    process.launch()
    try:
        with txbroker.connect(f"tcp:127.0.0.1:{process.ready()}") as broker:
            broker.create_topic("orders")
            broker.send("orders", b"one")
        process.stop()
        assert process.exit_code == 0
        assert "txbroker stopped" in process.output
    finally:
        process.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "log"]


def test_a_directory_that_cannot_be_opened_ends_it_with_1_and_the_reason(tmp_path):
    (tmp_path / "data").write_text("no directory")
    done = serve("--data", tmp_path / "data", "--listen", "tcp:0:interface=127.0.0.1")
    assert done.returncode == 1
    assert re.search(r"critical.*data is not a directory; nothing was written", done.stdout)


def test_a_mistake_is_told_on_stderr_with_its_own_exit_code_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = serve("--data", "d", "--set", "max_session=5")
    assert done.returncode == 2
    assert "did you mean 'max_sessions'?" in done.stderr.splitlines()[-1]
    assert "`txbroker serve --help` lists options and settings." in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_its_help_is_that_of_the_plugin():
    done = serve("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: txbroker serve --data DIRECTORY")
    for word in ("--listen-amqp", "--insecure-open", *config.defaults().keys() - {"listen", "listen_amqp"}):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["serve", "init"])
def test_without_the_plugin_it_says_what_to_install(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("twisted.plugin.getPlugins", lambda interface: iter(()))
    done = CliRunner().invoke(command_line, [command, "--data", "d"])
    assert list(tmp_path.iterdir()) == []
    assert done.exit_code == 2
    assert "pip install 'txbroker[server]'" in done.stderr
