"""The options of ``txbroker queues declare``: the settings of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from journal.arguments import MOST
from journal.quantities import duration, size
from journal.records.queue_entries import MAX_PRIORITY
from txbroker.cli.arguments import Parsed, pause
from txbroker.client.operations.queue_operations import OVERFLOWS, STRATEGIES

C = TypeVar("C", bound=Callable[..., Any])
_OPTIONS: Final = (
    click.option(
        "--delivery-limit",
        type=click.IntRange(0, MOST),
        metavar="N",
        help="A message that was returned more often is a dead letter. Default: no limit.",
    ),
    click.option(
        "--dead-letter-exchange", metavar="NAME", help="Where dead letters go. Default: they are dropped."
    ),
    click.option("--dead-letter-key", metavar="KEY", help="With which key. Default: each with its own."),
    click.option(
        "--dead-letter-strategy",
        type=click.Choice(list(STRATEGIES)),
        default="at-most-once",
        show_default=True,
        help="A dead letter that a full queue refuses is dropped, or kept until there is room, which needs --overflow "
        "reject-publish.",
    ),
    click.option(
        "--message-ttl",
        type=Parsed("duration", duration),
        help="A message that was there for so long is a dead letter. Default: no limit.",
    ),
    click.option(
        "--max-length",
        type=click.IntRange(0, MOST),
        metavar="N",
        help="Most messages that can be got. Default: no limit.",
    ),
    click.option(
        "--max-length-bytes",
        type=Parsed("size", size),
        help="Most bytes of the bodies of messages that can be got. Default: no limit.",
    ),
    click.option(
        "--overflow",
        type=click.Choice(list(OVERFLOWS)),
        default="drop-head",
        show_default=True,
        help="Of messages that are too many, the oldest are dead letters, or further ones are refused.",
    ),
    click.option(
        "--expires",
        type=Parsed("duration", pause),
        help="The queue is deleted when nobody has used it for so long. Default: never.",
    ),
    click.option("--auto-delete", is_flag=True, help="It is deleted with its last consumer."),
    click.option(
        "--durable/--no-durable",
        default=True,
        help="Whether it outlives the broker's process: else the next start deletes it. Default: it does.",
    ),
    click.option(
        "--single-active",
        is_flag=True,
        help="One consumer gets all messages until it ends, then the next one.",
    ),
    click.option(
        "--consumer-timeout",
        type=Parsed("duration", pause),
        help="A message that a consumer has for so long without acknowledging it is returned. Default: never.",
    ),
    click.option(
        "--max-priority",
        type=click.IntRange(0, MAX_PRIORITY),
        default=0,
        metavar="N",
        help="The highest priority of its messages, which are got first. Default: 0, all are alike.",
    ),
)


def settings_options(command: C) -> C:
    """Give a command an option for each setting of a queue."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
