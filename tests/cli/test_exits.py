"""The exit codes."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.support.repository import ROOT
from txbroker import errors
from txbroker.cli.exits import Exit, Failure, errors_as_exits, exit_for, no_exit_by_accident

ALL_ERRORS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.TxBrokerError)
]


def bare(kind):
    error = kind.__new__(kind, "said")
    Exception.__init__(error, "said")
    return error


@pytest.mark.parametrize("kind", ALL_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_that_tells_whether_the_outcome_is_known(kind):
    code = exit_for(bare(kind))
    assert code not in (Exit.OK, Exit.USAGE)
    nothing_there = (
        errors.UnknownTopic,
        errors.UnknownPartition,
        errors.UnknownQueue,
        errors.UnknownExchange,
        errors.UnknownGroup,
        errors.UnknownSession,
        errors.UnknownTransaction,
        errors.OutcomeForgotten,
        errors.NotScheduled,
        errors.UnknownBackup,
    )
    assert (code is Exit.NO) == issubclass(kind, nothing_there), "as if the command had found out by itself"
    if kind is not errors.TxBrokerError:
        assert (code is Exit.UNKNOWN) == issubclass(kind, errors.OutcomeUnknown | errors.DeliveryPending)


def test_scripts_may_rely_on_the_numbers():
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0,
        "NO": 1,
        "USAGE": 2,
        "REFUSED": 3,
        "UNREACHABLE": 4,
        "UNKNOWN": 5,
        "CORRUPT": 6,
        "DEFECT": 70,
        "IO_FAILED": 74,
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
        "TERMINATED": 143,
    }


def test_an_error_becomes_one_paragraph_on_stderr(capsys):
    with pytest.raises(Failure) as failed, errors_as_exits():
        raise errors.UnknownTopic("there is no topic 'x';\n   nothing has changed")
    failed.value.show()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Error: UnknownTopic: there is no topic 'x'; nothing has changed\n"
    assert failed.value.exit_code == 1


def test_an_interrupt_is_told_by_the_exit_code_alone():
    with pytest.raises(click.exceptions.Exit) as left, errors_as_exits():
        raise KeyboardInterrupt
    assert left.value.exit_code == 130


def test_a_defect_keeps_its_traceback_and_is_no_answer(capsys):
    """Python's own exit code for it is 1, which means "no", or a violation."""
    with pytest.raises(SystemExit) as left, no_exit_by_accident(), errors_as_exits():
        _ = 1 // 0
    assert left.value.code == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_call_of_the_system_that_fails_is_told_without_a_traceback(capsys):
    with pytest.raises(SystemExit) as left, no_exit_by_accident(), errors_as_exits():
        Path("/proc/nothing/here").read_bytes()
    assert left.value.code == 74
    said = capsys.readouterr().err
    assert "a call of the system failed: [Errno 2]" in said
    assert "Traceback" not in said


def test_the_table_in_the_docs_has_every_code():
    table = (ROOT / "docs" / "cli.md").read_text().partition("## Exit codes")[2].partition("## How values")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == [
        int(code) for code in Exit
    ]


def started(redirection, *arguments):
    """The exit code of a command in a shell, and what it said on the stream that is left."""
    command = shlex.join([sys.executable, "-c", "from txbroker.cli import main; main()", *arguments])
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {redirection}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


NOBODY = ("status", "--broker", "unix:/nothing/here", "--timeout", "10ms")


class TestWhatCannotBePrinted:
    @pytest.mark.slow
    @pytest.mark.sampled
    @pytest.mark.parametrize(
        "words", [["--help"], ["topics", "--help"], ["--version"], ["drill", "--at", "help"]]
    )
    def test_output_to_a_full_device_is_told_with_a_code_of_its_own(self, words):
        code, said = started(">/dev/full", *words)
        assert (code, said.partition(":")[0]) == (74, "Error")
        assert "the output cannot be written: No space left on device." in said
        assert "Traceback" not in said

    @pytest.mark.slow
    def test_where_not_even_that_can_be_told_the_code_is_the_same(self):
        assert started(">/dev/full 2>/dev/full", "--help") == (74, "")

    @pytest.mark.slow
    @pytest.mark.sampled
    @pytest.mark.parametrize("redirection", ["2>/dev/full", ">/dev/full 2>/dev/full", "2>&-", ">&- 2>&-"])
    def test_an_error_that_nobody_can_read_keeps_its_code(self, redirection):
        assert started(redirection, *NOBODY) == (4, "")

    @pytest.mark.slow
    def test_a_reader_that_goes_away_is_no_no(self):
        assert started("| true", "drill", "--help") == (141, "")

    @pytest.mark.slow
    def test_a_closed_stream_is_one_that_nobody_reads(self):
        assert started(">&-", "drill", "--at", "help") == (0, "")
