"""``txbroker transactions`` against real brokers: one for all of these tests, and some that are killed or damaged."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from crc32c import crc32c

import txbroker
from journal.transaction import Totals, Xid
from tests.broker_process import BrokerProcess
from tests.twistd_process import Peer, frames, twistd_process
from txbroker import commands, errors
from txbroker.cli import command_line
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Invocation
from txbroker.cli.transaction_choice import Choice
from txbroker.cli.transaction_ending import NOT_TRIED, Ending, end_all, report

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

ROLL_BACK = Ending(
    "Roll back",
    "rolled back",
    lambda broker, number: broker.rollback_transaction(number, by="ann", why="test"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker
        assert broker.stop() == 0


@pytest.fixture
def url(broker):
    return broker.address


@pytest.fixture
def connection(url):
    with txbroker.connect(url) as connection:
        yield connection


def runner(url):
    def run(*arguments, stdin=None, code=0):
        result = CliRunner().invoke(command_line, arguments, input=stdin, env={"TXBROKER_URL": url})
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        assert result.stderr or not code
        return result

    return run


@pytest.fixture
def run(url):
    return runner(url)


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


def prepare(url, topic, *names, client="billing"):
    """Transactions that their coordinator has prepared and then left alone, each from a connection of its own."""
    for name in names:
        with txbroker.connect(url, client=client) as own:
            own.tpc_begin(own.xid(7, f"{name}-{topic}", "broker"))
            own.send(topic, b"debit", key=b"42", headers={"kind": b"new"})
            own.send(topic, b"credit", key=b"42")
            own.tpc_prepare()
    return [f"7:{name}-{topic}:broker" for name in names]


@pytest.fixture
def prepared(url, topic):
    return prepare(url, topic, "order")[0]


def states(run_json, xids):
    return [run_json("transactions", "show", xid)["state"] for xid in xids]


def infos_of(connection, topic):
    return Choice(topic=topic).ask(connection)


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
    watching = subprocess.Popen(
        [sys.executable, "-c", "from txbroker.cli import main; main()", "transactions", "list", "--in-doubt",
         "--watch", "100ms", "--json"],
        env={**os.environ, "TXBROKER_URL": url, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    seen = [json.loads(watching.stdout.readline()) for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == Exit.INTERRUPTED
    watching.stdout.close()
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


# -- damage -----------------------------------------------------------------------------------------


@contextmanager
def started(data, *options):
    """A start of a broker on this data; killed at the end. Gives its process and its address."""
    with twistd_process(data, *options) as process:
        yield process, f"tcp:127.0.0.1:{process.ready()}"


def decide_to_commit(url, xid):
    """A coordinator's decision; the error that it gets."""
    with (
        txbroker.connect(url, client="coordinator") as coordinator,
        pytest.raises(errors.HeuristicallyRolledBack) as told,
    ):
        coordinator.tpc_commit(xid)
    return told.value


