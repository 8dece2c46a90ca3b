"""Messages by key or id: a search through a partition, a part of it for each request, on the reader pool."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from journal.constants import MAX_ATTRIBUTE, MAX_REQUEST_ENTRIES, MIB
from journal.log.read_plan import ReadPlan
from journal.log.search import Examined, Wanted, examine
from txbroker.broker.fetch_attempt import unreadable
from txbroker.broker.session import Session
from txbroker.broker.stepwise_answers import Steps, Stepwise
from txbroker.errors import (
    CompressionUnavailable,
    CorruptData,
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    TxBrokerError,
)
from txbroker.wire.codec import encode
from txbroker.wire.messages import FindMessages, MessagesFound
from txbroker.wire.refusals import unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

IN_A_STEP: Final = 4 * MIB
"""Bytes that are examined on the pool at once, so that other reads come in between: about 3 ms."""

IN_AN_ANSWER: Final = 64 * MIB
"""Bytes that are examined for one request."""


class MessageSearch:
    """The meaning of FindMessages."""

    def __init__(self, engine: Engine, stepwise: Stepwise) -> None:
        self._stores = engine.catalog.stores
        self._stepwise = stepwise

    def find(self, session: Session, command: FindMessages, data: memoryview) -> None:  # noqa: ARG002
        """Answer with the offsets of a partition's messages with a key, an id, or both."""
        _check(command)
        self._stepwise.answer(session, command, self._steps(command))

    def _steps(self, command: FindMessages) -> Steps:
        wanted = Wanted(command.key, command.id)
        found: list[int] = []
        offset, left = command.offset, IN_AN_ANSWER
        while True:
            store = self._store(command.partition)
            offset = max(offset, store.start_offset)
            end = min(command.until or store.high_watermark, store.high_watermark)
            if offset >= end or left <= 0 or len(found) >= command.most:
                break
            result = yield partial(_search, _planned(store, offset, end), offset, wanted)
            if isinstance(result, TxBrokerError):
                if offset < self._store(command.partition).start_offset:
                    continue  # retention has removed it meanwhile
                if left < IN_AN_ANSWER:
                    break  # the request that begins there is told
                raise result
            examined, size = result
            found += [message.offset for message in examined.found]
            offset, left = examined.end, left - size
        if len(found) > command.most:
            offset = found[command.most]
        found = [each for each in found[: command.most] if each < offset]
        answer = MessagesFound(command.correlation, found, offset, store.start_offset, store.high_watermark)
        return encode(answer)

    def _store(self, number: int) -> MessageStore:
        store = self._stores.get(number)
        if store is None:
            raise unknown_partition(number)
        return store


def _planned(store: MessageStore, offset: int, end: int) -> ReadPlan | CorruptData:
    try:
        return store.plan_read(offset, IN_A_STEP, end)
    except CorruptData as missing:
        return missing


def _search(
    plan: ReadPlan | CorruptData, offset: int, wanted: Wanted
) -> tuple[Examined, int] | TxBrokerError:
    """Read and examine on a thread of the pool; the reactor judges the errors."""
    if isinstance(plan, CorruptData):
        return plan
    try:
        frames = plan.run()
        return examine(frames.data, offset, wanted), len(frames.data)
    except (CorruptData, CompressionUnavailable, InvalidFrame) as error:
        return error
    except OSError as error:
        return unreadable(error)


def _check(command: FindMessages) -> None:
    """Raise InvalidSetting or LimitExceeded for a question that has no answer."""
    if command.key is None and command.id is None:
        raise InvalidSetting("a search without a key or an id finds every message; nothing was read. Say one")
    if len(command.key or b"") + len(command.id or b"") > MAX_ATTRIBUTE:
        raise LimitExceeded(
            f"key and id have over {MAX_ATTRIBUTE} bytes, which no message has; nothing was read. Say shorter ones"
        )
    if not 1 <= command.most <= MAX_REQUEST_ENTRIES:
        raise LimitExceeded(
            f"a search for at most {command.most} messages, the limit of one answer is {MAX_REQUEST_ENTRIES}; "
            "nothing was read. Ask for the others with another request"
        )
