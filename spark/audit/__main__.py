"""``python -m spark.audit --data DIR --out report/`` makes an audit; it runs under ``spark-submit``, too. See
``docs/spark.md``.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import click

from journal.errors import InvalidSetting, TxBrokerError
from spark.audit.checks.expected_table import Expectation
from spark.audit.conduct import Plan, conduct
from spark.audit.failures import SPARK, reason
from spark.audit.report.kinds import by_kind, kind_of, log_of, span_of, transaction_of
from spark.audit.report.plots import counted
from spark.audit.report.report_files import PAGE

SOUND, VIOLATIONS, USAGE, UNKNOWN, STOPPED = 0, 1, 2, 3, 130
EXAMPLES = 3
"""Findings of each kind that are printed; the page shows more, the table has all of them."""


def _expectations(
    sources: tuple[str, ...],
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    fields: tuple[str, ...],
    only: bool,
) -> list[Expectation]:
    if not len(sources) == len(topics) == len(keys):
        raise click.UsageError(
            f"{len(sources)} times --expect, {len(topics)} times --topic, {len(keys)} times --key: each table needs a "
            "topic and a key"
        )
    given = dict(field.split("=", 1) for field in fields if "=" in field)
    if len(given) != len(fields):
        raise click.UsageError(
            "--field is NAME=EXPRESSION, as in --field delay=\"get_json_object(string(value), '$.d')\""
        )
    return [
        Expectation(source, topic, tuple(key.split(",")), given, only)
        for source, topic, key in zip(sources, topics, keys, strict=True)
    ]


@click.command()
@click.option(
    "--data", required=True, type=click.Path(), help="The data directory, at rest or a copy of one."
)
@click.option("--out", required=True, type=click.Path(), help="Where the report goes; made, or filled anew.")
@click.option("--master", help="Where Spark runs; local[*] if nothing else says so.")
@click.option(
    "--reports", multiple=True, metavar="TOPIC", help="A topic with producers' reports. Repeatable."
)
@click.option(
    "--window", default=60.0, show_default=True, help="Seconds; with --reports their windows count."
)
@click.option(
    "--expect", multiple=True, metavar="TABLE", help="Parquet, CSV, or jdbc:postgresql://…#TABLE. Repeatable."
)
@click.option("--topic", multiple=True, help="The topic of the --expect of the same place.")
@click.option("--key", multiple=True, metavar="COLUMNS", help="Its key, columns with commas in between.")
@click.option(
    "--field", multiple=True, metavar="COLUMN=SQL", help="How a column follows from a message's columns."
)
@click.option(
    "--driver", metavar="JAR", default="", help="PostgreSQL's driver for Java; Debian's is found by itself."
)
@click.option(
    "--broker",
    metavar="ADDRESS",
    default="",
    help="The broker at work in --data: it removes no file meanwhile.",
)
@click.option(
    "--copy-state", is_flag=True, help="Lock --data only to copy its state; a broker may start meanwhile."
)
@click.option("--only", is_flag=True, help="The topics may hold nothing else than expected.")
def main(
    data: str, out: str, master: str | None, reports: tuple[str, ...], window: float, expect: tuple[str, ...],
    topic: tuple[str, ...], key: tuple[str, ...], field: tuple[str, ...], driver: str, only: bool,
    broker: str, copy_state: bool,
) -> None:  # fmt: skip
    """Prove from the bytes alone that a data directory holds what was promised.

    Exits with 0 if it does, with 1 if something is wrong, with 2 if the command makes no sense, with 3 if that could
    not be found out.
    """
    if round(window * 1e6) < 1:
        raise click.UsageError(f"--window {window:g} is no length of time; give seconds, such as 60")
    if broker and copy_state:
        raise click.UsageError(
            "--broker is for a broker at work, --copy-state for one that is to start: give one"
        )
    plan = Plan(
        os.path.abspath(data), os.path.abspath(out), master, list(reports), round(window * 1e6),
        _expectations(expect, topic, key, field, only), driver, broker, copy_state,
    )  # fmt: skip
    code, summary = _made(plan)
    if summary is not None:
        for line in summary_lines(summary, plan.out):
            click.echo(line)
    sys.exit(code)


def _made(plan: Plan) -> tuple[int, dict[str, Any] | None]:
    """Make the audit; return the exit code, and the summary if there is one. Only a complete audit gives 0 or 1."""
    try:
        summary = conduct(plan)
    except InvalidSetting as error:
        return _failed(USAGE, str(error))
    except (TxBrokerError, OSError) as error:
        return _failed(UNKNOWN, f"the audit could not be made: {error}")
    except SPARK as error:
        return _failed(UNKNOWN, f"the audit could not be made: {reason(error)}")
    except KeyboardInterrupt:
        return _failed(STOPPED, "the audit was stopped: nothing is proven, and there is no report")
    except Exception as error:  # noqa: BLE001  a fault of ours, which must not look like violations: Python exits with 1
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return _failed(UNKNOWN, f"the audit failed by a fault of its own, nothing is proven: {what}")
    return (SOUND if summary["sound"] else VIOLATIONS), summary


def _failed(code: int, message: str) -> tuple[int, None]:
    click.echo(message, err=True)
    return code, None


def summary_lines(summary: dict[str, Any], out: str) -> list[str]:
    """Return the printed lines of a summary: counts, some findings of each kind with their places, the verdict, the
    page.
    """
    logs, count = summary["logs"], {"violation": summary["violations"], "notice": summary["notices"]}
    lines = [
        f"{counted(logs['messages'], 'message')} in {counted(logs['partitions'], 'partition')}, "
        f"{summary['seconds']:.1f} s",
        f"proven by {', '.join(f'{name} {count:,}' for name, count in summary['proven_by'].items())}",
    ]
    for severity, kind, found in by_kind(summary["findings"]):
        lines.append(f"{severity}: {kind} ({count[severity][kind]:,}): {kind_of(found[0]).means}")
        lines += [f"    {_line(each)}" for each in found[:EXAMPLES]]
        if count[severity][kind] > EXAMPLES:
            lines.append(f"    and {count[severity][kind] - EXAMPLES:,} more")
        if severity == "violation":
            lines.append(f"    -> {kind_of(found[0]).then}")
    total = sum(count["violation"].values())
    lines.append(counted(total, "violation") if total else "sound")
    lines.append(f"{out}/{PAGE}")
    return lines


def _line(each: dict[str, Any]) -> str:
    log, span, number = log_of(each), span_of(each), transaction_of(each)
    where = f"{log} {'at' if each['kind'].startswith('window: ') else 'offset'} {span}" if span else log
    file = f"{each['path']} at {each.get('position', 0)}" if "path" in each else ""
    whose = f"transaction {number}" if number else ""
    xid = each.get("xid", "")
    xid = "" if xid in each["text"] else xid
    return ": ".join(filter(None, (where, whose, xid, file, each["text"])))


if __name__ == "__main__":
    main()