def test_a_contradiction_is_told_to_coordinator_and_operator_over_kills_and_restarts_until_forgotten(
    tmp_path,
):
    """L22: two parties resolve the same transaction differently, and nobody is told. L11: a restart undoes it."""
    xid = Xid(7, b"order-t", b"broker")
    with started(tmp_path / "data") as (_, url):
        with txbroker.connect(url) as own:
            own.create_topic("t")
        prepare(url, "t", "order")
        runner(url)("transactions", "rollback", str(xid), "--by", "ann", "--why", "ticket 815", "--yes")
    with started(tmp_path / "data") as (process, url):
        assert "DAMAGE" not in process.output
        error = decide_to_commit(url, xid)
        process.wait_for("warn.*DAMAGE")
    assert (error.by, error.why) == ("ann", "ticket 815")
    assert abs(error.wall - time.time_ns() // 1000) < 60_000_000
    assert isinstance(error, errors.TransactionRolledBack)
    with started(tmp_path / "data") as (process, url):
        process.wait_for("warn.*DAMAGE")
        assert decide_to_commit(url, xid).by == "ann"  # one that did not get the answer asks again
        run = runner(url)
        assert "1: DAMAGE" in run("status").stdout
        for command in (("list",), ("list", "--in-doubt"), ("list", "--damaged"), ("show", str(xid))):
            assert "DAMAGE" in run("transactions", *command).stdout
        shown = json.loads(run("transactions", "show", str(xid), "--json").stdout)
        assert (shown["state"], shown["damage"]) == ("rolled-back", True)
        assert shown["coordinator"]["decided"] == "committed"
        assert shown["coordinator"]["by"].startswith("coordinator@127.0.0.1:")
        asked = run("transactions", "forget", str(xid), "--why", "row 42 mended", stdin="y\n")
        assert "DAMAGE" in asked.stderr
        process.wait_for("forgotten by .*: row 42 mended")
        assert "DAMAGE" not in run("transactions", "list").stdout + run("status").stdout
    with started(tmp_path / "data") as (process, url):
        runner(url)("status")
        assert "DAMAGE" not in process.output


def test_a_coordinator_that_decides_as_was_forced_is_noted_and_nothing_is_damaged(
    run, run_json, url, prepared, topic
):
    run("transactions", "commit", prepared, "--by", "ann", "--why", "x", "--yes")
    assert run_json("transactions", "show", prepared)["coordinator"] is None
    with txbroker.connect(url) as coordinator:
        coordinator.tpc_commit(coordinator.xid(7, f"order-{topic}", "broker"))
        with pytest.raises(errors.HeuristicallyCommitted):
            coordinator.tpc_rollback(coordinator.xid(7, f"order-{topic}", "broker"))
    shown = run_json("transactions", "show", prepared)
    assert (shown["coordinator"]["decided"], shown["damage"]) == ("rolled-back", True), "it changed its mind"


@pytest.mark.parametrize(
    ("forced", "decision", "error"),
    [
        ("commit", "tpc_rollback", errors.HeuristicallyCommitted),
        ("rollback", "tpc_commit", errors.HeuristicallyRolledBack),
    ],
)
def test_a_coordinator_that_was_forestalled_is_told_and_can_go_on(run, url, topic, forced, decision, error):
    with txbroker.connect(url) as coordinator:
        xid = coordinator.xid(7, f"own-{topic}", "broker")
        coordinator.tpc_begin(xid)
        coordinator.send(topic, b"x")
        coordinator.tpc_prepare()
        run("transactions", forced, str(xid), "--by", "ann", "--why", "w", "--yes")
        with pytest.raises(error, match=r"by ann at 20\S+Z \(operator\): w"):
            getattr(coordinator, decision)()
        coordinator.tpc_begin(coordinator.xid(7, f"next-{topic}", "broker"))
        coordinator.send(topic, b"y")
        coordinator.tpc_commit()


# -- starts -----------------------------------------------------------------------------------------


def prepare_many(port, count):
    """So many transactions of one session, prepared and left alone; each is in a staged file when this returns."""
    with Peer(port) as peer:
        partition = peer.topic("t")
        run = frames(b"debit")
        for serial in range(1, count + 1):
            peer.say(commands.Add, serial, partition, data=run)
            peer.say(commands.Prepare, serial, Xid(7, b"%06d" % serial, b""), Totals(1, 1, crc32c(run)))
        assert {type(peer.read()[0]) for _ in range(count)} == {commands.Done}
        return partition


def fill_until_staged(port, partition, staged, count):
    """Checkpoints stage what lies below the one before, then say so; they come when there is something new."""
    deadline = time.monotonic() + 60
    with Peer(port) as peer:

        def fill_while(going_on):
            while going_on():
                assert time.monotonic() < deadline, "nothing was staged"
                peer.ask(commands.Send, partition, data=frames(b"x" * 1000))

        def checkpoint():
            return peer.ask(commands.AskStatus).values["checkpoint_lsn"]

        fill_while(lambda: len(list(staged.iterdir())) < count)
        before = checkpoint()
        fill_while(lambda: checkpoint() == before)


def damage(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0x40
    path.write_bytes(whole)


def test_a_start_with_a_thousand_in_doubt_one_damaged_and_one_missing_goes_on(tmp_path):
    """L20: an unresolved transaction blocks the whole broker from starting, and cannot be listed or forced."""
    data, count = tmp_path / "data", 1000
    with started(data, "--set", "checkpoint_interval=1s") as (_, url):
        port = int(url.rpartition(":")[2])
        partition = prepare_many(port, count)
        fill_until_staged(port, partition, data / "staged", count)
        with Peer(port) as peer:
            before = len(peer.values(partition))
    damaged, missing = sorted((data / "staged").iterdir())[:2]
    damage(damaged)
    missing.unlink()
    with started(data) as (process, url):
        assert process.field("in_doubt") == count
        run = runner(url)
        assert len(json.loads(run("transactions", "list", "--in-doubt", "--json").stdout)) == count
        for path in (damaged, missing):
            number = path.stem
            assert f"cannot be read: staged/{path.name}" in run("transactions", "show", number).stdout
            refused = run("transactions", "commit", number, "--why", "x", "--yes", code=6)
            assert "CorruptJournal" in refused.stderr
            assert path.name in refused.stderr
            assert "roll the transaction back" in refused.stderr
        committed = run("transactions", "commit", "--xid", "7:", "--why", "x", "--execute", "--yes", code=6)
        assert f"{count - 2} of 1,000 transactions committed, 2 not" in committed.stderr
        run("transactions", "rollback", damaged.stem, missing.stem, "--why", "damaged", "--yes")
        assert json.loads(run("transactions", "list", "--in-doubt", "--json").stdout) == []
    with started(data) as (process, url):
        assert process.field("in_doubt") == 0
        with Peer(int(url.rpartition(":")[2])) as peer:
            assert len(peer.values(partition)) == before + count - 2
