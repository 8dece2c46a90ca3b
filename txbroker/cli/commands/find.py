"""``txbroker find``: the messages of a topic with a key, an id or a tag, at a broker or in a data directory."""

from __future__ import annotations

from collections.abc import Iterator

import click

import txbroker
from journal import check
from journal.log.search import Wanted
from txbroker.cli.commands.tail import chosen_partitions, print_lines
from txbroker.cli.commands.topics import known_topic
from txbroker.cli.directory.data_directory import data_directory, files_that_stay, held_still
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import bytes_text

MOST = 100
"""Messages that are shown without ``--limit``."""


@click.command(cls=Command, short_help="Find messages by key, id or tag.")
@click.argument("topic")
@click.option("--id", "message_id", metavar="ID", help="Messages with this id.")
@click.option("--key", help="Messages with this key.")
@click.option("--tag", help="Messages that have this tag.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Look only in this partition.")
@click.option("--from-offset", type=click.IntRange(0), default=0, metavar="N", help="Begin at this offset.")
@click.option("--limit", type=click.IntRange(1), default=MOST, help=f"Stop after so many messages ({MOST}).")
@click.option(
    "--data",
    "directory",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Look in the data directory of a stopped broker, not at a broker.",
)
@pass_invocation
def find(
    invocation: Invocation,
    topic: str,
    message_id: str | None,
    key: str | None,
    tag: str | None,
    partition: int | None,
    from_offset: int,
    limit: int,
    directory: str | None,
) -> None:
    """Print the messages of TOPIC with this id, this key and this tag, as far as they are given.

    They come in the order of partitions and offsets, as 'tail' prints them. Exits with 1 if there are none.
    """
    wanted = Wanted(_octets(key), _octets(message_id), _octets(tag))
    if wanted == Wanted():
        raise click.UsageError("say --id, --key or --tag, or several of them")
    if directory is not None:
        found = _in_directory(directory, topic, wanted, partition, from_offset)
    else:
        found = _at_broker(invocation, topic, wanted, partition, from_offset, limit)
    shown = print_lines(found, limit, invocation.as_json)
    if shown == limit:
        click.echo(f"These are the first {limit:,}; --limit shows more.", err=True)
    if not shown:
        raise Failure(f"{topic} has no message with {_text(wanted)}; nothing was changed", Exit.NO)


def _octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _text(wanted: Wanted) -> str:
    named = (("id", wanted.id), ("key", wanted.key), ("tag", wanted.tag))
    return " and ".join(f"the {name} {bytes_text(value)}" for name, value in named if value is not None)


def _at_broker(
    invocation: Invocation, topic: str, wanted: Wanted, partition: int | None, start: int, limit: int
) -> Iterator[txbroker.Message]:
    with invocation.connect() as broker:
        info = known_topic(broker.topics([topic]), topic)
        if partition is not None:
            chosen_partitions(info, (partition,))
        tag = None if wanted.tag is None else wanted.tag.decode("utf-8", "surrogateescape")
        yield from broker.find(
            topic, key=wanted.key, id=wanted.id, tag=tag, partition=partition, start=start, limit=limit
        )


def _in_directory(
    directory: str, topic: str, wanted: Wanted, partition: int | None, start: int
) -> Iterator[txbroker.Message]:
    filesystem = data_directory(directory)
    with held_still(filesystem, directory), files_that_stay(directory):
        checkpoint = check.newest_checkpoint(filesystem)
        stores = [store for store in checkpoint.stores if store.topic == topic]
        chosen = [store for store in stores if partition in (None, store.index)]
        if not chosen:
            what = f"topic {topic}" if not stores else f"partition {partition} of {topic}"
            raise Failure(f"the newest checkpoint in {directory} has no {what}", Exit.NO)
        if check.is_behind(filesystem, checkpoint):
            click.echo(
                "The broker was not stopped, but killed: what it took after its newest checkpoint is not searched. "
                "Start it to find that too.",
                err=True,
            )
        for store in sorted(chosen, key=lambda each: each.index):
            for each in check.search_log(filesystem, store, wanted, start):
                yield txbroker.Message(
                    topic, store.index, each.offset, each.timestamp, each.key, each.value, each.headers,
                    appended=each.appended,
                )  # fmt: skip
