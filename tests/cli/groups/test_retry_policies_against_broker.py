"""``txbroker groups alter``, and what shows a group's policy and its stopped messages, with a real broker."""

import re

import pytest

import txbroker
from txbroker import RetryPolicy

pytestmark = pytest.mark.slow

USUAL = {"attempts": 5, "pause": 1.0, "longest": 300.0, "ending": "dead_letter", "dead_letter_topic": None}
BY_ITSELF = "A message that fails comes again when its program says so."


@pytest.fixture
def group(topic, connection):
    """A group with a position and three messages."""
    for number in range(3):
        connection.send(topic, b"%d" % number, partition=0)
    connection.set_offsets(topic, topic, {0: 0})
    return topic


@pytest.fixture
def stopped(group, url):
    """A group that has stopped two messages."""
    with txbroker.connect(url, client="test") as own:
        own.alter_group(group, retry=RetryPolicy(1, ending="stop"))
        consumer = own.consume(group, group=group, partitions=[0], order=None)
        consumer.retry([next(consumer) for _ in range(2)], why="no database")
    return group


def one_line(result):
    return " ".join(result.stdout.split())


class TestAlter:
    def test_what_is_not_said_is_as_usual_first_and_stays_later(self, run, run_json, connection, group):
        said = run_json("groups", "alter", group, "--attempts", "9")
        assert said == {"group": group, "retry": USUAL | {"attempts": 9}, "expiry": None, "tags": []}
        run("groups", "alter", group, "--pause", "250ms", "--longest", "1h")
        run("groups", "alter", group, "--ending", "stop")
        assert connection.describe_group(group).retry == RetryPolicy(9, 0.25, 3600.0, "stop")
        assert run_json("groups", "alter", group, "--pause", "0")["retry"]["pause"] == 0

    def test_it_says_what_holds_from_now_on(self, run, group):
        shown = one_line(run("groups", "alter", group, "--attempts", "20", "--ending", "drop"))
        assert shown == (
            f"Group {group}: A message that fails comes again after 1 s, then after "
            "twice as long each time, up to 300 s. After 20 attempts it is finished."
        )
        assert one_line(run("groups", "alter", group, "--no-retry")) == f"Group {group}: {BY_ITSELF}"

    def test_a_policy_can_be_taken_away(self, run_json, connection, group):
        run_json("groups", "alter", group, "--attempts", "9")
        assert run_json("groups", "alter", group, "--no-retry")["retry"] is None
        assert connection.describe_group(group).retry is None

    def test_a_group_that_is_not_there_is_made_and_keeps_it_without_a_position(self, run, run_json, topic):
        name = f"new-{topic}"
        run("groups", "alter", name, "--attempts", "2")
        assert name in [each["name"] for each in run_json("groups", "list")]
        assert run_json("groups", "describe", name)["retry"] == USUAL | {"attempts": 2}
        assert "After 2 attempts" in one_line(run("groups", "describe", name))
        run("groups", "delete", name, "--yes")
        run("groups", "describe", name, code=1)

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (
                (),
                "say what is to change: --attempts, --pause, --longest, --ending, --dead-letter-topic, --no-retry",
            ),
            (("--no-retry", "--pause", "1s"), "say --no-retry, or --pause"),
            (("--attempts", "0"), "--attempts"),
            (("--attempts", "1001"), "--attempts"),
            (("--pause", "1"), "has no unit"),
            (("--ending", "skip"), "--ending"),
            (("--pause", "10m"), "pause is 600.0, of type float; it must be longest=300 s at most"),
            (("--longest", "367d"), "it must be 366 days at most"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_2_and_changes_nothing(
        self, run, connection, group, words, told
    ):
        refused = run("groups", "alter", group, *words, code=2)
        assert told in " ".join(refused.stderr.split())
        assert connection.describe_group(group).retry is None


class TestShown:
    def test_a_group_is_described_with_its_policy(self, run, run_json, group):
        assert run_json("groups", "describe", group)["retry"] is None
        assert BY_ITSELF in one_line(run("groups", "describe", group))
        run("groups", "alter", group, "--ending", "stop")
        assert run_json("groups", "describe", group)["retry"] == USUAL | {"ending": "stop"}
        assert (
            "A message that fails comes again after 1 s, then after "
            "twice as long each time, up to 300 s. After 5 attempts it waits for an operator."
        ) in one_line(run("groups", "describe", group))

    def test_a_stopped_message_is_listed_as_that(self, run, run_json, stopped):
        found = run_json("groups", "parked", stopped)
        assert [(p["offset"], p["attempts"], p["stopped"], p["dead"], p["due"]) for p in found] == [
            (0, 1, True, False, 0),
            (1, 1, True, False, 0),
        ]
        assert re.search(r"0 +1 +stopped +no database", run("groups", "parked", stopped).stdout)

    def test_an_operator_has_a_stopped_message_tried_again_or_finished(
        self, run, run_json, url, connection, stopped
    ):
        run("groups", "retry", stopped, stopped, "0", "0")
        assert [p["stopped"] for p in run_json("groups", "parked", stopped)] == [False, True]
        run("groups", "skip", stopped, stopped, "0", "1", "--yes")
        with txbroker.connect(url, client="test") as own:
            again = own.consume(stopped, group=stopped, partitions=[0]).poll(5.0)
        assert [(each.offset, each.attempts) for each in again][:1] == [(0, 1)]
        assert 1 not in [each.offset for each in again]
