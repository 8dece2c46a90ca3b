"""The command line, one file per group of commands. ``docs/cli.md`` has examples and the exit codes."""

from __future__ import annotations

import click

from txbroker.cli.drill import drill
from txbroker.cli.dump import dump
from txbroker.cli.groups import groups
from txbroker.cli.invocation import Group
from txbroker.cli.repair import repair
from txbroker.cli.resolve import resolve
from txbroker.cli.send import send
from txbroker.cli.status import status
from txbroker.cli.tail import tail
from txbroker.cli.topics import topics
from txbroker.cli.transactions import transactions
from txbroker.cli.verify import verify

COMMANDS: tuple[click.Command, ...] = (
    topics,
    send,
    tail,
    status,
    groups,
    transactions,
    resolve,
    verify,
    dump,
    repair,
    drill,
)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="txbroker")
def command_line() -> None:
    """Work with a txbroker: topics, messages, consumer groups, transactions.

    Exit codes: 0 done, 1 the answer is no, 2 usage, 3 refused, 4 no broker or not now, 5 outcome unknown,
    6 corrupt data.
    """


for command in COMMANDS:
    command_line.add_command(command)


def main() -> None:
    """The entry point ``txbroker``."""
    command_line(prog_name="txbroker")
