"""Every name made is parsed back, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import InvalidName
from journal.formats import filenames
from journal.formats.filenames import PartitionName, SegmentKind, SegmentName, StagedName
from journal.vfs.filesystem import check_path

numbers = st.integers(min_value=0, max_value=2**64 - 1)
topics = st.text("abzAZ059._-", min_size=1, max_size=200).filter(lambda name: name not in (".", ".."))
PARSERS = (
    filenames.parse_journal_file,
    filenames.parse_checkpoint_file,
    filenames.parse_staged_file,
    filenames.parse_partition_directory,
    filenames.parse_segment_file,
)


def bare(path: str, directory: str) -> str:
    parent, _, name = path.rpartition("/")
    assert parent == directory
    assert check_path(path) == path
    return name


def test_names_are_laid_out_as_the_documents_say():
    assert filenames.journal_file(7) == "journal/00000000000000000000000000000007.journal"
    assert filenames.checkpoint_file(8) == "checkpoints/00000000000000000000000000000008.checkpoint"
    assert filenames.staged_file(3, 14) == "staged/3-14.staged"
    directory = filenames.partition_directory("orders", 0, 17)
    assert directory == "partitions/orders-0.17"
    log = filenames.segment_file(directory, 0, SegmentKind.LOG)
    assert log == "partitions/orders-0.17/00000000000000000000000000000000.log"
    assert filenames.recycled_file(7) == f"journal/{7:032d}.recycled"
    assert filenames.parse_recycled_file(f"{7:032d}.recycled") == 7
    assert filenames.parse_recycled_file(f"{7:032d}.journal") is None
    assert (filenames.SPARE_NEXT, filenames.SPARE_FILLING) == ("journal/spare.next", "journal/spare.filling")


@given(numbers)
def test_the_name_of_a_journal_file_gives_its_first_lsn_back(lsn):
    assert filenames.parse_journal_file(bare(filenames.journal_file(lsn), "journal")) == lsn


@given(numbers)
def test_the_name_of_a_checkpoint_gives_its_lsn_back(lsn):
    path = filenames.checkpoint_file(lsn)
    assert filenames.parse_checkpoint_file(bare(path, "checkpoints")) == lsn


@given(numbers, numbers)
def test_the_name_of_a_staged_file_gives_its_transaction_back(session, serial):
    path = filenames.staged_file(session, serial)
    assert filenames.parse_staged_file(bare(path, "staged")) == StagedName(session, serial)


@given(topics, numbers, numbers)
def test_the_name_of_a_partition_gives_topic_index_and_number_back(topic, index, number):
    path = filenames.partition_directory(topic, index, number)
    parsed = filenames.parse_partition_directory(bare(path, "partitions"))
    assert parsed == PartitionName(topic, index, number)


@given(numbers, st.sampled_from(SegmentKind))
def test_the_name_of_a_segment_gives_its_base_offset_and_kind_back(base, kind):
    path = filenames.segment_file("partitions/a-0.1", base, kind)
    assert filenames.parse_segment_file(bare(path, "partitions/a-0.1")) == SegmentName(base, kind)


@given(numbers, numbers)
def test_names_sort_as_their_numbers_do(one, other):
    assert (filenames.journal_file(one) < filenames.journal_file(other)) == (one < other)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "lost+found",
        "spare.next",
        "spare.filling",
        "7.journal",
        "0000000000000000000000000000000x.journal",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 32 + ".journal",
        "0" * 33 + ".log",
        "0" * 32 + ".log\n",
        "0" * 32 + ".log~",
        "0" * 32 + ".journal.bak",
        "0" * 32 + ".checkpoint.tmp",
        "-1-2.staged",
        "01-2.staged",
        "1-2.staged.tmp",
        "orders-0",
        "orders-00.1",
        "orders.1",
        "-0.1",
        "..-0.1",
        "a/b-0.1",
        "orders-0.1\n",
        "x" * 201 + "-0.1",
    ],
)
def test_a_foreign_name_is_never_taken_for_one_of_ours(parse, name):
    assert parse(name) is None


def test_a_parser_takes_no_other_kinds_names():
    ours = {
        filenames.parse_journal_file: "0" * 32 + ".journal",
        filenames.parse_checkpoint_file: "0" * 32 + ".checkpoint",
        filenames.parse_staged_file: "1-2.staged",
        filenames.parse_segment_file: "0" * 32 + ".time",
    }
    for parse in ours:
        assert [name for name in ours.values() if parse(name) is not None] == [ours[parse]]


def test_only_unfinished_files_of_our_own_are_temporary():
    for path in (filenames.checkpoint_file(1), filenames.staged_file(1, 2)):
        name = path.split("/")[1]
        assert filenames.is_temporary(filenames.temporary(name))
        assert not filenames.is_temporary(name)
    assert not filenames.is_temporary("notes.tmp")
    assert not filenames.is_temporary(".tmp")


@given(topics)
def test_a_plain_topic_name_is_accepted(name):
    filenames.check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "/x", "a\0", "a\n", "a b", "ä", "a:b", "x" * 201]
)
def test_a_topic_name_that_could_be_a_path_or_confuse_a_terminal_is_refused(name):
    with pytest.raises(InvalidName, match=r"nothing was made or changed\. Use 1 to 200"):
        filenames.check_topic_name(name)
    with pytest.raises(InvalidName):
        filenames.partition_directory(name, 0, 1)


def test_a_refusal_shows_only_the_start_of_an_endless_name():
    with pytest.raises(InvalidName, match=r"\(1000000 characters\)") as caught:
        filenames.check_topic_name("x" * 1_000_000)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=12))
def test_a_name_that_is_accepted_never_leaves_its_directory(name):
    try:
        path = filenames.partition_directory(name, 0, 1)
    except InvalidName:
        return
    assert bare(path, "partitions") == f"{name}-0.1"


def test_numbers_that_no_name_can_hold_are_a_fault_of_the_caller():
    with pytest.raises(ValueError, match="negative"):
        filenames.journal_file(-1)
    with pytest.raises(ValueError, match="negative"):
        filenames.staged_file(0, -1)
    with pytest.raises(ValueError, match="32 digits"):
        filenames.checkpoint_file(10**32)
