"""Test the decision about a write: made at most once, about whole data, and carried out after any death."""

import contextlib
import random

import greenlet
import pytest

import txbroker
from journal.arguments import checked_xid
from journal.formats.spark_decision import GROUPS
from spark.sink import branches
from spark.sink import decision as deciding
from spark.sink.branches import Branch, RegisterDamaged, Write
from spark.sink.decision import WriteRefused
from spark.sink.register import TOPIC, Decision, Register, RegisterState
from tests.spark.sink import writes
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("deciding") / "data") as process:
        yield process


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as broker:
        branches.end(broker, branches.undecided(broker).prepared, commit=False)
        with contextlib.suppress(errors.UnknownTopic):
            broker.delete_topic(writes.TOPIC)
        broker.create_topic(writes.TOPIC, partitions=2)
        yield broker


@pytest.fixture
def write():
    return Write(writes.name(), 7)


def in_doubt(broker, write):
    return len(branches.undecided(broker, write.name).prepared)


def test_all_rows_of_all_tasks_are_seen_after_the_commit_and_none_before(broker, process, write):
    lists = writes.rows("a", 3, 4)
    told = writes.prepare(broker, write, lists)
    assert writes.seen(process.address) == []
    assert in_doubt(broker, write) == 6
    decision = deciding.commit(broker, write, told)
    assert writes.seen(process.address) == writes.flat(lists)
    assert (in_doubt(broker, write), decision.rows, len(decision.branches)) == (0, 12, 6)


def test_a_version_that_is_repeated_in_other_partitions_writes_nothing(broker, process, write):
    first = writes.rows("a", 3, 4)
    writes.drive(broker, write, first)
    told = writes.prepare(broker, write, writes.rows("b", 6, 2))
    assert all(each.skipped for each in told)
    assert deciding.commit(broker, write, told) is None
    assert writes.seen(process.address) == writes.flat(first)


@pytest.mark.parametrize("count", [1, 3])
def test_a_version_that_is_repeated_with_another_number_of_rows_is_refused(broker, process, write, count):
    first = writes.rows("a", 3, 4)
    writes.drive(broker, write, first)
    with pytest.raises(WriteRefused, match=rf"is written already, with 12 rows, .* it has {6 * count}: the"):
        writes.drive(broker, write, writes.rows("b", 6, count))
    assert (in_doubt(broker, write), writes.seen(process.address)) == (0, writes.flat(first))


def test_a_version_that_is_repeated_to_other_topics_is_refused(broker, process, write):
    """Rows may name their topic, and then it is not in the write's name."""
    first = writes.rows("a", 1, 2)
    writes.drive(broker, write, first)
    [told] = writes.prepare(broker, write, first)
    for topics in (frozenset({"other"}), frozenset({"other", writes.TOPIC})):
        other = told._replace(extent=told.extent._replace(topics=topics))
        with pytest.raises(
            WriteRefused,
            match=rf"to the topics rows, and this time its rows name {', '.join(sorted(topics))}: it",
        ):
            deciding.commit(broker, write, [other])
    assert writes.seen(process.address) == writes.flat(first)


def test_a_decision_that_does_not_say_its_topics_is_compared_by_its_rows(broker, write):
    """As of a release that did not yet note them."""
    decision = Decision(name=write.name, version=7, epoch=1, branches=[], rows=2, bytes=9)
    older = b'{"name":"%s","version":7,"epoch":1,"branches":[],"rows":2,"bytes":9}' % write.name.encode()
    register = Register(broker, write.name)
    generation = register.claim("a test")
    offset = broker.topics([TOPIC])[0].partitions[0].high_watermark
    broker.send(TOPIC, older, key=write.name.encode())
    state = register.end_epoch(RegisterState(7, generation, offset), generation)
    assert register.last_decision(state) == decision
    assert deciding.commit(broker, write, writes.prepare(broker, write, writes.rows("a", 1, 2))) is None
    with pytest.raises(WriteRefused, match="with 2 rows, and this time it has 3"):
        deciding.commit(broker, write, writes.prepare(broker, write, writes.rows("a", 1, 3)))


