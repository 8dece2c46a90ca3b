"""Test ``txbroker topics`` and ``txbroker status`` with a real broker, and the common behaviour of all commands."""

import json
import signal
import socket
import time
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from tests.cli.invocations import Meanwhile, process
from txbroker.cli import command_line

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker_settings():
    return ["outcome_archive=on"]


class TestTopics:
    def test_a_topic_is_created_with_its_settings_and_described(self, run_json):
        made = run_json(
            "topics",
            "create",
            "orders",
            "--partitions",
            "3",
            "--set",
            "retention_age=7d",
            "--set",
            "segment_bytes=1MiB",
        )
        assert len(made["partitions"]) == 3
        assert (made["settings"]["retention_age"], made["settings"]["segment_bytes"]) == (
            604_800_000_000,
            1 << 20,
        )
        assert run_json("topics", "describe", "orders") == made
        assert made in run_json("topics", "list")

    def test_people_get_tables(self, run, topic):
        listed = run("topics", "list").stdout
        assert listed.splitlines()[0].split() == ["topic", "partitions", "messages", "bytes"]
        assert topic in listed
        described = run("topics", "describe", topic).stdout
        assert "keep everything" in described
        assert "start offset" in described

    def test_what_the_broker_keeps_for_itself_is_listed_apart_and_nobody_changes_it(
        self, run, run_json, topic
    ):
        ours, own = run("topics", "list").stdout.split("kept by the broker itself")
        assert topic in ours
        assert "txbroker.outcomes" not in ours
        assert "txbroker.outcomes" in own
        internal = {each["name"]: each["internal"] for each in run_json("topics", "list")}
        assert (internal[topic], internal["txbroker.outcomes"]) == (False, True)
        for command in (
            ("topics", "delete", "txbroker.outcomes", "--yes"),
            ("topics", "create", "txbroker.mine"),
        ):
            assert "the broker's own" in run(*command, code=3).stderr
        assert "the broker's own" in run("send", "txbroker.outcomes", "forged", code=3).stderr

    def test_a_topic_that_exists_is_refused(self, run, topic):
        assert "TopicExists" in run("topics", "create", topic, code=3).stderr

    def test_a_topic_that_does_not_exist_is_a_no(self, run):
        run("topics", "describe", "nothing", code=1)
        run("topics", "delete", "nothing", "--yes", code=1)

    @pytest.mark.parametrize(
        "command",
        [
            "topics describe nothing",
            "topics delete nothing --yes",
            "send nothing x",
            "send {topic} x --partition 9",
            "tail nothing",
            "tail {topic} --partition 9",
            "groups describe nothing",
            "groups delete nothing --yes",
            "groups reset nothing --to-latest",
            "transactions show 7:nobody:nothing",
            "transactions show 1-1",
            "transactions commit 7:nobody:nothing --why x --yes",
            "transactions rollback 7:nobody:nothing 1-1 --why x --yes",
            "transactions forget 7:nobody:nothing --why x --yes",
        ],
    )
    def test_what_is_not_there_is_a_no_whatever_is_asked_of_it(self, run, topic, command):
        said = run(*command.format(topic=topic).split(), code=1)
        assert (said.stdout, said.stderr.startswith("Error: ")) == ("", True)

    def test_one_that_exists_can_be_left_as_it_is(self, run, run_json, topic, connection):
        before = run_json("topics", "describe", topic)
        assert run_json("topics", "create", topic, "--if-not-exists") == before
        same = run("topics", "create", topic, "--if-not-exists", "--partitions", "2")
        assert same.stdout == f"Topic {topic} is there already, with 2 partitions.\n"
        assert same.stderr == ""
        other = run(
            "topics", "create", topic, "--if-not-exists", "--partitions", "7", "--set", "retention_age=1d"
        )
        assert other.stderr == (
            f"topic {topic} exists already and is not changed: it has 2 partitions, not 7; "
            "its retention_age is None, not 1d\n"
        )
        assert run_json("topics", "describe", topic) == before

    def test_one_that_does_not_exist_is_created_all_the_same(self, run, connection):
        made = run("topics", "create", "if-not", "--if-not-exists", "--partitions", "3")
        assert made.stdout == "Created topic if-not with 3 partitions.\n"
        assert len(connection.topics(["if-not"])[0].partitions) == 3

    def test_deleting_asks_and_a_no_changes_nothing(self, run, topic, connection):
        run("topics", "delete", topic, stdin="n\n", code=1)
        assert connection.topics([topic])
        run("topics", "delete", topic, stdin="", code=2)
        assert connection.topics([topic])
        run("topics", "delete", topic, stdin="y\n")
        assert not connection.topics([topic])

    def test_the_topic_that_was_shown_is_deleted_and_not_one_made_anew_while_it_was_asked(
        self, run, topic, connection
    ):
        def meanwhile():
            connection.delete_topic(topic)
            connection.create_topic(topic)

        failed = run("topics", "delete", topic, stdin=Meanwhile(b"y\n", meanwhile), code=1, partly=True)
        assert "was made since" in " ".join(failed.stderr.split())
        assert connection.topics([topic])

    def test_altering_changes_what_was_named_and_shows_both(self, run, run_json, topic):
        before = run_json("topics", "describe", topic)["settings"]
        shown = run("topics", "alter", topic, "--set", "retention_age=7d", "--set", "force_messages=9").stdout
        assert "keep everything" in shown
        assert "7d" in shown
        after = run_json("topics", "describe", topic)["settings"]
        assert after == before | {"retention_age": 7 * 86_400_000_000, "force_messages": 9}
        assert (
            run_json("topics", "alter", topic, "--set", "retention_age=none")["settings"]["retention_age"]
            is None
        )
        run("topics", "alter", topic, code=2)
        run("topics", "alter", topic, "--set", "colour=1", code=2)
        run("topics", "alter", "nothing", "--set", "force_messages=9", code=1)

    def test_more_partitions_are_shown_with_those_from_before_and_are_never_fewer(self, run, run_json, topic):
        before = len(run_json("topics", "describe", topic)["partitions"])
        wanted = str(before + 2)
        shown = run("topics", "alter", topic, "--partitions", wanted, "--set", "force_messages=9").stdout
        assert shown.split("partitions")[1].split()[:2] == [str(before), wanted]
        described = run_json("topics", "describe", topic)
        assert (len(described["partitions"]), described["settings"]["force_messages"]) == (before + 2, 9)
        assert run_json("topics", "alter", topic, "--partitions", wanted)["settings"] == described["settings"]
        failed = run("topics", "alter", topic, "--partitions", str(before), code=3)
        assert "never fewer" in " ".join(failed.stderr.split())
        run("topics", "alter", topic, "--partitions", "0", code=2)
        run("topics", "alter", topic, "--partitions", "10001", code=2)

    def test_purging_shows_the_plan_first_and_which_groups_lose_unread_messages(
        self, run, run_json, topic, connection
    ):
        for value in range(6):
            connection.send(topic, b"%d" % value, partition=0)
        connection.set_offsets(f"slow-{topic}", topic, {0: 1})
        connection.set_offsets(f"done-{topic}", topic, {0: 6})
        plan = run_json("topics", "purge", topic, "--before-offset", "4")
        assert plan == {
            "topic": topic,
            "executed": False,
            "partitions": [{"partition": 0, "before": 0, "start": 4}],
            "unread": [{"group": f"slow-{topic}", "messages": 3}],
        }
        assert "only the plan" in run("topics", "purge", topic, "--before-offset", "4").stdout
        assert [part.start_offset for part in connection.topics([topic])[0].partitions] == [0, 0]
        assert run_json("topics", "purge", topic, "--before-offset", "4", "--execute")["executed"]
        assert [part.start_offset for part in connection.topics([topic])[0].partitions] == [4, 0]
        assert [message.value for message in connection.read(topic, 0, 4)] == [b"4", b"5"]

    def test_purging_by_time_keeps_what_came_since_and_all_keeps_nothing(self, run_json, topic, connection):
        connection.send(topic, b"old", partition=0)
        time.sleep(0.05)
        since = datetime.now(UTC)
        connection.send(topic, b"new", partition=0)
        kept = run_json("topics", "purge", topic, "--before-time", since.isoformat(), "--execute")
        assert kept["partitions"] == [{"partition": 0, "before": 0, "start": 1}]
        assert connection.purge(topic, since) == {0: 1, 1: 0}
        all_of_it = run_json("topics", "purge", topic, "--all", "--partition", "0", "--execute")
        assert all_of_it["partitions"] == [{"partition": 0, "before": 1, "start": 2}]
        assert connection.purge(topic, None) == {0: 2, 1: 0}

    def test_purging_takes_exactly_one_bound_and_partitions_that_there_are(self, run, topic):
        run("topics", "purge", topic, code=2)
        run("topics", "purge", topic, "--all", "--before-offset", "1", code=2)
        run("topics", "purge", topic, "--before-time", "yesterday", code=2)
        assert (
            "has no partition 7" in run("topics", "purge", topic, "--all", "--partition", "7", code=1).stderr
        )
        run("topics", "purge", "nothing", "--all", code=1)

    def test_deleting_with_yes_asks_nothing(self, run_json, topic, connection):
        assert run_json("topics", "delete", topic, "--yes") == {"deleted": topic}
        assert not connection.topics([topic])


