"""Test every verdict on the workers, on ledgers made by hand: what was sent, what handlers were called for."""

import itertools
from functools import cache

import msgspec
import pytest

from txbroker.client.core.results import Message
from txbroker.drill.clients.fate import ALWAYS, failures_of
from txbroker.drill.clients.ledger import Acknowledged, Began, Call, Line
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.clients.reader import checksum_of
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.judge_work import deaths_of
from txbroker.drill.judgement.violation import Wrong
from txbroker.drill.plan.plan import POLICY

LAYOUT = [(f"d-{short}", index) for short in ("tasks", "handled", "tasks.dead") for index in (0, 1)]
FEEDER = "feeder-1.1"
FIRST, SECOND = "worker-1.1", "worker-2.1"


@cache
def operation_that_fails(failures, nth=0):
    """The number of an operation whose message fails so often on purpose."""
    found = (number for number in itertools.count(1) if failures_of(FEEDER, number, 0) == failures)
    return next(itertools.islice(found, nth, None))


def headers_of(place):
    return (("place", b"%d" % place),)


class Shop:
    """A feeder, workers and partitions, to be judged."""

    def __init__(self):
        self.lines = []
        self.held = [[] for _ in LAYOUT]
        self.positions = {}
        self._fed = {0: 0, ALWAYS: 0}
        self._operations = {}
        self._now = 0.0

    def wrote(self, entry, ledger):
        self._now += 1.0
        number = 1 + sum(line.sender == ledger for line in self.lines)
        self.lines.append(Line(ledger, number, msgspec.structs.replace(entry, at=self._now)))

    def holds(self, place, **fields):
        topic, partition = LAYOUT[place]
        offset = len(self.held[place])
        self.held[place].append(Message(topic, partition, offset, 0, **fields))
        return offset

    def fed(self, place=0, key="k", failures=0, acknowledged=True):
        """A message for the workers, in its partition; return its offset."""
        operation = operation_that_fails(failures, self._fed[failures])
        self._fed[failures] += 1
        connection = len(self.lines)  # one each: connections have no order among each other
        self.wrote(Began(operation=operation, places=[place], keys=[key], connection=connection), FEEDER)
        value = value_of(MessageId("d", FEEDER, operation, 0, 1, 10))
        offset = self.holds(place, key=key.encode(), value=value, headers=headers_of(place))
        if acknowledged:
            self.wrote(Acknowledged(operation=operation, offsets=[(0, offset)]), FEEDER)
        self.positions[place] = offset + 1
        return offset

    def called(self, offset, place=0, worker=FIRST, effect=True, generation=5, key="k", **fields):
        """A call of a worker's handler, and its message, if it took effect."""
        there = self.held[place][offset : offset + 1]
        checksum = checksum_of(there[0].value) if there else 0
        call = {"place": place, "offset": offset, "generation": generation, "attempts": 0, "fails": False}
        made = Call(**(call | {"checksum": checksum} | fields))
        operation = self._operations[worker] = self._operations.get(worker, 0) + 1
        began = Began(operation=operation, places=[place + 2], together=True, keys=[key], call=made)
        self.wrote(began, worker)
        if effect:
            self.effect(worker, operation, place, key)
        return operation

    def effect(self, worker, operation, place=0, key="k"):
        value = value_of(MessageId("d", worker, operation, 0, 1, 10))
        self.holds(place + 2, key=key.encode(), value=value, headers=headers_of(place + 2))

    def failed(self, offset, **fields):
        return self.called(offset, effect=False, fails=True, **fields)

    def given_up(self, offset, place=0, attempts=POLICY.attempts, **changes):
        """A dead letter of a message."""
        message = self.held[place][offset]
        said = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": offset,
            "attempts": attempts,
        }
        dead = tuple((f"txbroker.dead.{name}", b"%d" % n) for name, n in said.items() if name != "topic")
        topic = ("txbroker.dead.topic", message.topic.encode())
        fields = {"key": message.key, "value": message.value, "headers": (*message.headers, topic, *dead)}
        self.holds(place + 4, **(fields | changes))

    def judged(self):
        expectation = Expectation()
        expectation.take(self.lines)
        judge = Judge("d", LAYOUT, expectation, tasks=[0, 1], dead=[4, 5])
        for place, messages in enumerate(self.held):
            for message in messages:
                judge.take(place, message)
        return judge.judge(self.positions)


@pytest.fixture
def shop():
    return Shop()


def only(violations, wrong):
    (violation,) = violations
    assert violation.wrong is wrong, str(violation)
    return violation


def kinds(violations):
    return {violation.wrong for violation in violations}


