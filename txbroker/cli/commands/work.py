"""``txbroker work``: runs a handler for each message of a group, in one process or in several."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import click

from txbroker.cli.arguments import Parsed, pause
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, no_notes, pass_invocation
from txbroker.cli.orderly_stop import OrderlyStop
from txbroker.cli.retry_options import retry_in, retry_options
from txbroker.client.asyncio import connect
from txbroker.client.core.worker import Worker
from txbroker.databases.urls import connector
from txbroker.errors import Misuse, WrongValue
from txbroker.worker.named_functions import function_named
from txbroker.worker.supervisor import Supervisor, watch_parent

log = logging.getLogger("txbroker.worker")


@click.command(cls=Command, short_help="Run a handler for each message of a group.")
@click.argument("handler", metavar="MODULE:FUNCTION")
@click.option("--topic", "topics", multiple=True, required=True, metavar="NAME", help="And again for others.")
@click.option("--group", required=True, metavar="NAME", help="The consumer group whose messages are handled.")
@click.option(
    "--processes", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many processes work."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="How many calls of the handler run at once in each process.",
)
@click.option(
    "--order",
    type=click.Choice(["key", "partition", "none"]),
    default="key",
    show_default=True,
    help="Which messages are handled one after another: those of a key, or of a partition.",
)
@click.option("--transaction", is_flag=True, help="Call the handler with a transaction of the broker, too.")
@click.option(
    "--database",
    metavar="URL",
    help="Call it with a block of `atomic` and a connection, too: as `resolve --database` takes it.",
)
@click.option(
    "--connect-database", metavar="MODULE:FUNCTION", help="The same, with the connections that this opens."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Messages for a call at most.",
)
@retry_options
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="The group reads only messages with this tag, or another. Repeatable.",
)
@click.option(
    "--handler-timeout",
    type=Parsed("duration", pause),
    default="30m",
    help="How long a call of the handler may take: after that its message has failed. Default 30m.",
)
@click.option(
    "--commit-interval",
    type=Parsed("duration", pause),
    help="Finish handled messages together, so often; not with --transaction. Usual: each at once.",
)
@click.option(
    "--stop-timeout",
    type=Parsed("duration", pause),
    default="30s",
    help="How long to wait for calls that are under way when stopped. Default 30s.",
)
@click.option(
    "--on-start", metavar="MODULE:FUNCTION", help="Called in each process before the first message."
)
@click.option("--on-stop", metavar="MODULE:FUNCTION", help="Called in each process after the last message.")
@click.option("--child", "is_child", is_flag=True, hidden=True)
@pass_invocation
def work(invocation: Invocation, /, is_child: bool, processes: int, **choices: Any) -> None:
    """Call MODULE:FUNCTION for each message of the topics that the group has not finished, until SIGTERM or Ctrl-C.

    Then no new message is begun, and what is under way is finished; a second signal ends the command at once. The
    module is looked for in the current folder first. A `async def` runs with asyncio.
    """
    if sum(bool(choices[name]) for name in ("transaction", "database", "connect_database")) > 1:
        raise click.UsageError("say at most one of --transaction, --database, --connect-database")
    if choices["commit_interval"] and any(
        choices[name] for name in ("transaction", "database", "connect_database")
    ):
        raise click.UsageError("--commit-interval is for messages that no transaction finishes")
    retry_in(choices)  # wrong ones are refused here, not by each process
    if processes > 1:
        supervise(invocation, processes, choices)
    if is_child:
        watch_parent()
    with OrderlyStop() as stop:
        work_here(invocation, choices, stop)


def supervise(invocation: Invocation, processes: int, choices: dict[str, Any]) -> None:
    """Run several processes of this command, and exit with the worst of their codes."""
    with invocation.connect() as broker:
        there = {topic.name for topic in broker.topics(choices["topics"])}
        if missing := [name for name in choices["topics"] if name not in there]:
            raise Failure(f"there is no topic {missing[0]!r}; nothing was done", Exit.NO)
    log_to_stderr()
    command = [*command_words(invocation, choices), "--child"]
    sys.exit(Supervisor([command] * processes, choices["stop_timeout"] / 1e6).run())


def log_to_stderr() -> None:
    """Have all that is logged from INFO on written to stderr, unless the handler's module has set up logging itself."""
    no_notes()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
    )


