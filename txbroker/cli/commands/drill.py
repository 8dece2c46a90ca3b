"""``txbroker drill``: kills a broker again and again, and checks whether anything that it acknowledged is lost."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from journal.constants import MIB
from journal.errors import CompressionUnavailable, DirectoryLocked, InvalidSetting
from journal.formats.compression import NAMES as CODECS
from journal.formats.compression import compressor
from journal.quantities import Quantity, duration, written
from txbroker.broker.sessions.settings import SECOND
from txbroker.cli.arguments import Parsed
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import console, emit, facts, table, visible
from txbroker.cli.streams import OutputLost
from txbroker.drill.broker.kill_points import POINTS
from txbroker.drill.broker.schedule import RANDOM, all_points
from txbroker.drill.directory import NoDirectory
from txbroker.drill.drill import Drill
from txbroker.drill.plan.orders import ENTRY, LARGE_MESSAGES, LARGEST, Orders
from txbroker.drill.report.page import write_page
from txbroker.drill.report.result import Report, rows_of
from txbroker.drill.screen import Screen
from txbroker.server.settings import config

LEAST = 3 * SECOND
"""µs that a drill takes at least."""

SHOWN = 20
"""How many violations are printed on the terminal; the report has all."""

LIST_POINTS = "help"
FURTHER = ("workers", "schedulers", "queuers", "amqp")
"""Roles of further processes, of which a drill has none unless it is asked for some."""


def _list_points(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> list[str]:
    """Return the given points, or all if none is given; print their list for ``--at help``."""
    if LIST_POINTS in given:
        rows = [(point.name, point.what) for point in POINTS.values()]
        emit(
            False,
            [],
            lambda: table(("point", "the broker dies when"), [*rows, (RANDOM, "any moment comes")], ""),
        )
        context.exit()
    if unknown := sorted(set(given) - {*POINTS, RANDOM}):
        raise click.BadParameter(
            f"there is no point {', '.join(unknown)}; 'txbroker drill --at help' lists them"
        )
    return list(given) or all_points()


def _further(role: str, what: str, example: int) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the option for so many further processes of a role."""
    return click.option(
        f"--{role}",
        type=click.IntRange(0, 64),
        default=0,
        show_default=True,
        help=f"Number of {what}. For example {example}.",
    )


