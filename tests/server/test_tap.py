"""Test the command line of ``twistd txbroker``: its options, its output, and that it does nothing too early."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.application.service import IService, IServiceMaker
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from tests.support.broker_process import PATIENCE
from txbroker.server.tap import Options, makeService


def parsed(*words):
    options = Options()
    options.parseOptions([str(word) for word in words])
    return options.config


def refusal(*words):
    with pytest.raises(UsageError) as refused:
        parsed(*words)
    return str(refused.value)


def test_the_directory_is_asked_for():
    assert "--data" in refusal()


def test_endpoints_may_be_several():
    made = parsed("--data", "d", "--listen", "tcp:0:interface=127.0.0.1", "-l", "unix:/s:mode=600")
    assert made.service.listen == ("tcp:0:interface=127.0.0.1", "unix:/s:mode=600")
    assert parsed("--data", "d", "-l", "tcp:interface=127.0.0.1:port=65535").service.listen
    assert parsed("--data", "d").service.listen == ("tcp:7654:interface=127.0.0.1",)


def test_any_setting_can_be_set_and_wins_over_the_file(tmp_path):
    file = tmp_path / "b.toml"
    file.write_text('data = "there"\nlisten = "unix:/1:mode=600"\nmax_sessions = 5\nmax_topics = 6\n')
    made = parsed("--config", file, "--set", "max-sessions=7", "-s", "hello_timeout = 3s")
    assert (made.broker.max_sessions, made.broker.max_topics) == (7, 6)
    assert made.broker.hello_timeout == 3_000_000
    assert made.service.data == str(tmp_path / "there")
    assert made.service.listen == ("unix:/1:mode=600",)
    assert parsed("--config", file, "--listen", "unix:/2:mode=600").service.listen == ("unix:/2:mode=600",)


def test_that_others_may_come_in_without_a_login_is_said_in_words(tmp_path):
    assert not parsed("--data", "d", "--listen", "tcp:7654").service.insecure_open
    assert parsed("--data", "d", "--listen", "tcp:7654", "--insecure-open").service.insecure_open
    file = tmp_path / "b.toml"
    file.write_text('data = "d"\nlisten = "tcp:7654"\ninsecure_open = true\n')
    assert parsed("--config", file).service.listen == ("tcp:7654",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "max_session=5"], "did you mean 'max_sessions'"),
        (["--set", "max_sessions"], "it must be NAME=VALUE"),
        (["--set", "max_sessions=many"], "max_sessions"),
        (["--set", "max_sessions=0"], "max_sessions"),
        (["--set", "message_timeout=30"], "message_timeout: '30' has no unit: write '30s'"),
        (["--set", "max_frame=5s"], "max_frame: '5s' is not a size"),
        (["--listen", "carrier-pigeon:7"], "--listen carrier-pigeon:7: not an endpoint"),
        (["--listen", "tcp:port"], "--listen tcp:port: not an endpoint"),
        (["--listen", "tcp:80000"], "--listen tcp:80000: 80000 is not a port"),
        (["--listen", "tcp6:-1"], "-1 is not a port"),
        (["--listen", r"tcp:interface=\:\:1:port=65536"], "65536 is not a port"),
        (["--config", "none.toml"], "none.toml cannot be read"),
        (["--dta", "d"], "--dta"),
    ],
)
def test_a_mistake_is_refused_by_name(words, said):
    assert said in refusal("--data", "d", *words)


def test_nothing_is_touched_before_the_service_is_started(tmp_path):
    options = Options()
    options.parseOptions(["--data", str(tmp_path / "data")])
    assert IService.providedBy(makeService(options))
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option_and_every_setting(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    said = capsys.readouterr().out
    for word in (
        "--data",
        "--listen",
        "--listen-amqp",
        "--config",
        "--set",
        "max_sessions",
        "checkpoint_interval",
        "MiB",
    ):
        assert word in said
    assert max(map(len, said.splitlines())) <= 120
    [about_listen] = re.findall(r"--listen=(.*?)\n +--listen-amqp=", said, re.DOTALL)
    assert [line for line in about_listen.splitlines() if "  " in line.strip()] == [], (
        "no indentation amid a line"
    )


@pytest.mark.parametrize("words", ["7655", "127.0.0.1:7655"])
def test_a_bare_port_is_answered_with_an_endpoint_that_is_one(words):
    said = refusal("--data", "d", "--listen", words)
    assert "tcp:7655:interface=127.0.0.1" in said
    assert parsed("--data", "d", "--listen", "tcp:7655:interface=127.0.0.1")


def test_what_is_shown_beside_a_mistake_is_the_way_to_help_and_nothing_else():
    options = Options()
    with pytest.raises(UsageError):
        options.parseOptions(["--data", "d", "--set", "max_session=5"])
    assert options.getUsage() == "`twistd txbroker --help` lists options and settings.\n"


def test_the_plugin_is_found_and_makes_this_service():
    [maker] = [one for one in getPlugins(IServiceMaker) if one.tapname == "txbroker"]
    assert maker.makeService is makeService
    assert maker.options is Options


@pytest.mark.slow
def test_twistd_shows_the_mistake_and_the_way_to_help(tmp_path):
    command = [
        Path(sys.executable).with_name("twistd"),
        "--nodaemon",
        "--pidfile=",
        "txbroker",
        "--data",
        "d",
        "--set",
        "max_session=5",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    assert "did you mean 'max_sessions'?" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) <= 4, "what matters is not lost among the options"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
