"""Test that the thread of a participant lives as long as its coordinator."""

import threading

from tests.support.waiting import eventually
from txbroker.coordinator import Coordinator


def test_what_a_program_raises_when_it_connects_is_told_and_tried_again(tmp_path):
    """``sys.exit()`` in it ends a thread without a word, and nobody looks after the participant any more."""
    asked = []

    def leaving():
        asked.append(1)
        raise SystemExit("enough")

    with Coordinator(tmp_path, {"orders": leaving}, interval=0.001) as coordinator:
        participant_thread = coordinator._participant_threads["orders"]
        eventually(lambda: len(asked) > 5 or participant_thread._thread not in threading.enumerate())
        assert participant_thread._thread in threading.enumerate()
        assert participant_thread.failure == "SystemExit: enough"
    assert participant_thread._thread not in threading.enumerate()
