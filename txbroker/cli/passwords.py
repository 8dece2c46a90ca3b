"""Passwords on the command line: from a file, standard input or a prompt, never from a word of it."""

from __future__ import annotations

import sys

import click

from txbroker.cli.exits import Exit, Failure
from txbroker.client.login.secret_file import read_secret


def password_of(name: str, path: str | None) -> str:
    """Return the password of a user: from a file, from standard input (``-``), or asked for if ``path`` is None."""
    if path == "-":
        return sys.stdin.readline().rstrip("\r\n")
    if path is not None:
        return read_secret(path, f"password of {name}")
    if not sys.stdin.isatty():
        raise Failure(
            f"nobody can be asked for the password of {name}; nothing was done. Give --password-file",
            Exit.USAGE,
        )
    entered: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return entered
