"""The comparer finds each kind of fault, and nothing in facts that agree."""

from dataclasses import replace

import pytest

from examples.orders.compare import Facts, Fault, compare
from examples.orders.shop import Order

A, B, C = (Order(name, "ann", cents) for name, cents in (("a", 100), ("b", 200), ("c", 300)))
ALL = [A, B, C]


def facts(**changed):
    good = Facts(ALL, ALL, ALL, ALL, placed={"a", "b"}, refused={"x"})
    return replace(good, **changed)


def without(order):
    return [one for one in ALL if one != order]


FAULTY = {
    Fault.ROW_LOST: facts(placed={"a", "lost"}),
    Fault.FALSELY_REFUSED: facts(refused={"a"}),
    Fault.MESSAGE_MISSING: facts(order_messages=without(C), invoices=without(C), invoice_messages=without(C)),
    Fault.ROW_MISSING: facts(orders=without(C)),
    Fault.MESSAGE_TWICE: facts(order_messages=[*ALL, A]),
    Fault.DIFFERENT: facts(orders=[A, B, replace(C, cents=301)]),
    Fault.INVOICE_MISSING: facts(invoices=without(B), invoice_messages=without(B)),
    Fault.INVOICE_TWICE: facts(invoices=[*ALL, B], invoice_messages=[*ALL, B]),
    Fault.INVOICE_WITHOUT_ORDER: facts(
        invoices=[*ALL, replace(A, id="z")], invoice_messages=[*ALL, replace(A, id="z")]
    ),
    Fault.INVOICE_DIFFERENT: facts(
        invoices=[A, B, replace(C, cents=301)], invoice_messages=[A, B, replace(C, cents=301)]
    ),
    Fault.INVOICE_MESSAGES: facts(invoice_messages=[A, B, C, C]),
    Fault.IN_DOUBT: facts(in_doubt=["xid"]),
    Fault.STALE_DECISION: facts(decisions=["committed: xid"]),
    Fault.IDLE: facts(least_orders=4),
}


def test_facts_that_agree_are_good():
    assert compare(facts()) == []


def test_an_order_whose_end_nobody_was_told_may_be_there_or_not():
    assert compare(facts(placed=set(), refused=set())) == []


def test_there_is_an_example_of_each_fault():
    assert set(FAULTY) == set(Fault)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_each_kind_of_fault_is_found_and_named_alone(fault):
    assert {found for found, _ in compare(FAULTY[fault])} == {fault}


def test_a_message_about_an_invoice_that_is_missing_is_found_too():
    assert compare(facts(invoice_messages=without(A))) == [(Fault.INVOICE_MESSAGES, "a")]


def test_a_falsely_refused_order_is_found_by_its_message_alone():
    found = compare(facts(orders=without(C), refused={"c"}))
    assert (Fault.FALSELY_REFUSED, "c") in found
