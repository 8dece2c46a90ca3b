"""A consumer's membership of its group: what the broker has given to it, and what it is about to give back.

A member joins, and then has one request at the broker, which says what it has. The answer says what has changed, and is
followed by the next request at once. So nothing has to be remembered of an answer that was lost, or was taken only in
part because of an interrupt: the next one says it again. See ``docs/decisions/0035-members.md``.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol

from journal.records.group_entries import Settled
from txbroker import errors
from txbroker.client.consumer.begun import Begun
from txbroker.client.consumer.finishing import Part
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Backoff
from txbroker.client.core.promise import Promise
from txbroker.client.core.waits import Alarm
from txbroker.wire.messages import (
    AssignedPartition,
    Attend,
    Attended,
    Done,
    Joined,
    JoinGroup,
    LeaveGroup,
)

log = logging.getLogger("txbroker.client")

NONCE_BYTES: Final = 16

LATER: Final = (errors.RequestTimedOut, errors.ConnectionUnavailable)
"""Errors after which the same is asked again: there was no answer in time."""


class Sharing(Protocol):
    """The consumer that is a member. Each of these may be called again with the same."""

    def withhold(self, numbers: Collection[int], why: str) -> None:
        """Hand out nothing more of these partitions, which are asked back."""

    def lose(self, numbers: Collection[int], why: str) -> None:
        """Give up these partitions, which are not its own any more."""

    def changed(self) -> None:
        """Look at what the member has now."""

    def see_to_handover(self) -> None:
        """Release what was asked back, as far as it is not in use any more."""

    def say_finished(self) -> None:
        """Say what is finished: the partitions are another's after that."""

    def not_joined(self, error: errors.TxBrokerError) -> None:
        """Tell the caller that the broker refuses the member; it is asked again when the caller comes again."""


