"""``txbroker groups`` against a real broker."""

import re

import pytest

import txbroker
from spark.sink.register import Register, RegisterState
from tests.cli.groups.stranger_member import StrangerMember
from tests.cli.invocations import Meanwhile

pytestmark = pytest.mark.slow


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
        assert described["is_filtered"] is False
        assert [(p["topic"], p["partition"], p["offset"], p["lag"]) for p in described["positions"]] == [
            (group, 0, 4, 6)
        ]
        assert described["name"] in [found["name"] for found in run_json("groups", "list")]
        assert "6 messages behind" in run("groups", "describe", group).stdout

    def test_the_metadata_of_positions_are_shown_where_there_are_any(self, run, run_json, group, connection):
        assert run_json("groups", "describe", group)["metadata"] == []
        assert "metadata" not in run("groups", "describe", group).stdout
        register = Register(connection, group)
        register.end_epoch(RegisterState(decided=7), register.claim("test"))
        (told,) = run_json("groups", "describe", f"spark.{group}")["metadata"]
        assert (told["topic"], told["partition"]) == ("spark.decisions", 0)
        assert re.fullmatch(r"7 1 \d{10}", told["text"]), "version, epoch, and when that was"
        assert re.search(r"metadata\n.*\n.* 7 1 \d{10}\n", run("groups", "describe", f"spark.{group}").stdout)

    def test_a_group_that_waits_for_a_transaction_names_it(self, run, run_json, url, group):
        with txbroker.connect(url, client="test") as own:
            consumer = own.consume(group, group=group, partitions=[0])
            next(iter(consumer))
            xid = own.xid(8, f"held-{group}", "")
            own.tpc_begin(xid)
            consumer.commit()
            own.tpc_prepare()
        (held,) = run_json("groups", "describe", group)["held"]
        assert (held["topic"], held["partition"]) == (group, 0)
        assert str(xid) in held["transaction"]
        assert str(xid) in run("groups", "describe", group).stdout
        run("transactions", "commit", str(xid), "--why", "test", "--yes")
        described = run_json("groups", "describe", group)
        assert described["held"] == []
        assert described["lag"] == 5

    def test_what_is_to_be_tried_again_is_listed_and_released_or_skipped(self, run, run_json, url, group):
        assert "Nothing is to be tried again." in run("groups", "parked", group).stdout
        with txbroker.connect(url, client="test") as own:
            consumer = own.consume(group, group=group, partitions=[0], order=None)
            messages = [next(consumer) for _ in range(4)]
            consumer.retry(messages[:3], after=3600, why="no database")
            consumer.done(messages[3])
            found = run_json("groups", "parked", group)
            assert [(p["offset"], p["attempts"], p["why"]) for p in found] == [
                (offset, 1, "no database") for offset in (4, 5, 6)
            ]
            assert all(3500 < p["due"] <= 3600 for p in found)
            assert re.search(r"4 +1 +in .*no database", run("groups", "parked", group).stdout)
            assert run_json("groups", "retry", group, group, "0", "5", "7")["offsets"] == [5]
            assert [p["due"] == 0 for p in run_json("groups", "parked", group)] == [False, True, False]
            run("groups", "skip", group, group, "0", "4", "8", "--yes")
            assert "2 messages to be tried again now" in run("groups", "retry", group, group, "0").stdout
            again = [next(consumer) for _ in range(4)]
            assert sorted((m.offset, m.attempts) for m in again) == [(5, 1), (6, 1), (8, 0), (9, 0)]
            assert own.group_offsets(group)[0].offset == 5

    def test_a_group_without_positions_that_waits_for_a_transaction_names_it(self, run, run_json, url, topic):
        group = f"new-{topic}"
        with txbroker.connect(url, client="test") as own:
            own.send(topic, b"first", partition=0)
            consumer = own.consume(topic, group=group, partitions=[0])
            next(consumer)
            xid = own.xid(8, group, "")
            own.tpc_begin(xid)
            consumer.commit()
            own.tpc_prepare()
        text = run("groups", "describe", group).stdout
        assert f"xid {xid}" in " ".join(text.split())
        assert "no positions" not in text
        run("transactions", "rollback", str(xid), "--why", "test", "--yes")
        assert "no positions" in run("groups", "describe", group).stdout

    def test_a_group_whose_consumer_is_gone_can_be_reset_though_its_claim_is_kept(self, run_json, url, group):
        with txbroker.connect(url, client="test") as own:
            consumer = own.consume(group, group=group, partitions=[0], follow=False)
            for message in consumer:
                consumer.commit(message)
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

    def test_the_group_that_was_shown_is_deleted_and_not_one_made_anew_while_it_was_asked(
        self, run, group, connection
    ):
        def meanwhile():
            connection.delete_group(group)
            connection.set_offsets(group, group, {0: 7})

        failed = run("groups", "delete", group, stdin=Meanwhile(b"y\n", meanwhile), code=1, partly=True)
        assert "was made since" in " ".join(failed.stderr.split())
        assert [each.offset for each in connection.group_offsets(group)] == [7]

    def test_a_group_can_be_deleted(self, run, run_json, group):
        run("groups", "delete", group, stdin="n\n", code=1)
        assert run_json("groups", "delete", group, "--yes") == {"deleted": group}
        run("groups", "describe", group, code=1)


