"""The exit codes."""

import inspect

import click
import pytest

from txbroker import errors
from txbroker.cli.exits import Exit, Failure, errors_as_exits, exit_for

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
        errors.UnknownGroup,
        errors.UnknownPartition,
        errors.UnknownTransaction,
        errors.OutcomeForgotten,
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
        "INTERRUPTED": 130,
        "PIPE_CLOSED": 141,
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


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), errors_as_exits():
        _ = 1 // 0