def test_tasks_that_prepared_before_another_attempt_was_decided_are_rolled_back(broker, process, write):
    late = writes.prepare(broker, write, writes.rows("late", 2, 2))
    first = writes.rows("a", 3, 4)
    writes.drive(broker, write, first)
    assert in_doubt(broker, write) == 0  # the decision ended the late ones' epoch, and them
    with pytest.raises(WriteRefused, match="with 12 rows, and this time it has 4"):
        deciding.commit(broker, write, late)
    assert writes.seen(process.address) == writes.flat(first)


def test_a_task_that_prepared_before_another_attempt_was_decided_counts_with_those_that_skipped(
    broker, process, write
):
    """The rows of a wider attempt would be nowhere, and it would be called written."""
    late = writes.prepare(broker, write, writes.rows("late", 1, 3))
    first = writes.rows("a", 1, 6)
    writes.drive(broker, write, first)
    skipped = writes.prepare(broker, write, writes.rows("late", 1, 3))
    assert deciding.commit(broker, write, [*late, *skipped]) is None
    with pytest.raises(WriteRefused, match="with 6 rows, and this time it has 9"):
        deciding.commit(broker, write, [*late, *skipped, *skipped])
    assert writes.seen(process.address) == writes.flat(first)


def test_a_write_that_a_later_version_overtook_is_refused_and_not_called_written(broker, process, write):
    """Its rows are nowhere."""
    late = writes.prepare(broker, write, writes.rows("late", 2, 2))
    following = Write(write.name, write.version + 1)
    first = writes.rows("a", 3, 4)
    writes.drive(broker, following, first)
    with pytest.raises(
        WriteRefused, match=rf"was overtaken: version {following.version} was decided .* None of its"
    ):
        deciding.commit(broker, write, late)
    assert (in_doubt(broker, write), writes.seen(process.address)) == (0, writes.flat(first))
    told = writes.prepare(broker, write, writes.rows("again", 1, 2))
    assert deciding.commit(broker, write, told) is None, "begun after that it is one that is written already"


def test_a_lost_copy_of_a_task_leaves_nothing_behind(broker, process, write):
    lists = writes.rows("a", 2, 2)
    told = writes.prepare(broker, write, lists)
    writes.prepare(broker, write, writes.rows("speculative", 2, 2))  # nobody tells the driver
    deciding.commit(broker, write, told)
    assert (in_doubt(broker, write), writes.seen(process.address)) == (0, writes.flat(lists))


def test_a_decision_half_carried_out_is_finished_by_the_repeated_version(broker, process, write):
    lists = writes.rows("a", 3, 2)
    half_committed(broker, process, write, lists)
    assert 0 < len(writes.seen(process.address)) < 6
    told = writes.prepare(broker, write, writes.rows("b", 1, 6))
    assert deciding.commit(broker, write, told) is None
    assert (in_doubt(broker, write), writes.seen(process.address)) == (0, writes.flat(lists))


def test_a_decision_half_carried_out_is_finished_before_the_next_version_is_decided(broker, process, write):
    lists = writes.rows("a", 3, 2)
    half_committed(broker, process, write, lists)
    writes.drive(broker, Write(write.name, 8), writes.rows("b", 1, 1))
    assert writes.seen(process.address) == sorted([*writes.flat(lists), b"b-0-0"])


def test_a_decision_half_carried_out_is_finished_by_settling(broker, process, write):
    lists = writes.rows("a", 3, 2)
    half_committed(broker, process, write, lists)
    writes.prepare(broker, Write(write.name, 8), writes.rows("b", 1, 2))
    swept = deciding.settle(broker, write.name)
    assert (len(swept.committed), len(swept.rolled_back)) == (5, 2)
    assert writes.seen(process.address) == writes.flat(lists)


def half_committed(broker, process, write, lists):
    """The driver dies when it has committed one branch of six: a whole command is refused to it."""
    told = writes.prepare(broker, write, lists)
    before = branches.end

    def dying(connection, some, *, commit):
        before(connection, list(some)[:1], commit=commit)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "end", dying)
        with pytest.raises(KeyboardInterrupt):
            deciding.commit(broker, write, told)


def test_a_driver_whose_write_was_settled_decides_nothing_and_says_so(broker, process, write):
    told = writes.prepare(broker, write, writes.rows("a", 2, 2))
    assert len(deciding.settle(broker, write.name).rolled_back) == 4
    with pytest.raises(WriteRefused, match=r"begun .* in epoch 0, and now it is \d+.*run it again"):
        deciding.commit(broker, write, told)
    deciding.give_up(broker, write, told)
    again = writes.rows("again", 2, 2)
    writes.drive(broker, write, again)
    assert writes.seen(process.address) == writes.flat(again)


