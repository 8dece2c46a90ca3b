"""Tables that logs are compared with: where they are, how they are opened, and why one cannot be read.

Passwords are removed before anything is shown: Spark gets them as the option ``password``, which it hides wherever it
shows options; :attr:`Source.shown` is the text that is shown or written down.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from journal.errors import InvalidSetting, RequestRefused

DEBIAN: Final = "/usr/share/java/postgresql.jar"
"""Where Debian's ``libpostgresql-jdbc-java`` puts PostgreSQL's driver."""
CLASS: Final = "org.postgresql.Driver"
PASSWORD: Final = "PGPASSWORD"
NOTHING: Final = "Nothing was audited"
ROWS_AHEAD: Final = 10_000
"""Rows that the driver fetches at a time; by default it would hold the whole table in memory."""

_JDBC: Final = "jdbc:postgresql:"
_MAIN = re.compile(r"(?://(?:(?P<login>[^/@?#]*)@)?(?P<hosts>[\w.,:\-\[\]]*)/)?(?P<database>[^/?#@:&]*)")
_CSV = re.compile(r"\.csv(\.\w+)?$")
_TAGS = re.compile(r"^\[[A-Z0-9_.]+\] | SQLSTATE: \w+.*$")
_RAISED = re.compile(r"^(?:\w+\.)*[A-Z]\w*: (.+)$", re.MULTILINE)


class TableUnusable(RequestRefused):
    """A table that a log is to be compared with cannot be read, or its rows cannot be distinguished by the key."""


class Source(NamedTuple):
    """The place of a table: ``shown`` may be shown to anyone, ``options`` hold user and password of a database."""

    shown: str
    path: str = ""
    url: str = ""
    table: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_text(self) -> bool:
        """Return whether it is CSV, where all values are text, and an empty field is null."""
        if self.url:
            return False
        path = Path(self.path)
        return bool(_CSV.search(self.path)) or (
            path.is_dir() and any(_CSV.search(each.name) for each in path.iterdir())
        )


def source_of(given: str) -> Source:
    """Return the source that ``--expect`` names; raises InvalidSetting, whose text has nothing that may be a
    password.
    """
    scheme, found, _ = given.partition(":")
    if scheme.lower() in ("postgresql", "postgres"):
        raise InvalidSetting(
            f"--expect {scheme}:… wants jdbc: before it, as in {_JDBC}//host/db#TABLE. {NOTHING}"
        )
    if not found or scheme.lower() != "jdbc":
        return Source(given, path=given)
    if not given.startswith(_JDBC):
        raise InvalidSetting(
            f"--expect jdbc:{given.split(':')[1]}:… is no PostgreSQL, which is all that is known here ({_JDBC}…); "
            f"other databases' tables: export them as Parquet or CSV. {NOTHING}"
        )
    return _database(given.removeprefix(_JDBC))


def _database(given: str) -> Source:
    address, _, table = given.partition("#")
    main, _, query = address.partition("?")
    parts = _MAIN.fullmatch(main)
    if parts is None or ("#" in table and not table.startswith("(")):
        raise InvalidSetting(
            f"--expect {_JDBC}… is not understood: {_JDBC}//USER@HOST:PORT/DATABASE?NAME=VALUE#TABLE is; in names and "
            f"passwords / is %2F, @ is %40, ? is %3F, # is %23, : is %3A. {NOTHING}"
        )
    hosts = f"//{parts['hosts']}/" if parts["hosts"] is not None else ""
    plain = f"{_JDBC}{hosts}{parts['database']}"
    if not table:
        raise InvalidSetting(
            f"--expect {plain} names no table: put it behind a #, as in {plain}#public.orders. {NOTHING}"
        )
    options: dict[str, str] = {}
    user, _, password = (parts["login"] or "").partition(":")
    options |= {name: unquote(value) for name, value in (("user", user), ("password", password)) if value}
    # As for the driver, a + is a space; it ignores options that it does not know.
    options |= dict(parse_qsl(query, keep_blank_values=True))
    if "password" not in options and (kept := os.environ.get(PASSWORD)):
        options["password"] = kept
    return Source(f"{plain}#{table}", url=plain, table=table, options=tuple(options.items()))


def opened(spark: SparkSession, source: Source, jar: str) -> DataFrame:
    """Open the table without reading it; ``jar`` is the driver, if one was given. Raises :class:`TableUnusable`."""
    with readable(source):
        if source.url:
            return _of_database(spark, source, jar)
        if source.is_text:
            # As in RFC 4180 and PostgreSQL's COPY; a row that does not fit is an error, never left out.
            asked: dict[str, str | bool] = {
                "header": True,
                "escape": '"',
                "multiLine": True,
                "mode": "FAILFAST",
            }
            return spark.read.options(**asked).csv(source.path)
        return spark.read.parquet(source.path)


@contextmanager
def readable(source: Source) -> Iterator[None]:
    """Turn Spark's errors about a table that it cannot read into :class:`TableUnusable`."""
    advice = (
        "The server must be reached from here and from Spark's workers. The user stands in the URL (?user=NAME), the "
        f"password in {PASSWORD} or in ~/.pgpass, and the user needs SELECT on the table"
        if source.url
        else "Name a file or directory of Parquet or CSV (.csv, with a header) that is whole, and that every worker of "
        "Spark sees at this path"
    )
    try:
        with quiet():
            yield
    except (PySparkException, Py4JError) as error:
        raise TableUnusable(
            f"--expect {source.shown} cannot be read: {why(error)}. {NOTHING}. {advice}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence PySpark, which logs each error's Java trace as a line of JSON; the error is reported in words."""
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _of_database(spark: SparkSession, source: Source, jar: str) -> DataFrame:
    if jar:
        _add(spark, jar)
    reader = (
        spark.read.format("jdbc")
        .options(**dict(source.options))
        .option("url", source.url).option("dbtable", source.table).option("driver", CLASS)
        .option("fetchsize", ROWS_AHEAD)
        .option("preferTimestampNTZ", True)  # otherwise times without a zone would depend on the JVM's zone
    )  # fmt: skip
    try:
        return reader.load()
    except Py4JJavaError as error:
        if CLASS not in str(error.java_exception) or "ClassNotFound" not in str(error.java_exception):
            raise
        if jar or not os.path.exists(DEBIAN):
            raise _without_driver(source, jar) from error
    _add(spark, DEBIAN)
    return reader.load()


def _add(spark: SparkSession, jar: str) -> None:
    """Give a jar to the driver and all workers."""
    if not os.path.isfile(jar):
        raise InvalidSetting(f"--driver {jar}: there is no such file. {NOTHING}")
    quoted = os.path.abspath(jar).replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"ADD JAR '{quoted}'")