class Membership:
    """One membership. After an interrupt anywhere, :meth:`see_to_it` repairs it."""

    def __init__(self, core: Core, options: ConsumerOptions, consumer: Sharing) -> None:
        self.owned: dict[int, AssignedPartition] = {}
        """What the broker has given, by number, with what is asked back and not released yet."""
        self.releasing: dict[int, None] = {}
        """What is asked back."""
        self.finished: dict[int, Part] = {}
        """What was finished in partitions that are given back, until the broker has answered that."""
        self.is_answered = False
        """Whether the broker has said since the join what the member has."""
        self.is_over = False
        self.begun = Begun(core, options.group or "", lambda: self._joined)
        """What of its messages is being handled."""
        self._core = core
        self._options = options
        self._group = options.group or ""
        self._consumer = consumer
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._joined: Joined | None = None
        self._call: Call[Joined] | Call[Attended] | None = None
        self._is_stale = False
        self._is_taking = False
        self._entering: Promise[None] | None = None
        self._leaving: Promise[Any] | None = None
        self._backoff = Backoff(core.random)
        self._not_before = 0.0
        self._pause: Alarm | None = None

    # -- for the consumer ---------------------------------------------------------------------------

    async def entered(self) -> None:
        """Wait until it is a member; raises what the broker refuses it with, for example GroupKindConflict,
        MemberNameInUse.
        """
        if self.is_over:
            return
        entering: Promise[None] = Promise()
        if self._joined is None:
            self._entering = entering
        else:
            entering.resolve(None)
        self._core.attending[self] = None
        self.see_to_it()
        await entering

    def see_to_it(self) -> None:
        """Say to the broker what it is to know, unless that is under way. It may be called at any time."""
        call = self._call
        if self.is_over:
            return
        if call is not None and call.done:
            self._answered(call)
        elif self in self._core.attending and (call is None or self._is_stale or not self._core.has(call)):
            self._ask()

    def release(self, numbers: Collection[int]) -> None:
        """Have these partitions no more: everything that was handed out of them is finished, or they are another's by
        now, or gone. The broker is told at once, and gives one that is still the member's again.
        """
        self._is_stale = True
        self._forget(numbers)
        self._is_stale = True  # again: an interrupt in between may have had the old state said
        self.see_to_it()

    def give_up(self, error: errors.TxBrokerError) -> None:
        """Leave the group as one that is lost. When the caller comes again it is told why, and then joins again."""
        joined, core, numbers = self._joined, self._core, list(self.owned)
        self._say_finished()
        self._consumer.lose(numbers, str(error))
        self._forget(numbers)
        if self._call is not None:
            core.give_up(self._call)
            self._call = None
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._joined, self.is_answered = None, False
        if joined is not None:
            for_good = not self._options.member
            leave = LeaveGroup(core.correlation(), self._group, joined.member, joined.secret, for_good, True)
            core.request(leave, Done)
        core.attending.pop(self, None)
        self._consumer.not_joined(error)

    def leave(self) -> Promise[Any] | None:
        """End the membership. A static member's partitions are kept for it. Returns a promise for when the broker
        knows, None if it need not be told.
        """
        if self.is_over:
            return self._leaving
        self.is_over = True
        self._say_finished()
        joined, core, call = self._joined, self._core, self._call
        left = self._leaving = Promise()
        if joined is None and call is not None and call.attempts and core.has(call):
            call.then(lambda: self._left_behind(call, left))  # it is a member, or becomes one
            return left
        if call is not None:
            core.give_up(call)
        if joined is None:
            self._has_left(left)
            return None
        self._say_leave(joined, left)
        return left

    def _say_finished(self) -> None:
        """Say by commits what would be said with releases that are not said any more."""
        self.finished.clear()
        self._consumer.say_finished()

    def _say_leave(self, joined: Joined, left: Promise[Any]) -> None:
        """Leave. Until the broker knows, the membership counts as one, so that somebody sends and receives for it."""
        core, for_good = self._core, not self._options.member
        leave = LeaveGroup(core.correlation(), self._group, joined.member, joined.secret, for_good)
        core.request(leave, Done).then(lambda: self._has_left(left))

    def _left_behind(self, call: Call[Joined] | Call[Attended], left: Promise[Any]) -> None:
        """Leave with the answer to a join."""
        answer = call.result() if call.error is None else None
        if isinstance(answer, Joined):
            self._say_leave(answer, left)
        else:
            self._has_left(left)

    def _has_left(self, left: Promise[Any]) -> None:
        self._core.attending.pop(self, None)
        left.resolve(None)

    def fresh(self, known: AbstractSet[int]) -> list[AssignedPartition]:
        """Return what it has and is to begin to read: what is not known, and is not asked back."""
        fresh = self.owned.keys() - known - self.releasing.keys()
        return [each for each in self.owned.values() if each.partition in fresh] if fresh else []

    def committed(self) -> None:
        """Look whether what a transaction has committed was all that a partition waited for."""
        self._consumer.see_to_handover()

    # -- asking ------------------------------------------------------------------------------------

    def _ask(self) -> None:
        core, wait = self._core, self._not_before - self._core.clock()
        if wait > 0:
            if self._pause is None or self._pause.call is None:
                self._pause = core.waits.alarm(wait, self.see_to_it)
            return
        if self._call is not None:
            core.give_up(self._call)  # what it would be told, the next one is told
        self._is_stale = False
        call = self._join() if self._joined is None else self._attend(self._joined)
        call.then(lambda: self._answered(call))
        self._call = call
        if call.done:
            self._answered(call)  # the client is closed

    def _join(self) -> Call[Joined]:
        core, options = self._core, self._options
        start = options.start
        request = JoinGroup(
            core.correlation(), self._group, self._nonce, list(options.topics), options.pattern, options.member,
            self._shown(), round(options.session_timeout * 1e6), round(options.max_handover * 1e6),
            "earliest" if start == "committed" else start if isinstance(start, (str, int)) else None,
        )  # fmt: skip
        return core.request(request, Joined)

    def _attend(self, joined: Joined) -> Call[Attended]:
        core, options = self._core, self._options
        said = self._shown(), list(self.releasing), [each.said for each in list(self.finished.values())]
        request = Attend(core.correlation(), self._group, joined.member, joined.secret, *said)
        return core.request(request, Attended, timeout=options.session_timeout / 3 + core.options.timeout)

    def _shown(self) -> list[tuple[int, int]]:
        return [(number, each.generation) for number, each in self.owned.items()]

    # -- answers -------------------------------------------------------------------------------------

    def _answered(self, call: Call[Joined] | Call[Attended]) -> None:
        """Take an answer, and ask again. If it was interrupted, it is called again."""
        if call is not self._call or self.is_over or self._is_taking:
            return  # what is taken may make the consumer come back here
        try:
            self._is_taking = True
            error = call.error
            if error is None:
                if self._take(call):
                    self._consumer.changed()
            elif isinstance(error, errors.UnknownMember):
                log.warning(
                    "group %s: the broker does not know this member any more; joining again", self._group
                )
                self._nonce = secrets.token_bytes(NONCE_BYTES)
                self._joined = None
                self.finished.clear()  # it is said by a commit now, and refused if others have the partition
                self._not_before = self._core.clock() + self._backoff.next()
            elif not isinstance(error, LATER) or self._core.fatal is not None:
                self._refused(error)
            self._call = None  # last: after an interrupt before this line all is done again
        finally:
            self._is_taking = False
        self.see_to_it()
        self._consumer.see_to_handover()

    def mend(self) -> None:
        """Repair after an interrupt: nothing is being taken, and what was half taken is taken again."""
        self._is_taking = False
        self.see_to_it()

    def _take(self, call: Call[Joined] | Call[Attended]) -> bool:
        """Take an answer; return whether it has changed what the member has."""
        answer = call.result()
        if isinstance(answer, Joined):
            self._joined = answer
            self.is_answered = False
            if self._entering is not None:
                self._entering.resolve(None)
                self._entering = None
            if self.begun:
                self.begun.tell()
            return False
        self._backoff.reset()
        request = call.request
        assert isinstance(request, Attend)
        for settled in request.finished:
            self._was_said(settled)
        shown = dict(request.owned)
        gone = [
            each for each in answer.lost if each in self.owned and self.owned[each].generation == shown[each]
        ]
        if gone:
            self._consumer.lose(gone, "the group gave it to another consumer")
            self._forget(gone)
        back = [each for each in answer.revoked if each in self.owned]
        if back:
            self.releasing.update(dict.fromkeys(back))
            self._consumer.withhold(back, "the group asks it back")
        for each in answer.assigned:
            self.owned[each.partition] = each
        is_first, self.is_answered = not self.is_answered, True
        return is_first or bool(gone or back or answer.assigned)

    def _was_said(self, finished: Settled) -> None:
        """Note that the broker has taken what was finished in a partition that was given back."""
        part = self.finished.get(finished.partition)
        if part is not None and part.position.generation == finished.generation:
            part.position.said.update(part.offsets)
            del self.finished[finished.partition]

    def _forget(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self.owned.pop(number, None)
            self.releasing.pop(number, None)

    def _refused(self, error: BaseException) -> None:
        self._core.attending.pop(self, None)
        if self._entering is not None:
            self._entering.fail(error)
            self._entering = None
        elif isinstance(error, errors.TxBrokerError):
            self._consumer.not_joined(error)
