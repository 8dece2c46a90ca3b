"""The commands against a real broker."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner

import txbroker
from spark.register import Register, Standing
from tests.broker_process import BrokerProcess
from txbroker.cli import command_line

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", "outcome_archive=on") as broker:
        yield broker.address
        assert broker.stop() == 0


@pytest.fixture
def connection(url):
    with txbroker.connect(url) as connection:
        yield connection


@pytest.fixture
def run(url):
    def run(*arguments, stdin=None, code=0):
        result = CliRunner().invoke(command_line, arguments, input=stdin, env={"TXBROKER_URL": url})
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        if code:
            assert result.stdout == "", "an error is no output"
            assert result.stderr
        return result

    return run


@pytest.fixture
def run_json(run):
    def run_json(*arguments, **more):
        return json.loads(run(*arguments, "--json", **more).stdout)

    return run_json


@pytest.fixture
def topic(connection, request):
    name = "t-" + sha256(request.node.nodeid.encode()).hexdigest()[:12]
    connection.create_topic(name, partitions=2)
    return name


def process(*arguments, url):
    return subprocess.Popen(
        [sys.executable, "-c", "from txbroker.cli import main; main()", *arguments],
        env={**os.environ, "TXBROKER_URL": url, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


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
        assert "it has 2 partitions, not 7. A topic that exists is not changed." in other.stderr
        assert "its retention_age is keep everything, not 1d" in other.stderr
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

    def test_deleting_with_yes_asks_nothing(self, run_json, topic, connection):
        assert run_json("topics", "delete", topic, "--yes") == {"deleted": topic}
        assert not connection.topics([topic])


class TestSending:
    def test_what_is_sent_comes_back_byte_for_byte(self, run, topic):
        sent = run("send", topic, "Köln", "zwei", "--key", "42", "--header", "kind=new", "--json")
        receipts = lines(sent)
        assert [receipt["durability"] for receipt in receipts] == ["forced", "forced"]
        read = lines(run("tail", topic, "--from-offset", "0", "--json"))
        assert [(m["partition"], m["offset"]) for m in read] == [
            (r["partition"], r["offset"]) for r in receipts
        ]
        assert [m["value"] for m in read] == ["Köln", "zwei"]
        assert all((m["key"], m["headers"]) == ("42", {"kind": "new"}) for m in read)

    def test_lines_of_stdin_keep_their_order_however_many(self, run, topic):
        said = "".join(f"line {number}\n" for number in range(5_000))
        told = run("send", topic, "--partition", "1", stdin=said).stdout
        assert told == f"Sent 5,000 messages to {topic} (partition 1: 5,000 up to offset 4999), forced.\n"
        read = lines(run("tail", topic, "--partition", "1", "--from-offset", "0", "--json"))
        assert "".join(message["value"] + "\n" for message in read) == said

    @pytest.mark.parametrize("name", ["zstd", "lz4"])
    def test_lines_go_compressed_if_wanted_and_are_shown_as_they_were(self, run, topic, name):
        said = "".join(f"a line of a log, number {number}\n" for number in range(3_000))
        run("send", topic, "--partition", "1", "--compression", name, stdin=said)
        read = lines(run("tail", topic, "--partition", "1", "--from-offset", "0", "--json"))
        assert "".join(message["value"] + "\n" for message in read) == said
        described = json.loads(run("topics", "describe", topic, "--json").stdout)
        assert described["partitions"][1]["bytes"] < len(said) / 2
        assert "zstd|lz4" in run("send", topic, "--compression", "gzip", "x", code=2).stderr.replace(
            "'", ""
        ).replace(", ", "|")

    def test_a_file_is_one_message_whatever_is_in_it(self, run, topic, tmp_path):
        (tmp_path / "f").write_bytes(bytes(range(256)) * 300)
        run("send", topic, "--file", str(tmp_path / "f"), "--partition", "0")
        read = lines(run("tail", topic, "--partition", "0", "--from-offset", "0", "--json"))
        assert [set(message["value"]) for message in read] == [{"base64"}]

    def test_an_empty_stdin_sends_nothing_and_that_is_no_error(self, run, topic):
        assert run("send", topic, stdin="").stdout == ""

    def test_a_topic_that_does_not_exist_is_refused_and_says_that_nothing_got_there(self, run):
        assert "0 messages had been acknowledged" in run("send", "nothing", "x", code=1).stderr


class TestTail:
    @pytest.fixture(autouse=True)
    def full(self, topic, connection):
        for number in range(15):
            connection.send(topic, b"%d" % number, partition=0)
        connection.send(topic, b"other", partition=1)

    def values(self, run, topic, *options):
        return [message["value"] for message in lines(run("tail", topic, *options, "--json"))]

    def test_it_begins_with_the_last_ten_of_each_partition(self, run, topic):
        values = self.values(run, topic)
        assert sorted(values) == sorted([*map(str, range(5, 15)), "other"])

    def test_it_begins_at_an_offset_or_so_many_before_the_end(self, run, topic):
        assert self.values(run, topic, "--partition", "0", "--from-offset", "12") == ["12", "13", "14"]
        assert self.values(run, topic, "--partition", "0", "--from-offset", "-2") == ["13", "14"]
        assert self.values(run, topic, "--partition", "0", "--from-offset", "15") == []

    def test_it_stops_after_the_count(self, run, topic):
        assert self.values(run, topic, "--partition", "0", "--from-offset", "0", "--count", "3") == [
            "0",
            "1",
            "2",
        ]

    def test_it_begins_at_a_time(self, run, topic, connection):
        assert sorted(self.values(run, topic, "--from-time", "-1h")) == sorted(
            [*map(str, range(15)), "other"]
        )
        assert self.values(run, topic, "--from-time", "2100-01-01T00:00") == []

    def test_an_offset_beyond_the_end_is_told_on_stderr_and_reads_nothing(self, run, topic):
        result = run("tail", topic, "--partition", "0", "--from-offset", "99")
        assert result.stdout == ""
        assert result.stderr == f"{topic}[0]: 99 is beyond the end, 15 is the next to come\n"

    def test_it_begins_where_a_group_stands_and_leaves_it_there(self, run, run_json, topic, connection):
        connection.set_offsets("watched", topic, {0: 13})
        before = run_json("groups", "describe", "watched")
        assert sorted(self.values(run, topic, "--group", "watched")) == ["13", "14", "other"]
        assert run_json("groups", "describe", "watched") == before

    @pytest.mark.parametrize(("partitions", "already"), [(["--partition", "0"], 1), ([], 2)])
    def test_following_shows_what_comes_later(self, run, topic, url, partitions, already):
        def send_later():
            with txbroker.connect(url) as other:
                other.send(topic, b"later", partition=0)

        sender = threading.Timer(0.3, send_later)
        sender.start()
        count = str(already + 1)
        values = self.values(run, topic, *partitions, "--from-offset", "-1", "--follow", "--count", count)
        sender.join()
        assert values[-1] == "later"

    def test_a_topic_or_partition_that_does_not_exist_is_told(self, run, topic):
        run("tail", "nothing", code=1)
        run("tail", topic, "--partition", "7", code=1)

    def test_people_get_a_line_per_message(self, run, topic):
        (line,) = run("tail", topic, "--partition", "1").stdout.splitlines()
        assert line.startswith(f"{topic}[1] 0  20")
        assert line.endswith("  other")


class TestGroups:
    @pytest.fixture(autouse=True)
    def group(self, topic, connection):
        connection.flush()
        for _ in range(10):
            connection.send(topic, b"x", partition=0)
        connection.set_offsets(topic, topic, {0: 4})
        return topic

    def test_a_group_is_listed_and_described_with_its_lag(self, run, run_json, group):
        described = run_json("groups", "describe", group)
        assert described["lag"] == 6
        assert [(p["topic"], p["partition"], p["offset"], p["lag"]) for p in described["positions"]] == [
            (group, 0, 4, 6)
        ]
        assert described["name"] in [found["name"] for found in run_json("groups", "list")]
        assert "6 messages behind" in run("groups", "describe", group).stdout

    def test_the_metadata_of_positions_are_shown_where_there_are_any(self, run, run_json, group, connection):
        assert run_json("groups", "describe", group)["metadata"] == []
        assert "metadata" not in run("groups", "describe", group).stdout
        register = Register(connection, group)
        register.end_epoch(Standing(decided=7), register.claim("test"))
        (told,) = run_json("groups", "describe", f"spark.{group}")["metadata"]
        assert (told["topic"], told["partition"], told["text"]) == ("spark.decisions", 0, "7 1")
        assert re.search(r"metadata\n.*\n.* 7 1\n", run("groups", "describe", f"spark.{group}").stdout)

    def test_a_group_that_waits_for_a_transaction_names_it(self, run, run_json, url, group):
        with txbroker.connect(url, client="test") as own:
            consumer = own.consume(group, group=group, partitions=[0])
            next(iter(consumer))
            xid = own.xid(8, f"held-{group}", "")
            own.tpc_begin(xid)
            own.commit_offsets()
            own.tpc_prepare()
        (held,) = run_json("groups", "describe", group)["held"]
        assert (held["topic"], held["partition"]) == (group, 0)
        assert str(xid) in held["transaction"]
        assert str(xid) in run("groups", "describe", group).stdout
        run("transactions", "commit", str(xid), "--why", "test", "--yes")
        described = run_json("groups", "describe", group)
        assert described["held"] == []
        assert described["lag"] == 5

    def test_a_group_without_positions_that_waits_for_a_transaction_names_it(self, run, run_json, url, topic):
        group = f"new-{topic}"
        with txbroker.connect(url, client="test") as own:
            own.send(topic, b"first", partition=0)
            next(iter(own.consume(topic, group=group, partitions=[0])))
            xid = own.xid(8, group, "")
            own.tpc_begin(xid)
            own.commit_offsets()
            own.tpc_prepare()
        text = run("groups", "describe", group).stdout
        assert f"xid {xid}" in " ".join(text.split())
        assert "no positions" not in text
        run("transactions", "rollback", str(xid), "--why", "test", "--yes")
        assert "no positions" in run("groups", "describe", group).stdout

    def test_a_group_whose_consumer_is_gone_can_be_reset_though_its_claim_is_kept(self, run_json, url, group):
        with txbroker.connect(url, client="test") as own:
            for _ in own.consume(group, group=group, partitions=[0], follow=False):
                own.commit_offsets()
        assert run_json("groups", "describe", group)["lag"] == 0
        assert run_json("groups", "reset", group, "--to-earliest", "--execute")["executed"]
        assert run_json("groups", "describe", group)["lag"] == 10

    def test_a_reset_is_only_shown_until_it_is_told_to_execute(self, run, run_json, group):
        plan = run_json("groups", "reset", group, "--to-earliest", "--partition", "0")
        assert plan["moves"] == [{"topic": group, "partition": 0, "before": 4, "after": 0, "note": ""}]
        assert not plan["executed"]
        assert "add --execute" in run("groups", "reset", group, "--to-earliest").stdout
        assert run_json("groups", "describe", group)["lag"] == 6
        assert run_json("groups", "reset", group, "--to-earliest", "--partition", "0", "--execute")[
            "executed"
        ]
        assert run_json("groups", "describe", group)["lag"] == 10

    @pytest.mark.parametrize(
        ("target", "after"),
        [
            (["--to-offset", "7"], 7),
            (["--to-offset", "70"], 10),
            (["--to-latest"], 10),
            (["--to-time", "-1h"], 0),
            (["--to-time", "2100-01-01T00:00"], 10),
        ],
    )
    def test_a_group_goes_where_it_is_sent(self, run_json, group, target, after):
        run_json("groups", "reset", group, *target, "--partition", "0", "--execute")
        positions = run_json("groups", "describe", group)["positions"]
        assert {p["partition"]: p["offset"] for p in positions}[0] == after

    def test_a_group_that_is_not_known_is_a_no_unless_a_topic_is_named(self, run, run_json, group):
        run("groups", "describe", "nobody", code=1)
        run("groups", "reset", "nobody", "--to-earliest", code=1)
        plan = run_json("groups", "reset", "nobody", "--to-latest", "--topic", group, "--partition", "0")
        assert plan["moves"][0]["before"] is None

    def test_a_group_can_be_deleted(self, run, run_json, group):
        run("groups", "delete", group, stdin="n\n", code=1)
        assert run_json("groups", "delete", group, "--yes") == {"deleted": group}
        run("groups", "describe", group, code=1)


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

    def test_where_no_broker_is_the_exit_code_says_so(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            nowhere = f"tcp:127.0.0.1:{probe.getsockname()[1]}"
            result = CliRunner().invoke(command_line, ["--broker", nowhere, "--timeout", "200ms", "status"])
        assert result.exit_code == 4
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("Error: ConnectionUnavailable: ")

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
