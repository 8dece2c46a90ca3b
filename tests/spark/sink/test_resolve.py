"""Test ``python -m spark.resolve``: it shows what is left and ends it as decided; a write at work is not touched."""

import json
import time

import pytest

import txbroker
from journal.formats.spark_decision import GROUPS
from spark import resolve
from spark.sink import branches, decision, leftovers
from spark.sink.branches import Write, of_application
from spark.sink.register import TOPIC, Register
from tests.spark.sink import writes
from tests.spark.sink.test_deciding import half_committed
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("resolve") / "data") as process:
        yield process


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as broker:
        if broker.topics([writes.TOPIC]):
            branches.end(broker, branches.undecided(broker).prepared, commit=False)
            broker.delete_topic(writes.TOPIC)
        broker.create_topic(writes.TOPIC, partitions=2)
        yield broker


@pytest.fixture
def write():
    return Write(writes.name(), 7)


def run(process, *arguments):
    return resolve.main(["--broker", process.address, *arguments])


def rows_of(capsys):
    return {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_nothing_undecided_is_said_with_exit_code_0(broker, process, capsys):
    assert run(process) == 0
    assert "no write of Spark is undecided" in capsys.readouterr().out


def test_without_execute_it_shows_what_it_would_do_and_changes_nothing(broker, process, write, capsys):
    half_committed(broker, process, write, writes.rows("a", 3, 2))
    other = Write(writes.name(), 0)
    writes.prepare(broker, other, writes.rows("b", 1, 2))
    before = writes.seen(process.address)
    assert run(process, "--json", "--older-than", "0") == 1
    rows = rows_of(capsys)
    assert (rows[write.name]["to_commit"], rows[write.name]["to_roll_back"]) == (5, 0)
    assert (
        rows[other.name]["to_commit"],
        rows[other.name]["to_roll_back"],
        rows[other.name]["messages"],
    ) == (0, 2, 2)
    assert not any(row["ended"] for row in rows.values())
    assert writes.seen(process.address) == before
    assert run(process) == 1
    assert "nothing was changed: end them with --execute" in capsys.readouterr().out


def test_with_execute_what_is_decided_is_committed_and_the_rest_rolled_back(broker, process, write, capsys):
    lists = writes.rows("a", 3, 2)
    half_committed(broker, process, write, lists)
    writes.prepare(broker, Write(writes.name(), 0), writes.rows("b", 1, 2))
    assert run(process, "--older-than", "0s", "--execute") == 0
    assert capsys.readouterr().out.count(": ended") == 2
    assert writes.seen(process.address) == writes.flat(lists)
    assert branches.undecided(broker) == branches.Listed({}, {})


def test_young_writes_and_those_still_sending_are_left_alone(broker, process, write, capsys):
    writes.prepare(broker, write, writes.rows("a", 1, 2))
    sending = branches.Branch.new(Write(writes.name(), 0), 0, 0, 0)
    with broker.transaction(sending.xid) as transaction:
        transaction.send_many(writes.TOPIC, [bytes(300_000)] * 2)
        broker.ping()
        assert run(process, "--execute") == 1
        assert (
            "2 are younger than 3600 s (--older-than), or still sending: left alone"
            in capsys.readouterr().out
        )
        assert run(process, "--execute", "--older-than", "0", "--json") == 1
        rows = rows_of(capsys)
        assert (rows[write.name]["ended"], rows[sending.write.name]["ended"]) == (True, False)
        assert rows[sending.write.name]["sending"] == 1


def test_one_name_can_be_chosen(broker, process, write, capsys):
    other = Write(writes.name(), 0)
    for each in (write, other):
        writes.prepare(broker, each, writes.rows("a", 1, 2))
    assert run(process, "--older-than", "0", "--execute", "--name", write.name) == 0
    assert {branch.write for branch in branches.undecided(broker).prepared} == {other}


def test_an_application_can_be_chosen_with_all_that_it_writes_to_one_topic_each(broker, process):
    mine = [of_application("nightly", topic, 1) for topic in ("", "orders", "payments")]
    others = [of_application("nightly2", "orders", 1), of_application("nightly.b", "", 1)]
    for each in (*mine, *others):
        writes.prepare(broker, each, writes.rows("a", 1, 2))
    assert run(process, "--older-than", "0", "--execute", "--name", "nightly") == 0
    assert {branch.write for branch in branches.undecided(broker).prepared} == set(others)


def test_a_living_driver_that_is_overtaken_fails_and_writes_nothing(broker, process, write):
    told = writes.prepare(broker, write, writes.rows("a", 1, 2))
    assert run(process, "--older-than", "0", "--execute") == 0
    with pytest.raises(decision.WriteRefused, match="run it again"):
        decision.commit(broker, write, told)
    assert writes.seen(process.address) == []


def test_registers_of_batches_that_ended_without_a_word_are_deleted_when_they_are_old(
    broker, process, capsys
):
    old, new = (
        leftovers.nameless(time.time() - age, f"{number:08x}") for number, age in enumerate((7200, 60))
    )
    for name in (old, new, "nightly"):
        register = Register(broker, name)
        register.end_epoch(register.read(), register.claim("a test"))
    assert run(process) == 0
    assert (
        "1 registers of batch writes that have ended without a word: to be deleted" in capsys.readouterr().out
    )
    assert run(process, "--execute") == 0
    groups = {group.name for group in broker.groups()}
    assert {GROUPS + new, GROUPS + "nightly"} <= groups
    assert GROUPS + old not in groups


def test_a_write_whose_decision_is_lost_is_named_and_left(broker, process, write, capsys):
    half_committed(broker, process, write, writes.rows("a", 3, 2))
    register = Register(broker, write.name)
    state = register.read()
    end = broker.topics([TOPIC])[0].partitions[0].high_watermark
    register.end_epoch(state._replace(offset=end), register.claim("a test"))
    assert run(process, "--older-than", "0", "--execute") == 6
    said = capsys.readouterr()
    assert "which of its branches are to be committed stood in" in said.out
    assert "Nothing was changed" in said.err
    assert len(branches.undecided(broker, write.name).prepared) == 5


def test_no_broker_is_exit_code_4(capsys):
    assert resolve.main(["--broker", "unix:/nowhere/at/all", "--timeout", "0.1"]) == 4
    assert "no connection to the broker" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["90", "-1", "soon"])
def test_times_that_are_none_are_refused_as_everywhere(wrong, capsys):
    with pytest.raises(SystemExit):
        resolve.main([f"--older-than={wrong}"])
    assert "a number with a unit, like 90s, 1h30m or 7d" in capsys.readouterr().err
