"""Test Celery in a program with Django: ``delay()`` joins ``transaction.atomic()``, and so does a task's run."""

import os
import subprocess
import sys

import pytest

from tests.celery.conftest import ready
from tests.celery.worker_process import WorkerProcess
from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def manage(environment, *command):
    subprocess.run(
        [sys.executable, "-m", "tests.celery.django_shop", *command],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": PACKAGES, **environment}, check=True, timeout=60,
    )  # fmt: skip


def test_what_is_sent_joins_the_transaction_and_so_does_what_a_task_sends(
    application, environment, tmp_path, broker
):
    manage(environment, "migrate")
    manage(environment, "send")
    assert ready(broker) == 1
    assert application.effects("view") == ["a", "c"]
    with WorkerProcess("tests.celery.django_shop", tmp_path / "worker.log", environment):
        eventually(lambda: application.effects("bill") == ["a", "a"])
        eventually(lambda: ready(broker) == 0)
    assert application.effects("order") == ["a"]
