"""Test the process that starts worker processes, starts them again, and sees to their end. It runs in this one."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from txbroker.worker import supervisor
from txbroker.worker.supervisor import Child, Supervisor

pytestmark = pytest.mark.slow

READY = "import os, signal, sys, time; signal.signal(signal.SIGINT, signal.SIG_DFL); "
SAY = "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); "
ENDS = "signal.signal(signal.SIGTERM, lambda *_: os._exit({code})); "
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@pytest.fixture
def said(tmp_path):
    return tmp_path / "said"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE", 0.2)
    monkeypatch.setattr(Child, "pause", 0.01)
    monkeypatch.setattr(Child.__init__, "__defaults__", (None, 0.0, 0.01, 0.0))


def child(said, code):
    return [sys.executable, "-c", READY + code, str(said)]


def pids(said):
    return [int(word) for word in said.read_text().split()] if said.exists() else []


def when(look, act):
    """A thread that acts once something is the case."""

    def go():
        pause = threading.Event()
        for _ in range(3000):
            if look():
                break
            pause.wait(0.01)
        act()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread


def signalled(number=signal.SIGTERM):
    return lambda: os.kill(os.getpid(), number)


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


def test_the_signal_reaches_all_and_the_worst_code_is_returned(said):
    codes = [0, 5, 3]
    commands = [child(said, ENDS.format(code=code) + SAY + "time.sleep(60)") for code in codes]
    when(lambda: len(pids(said)) == 3, signalled())
    assert Supervisor(commands, 10.0).run() == 5
    assert all(map(gone, pids(said)))


def test_who_ends_by_itself_is_started_again_until_the_end(said, caplog):
    when(lambda: len(pids(said)) >= 3, signalled())
    assert Supervisor([child(said, SAY + "sys.exit(70)")], 10.0).run() in (0, 70)
    assert "exit code 70, and is started again in 0.02 s" in caplog.text


def test_who_is_killed_is_started_again(said, caplog):
    command = child(said, ENDS.format(code=0) + SAY + "time.sleep(60)")
    when(lambda: len(pids(said)) == 1, lambda: os.kill(pids(said)[0], signal.SIGKILL))
    when(lambda: len(pids(said)) == 2, signalled())
    assert Supervisor([command], 10.0).run() == 0
    assert "exit code 137" in caplog.text


@pytest.mark.parametrize("code", [1, 2, 3, 6])
def test_if_one_cannot_go_on_the_others_are_stopped(said, code, caplog):
    commands = [child(said, ENDS.format(code=0) + SAY + "time.sleep(60)"), child(said, f"sys.exit({code})")]
    assert Supervisor(commands, 10.0).run() == code
    assert all(map(gone, pids(said)))


def test_who_does_not_end_in_time_is_killed(said, caplog):
    when(lambda: len(pids(said)) == 1, signalled())
    assert Supervisor([child(said, DEAF + SAY + "time.sleep(60)")], 0.1).run() == 137
    assert "are killed" in caplog.text


def test_a_second_signal_is_passed_on_too(said):
    twice = "n = []; signal.signal(signal.SIGTERM, lambda *_: (n.append(1), os._exit(143) if n[1:] else 0)); "
    when(lambda: len(pids(said)) == 1, signalled())
    again = child(said, twice + SAY + "signal.pause(); " + SAY + "time.sleep(60)")
    when(lambda: len(pids(said)) == 2, signalled())
    assert Supervisor([again], 10.0).run() == 143


def test_who_is_stopped_before_it_listens_counts_as_ended_in_order(said):
    when(lambda: len(pids(said)) == 1, signalled())
    assert Supervisor([child(said, SAY + "time.sleep(60)")], 10.0).run() == 0


def test_the_signals_of_this_process_are_as_before_afterwards(said):
    before = [signal.getsignal(number) for number in supervisor.STOPPING]
    when(lambda: len(pids(said)) == 1, signalled())
    Supervisor([child(said, SAY + "time.sleep(60)")], 10.0).run()
    assert [signal.getsignal(number) for number in supervisor.STOPPING] == before


def test_pauses_grow_to_a_minute_and_begin_anew_after_a_long_life():
    one = Child(["true"], pause=1.0, began=time.monotonic())
    assert [one.rest() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    one.began = time.monotonic() - 61
    assert one.rest() == 1
