"""The exit codes of commands, and the exit code of each error. ``docs/cli.md`` has the table."""

from __future__ import annotations

import enum
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

import click

from txbroker.cli.output import wrapped
from txbroker.cli.streams import OutputLost, ReaderLeft, drop_what_is_lost
from txbroker.errors import (
    CorruptData,
    NotScheduled,
    OutcomeForgotten,
    OutcomeUnknown,
    PeerViolation,
    RequestRefused,
    StorageUnavailable,
    TxBrokerError,
    UnknownBackup,
    UnknownExchange,
    UnknownGroup,
    UnknownPartition,
    UnknownQueue,
    UnknownSession,
    UnknownTopic,
    UnknownTransaction,
)
from txbroker.missing_packages import what_to_install


class Exit(enum.IntEnum):
    """The exit codes. Scripts rely on them: their meaning never changes."""

    OK = 0
    NO = 1
    """No such thing exists, something is left or wrong, or the person answered no; nothing was changed."""
    USAGE = 2
    """The command line is wrong; nothing was done."""
    REFUSED = 3
    """The broker refused; nothing was changed, and trying again unchanged will not help."""
    UNREACHABLE = 4
    """There is no broker, or it cannot do this now; nothing was changed, a later try may succeed."""
    UNKNOWN = 5
    """It may or may not have happened; the message says how to find out."""
    CORRUPT = 6
    """Bytes on the broker's disk are not those that were written there."""
    DEFECT = 70
    """The program itself has a fault, and a traceback shows where (``EX_SOFTWARE``)."""
    IO_FAILED = 74
    """The output, or a file, cannot be written or read (``EX_IOERR``); the command may have done its work."""
    INTERRUPTED = 130
    """Stopped with Ctrl-C."""
    PIPE_CLOSED = 141
    """The reader of the output has ended, as ``head`` does; that is no answer "no"."""
    TERMINATED = 143
    """Stopped at once with a second SIGTERM."""


WORST: Final = (Exit.UNKNOWN, Exit.UNREACHABLE, Exit.CORRUPT, Exit.REFUSED, Exit.NO)
"""If several things fail, the exit code is that of the first of these kinds, the most urgent one."""

_EXITS: tuple[tuple[type[TxBrokerError], Exit], ...] = (
    (UnknownTopic, Exit.NO),
    (UnknownPartition, Exit.NO),
    (UnknownQueue, Exit.NO),
    (UnknownExchange, Exit.NO),
    (UnknownGroup, Exit.NO),
    (UnknownSession, Exit.NO),
    (UnknownTransaction, Exit.NO),
    (OutcomeForgotten, Exit.NO),
    (NotScheduled, Exit.NO),
    (UnknownBackup, Exit.NO),
    (RequestRefused, Exit.REFUSED),
    (StorageUnavailable, Exit.UNREACHABLE),
    (PeerViolation, Exit.UNREACHABLE),
    (OutcomeUnknown, Exit.UNKNOWN),
    (CorruptData, Exit.CORRUPT),
)


def exit_for(error: TxBrokerError) -> Exit:
    """Return the exit code of an error, by its class: which side caused it, and whether the outcome is known."""
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.UNKNOWN)


LOOK = "What was asked for may have been done all the same: look before repeating it"


class Failure(click.ClickException):
    """An error as one paragraph on stderr, and its exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code: int = int(code)  # type: ignore[misc]  # click declares it for the class

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the paragraph, wrapped for people; on one line if stderr is no terminal."""
        stream = file or sys.stderr
        text = "Error: " + " ".join(self.message.split())
        with suppress(OutputLost):  # then only the code reports it
            click.echo(wrapped(text, stream), file=stream)


@contextmanager
def no_exit_by_accident() -> Iterator[None]:
    """Give unforeseen errors their own code: Python's is 1, which means "no" here."""
    try:
        yield
    except ReaderLeft:
        sys.exit(Exit.PIPE_CLOSED)
    except OutputLost as error:
        Failure(f"the output cannot be written: {error}. {LOOK}", Exit.IO_FAILED).show()
        sys.exit(Exit.IO_FAILED)
    except OSError as error:
        Failure(f"a call of the system failed: {error}. {LOOK}", Exit.IO_FAILED).show()
        sys.exit(Exit.IO_FAILED)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and what_to_install(error):
            raise  # the caller reports it
        traceback.print_exc()
        sys.exit(Exit.DEFECT)
    finally:
        drop_what_is_lost()


@contextmanager
def errors_as_exits() -> Iterator[None]:
    """Turn this project's errors, and Ctrl-C, into exit codes.

    An unforeseen error keeps its traceback: it is a defect, and the traceback helps to repair it.
    """
    try:
        yield
    except TxBrokerError as error:
        raise Failure(f"{type(error).__name__}: {error}", exit_for(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(int(Exit.INTERRUPTED)) from None
