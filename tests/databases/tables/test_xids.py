"""Test the xids of blocks: they are unique, bounded, and belong to one table and broker."""

import pytest

from journal.arguments import checked_xid
from journal.xid import Xid
from txbroker import errors
from txbroker.databases.adapters.adapter import run
from txbroker.databases.tables import xids

TABLE, OTHER_TABLE = "0123456789abcdef", "fedcba9876543210"
BROKER, OTHER_BROKER = "a" * 32, "b" * 32


def test_no_two_are_the_same_and_each_fits():
    made = {xids.make(TABLE, "x" * xids.MAX_APPLICATION, BROKER) for _ in range(2000)}
    assert len(made) == 2000
    assert {len(checked_xid(xid).global_id) for xid in made} == {64}
    assert {xids.row_key(xid)[:17] for xid in made} == {f"{TABLE}-"}


def test_one_belongs_to_its_table_and_its_broker_only():
    xid = xids.make(TABLE, "shop", BROKER)
    assert xids.belongs(xid, TABLE, BROKER)
    assert not xids.belongs(xid, OTHER_TABLE, BROKER)
    assert not xids.belongs(xid, TABLE, OTHER_BROKER)
    assert not xids.belongs(Xid(1, xid.global_id, xid.branch), TABLE, BROKER)
    assert not xids.belongs(None, TABLE, BROKER)


@pytest.mark.parametrize("name", ["a b", "ü", "a-b", "x" * (xids.MAX_APPLICATION + 1)])
def test_what_does_not_fit_is_refused(name):
    with pytest.raises(errors.InvalidName):
        xids.check_application(name)


def test_an_operation_that_waits_is_not_run_as_if_it_did_not():
    class Never:
        def __await__(self):
            yield

    async def waits():
        await Never()

    with pytest.raises(errors.Misuse, match="asynchronous"):
        run(waits())
