"""``python -m spark.audit --data DIR --out report/``, and the same under ``spark-submit``. See ``docs/spark.md``."""

from __future__ import annotations

import os
import sys

import click

from journal.errors import TxBrokerError
from spark.audit.conduct import Plan, conduct
from spark.audit.expecting import Expectation


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
@click.option("--only", is_flag=True, help="The topics may hold nothing else than expected.")
def main(
    data: str, out: str, master: str | None, reports: tuple[str, ...], window: float, expect: tuple[str, ...],
    topic: tuple[str, ...], key: tuple[str, ...], field: tuple[str, ...], driver: str, only: bool,
) -> None:  # fmt: skip
    """Prove from the bytes alone that a data directory holds what was promised.

    Exits with 0 if it does, with 1 if something is wrong, with 3 if that could not be found out.
    """
    plan = Plan(
        os.path.abspath(data), os.path.abspath(out), master, list(reports), round(window * 1e6),
        _expectations(expect, topic, key, field, only), driver,
    )  # fmt: skip
    try:
        summary = conduct(plan)
    except (TxBrokerError, OSError) as error:
        click.echo(f"the audit could not be made: {error}", err=True)
        sys.exit(3)
    for line in told(summary, plan.out):
        click.echo(line)
    sys.exit(0 if summary["sound"] else 1)


def told(summary: dict[str, object], out: str) -> list[str]:
    """What is printed of a summary: counts, the first violations with their places, the verdict, the page."""
    logs, violations = summary["logs"], summary["violations"]
    assert isinstance(logs, dict)
    assert isinstance(violations, dict)
    lines = [
        f"{logs['messages']:,} messages in {logs['partitions']:,} partitions, {summary['seconds']:.1f} s"
    ]
    findings = summary["findings"]
    assert isinstance(findings, list)
    for each in [each for each in findings if each["severity"] == "violation"][:20]:
        place = (
            f"{each.get('topic', '')}-{each.get('partition', '')} offset {each.get('first', '')}"
            if "topic" in each
            else ""
        )
        file = f"{each['path']} at {each.get('position', 0)}" if "path" in each else ""
        number = f"transaction {each['session']}-{each['serial']}" if "session" in each else ""
        lines.append(": ".join(filter(None, (each["kind"], place, number, file, each["text"]))))
    total = sum(violations.values())
    lines.append(f"{total:,} violations" if total else "sound")
    lines.append(f"{out}/index.html")
    return lines


if __name__ == "__main__":
    main()
