"""The demo's audit by Spark: the data directory against the rows of the source, and a small analysis.

``python -m demo.audit DIRECTORY REPORT DAYS`` is run by ``make demo`` as a process of its own, so that what Java writes
to its standard error goes to a file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from demo.delays import delays, table
from demo.departures import with_malformed
from demo.source import TOPICS, Day, read_year
from spark.audit.__main__ import summary_lines
from spark.audit.checks.expected_table import Expectation
from spark.audit.conduct import Plan, conduct, session

WINDOW = 1_000_000
"""The window of the audit, in µs. The whole year is sent within a minute."""

LOG = "spark.log"


class AuditFailed(Exception):
    """The audit could not be made; the message has the output of its process."""


def audited(data: Path, report: Path, days: int) -> tuple[bool, str]:
    """Return whether the directory is sound, and lines to show; raises :class:`AuditFailed` if the audit was not
    made.
    """
    report.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "demo.audit", str(data), str(report), str(days)]
    with (report / LOG).open("w") as log:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    if ended.returncode not in (0, 1):
        last = (report / LOG).read_text()[-2000:]
        raise AuditFailed(f"the audit ended with {ended.returncode}; {report / LOG} ends with:\n{last}")
    return ended.returncode == 0, ended.stdout


def expected(days: list[Day], folder: Path) -> list[Expectation]:
    """Write the rows that were sent as tables in Parquet: the topics must hold these rows and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for topic in TOPICS:
        lines = [row.line.decode() for day in days for row in day.rows if row.topic == topic]
        path = folder / f"{topic}.parquet"
        pq.write_table(pa.table({"line": lines}), path)
        made.append(Expectation(str(path), topic, ("line",), {"line": "CAST(value AS STRING)"}, only=True))
    return made


def main(data: Path, report: Path, days: int) -> int:
    """Audit, analyse, print; return 1 if the audit found a fault."""
    sent, _ = with_malformed(read_year()[:days])
    expectations = expected(sent, report / "expected")
    plan = Plan(str(data.resolve()), str(report.resolve()), None, [], WINDOW, expectations)
    spark = session(plan)
    try:
        summary = conduct(plan)
        console = Console(highlight=False, width=100)
        if summary["sound"]:
            console.print(table(delays(spark, plan.data)))
        for line in summary_lines(summary, plan.out):
            console.print(line, markup=False, soft_wrap=True)
    finally:
        spark.stop()
    return 0 if summary["sound"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
