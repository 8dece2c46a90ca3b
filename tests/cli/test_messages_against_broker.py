"""``txbroker send`` and ``txbroker tail`` against a real broker."""

import json
import threading

import pytest

import txbroker
from tests.cli.invocations import lines

pytestmark = pytest.mark.slow


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
        assert all((m["key"], m["headers"]) == ("42", [["kind", "new"]]) for m in read)

    def test_messages_get_new_ids_if_wanted_which_receipts_and_tail_show(self, run, topic):
        receipts = lines(run("send", topic, "a", "b", "--new-ids", "--partition", "0", "--json"))
        ids = [receipt["id"] for receipt in receipts]
        assert len(set(ids)) == 2
        assert {len(each) for each in ids} == {32}
        read = lines(run("tail", topic, "--from-offset", "0", "--json"))
        assert [(m["id"], m["headers"]) for m in read] == [(each, [["txbroker.id", each]]) for each in ids]
        assert lines(run("send", topic, "c", "--json"))[0]["id"] is None

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


class TestFind:
    def test_a_message_is_found_by_its_id_and_key_and_printed_as_tail_does(self, run, topic):
        run("send", topic, "one", "--key", "42", "--header", "txbroker.id=order-1")
        run("send", topic, "two", "--key", "42", "--header", "txbroker.id=order-2")
        [found] = lines(run("find", topic, "--id", "order-2", "--json"))
        assert (found["value"], found["key"], found["id"]) == ("two", "42", "order-2")
        assert [each["value"] for each in lines(run("find", topic, "--key", "42", "--json"))] == [
            "one",
            "two",
        ]
        assert run("find", topic, "--id", "order-1").stdout == run("tail", topic).stdout.splitlines(True)[0]
        run("send", topic, "three", "--tag", "eu", "--tag", "express")
        [found] = lines(run("find", topic, "--tag", "express", "--json"))
        assert (found["value"], found["tags"]) == ("three", ["eu", "express"])
        limited = run("find", topic, "--key", "42", "--limit", "1", partly=True)
        assert "These are the first 1" in limited.stderr

    def test_nothing_found_is_a_no(self, run, topic):
        told = run("find", topic, "--id", "nobody", "--key", "42", code=1).stderr
        assert f"{topic} has no message with the id nobody and the key 42" in told
        run("find", "nothing", "--id", "x", code=1)
        run("find", topic, "--id", "x", "--partition", "5", code=1)
        assert "say --id, --key or --tag, or several of them" in run("find", topic, code=2).stderr


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
        after = run_json("groups", "describe", "watched")
        for each in (before, after):
            for part in each["partitions"]:
                assert part.pop("waiting") > 0  # it grows
        assert after == before

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