class TestEnds:
    def test_what_was_handled_once_and_poison_that_was_given_up_once_is_right(self, shop):
        shop.called(shop.fed())
        poison = shop.fed(failures=ALWAYS)
        for attempts in range(POLICY.attempts):
            shop.failed(poison, attempts=attempts)
        shop.given_up(poison)
        shop.called(shop.fed())
        shop.called(shop.fed(place=1), place=1)
        assert shop.judged() == []

    @pytest.mark.parametrize("acknowledged", [True, False])
    def test_what_has_no_effect_and_is_no_dead_letter_was_never_handled(self, shop, acknowledged):
        shop.fed(acknowledged=acknowledged)
        shop.called(0, effect=False)
        never = only(shop.judged(), Wrong.NEVER_HANDLED)
        assert (never.topic, never.partition, never.offset) == ("d-tasks", 0, 0)
        assert never.ledger == f"{FEEDER}.jsonl:{2 if acknowledged else 1}"
        assert "1 calls" in never.text

    def test_poison_that_is_not_among_the_dead_letters_was_never_handled(self, shop):
        shop.failed(shop.fed(failures=ALWAYS))
        only(shop.judged(), Wrong.NEVER_HANDLED)

    def test_two_effects_are_told_with_the_lines_of_both_calls(self, shop):
        shop.called(shop.fed())
        shop.called(0, worker=SECOND, generation=6)
        twice = only(shop.judged(), Wrong.HANDLED_TWICE)
        for part in (f"{FIRST}.jsonl:1) at 0", f"{SECOND}.jsonl:1) at 1"):
            assert part in twice.text

    def test_an_effect_and_a_dead_letter_are_one_too_many(self, shop):
        offset = shop.fed()
        for generation in range(POLICY.attempts):
            shop.called(offset, effect=False, generation=generation)
        shop.given_up(offset)
        shop.called(offset, generation=9)
        only(shop.judged(), Wrong.HANDLED_TWICE)

    def test_two_dead_letters_are_one_too_many(self, shop):
        poison = shop.fed(failures=ALWAYS)
        for _ in range(POLICY.attempts):
            shop.failed(poison)
        shop.given_up(poison)
        shop.given_up(poison)
        only(shop.judged(), Wrong.HANDLED_TWICE)

    def test_the_effect_of_a_call_that_failed_is_a_contradiction(self, shop):
        shop.called(shop.fed(), fails=True)
        assert only(shop.judged(), Wrong.CONTRADICTED).ledger == f"{FIRST}.jsonl:1"

    def test_the_effect_of_poison_is_a_contradiction_whatever_the_worker_has_noted(self, shop):
        shop.called(shop.fed(failures=ALWAYS))
        only(shop.judged(), Wrong.CONTRADICTED)

    def test_an_effect_of_what_is_not_there_was_never_sent(self, shop):
        shop.called(0)
        only(shop.judged(), Wrong.NEVER_SENT)

    def test_a_message_that_a_worker_was_handed_and_that_is_not_there_is_gone(self, shop):
        shop.called(0, effect=False)
        only(shop.judged(), Wrong.UNSEEN)

    @pytest.mark.parametrize("changes", [{"checksum": 1}, {"key": "another"}], ids=["value", "key"])
    def test_a_worker_must_be_handed_what_is_there(self, shop, changes):
        shop.called(shop.fed(), **changes)
        assert only(shop.judged(), Wrong.CHANGED).client == FIRST

    @pytest.mark.parametrize("position", [None, 0, 2])
    def test_the_group_must_stand_at_the_end(self, shop, position):
        shop.called(shop.fed())
        shop.positions[0] = position
        assert only(shop.judged(), Wrong.OFFSETS).offset == 1


class TestAttempts:
    """A message may be given up only after as many attempts as there can have been."""

    def test_one_that_died_with_a_worker_under_each_claim_may_be_given_up(self, shop):
        offset = shop.fed()
        for generation in range(POLICY.attempts):
            shop.called(offset, effect=False, generation=generation)
        shop.given_up(offset)
        assert shop.judged() == []

    def test_calls_under_one_claim_count_one_attempt_together(self, shop):
        offset = shop.fed()
        for _ in range(POLICY.attempts):
            shop.called(offset, effect=False)
        shop.given_up(offset)
        shop.called(shop.fed())
        assert "the ledgers know of 1 at most" in only(shop.judged(), Wrong.CONTRADICTED).text

    def test_fewer_attempts_than_the_policy_has_are_told(self, shop):
        poison = shop.fed(failures=ALWAYS)
        for _ in range(POLICY.attempts):
            shop.failed(poison)
        shop.given_up(poison, attempts=POLICY.attempts - 1)
        only(shop.judged(), Wrong.CONTRADICTED)

    def given_up_after_one_call_less(self, shop, dies):
        """All calls but one are in the ledgers; a worker may have died before it noted the last."""
        shop.called(shop.fed(key="other"), key="other")
        poison = shop.fed(failures=ALWAYS)
        for _ in range(POLICY.attempts - 1):
            shop.failed(poison, worker=SECOND, generation=6)
        shop.given_up(poison)
        shop.called(shop.fed(), generation=7, worker=SECOND)
        for number, worker in enumerate(["worker-1.2" if dies else FIRST, SECOND], 8):
            shop.called(shop.fed(key="other"), key="other", generation=number, worker=worker)
        return shop.judged()

    def test_a_worker_that_died_meanwhile_may_have_noted_one_less(self, shop):
        assert self.given_up_after_one_call_less(shop, dies=True) == []

    def test_and_if_none_died_none_is_missing(self, shop):
        only(self.given_up_after_one_call_less(shop, dies=False), Wrong.CONTRADICTED)

    def test_workers_may_have_died_between_the_lines_of_two_lives(self, shop):
        shop.fed()
        for worker in ("worker-1.2", "worker-1.4", SECOND):
            shop.called(0, worker=worker)
        expectation = Expectation()
        expectation.take(shop.lines)
        calls = [each for each in expectation.operations.values() if each.began.call]
        before, now = float("-inf"), float("inf")
        assert deaths_of(calls) == [(before, 3.0), (3.0, 4.0), (3.0, 4.0), (4.0, now), (5.0, now)]


