"""A small analysis of what the broker holds, on Spark: how late flights leave, by carrier and by the weather then."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.box import SIMPLE_HEAD
from rich.table import Table

from demo.source import FLIGHTS, WEATHER, columns_of

LEAST_FLIGHTS = 20
"""Carriers with fewer flights are left out: their mean would say nothing."""

QUERY = f"""
SELECT flights.carrier,
       count(*) AS flights,
       avg(flights.delay) AS delay,
       avg(CASE WHEN weather.bad THEN flights.delay END) AS delay_in_bad,
       avg(CASE WHEN NOT weather.bad THEN flights.delay END) AS delay_in_good,
       avg(CASE WHEN weather.bad THEN 1.0 ELSE 0.0 END) AS share_in_bad
FROM (SELECT carrier, origin, time_hour, try_cast(dep_delay AS double) AS delay FROM flights) AS flights
JOIN (SELECT origin, time_hour,
             try_cast(precip AS double) > 0 OR coalesce(try_cast(visib AS double), 10) < 3 AS bad
      FROM weather) AS weather
USING (origin, time_hour)
WHERE flights.delay IS NOT NULL
GROUP BY flights.carrier
HAVING count(*) >= {LEAST_FLIGHTS}
ORDER BY delay DESC
"""
"""Flights that left, with their hour's weather at their airport. Bad is rain, snow, or less than 3 miles of sight."""


class Carrier(NamedTuple):
    """A carrier's flights that left, and by how many minutes late in the mean; None where it had none of a kind."""

    code: str
    flights: int
    delay: float
    in_bad: float | None
    in_good: float | None
    share_in_bad: float


def delays(spark: SparkSession, data: str) -> list[Carrier]:
    """The carriers, the latest first, from the logs of a data directory."""
    for topic in (FLIGHTS, WEATHER):
        rows(spark, data, topic).createOrReplaceTempView(topic)
    return [Carrier(*row) for row in spark.sql(QUERY).collect()]


def rows(spark: SparkSession, data: str, topic: str) -> DataFrame:
    """The rows of the source as columns of text, from the messages' values."""
    log = spark.read.format("txbroker").option("path", data).option("subscribe", topic).load()
    fields = [f"line[{place}] AS {name}" for place, name in enumerate(columns_of(topic))]
    return log.selectExpr("split(CAST(value AS STRING), ',') AS line").selectExpr(*fields)


def table(found: list[Carrier]) -> Table:
    """For people."""
    shown = Table(
        box=SIMPLE_HEAD, title="Minutes late at departure, by Spark", title_justify="left", title_style="bold"
    )
    shown.add_column("carrier")
    for name in ("flights", "late", "in good weather", "in bad", "share in bad"):
        shown.add_column(name, justify="right")
    for each in found:
        shown.add_row(
            each.code, f"{each.flights:,}", minutes(each.delay), minutes(each.in_good), minutes(each.in_bad),
            f"{each.share_in_bad:.1%}",
        )  # fmt: skip
    return shown


def minutes(value: float | None) -> str:
    """With one decimal."""
    return "–" if value is None else f"{value:.1f}"