@click.command(cls=Command, short_help="Kill a broker under load, look for what is lost.")
@click.option("--fresh", is_flag=True, help="Drill a broker on a new, empty directory.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Drill on a copy of this data directory, which no broker may have open. The original is not changed.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Drill on --data itself, not on a copy. The drill's topics stay in it.",
)
@click.option(
    "--power-cuts",
    is_flag=True,
    help="Each kill is a power cut: what the broker has not forced to disk is lost.",
)
@click.option(
    "--duration",
    "lasting",
    type=Parsed("duration", duration),
    default="1m",
    show_default=True,
    help=f"How long there is load, {written(Quantity.DURATION, LEAST)} at least.",
)
@click.option(
    "--kills", type=click.IntRange(1), default=20, show_default=True, help="How often the broker is killed."
)
@click.option("--seed", type=int, help="Seed of schedule and load. Default: a new one, which is printed.")
@click.option(
    "--clients",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of writing client processes, in addition to a relay and a reader.",
)
@_further("workers", "worker processes of one group, which are killed and paused, too", 3)
@_further("schedulers", "client processes that send messages for later, and take some of them back", 2)
@_further("queuers", "client processes that publish to queues, take from them and acknowledge", 2)
@_further("amqp", "client processes that do so over AMQP 0-9-1, for which the broker listens, too", 2)
@click.option(
    "--two-phase",
    type=click.FloatRange(0.0, 1.0),
    default=0.5,
    show_default=True,
    help="Share of transactions in two phases.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.0),
    default=300.0,
    show_default=True,
    help="Most messages per second of one client; 0: no limit.",
)
@click.option(
    "--compression",
    multiple=True,
    type=click.Choice(["none", *CODECS]),
    help="How clients compress. If repeated, each connection chooses one at random. Default: none.",
)
@click.option(
    "--at",
    "points",
    metavar="POINT",
    multiple=True,
    callback=_list_points,
    help="Kill at this point. Repeatable. 'random' is any moment, 'help' lists all. Default: all of them.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker's settings (TOML), as for twistd txbroker.",
)
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the broker. Repeatable."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for ledgers, logs and reports. Default: ./drill-TIME.",
)
@click.option("--keep", is_flag=True, help="Keep the broker's files also if nothing is wrong.")
@click.option("--entry", hidden=True, default=ENTRY)
@pass_invocation
def drill(invocation: Invocation, /, keep: bool, **asked: Any) -> None:
    """Kill a broker again and again under load, and look for everything that it acknowledged.

    The drill starts a new broker with your settings. Several clients send, run transactions, read and relay, while the
    broker is killed (SIGKILL) at random moments and at named points, paused (SIGSTOP) and stopped; clients are killed,
    too. With --workers a group of workers handles messages in transactions, with --schedulers messages
    are sent for later and taken back, with --queuers and --amqp messages go through queues. At the end the ledgers of
    all clients are compared with what the broker holds. Exits with 1 if anything is lost, there twice, half there,
    changed, out of order or not as decided. 'docs/drills.md' says what that proves.
    """
    import twisted  # noqa: F401 - of what is missing for a broker the entry point tells, before anything is made

    orders = _orders(**asked)
    report = _carried_out(orders)
    _tell(invocation, report, orders.out)
    if not report.sound:
        raise click.exceptions.Exit(int(Exit.NO))
    if not keep and not orders.in_place:
        shutil.rmtree(orders.out / "data")