class TestMembers:
    @pytest.fixture
    def first(self, topic, url):
        member = StrangerMember(url, topic, [topic], "worker-a", name="worker-1")
        member.take()
        yield member
        member.close()

    @pytest.fixture
    def second(self, first, topic, url):
        member = StrangerMember(url, topic, [topic], "worker-b")
        assert first.take()["revoked"]
        yield member
        member.close()

    def test_members_are_described_with_what_they_have(self, run, run_json, topic, connection, first):
        connection.send(topic, b"x", partition=1)
        described = run_json("groups", "describe", topic)
        [member] = described["members"]
        assert (member["number"], member["client"], member["name"]) == (first.number, "worker-a", "worker-1")
        assert member["address"].startswith("127.0.0.1:")
        assert 0 <= member["silent"] < 10_000_000
        assert member["topics"] == [topic]
        assert described["kind"] == "members"
        assert [(p["partition"], p["member"], p["lag"], p["revoking"]) for p in described["partitions"]] == [
            (0, first.number, 0, False),
            (1, first.number, 1, False),
        ]
        assert described["lag"] == 1
        text = run("groups", "describe", topic).stdout
        assert "1 message behind. The broker shares its partitions out to 1 member." in text
        assert f"{topic} 0-1" in text
        assert re.search(rf"{first.number} +worker-a +worker-1 +127.0.0.1:\d+ +\d+ \w+ ago", text)

    def test_a_partition_that_an_owner_is_to_release_says_so(self, run, run_json, topic, first, second):
        parts = run_json("groups", "describe", topic)["partitions"]
        assert sorted((p["member"], p["revoking"]) for p in parts) == [
            (first.number, False),
            (first.number, True),
        ]
        assert "worker-1 to release it" in run("groups", "describe", topic).stdout

    def test_a_group_with_members_is_neither_deleted_nor_moved(self, run, run_json, topic, first):
        for refused in (
            run("groups", "delete", topic, "--yes", code=3),
            run("groups", "reset", topic, "--to-latest", "--execute", code=3),
        ):
            told = " ".join(refused.stderr.split())
            assert "has 1 member now; nothing has changed" in told
            assert "--stop" in told
        plan = " ".join(run("groups", "reset", topic, "--to-latest").stdout.split())
        assert "The group has 1 member: stop them, then add --execute. Or add --stop --execute" in plan
        assert run_json("groups", "reset", topic, "--to-latest")["members"] == 1

    def test_a_group_is_moved_with_its_members_if_that_is_said(self, run, run_json, topic, connection, first):
        connection.send(topic, b"x", partition=0)
        plan = " ".join(run("groups", "reset", topic, "--to-latest", "--stop").stdout.split())
        assert "The group has 1 member; with --execute the memberships end" in plan
        assert run_json("groups", "describe", topic)["lag"] == 1
        assert run_json("groups", "reset", topic, "--to-latest", "--stop", "--execute")["executed"]
        assert sorted(first.take()["lost"]) == sorted(first.owned)
        described = run_json("groups", "describe", topic)
        assert (described["lag"], described["members"], described["kind"]) == (0, [], "members")

    def test_a_group_is_deleted_with_its_members_if_that_is_said(self, run, run_json, topic, first):
        asked = run("groups", "delete", topic, "--stop", stdin="n\n", code=1)
        assert "and 1 member?" in " ".join(asked.stderr.split())
        assert run_json("groups", "delete", topic, "--stop", "--yes") == {"deleted": topic}
        assert sorted(first.take()["lost"]) == sorted(first.owned)
        run("groups", "describe", topic, code=1)

    def test_a_group_that_nobody_claimed_yet_has_members_all_the_same(self, run, run_json, url, topic):
        member = StrangerMember(url, f"new-{topic}", ["none"], "worker-c")
        described = run_json("groups", "describe", f"new-{topic}")
        assert [each["number"] for each in described["members"]] == [member.number]
        assert described["partitions"] == []
        assert "It has no positions." in run("groups", "describe", f"new-{topic}").stdout
        member.close()

    def test_consumers_that_name_partitions_are_no_members(self, run, run_json, connection, topic):
        connection.send(topic, b"x", partition=0)
        next(connection.consume(topic, group=topic, partitions=[0]))
        described = run_json("groups", "describe", topic)
        assert (described["kind"], described["members"]) == ("consumers", [])
        assert "consumers name their partitions" in run("groups", "describe", topic).stdout
