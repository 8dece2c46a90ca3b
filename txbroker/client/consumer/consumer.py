"""A consumer without I/O: positions for each partition, prefetch by long polls, groups, claims and commits."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable

from journal.arguments import NOTHING_READ
from txbroker import errors
from txbroker.client.consumer.beginning import begin_of, check_topics, claim, lost_claims, positions_to_read
from txbroker.client.consumer.commits import Commits
from txbroker.client.consumer.consumer_fetch import RUNS, ConsumerFetch
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.consumer.finishing import Finishing
from txbroker.client.consumer.handler_watch import HandlerWatch
from txbroker.client.consumer.handover import Handover
from txbroker.client.consumer.membership import Membership
from txbroker.client.consumer.notices import Notices
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.consumer.read_ahead import ReadAhead
from txbroker.client.consumer.retries import Retry, drop_undelivered, hold_back, put_back
from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core.group_settings import bring_policy, bring_tags
from txbroker.client.core.positions import Position, stored_positions
from txbroker.client.core.promise import Chore
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Turn

log = logging.getLogger("txbroker.client")


class ConsumerCore:
    """One consumer, without I/O. It fetches by itself while fewer than ``prefetch`` bytes, uncompressed, wait."""

    def __init__(self, shared_fetch: SharedFetch, options: ConsumerOptions, member: str) -> None:
        core = shared_fetch.core
        self.options = options
        self.positions: dict[int, Position] = {}
        self.line = core.waits.line(lambda: self._is_here or self.finished)
        """The callers that wait for messages, or for the end of the reading."""
        self.core = core
        self._member = member
        self._current: Delivery | None = None
        self._returned: deque[Delivery] = deque()
        self._is_doubtful = False
        """Whether messages were given back and the broker has not been asked since whether the claim still holds."""
        self._asking = Chore(self._find_out, self._found_out)
        self._ahead = ReadAhead(self._returned, options.max_run is not None)
        self._chunks = self._ahead.chunks
        self._fetches = ConsumerFetch(shared_fetch, self, self._ahead)
        self._reading = Chore(self._read, lambda: self.line.move())
        self._only_due = False  # whether only what was left out is read, because there is no room for more
        self._begun = False
        self._closed = False
        self._failure: Exception | None = None
        self._not_told: Exception | None = None  # the error with which asking for the claim failed
        self.commits = Commits(
            core, options.group, self.positions, lambda: self._current, self.see_to_handover
        )
        self._membership = Membership(core, options, self) if options.is_member else None
        self.finishing: Finishing | None = None
        """What finishes messages later, if the program wants that."""
        if options.group is not None and options.commit_interval is not None:
            self.finishing = Finishing(
                core, options.group, options.commit_interval, options.auto_done, self._known, self._is_carried,
                self.see_to_handover, self._not_finished,
            )  # fmt: skip
            self.commits.later = self.finishing.add
        self.watch: HandlerWatch | None = None
        if options.handler_timeout is not None and self._membership is not None:
            self.watch = HandlerWatch(core, options, self._membership.give_up)
        self._handover: Handover | None = None
        self.on_notice: Callable[[], object] | None = None
        """Called when there may be something to tell, for clients that tell it themselves."""
        if self._membership is not None:
            self._handover = Handover(
                core, options, self._membership, self.positions, self.commits, self.finishing
            )

    # -- for the front ends ------------------------------------------------------------------------

    @property
    def notices(self) -> Notices | None:
        """What the caller of a member is to be told before it gets further messages."""
        return None if self._handover is None else self._handover.notices

    @property
    def current(self) -> Delivery | None:
        """The delivery that is being handed out, if any of it is left."""
        current = self._current
        return None if current is None or current.is_empty else current

    def look(self) -> Delivery | None:
        """Return the next delivery to hand out, if it is here; raise the error of the reading (the next call tries
        again).
        """
        if self.notices and self.on_notice is None:
            return None
        current = None if self._is_doubtful else self.current or self._next()
        if self._is_doubtful and self._not_told is not None:
            failure, self._not_told = self._not_told, None
            raise failure
        if current is None and self._failure is not None and not self._is_doubtful:
            failure, self._failure = self._failure, None
            raise failure
        self._go_on()
        return current

    def _next(self) -> Delivery | None:
        """Go on to the delivery after the present one. After an interrupt anywhere it can be called again."""
        if self._current is not None:
            self._current.count()
        self._drop_current()
        if self._returned:
            self._current = self._returned[0]
        elif self._chunks:
            self._current = Delivery(self._chunks[0])
        else:
            self._current = None
        self._drop_current()
        return self._current

    def _drop_current(self) -> None:
        """Count the present delivery as handed out."""
        current = self._current
        if current is not None and self._chunks and self._chunks[0] is current.chunk:
            self._chunks.popleft()
        if self._returned and self._returned[0] is current:
            self._returned.popleft()

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Have these handed out again, in their order, before anything else, if the group's claim still holds.

        The broker is asked for the claim when the next message is wanted. If others have claimed a partition since,
        they may have handled the messages that were given back or read ahead. Then all of these are dropped and read
        anew, as at the beginning.
        """
        self._drop_current()
        again = [each for each in deliveries if each.messages and self._has(each.position)]
        self._is_doubtful = self._is_doubtful or bool(again)
        for delivery in again:
            delivery.give_back()
        current = self._current
        if current is not None and current not in again and not current.is_empty:
            again.append(current)
        self._current = None
        self._returned.extendleft(reversed(again))
        self.line.move()

    def _has(self, position: Position) -> bool:
        """Whether messages of that position may be handed out. A consumer that named its partitions is told why not."""
        has = self.positions.get(position.number) is position and not position.ended
        return has or self._membership is None

    @property
    def _is_here(self) -> bool:
        if self.notices and self.on_notice is None:
            return True
        if self._is_doubtful:
            return self._not_told is not None
        return bool(self.current or self._returned or self._chunks or self._failure is not None)

    @property
    def finished(self) -> bool:
        """Whether no further message will come: the consumer is closed, or it does not follow and is at the end."""
        if self._is_here or self._closed:
            return not self._is_here
        at_end = self._begun and not self.options.follow and not self._behind()
        return at_end and not self._is_doubtful

    @property
    def whole(self) -> bool:
        """Whether the handed out messages are all of one moment. Waiting messages are checked last: other threads add
        some.
        """
        reading = [each for each in self.positions.values() if not each.ended]
        is_read = self._begun and self._fetches.is_read(reading)
        waits = self._is_doubtful or self.current or self._returned or self._chunks or self._ahead.undecoded
        return is_read and not waits

    def join(self, deadline: float = math.inf) -> Turn:
        """Get in line for what :meth:`look` returns, until ``deadline`` by the core's clock."""
        self._go_on()
        self._fetches.see_to_it()
        return self.line.join(deadline)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is read any more."""
        return self._closed

    def close(self) -> None:
        """Stop reading. Messages that have not been handed out stay uncommitted."""
        self._closed = True
        self.say_finished()  # first: what was handed out is known by what is being handed out
        self._forget()
        self._asking.cancel()
        if self.watch is not None:
            self.watch.close()
        self.commits.closed = True
        if self._handover is not None and self._membership is not None:
            self._handover.close()
            self._membership.leave()
        self.line.move()

    def start_over(self) -> None:
        """Drop all that was read, and read anew from the group's positions."""
        self._begun, self._failure = False, None
        self._forget()
        self.positions.clear()
        self._is_doubtful = False

    def _forget(self) -> None:
        """Drop the messages that were read, and end the reading."""
        self._current = None
        self._returned.clear()
        self._ahead.clear()
        self._fetches.leave()
        self._reading.cancel()

    def park(self, retries: Iterable[Retry]) -> None:
        """Leave messages out until the broker tells that they are due, with what may not come before them."""
        for each in retries:
            position = each.position
            if self.positions.get(position.number) is not position:
                continue
            self._count_current(position)
            hold_back(each, self._returned, self._ahead)

    def put_back(self, messages: Iterable[Message], read_anew: bool = False) -> None:
        """Take messages back that were handed out and are not handled. They come again, unless their partition is asked
        back, behind what waits and before all that may not overtake them; with ``read_anew`` before all behind them.
        """
        by_place: dict[tuple[str, int], list[Message]] = {}
        for each in messages:
            by_place.setdefault((each.topic, each.partition), []).append(each)
        for position in self.positions.values():
            if back := by_place.get((position.topic, position.index)):
                self._count_current(position)
                put_back(position, back, self._returned, self._ahead, read_anew)
        self.look_again()

    def _count_current(self, position: Position) -> None:
        """Note exactly what was handed out of a partition."""
        self._drop_current()
        current = self._current
        if current is not None and current.position is position:
            current.withhold()  # first: another thread may be handing it out
            current.count()
            rest = current.remaining()
            if rest.messages:
                self._returned.appendleft(rest)
            current.end()
            self._current = None

    # -- what is finished later ------------------------------------------------------------------------

    def _known(self) -> list[Position]:
        self.commits.count()
        return self.commits.known()

    def _is_carried(self, position: Position) -> bool:
        """Whether what is finished in a partition is said with its release."""
        part = None if self._membership is None else self._membership.finished.get(position.number)
        return part is not None and part.position is position

    def _not_finished(self, error: errors.TxBrokerError) -> None:
        """Raise at the next look that what was done could not be finished."""
        self._failure = error
        self.line.move()

    def say_finished(self) -> None:
        """Say now what is to be finished later."""
        if self.finishing is not None:
            self.finishing.say()

    # -- for a program that reads some partitions later, or elsewhere ----------------------------------

    def pause(self, position: Position) -> None:
        """Fetch and hand out nothing more of a partition, until :meth:`resume`."""
        position.paused = True
        self._read_anew(position)
        self.look_again()

    def resume(self, position: Position) -> None:
        """Read a partition again, from what comes behind that which was handed out."""
        position.paused = False
        self.look_again()

    def replace(self, position: Position, there: Position) -> None:
        """Have a partition read at another position, and nothing of what was read at the one before."""
        self._read_anew(position)
        self.positions[position.number] = there

    def _read_anew(self, position: Position) -> None:
        """Drop what was read of a partition and not handed out: it is read anew."""
        try:
            self._drop_read(position)
        except BaseException:
            self._drop_read(position)  # an interrupt came in there: it is done again
            raise

    def _drop_read(self, position: Position) -> None:
        self._count_current(position)
        drop_undelivered(position, self._returned, self._ahead)

    def look_again(self) -> None:
        """Ask the broker for what there is now."""
        self._fetches.hurry()
        self._go_on()
        self.line.move()

    # -- the reading -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Start a fetch, if none is under way and there is room. After an interrupt anywhere it can be called again."""
        if self._closed:
            return
        if self._is_doubtful:
            if not self._asking.is_under_way:
                self._asking.begin()
            self._asking.go_on()
        if self._membership is not None:
            self._membership.see_to_it()
            self.see_to_handover()
        self._go_on_reading()

    def _go_on_reading(self) -> None:
        if not self._reading.is_under_way and (self._has_room or self._awaits_due):
            self._ahead.mend(None if self._current is None else self._current.chunk)
            self._reading.begin()
        elif self._only_due and self._has_room:
            self._fetches.hurry()
            self._only_due = False  # last: after an interrupt before this line it is hurried again
        self._reading.go_on()

    @property
    def _has_room(self) -> bool:
        """Whether more may be read ahead."""
        is_few = self.options.max_run is None or len(self._chunks) < RUNS * max(1, len(self.positions))
        return is_few and self._ahead.size < self.options.prefetch

    @property
    def _awaits_due(self) -> bool:
        """Whether something was left out that is to be handed out as soon as it may be, before what is read ahead."""
        return not self._ahead.has_again and any(
            each.left and not each.ended for each in self.positions.values()
        )

    async def _find_out(self) -> None:
        try:
            lost = await lost_claims(self.core, self.options.group or "", self.positions)
            if lost and self._membership is not None:
                self.lose(lost, "it was given to another consumer")
                self._membership.release(lost)
            elif lost:
                self.start_over()
            self._is_doubtful = False  # last: after an interrupt before this line, it is asked again
        except Exception as error:  # noqa: BLE001 - the next look() raises it
            self._not_told = error

    def _found_out(self) -> None:
        if not self._is_doubtful:
            self._go_on()
        self.line.move()

    async def _read(self) -> None:
        try:
            if not self._begun:
                await self._begin()
                self._begun = True
                self.line.move()
            while not self._closed and (self._has_room or self._awaits_due):
                if self._ahead.undecoded and (self._has_room or self._ahead.comes_again):
                    if self._ahead.decode():
                        self.line.move()
                    continue
                await self._take_up()
                self._only_due = not self._has_room
                is_at_end = not self.options.follow and not self._behind()
                if is_at_end or not await self._fetches.fetch(self._only_due):
                    break  # a member goes on once it is given more
                self._make_way()
        except Exception as error:  # noqa: BLE001 - the next look() raises it
            self._failure = error
        finally:
            self._only_due = False

    def _behind(self) -> bool:
        member = self._membership
        if member is not None and (not member.is_answered or member.fresh(self.positions.keys())):
            return True
        reading = [each for each in self.positions.values() if not each.ended]
        return any(each.next < each.end or each.left or each.is_moving for each in reading)

    async def _begin(self) -> None:
        await bring_policy(self.core, self.options.group or "", self.options.retry, NOTHING_READ)
        await bring_tags(self.core, self.options.group or "", self.options.tags, NOTHING_READ)
        if self._membership is not None:
            await check_topics(self.core, self.options)
            await self._membership.entered()
            return
        positions = await positions_to_read(self.core, self.options)
        group = self.options.group
        if group is not None and self.options.claim:
            await claim(self.core, group, self._member, positions)
        if group is not None and self.options.start == "committed":
            for found in await stored_positions(self.core, group, list(positions)):
                if found.offset is not None:
                    position = positions[found.partition]
                    position.next = position.begin = found.offset
        self.positions.update(positions)

    # -- a member's partitions -----------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Begin to read what the group has given to this member since."""
        member = self._membership
        while member is not None and (fresh := member.fresh(self.positions.keys())):
            try:
                begun = await begin_of(self.core, self.options, fresh)
            except (errors.UnknownPartition, errors.UnknownTopic):
                member.release([each.partition for each in fresh])  # the broker says which of them are there
                return
            for position in begun:
                given = member.owned.get(position.number)
                if given is not None and given.generation == position.generation:
                    self.commits.take(position)
                    self.positions[position.number] = position

    def withhold(self, numbers: Collection[int], why: str) -> None:
        """Hand out nothing more of these partitions, which are asked back. It may be called again."""
        for number in numbers:
            if number in self.positions:
                self.positions[number].ended = self.positions[number].ended or why
        self.drop(numbers)

    def lose(self, numbers: Collection[int], why: str) -> None:
        """Give up these partitions, which are not this consumer's any more. It may be called again."""
        self.drop(numbers)
        for number in numbers:
            if number in self.positions:
                self.commits.lose(self.positions[number], why)
                if self.notices is not None:
                    self.notices.lose(self.positions[number])
                del self.positions[number]
        if self.on_notice is not None:
            self.on_notice()

    def changed(self) -> None:
        """Look at what this member has now."""
        if self.on_notice is not None:
            self.on_notice()
        self._make_way()
        self._fetches.hurry()
        self._go_on_reading()
        self.line.move()

    def _make_way(self) -> None:
        """Drop what was read, if partitions take turns and there are new ones, which would have theirs behind it."""
        member = self._membership
        if self.options.max_run is not None and member is not None and member.fresh(self.positions.keys()):
            for position in list(self.positions.values()):
                self._drop_read(position)
            self._fetches.end_moment()

    def not_joined(self, error: errors.TxBrokerError) -> None:
        """Raise an error at the next look, and join again then."""
        self._begun, self._failure = False, error
        self._fetches.leave()
        self._reading.cancel()  # the next one begins with joining
        self.line.move()

    @property
    def membership(self) -> Membership | None:
        """With which it shares its topics with other members of its group; None if it does not."""
        return self._membership

    def see_to_handover(self) -> None:
        """Release what was asked back, as far as it is not in use any more."""
        if self._handover is not None:
            self._handover.look()

    def tell_in_hand(self, in_hand: Callable[[Position], bool]) -> None:
        """Let a partition be released when ``in_hand`` says that none of its messages is under way."""
        if self._handover is not None:
            self._handover.in_hand = in_hand

    def drop(self, numbers: Collection[int]) -> None:
        """Drop what was read of these partitions and not handed out."""
        if self._current is not None and self._current.position.number in numbers:
            self._current.withhold()
            self._current.count()
            self._current = None
        for place in reversed(range(len(self._returned))):
            if self._returned[place].position.number in numbers:
                del self._returned[place]
        self._ahead.drop(numbers)
