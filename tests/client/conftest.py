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
