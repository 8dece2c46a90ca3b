"""``python -m benchmarks.atomic.old_snapshot``: an outbox through which many rows go while a snapshot keeps them all.

In PostgreSQL a row that is deleted stays as long as a transaction might see it: an hour of a report or of a forgotten
session keeps all that went through the table. The benchmark opens such a transaction, lets rows go through both kinds
of outbox, and measures each: one with a poller (``FOR UPDATE SKIP LOCKED``), and that of txbroker. See
docs/benchmarks.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.atomic.__main__ import FOLDER, MANY, Bench, Way, servers
from benchmarks.figure_tables import number

DEAD = (0, 1_000_000, 10_000_000)
WAYS = (Way("outbox-polled", MANY, True), Way("atomic-outbox", MANY, True))
CHUNK = 500_000

FILL = {
    "outbox-polled": (
        "INSERT INTO outbox (topic, key, body) SELECT 'orders', 'key', decode(repeat('00', 100), 'hex') "
        "FROM generate_series(1, %s)",
        "DELETE FROM outbox",
    ),
    "atomic-outbox": (
        "INSERT INTO txbroker_outbox (stream, number, broker, messages) SELECT md5((n %% 16)::text || %s), n, "
        "repeat('0', 32), decode(repeat('00', 180), 'hex') FROM generate_series(1, %s) AS n",
        "DELETE FROM txbroker_outbox",
    ),
}
"""What makes rows and deletes them, as large as those of the load; txbroker's of sixteen streams, others in each
chunk.
"""


def fill(database_url: str, way: Way, rows: int) -> None:
    """Let rows go through the table of a way."""
    insert, delete = FILL[way.load]
    with psycopg.connect(database_url, autocommit=True) as database:
        for begun in range(0, rows, CHUNK):
            count = min(CHUNK, rows - begun)
            database.execute(insert, (str(begun), count) if way.load == "atomic-outbox" else (count,))
            database.execute(delete)


def measure(
    folder: Path, way: Way, dead: Sequence[int], seconds: float, repeat: int
) -> list[tuple[str, int, list[float], list[float], float, float]]:
    """Return a line for each number of dead rows: blocks and read messages a second, p99, PostgreSQL's time for one."""
    lines = []
    with servers(folder) as (postgresql, broker):
        url, there = postgresql.url("postgres"), 0
        bench = Bench(postgresql, broker)
        bench.empties = False
        with psycopg.connect(url) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1")
            for rows in dead:
                fill(url, way, rows - there)
                there = rows
                found = [bench.run(way, seconds) for _ in range(repeat)]
                latencies = sorted(latency for one in found for latency in one[0])
                lines.append(
                    (
                        way.load, rows, [one[1] for one in found], [one[3] for one in found],
                        latencies[len(latencies) * 99 // 100] * 1e3,
                        median(one[2].database for one in found),
                    )
                )  # fmt: skip
    return lines


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="For measuring each once.")
@click.option("--repeat", default=3, show_default=True, help="How often.")
@click.option(
    "--rows",
    default=",".join(map(str, DEAD)),
    show_default=True,
    help="Rows that have gone through, in ascending order.",
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write every sample to this file, too.")
@click.option(
    "--folder",
    default=FOLDER,
    type=click.Path(path_type=Path),
    show_default=True,
    help="Of the broker's data.",
)
def main(seconds: float, repeat: int, rows: str, file: Path | None, folder: Path) -> None:
    """Measure two kinds of outbox while a snapshot keeps all rows that have gone through them."""
    dead = [int(word) for word in rows.split(",")]
    lines = [line for way in WAYS for line in measure(folder, way, dead, seconds, repeat)]
    shown = Table("way", "rows gone through", title="while a snapshot keeps them", title_justify="left")
    for column in ("blocks/s", "min – max", "read/s", "min – max", "p99 ms", "PostgreSQL µs"):
        shown.add_column(column, justify="right")
    for load, count, rates, reads, p99, database in lines:
        shown.add_row(
            load, f"{count:,}", number(median(rates)), f"{number(min(rates))} – {number(max(rates))}",
            number(median(reads)), f"{number(min(reads))} – {number(max(reads))}", number(p99), number(database),
        )  # fmt: skip
    Console(width=130).print(shown)
    if file is not None:
        file.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
