"""A process that comes to a moment is held there, if the drill has asked for it, and only one."""

import os
import subprocess
import sys
import threading

import pytest

from examples.shop.drill.moments import Moment, Watch, come_to
from tests.support.repository import ROOT
from tests.support.waiting import eventually

AT = Moment.TASK_BEFORE_COMMIT


def test_nobody_is_held_at_a_moment_that_nobody_has_asked_for(tmp_path):
    come_to(tmp_path, AT)
    assert list(tmp_path.iterdir()) == []


def test_who_comes_is_held_until_it_may_go_on(tmp_path):
    watch, gone = Watch(tmp_path), threading.Event()
    (tmp_path / AT.name).touch()

    def comes():
        come_to(tmp_path, AT)
        gone.set()

    process = threading.Thread(target=comes)
    process.start()
    assert watch.wait_for(AT, 10.0) == os.getpid()
    assert not gone.is_set()
    watch.let_go()
    process.join(10.0)
    assert gone.is_set()


def test_a_moment_to_which_nobody_comes_is_not_asked_for_any_more(tmp_path):
    assert Watch(tmp_path).wait_for(AT, 0.01) is None
    assert list(tmp_path.iterdir()) == []
    come_to(tmp_path, AT)


def test_a_moment_holds_only_those_who_come_to_it(tmp_path):
    (tmp_path / AT.name).touch()
    come_to(tmp_path, Moment.TASK_AFTER_COMMIT)
    assert [each.name for each in tmp_path.iterdir()] == [AT.name]


PROGRAM = """
import sys
from pathlib import Path
from examples.shop.drill.moments import Moment, come_to
come_to(Path(sys.argv[1]), Moment.TASK_BEFORE_COMMIT)
print("went on")
"""


@pytest.mark.slow
def test_of_two_processes_that_come_one_is_held(tmp_path):
    watch = Watch(tmp_path)
    (tmp_path / AT.name).touch()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        held = watch.wait_for(AT, 60.0)
        (other,) = (process for process in processes if process.pid != held)
        assert other.communicate(timeout=60)[0] == "went on\n"
        eventually(lambda: watch.wait_for(AT, 0.0) == held)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
