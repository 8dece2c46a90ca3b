"""Test a broker's part of a transaction that its program leaves prepared and another program ends, by its xid."""

import pytest

from txbroker.coordinator.broker_resource import BrokerResource, StagingBroker
from txbroker.coordinator.gids import Branch

pytestmark = pytest.mark.slow


def resource_parts(kind, connection):
    """What sends, and what has the number."""
    if kind is StagingBroker:
        return lambda resource: (resource.transaction, resource.transaction)
    return lambda resource: (connection, connection._two_phase.current)


@pytest.mark.parametrize("kind", [BrokerResource, StagingBroker])
def test_what_is_abandoned_keeps_its_serial_open_no_longer_than_it_may_be_asked_for(scene, kind):
    with scene.participants["orders"]() as connection:
        resource = kind(connection)
        branch = Branch("g", f"orders-{kind.__name__}")
        resource.begin(branch)
        sends, numbered = resource_parts(kind, connection)(resource)
        sends.send(scene.topic, b"1")
        resource.prepare()
        serial = numbered.number.serial
        resource.abandon()
        assert list(connection._serials._left) == [serial]
        assert connection._two_phase.current is None
        connection.tpc_rollback(resource._xid(branch))
