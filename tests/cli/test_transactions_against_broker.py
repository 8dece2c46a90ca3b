"""``txbroker transactions`` against a real broker: one transaction, lists of them, several at once."""

import json
import signal

import pytest

import txbroker
from tests.cli.in_doubt import infos_of, prepare, states
from tests.cli.invocations import process
from tests.support.broker_process import BrokerProcess
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Invocation
from txbroker.cli.transactions.heuristic_ending import NOT_TRIED, Ending, end_all, report

pytestmark = pytest.mark.slow

ROLL_BACK = Ending(
    "Roll back",
    "rolled back",
    lambda broker, number: broker.rollback_transaction(number, by="ann", why="test"),
)


# -- one at a time ----------------------------------------------------------------------------------


def test_what_is_in_doubt_is_listed_and_shown_with_its_content(run, run_json, prepared, topic):
    (listed,) = [
        found for found in run_json("transactions", "list", "--in-doubt") if found["xid"] == prepared
    ]
    assert (listed["state"], listed["messages"], listed["topics"]) == ("prepared", 2, [topic])
    shown = run_json("transactions", "show", prepared)
    assert [(m["topic"], m["key"], m["value"]) for m in shown["content"]] == [
        (topic, "42", "debit"),
        (topic, "42", "credit"),
    ]
    assert run_json("transactions", "show", listed["number"])["xid"] == prepared
    assert "debit" in run("transactions", "show", prepared).stdout
    assert prepared in run("transactions", "list").stdout


def test_a_no_leaves_it_in_doubt(run, run_json, prepared):
    asked = run("transactions", "commit", prepared, "--why", "test", stdin="n\n", code=1)
    assert "holds 2 messages" in asked.stderr
    assert run_json("transactions", "show", prepared)["state"] == "prepared"


def test_a_commit_by_hand_makes_it_visible_and_keeps_who_and_why(run, run_json, prepared, topic):
    ended = run_json("transactions", "commit", prepared, "--why", "ticket 7", "--by", "ann", "--yes")
    assert (ended["state"], ended["forced"], ended["by"], ended["why"]) == (
        "committed",
        True,
        "ann",
        "ticket 7",
    )
    tailed = run("tail", topic, "--from-offset", "0", "--json").stdout.splitlines()
    assert [json.loads(line)["value"] for line in tailed] == [
        "debit",
        "credit",
    ]
    assert prepared not in run("transactions", "list").stdout
    assert prepared in run("transactions", "list", "--state", "committed").stdout


def test_a_rollback_by_hand_leaves_nothing_and_cannot_be_taken_back(run, run_json, prepared, topic):
    ended = run_json("transactions", "rollback", prepared, "--why", "ticket 8", "--yes")
    assert (ended["state"], ended["forced"], ended["cause"]) == ("rolled-back", True, "operator")
    assert run("tail", topic, "--from-offset", "0", "--json").stdout == ""
    run("transactions", "commit", prepared, "--why", "regret", "--yes", code=3)


def test_an_outcome_can_be_forgotten(run, run_json, prepared):
    number = run_json("transactions", "rollback", prepared, "--why", "x", "--yes")["number"]
    assert run_json("transactions", "forget", prepared, "--why", "seen to", "--yes") == {"forgotten": number}
    run("transactions", "show", prepared, code=1)


def test_one_that_is_in_doubt_cannot_be_forgotten(run, run_json, prepared):
    run("transactions", "forget", prepared, "--why", "x", "--yes", code=3)
    assert run_json("transactions", "show", prepared)["state"] == "prepared"


def test_one_that_is_not_known_is_refused(run):
    run("transactions", "show", "7:nobody:nothing", code=1)
    run("transactions", "commit", "7:nobody:nothing", "--why", "x", "--yes", code=1)


def test_what_is_shown_names_owner_address_history_and_the_commands(run, run_json, prepared, topic):
    shown = run_json("transactions", "show", prepared)
    assert (shown["owner"], shown["address"].startswith("127.0.0.1:")) == ("billing", True)
    assert shown["principal"] == "anonymous"
    assert 0 <= shown["prepared_age"] <= shown["age"]
    assert 0 < shown["began"] <= shown["prepared"]
    assert (shown["policy"], shown["ended"], shown["obstacle"]) == (None, None, None)
    [part] = shown["partitions"]
    assert (part["topic"], part["messages"]) == (topic, 2)
    assert all((m["headers"], m["timestamp"] > 0) for m in shown["content"])
    text = run("transactions", "show", prepared).stdout
    for line in ("History", "began, by billing from 127.0.0.1:", f"rollback {shown['number']} --why"):
        assert line in text


@pytest.mark.parametrize(
    ("xid_format", "command"),
    [(0x7462, "txbroker resolve --database"), (0x7463, "txbroker coordinator resolve"), (9, None)],
)
def test_one_whose_decision_is_written_down_somewhere_says_first_what_looks_there(
    run, topic, url, xid_format, command
):
    with txbroker.connect(url) as own:
        xid = own.xid(xid_format, f"block-{topic}", "broker")
        own.tpc_begin(xid)
        own.send(topic, b"debit")
        own.tpc_prepare()
    text = run("transactions", "show", str(xid)).stdout
    assert "rollback" in text
    for each in ("txbroker resolve", "txbroker coordinator resolve"):
        assert (each in text) == (command is not None and command.startswith(each))
    if command is not None:
        assert text.index(command) < text.index("txbroker transactions commit")


# -- lists ------------------------------------------------------------------------------------------