def command_words(invocation: Invocation, choices: dict[str, Any]) -> list[str]:
    """Return the command for one process with the same choices."""
    words = [sys.executable, "-m", "txbroker", "work", choices["handler"]]
    words += ["--broker", invocation.broker, "--timeout", f"{invocation.timeout}us"]
    for topic in choices["topics"]:
        words += ["--topic", topic]
    words += [f"--tag={tag}" for tag in choices["tags"]]
    for name in (
        "group", "concurrency", "order", "database", "connect_database", "batch", "attempts", "ending",
        "dead_letter_topic", "on_start", "on_stop",
    ):  # fmt: skip
        if choices[name] is not None:
            words += [f"--{name.replace('_', '-')}", str(choices[name])]
    for name in ("pause", "longest", "commit_interval"):
        if choices[name] is not None:
            words += [f"--{name.replace('_', '-')}", f"{choices[name]}us"]
    for name in ("transaction", "no_retry"):
        words += [f"--{name.replace('_', '-')}"] if choices[name] else []
    for name in ("handler_timeout", "stop_timeout"):
        words += [f"--{name.replace('_', '-')}", f"{choices[name]}us"]
    return words


def work_here(invocation: Invocation, choices: dict[str, Any], stop: OrderlyStop) -> None:
    """Work in this process until it is stopped."""
    try:
        handler = function_named("the handler", choices["handler"])
        settings = worker_settings(choices, inspect.iscoroutinefunction(handler))
    except WrongValue as error:
        for note in getattr(error, "__notes__", ()):
            click.echo(note.rstrip(), err=True)
        raise Failure(str(error), Exit.USAGE) from error
    log_to_stderr()
    with invocation.connect() as broker:
        if not inspect.iscoroutinefunction(handler):
            worker = broker.work(choices["topics"], choices["group"], handler, **settings)
            stop.stops(worker.stop)
            told(worker, worker.run)
            return
    asyncio.run(work_on_loop(invocation, choices, handler, settings, stop))


async def work_on_loop(
    invocation: Invocation, choices: dict[str, Any], handler: Any, settings: dict[str, Any], stop: OrderlyStop
) -> None:
    """Work with a handler that is a coroutine function."""
    loop = asyncio.get_running_loop()
    seconds = invocation.timeout / 1e6
    async with await connect(invocation.broker, client="txbroker-cli", timeout=seconds) as broker:
        worker = broker.work(choices["topics"], choices["group"], handler, **settings)
        stop.stops(lambda: loop.call_soon_threadsafe(worker.stop))
        try:
            await worker.run()
        except Exception as error:
            raise failure_of(worker, error) from error


def told(worker: Worker[None], run: Callable[[], None]) -> None:
    """Run a worker; the failure of a handler is shown with its traceback."""
    try:
        run()
    except Exception as error:
        raise failure_of(worker, error) from error


def failure_of(worker: Worker[Any], error: Exception) -> Exception:
    """Return the error to raise: if the handler failed, one with an exit code, after its traceback was shown."""
    if worker.failed is None:
        return error
    traceback.print_exception(type(error), error, of_handler(error.__traceback__))
    place = f"{worker.failed.topic}-{worker.failed.partition} offset {worker.failed.offset}"
    return Failure(
        f"the handler failed for {place}, which stays unfinished; what else was under way is finished",
        Exit.NO,
    )


def of_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the worker; the whole one if there are no others."""
    found = trace
    while found is not None and found.tb_frame.f_globals.get("__package__", "").startswith("txbroker"):
        found = found.tb_next
    return found or trace


def worker_settings(choices: dict[str, Any], is_asynchronous: bool) -> dict[str, Any]:
    """Return the options for ``Connection.work``; raises WrongValue for what cannot be found."""
    settings = {name: choices[name] for name in ("concurrency", "batch")}
    settings["retry"] = retry_in(choices)
    settings["tags"] = choices["tags"] or None
    settings["order"] = None if choices["order"] == "none" else choices["order"]
    for name in ("handler_timeout", "stop_timeout"):
        settings[name] = choices[name] / 1e6
    if choices["commit_interval"] is not None:
        settings["commit_interval"] = choices["commit_interval"] / 1e6
    for name in ("on_start", "on_stop"):
        if choices[name] is not None:
            settings[name] = function_named(f"--{name.replace('_', '-')}", choices[name])
    if choices["transaction"]:
        settings["transaction"] = "broker"
    elif choices["connect_database"] is not None:
        settings["transaction"] = function_named("--connect-database", choices["connect_database"])
    elif choices["database"] is not None:
        if is_asynchronous:
            raise click.UsageError(
                "--database opens blocking connections, and the handler is a coroutine function: say "
                "--connect-database"
            )
        try:
            settings["transaction"] = connector(choices["database"])
        except Misuse as error:
            raise Failure(str(error), Exit.USAGE) from error
    return settings
