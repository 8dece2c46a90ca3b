"""A small analysis of the broker's messages with Spark: delays of flights by carrier and by weather."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.box import SIMPLE_HEAD
from rich.table import Table

from demo.source import FLIGHTS, WEATHER, columns_of

LEAST_FLIGHTS = 20
"""Carriers with fewer flights than this are left out: their mean would say nothing."""

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
"""Flights that left, with the weather of that hour at their airport. Bad weather is rain, snow, or sight below 3 miles.
"""


class Carrier(NamedTuple):
    """A carrier: its number of flights, and their mean delay in minutes by weather; None where it had no such
    flights.
    """

    code: str
    flights: int
    delay: float
    in_bad: float | None
    in_good: float | None
    share_in_bad: float


def delays(spark: SparkSession, data: str) -> list[Carrier]:
    """Return the carriers, the most delayed first, from the logs of a data directory."""
    for topic in (FLIGHTS, WEATHER):
        rows(spark, data, topic).createOrReplaceTempView(topic)
    return [Carrier(*row) for row in spark.sql(QUERY).collect()]


def rows(spark: SparkSession, data: str, topic: str) -> DataFrame:
    """Return the rows of the source as text columns, taken from the messages' values; NULL where a row is too short."""
    log = spark.read.format("txbroker").option("path", data).option("subscribe", topic).load()
    fields = [f"get(line, {place}) AS {name}" for place, name in enumerate(columns_of(topic))]
    return log.selectExpr("split(CAST(value AS STRING), ',') AS line").selectExpr(*fields)


def table(found: list[Carrier]) -> Table:
    """Return the carriers as a table."""
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
    """Return minutes with one decimal."""
    return "–" if value is None else f"{value:.1f}"
