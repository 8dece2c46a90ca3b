"""``txbroker coordinator``: shows a coordinator's log, and ends its unfinished transactions while its program
is down.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Group, Invocation, pass_invocation
from txbroker.cli.output import emit, table
from txbroker.client.blocking import connect
from txbroker.client.core.url import parse
from txbroker.coordinator import Coordinator, Resolution
from txbroker.coordinator.decision_log import DecisionLog
from txbroker.databases.urls import connector
from txbroker.errors import Misuse

DIRECTORY = click.argument("directory", type=click.Path(exists=True, file_okay=False))
_BROKERS = ("tcp:", "unix:", "tls:")


@click.group(cls=Group, short_help="Show and end what a stopped coordinator has left.")
def coordinator() -> None:
    """Show and end transactions that a coordinator (txbroker.coordinator) has decided and not finished.

    Its program must not be running.
    """


@coordinator.command(name="list", cls=Command, short_help="Show what is decided and not finished.")
@DIRECTORY
@pass_invocation
def list_decisions(invocation: Invocation, directory: str) -> None:
    """Show decided transactions that a participant has not acknowledged, and branches that were ended otherwise by
    hand.

    Exits with 1 if there is any.
    """
    log = DecisionLog(_existing(directory))
    try:
        rows = [
            {
                "gid": found.gid,
                "at": _moment(found.at),
                "participant": branch.name,
                "state": "committed, to be told",
            }
            for found in log.decisions.values()
            for branch in found.branches
        ]
        rows += [
            {
                "gid": found.gid,
                "at": _moment(found.at),
                "participant": found.participant,
                "state": f"{found.ended} by {found.by or 'somebody'}, decided: {found.decided}",
            }
            for found in log.heuristics.values()
        ]
    finally:
        log.close()
    emit(invocation.as_json, rows, lambda: _rows_text(rows))
    if rows:
        raise click.exceptions.Exit(int(Exit.NO))


@coordinator.command(cls=Command, short_help="End what was decided, at the participants named.")
@DIRECTORY
@click.option(
    "--participant",
    "participants",
    multiple=True,
    required=True,
    metavar="NAME=URL",
    help="A participant by its registered name: tcp:HOST:PORT of a broker, or postgresql://... without a password, or "
    "file:PATH or env:NAME, where the URL stands; once for each.",
)
@pass_invocation
def resolve(invocation: Invocation, directory: str, participants: tuple[str, ...]) -> None:
    """Commit decided transactions at these participants, and roll back prepared ones without a decision, in one pass.

    Exits with 1 if something is left.
    """
    named = dict(_participant(text) for text in participants)
    with Coordinator(_existing(directory), named, start=False) as found:
        done = found.resolve()
        left = [(one.gid, name, reason) for one in found.in_doubt() for name, reason in one.waiting.items()]
    facts = {
        "committed": [list(pair) for pair in done.committed],
        "rolled_back": [list(pair) for pair in done.rolled_back],
        "failed": done.failed,
        "left": [list(triple) for triple in left],
    }
    emit(invocation.as_json, facts, lambda: _resolution_text(done, left))
    if left or done.failed:
        raise click.exceptions.Exit(int(Exit.NO))


def _existing(directory: str) -> str:
    if not (Path(directory) / "journal").is_dir():
        raise Failure(
            f"{directory} is no directory of decisions: it holds no 'journal'. Nothing was done", Exit.USAGE
        )
    DecisionLog(directory, create=False).close()
    return directory


def _participant(text: str) -> tuple[str, Callable[[], Any]]:
    name, separator, url = text.partition("=")
    if not separator:
        raise click.UsageError("--participant takes NAME=URL, and what was given has no '='")
    try:
        if url.startswith(_BROKERS):
            parse(url)
            return name, lambda: connect(url, timeout=10.0)
        return name, connector(url)
    except Misuse as error:
        raise click.UsageError(f"--participant {name!r}: {error}") from error


def _moment(wall: int) -> str:
    return datetime.fromtimestamp(wall / 1e6, UTC).isoformat(timespec="seconds")


def _rows_text(rows: list[dict[str, str]]) -> RenderableType:
    return table(
        ["gid", "at", "participant", "state"], [list(row.values()) for row in rows], "nothing is in doubt"
    )


def _resolution_text(done: Resolution, left: list[tuple[str, str, str]]) -> str:
    lines = [f"committed at {name}: {gid}" for gid, name in done.committed]
    lines += [f"rolled back at {name}: {gid}" for gid, name in done.rolled_back]
    lines += [f"{name}: {reason}" for name, reason in done.failed.items()]
    lines += [f"still to be told: {name} of {gid} ({reason})" for gid, name, reason in left]
    return "\n".join(lines) or "nothing was in doubt"
