"""``txbroker bench``: how fast a broker is, and where the time goes."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from journal.constants import MAX_FRAME, MAX_PARTITIONS_PER_TOPIC
from journal.quantities import Quantity, duration, size, written
from txbroker.bench import keys
from txbroker.bench.generator import GeneratorFailed
from txbroker.bench.histogram import check_package
from txbroker.bench.measurement import Bench, new_run
from txbroker.bench.plan import SMALLEST, Kind, Plan
from txbroker.bench.result import Report
from txbroker.bench.rows import PHASE_COLUMNS, largest_phases, phase_rows, rows_of
from txbroker.bench.screen import Screen
from txbroker.cli.arguments import Parsed
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Group, Invocation, pass_invocation
from txbroker.cli.output import console, emit, facts, table, wrapped
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess
from txbroker.errors import Misuse

STDOUT = "-"
SECOND = 1_000_000

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _take_json(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    if value == STDOUT:
        context.ensure_object(Invocation).as_json = True
    return value


class BenchCommand(Command):
    """A command whose ``--json`` may name a file, which is written beside the tables."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params = [param for param in self.params if param.name != "as_json"]
        json = click.Option(
            ["--json", "json_file"],
            metavar="[FILE]",
            is_flag=False,
            flag_value=STDOUT,
            callback=_take_json,
            help="Print JSON instead of tables; with FILE, write it there and print the tables.",
        )
        self.params.append(json)


class BenchGroup(Group):
    """A group of such commands."""

    command_class = BenchCommand


def _options(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _message_size(text: str) -> int:
    """Return the size of a message; raises ``ValueError``."""
    found = size(text)
    if not SMALLEST <= found <= MAX_FRAME:
        raise ValueError(
            f"{text!r} is no size of a message here: it is at least {SMALLEST}, for each says which one it is, and at "
            f"most {written(Quantity.SIZE, MAX_FRAME)}"
        )
    return found


_DURATION = Parsed("duration", duration)
_MESSAGE_SIZE = Parsed("size", _message_size)
_SIZE = Parsed("size", size)

WHERE = (
    click.option(
        "--topic", help="Use this topic and keep it. Default: make a topic, and remove it at the end."
    ),
    click.option(
        "--partitions",
        type=click.IntRange(1, MAX_PARTITIONS_PER_TOPIC),
        default=4,
        show_default=True,
        help="Partitions of the topic, if it is made.",
    ),
    click.option("--fresh", is_flag=True, help="Measure a broker on a new, empty directory below this one."),
    click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Settings (TOML) of the broker that --fresh starts.",
    ),
    click.option(
        "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of that broker. Repeatable."
    ),
)
HOW_LONG = (
    click.option("--duration", type=_DURATION, help="How long to measure. Default 10s."),
    click.option(
        "--count", type=click.IntRange(1), help="How many operations to measure, instead of a time."
    ),
    click.option("--warm-up", type=_DURATION, default="2s", show_default=True, help="Time before measuring."),
    click.option(
        "--clients", type=click.IntRange(1, 100_000), help="Connections (default: 1; for transactions 16)."
    ),
    click.option(
        "--processes",
        type=click.IntRange(1, 1_000),
        default=1,
        show_default=True,
        help="Number of processes that share the clients.",
    ),
    click.option("--verify/--no-verify", default=True, help="Read back what was acknowledged. Default: yes."),
)
WRITING = (
    click.option("--append", is_flag=True, help="Write into --topic although it holds messages."),
    click.option(
        "--size",
        type=_MESSAGE_SIZE,
        default="100",
        show_default=True,
        help=f"Size of a message; at least {SMALLEST}.",
    ),
    click.option(
        "--rate",
        type=click.FloatRange(0.0, min_open=True),
        help="Operations a second in all, each begun at its time (open loop). Default: a closed loop.",
    ),
    click.option(
        "--depth", type=click.IntRange(1, 100_000), help="Operations under way for each client (closed loop)."
    ),
    click.option(
        "--keys", "keys_", default="none", show_default=True, help="none, N different keys, or zipf:N."
    ),
    click.option(
        "--linger",
        type=_DURATION,
        default="0ms",
        show_default=True,
        help="How long a message waits for others to go with it.",
    ),
    click.option(
        "--batch-bytes", type=_SIZE, default="64KiB", show_default=True, help="Most bytes of a batch."
    ),
    click.option("--phases/--no-phases", default=None, help="Ask the broker where each request's time went."),
)


