"""Test how a group with members is shown, in a terminal of 80 columns and in JSON, without a broker."""

import json

import pytest
from rich.console import Console

from txbroker.cli.group_description import (
    description_json,
    kind_text,
    labels_of,
    members_table,
    partitions_table,
    places_text,
)
from txbroker.client.core.results import GroupDescription, GroupMember, GroupPartition
from txbroker.client.core.retry_policy import RetryPolicy

FIRST = (1 << 32) + 1


def member(number=FIRST, client="billing", name="", address="10.1.2.30:51234", silent=1.25):
    return GroupMember(number, client, name, address, silent, ["orders"], "")


def part(index, owner=FIRST, topic="orders", position=5, lag=2, **more):
    fields = {"revoking": False, "held_by": "", "kept": 0.0, "kept_for": ""} | more
    return GroupPartition(topic, index, position, lag, 9, owner, **fields)


def group(members=(), parts=(), kind="members", retry=None):
    return GroupDescription("g", kind, list(members), list(parts), b"i", retry)


def printed(shown, width=80):
    console = Console(width=width, file=None, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def waiting(*parts, members=None, held=None):
    there = [member()] if members is None else members
    return printed(partitions_table(group(there, parts), held or {}, {}))


def test_members_fit_into_a_terminal():
    there = [member(name="worker-1"), member(FIRST + 1, address="", silent=3.0)]
    head, line, *rows = printed(members_table(group(there, [part(0), part(1), part(3)]))).splitlines()
    assert len(line) <= 80
    assert head.split() == ["member", "client", "static", "name", "address", "heard", "partitions"]
    assert rows == [
        "4294967297   billing   worker-1      10.1.2.30:51234   1s ago   orders 0-1, 3",
        "4294967298   billing   –             (away)            3s ago   –",
    ]


def test_static_names_have_a_column_if_there_are_any():
    assert "static name" not in printed(members_table(group([member()])))
    assert "static name" in printed(members_table(group([member(name="w")])))


def test_a_group_without_members_says_so():
    assert "no members now" in printed(members_table(group()))
    assert kind_text(group()) == "The broker shares its partitions out to 0 members."


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([0], "t 0"), ([0, 1], "t 0-1"), ([4, 0, 1, 2, 6], "t 0-2, 4, 6"), ([], "")],
)
def test_partitions_are_told_in_ranges(indexes, text):
    assert places_text([part(index, topic="t") for index in indexes]) == text


def test_partitions_of_several_topics_are_told_by_topic():
    assert places_text([part(1, topic="b"), part(0, topic="a")]) == "a 0; b 1"


def test_a_member_is_called_what_tells_it_from_the_others():
    there = [member(1, "a"), member(2, "b"), member(3, "b"), member(4, "b", "w")]
    assert labels_of(there) == {1: "a", 2: "2", 3: "3", 4: "w"}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (part(0), ""),
        (part(0, revoking=True), "billing to release it"),
        (part(0, held_by="1-2"), "transaction 1-2"),
        (part(0, None), "a member to get it"),
        (part(0, None, kept=3.0), "the member that had it, for 3s"),
        (part(0, None, kept=45.0, kept_for="w"), "w to come back, for 45s"),
        (part(0, None, held_by="1-2"), "transaction 1-2; a member to get it"),
    ],
)
def test_a_partition_says_what_it_waits_for(shown, text):
    told = waiting(shown)
    assert ("waits for" in told) is bool(text)
    assert text in told


def test_a_partition_of_a_group_whose_members_have_gone_waits_for_one():
    assert "a member\n" in waiting(part(0, None, kept=3.0), members=())


def test_the_transaction_that_holds_the_position_is_told_as_it_is_known_there():
    told = waiting(part(0, held_by="1-2"), held={("orders", 0): "1-2 (xid 1:x:y)"})
    assert "transaction 1-2 (xid 1:x:y)" in told


def test_a_partition_of_consumers_that_name_theirs_waits_for_no_member():
    told = printed(partitions_table(group(kind="consumers", parts=[part(0, None)]), {}, {}))
    assert "waits for" not in told
    assert "owner" not in told


def test_how_long_the_first_unfinished_message_waits_is_told():
    parts = [part(0, None, waiting=64.5), part(1, None, waiting=0.02), part(2, None)]
    lines = printed(partitions_table(group(kind="consumers", parts=parts), {}, {})).splitlines()
    assert "waiting" in lines[0]
    assert [line.split()[4:] for line in lines[2:5]] == [["1m", "4s"], ["20", "ms"], ["–"]]
    told = description_json(group(parts=parts))["partitions"]
    assert [each["waiting"] for each in told] == [64_500_000, 20_000, None]


def test_the_json_has_times_in_microseconds_and_null_for_what_is_not_there():
    told = description_json(group([member(address="")], [part(0, None, kept=2.5)]))
    assert json.loads(json.dumps(told)) == {
        "kind": "members",
        "retry": None,
        "expiry": None,
        "tags": [],
        "members": [
            {"number": FIRST, "client": "billing", "name": "", "address": None, "silent": 1_250_000,
             "topics": ["orders"], "pattern": ""}
        ],
        "partitions": [
            {"topic": "orders", "partition": 0, "position": 5, "lag": 2, "generation": 9, "member": None,
             "revoking": False, "held_by": "", "kept": 2_500_000, "kept_for": "", "waiting": None}
        ],
    }  # fmt: skip
    assert description_json(group(kind=""))["kind"] is None


def test_the_json_has_the_policy_with_its_times_in_seconds():
    told = description_json(group(retry=RetryPolicy(7, 0.25, 60.0, "stop")))
    assert json.loads(json.dumps(told["retry"])) == {
        "attempts": 7,
        "pause": 0.25,
        "longest": 60.0,
        "ending": "stop",
        "dead_letter_topic": None,
    }
