"""Test registers: they are made before there are rows, shown, and deleted when unused; also where no more groups
fit.
"""

import datetime
import json
import time

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import txbroker
from journal.formats.spark_decision import GROUPS
from spark import resolve
from spark.sink import branches, decision, leftovers
from spark.sink.branches import Write
from spark.sink.options import SinkOptions
from spark.sink.register import Register
from spark.sink.writer import BatchSink, StreamSink
from tests.spark.sink import writes
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow

SCHEMA = StructType([StructField("value", BinaryType())])
ROWS = pa.record_batch([pa.array([b"a"])], names=["value"])
AT_MOST = 3


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("registers") / "data", f"max_groups={AT_MOST}") as process:
        yield process


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as broker:
        branches.end(broker, branches.undecided(broker).prepared, commit=False)
        for group in broker.groups():
            broker.delete_group(group.name)
        if broker.topics([writes.TOPIC]):
            broker.delete_topic(writes.TOPIC)
        broker.create_topic(writes.TOPIC)
        yield broker


@pytest.fixture
def options(process):
    return SinkOptions(process.address, writes.TOPIC, timeout=10.0)


@pytest.fixture
def write():
    return Write(writes.name(), 7)


def fill(broker, begun=None):
    """Registers as many as may be."""
    made = [leftovers.nameless(begun, f"{n:08x}") if begun else f"full-{n}" for n in range(AT_MOST)]
    for name in made:
        Register(broker, name).reserve()
    return made


def run(process, *arguments):
    return resolve.main(["--broker", process.address, *arguments])


def names(broker):
    return {group.name.removeprefix(GROUPS) for group in broker.groups()}


def test_a_named_write_has_its_register_before_its_tasks_run_and_goes_on_with_it(
    broker, process, options, write
):
    sink = BatchSink(options._replace(write=write), SCHEMA, overwrite=False)
    assert names(broker) == {write.name}
    assert Register(broker, write.name).read()[:2] == (-1, 0)
    sink.commit([sink.write(iter([ROWS]))])
    assert writes.seen(process.address) == [b"a"]


def test_a_write_for_whose_register_there_is_no_room_fails_before_a_row_is_sent(broker, options, write):
    """It failed when its rows were prepared, and left them: nobody could end them."""
    fill(broker)
    said = f"'{write.name}' needs a register, .* the limit is 3 .*resolve --registers' shows"
    with pytest.raises(errors.LimitExceeded, match=said):
        BatchSink(options._replace(write=write), SCHEMA, overwrite=False)
    with pytest.raises(errors.LimitExceeded, match=said):
        StreamSink(options, SCHEMA, overwrite=False).write_rows(write, None, iter([ROWS]))
    with pytest.raises(errors.LimitExceeded, match=r"'batch-.*' needs a register"):
        BatchSink(options, SCHEMA, overwrite=False)
    assert branches.undecided(broker) == branches.Listed({}, {})


def test_a_register_is_made_by_one_task_and_takes_nothing_from_who_has_claimed_it(broker, options, write):
    sink, register = StreamSink(options, SCHEMA, overwrite=False), Register(broker, write.name)
    told = [sink.write_rows(write, None, iter([ROWS])).report for _ in range(2)]
    assert [each.epoch for each in told] == [0, 0]
    generation = register.claim("a driver")
    register.reserve()
    assert register.decide(write.version, [], told[0].extent, generation).epoch == generation
    state = register.read()
    register.reserve()
    assert register.read() == state
    reserved = Register(broker, "reserved", clock=lambda: 1_000_000_000.0)
    for register in (reserved, Register(broker, "reserved")):
        register.reserve()
    assert reserved.read().at == 1_000_000_000


