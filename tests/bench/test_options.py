"""Test what `txbroker bench` refuses before it asks a broker anything: nothing listens at these addresses."""

import pytest
from click.testing import CliRunner

from txbroker.cli import command_line


def refused(*arguments):
    result = CliRunner().invoke(command_line, ["bench", *arguments], env={"TXBROKER_URL": "tcp:127.0.0.1:1"})
    assert result.exit_code == 2, (result.output, result.exception)
    return result.stderr


@pytest.mark.parametrize("command", ["produce", "latency", "transactions", "consume"])
def test_no_time_is_not_measured(command):
    assert "--duration must be more than 0" in refused(command, "--duration", "0s")


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_is_a_number_that_can_be_kept(rate):
    assert f"not {rate}" in refused("produce", "--rate", rate)


@pytest.mark.parametrize(
    "options",
    [
        ["--rate", "0"],
        ["--rate", "-1"],
        ["--depth", "0"],
        ["--depth", "100000000"],
        ["--clients", "0"],
        ["--count", "0"],
        ["--size", "23"],
        ["--size", "-1"],
        ["--keys", "zipf:0"],
        ["--warm-up", "-1s"],
        ["--topic", ""],
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options):
    assert options[0] in refused("produce", *options)


def test_a_transaction_of_so_many_messages_that_it_never_ends_is_refused():
    assert "--messages" in refused("transactions", "--messages", "100000000")


@pytest.mark.parametrize("file", ["nowhere/figures.json", "."])
def test_a_file_for_figures_that_cannot_be_written_is_refused_before_the_measuring(
    file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "cannot be written; nothing was measured" in refused("produce", "--json", file)
