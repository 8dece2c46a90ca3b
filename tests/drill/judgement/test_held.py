"""Test that the files of a stopped broker are read without it, and compared with what it served."""

from array import array

import pytest

import journal
from journal.vfs.filesystem import OSFilesystem
from tests.support.builders import small_files
from txbroker.drill.clients.reader import checksum_of
from txbroker.drill.judgement.held import check_files
from txbroker.drill.judgement.violation import Wrong

VALUES = [b"message %d" % number for number in range(20)]


@pytest.fixture
def data(tmp_path):
    with journal.open(tmp_path / "data", small_files()) as log:
        log.create_topic("t", partitions=2)
        for value in VALUES:
            log.append("t", value, partition=0)
    return tmp_path / "data"


@pytest.fixture
def served():
    return {("t", 0): array("I", map(checksum_of, VALUES)), ("t", 1): array("I")}


def found(data, served):
    return list(check_files(OSFilesystem(data), served))


def test_what_was_served_and_is_in_the_files_is_right(data, served):
    assert found(data, served) == []


def test_a_message_that_was_served_and_is_in_no_file_is_told(data, served):
    served["t", 0].append(7)
    (violation,) = found(data, served)
    assert (violation.wrong, violation.topic, violation.partition, violation.offset) == (
        Wrong.FILES,
        "t",
        0,
        20,
    )
    assert "the files hold 20 messages, the broker served 21" in violation.text


def test_a_message_that_was_served_otherwise_is_told_with_its_offset(data, served):
    served["t", 0][11] ^= 1
    (violation,) = found(data, served)
    assert violation.offset == 11


def test_a_partition_without_files_from_which_messages_were_served_is_told(data, served):
    served["t", 1].append(7)
    (violation,) = found(data, served)
    assert (violation.partition, violation.offset) == (1, 0)


def test_damage_is_told_with_its_file_also_where_nothing_was_served_from(data, served):
    (segment,) = (data / "partitions").glob("t-0.*/*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)
    del served["t", 0]
    violations = found(data, served)
    assert violations
    assert {violation.wrong for violation in violations} == {Wrong.FILES}
    assert segment.name in violations[0].text
