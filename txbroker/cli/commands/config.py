"""``txbroker config``: check and show the settings of a broker, and the schema of their file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, pass_invocation
from txbroker.cli.output import emit, json_line, table
from txbroker.errors import InvalidSetting
from txbroker.server.settings import config as settings

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT = "default"


def _given(command: Decorated) -> Decorated:
    """Add where settings come from, as ``twistd txbroker`` has it."""
    command = click.option(
        "--set",
        "words",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting; it wins over the file. Repeatable.",
    )(command)
    return click.argument("file", required=False)(command)


@click.group(cls=Group)
def config() -> None:
    """Check and show a broker's settings."""


@config.command(short_help="Say whether a broker could be started with these settings.")
@_given
@pass_invocation
def check(invocation: Invocation, file: str | None, words: tuple[str, ...]) -> None:
    """Say whether a broker could be started with the settings of FILE and --set, without starting one.

    Exits with 1 if not, and says which setting is wrong. A directory for the data need not be named.
    """
    _checked(*_sources(file, words).values())
    emit(invocation.as_json, {"valid": True}, lambda: "The settings are valid.")


@config.command(short_help="Show settings, and where each comes from.")
@_given
@click.option("--all", "shows_all", is_flag=True, help="Also those that have their defaults.")
@pass_invocation
def show(invocation: Invocation, file: str | None, words: tuple[str, ...], shows_all: bool) -> None:
    """Show the settings that a broker would have with FILE and --set, and where each comes from."""
    sources = _sources(file, words)
    made = _checked(*sources.values())
    rows = []
    for name in sorted(settings.KNOWN):
        origin = next((origin for origin, values in reversed(sources.items()) if name in values), DEFAULT)
        if origin == DEFAULT and name not in settings.defaults():
            continue  # the directory of the data, if none is named
        if shows_all or origin != DEFAULT:
            rows.append((name, settings.readable(name, settings.value_of(made, name)), origin))
    emit(
        invocation.as_json,
        {name: {"value": value, "from": origin} for name, value, origin in rows},
        lambda: table(
            ("setting", "value", "from"), rows, "All settings have their defaults (--all shows them)."
        ),
    )


@config.command(short_help="Print the JSON Schema of a settings file.")
def schema() -> None:
    """Print the JSON Schema of a settings file, for editors and for checks before a deployment."""
    from txbroker.server.settings.schema import schema as made

    click.echo(json_line(made()))


def _sources(file: str | None, words: tuple[str, ...]) -> dict[str, Mapping[str, Any]]:
    """Return the given settings by where they come from; later ones win."""
    from txbroker.server import given_settings

    try:
        return {
            file or "": given_settings.from_file(file),
            "--set": dict(given_settings.assignment(word) for word in words),
        }
    except InvalidSetting as error:
        raise Failure(str(error), Exit.USAGE if _is_unreadable(error) else Exit.NO) from error


def _is_unreadable(error: InvalidSetting) -> bool:
    return isinstance(error.__cause__, OSError)


def _checked(*sources: Mapping[str, Any]) -> settings.Config:
    from txbroker.server import given_settings

    named = any("data" in source for source in sources)
    try:
        return given_settings.checked({} if named else {"data": "data"}, *sources)
    except InvalidSetting as error:
        raise Failure(str(error), Exit.NO) from error
