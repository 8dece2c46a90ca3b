"""Test that options that make no sense are refused before anything is opened, in every client.

A ``linger`` of NaN would keep every message, and every timer of the client, for ever; one not below ``timeout`` would
end each lone message as one that there was no connection for; ``batch_bytes`` of NaN would make batches that no broker
takes; a ``max_buffered`` below 0 would let nothing through. Seen to fail: a loop took any word for ``when_full``.
"""

import asyncio

import numpy as np
import pytest

from tests.client.rig import Rig, failed
from tests.client.scripted_broker import ScriptedBroker
from txbroker import connect, errors
from txbroker.client import asyncio as client_asyncio
from txbroker.client import twisted
from txbroker.client.core.options import Options

NAN, INFINITE = float("nan"), float("inf")
TEXTS = ("client", "producer", "reports", "when_full", "compression")
WRONG = [
    *[("timeout", value) for value in (0, -1.0, NAN, INFINITE, 1e10, None, "30")],
    *[("linger", value) for value in (-0.001, NAN, INFINITE, 30.0, 31, None, "0")],
    *[("batch_bytes", value) for value in (-1, NAN, None, "64k")],
    *[("max_buffered", value) for value in (-1, NAN, None, "64m")],
    *[("when_full", value) for value in ("", "block", None, True)],
    *[("partitioner", value) for value in (0, "murmur2", [1])],
    *[(name, value) for name in TEXTS[:3] for value in (5, b"x", None, "\udcff")],
    *[("reconnect", value) for value in (0, None, "no")],
    *[(name, value) for name in ("report_interval", "report_window") for value in (0, NAN, None, "1")],
    *[("compression", value) for value in (5, b"zstd", ["zstd"])],
    *[("compression_level", value) for value in ("1", True)],
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_makes_no_sense_is_refused_before_anything_is_opened(name, value):
    nowhere = "tcp:127.0.0.1:1"
    for api in (
        lambda: connect(nowhere, **{name: value}),
        lambda: asyncio.run(client_asyncio.connect(nowhere, **{name: value})),
        lambda: failed(twisted.connect(nowhere, reactor=object(), **{name: value})),
    ):
        with pytest.raises(
            errors.Misuse, match=f"^{name} is .*; it must be .*; nothing was opened$"
        ) as caught:
            api()
        takes = {"partitioner": (), "reconnect": (), **dict.fromkeys(TEXTS, str)}.get(name, (int, float))
        is_taken = isinstance(value, takes) and not isinstance(value, bool)
        assert type(caught.value) is (errors.WrongValue if is_taken else errors.WrongType)


@pytest.mark.parametrize(
    "choices",
    [
        {"timeout": 1e9, "linger": 0.001},
        {"timeout": 0.2, "linger": 0.1},
        {"batch_bytes": 0, "linger": 0.1},
        {"batch_bytes": 1 << 62},
        {"batch_bytes": INFINITE, "max_buffered": INFINITE},
        {"batch_bytes": np.int64(100), "max_buffered": np.int32(100), "timeout": np.float32(3)},
        {"max_buffered": 0},
    ],
)
def test_at_the_edges_of_what_makes_sense_every_message_arrives(choices):
    broker = ScriptedBroker()
    rig = Rig(broker, **choices)
    values = [b"%d" % number * 100 for number in range(50)]
    for value in values:
        rig.send(value)
    rig.pump()
    rig.wait(0.15)
    assert broker.values(1) == values
    assert rig.producer.buffered == 0


def test_the_defaults_make_sense():
    assert Options().check() == Options()