class TestTheWhole:
    def test_the_status_is_told_to_people_and_programs(self, run, run_json):
        values = run_json("status")
        assert values
        told = run("status").stdout
        assert all(name in told for name in values)
        assert "Other" not in told, "each has its place"

    def test_shared_options_may_stand_before_the_command_too(self, url):
        results = [
            CliRunner().invoke(command_line, arguments)
            for arguments in (["--broker", url, "--json", "status"], ["status", "--json", "--broker", url])
        ]
        assert set(json.loads(results[0].stdout)) == set(json.loads(results[1].stdout))

    def test_a_broker_named_before_the_command_counts_though_the_environment_names_another(self, url):
        """Seen to fail: a command went to the broker of the environment, which may be quite another one."""
        nowhere = {"TXBROKER_URL": "tcp:127.0.0.1:1"}
        for before, after in ((["--broker", url], []), ([], ["--broker", url])):
            result = CliRunner().invoke(command_line, [*before, "topics", "list", *after], env=nowhere)
            assert result.exit_code == 0, result.stderr
        named = CliRunner().invoke(command_line, ["topics", "list"], env={"TXBROKER_URL": url})
        assert named.exit_code == 0, named.stderr

    def test_where_no_broker_is_the_exit_code_says_so(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            nowhere = f"tcp:127.0.0.1:{probe.getsockname()[1]}"
            result = CliRunner().invoke(command_line, ["--broker", nowhere, "--timeout", "200ms", "status"])
        assert result.exit_code == 4
        assert result.stdout == ""
        trying, failed = result.stderr.splitlines()
        assert trying.endswith("trying again")
        assert failed.startswith("Error: ConnectionUnavailable: ")

    def test_an_interrupted_tail_says_so_with_the_exit_code_and_has_printed_what_there_was(
        self, topic, url, connection
    ):
        connection.send(topic, b"first", partition=0)
        with process("tail", topic, "--follow", url=url) as tail:
            assert b"first" in tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            assert tail.wait(30) == 130
            assert tail.stderr.read() == b""

    def test_a_reader_that_goes_away_ends_a_tail_without_a_traceback(self, topic, url, connection):
        for _ in range(3_000):
            connection.send_async(topic, b"x" * 100)
        connection.flush()
        with process("tail", topic, "--from-offset", "0", url=url) as tail:
            tail.stdout.readline()
            tail.stdout.close()
            assert tail.wait(30) == 141
            assert b"Traceback" not in tail.stderr.read()

    def test_a_url_that_is_none_is_told(self):
        result = CliRunner().invoke(command_line, ["--broker", "nonsense", "status"])
        assert result.exit_code == 2
        assert "nonsense" in result.stderr