def test_registers_are_shown_with_what_was_decided_and_when(broker, process, write, capsys):
    writes.drive(broker, write, writes.rows("a", 1, 2))
    Register(broker, "reserved", clock=lambda: 1_000_000_000.0).reserve()
    assert run(process, "--registers", "--json") == 0
    shown = {row["register"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    used = datetime.datetime.fromisoformat(shown[write.name]["used"])
    assert abs(used.timestamp() - time.time()) < 60
    assert (shown[write.name]["version"], shown["reserved"]["version"]) == (7, -1)
    assert shown["reserved"]["used"] == "2001-09-09T01:46:40+00:00"
    assert run(process, "--registers", "--name", "reserved") == 0
    said = capsys.readouterr().out
    assert "register reserved: none decided, epoch 0, last used 2001-09-09T01:46:40+00:00\n" in said
    assert write.name not in said


def test_registers_that_were_not_used_for_long_are_deleted_unless_they_have_branches(
    broker, process, options, write, capsys
):
    def aged(name, age):
        Register(broker, name, clock=lambda: time.time() - age).reserve()

    aged("old", 7200)
    aged("young", 60)
    aged(write.name, 7200)
    writes.prepare(broker, write, writes.rows("a", 1, 2))
    assert run(process, "--expire", "1h") == 1
    assert capsys.readouterr().out.count(": to be deleted") == 1
    assert len(names(broker)) == 3
    assert run(process, "--expire", "1h", "--execute") == 1
    assert "register old: none decided, epoch 0, last used " in capsys.readouterr().out
    assert names(broker) == {"young", write.name}


def test_a_register_that_is_used_between_looking_and_deleting_stays_or_its_writer_fails(
    broker, options, write
):
    """Who deletes it claims it first."""
    writes.drive(broker, write, writes.rows("a", 1, 2))
    [seen] = leftovers.registers(broker)
    following = Write(write.name, 8)
    told = writes.prepare(broker, following, writes.rows("b", 1, 2))
    assert not leftovers.expire(broker, seen)
    with pytest.raises(decision.WriteRefused, match="run it again"):
        decision.commit(broker, following, told)
    decision.give_up(broker, following, told)
    writes.drive(broker, following, writes.rows("b", 1, 2))
    assert not leftovers.expire(broker, seen)
    [seen] = leftovers.registers(broker)
    late = StreamSink(options, SCHEMA, overwrite=False)

    def rows():
        yield ROWS
        assert leftovers.expire(broker, seen)

    with pytest.raises(decision.WriteRefused, match="Nothing of this attempt will be seen"):
        late.write_rows(Write(write.name, 9), None, rows())
    assert names(broker) == set()


@pytest.mark.parametrize("step", range(6))
def test_no_decision_goes_with_a_register_that_is_deleted_while_a_driver_decides(
    broker, process, write, step
):
    """A driver whose tasks had no rows, so that nothing is undecided, at each step of who deletes."""
    writes.drive(broker, write, writes.rows("a", 1, 2))
    [seen] = leftovers.registers(broker)
    following = Write(write.name, 8)
    told = writes.prepare(broker, following, [[]])
    outcomes = []

    def before():
        if len(outcomes) == step:
            try:
                outcomes.append(decision.commit(broker, following, told))
            except (decision.WriteRefused, errors.GenerationFenced):
                outcomes.append(None)
        else:
            outcomes.append(None)

    with writes.stepped(process.address, before) as expiring:
        leftovers.expire(expiring, seen)
    decided = any(outcome is not None for outcome in outcomes)
    assert decided == (Register(broker, write.name).read().decided == 8)


def test_a_register_that_cannot_be_read_is_shown_and_stays(broker, process, write, capsys):
    writes.drive(broker, write, writes.rows("a", 1, 2))
    broker.set_offsets(GROUPS + write.name, "spark.decisions", {0: 0})
    assert run(process, "--registers", "--expire", "0", "--execute") == 0
    assert "last used unknown. group" in capsys.readouterr().out
    assert names(broker) == {write.name}


def test_branches_whose_register_was_deleted_are_ended_where_old_registers_can_make_room(
    broker, process, write, capsys
):
    writes.prepare(broker, write, writes.rows("a", 1, 2))
    fill(broker)
    assert run(process, "--older-than", "0", "--execute") == 3
    assert f"'{write.name}' needs a register, which is a consumer group" in capsys.readouterr().err
    assert len(branches.undecided(broker).prepared) == 2
    for name in names(broker):
        broker.delete_group(GROUPS + name)
    fill(broker, begun=time.time() - 7200)
    assert run(process, "--older-than", "0", "--execute") == 0
    assert branches.undecided(broker) == branches.Listed({}, {})