def _orders(
    fresh: bool,
    data: Path | None,
    in_place: bool,
    lasting: int,
    seed: int | None,
    config_file: Path | None,
    settings: tuple[str, ...],
    out: Path | None,
    compression: tuple[str, ...],
    **rest: Any,
) -> Orders:
    """Return the orders from the options, checked before anything is made."""
    if fresh == (data is not None):
        raise click.UsageError("say either --fresh or --data DIRECTORY")
    if in_place and data is None:
        raise click.UsageError("--in-place needs --data DIRECTORY")
    if lasting < LEAST:
        raise click.UsageError(
            f"--duration must be at least {written(Quantity.DURATION, LEAST)}: in less nothing is seen"
        )
    for way in compression:
        _check_package(None if way == "none" else way)
    checked = _checked(config_file, settings)
    limits = checked.journal.limits
    orders = Orders(
        seed=random.randrange(1_000_000) if seed is None else seed,
        seconds=lasting / SECOND,
        out=_new_folder(out),
        data=data,
        in_place=in_place,
        options=_options(config_file, settings),
        largest=min(LARGEST, checked.broker.max_frame // 2),
        compression=compression or ("none",),
        large_transactions=min(limits.messages // LARGE_MESSAGES, limits.bytes // (32 * MIB)) > 0,
        **rest,
    )
    return msgspec.structs.replace(orders, command=_command(orders))


def _check_package(way: str | None) -> None:
    try:
        compressor(way)
    except CompressionUnavailable as error:
        raise Failure(str(error), Exit.USAGE) from error


def _checked(config_file: Path | None, settings: Sequence[str]) -> config.Config:
    """Return the broker's settings. One that the broker would refuse is a mistake of the command line, not a
    violation.
    """
    pairs = [setting.partition("=") for setting in settings]
    try:
        given = {name.strip().replace("-", "_"): value.strip() for name, _, value in pairs}
        for name in given:
            config.check_known(name, "--set")
        from_file = config.read_file(str(config_file)) if config_file is not None else {}
        return config.merged({**from_file, "data": "data"}, given)
    except InvalidSetting as error:
        raise click.UsageError(str(error)) from error


def _options(config_file: Path | None, settings: Sequence[str]) -> list[str]:
    options = ["--config", str(config_file.absolute())] if config_file is not None else []
    return [*options, *(word for setting in settings for word in ("--set", setting))]


def _new_folder(wanted: Path | None) -> Path:
    folder = wanted or Path(time.strftime("drill-%Y%m%d-%H%M%S"))
    try:
        used = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise Failure(
            f"the folder {folder} cannot be read: {error.strerror}. Nothing was changed. Say --out with another",
            Exit.USAGE,
        ) from error
    if used:
        raise Failure(f"{folder} is not empty; nothing was changed. Give --out a new folder", Exit.USAGE)
    return folder


def _command(orders: Orders) -> str:
    """Return the command that repeats the drill: the same schedule and the same load."""
    lasting = written(Quantity.DURATION, round(orders.seconds * SECOND))
    where = ["--fresh"] if orders.data is None else ["--data", str(orders.data)]
    words = ["txbroker", "drill", *where, "--duration", lasting, "--kills", str(orders.kills)]
    words += ["--seed", str(orders.seed), "--clients", str(orders.clients)]
    words += ["--two-phase", f"{orders.two_phase:g}", "--rate", f"{orders.rate:g}"]
    for role in FURTHER:
        words += [f"--{role}", str(count)] if (count := getattr(orders, role)) else []
    words += ["--power-cuts"] if orders.power_cuts else []
    words += [
        word
        for way in orders.compression
        if orders.compression != ("none",)
        for word in ("--compression", way)
    ]
    if orders.points != all_points():
        words += [word for point in orders.points for word in ("--at", point)]
    return shlex.join([*words, *orders.options])


def _carried_out(orders: Orders) -> Report:
    shown = console(stderr=True)
    shown.print(f"Seed {orders.seed}, everything goes to {orders.out}", soft_wrap=True)
    ours = not orders.out.exists()
    try:
        with Screen(shown) as screen:
            return Drill(orders, screen).run()
    except (NoDirectory, DirectoryLocked) as error:
        if ours:
            with suppress(OSError):  # not empty: then it is of use
                orders.out.rmdir()
        if isinstance(error, DirectoryLocked):
            raise
        raise Failure(str(error), Exit.USAGE) from error
    except OutputLost:
        raise
    except OSError as error:
        raise Failure(
            f"the drill ended before it was over, so there is no verdict: {error}. What it has written is in "
            f"{orders.out}; the broker and all clients are stopped",
            Exit.UNREACHABLE,
        ) from error


def _tell(invocation: Invocation, report: Report, folder: Path) -> None:
    """Print the report in all its forms."""
    written, unwritten = _written(report, folder)
    emit(invocation.as_json, msgspec.to_builtins(report), lambda: facts(rows_of(report)))
    for violation in report.violations[:SHOWN]:
        click.echo(visible(str(violation).replace("\n", " | ")), err=True)
    if (more := len(report.violations) - SHOWN) > 0:
        click.echo(f"... and {more:,} more, all in {folder / 'report.json'}", err=True)
    number = len(report.violations)
    verdict = (
        "No violation."
        if report.sound
        else f"{number} VIOLATION{'S' if number > 1 else ''}. All is kept in {folder}."
    )
    timeline = unwritten or f"The timeline is in {written}"
    click.echo(f"{verdict} {timeline}; repeat it with: {report.command}", err=True)
    sys.stderr.flush()
    if unwritten and report.sound:
        raise click.exceptions.Exit(int(Exit.UNREACHABLE))


def _written(report: Report, folder: Path) -> tuple[Path | None, str]:
    """Return the path of the report's page, or why there is none."""
    try:
        report.write(folder)
        return write_page(report, folder), ""
    except OSError as error:
        return None, f"The report cannot be written into {folder}: {error.strerror}"
