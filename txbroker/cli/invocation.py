"""The common part of all commands: the broker, the form of output, and the options that every command has."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

import txbroker
from journal.quantities import duration
from txbroker.cli.arguments import Parsed
from txbroker.cli.exits import Exit, Failure, errors_as_exits
from txbroker.cli.output import wrapped
from txbroker.errors import (
    AuthenticationFailed,
    CertificateRefused,
    CompressionUnavailable,
    ConnectionUnavailable,
    Misuse,
)

DEFAULT_BROKER = "tcp:127.0.0.1:7654"
DEFAULT_TIMEOUT = 30_000_000
"""µs until a command gives up waiting for an answer."""


@dataclass
class Invocation:
    """One run of the command line. ``timeout`` is in µs."""

    broker: str = DEFAULT_BROKER
    as_json: bool = False
    timeout: int = DEFAULT_TIMEOUT
    user: str = ""
    login_file: str | None = None

    @contextmanager
    def connect(
        self, compression: str | None = None, client: str = "txbroker-cli"
    ) -> Iterator[txbroker.Connection]:
        """Return a connection to the broker for the length of a ``with``; ``compression`` is for its sends, ``client``
        its name in logs and the audit.
        """
        seconds = self.timeout / 1_000_000
        try:
            connection = txbroker.connect(
                self.broker,
                client=client,
                timeout=seconds,
                compression=compression,
            )
        except ConnectionUnavailable as error:
            raise ConnectionUnavailable(f"{error}. Is there a broker at {self.broker}?") from error
        except AuthenticationFailed as error:
            raise AuthenticationFailed(
                f"{error}. Say --user and --login-file; whoever may read the data directory comes in over its socket, "
                "--broker unix:DATA/admin.sock"
            ) from error
        except (Misuse, CertificateRefused, CompressionUnavailable) as error:
            raise Failure(str(error), Exit.USAGE) from error
        with connection:
            yield connection

    def name_secret(self) -> None:
        """Say in the environment how to log in, for all connections of this command and of processes that it starts."""
        if self.user:
            os.environ["TXBROKER_USER"] = self.user
        if self.login_file is not None:
            os.environ["TXBROKER_PASSWORD_FILE" if self.user else "TXBROKER_TOKEN_FILE"] = self.login_file
            os.environ.pop("TXBROKER_TOKEN_FILE" if self.user else "TXBROKER_PASSWORD_FILE", None)


class Notes(logging.Handler):
    """Prints the client's warnings for people on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the warning, wrapped for people."""
        try:
            click.echo(wrapped(self.format(record), sys.stderr), err=True)
        except Exception:  # noqa: BLE001  (as every handler: a warning that cannot be told fails nothing)
            self.handleError(record)


_NOTES = Notes(logging.WARNING)


def no_notes() -> None:
    """Print no more warnings: the command sets up a log of its own."""
    logging.getLogger("txbroker").removeHandler(_NOTES)


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _take(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None or parameter.name is None:
        return
    # The environment is for the outermost command, which has looked there: an option before the command's name counts.
    if (
        context.parent is None
        or context.get_parameter_source(parameter.name) is not ParameterSource.ENVIRONMENT
    ):
        invocation = context.ensure_object(Invocation)
        setattr(invocation, parameter.name, value)
        if parameter.name in ("user", "login_file"):
            invocation.name_secret()


def _shared_options() -> list[click.Parameter]:
    """Return the options that are allowed before a command's name and after it."""
    shared: dict[str, Any] = {"expose_value": False, "callback": _take}
    return [
        click.Option(
            ["--broker"],
            metavar="URL",
            envvar="TXBROKER_URL",
            help=f"Address of the broker, a Twisted endpoint (or TXBROKER_URL). Default {DEFAULT_BROKER}.",
            **shared,
        ),
        click.Option(
            ["--user"],
            metavar="NAME",
            help="Log in as this user (or TXBROKER_USER, with TXBROKER_PASSWORD_FILE).",
            **shared,
        ),
        click.Option(
            ["--login-file"],
            type=click.Path(dir_okay=False),
            help="File with the password of --user; without it, with a token (or TXBROKER_TOKEN_FILE).",
            **shared,
        ),
        click.Option(
            ["--json", "as_json"], is_flag=True, default=None, help="Print JSON instead of tables.", **shared
        ),
        click.Option(
            ["--timeout"],
            type=Parsed("duration", duration),
            help="How long to wait for an answer. Default 30s.",
            **shared,
        ),
    ]


class Command(click.Command):
    """A command that also has the shared options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_shared_options())


class Group(click.Group):
    """A group of such commands; the outermost one turns errors into exit codes."""

    command_class = Command

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_shared_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become exits once, at any depth."""
        logging.getLogger("txbroker").addHandler(_NOTES)  # a second call changes nothing
        with errors_as_exits():
            return super().invoke(ctx)


Group.group_class = Group


def confirm(question: str, yes: bool) -> None:
    """Ask before a step that cannot be undone; the question goes to stderr, because it is no output.

    Exits with 1 on a no, and with 2 if nobody can be asked.
    """
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # the cursor is still behind the question
        raise Failure(
            "the question was not answered; nothing was changed. Say --yes to go ahead without being asked",
            Exit.USAGE,
        ) from None
    if not agreed:
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(int(Exit.NO))
