"""``txbroker send --after`` and ``txbroker scheduled`` against a real broker."""

import json
import re

import pytest

from tests.cli.invocations import lines
from txbroker.cli.commands.scheduled import HOLDS

pytestmark = pytest.mark.slow


def later(run, topic, *arguments):
    return [each["scheduled"] for each in lines(run("send", topic, *arguments, "--json"))]


class TestSending:
    def test_a_message_for_later_is_told_with_its_id(self, run, topic):
        told = run("send", topic, "a", "--after", "10m").stdout
        assert re.fullmatch(
            rf"Scheduled 1 message for {topic}, due in 10m, forced: 1-\d+-[0-9a-f]{{8}}\.\n", told
        )
        told = run("send", topic, "a", "b", "--at", "2036-01-01T08:00:00+02:00").stdout
        assert told.startswith(
            f"Scheduled 2 messages for {topic}, due at 2036-01-01T06:00:00.000Z, forced: 7-"
        )
        assert "list them with" in run("send", topic, *"abcdefghijk", "--after", "1h").stdout

    def test_it_comes_when_it_is_due(self, run, topic):
        [first] = later(run, topic, "soon", "--after", "0s")
        found = run("tail", topic, "--count", "1", "--follow", "--json")
        assert lines(found)[0]["value"] == "soon"
        assert run("scheduled", "show", first).stdout.splitlines()[1].split() == ["state", "sent"]

    def test_what_is_no_time_is_refused(self, run, topic):
        assert "not both" in run("send", topic, "a", "--after", "1h", "--at", "now", code=2).stderr
        assert "not a duration" in run("send", topic, "a", "--after", "soon", code=2).stderr
        assert "ten years" in run("send", topic, "a", "--after", "4000d", code=3).stderr
        assert "ten years" in run("send", topic, "a", "--at", "2096-01-01", code=3).stderr


class TestLooking:
    def test_what_waits_is_listed_as_it_comes_due(self, run, run_json, topic):
        [late] = later(run, topic, "late", "--after", "3d", "--header", "txbroker.id=order-42")
        [soon] = later(run, topic, "soon", "--after", "1h")
        listed = run_json("scheduled", "list", "--topic", topic)
        found = listed.pop("messages")
        assert listed == {"more": 0, "is_filtered": False, "holds": False, "unreadable": 0}
        assert [each["id"] for each in found] == [soon, late]
        assert (found[1]["message_id"], found[1]["clock"], found[1]["state"]) == (
            "order-42",
            "elapsed",
            "waits",
        )
        assert 3 * 86_400e6 - 60e6 < found[1]["due_in"] <= 3 * 86_400e6
        table = run("scheduled", "list", "--topic", topic).stdout
        assert [line.split()[0] for line in table.splitlines()[2:]] == [soon, late]
        assert "order-42" in table
        assert "1 message more." in run("scheduled", "list", "--topic", topic, "--limit", "1").stdout
        assert run("scheduled", "list", "--topic", "none").stdout == "No messages are scheduled for none.\n"

    def test_a_message_is_shown_with_its_content(self, run, run_json, topic):
        [given] = later(run, topic, "remind", "--after", "1h", "--key", "42", "--header", "kind=x")
        told = run("scheduled", "show", given).stdout
        for part in (
            "waits",
            f"{topic}, partition ",
            "(in 59m ",
            "time that passes",
            "header kind",
            "remind",
        ):
            assert part in told
        found = run_json("scheduled", "show", given)
        assert (found["value"], found["key"], found["headers"]) == ("remind", "42", [["kind", "x"]])
        run("scheduled", "show", "0-999999-00000000", code=1)
        assert "3-1042-9f8e7d6c" in run("scheduled", "show", "nonsense", code=2).stderr


class TestTakingBack:
    def test_messages_are_taken_back_by_their_ids(self, run, topic):
        ids = later(run, topic, "a", "b", "--after", "1h")
        assert run("scheduled", "cancel", *ids).stdout == f"Taken back: {', '.join(ids)}.\n"
        assert run("scheduled", "cancel", ids[0]).stdout == f"Taken back: {ids[0]}.\n"
        assert "cancelled" in run("scheduled", "show", ids[0]).stdout

    def test_what_cannot_be_taken_back_does_not_keep_the_others(self, run, topic):
        [waits] = later(run, topic, "a", "--after", "1h")
        [sent] = later(run, topic, "b", "--after", "0s")
        run("tail", topic, "--count", "1", "--follow")
        told = json.loads(run("scheduled", "cancel", sent, waits, "--json", code=3, partly=True).stdout)
        assert told["cancelled"] == [waits]
        assert [(each["id"], each["error"]) for each in told["refused"]] == [(sent, "AlreadySent")]
        told = run("scheduled", "cancel", "0-999999-00000000", waits, code=1, partly=True)
        assert told.stdout == f"Taken back: {waits}.\n"
        assert "NotScheduled: there is no scheduled message 0-999999-00000000" in told.stderr
        run("scheduled", "cancel", "0-999999-00000000", "--json", code=1)

    def test_messages_are_taken_back_by_the_id_of_their_sender(self, run, topic):
        ids = later(run, topic, "a", "b", "--after", "1h", "--header", f"txbroker.id={topic}")
        assert run("scheduled", "cancel", "--message-id", topic).stdout == f"Taken back: {', '.join(ids)}.\n"
        assert "the id 'never'" in run("scheduled", "cancel", "--message-id", "never", code=1).stderr

    def test_one_says_which(self, run):
        run("scheduled", "cancel", code=2)
        run("scheduled", "cancel", "0-1-00000000", "--message-id", "x", code=2)


def test_nothing_is_held_as_long_as_the_clock_is_right(run):
    assert run("scheduled", "release").stdout == "Nothing was held.\n"
    assert "scheduled release" in HOLDS


def test_a_topic_is_deleted_only_with_what_is_scheduled_for_it(run, topic):
    later(run, topic, "a", "--after", "1h")
    assert "ScheduledForTopic" in run("topics", "delete", topic, "--yes", code=3).stderr
    asked = run("topics", "delete", topic, "--scheduled", stdin="n\n", code=1)
    assert "and 1 that are scheduled for it" in asked.stdout + asked.stderr
    run("topics", "delete", topic, "--scheduled", "--yes")


def test_the_schedule_is_listed_as_the_brokers_own(run, topic):
    later(run, topic, "a", "--after", "1h")
    assert "txbroker.schedule" in run("topics", "list").stdout
