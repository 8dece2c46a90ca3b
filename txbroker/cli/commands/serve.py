"""``txbroker serve``: runs a broker in the foreground, as ``twistd -n --pidfile= txbroker`` does."""

from __future__ import annotations

import sys

import click

from txbroker.cli.exits import Exit
from txbroker.cli.plugin import look_for_plugin

_NOTHING_READ_HERE = {"ignore_unknown_options": True, "help_option_names": list[str]()}
"""Every word is for ``twistd txbroker``, ``--help`` too: that is the one reader of a broker's options."""


@click.command(short_help="Run a broker.", context_settings=_NOTHING_READ_HERE)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def serve(words: tuple[str, ...]) -> None:
    """Run a broker in the foreground, until SIGTERM or Ctrl-C.

    It is 'twistd -n --pidfile= txbroker' by another name: the options are the same ('txbroker serve --help' lists them
    and all settings), and so is the log, on standard output. Exits with 0 after a stop, with 2 if the options or
    settings make no sense, and with 1 if it has failed: the last lines of the log say why.
    """
    from twisted.application import app
    from twisted.scripts import twistd

    look_for_plugin()

    class Options(twistd.ServerOptions):  # type: ignore[misc,name-defined,unused-ignore]
        """Those of twistd, which say in their help by which name it was called."""

        called = "txbroker serve"

    sys.argv = [sys.argv[0], "--nodaemon", "--pidfile=", "txbroker", *words]
    try:
        app.run(twistd.runApp, Options)
    except SystemExit as end:
        if not isinstance(end.code, str):
            raise
        click.echo(end.code, err=True)  # options or settings that make no sense
        raise SystemExit(Exit.USAGE) from end