def test_filters_choose_and_the_oldest_come_first(run_json, url, topic):
    xids = prepare(url, topic, "a", "b") + prepare(url, topic, "c", client="shipping")

    def listed(*options):
        return [
            each["xid"] for each in run_json("transactions", "list", "--in-doubt", "--topic", topic, *options)
        ]

    assert listed() == xids
    assert listed("--owner", "shipping") == xids[2:]
    assert listed("--owner", "nobody") == []
    assert listed("--xid", "7:b-") == [xids[1]]
    assert listed("--xid", "*:0x" + b"a-".hex()) == [xids[0]]
    assert listed("--xid", "8:") == []
    assert listed("--older-than", "1h") == []
    assert listed("--older-than", "0s") == xids
    assert listed("--limit", "2") == xids[:2]
    assert listed("--limit", "2", "--page", "2") == xids[2:]
    assert listed("--limit", "2", "--page", "3") == []


def test_people_get_totals_and_are_told_where_the_rest_is(run, url, topic):
    prepare(url, topic, "a", "b", "c")
    text = run("transactions", "list", "--in-doubt", "--topic", topic, "--limit", "2").stdout
    assert "3 transactions, 6 messages" in text
    assert "These are 2 of them, page 1 of 2" in text
    assert "no orphan policy" in text
    assert (
        run("transactions", "list", "--in-doubt", "--topic", "none").stdout
        == "No such transaction is in doubt.\n"
    )


def test_a_list_can_be_watched_until_it_is_interrupted(url, prepared):
    command = ("transactions", "list", "--in-doubt", "--watch", "100ms", "--json")
    with process(*command, url=url) as watching:
        seen = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == Exit.INTERRUPTED
    assert seen[0]["at"] < seen[1]["at"] < seen[2]["at"]
    assert all(prepared in [each["xid"] for each in look["transactions"]] for look in seen)


# -- several at once --------------------------------------------------------------------------------


def test_what_options_choose_is_only_shown_until_it_is_told_to_execute(run, run_json, url, topic):
    xids = prepare(url, topic, "a", "b")
    chosen = ("transactions", "rollback", "--topic", topic, "--why", "ticket 9")
    plan = run(*chosen).stdout
    assert "Nothing was changed; to do it, add --execute" in plan
    assert [each["xid"] for each in run_json(*chosen)] == xids
    asked = run(*chosen, "--execute", stdin="n\n", code=1)
    assert "these 2 transactions, 4 messages" in asked.stderr
    assert states(run_json, xids) == ["prepared"] * 2
    results = run_json(*chosen, "--execute", "--yes")
    assert [(each["xid"], each["done"], each["result"]) for each in results] == [
        (xid, True, "rolled back") for xid in xids
    ]
    assert states(run_json, xids) == ["rolled-back"] * 2
    assert run_json(*chosen, "--execute", "--yes") == []


def test_several_can_be_named_and_forced_ones_forgotten_by_choice(run, run_json, url, topic):
    xids = prepare(url, topic, "a", "b", "c")
    assert (
        "3 transactions committed"
        in run("transactions", "commit", *xids, xids[0], "--why", "x", "--yes").stderr
    )
    assert states(run_json, xids) == ["committed"] * 3
    forced = run_json("transactions", "list", "--forced", "--topic", topic)
    assert [each["xid"] for each in forced] == xids
    forgotten = ("transactions", "forget", "--topic", topic, "--why", "all is well")
    run(*forgotten)
    assert len(run_json("transactions", "list", "--forced", "--topic", topic)) == 3
    assert len(run_json(*forgotten, "--execute", "--yes")) == 3
    assert run_json("transactions", "list", "--forced", "--topic", topic) == []


def test_one_of_several_that_is_not_known_stops_all_before_anything_is_done(run, run_json, url, topic):
    xids = prepare(url, topic, "a")
    run("transactions", "rollback", *xids, "7:nobody:x", "--why", "x", "--yes", code=1)
    assert states(run_json, xids) == ["prepared"]


def test_one_that_is_refused_holds_no_other_up_and_is_told_by_the_exit_code(
    run_json, url, topic, connection, capsys
):
    xids = prepare(url, topic, "a", "b", "c")
    infos = infos_of(connection, topic)
    connection.tpc_commit(infos[1].xid)  # its coordinator, between the plan and the deed
    results = end_all(connection, ROLL_BACK, infos)
    with pytest.raises(Failure, match="2 of 3 transactions rolled back, 1 not") as failed:
        report(Invocation(), ROLL_BACK, results)
    assert failed.value.exit_code == Exit.REFUSED
    assert "TransactionCommitted: transaction" in capsys.readouterr().out
    assert states(run_json, xids) == ["rolled-back", "committed", "rolled-back"]


def test_without_a_broker_the_rest_is_not_tried_and_the_exit_code_says_whether_to_look(tmp_path, capsys):
    with BrokerProcess(tmp_path / "data") as broker:
        with txbroker.connect(broker.address) as own:
            own.create_topic("t")
        prepare(broker.address, "t", "a", "b", "c")
        with txbroker.connect(broker.address, timeout=0.5) as connection:
            infos = infos_of(connection, "t")
            broker.kill()
            results = end_all(connection, ROLL_BACK, infos)
        assert [result.text for result in results[1:]] == [NOT_TRIED] * 2
        assert results[0].code in (Exit.UNREACHABLE, Exit.UNKNOWN)
        with pytest.raises(Failure, match=r"0 of 3 .*, 2 not tried") as failed:
            report(Invocation(as_json=True), ROLL_BACK, results)
        assert failed.value.exit_code == results[0].code
        assert [each["done"] for each in json.loads(capsys.readouterr().out)] == [False] * 3


def test_a_question_that_nobody_answers_changes_nothing(run, run_json, url, topic):
    xids = prepare(url, topic, "a", "b")
    run("transactions", "rollback", *xids, "--why", "x", stdin="", code=2)
    assert states(run_json, xids) == ["prepared"] * 2