def test_a_branch_that_a_person_ended_before_the_decision_stops_it(broker, process, write):
    told = writes.prepare(broker, write, writes.rows("a", 2, 2))
    victim = next(iter(branches.undecided(broker, write.name).prepared))
    broker.rollback_transaction(victim.xid, "ann", "a test")
    with pytest.raises(WriteRefused, match="1 of 4 prepared branches are there no more"):
        deciding.commit(broker, write, told)
    deciding.give_up(broker, write, told)
    assert (in_doubt(broker, write), writes.seen(process.address)) == (0, [])


def test_a_branch_that_a_person_ended_after_the_decision_is_damage_until_it_is_forgotten(
    broker, process, write
):
    lists = writes.rows("a", 3, 2)
    half_committed(broker, process, write, lists)
    victim = sorted(branches.undecided(broker, write.name).prepared)[-1]
    broker.rollback_transaction(victim.xid, "ann", "a test")
    for _ in range(2):
        told = writes.prepare(broker, write, lists)
        with pytest.raises(
            errors.HeuristicMixed, match=r"DAMAGE: .* 1 of its 6 branches cannot be committed"
        ) as caught:
            deciding.commit(broker, write, told)
        assert caught.value.participants == [str(victim.xid)]
    assert len(writes.seen(process.address)) == 5
    broker.forget_transaction(victim.xid, "ann", "written again by hand")
    assert deciding.commit(broker, write, told) is None


def test_a_decision_that_is_gone_is_not_guessed(broker, process, write):
    half_committed(broker, process, write, writes.rows("a", 3, 2))
    broker.delete_topic(TOPIC)
    told = writes.prepare(broker, Write(write.name, 8), writes.rows("b", 1, 1))
    with pytest.raises(WriteRefused):  # the register has gone with the topic: epoch 0 is no one's of these
        deciding.commit(broker, Write(write.name, 8), [told[0]._replace(epoch=5)])
    assert in_doubt(broker, write) == 6


def test_a_register_that_begins_anew_under_prepared_branches_is_found_by_their_epochs(broker, process, write):
    writes.drive(broker, write, writes.rows("a", 2, 2))
    following = Write(write.name, 8)
    half_committed(broker, process, following, writes.rows("b", 2, 2))
    seen = writes.seen(process.address)
    broker.delete_topic(TOPIC)
    again = writes.prepare(broker, following, writes.rows("again", 2, 2))  # in epoch 0, for nothing is known
    for act in (
        lambda: deciding.commit(broker, following, again),
        lambda: deciding.settle(broker, write.name),
        lambda: deciding.give_up(broker, following, again),
    ):
        with pytest.raises(
            RegisterDamaged, match=r"was begun in epoch \d+ .* its register is only at .*deleted"
        ):
            act()
    assert (in_doubt(broker, write), writes.seen(process.address)) == (3 + 4, seen)


def test_a_decision_lost_to_retention_is_not_guessed(broker, process, write):
    half_committed(broker, process, write, writes.rows("a", 3, 2))
    register = Register(broker, write.name)
    state = register.read()
    end = broker.topics([TOPIC])[0].partitions[0].high_watermark
    generation = register.claim("a test")
    register.end_epoch(state._replace(offset=end), generation)  # as if what lies before were gone
    with pytest.raises(
        RegisterDamaged, match=r"which of its branches are to be committed stood in .* Nothing was changed"
    ):
        deciding.settle(broker, write.name)
    assert in_doubt(broker, write) == 5


@pytest.mark.parametrize("in_order", [True, False])
def test_a_repetition_whose_decision_retention_has_taken_cannot_be_compared(broker, process, write, in_order):
    """All of it is carried out. Of a stream nobody can say that its rows are those; a named batch is passed over."""
    first = writes.rows("a", 1, 2)
    writes.drive(broker, write, first)
    register = Register(broker, write.name)
    end = broker.topics([TOPIC])[0].partitions[0].high_watermark
    register.end_epoch(register.read()._replace(offset=end), register.claim("a test"))
    told = writes.prepare(broker, write, writes.rows("wider", 1, 3))
    if in_order:
        with pytest.raises(
            WriteRefused, match=r"its decision is kept no more \('spark.decisions' keeps one for 30"
        ):
            deciding.commit(broker, write, told, in_order=True)
    else:
        assert deciding.commit(broker, write, told) is None
    assert writes.seen(process.address) == writes.flat(first)