class TestLetters:
    def dead(self, shop, **changes):
        poison = shop.fed(failures=ALWAYS)
        for _ in range(POLICY.attempts):
            shop.failed(poison)
        shop.given_up(poison, **changes)
        return shop.judged()

    def test_a_letter_that_names_another_place_has_moved(self, shop):
        shop.called(shop.fed())
        names = {"topic": b"d-tasks", "partition": b"0", "offset": b"0", "attempts": b"5"}
        dead = tuple((f"txbroker.dead.{name}", value) for name, value in names.items())
        assert kinds(self.dead(shop, headers=headers_of(0) + dead)) == {Wrong.MOVED, Wrong.NEVER_HANDLED}

    @pytest.mark.parametrize("dead", [(), (("txbroker.dead.offset", b"?"),)], ids=["none", "no number"])
    def test_a_letter_that_names_no_place_has_moved(self, shop, dead):
        assert kinds(self.dead(shop, headers=headers_of(0) + dead)) == {Wrong.MOVED, Wrong.NEVER_HANDLED}

    @pytest.mark.parametrize(
        "changes", [{"key": b"another"}, {"headers": ()}], ids=["key", "headers of the message"]
    )
    def test_a_letter_is_the_message_byte_for_byte(self, shop, changes):
        assert Wrong.CHANGED in kinds(self.dead(shop, **changes))

    def test_a_letter_of_no_message_was_never_sent(self, shop):
        shop.holds(4, key=b"k", value=b"what is this", headers=())
        only(shop.judged(), Wrong.NEVER_SENT)


class TestOrder:
    def test_keys_and_partitions_have_no_order_among_each_other(self, shop):
        for place, key in ((0, "a"), (0, "b"), (1, "a")):
            shop.fed(place, key)
        shop.called(1, key="b")
        shop.called(0, key="a")
        shop.called(0, place=1, key="a")
        assert shop.judged() == []

    def test_effects_of_a_key_in_another_order_are_told(self, shop):
        for _ in range(2):
            shop.fed()
        first, second = shop.called(0, effect=False), shop.called(1, effect=False)
        shop.effect(FIRST, second)
        shop.effect(FIRST, first)
        assert only(shop.judged(), Wrong.OUT_OF_ORDER).offset == 0

    def poison_after_a_later_one(self, shop, generation):
        poison, later = shop.fed(failures=ALWAYS), shop.fed()
        for _ in range(POLICY.attempts - 1):
            shop.failed(poison)
        shop.called(later)
        shop.failed(poison, generation=generation, worker=FIRST if generation == 5 else SECOND)
        shop.given_up(poison)
        return shop.judged()

    @pytest.mark.parametrize("generation", [5, 6])
    def test_a_later_message_of_the_key_must_wait_for_one_that_comes_again(self, shop, generation):
        assert (
            "was still to be handled"
            in only(self.poison_after_a_later_one(shop, generation), Wrong.OUT_OF_ORDER).text
        )

    def test_a_worker_that_has_lost_the_partition_may_still_call_its_handler(self, shop):
        assert self.poison_after_a_later_one(shop, generation=4) == []


class TestClaims:
    def test_each_claim_is_of_one_worker(self, shop):
        for worker, generation in ((FIRST, 5), (SECOND, 6), (FIRST, 7)):
            shop.called(shop.fed(), worker=worker, generation=generation)
        assert shop.judged() == []

    def test_the_same_claim_with_two_workers_is_told_also_without_an_effect(self, shop):
        shop.called(shop.fed())
        shop.called(shop.fed(key="other"), key="other", worker=SECOND, effect=False)
        shop.called(1, key="other")
        claim = only(shop.judged(), Wrong.CLAIM)
        assert f"{FIRST}.jsonl:1" in claim.text
        assert claim.ledger == f"{SECOND}.jsonl:1"

    @pytest.mark.parametrize("generation", [4, 5])
    def test_generations_of_two_partitions_have_nothing_to_do_with_each_other(self, shop, generation):
        shop.called(shop.fed())
        shop.called(shop.fed(place=1), place=1, worker=SECOND, generation=generation)
        assert shop.judged() == []

    def test_nothing_takes_effect_with_a_claim_after_a_later_one_was_used(self, shop):
        shop.called(shop.fed(), generation=6, worker=SECOND)
        shop.called(shop.fed(key="other"), key="other", generation=5)
        assert "after worker-2.1 operation 1" in only(shop.judged(), Wrong.CLAIM).text
