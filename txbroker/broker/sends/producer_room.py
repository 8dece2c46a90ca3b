"""Room for producers and their pairs with partitions: which ones are forgotten when there are as many as allowed.

The choice is made here, by limits, clock and sessions that only this process knows; the record names the producers
that are forgotten, and the fold follows it. The order is:

1. nameless producers of clients that are not connected;
2. producers that have been idle for ``producer_idle``;
3. producers of the client that has most, if that is more than twice what the asking client would have.

In each class, those without a name come first, then the longest idle. Because of the third no client can take all,
however many connections it keeps open, and none loses producers while it has few. Twice, and not once: a client that
loses a producer opens another, and two clients of about the same size would take it from each other with every send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from journal.folds.producers import Producer, ProducersFold
from journal.records.record import ProducersExpired
from txbroker.broker.sessions.session import Session
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import LimitExceeded

if TYPE_CHECKING:
    from journal.engine.engine import Engine

EXPIRE_AT_ONCE: Final = 1024
"""Most producers that one record expires, so that it stays small."""
PART: Final = 16
"""The fraction that is freed at once, because looking through all of them takes milliseconds."""
LOOKED_AT: Final = 50
"""The work that checking one producer counts for in its session's turn: 0.4 µs."""

Weight = Callable[[Producer], int]
"""Returns how much of the scarce resource a producer has."""


class ProducerRoom:
    """Keeps the numbers of producers and of pairs within their limits when one is about to be made."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        producers: ProducersFold,
        sessions: Mapping[int, Session],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._producers = producers
        self._sessions = sessions
        self._max_pairs = settings.max_producer_partitions

    def for_producer(self, session: Session) -> None:
        """Make room for one more producer of the session's client; raises :class:`LimitExceeded` if none may be
        forgotten.
        """
        producers, settings, owner = self._producers, self._settings, session.producer_owner
        most, limit = settings.max_producers_per_session, settings.max_producers
        if producers.owned[owner] >= most:
            session.work += LOOKED_AT * len(producers.producers)
            idle = self._engine.now() - settings.producer_idle
            own = (each for each in producers.producers.values() if each.owner == owner and each.used < idle)
            if not self._forget(_first(own, _one, EXPIRE_AT_ONCE)):
                raise LimitExceeded(
                    f"this client has {most} producers (max_producers_per_session) and none has been idle for "
                    f"{settings.producer_idle} µs (producer_idle); none was opened. Go on with those"
                )
        if len(producers.producers) >= limit and not self._make(session, producers.owned, _one, limit):
            raise LimitExceeded(
                f"there are {limit} producers (max_producers), each with a name or a client that is connected, none "
                f"has been idle for {settings.producer_idle} µs (producer_idle), and no client has more than twice as "
                f"many as this one would have, {producers.owned[owner] + 1}; none was opened. Try again later"
            )

    def for_pair(self, session: Session, producer_id: int) -> None:
        """Make room for one more pair of this producer; raises :class:`LimitExceeded` if none may be forgotten."""
        producers, limit = self._producers, self._max_pairs
        if producers.pairs < limit:
            return
        if not self._make(session, producers.pairs_owned, _pairs, limit, producer_id):
            raise LimitExceeded(
                f"{producers.pairs} pairs of producer and partition are remembered, the limit is {limit} "
                "(max_producer_partitions). All are of clients that are connected or of producers with a name, none "
                f"has been idle for {self._settings.producer_idle} µs (producer_idle), and no client has more than "
                f"twice as many as this one would have, {producers.pairs_owned[session.producer_owner] + 1}; nothing "
                "was stored. Send to fewer partitions, or try again later"
            )

    def expire(self, now: int) -> None:
        """Forget producers that have been silent for ``producer_age``. Nothing while a large commit is applied."""
        if self._engine.busy:
            return
        before = now - self._settings.producer_age
        while self._forget(
            _first(
                (each for each in self._producers.producers.values() if each.used < before),
                _one,
                EXPIRE_AT_ONCE,
            )
        ):
            pass

    def _make(
        self, session: Session, owned: Counter[bytes], weight: Weight, limit: int, keep: int = 0
    ) -> bool:
        """Forget a part of the producers, except ``keep``; return whether any was forgotten."""
        session.work += LOOKED_AT * len(self._producers.producers)
        those = [each for each in self._producers.producers.values() if weight(each) and each.id != keep]
        present = {each.producer_owner for each in self._sessions.values()}
        idle = self._engine.now() - self._settings.producer_idle
        greedy, most = max(owned.items(), key=_count)
        is_greedy = most > 2 * (owned[session.producer_owner] + 1)
        return (
            self._forget(_first((p for p in those if not p.name and p.owner not in present), weight, limit // PART))
            or self._forget(_first((p for p in those if p.used < idle), weight, limit // PART))
            or (is_greedy and self._forget(_first((p for p in those if p.owner == greedy), weight, most // PART)))
        )  # fmt: skip

    def _forget(self, numbers: list[int]) -> bool:
        if numbers:
            self._engine.accept(ProducersExpired(numbers, self._engine.now()))
        return bool(numbers)


def _first(producers: Iterable[Producer], weight: Weight, enough: int) -> list[int]:
    """Return the ids of those that go first, until they weigh ``enough``: at least one, if there are any."""
    chosen, weighs = [], 0
    for each in sorted(producers, key=_order)[:EXPIRE_AT_ONCE]:
        chosen.append(each.id)
        weighs += weight(each)
        if weighs >= enough:
            break
    return chosen


def _order(producer: Producer) -> tuple[bool, int, int]:
    return bool(producer.name), producer.used, producer.id


def _one(producer: Producer) -> int:  # noqa: ARG001
    return 1


def _pairs(producer: Producer) -> int:
    return len(producer.partitions)


def _count(item: tuple[bytes, int]) -> int:
    return item[1]
