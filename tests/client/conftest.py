"""A scripted broker, and a client's core that is connected to it."""

import pytest

from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker


@pytest.fixture
def broker():
    return ScriptedBroker()


@pytest.fixture
def rig(broker):
    return Rig(broker)


@pytest.fixture
def filled_rig(rig):
    """With five messages in a partition."""
    for number in range(5):
        rig.send(b"%d" % number)
        rig.pump()
    return rig
