"""``txbroker dead`` against a real broker."""

import re

import pytest

import txbroker

pytestmark = pytest.mark.slow


def until_moved(connection, topic, count):
    """Wait for so many dead letters."""
    while not connection.topics([f"{topic}.dead"]):
        connection.topics([topic])
    consumer = connection.consume(f"{topic}.dead")
    return [next(consumer) for _ in range(count)]


@pytest.fixture
def letters(topic, url):
    """A group has given up two messages of partition 0."""
    with txbroker.connect(url, client="test") as own:
        for number in range(4):
            own.send(topic, b"value %d" % number, key=b"k", partition=0, headers={"h": b"1"})
        consumer = own.consume(topic, group=topic, partitions=[0])
        messages = [next(consumer) for _ in range(4)]
        consumer.dead_letter(messages[1:3], why="poison")
        until_moved(own, topic, 2)
        consumer.done([messages[0], messages[3]])
    return topic


def test_letters_are_listed_and_shown(run, run_json, letters):
    text = run("dead", "list", letters).stdout
    assert re.search(rf"0 +0 +{letters} +{letters}\[0\] 1 +1 +20.* +poison", text)
    found = run_json("dead", "list", letters, "--limit", "1")
    assert [(each["offset"], each["value"]) for each in found] == [(0, "value 1")]
    assert run_json("dead", "list", letters, "--group", "other") == []
    shown = run("dead", "show", letters, "0", "1").stdout
    assert "value 2" in shown
    assert re.search("txbroker.dead.offset +2", shown)
    assert run("dead", "show", letters, "0", "2", code=1).stdout == ""


def test_a_topic_without_letters_has_none(run, run_json, topic):
    assert "no dead letters" in run("dead", "list", topic).stdout
    assert run_json("dead", "list", topic) == []
    run("dead", "list", "nowhere", code=1)
    run("dead", "resend", topic, "0", "0", code=1)


def test_a_letter_is_sent_again_for_its_group(run, url, letters):
    run("dead", "resend", letters, "0", "1")
    with txbroker.connect(url, client="test") as own:
        consumer = own.consume(letters, group=letters, partitions=[0])
        again = next(consumer)
        assert (again.offset, again.value) == (2, b"value 2")
        assert consumer.poll(0.1) == []


def test_a_copy_is_sent_to_all(run, url, letters):
    assert (
        "All groups" in run("dead", "resend", letters, "0", "0", "--to", letters, code=2, partly=True).stderr
    )
    run("dead", "resend", letters, "0", "0", "--to", letters, "--yes")
    with txbroker.connect(url, client="test") as own:
        copy = list(own.consume(letters, follow=False))[-1]
    assert (copy.value, copy.key, copy.headers) == (b"value 1", b"k", (("h", b"1"),))


def test_what_retention_has_removed_is_refused(run, url, letters):
    with txbroker.connect(url, client="test") as own:
        own.purge(letters, {0: 3})
    run("dead", "resend", letters, "0", "1", code=3)


def test_letters_are_dropped_from_the_oldest_on(run, run_json, letters):
    assert run_json("dead", "drop", letters, "0", "0", "--yes")["dropped"] == 1
    assert [each["offset"] for each in run_json("dead", "list", letters)] == [1]
    assert run_json("dead", "drop", letters, "0", "9", "--yes")["dropped"] == 1
    assert run_json("dead", "list", letters) == []


def test_a_message_that_is_no_letter_has_no_group(run, url, letters):
    with txbroker.connect(url, client="test") as own:
        own.send(f"{letters}.dead", b"by hand", partition=0)
    assert "does not say" in run("dead", "resend", letters, "0", "2", code=1).stderr


def test_a_topic_of_dead_letters_is_named_itself_if_a_group_has_one_for_all(run, run_json, topic, url):
    shared = f"{topic}.all.dead"
    group = f"group-{topic}"
    said = run_json("groups", "alter", group, "--attempts", "1", "--dead-letter-topic", shared)
    assert said["retry"]["dead_letter_topic"] == shared
    assert f"goes to {shared}." in run("groups", "describe", group).stdout.replace("\n", " ")
    with txbroker.connect(url, client="test") as own:
        own.send(topic, b"value", partition=0)
        consumer = own.consume(topic, group=group, partitions=[0])
        consumer.retry(next(consumer), why="poison")
        while not own.topics([shared]):
            own.topics([topic])
        assert next(own.consume(shared)).value == b"value"
    assert re.search(rf"0 +0 +{group} +{topic}\[0\] 0 +1 ", run("dead", "list", shared).stdout)
    assert [each["value"] for each in run_json("dead", "list", shared, "--group", group)] == ["value"]
    assert "poison" in run("dead", "show", shared, "0", "0").stdout
    run("dead", "resend", shared, "0", "0")
    assert run_json("dead", "drop", shared, "0", "0", "--yes")["dropped"] == 1
    assert run_json("dead", "list", shared) == []
    said = run_json("groups", "alter", group, "--dead-letter-topic", "")
    assert said["retry"]["dead_letter_topic"] is None


def test_a_group_is_told_when_it_expires(run, run_json, topic):
    assert run_json("groups", "alter", topic, "--expiry", "30d") == {
        "group": topic,
        "retry": None,
        "expiry": 2592000.0,
        "tags": [],
    }
    assert "deleted once nobody has used it for 30d" in run("groups", "describe", topic).stdout.replace(
        "\n", " "
    )
    assert "never expires" in run("groups", "alter", topic, "--expiry", "never").stdout
    assert run_json("groups", "alter", topic, "--expiry", "usual")["expiry"] is None
    for wrong, says in (("59s", "less than 1m"), ("soon", "is not a duration"), ("60", "has no unit")):
        assert says in run("groups", "alter", topic, "--expiry", wrong, code=2).stderr
    assert "say what is to change" in run("groups", "alter", topic, code=2).stderr
