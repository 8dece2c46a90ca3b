"""Test the parts of the commands that need no broker."""

import io
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from journal.settings import TopicSettings
from txbroker.cli import command_line
from txbroker.cli.commands.groups import Target, group_json, never_read
from txbroker.cli.commands.send import Tally, bodies
from txbroker.cli.commands.status import grouped, value_text
from txbroker.cli.commands.tail import chosen_partitions, message_json, message_text, starts, tell_moved
from txbroker.cli.commands.topics import known_topic, setting_text, topic_json
from txbroker.cli.exits import Failure
from txbroker.client.core.results import Message, Receipt
from txbroker.wire.messages import GroupInfo, PartitionInfo, TopicInfo

PART = PartitionInfo(index=0, number=7, start_offset=100, high_watermark=200)
TOPIC = TopicInfo("orders", [PART, PartitionInfo(1, 8, 0, 3)], TopicSettings(), b"t" * 16)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(offset=150), (150, "")),
        (Target(offset=100), (100, "")),
        (Target(offset=200), (200, "")),
        (Target(offset=99), (100, "99 is gone, 100 is the oldest")),
        (Target(offset=201), (200, "201 is beyond the end, 200 is the next to come")),
        (Target(earliest=True), (100, "")),
        (Target(), (200, "")),
        (Target(time=1), (170, "")),
    ],
)
def test_a_group_is_only_moved_to_what_there_is(target, expected):
    assert target.in_partition(PART, at_time=170) == expected


@pytest.mark.parametrize(
    "options",
    [[], ["--to-latest", "--to-earliest"], ["--to-offset", "1", "--to-time", "-1h"], ["--to-time", "soon"]],
)
def test_a_reset_without_exactly_one_target_is_refused_before_anything_is_sent(options):
    result = CliRunner().invoke(
        command_line, ["--broker", "tcp:127.0.0.1:1", "groups", "reset", "g", *options]
    )
    assert result.exit_code == 2
    assert result.stdout == ""


def test_without_a_word_about_it_a_tail_begins_ten_before_the_end_but_not_before_the_start():
    assert starts(None, TOPIC, None, None, None) == {0: 190, 1: 0}
    assert starts(None, TOPIC, -150, None, None) == {0: 100, 1: 0}


def test_an_offset_that_is_not_there_becomes_the_nearest_and_that_is_said(capsys):
    assert starts(None, TOPIC, 5, None, None) == {0: 100, 1: 3}
    tell_moved(TOPIC, [0, 1], 5)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "orders[0]: 5 is gone, 100 is the oldest",
        "orders[1]: 5 is beyond the end, 3 is the next to come",
    ]


@pytest.mark.parametrize(("chosen", "offset"), [([0, 1], 0), ([0, 1], None), ([0, 1], -500), ([0], 150)])
def test_nothing_is_said_where_nobody_can_be_surprised(chosen, offset, capsys):
    tell_moved(TOPIC, chosen, offset)
    assert capsys.readouterr().err == ""


def test_a_tail_reads_the_partitions_asked_for_or_all():
    assert chosen_partitions(TOPIC, ()) == [0, 1]
    assert chosen_partitions(TOPIC, (1, 1)) == [1]
    with pytest.raises(Exception, match="no partition 2; it has 2 partitions, from 0 on"):
        chosen_partitions(TOPIC, (0, 2))


def test_a_message_is_one_line_for_people_whatever_is_in_it():
    message = Message("orders", 1, 7, 1_356_998_400_000_000, b"k\x1b", b"a\nb", (("h", b"\xff"), ("h", b"")))
    assert message_text(message) == "orders[1] 7  2013-01-01T00:00:00.000Z  key=k\\x1b  h=0xff  h=  a\\nb"


def test_a_tombstone_is_told_apart_from_an_empty_message():
    timed = Message("t", 0, 0, 0, None, b"", appended=1_356_998_400_000_001)
    assert message_text(timed) == "t[0] 0  1970-01-01T00:00:00.000Z  appended=2013-01-01T00:00:00.000Z  "
    assert message_json(timed)["appended"] == 1_356_998_400_000_001
    empty, tombstone = (Message("t", 0, 0, 0, None, value) for value in (b"", None))
    assert message_text(tombstone).endswith("(tombstone)")
    assert not message_text(empty).endswith("(tombstone)")
    assert (message_json(empty)["value"], message_json(tombstone)["value"]) == ("", None)


def test_a_message_in_json_has_every_field():
    message = Message("orders", 1, 7, 5, None, b"\xff", (("h", b"x"), ("h", b"y")))
    assert message_json(message) == {
        "topic": "orders", "partition": 1, "offset": 7, "timestamp": 5, "appended": None,
        "key": None, "value": {"base64": "/w=="}, "id": None, "tags": [], "headers": [["h", "x"], ["h", "y"]],
    }  # fmt: skip


