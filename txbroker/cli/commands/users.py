"""``txbroker users``: who may log in, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from journal.quantities import Quantity, quantities_of, read, written
from journal.records.access_entries import DEFAULT_ITERATIONS, Quotas, TokenSubject, User
from journal.words import count_text
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import emit, table
from txbroker.cli.passwords import password_of
from txbroker.client.blocking import Connection
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import UserInfo

T = TypeVar("T", bound=Callable[..., Any])

COLUMNS = ("user", "password", "certificates", "tokens", "roles", "quotas", "sessions")


@click.group(cls=Group)
def users() -> None:
    """Show, add, change and remove those who may log in.

    A user is a name and its ways in: a password, certificates, tokens. What it may do is said with 'txbroker access'.
    The first user is made over the socket in the data directory: --broker unix:DATA/admin.sock.
    """


_PASSWORD_FILE = click.option(
    "--password-file", type=click.Path(dir_okay=False), help="File with the password; - reads standard input."
)
_ITERATIONS = click.option(
    "--iterations", type=click.IntRange(4_096, 1_000_000), default=DEFAULT_ITERATIONS, show_default=True,
    help="How often a guess has to hash, in whoever logs in, too.",
)  # fmt: skip


def _ways(command: T) -> T:
    """Add the options of all ways in but the password."""
    for option in reversed(
        [
            click.option(
                "--certificate", "certificates", multiple=True, metavar="NAME",
                help="Let in by a certificate with this subject (RFC 4514) or name, as DNS:app.example.",
            ),
            click.option(
                "--token", "tokens", multiple=True, nargs=2, metavar="ISSUER SUBJECT",
                help="Let in by a token of this issuer about this subject.",
            ),
            click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role that it has."),
            click.option(
                "--quota", "quotas", multiple=True, metavar="NAME=VALUE",
                help="A limit over all its sessions: bytes_in, bytes_out (a second), sessions, topics, producers, "
                "prepared (transactions) or prepared_age.",
            ),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@users.command("list")
@pass_invocation
def list_users(invocation: Invocation) -> None:
    """List all users. No password can be got from what is shown."""
    with invocation.connect() as broker:
        found = broker.users()
    emit(
        invocation.as_json,
        [user_json(each) for each in found],
        lambda: table(COLUMNS, map(_row, found), "There are no users."),
    )


def _row(user: UserInfo) -> tuple[object, ...]:
    return (
        user.name,
        f"{user.iterations} iterations" if user.iterations else None,
        ", ".join(user.certificates) or None,
        ", ".join(f"{each.issuer} {each.subject}" for each in user.tokens) or None,
        ", ".join(user.roles) or None,
        ", ".join(f"{name}={_written(name, value)}" for name, value in user.quotas.given().items()) or None,
        user.sessions,
    )


def user_json(user: UserInfo) -> dict[str, object]:
    """Return a user as JSON."""
    return {
        "name": user.name,
        "iterations": user.iterations,
        "certificates": user.certificates,
        "tokens": [{"issuer": each.issuer, "subject": each.subject} for each in user.tokens],
        "roles": user.roles,
        "quotas": user.quotas.given(),
        "sessions": user.sessions,
    }


@users.command()
@click.argument("name")
@_PASSWORD_FILE
@click.option("--scram", is_flag=True, help="Ask for a password, if there is no --password-file.")
@_ITERATIONS
@_ways
@pass_invocation
def add(
    invocation: Invocation,
    name: str,
    password_file: str | None,
    scram: bool,
    iterations: int,
    certificates: tuple[str, ...],
    tokens: tuple[tuple[str, str], ...],
    roles: tuple[str, ...],
    quotas: tuple[str, ...],
) -> None:
    """Add a user with its ways in. Without any of them it is asked for a password.

    The broker gets no password, only what proves one (SCRAM-SHA-256).
    """
    asks = scram or password_file is not None or not (certificates or tokens)
    verifier = verifier_of(password_of(name, password_file), iterations) if asks else None
    user = User(
        name,
        verifier,
        list(certificates),
        [TokenSubject(*token) for token in tokens],
        list(roles),
        quotas_of(quotas),
    )
    with invocation.connect() as broker:
        broker.add_user(user)
        rules = _rules_about(broker, name)
    emit(
        invocation.as_json,
        {"added": name, "rules": rules},
        lambda: f"Added user {name}." + _told(name, rules),
    )


@users.command()
@click.argument("name")
@_PASSWORD_FILE
@_ITERATIONS
@pass_invocation
def passwd(invocation: Invocation, name: str, password_file: str | None, iterations: int) -> None:
    """Change a user's password. Its open sessions stay; 'txbroker sessions close' ends them."""
    verifier = verifier_of(password_of(name, password_file), iterations)
    with invocation.connect() as broker:
        broker.alter_user(User(name, verifier), ["scram"])
    emit(invocation.as_json, {"changed": name}, lambda: f"Changed the password of {name}.")


