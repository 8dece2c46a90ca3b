"""Test what a pass of a resolver is told as, and which passes need a person."""

import pytest

from journal.xid import Xid
from txbroker import errors
from txbroker.databases.outbox.lookout import Swept
from txbroker.databases.resolver import Resolution, goes_on

XID = Xid(1, b"a", b"b")
NOTHING = Resolution([], [], [], [], 0, 0)


def test_a_pass_without_work_says_so():
    assert NOTHING.sentence == "nothing was in doubt"
    assert NOTHING.is_quiet
    assert not NOTHING.needs_a_person


def test_a_pass_is_told_in_one_sentence():
    found = Resolution([XID], [XID, XID], [XID], ["key"], 1, 2000, outbox=Swept(3, 1, 2, 1))
    assert found.sentence == (
        "1 committed, 2 rolled back, 1 waiting for an open database transaction, 1 contradicted by force, 1 row "
        "removed, 2,000 of other databases left alone, 1 block delivered from the outbox, 2 blocks refused for ever "
        "(see 'txbroker outbox list'), 1 stream released"
    )


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        ({"committed": [XID]}, False),
        ({"waiting": [XID]}, True),
        ({"contradicted": ["key"]}, True),
        ({"outbox": Swept(1, 5, 0, 1)}, False),
        ({"outbox": Swept(1, 5, 1, 1)}, True),
    ],
)
def test_what_is_left_needs_a_person(change, needs):
    assert NOTHING._replace(**change).needs_a_person is needs


@pytest.mark.parametrize(
    ("error", "goes"),
    [
        (errors.StorageUnavailable("x"), True),
        (errors.OutcomeUnknown("x"), True),
        (errors.OutboxSetBack("x"), True),
        (errors.LimitExceeded("x"), True),
        (errors.DecisionTableRefused("x"), False),
        (errors.BrokerReplaced("x"), False),
    ],
)
def test_a_resolver_that_watches_goes_on_after_what_may_pass(error, goes):
    assert goes_on(error) is goes
