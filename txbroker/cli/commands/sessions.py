"""``txbroker sessions``: shows who is connected, and what each has waiting; closes sessions."""

from __future__ import annotations

import getpass

import click

from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import age_text, emit, size_text, table
from txbroker.errors import UnknownSession
from txbroker.wire.messages import SessionInfo

COLUMNS = ("session", "client", "address", "principal", "open for", "unread", "held", "waiting", "fetches")


@click.group(cls=Group)
def sessions() -> None:
    """Show who is connected, and close sessions."""


@sessions.command("list")
@pass_invocation
def list_sessions(invocation: Invocation) -> None:
    """List the open sessions; those with the most unread answers come first.

    "unread" are answers that the client has not read, "held" requests and answers that wait for the disk, "waiting"
    requests that wait for memory or a large commit.
    """
    with invocation.connect() as broker:
        found = broker.sessions()
    found.sort(key=lambda each: (-each.unsent, -each.held, each.session))
    emit(
        invocation.as_json,
        [session_json(each) for each in found],
        lambda: table(COLUMNS, map(row, found), "There are no sessions."),
    )


def row(session: SessionInfo) -> tuple[object, ...]:
    """Return the cells of a session."""
    return (
        str(session.session),
        session.client or None,
        session.address,
        session.principal,
        age_text(session.age),
        size_text(session.unsent),
        size_text(session.held),
        session.waiting,
        session.fetches,
    )


def session_json(session: SessionInfo) -> dict[str, object]:
    """Return a session as JSON: bytes and µs."""
    return {name: getattr(session, name) for name in SessionInfo.__struct_fields__}


@sessions.command()
@click.argument("numbers", metavar="SESSION...", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--by", default=getpass.getuser, help="Your name, which is logged (default: your login).")
@click.option("--why", required=True, help="The reason, which is logged, and told to the client.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def close(invocation: Invocation, numbers: tuple[int, ...], by: str, why: str, yes: bool) -> None:
    """Close sessions by their numbers: active transactions of theirs are rolled back, prepared ones stay.

    A client of txbroker connects again after a second, and repeats what was not answered.
    """
    with invocation.connect() as broker:
        known = {each.session: each for each in broker.sessions()}
        for number in numbers:
            if number not in known:
                raise UnknownSession(f"there is no session {number} (any more); nothing was done")
        names = ", ".join(f"{number} ({known[number].client or known[number].address})" for number in numbers)
        confirm(f"Close session {names}?", yes)
        for number in numbers:
            broker.close_session(number, by=by, why=why)
    emit(invocation.as_json, {"closed": list(numbers)}, lambda: f"Closed: {names}.")