@users.command()
@click.argument("name")
@click.option("--no-password", is_flag=True, help="Let it in by its password no more.")
@click.option("--no-certificates", is_flag=True, help="Let it in by no certificate any more.")
@click.option("--no-tokens", is_flag=True, help="Let it in by no token any more.")
@click.option("--no-roles", is_flag=True, help="Take all its roles away.")
@click.option("--no-quotas", is_flag=True, help="Lift all its quotas.")
@_ways
@pass_invocation
def alter(
    invocation: Invocation,
    name: str,
    no_password: bool,
    no_certificates: bool,
    no_tokens: bool,
    no_roles: bool,
    no_quotas: bool,
    certificates: tuple[str, ...],
    tokens: tuple[tuple[str, str], ...],
    roles: tuple[str, ...],
    quotas: tuple[str, ...],
) -> None:
    """Change a user's ways in, roles or quotas: what is given replaces what there was of its kind.

    Sessions of a user that loses a way in or a role are ended; it may log in again in another way.
    """
    given = {"certificates": certificates, "tokens": tokens, "roles": roles, "quotas": quotas}
    cleared = {
        "certificates": no_certificates, "tokens": no_tokens, "roles": no_roles, "quotas": no_quotas,
    }  # fmt: skip
    for what, values in given.items():
        if values and cleared[what]:
            raise Failure(f"--no-{what} and new {what} contradict each other; nothing was done", Exit.USAGE)
    names = [what for what, values in given.items() if values or cleared[what]]
    names += ["scram"] if no_password else []
    if not names:
        raise Failure(
            "nothing is to be changed: give --certificate, --token, --role, --quota or a --no-...", Exit.USAGE
        )
    user = User(
        name,
        None,
        list(certificates),
        [TokenSubject(*token) for token in tokens],
        list(roles),
        quotas_of(quotas),
    )
    with invocation.connect() as broker:
        broker.alter_user(user, names)
    emit(invocation.as_json, {"changed": name}, lambda: f"Changed {', '.join(names)} of {name}.")


@users.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def remove(invocation: Invocation, name: str, yes: bool) -> None:
    """Remove a user, and end its sessions. What it has prepared stays, and its coordinator can end it no more."""
    confirm(f"Remove user {name}?", yes)
    with invocation.connect() as broker:
        broker.remove_user(name)
        rules = _rules_about(broker, name)
    told = {"removed": name, "rules": rules}
    emit(invocation.as_json, told, lambda: f"Removed user {name}." + _told(name, rules))


def _rules_about(broker: Connection, name: str) -> int:
    """Return how many rules there are about a name, whoever has it."""
    return sum(each.holder == name for each in broker.rules().rules)


def _told(name: str, rules: int) -> str:
    if not rules:
        return ""
    return (
        f" There {'is' if rules == 1 else 'are'} {count_text(rules, 'rule')} about {name}, for whoever has that name: "
        "'txbroker access list' shows them, 'txbroker access forget' takes them away."
    )


def quotas_of(given: tuple[str, ...]) -> Quotas:
    """Return quotas given as NAME=VALUE; sizes and durations are written as everywhere."""
    kinds, values = quantities_of(Quotas), dict[str, int]()
    for each in given:
        name, _, value = each.partition("=")
        if name not in kinds:
            raise Failure(f"there is no quota {name!r}, but {', '.join(kinds)}; nothing was done", Exit.USAGE)
        try:
            values[name] = read(kinds[name], value)
        except ValueError as error:
            raise Failure(f"quota {name}: {error}; nothing was done", Exit.USAGE) from None
        if not values[name] and kinds[name] is not Quantity.COUNT:
            raise Failure(f"quota {name} cannot be 0; nothing was done", Exit.USAGE)
    return Quotas(**values)


def _written(name: str, value: int) -> str:
    return written(quantities_of(Quotas)[name], value)