def _without_driver(source: Source, jar: str) -> TableUnusable:
    place = f"it is not in {jar}" if jar else f"there is no {DEBIAN}, and none in Spark's class path"
    return TableUnusable(
        f"--expect {source.shown} cannot be read: PostgreSQL's driver for Java ({CLASS}) is missing: {place}. "
        f"{NOTHING}. Install Debian's libpostgresql-jdbc-java, or give --driver the jar of org.postgresql:postgresql "
        "from Maven Central (under spark-submit also --jars)"
    )


def why(error: Exception) -> str:
    """Return the root cause of a Java error in one line; a message of PostgreSQL's driver is preferred."""
    causes: list[tuple[str, str]] = []
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None:
        causes.append((cause.getClass().getName(), cause.getMessage() or ""))
        cause = cause.getCause()
    if not causes:
        return _line(str(error))
    kind, root = causes[-1]
    said = next((text for name, text in causes if name.startswith("org.postgresql.")), None)
    if said is None or said == root:
        return _line(root or kind)
    return f"{_line(said).rstrip('.')} ({kind.rpartition('.')[2]}: {_line(root)})"


def _line(text: str) -> str:
    """Return the first line of the message, or what a worker's Python raised; without Spark's tags."""
    _, trace, raised = text.rpartition("Traceback (most recent call last):")
    if trace and (found := _RAISED.search(raised)):
        text = found[1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "nothing is said of it")
    return _TAGS.sub("", _TAGS.sub("", first))[:400].rstrip(". ")
