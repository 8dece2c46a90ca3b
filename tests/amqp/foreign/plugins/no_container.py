"""A plugin for the tests of aio-pika and aiormq, which start a broker in a container: they get ours instead."""

import importlib
import os
import sys

import pytest
from yarl import URL

sys.path.insert(0, os.getcwd())
docker_client = importlib.import_module("tests.docker_client")


class RunningBroker:
    """Stands where their client of Docker would: whatever container is asked for, the broker runs already."""

    def __init__(self, host_info=None):
        pass

    def run(self, image, ports, environment=None):
        given = {"5672/tcp": int(os.environ["AMQP_PORT"]), "5671/tcp": 1}
        return docker_client.ContainerInfo(id="broker", host="127.0.0.1", ports=given)

    def kill(self, container_id):
        pass

    def remove(self, container_id):
        pass


docker_client.DockerClient = RunningBroker
docker_client.check_docker_available = lambda: docker_client.DockerHostInfo(is_tcp=True, host="127.0.0.1")


@pytest.fixture(scope="session")
def rabbitmq_container():
    """Return the broker; aiormq's archive lacks the fixture, aio-pika's has its own."""
    return docker_client.DockerClient().run("", [])


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container):
    """Return the broker's address."""
    return URL(f"amqp://guest:guest@127.0.0.1:{rabbitmq_container.ports['5672/tcp']}//")