@click.group(cls=BenchGroup, short_help="Measure how fast a broker is.")
def bench() -> None:
    """Measure a running broker (--broker), or a new one (--fresh), with the client's own code.

    'docs/benchmarks.md' says how to read the figures. Exits with 1 if an acknowledged message is missing.
    """


@bench.command("produce")
@_options(*WHERE, *HOW_LONG, *WRITING)
@pass_invocation
def produce(invocation: Invocation, /, **asked: Any) -> None:
    """Send messages; show how many, and how long each takes until it is forced to the broker's disk."""
    _carry_out(invocation, Kind.PRODUCE, {"clients": 1, "depth": 1000}, **asked)


@bench.command("latency")
@_options(*WHERE, *HOW_LONG, *WRITING)
@pass_invocation
def latency(invocation: Invocation, /, **asked: Any) -> None:
    """Send messages one by one; show how long each takes to be acknowledged and to reach a consumer, and the phases."""
    _carry_out(invocation, Kind.LATENCY, {"clients": 1, "depth": 1, "phases": True}, **asked)


@bench.command("transactions")
@_options(*WHERE, *HOW_LONG, *WRITING)
@click.option("--two-phase", is_flag=True, help="Prepare, then commit. Default: commit in one phase.")
@click.option(
    "--messages", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Messages of each."
)
@click.option(
    "--touch", type=click.IntRange(1), default=1, show_default=True, help="Partitions that they touch."
)
@pass_invocation
def transactions(invocation: Invocation, /, **asked: Any) -> None:
    """Run transactions; show how many, and how long each takes from its first message until it is committed."""
    _carry_out(invocation, Kind.TRANSACTIONS, {"clients": 16, "depth": 1}, **asked)


@bench.command("consume")
@_options(*WHERE, *HOW_LONG)
@click.option(
    "--size",
    type=_MESSAGE_SIZE,
    default="100",
    show_default=True,
    help=f"Size of a message; at least {SMALLEST}.",
)
@click.option(
    "--fill",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Messages to write before reading, if there are none.",
)
@pass_invocation
def consume(invocation: Invocation, /, **asked: Any) -> None:
    """Read a topic again and again: one that is filled for it, or --topic, which is not written to."""
    _carry_out(invocation, Kind.CONSUME, {"clients": 1, "depth": 1}, **asked)


def _carry_out(
    invocation: Invocation, kind: Kind, defaults: dict[str, Any], json_file: str | None, **asked: Any
) -> None:
    """Measure, show the figures, and exit with the code for them."""
    given = {name: value for name, value in asked.items() if value is not None}
    _check(kind, given)
    if json_file is not None and json_file != STDOUT:
        _check_file(json_file)
    try:
        check_package()
    except Misuse as error:
        raise Failure(str(error), Exit.USAGE) from error
    choices = {name: given.pop(name) for name in ("append", "verify") if name in given}
    fresh = _Fresh(given.pop("fresh"), given.pop("config_file", None), given.pop("settings"))
    filling = given.pop("fill", 0)
    with fresh.broker(invocation.broker) as url:
        plan = _plan(kind, url, invocation.timeout / SECOND, {**defaults, **given})
        with Screen(console(stderr=True), plan) as screen:
            bench = Bench(
                plan, append=choices.pop("append", False), filling=filling, watcher=screen, **choices
            )
            try:
                report = bench.carry_out()
            except GeneratorFailed as error:
                raise Failure(
                    f"{error}. What was made for the measurement is removed", Exit.UNREACHABLE
                ) from error
            except Misuse as error:
                raise Failure(str(error), Exit.USAGE) from error
    _tell(invocation, report, json_file)
    if not report.sound or (report.errors and not report.operations):
        raise click.exceptions.Exit(int(Exit.NO))
    if report.interrupted:
        raise click.exceptions.Exit(int(Exit.INTERRUPTED))
    if report.trouble:
        raise click.exceptions.Exit(int(Exit.UNREACHABLE))


