"""The commands that read a data directory without a broker."""

import json

import pytest
from click.testing import CliRunner

import journal
from journal.journal_settings import JournalSettings
from txbroker.cli import command_line
from txbroker.cli.exits import Exit

SMALL = JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 20, low_water_bytes=0)


@pytest.fixture
def directory(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders", partitions=2)
        log.append("orders", b"one")
        with log.transaction() as tx:
            tx.append("orders", b"two")
    return tmp_path / "data"


def run(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def segment(directory):
    [path] = directory.glob("partitions/orders-0.*/*.log")
    return path


def test_a_sound_directory_is_told_to_be_sound_and_is_not_touched(directory):
    before = contents(directory)
    result = run("verify", directory)
    assert (result.exit_code, "No damage found (1 journal files, 1 checkpoints" in result.output) == (0, True)
    assert json.loads(run("verify", directory, "--json").output) == []
    assert contents(directory) == before


def test_damage_is_named_and_the_exit_code_says_so(directory):
    flip(segment(directory), 20)
    result = run("verify", directory, "--json")
    [finding] = json.loads(result.output)
    assert result.exit_code == Exit.CORRUPT
    assert (finding["file"], finding["position"], finding["damage"]) == (
        str(segment(directory).relative_to(directory)), 0, True,
    )  # fmt: skip
    assert "fails its checksum" in run("verify", directory).output


def test_the_journal_is_dumped_record_by_record(directory):
    lines = [json.loads(line) for line in run("dump", directory, "--json").output.splitlines()]
    kinds = [line["record"] for line in lines]
    assert kinds == [
        "Started",
        "TopicCreated",
        "Messages",
        "TransactionAdded",
        "TransactionCommitted",
        "Mark",
    ]
    assert lines[1]["topic"] == "orders"
    later = run("dump", directory, "--from-lsn", lines[4]["lsn"]).output.splitlines()
    assert [line.split()[1] for line in later] == kinds[4:]


def test_a_partition_is_dumped_frame_by_frame_with_the_damaged_one_marked(directory):
    flip(segment(directory), 20)
    result = run("dump", directory, "--partition", "orders-0")
    assert result.exit_code == Exit.CORRUPT
    first, second = result.output.splitlines()
    assert first.startswith("DAMAGED file=partitions/orders-0.")
    assert second.startswith("1 messages=1")


def test_a_partition_that_is_not_there_is_answered_with_no(directory):
    result = run("dump", directory, "--partition", "orders-7")
    assert (result.exit_code, "no segments of a partition 'orders-7'" in result.output) == (Exit.NO, True)


def test_another_directory_is_not_taken_for_a_broker_s(tmp_path):
    result = run("verify", tmp_path)
    assert (result.exit_code, "is not a data directory" in result.output) == (Exit.USAGE, True)


def test_a_file_that_goes_away_meanwhile_is_explained(directory, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory", "journal/x")

    monkeypatch.setattr("journal.inspect.walk_journal", gone)
    result = run("verify", directory)
    assert (result.exit_code, "is a broker running on it?" in result.output) == (Exit.UNREACHABLE, True)
