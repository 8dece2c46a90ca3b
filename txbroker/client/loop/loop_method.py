"""Methods that both event loops share, with the type that each loop returns: a ``Future``, a ``Deferred``.

They run the core's operations themselves, without the wrapper of :mod:`txbroker.client.core.client_method`: this makes
a send 5 % shorter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from txbroker.client.consumer.delivery import Delivery, Source
from txbroker.client.core.client_method import ClientMethod, PartMethod, PartOf
from txbroker.client.core.results import Message

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Take(NamedTuple, Generic[T_co]):
    """A message to take: ``hand_out`` makes it in turn at ``source``; it is None at ``end`` of the core's clock.

    It is made in the step in which the caller resumes.
    """

    source: Source
    end: float
    hand_out: Callable[[Delivery | None], T_co]


class Takes(Protocol[T_contra, R_co]):
    """A connection on an event loop, which makes ``R`` of what takes ``T``."""

    def take(self, begin: Callable[[], Take[T_contra]], /) -> R_co:
        """Take messages. The call fails with what ``begin`` raises."""


class TakingMethod(Protocol[P, T_co]):
    """A method of a transaction or a consumer that takes ``T``."""

    def __get__(self, client: PartOf[Takes[T_co, R]], kind: type | None = None, /) -> Callable[P, R]:
        """Return the method of one transaction or consumer."""


def loop_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> ClientMethod[P, T]:
    """Give a connection's method the type that the connection's ``run`` returns."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def loop_part_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> PartMethod[P, T]:
    """Give a transaction's or a consumer's method the type that the connection's ``run`` returns."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def taking_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> TakingMethod[P, T]:
    """Give a transaction's or a consumer's method the type that the connection's ``take`` returns."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def one_of(delivery: Delivery | None) -> Message | None:
    """Hand out the next message; None at the end."""
    return None if delivery is None else delivery.one()