def test_a_task_at_another_broker_is_found_out(broker, write):
    told = writes.prepare(broker, write, writes.rows("a", 1, 2))
    with pytest.raises(
        WriteRefused, match=r"another broker .* the option 'broker' must mean the same everywhere"
    ):
        deciding.commit(broker, write, [told[0]._replace(broker="f" * 32)])
    deciding.give_up(broker, write, told)


def test_a_register_that_somebody_moved_by_hand_is_said(broker, write):
    writes.drive(broker, write, writes.rows("a", 1, 2))
    broker.set_offsets(GROUPS + write.name, TOPIC, {0: 0})
    with pytest.raises(RegisterDamaged, match="somebody has moved it by hand"):
        Register(broker, write.name).read()


def test_names_that_fit_no_xid_are_refused(broker):
    for wrong in (Write("", 1), Write("a/b", 1), Write("x" * 44, 1), Write("x", -1), Write("x", 1 << 63)):
        with pytest.raises(errors.InvalidName, match="nothing was written"):
            wrong.check()
    widest = Write("x" * 43, (1 << 63) - 1).check()
    branch = Branch.new(widest, (1 << 63) - 1, 1_000_000, 100_000)
    assert Branch.of(checked_xid(branch.xid)) == branch


class Killed(greenlet.GreenletExit):
    """An actor is dead from here on."""


@pytest.mark.parametrize("seed", range(120))
def test_any_number_of_drivers_and_settlers_in_any_interleaving_decide_once(broker, process, seed):
    """Two drivers of one version, one of the next, somebody who settles; each may die before any of its requests."""
    chance = random.Random(seed)
    write = Write(writes.name(), 1)
    following = Write(write.name, 2)
    main = greenlet.getcurrent()
    attempts = {"a": writes.rows("a", 2, 2), "b": writes.rows("b", 3, 1), "next": writes.rows("n", 1, 2)}
    deaths = chance.choice([0.0, 0.02, 0.1])

    def before():
        if chance.random() < deaths:
            raise Killed
        main.switch()

    connections = [writes.stepped(process.address, before) for _ in range(4)]
    work = [
        lambda c: writes.drive(c, write, attempts["a"]),
        lambda c: writes.drive(c, write, attempts["b"]),
        lambda c: writes.drive(c, following, attempts["next"]),
        lambda c: deciding.settle(c, write.name, patience=0.0),
    ]
    taking_part = {0, 1} | {number for number in (2, 3) if chance.random() < 0.4}  # they mostly win

    succeeded = set[int]()

    def actor(connection, act):
        with contextlib.suppress(errors.TxBrokerError, Killed):
            act(connection)
            succeeded.add(work.index(act))

    actors = [
        greenlet.greenlet(lambda c=connection, act=act: actor(c, act))
        for number, (connection, act) in enumerate(zip(connections, work, strict=True))
        if number in taking_part
    ]
    for each in actors:
        each.parent = main
    while living := [each for each in actors if not each.dead]:
        chance.choice(living).switch()
    for connection in connections:
        connection.before = lambda: None
        connection.close()

    deciding.settle(broker, write.name)
    found = writes.seen(process.address)
    of_write = [value for value in found if value[:1] in b"ab"]
    assert of_write in ([], writes.flat(attempts["a"]), writes.flat(attempts["b"]))
    assert [value for value in found if value[:1] == b"n"] in ([], writes.flat(attempts["next"]))
    assert in_doubt(broker, write) == 0
    overtaken = len(found) > len(of_write)  # who begins after that is told that it is written already
    for number, name in enumerate("ab"):
        assert number not in succeeded or of_write == writes.flat(attempts[name]) or overtaken
    assert 2 not in succeeded or overtaken
    decided = [m for m in broker.read(TOPIC, 0, 0, 1 << 24) if m.key == write.name.encode()]
    assert len(decided) == bool(of_write) + (len(found) > len(of_write))
