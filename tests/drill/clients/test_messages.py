"""Test that a message names its sender, and that no part of it can change unnoticed."""

import pytest

from txbroker.drill.clients.messages import MessageId, identity_of, value_of

IDENTITY = MessageId("drill1", "transactor-1.2", 17, 3, 5, 40)


@pytest.mark.parametrize("size", [0, 1, 40, 60_000])
def test_who_it_is_can_be_read_from_it(size):
    identity = IDENTITY._replace(size=size)
    assert identity_of(value_of(identity)) == identity


def test_the_same_identity_gives_the_same_bytes_and_each_other_one_other_bytes():
    assert value_of(IDENTITY) == value_of(MessageId(*IDENTITY))
    values = {value_of(IDENTITY._replace(number=number)) for number in range(100)}
    assert len(values) == 100


def test_any_changed_bit_is_noticed():
    value = value_of(IDENTITY)
    for place in range(len(value)):
        changed = bytearray(value)
        changed[place] ^= 1 << (place % 8)
        identity = identity_of(bytes(changed))
        assert identity is None or value_of(identity) != changed


@pytest.mark.parametrize("value", [None, b"", b"\n", b"a b 1 2 3", b"a b 1 2 3 x\n", b"\xff" * 50])
def test_what_is_none_of_ours_is_none(value):
    assert identity_of(value) is None
