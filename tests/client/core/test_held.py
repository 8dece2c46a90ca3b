"""Test requests that may wait for the next one to be sent with, on a core with a manual clock."""

import math

import pytest

from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker
from txbroker.client.core.core import HELD
from txbroker.wire.messages import Done, Ping


@pytest.fixture
def rig():
    return Rig(ScriptedBroker())


def ask(rig, held):
    return rig.core.request(Ping(rig.core.correlation()), Done, held=held)


def test_a_held_request_is_output_that_may_wait_and_has_its_time(rig):
    assert rig.core.held_until == math.inf
    ask(rig, held=True)
    assert rig.core.output_bytes
    assert rig.core.only_holds
    assert rig.core.held_until == rig.core.wakeup() == rig.now + HELD


def test_one_is_not_held_if_the_last_one_waited_in_vain_until_one_is_followed_soon_again(rig):
    ask(rig, held=True)
    rig.now += 2 * HELD
    ask(rig, held=False)
    rig.pump()
    for pause, is_held in ((HELD / 2, False), (HELD / 2, True), (2 * HELD, True), (0.0, False)):
        ask(rig, held=True)
        assert rig.core.only_holds is is_held
        rig.now += pause
        rig.pump()
        ask(rig, held=False)
        rig.pump()


def test_that_one_might_be_held_is_known_before_whenever_it_is(rig):
    """Who has it sent in time must be told before: an interrupt may follow."""
    for pause in (2 * HELD, HELD / 2, HELD / 2, 2 * HELD, 0.0, HELD):
        for also in (False, True):
            might, before = rig.core.might_hold, rig.core.held_until
            ask(rig, held=True)
            assert might or rig.core.held_until == before
            rig.now += pause
            if also:
                ask(rig, held=False)
            rig.pump()


def test_a_second_held_request_does_not_make_the_first_one_wait_longer(rig):
    ask(rig, held=True)
    until = rig.core.held_until
    rig.now += HELD / 2
    ask(rig, held=True)
    assert rig.core.held_until == until
    assert rig.core.only_holds


def test_another_request_does_not_wait_and_takes_the_held_one_along(rig):
    first, second = ask(rig, held=True), ask(rig, held=False)
    assert not rig.core.only_holds
    rig.pump()
    assert first.done
    assert second.done
    assert rig.core.held_until == math.inf


def test_what_a_transaction_adds_meanwhile_does_not_make_it_wait_longer(rig):
    """It is written with what comes later, which may be any time later."""
    ask(rig, held=True)
    until = rig.core.held_until
    rig.core.post(Ping(rig.core.correlation()))
    assert rig.core.held_until == until


def test_at_its_time_it_waits_no_longer(rig):
    ask(rig, held=True)
    rig.now += HELD
    rig.core.tick()
    assert rig.core.output_bytes
    assert not rig.core.only_holds
    assert rig.core.held_until == math.inf


def test_after_an_interrupt_it_waits_for_nothing_but_keeps_its_time(rig):
    ask(rig, held=True)
    until = rig.core.held_until
    rig.core.mend()
    assert not rig.core.only_holds
    assert rig.core.held_until == until


def test_it_goes_on_the_next_connection_when_this_one_is_lost(rig):
    call = ask(rig, held=True)
    rig.cut()
    assert rig.core.held_until == math.inf
    rig.connect()
    assert call.done


def test_without_a_connection_nothing_is_held(rig):
    rig.cut()
    ask(rig, held=True)
    assert rig.core.held_until == math.inf
    assert not rig.core.output_bytes
