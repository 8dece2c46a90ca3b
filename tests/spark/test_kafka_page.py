"""Test that what docs/spark_kafka.md says of options is true for every option."""

import re

from spark.sink.options import OPTIONS as SINK_OPTIONS
from spark.source.columns import AS_KAFKA
from spark.source.options import _READERS
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "spark_kafka.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
OF_KAFKA = {
    *(
        "kafka.bootstrap.servers",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
    ),
    *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs"),
    *(
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
    ),
    *("maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id"),
    "includeHeaders",
}
"""Options of the source in the guide of Spark 4 to Kafka."""


OPTIONS, COLUMNS = SECTIONS["Reading"].split("\n| column |")


def table(text):
    """Names in the first two columns."""
    rows = re.findall(r"^\| (`[^|]*)\|([^|]*)\|", text, re.MULTILINE)
    return [tuple(re.findall(r"`([^`]+)`", cell) for cell in row) for row in rows]


def test_every_option_of_kafkas_source_has_a_line():
    assert {name for kafka, _ in table(OPTIONS) for name in kafka} >= OF_KAFKA


def test_every_option_that_a_line_names_is_one_and_every_option_is_named():
    assert {name for _, ours in table(OPTIONS) for name in ours} <= {*_READERS}
    assert {*_READERS} - {*re.findall(r"`([^`]+)`", SECTIONS["Reading"])} == set()
    assert {name for _, ours in table(SECTIONS["Writing"]) for name in ours} <= {*SINK_OPTIONS}


def test_an_option_that_both_have_stands_beside_itself():
    for kafka, ours in table(OPTIONS):
        assert [name for name in kafka if name in _READERS] in ([], ours)


def test_the_columns_are_those_that_there_are():
    columns = {name for kafka, _ in table(COLUMNS) for name in kafka}
    assert columns == {*AS_KAFKA} - {"transaction", "xid"}