def _check(kind: Kind, given: dict[str, Any]) -> None:
    """Refuse impossible options, before anything is made."""
    if "duration" in given and "count" in given:
        raise click.UsageError("say either --duration or --count")
    if given.get("duration") == 0:
        raise click.UsageError("--duration must be more than 0: in no time nothing is measured")
    if not math.isfinite(given.get("rate", 1.0)):
        raise click.UsageError(f"--rate must be a number of operations a second, not {given['rate']}")
    if not given.get("topic", "bench"):
        raise click.UsageError("--topic is empty; leave it out for a topic that is made and removed again")
    if "rate" in given and "depth" in given:
        raise click.UsageError("--depth is of a closed loop, --rate makes an open one: say one of them")
    if given["fresh"] and "topic" in given:
        raise click.UsageError("a fresh broker has no --topic")
    if not given["fresh"] and (given["settings"] or "config_file" in given):
        raise click.UsageError("--config and --set are for the broker that --fresh starts")
    if given.get("append") and "topic" not in given:
        raise click.UsageError("--append needs --topic")
    if kind is Kind.CONSUME and "topic" not in given and given.get("clients", 1) > given["partitions"]:
        raise click.UsageError("--clients of consume must not be more than --partitions: each reads its own")
    if given.get("touch", 1) > min(given.get("messages", 1), given["partitions"]):
        raise click.UsageError("--touch cannot be more than --messages, or than --partitions")


def _plan(kind: Kind, url: str, timeout: float, given: dict[str, Any]) -> Plan:
    """Return the plan for options that have been checked."""
    try:
        chosen = keys.check(given.pop("keys_", "none"))
    except ValueError as error:
        raise click.UsageError(f"--keys: {error}") from error
    duration_of = {
        name: given.pop(name) / SECOND for name in ("duration", "warm_up", "linger") if name in given
    }
    if duration_of.get("linger", 0) >= timeout:
        raise click.UsageError(
            "--linger must be less than --timeout, or messages run out of time before they go"
        )
    seconds = None if "count" in given else duration_of.pop("duration", 10.0)
    touched = given.pop("touch", 1)
    topic = given.pop("topic", "")
    return Plan(
        kind=kind,
        url=url,
        topic=topic,
        run=new_run(),
        keys=chosen,
        seconds=seconds,
        touched=touched,
        timeout=timeout,
        **duration_of,
        **given,
    )


class _Fresh:
    """The broker to be measured: the one that listens at an address, or a new one on an empty directory."""

    def __init__(self, wanted: bool, config_file: Path | None, settings: Sequence[str]) -> None:
        self._wanted = wanted
        self._options = [] if config_file is None else ["--config", str(config_file.absolute())]
        self._options += [word for setting in settings for word in ("--set", setting)]

    @contextmanager
    def broker(self, url: str) -> Iterator[str]:
        """Yield its address."""
        if not self._wanted:
            yield url
            return
        import twisted  # noqa: F401 - of what is missing for a broker the entry point tells, before anything is made

        # Here, not where temporary files go: that may be memory, and the disk would not be measured.
        try:
            folder = Path(tempfile.mkdtemp(prefix="txbroker-bench-", dir="."))
        except OSError as error:
            raise Failure(
                f"no directory for a fresh broker can be made in {os.getcwd()}: {error.strerror}. Nothing was "
                "measured. Change to a folder where this user may write",
                Exit.USAGE,
            ) from error
        broker = BrokerProcess(folder / "data", folder / "broker.log", self._options, own_session=True)
        try:
            broker.start()
            yield broker.address
            broker.stop()
        except BrokerFailed as error:
            raise Failure(f"{error}", Exit.UNREACHABLE) from error
        finally:
            broker.kill()
            shutil.rmtree(folder)


def _tell(invocation: Invocation, report: Report, json_file: str | None) -> None:
    """Print the figures in the requested forms."""
    document = msgspec.to_builtins(report)
    emit(invocation.as_json, document, lambda: facts(rows_of(report)))
    if report.phases and not invocation.as_json:
        click.echo()
        emit(False, [], lambda: table(PHASE_COLUMNS, phase_rows(report), ""))
        for line in largest_phases(report):
            click.echo(wrapped(line, sys.stdout))
    for note in [*report.notes, report.trouble] if report.trouble else report.notes:
        click.echo(wrapped(f"{note}.", sys.stderr), err=True)
    sys.stderr.flush()
    if json_file is not None and json_file != STDOUT:
        _write(Path(json_file), msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def _write(path: Path, document: bytes) -> None:
    try:
        path.write_bytes(document)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error}. The figures are those above", Exit.NO) from error


def _check_file(name: str) -> None:
    """Refuse a file that cannot be written before anything is measured, not after."""
    path = Path(name)
    try:
        place = path if path.exists() else path.parent
        fine = not path.is_dir() and place.exists() and os.access(place, os.W_OK)
    except OSError:
        fine = False
    if not fine:
        raise click.UsageError(f"--json: {name!r} cannot be written; nothing was measured")
