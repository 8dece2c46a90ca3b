"""Test the options of a write: their case does not matter, and all are checked before anything is written."""

import re

import pytest

from spark.sink.branches import Write
from spark.sink.options import OPTIONS, SinkOptions, parse
from spark.source.options import read_options
from tests.support.repository import DOCS
from txbroker.errors import InvalidName, InvalidSetting, Misuse

HERE = "tcp:127.0.0.1:7654"
DOCS = DOCS / "spark.md"


def test_what_is_not_said_has_its_default():
    assert parse({"broker": HERE}) == SinkOptions(HERE)


def test_every_option_is_read_in_any_case_and_those_of_spark_are_left_alone():
    given = {
        "BROKER": HERE, "topic": "t", "Partitioner": "NONE", "batchBytes": "64k", "branchbytes": "1m",
        "branchSeconds": "2.5", "timeout": "7", "auditTopic": "reports", "txnAppId": "nightly", "txnVersion": "12",
        "checkpointLocation": "/somewhere", "path": "/else",
    }  # fmt: skip
    assert parse(given) == SinkOptions(
        HERE, "t", False, 64 << 10, 1 << 20, 2.5, 7.0, "reports", Write("nightly.47mKTa", 12)
    )


def test_a_write_by_name_is_another_one_for_another_topic():
    named = {"broker": HERE, "txnAppId": "a" * 36, "txnVersion": "1"}
    found = {
        parse(named | topic).write for topic in ({}, {"topic": "t"}, {"topic": "T"}, {"topic": "t" * 249})
    }
    assert len(found) == 4
    assert parse(named | {"topic": "t"}) == parse(named | {"topic": "t", "compression": "zstd"})._replace(
        compression=None
    )
    for each in found:
        each.check()
    with pytest.raises(InvalidName, match="names are 1 to 36 characters"):
        parse(named | {"txnAppId": "a" * 37})


@pytest.mark.parametrize(("said", "seconds"), [("90", 90.0), ("30s", 30.0), ("500ms", 0.5), ("2m", 120.0)])
def test_a_time_is_written_as_for_reading(said, seconds):
    assert parse({"broker": HERE, "timeout": said}).timeout == seconds
    assert read_options({"path": "/data", "subscribe": "t", "timeout": said}).timeout == seconds


@pytest.mark.parametrize(
    ("said", "size"),
    [
        *(("65536", 65536), ("64KiB", 64 << 10), ("64k", 64 << 10), ("64K", 64 << 10), ("64kb", 64 << 10)),
        *(("15m", 15 << 20), ("15MiB", 15 << 20), ("1g", 1 << 30), ("1t", 1 << 40), ("7b", 7)),
    ],
)
def test_a_size_is_written_as_everywhere_or_as_in_spark(said, size):
    assert parse({"broker": HERE, "branchBytes": said}).branch_bytes == size


@pytest.mark.parametrize(
    ("said", "seconds"), [("1h30m", 5400.0), ("2.5", 2.5), ("1d", 86400.0), ("30S", 30.0)]
)
def test_a_time_is_written_as_everywhere_and_a_plain_number_is_seconds(said, seconds):
    assert parse({"broker": HERE, "branchSeconds": said}).branch_seconds == seconds


def test_the_docs_have_every_option_with_its_default_and_no_other():
    part = DOCS.read_text().partition("## Writing exactly once")[2].partition("### The protocol")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", part.partition("| option | default |")[2], re.MULTILINE)
    told = {name: default.strip(" `") for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    assert [*told] == [*OPTIONS]
    for name, default in told.items():
        field, reader = OPTIONS[name]
        if default:
            assert reader(name, default) == SinkOptions._field_defaults[field], name
        else:
            assert not SinkOptions._field_defaults.get(field), name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the option 'broker' must say which broker"),
        ({"broker": HERE, "topics": "t"}, "there is no option 'topics'; did you mean topic"),
        ({"broker": HERE, "partitioner": "murmur"}, "option 'partitioner' is 'murmur', it must be 'key' or 'none'"),
        ({"broker": HERE, "BATCHBYTES": "0"}, "option 'batchBytes' is '0', it must be a size"),
        ({"broker": HERE, "branchBytes": "1x"}, "option 'branchBytes' is '1x', it must be a size"),
        ({"broker": HERE, "branchBytes": "many"}, "option 'branchBytes' is 'many', it must be a size"),
        ({"broker": HERE, "branchSeconds": "0"}, "option 'branchSeconds' is '0', it must be a time above 0"),
        ({"broker": HERE, "timeout": "nan"}, "option 'timeout' is 'nan', it must be a time above 0"),
        ({"broker": HERE, "txnAppId": "a"}, "txnAppId and txnVersion name a write together"),
        ({"broker": HERE, "txnVersion": "1"}, "txnAppId and txnVersion name a write together"),
        ({"broker": HERE, "txnAppId": "a", "txnVersion": "-1"}, "option 'txnVersion' is '-1', it must be a whole"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(InvalidSetting, match=said) as caught:
        parse(given)
    assert "nothing was written" in str(caught.value)


def test_an_address_and_a_name_are_checked_too():
    with pytest.raises(Misuse, match="is not a broker's address"):
        parse({"broker": "kafka:9092"})
    with pytest.raises(InvalidName, match="nothing was written"):
        parse({"broker": HERE, "txnAppId": "a/b", "txnVersion": "1"})
