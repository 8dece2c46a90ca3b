"""Test that content from before a drill is missed if it goes, moves or changes, and only then."""

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from txbroker.drill.judgement.old_content import OldContent, compare_content, note_content

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.fixture
def connection(broker):
    with txbroker.connect(broker.address) as connection:
        yield connection
        for topic in connection.topics():
            connection.delete_topic(topic.name)
        for group in connection.groups():
            connection.delete_group(group.name)


@pytest.fixture
def old(connection):
    connection.create_topic("t", partitions=2)
    for number in range(5):
        connection.send(
            "t",
            b"%d" % number,
            key=b"k",
            headers={"h": b"v"},
            partition=number % 2,
            timestamp=10**15 + number,
        )
    connection.set_offsets("g", "t", {0: 2})
    return note_content(connection)


@pytest.fixture
def anew(broker, connection, old):
    """The topic is made anew, with other messages; by another connection, for this one still knows the old topic."""

    def anew(*messages):
        connection.delete_topic("t")
        with txbroker.connect(broker.address) as other:
            other.create_topic("t", partitions=2)
            for number, message in messages:
                usual = {
                    "value": b"%d" % number,
                    "key": b"k",
                    "headers": (("h", b"v"),),
                    "timestamp": 10**15 + number,
                }
                other.send("t", partition=number % 2, **(usual | message))

    return anew


def texts(old, connection):
    return [str(violation) for violation in compare_content(old, connection)]


def test_all_of_it_is_noted(old):
    assert old.messages == 5
    assert old.positions == {("g", "t", 0): 2}
    assert sorted(old.partitions) == [("t", 0), ("t", 1)]


def test_what_came_later_is_none_of_it(old, connection):
    connection.send("t", b"later", partition=0)
    connection.create_topic("u")
    connection.set_offsets("h", "t", {0: 1})
    assert texts(old, connection) == []


def test_a_topic_that_is_gone_is_missed(old, connection):
    connection.delete_topic("t")
    found = texts(old, connection)
    assert any("3 messages: the partition is not there (t-0, offset 0)" in text for text in found)
    assert any("group g stood at 2 and stands at None" in text for text in found)


@pytest.mark.parametrize(
    "change", [{"value": b"x"}, {"key": b"x"}, {"headers": ()}, {"timestamp": 10**15 + 77}, {"value": None}]
)
def test_a_message_of_which_anything_has_changed_is_missed(old, anew, connection, change):
    anew(*((number, change if number == 2 else {}) for number in range(5)))
    connection.set_offsets("g", "t", {0: 2})
    (text,) = texts(old, connection)
    assert "not what it was before the drill (t-0, offset 1)" in text


def test_messages_that_are_missing_at_the_end_are_missed(old, anew, connection):
    anew((0, {}))
    connection.set_offsets("g", "t", {0: 1})
    found = texts(old, connection)
    assert any("not there any more: offsets 1 to 2 (t-0, offset 1)" in text for text in found)
    assert any("not there any more: offsets 0 to 1 (t-1, offset 0)" in text for text in found)
    assert any("group g stood at 2 and stands at 1" in text for text in found)


def test_what_was_in_doubt_and_is_not_any_more_is_missed(old, connection):
    xid = connection.xid(7, "a", "b")
    connection.tpc_begin(xid)
    connection.send("t", b"in doubt")
    connection.tpc_prepare()
    old = note_content(connection)
    assert texts(old, connection) == []
    connection.tpc_rollback()
    assert any("7:a:b" in text for text in texts(old, connection))


def test_what_retention_may_drop_is_not_missed(old, connection):
    start, checksums = old.partitions["t", 0]
    checksums.insert(0, 99)  # as if one more had been there before the first
    moved = OldContent({("t", 0): (start - 1, checksums)}, set(), {}, set())
    assert any("nothing is to be dropped" in text for text in texts(moved, connection))
    moved.retained.add("t")
    assert texts(moved, connection) == []
