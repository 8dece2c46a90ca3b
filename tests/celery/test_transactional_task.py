"""Test tasks whose acknowledgement commits with their rows, with a real worker."""

import pytest

from tests.celery.conftest import ready
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def test_the_row_the_next_task_and_the_acknowledgement_are_one(application, worker, broker):
    application.order.delay("a")
    eventually(lambda: application.effects("bill") == ["a"])
    assert application.effects("order") == ["a"]
    eventually(lambda: ready(broker) == 0)


def test_a_task_that_fails_comes_again_and_leaves_nothing(application, worker, broker):
    application.fails_once.delay("a")
    eventually(lambda: application.effects("bill") == ["a"])
    assert application.effects("fails_once") == ["a"]
    eventually(lambda: ready(broker) == 0)


def test_a_failure_is_acknowledged_where_the_task_says_so(application, worker, broker):
    result = application.fails.delay("a")
    with pytest.raises(ValueError, match="always"):
        result.get(timeout=30)
    eventually(lambda: ready(broker) == 0)
    assert application.effects("fails") == application.effects("bill") == []


def test_a_retry_is_one_with_the_acknowledgement_and_rolls_the_rows_back(application, worker, broker):
    application.retries.delay("a")
    eventually(lambda: application.effects("bill") == ["a"])
    assert application.effects("retries") == ["a"]
    eventually(lambda: ready(broker) == 0)


def test_an_automatic_retry_works_the_same(application, worker, broker):
    application.autoretries.delay("a")
    eventually(lambda: application.effects("autoretries") == ["a"])
    eventually(lambda: ready(broker) == 0)


def test_a_rejected_task_is_returned_or_dropped_without_its_rows(application, worker, broker):
    application.rejects.delay("a")
    eventually(lambda: worker.output.count("not wanted") >= 2)
    eventually(lambda: ready(broker) == 0)
    assert application.effects("rejects") == []


def test_an_ignored_task_is_committed(application, worker, broker):
    application.ignores.delay("a")
    eventually(lambda: application.effects("bill") == ["a"])
    assert application.effects("ignores") == ["a"]


def test_a_replaced_task_is_committed_with_what_replaces_it(application, worker, broker):
    assert application.replaces.delay("a").get(timeout=30) == "a"
    assert application.effects("replaces") == application.effects("bill") == ["a"]


def test_the_rest_of_a_chain_and_links_go_with_the_commit(application, worker, broker):
    chain = application.order.s("a") | application.bill.s() | application.plain.s()
    assert chain.apply_async(link=application.plain.s()).get(timeout=30) == "a"
    eventually(lambda: application.effects("plain") == ["a", "a"])
    assert application.effects("bill") == ["a", "a"]


def test_a_chord_works(application, worker, broker):
    from celery import chord

    found = chord([application.order.s(id) for id in "ab"], application.gather.s()).apply_async()
    assert sorted(found.get(timeout=30)) == ["a", "b"]


def test_a_task_without_a_database_is_a_transaction_of_the_broker(application, worker, broker):
    application.only_sends.delay("a")
    eventually(lambda: application.effects("bill") == ["a"])
    eventually(lambda: ready(broker) == 0)
