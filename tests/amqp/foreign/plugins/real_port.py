"""A plugin for pika's tests, which know no port but 5672: pika connects to the broker's instead."""

import os

import pytest
from pika.connection import Parameters

ASSIGNED = 5672
_port = Parameters.port


def _set(parameters, value):
    _port.fset(parameters, int(os.environ["AMQP_PORT"]) if value == ASSIGNED else value)


Parameters.port = property(_port.fget, _set)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """End without waiting for the threads of tests that were given up."""
    os._exit(0)
