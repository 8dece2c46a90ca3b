"""The files of an audit's report: they replace nothing but a report, and an incomplete report says that it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from journal.errors import InvalidSetting, StorageUnavailable

SUMMARY: Final = "summary.json"
PAGE: Final = "index.html"
TABLES: Final = ("findings", "transactions", "windows")
VERDICT: Final = "sound"
"""The field of the summary that marks an audit's; it is null until the audit is complete."""


class Report:
    """A directory for one report. Making it raises, before anything is read, what would prevent writing at the end."""

    def __init__(self, out: str, data: str) -> None:
        self._out = Path(out)
        self._refuse(Path(data))
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            self._write(SUMMARY, json.dumps({VERDICT: None, "state": "this audit has not come to its end"}))
            (self._out / PAGE).unlink(missing_ok=True)
            for name in TABLES:
                if (self._out / name).exists():
                    shutil.rmtree(self._out / name)
        except OSError as error:
            raise StorageUnavailable(
                f"the report cannot be written to {out}: {error.strerror}; nothing was audited. Give --out a directory "
                "that can be made or written"
            ) from error

    def _refuse(self, data: Path) -> None:
        out = self._out
        if out.exists() and not out.is_dir():
            raise InvalidSetting(
                f"--out {out} is a file; nothing was audited. Name a directory for the report"
            )
        if out.resolve().is_relative_to(data.resolve()):
            raise InvalidSetting(
                f"--out {out} lies in the data directory {data}, where only a broker may write; nothing was audited. "
                "Put the report somewhere else"
            )
        foreign = [name for name in (*TABLES, SUMMARY, PAGE) if (out / name).exists()]
        if foreign and not _is_report(out / SUMMARY):
            raise InvalidSetting(
                f"--out {out} holds {', '.join(foreign)}, and these are no audit's: a report would replace them. "
                "Nothing was audited or changed; name another directory"
            )

    def table(self, name: str, rows: DataFrame) -> DataFrame:
        """Write a table; return what was written, after checking that all of it is here.

        Workers write their parts on their own machines. If they do not share this directory, parts are missing here,
        and findings would be lost without a message.
        """
        place = self._out / name
        path = f"file://{place.absolute()}"  # not as_uri: Hadoop does not decode a %20
        counted = Observation(name)
        rows.observe(counted, F.count(F.lit(1)).alias("rows")).write.mode("overwrite").parquet(path)
        here = sum(pq.read_metadata(part).num_rows for part in place.glob("*.parquet"))
        if here != counted.get["rows"]:
            raise StorageUnavailable(
                f"of {counted.get['rows']:,} rows of {name} that workers have written, {here:,} are in {place}: not "
                "all workers share this directory. There is no report, and nothing is proven. Give --out a directory "
                "that the driver and every worker see at the same path"
            )
        return rows.sparkSession.read.schema(rows.schema).parquet(path)

    def finish(self, summary: dict[str, Any], page: str) -> None:
        """Write the page, and then the summary, which completes the report."""
        self._write(PAGE, page)
        self._write(SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False))

    def _write(self, name: str, text: str) -> None:
        (self._out / name).write_text(text + "\n", encoding="utf-8")


def _is_report(summary: Path) -> bool:
    try:
        found = json.loads(summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and VERDICT in found
