"""``txbroker transactions``: shows undecided transactions and why they are, and ends them by hand."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from journal.transaction_states import BEGUN, State, TransactionNumber
from journal.xid import Xid
from txbroker.cli.arguments import Parsed, pause, transaction
from txbroker.cli.clock import now_micros
from txbroker.cli.invocation import Group, Invocation, pass_invocation
from txbroker.cli.output import count_text, emit, json_line, time_text
from txbroker.cli.transactions.choice import Choice, choice_options
from txbroker.cli.transactions.heuristic_ending import Ending, end
from txbroker.cli.transactions.json_form import shown_json, transaction_json
from txbroker.cli.transactions.views import details, listing
from txbroker.cli.transactions.words import state_name, totals
from txbroker.wire.messages import TransactionInfo

if TYPE_CHECKING:
    from txbroker import Connection

F = TypeVar("F", bound=Callable[..., Any])
Which = TransactionNumber | Xid

PAGE = 100
"""How many are shown to people at a time."""

which_argument = click.argument("which", metavar="XID|NUMBER", type=Parsed("transaction", transaction))


def ending_options(command: F) -> F:
    """Add the options of all commands that end transactions."""
    options = (
        click.argument("which", metavar="[XID|NUMBER]...", nargs=-1, type=Parsed("transaction", transaction)),
        choice_options,
        click.option(
            "--execute",
            is_flag=True,
            help="End the transactions that the options choose; without it they are only shown.",
        ),
        click.option(
            "--by", default=getpass.getuser, help="Your name, which is journaled (default: your login)."
        ),
        click.option("--why", required=True, help="The reason, which is journaled."),
        click.option("--yes", is_flag=True, help="Do not ask."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(cls=Group)
def transactions() -> None:
    """List, show and end transactions.

    A transaction is named by its number (SESSION-SERIAL) or its xid (FORMAT:GLOBAL:BRANCH), both as `list`
    prints them. A part of an xid that cannot be printed is written as 0x and hex digits.
    """


@transactions.command("list", short_help="List what is undecided or damaged, the oldest first.")
@click.option("--in-doubt", is_flag=True, help="Show only prepared transactions, which wait for a decision.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state_name(state) for state in BEGUN]),
    help="Show only transactions in this state. Repeatable.",
)
@click.option("--forced", is_flag=True, help="Show only outcomes that a person or the orphan policy forced.")
@click.option(
    "--damaged", is_flag=True, help="Show only forced outcomes whose coordinators decided the opposite."
)
@click.option(
    "--restored",
    is_flag=True,
    help="Show only what was prepared when the backup was made that is restored here.",
)
@choice_options
@click.option(
    "--limit", type=click.IntRange(1), help=f"How many at a time (default: {PAGE}; with --json: all)."
)
@click.option("--page", type=click.IntRange(1), default=1, help="The page to show.")
@click.option(
    "--watch",
    type=Parsed("duration", pause),
    is_flag=False,
    flag_value="2s",
    metavar="[EVERY]",
    help="Show the list again every 2s, or as often as EVERY says, until Ctrl-C.",
)
@pass_invocation
def list_transactions(
    invocation: Invocation,
    /,
    in_doubt: bool,
    states: tuple[str, ...],
    forced: bool,
    damaged: bool,
    restored: bool,
    limit: int | None,
    page: int,
    watch: int | None,
    **filters: Any,
) -> None:
    """List transactions, the oldest first: what is undecided or damaged, unless told otherwise."""
    if sum((in_doubt, bool(states), forced, damaged, restored)) > 1:
        raise click.UsageError("say only one of --in-doubt, --state, --forced, --damaged and --restored")
    wanted = [State[name.upper().replace("-", "_")] for name in states]
    if in_doubt or restored:
        wanted = [State.PREPARED]
    empty = "There are no such transactions."
    if in_doubt:
        empty = f"No {'such ' if Choice(**filters) else ''}transaction is in doubt."
    elif restored:
        empty = "No restored transaction waits for a decision."
    elif not (states or forced or damaged or Choice(**filters)):
        empty = "No transaction is undecided or damaged."
    with invocation.connect() as broker:
        while True:
            found = find(broker, Choice(**filters), wanted, forced or damaged, damaged)
            if restored:
                found = [info for info in found if info.restored]
            if watch is not None and not invocation.as_json:
                click.clear()
                click.echo(f"{time_text(now_micros())}, every {watch / 1e6:g} s; Ctrl-C ends it\n")
            show_list(invocation, found, limit, page, empty, watch is not None)
            if in_doubt and not invocation.as_json:
                warn_of_damage(broker)
            if watch is None:
                return
            time.sleep(watch / 1e6)


def find(
    broker: Connection, choice: Choice, states: Sequence[State], forced: bool, damaged: bool
) -> list[TransactionInfo]:
    """Return the selected ones, the oldest first; without a selection those that need attention: undecided or
    damaged.
    """
    found = choice.ask(broker, states, forced)
    if damaged:
        return [info for info in found if info.contradicted]
    if not states and not forced:
        found += [info for info in choice.ask(broker, heuristic=True) if info.contradicted]
    return found


def show_list(
    invocation: Invocation,
    found: list[TransactionInfo],
    limit: int | None,
    page: int,
    empty: str,
    watched: bool,
) -> None:
    """Print one page of them, and how many there are."""
    size = limit or (len(found) if invocation.as_json else PAGE) or 1
    shown = found[(page - 1) * size : page * size]
    data = [transaction_json(info) for info in shown]
    if watched and invocation.as_json:
        click.echo(json_line({"at": now_micros(), "total": len(found), "transactions": data}))
        return
    emit(invocation.as_json, data, lambda: listing(shown, empty if not found else "There are no more."))
    if found and not invocation.as_json:
        click.echo("\n" + "\n".join(closing_lines(found, shown, page, size)))


def closing_lines(
    found: Sequence[TransactionInfo], shown: Sequence[TransactionInfo], page: int, size: int
) -> list[str]:
    """Return the lines below a list: the totals, how to see the rest, and what only people will do."""
    lines = [f"{totals(found)}."]
    if len(shown) < len(found):
        pages = -(-len(found) // size)
        lines.append(
            f"These are {len(shown):,} of them, page {page} of {pages}; --page {page % pages + 1} has others, "
            "--older-than, --topic, --owner, --principal and --xid choose."
        )
    if any(info.state is State.PREPARED and info.policy is None for info in found):
        lines.append("There is no orphan policy: what is prepared waits until somebody decides it.")
    if any(info.restored for info in found):
        lines.append(
            "Restored ones may have been committed since the backup: a commit is taken, a rollback only from you. (A "
            "broker restored as a copy takes neither: they are its original's. 'txbroker status' says whether it is "
            "one.) docs/backup.md says how to find out."
        )
    if any(info.contradicted for info in found):
        lines.append("DAMAGE: see 'txbroker transactions show NUMBER' for what to do.")
    return lines


def warn_of_damage(broker: Connection) -> None:
    """Print a line about contradicted outcomes, which a list of transactions in doubt does not have."""
    damaged = broker.status().get("outcomes_contradicted", 0)
    if damaged:
        click.echo(
            f"DAMAGE: {count_text(int(damaged), 'forced outcome')} contradicted by coordinators, see "
            "'txbroker transactions list --damaged'."
        )


@transactions.command(short_help="Show all that is known about a transaction.")
@which_argument
@pass_invocation
def show(invocation: Invocation, which: Which) -> None:
    """Show all that is known about a transaction, the first messages in it, and what can be done."""
    with invocation.connect() as broker:
        shown = broker.show_transaction(which)
    emit(invocation.as_json, shown_json(shown), lambda: details(shown))


@transactions.command(short_help="Commit prepared transactions by hand.")
@ending_options
@pass_invocation
def commit(invocation: Invocation, /, **said: Any) -> None:
    """Commit prepared transactions by hand, named or chosen by options.

    Their coordinators may decide otherwise: the outcomes are kept as forced, with who and why, until forgotten.
    """
    end_by_hand(invocation, "Commit", "committed", lambda broker: broker.commit_transaction, **said)


@transactions.command(short_help="Roll prepared transactions back by hand.")
@ending_options
@pass_invocation
def rollback(invocation: Invocation, /, **said: Any) -> None:
    """Roll prepared transactions back by hand, named or chosen by options.

    Their coordinators may decide otherwise: the outcomes are kept as forced, with who and why, until forgotten.
    """
    end_by_hand(invocation, "Roll back", "rolled back", lambda broker: broker.rollback_transaction, **said)


@transactions.command(short_help="Forget how decided transactions ended.")
@ending_options
@pass_invocation
def forget(invocation: Invocation, /, **said: Any) -> None:
    """Forget how decided transactions ended; options choose from forced outcomes.

    A coordinator that asks for a forgotten outcome is told that it is forgotten. An outcome that the coordinator
    contradicted is shown as damage until it is forgotten, so repair that first.
    """
    verb, done = "Forget the outcome of", "forgotten"
    end_by_hand(invocation, verb, done, lambda broker: broker.forget_transaction, heuristic=True, **said)


def end_by_hand(
    invocation: Invocation,
    verb: str,
    done: str,
    call: Callable[[Connection], Callable[..., object]],
    *,
    which: tuple[Which, ...],
    by: str,
    why: str,
    yes: bool,
    execute: bool,
    heuristic: bool = False,
    **filters: Any,
) -> None:
    """Run one of the three commands with the options of :func:`ending_options`."""
    chosen_from = () if heuristic else (State.PREPARED,)
    ending = Ending(
        verb, done, lambda broker, number: call(broker)(number, by=by, why=why), chosen_from, heuristic
    )
    end(invocation, ending, which, Choice(**filters), execute, yes)
