"""The command line: its frame, and what all commands share. ``docs/cli.md`` has examples and the exit codes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from txbroker import __version__
from txbroker.cli.exits import no_exit_by_accident
from txbroker.cli.invocation import Group
from txbroker.cli.streams import watch_streams

_MODULES = (
    "directories.init",
    "serve",
    "topics",
    "send",
    "tail",
    "find",
    "scheduled",
    "queues",
    "exchanges",
    "status",
    "sessions",
    "users",
    "access",
    "groups",
    "dead",
    "work",
    "transactions",
    "resolve",
    "outbox",
    "coordinator",
    "config",
    "directories.backup",
    "directories.restore",
    "directories.verify",
    "directories.dump",
    "directories.repair",
    "drill",
    "bench",
)
"""The modules of the commands, in the order of the help. Each has the command as an object of its own name."""
COMMANDS: Final = {module.rpartition(".")[2]: f"txbroker.cli.commands.{module}" for module in _MODULES}
"""The names of the commands, and their modules."""


class Commands(Group):
    """Loads a command when it is used: the drill and the repair alone take as long as all the others."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line; in every case the exit code is one of the table in ``docs/cli.md``."""
        with no_exit_by_accident():
            return super().main(*args, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def command_line() -> None:
    """Work with a txbroker: topics, messages, queues, consumer groups, transactions.

    Exit codes: 0 done, 1 the answer is no, 2 usage, 3 refused, 4 no broker or not now, 5 outcome unknown,
    6 corrupt data.
    """


def main() -> None:
    """The entry point ``txbroker``."""
    watch_streams()
    command_line(prog_name="txbroker")
