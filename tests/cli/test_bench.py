"""Test the arguments of `txbroker bench`: mistakes are reported before anything is made."""

import pytest
from click.testing import CliRunner

from txbroker.bench import histogram
from txbroker.cli import command_line
from txbroker.errors import Misuse


def run(*arguments, code):
    result = CliRunner().invoke(command_line, ["bench", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "--duration", "3s", "--count", "9"], "either --duration or --count"),
        (["produce", "--rate", "9", "--depth", "3"], "say one of them"),
        (["produce", "--rate", "0"], "--rate"),
        (["produce", "--size", "23"], "at least 24"),
        (["produce", "--fresh", "--topic", "orders"], "no --topic"),
        (["produce", "--set", "pool_bytes=1MiB"], "that --fresh starts"),
        (["produce", "--append"], "--append needs --topic"),
        (["produce", "--keys", "some"], "zipf:1000"),
        (["produce", "--duration", "5"], "'5' has no unit: write '5s'"),
        (["latency", "--clients", "0"], "--clients"),
        (["latency", "--clients", "1700000000"], "--clients"),
        (["produce", "--size", "1GiB"], "at most 16MiB"),
        (["produce", "--partitions", "99999999999999999999999"], "--partitions"),
        (["produce", "--json", "a" * 300], "cannot be written; nothing was measured"),
        (["consume", "--clients", "5", "--partitions", "4"], "each reads its own"),
        (["produce", "--linger", "30s"], "--linger must be less than --timeout"),
        (["transactions", "--messages", "2", "--touch", "3"], "--touch cannot be more"),
        (["transactions", "--messages", "9", "--touch", "9", "--partitions", "8"], "--touch cannot be more"),
        (["consume", "--append"], "No such option"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    assert words in run(*arguments, code=2)


def test_where_the_package_is_missing_nothing_is_made_and_the_extra_is_named(monkeypatch):
    def missing():
        raise Misuse("nothing was measured: pip install hdrhistogram")

    monkeypatch.setattr("txbroker.cli.commands.bench.check_package", missing)
    assert "pip install hdrhistogram" in run("produce", "--fresh", code=2)
    assert histogram.check_package() is None


def test_a_fresh_broker_where_no_directory_can_be_made_is_said(monkeypatch):
    monkeypatch.chdir("/proc")
    assert "no directory for a fresh broker can be made in /proc" in run("produce", "--fresh", code=2)


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_said_in_time():
    output = run("produce", "--broker", "tcp:127.0.0.1:1", "--timeout", "1s", code=4)
    assert "tcp:127.0.0.1:1" in output


def test_each_command_explains_itself():
    for command in ("produce", "consume", "transactions", "latency"):
        assert "--json [FILE]" in run(command, "--help", code=0)
