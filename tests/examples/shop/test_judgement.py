"""The judge finds each kind of fault, and nothing in facts that agree."""

from dataclasses import replace

import pytest

from examples.shop.drill.judgement import Facts, Fault, Placed, judge

A, B, C = (
    Placed(number, customer, product, cents)
    for number, customer, product, cents in (
        ("a", "ann", "tea", 450),
        ("b", "bob", "cup", 1250),
        ("c", "ann", "cup", 1250),
    )
)
ALL = ["a", "b", "c"]
TASKS = {"charge": ALL, "ship": ALL, "ask": ALL}


def facts(**changed):
    good = Facts(
        acknowledged={"a", "b"},
        refused={"x"},
        unknown={"c", "d"},
        orders=[A, B, C],
        tasks=TASKS,
        spent={"ann": 1700, "bob": 1250, "cleo": 0},
        sold={"tea": 1, "cup": 2, "cake": 0},
        queues={"celery": 0},
    )
    return replace(good, **changed)


def with_task(name, done):
    return facts(tasks={**TASKS, name: done})


FAULTY = {
    Fault.ORDER_LOST: facts(acknowledged={"a", "b", "lost"}),
    Fault.ORDER_KEPT: facts(acknowledged={"a"}, refused={"b"}),
    Fault.ORDER_UNASKED: facts(unknown=set()),
    Fault.TASK_LOST: with_task("ship", ["a", "c"]),
    Fault.TASK_TWICE: with_task("ask", ["a", "b", "b", "c"]),
    Fault.TASK_UNASKED: with_task("charge", [*ALL, "z"]),
    Fault.SUM_WRONG: facts(spent={"ann": 2150, "bob": 1250}),
    Fault.STOCK_WRONG: facts(sold={"tea": 1, "cup": 1}),
    Fault.IN_DOUBT: facts(in_doubt=["xid"]),
    Fault.DECISION_LEFT: facts(decisions=["committed: xid"]),
    Fault.OUTBOX_LEFT: facts(outbox=["stream, number 7"]),
    Fault.MESSAGE_LEFT: facts(queues={"celery": 1}),
    Fault.DAMAGED: facts(damage="exit code 6"),
    Fault.IDLE: facts(least_orders=4),
}


def test_facts_that_agree_are_good():
    assert judge(facts()) == []


def test_an_order_whose_end_no_customer_knows_may_be_there_or_not():
    assert judge(facts(acknowledged=set(), unknown={*ALL, "d"})) == []


def test_there_is_an_example_of_each_fault():
    assert set(FAULTY) == set(Fault)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_each_kind_of_fault_is_found_and_named_alone(fault):
    assert {found for found, _ in judge(FAULTY[fault])} == {fault}


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_looked_at(task):
    assert judge(with_task(task, ["a", "a", "c"])) == [
        (Fault.TASK_LOST, f"{task} of b"),
        (Fault.TASK_TWICE, f"{task} of a, 2 times"),
    ]


def test_a_sum_that_is_there_for_nobody_who_has_ordered_is_wrong():
    assert judge(facts(spent={"ann": 1700, "bob": 1250, "cleo": 5})) == [
        (Fault.SUM_WRONG, "cleo: 5, and not 0")
    ]
