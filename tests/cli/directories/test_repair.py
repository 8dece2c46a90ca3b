"""Test ``txbroker repair``: it shows the plan, asks, and leaves a directory that starts."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

import journal.embedded
from journal.engine.settings import JournalSettings
from journal.errors import CorruptSegment
from txbroker.cli import command_line
from txbroker.cli.exits import Exit

SMALL = JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 20, low_water_bytes=0)


@pytest.fixture
def directory(tmp_path):
    """Messages of which the first are in a segment alone, damaged there: offset 3 of orders-0."""
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders")
        for number in range(20):
            log.append("orders", b"%d" % number + bytes(30_000))
            if number % 5 == 4:
                log.engine.housekeeping.checkpoint_inline()
    [path] = (tmp_path / "data").glob("partitions/orders-0.1/*.log")
    data = bytearray(path.read_bytes())
    data[3 * 30_037 + 200] ^= 1
    path.write_bytes(data)
    return tmp_path / "data"


def run(*arguments, answer=None):
    return CliRunner().invoke(command_line, ["repair", *map(str, arguments)], input=answer)


def contents(directory):
    return {
        path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"
    }


def repairs(directory):
    return json.loads((directory / "repairs.json").read_text())


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_without_execute_it_says_what_it_would_do_and_does_nothing(directory, options):
    before = contents(directory)
    result = run(directory, *options)
    assert result.exit_code == Exit.CORRUPT
    assert "orders-0: offset 3 (1 message)" in result.output
    assert "Nothing was changed" in result.output
    said = json.loads(run(directory, *options, "--json").output)
    assert (said["repaired"], said["sound"]) == (False, False)
    assert said["losses"] == [{"topic": "orders", "partition": 0, "first_offset": 3, "last_offset": 3}]
    assert {change["action"] for change in said["changes"]} == {"replace", "remove"}
    assert contents(directory) == before


def test_a_no_changes_nothing(directory):
    before = contents(directory)
    result = run(directory, "--execute", answer="n\n")
    assert (result.exit_code, "Repair" in result.output) == (Exit.NO, True)
    assert contents(directory) == before
    assert run(directory, "--execute").exit_code == Exit.USAGE, "nobody answered"
    assert contents(directory) == before


def test_after_a_yes_the_directory_starts_and_lacks_only_what_was_named(directory):
    result = run(directory, "--execute", answer="y\n")
    assert (result.exit_code, "nothing in it is damaged any more" in result.output) == (0, True), (
        result.output
    )
    [note] = repairs(directory)
    assert (directory / note["evidence"]).is_dir()
    with journal.embedded.open_log(directory, SMALL) as log:
        values = [message.value for message in log.read("orders", offset=4)]
        assert [value[:2].rstrip(b"\0") for value in values] == [b"%d" % number for number in range(4, 20)]
        with pytest.raises(CorruptSegment, match="lost before a repair"):
            list(log.read("orders", offset=3))
        assert any(
            "repaired on" in note and "offset 3 (1 message)" in note for note in log.engine.report.notes
        )
    assert CliRunner().invoke(command_line, ["verify", str(directory), "--deep"]).exit_code == 0


def test_programs_get_one_document_and_the_plan_goes_to_stderr(directory):
    result = run(directory, "--execute", "--json", answer="y\n")
    said = json.loads(result.stdout)
    assert (said["repaired"], said["still_damaged"], len(said["losses"])) == (True, [], 1)
    assert "Would be lost" in result.stderr


def test_a_sound_directory_needs_no_repair(directory):
    assert run(directory, "--execute", "--yes").exit_code == 0
    before = contents(directory)
    for options in ((), ("--execute", "--yes")):
        result = run(directory, *options)
        assert (result.exit_code, "There is nothing to repair" in result.output) == (0, True)
    assert contents(directory) == before


def test_a_repair_that_was_cut_is_gone_on_with(directory, monkeypatch):
    def cut(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("journal.repair.execution.start_once", cut)
        result = CliRunner().invoke(command_line, ["repair", str(directory), "--execute", "--yes"])
        assert (result.exit_code, "Input/output error" in result.stderr) == (74, True)
    result = run(directory)
    assert (result.exit_code, "begun here and not finished" in result.output) == (Exit.CORRUPT, True)
    result = run(directory, "--execute", answer="y\n")
    assert (result.exit_code, "was begun and not finished. Go on with it?" in result.output) == (0, True)
    assert len(repairs(directory)) == 1


def test_a_directory_whose_broker_is_at_work_is_refused(directory):
    with journal.embedded.open_log(directory, SMALL):
        for options in ((), ("--execute", "--yes")):
            result = run(directory, *options)
            assert (result.exit_code, "is locked by process" in result.output) == (Exit.UNREACHABLE, True)


def test_execute_and_dry_run_are_not_both_meant(directory):
    assert run(directory, "--execute", "--dry-run").exit_code == Exit.USAGE


def test_what_cannot_be_repaired_without_guessing_is_refused(directory):
    for path in (directory / "checkpoints").iterdir():
        path.write_bytes(b"")
    result = run(directory)
    assert (result.exit_code, "would have to guess" in result.output) == (Exit.CORRUPT, True)


@pytest.mark.parametrize("execute", [("--execute", "--yes"), ("--execute",)], ids=["done", "nobody answered"])
def test_a_repair_in_a_process_that_goes_on_leaves_its_log_as_loud_as_before(directory, execute, caplog):
    run(directory, *execute)
    logging.getLogger("journal.recovery.start").warning("of the next command")
    assert "of the next command" in caplog.messages
