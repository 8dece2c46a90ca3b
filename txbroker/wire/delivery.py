"""What a commit says of a stream: which of its numbers it delivers (decision 0048)."""

from __future__ import annotations

import msgspec


class Delivery(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Numbers of a stream, those behind ``after`` up to ``number``, under the ``epoch`` of the holder's claim.

    If they are delivered already, nothing is stored, and the answer has no placements. Refused with StreamFenced
    without the newest epoch, with StreamOutOfOrder unless ``after`` is the last number that is delivered (``numbers``:
    ``last``).
    """

    stream: bytes
    epoch: bytes
    number: int
    after: int
