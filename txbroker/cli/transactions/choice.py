"""Which transactions a command is about: named one by one, or chosen by age, topic, owner, principal and xid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from journal.quantities import duration
from journal.transaction_states import State
from txbroker.cli.arguments import Parsed, XidPrefix, xid_prefix
from txbroker.cli.transactions.words import waiting
from txbroker.wire.messages import TransactionInfo

if TYPE_CHECKING:
    from txbroker import Connection

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Choice:
    """The filters; each that is None selects all."""

    older_than: int | None = None
    topic: str | None = None
    owner: str | None = None
    principal: str | None = None
    xid: XidPrefix | None = None

    def __bool__(self) -> bool:
        """Whether any filter was given."""
        given = (self.older_than, self.topic, self.owner, self.principal, self.xid)
        return any(each is not None for each in given)

    def ask(
        self, broker: Connection, states: Iterable[State] = (), heuristic: bool = False
    ) -> list[TransactionInfo]:
        """Return the selected transactions, the oldest first; the broker selects by xid, the rest is done here."""
        xid = self.xid or XidPrefix(None, b"")
        found = broker.transactions(
            states, format_id=xid.format_id, global_prefix=xid.global_prefix, forced=heuristic
        )
        return sorted(filter(self.passes, found), key=waiting, reverse=True)

    def passes(self, info: TransactionInfo) -> bool:
        """Return whether one passes the filters that the broker does not apply. ``older_than`` is the time since its
        prepare.
        """
        return (
            (self.older_than is None or waiting(info) > self.older_than)
            and (self.topic is None or self.topic in info.topics)
            and (self.owner is None or self.owner in (info.owner, info.address))
            and self.principal in (None, info.principal)
        )


def choice_options(command: F) -> F:
    """Add the filters as options of a command; it takes them as the keywords of :class:`Choice`."""
    options = (
        click.option(
            "--older-than",
            type=Parsed("duration", duration),
            help="Choose what was prepared (or ended, or begun) longer ago than this.",
        ),
        click.option("--topic", metavar="NAME", help="Choose transactions with messages for this topic."),
        click.option(
            "--owner", metavar="NAME", help="Choose transactions of the client with this name or address."
        ),
        click.option(
            "--principal", metavar="NAME", help="Choose transactions of sessions with this principal."
        ),
        click.option(
            "--xid",
            metavar="FORMAT:PREFIX",
            type=Parsed("xid prefix", xid_prefix),
            help="Choose xids of this format (* is any) whose global id begins with PREFIX.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