def test_lines_of_stdin_are_messages_without_their_ends(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b"a\n\nb\r\nlast \xff"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert list(bodies([], [])) == [b"a", b"", b"b\r", b"last \xff"]


def test_files_go_whole_and_arguments_go_as_they_are(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"a\nb\n")
    assert list(bodies([], [tmp_path / "f"])) == [b"a\nb\n"]
    assert list(bodies(["Köln", "x\udcff"], [])) == ["Köln".encode(), b"x\xff"]


def test_values_and_files_together_are_a_usage_error(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"")
    result = CliRunner().invoke(command_line, ["send", "t", "v", "--file", str(tmp_path / "f")])
    assert result.exit_code == 2


def test_a_summary_of_sending_names_every_partition(capsys):
    tally = Tally("orders", as_json=False)
    for receipt in (Receipt("orders", 1, 4), Receipt("orders", 0, 9), Receipt("orders", 1, 5)):
        tally.add(receipt)
    tally.tell()
    assert capsys.readouterr().out == (
        "Sent 3 messages to orders (partition 0: 1 up to offset 9, partition 1: 2 up to offset 5), forced.\n"
    )


def test_in_json_each_receipt_is_a_line_and_there_is_no_summary(capsys):
    tally = Tally("orders", as_json=True)
    tally.add(Receipt("orders", 1, 4))
    tally.tell()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {
            "topic": "orders",
            "partition": 1,
            "offset": 4,
            "durability": "forced",
            "id": None,
            "scheduled": None,
        }
    ]


def test_a_topic_that_is_not_there_is_a_no():
    assert known_topic([TOPIC], "orders") is TOPIC
    with pytest.raises(Failure) as failed:
        known_topic([TOPIC], "order")
    assert failed.value.exit_code == 1


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention_age", 604_800_000_000, "7d"),
        ("segment_bytes", 64 << 20, "64.0 MiB"),
        ("force_messages", 1000, "1,000"),
        ("retention_bytes", None, "keep everything"),
        ("max_message_bytes", None, "the broker's limit"),
    ],
)
def test_a_setting_is_shown_with_its_unit(name, value, text):
    assert setting_text(name, value) == text


def test_a_topic_in_json_has_its_settings_by_name_in_plain_units():
    data = topic_json(TOPIC)
    assert data["settings"]["force_interval"] == 10_000_000
    assert [part["end_offset"] for part in data["partitions"]] == [200, 3]


def test_the_lag_of_a_group_is_the_sum_of_its_partitions():
    group = GroupInfo("g", [("orders", 0, 150, 50), ("orders", 1, 0, 3)], b"g" * 16)
    assert group_json(group)["lag"] == 53


def test_what_a_group_has_never_read_is_not_left_out():
    assert never_read(GroupInfo("g", [("orders", 0, 150, 50)], b""), [TOPIC]) == [("orders", 1, 3)]
    assert never_read(GroupInfo("g", [("orders", 0, 150, 50), ("orders", 1, 0, 3)], b""), [TOPIC]) == []


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("pool_bytes", 1536, "1.5 KiB"),
        ("pool_bytes_used", 1536, "1.5 KiB"),
        ("bytes_in", 1536, "1.5 KiB"),
        ("uptime", 61_000_000, "1m 1s"),
        ("uptime_us", 61_000_000, "1m 1s"),
        ("last_lsn", 68719476761, "68719476761"),
        ("disk_full", 0, False),
        ("oldest_in_doubt_age", 61_000_000, "1m 1s"),
        ("outcomes_contradicted", 0, 0),
        ("outcomes_contradicted", 2, "2: DAMAGE, see 'txbroker transactions list --damaged'"),
        ("sends", 5, 5),
        ("version", "1", "1"),
    ],
)
def test_a_status_value_is_shown_in_the_unit_its_name_tells(name, value, text):
    assert value_text(name, value) == text


def test_the_status_is_grouped_and_loses_nothing():
    assert grouped({"uptime": 0, "new_one": 3}) == [
        ("Broker", ""),
        ("  uptime", "0 ms"),
        ("Other", ""),
        ("  new_one", 3),
    ]


def test_every_command_understands_the_shared_options():
    def leaves(group, context):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield from leaves(command, context) if hasattr(command, "list_commands") else [command]

    found = list(leaves(command_line, click.Context(command_line)))
    assert len(found) > 20
    for command in found:
        if command.name == "serve":
            continue  # all its words are for twistd's plugin
        options = {name for parameter in command.params for name in parameter.opts}
        assert {"--broker", "--json", "--timeout"} <= options, command.name


@pytest.mark.parametrize(
    "group",
    [
        [],
        ["topics"],
        ["groups"],
        ["dead"],
        ["transactions"],
        ["coordinator"],
        ["queues"],
        ["exchanges"],
    ],
)
def test_what_a_command_does_fits_beside_its_name_at_eighty_columns(group):
    listed = (
        CliRunner().invoke(command_line, [*group, "--help"], terminal_width=80).stdout.partition("Commands:")
    )[2]
    assert listed
    assert "..." not in listed
