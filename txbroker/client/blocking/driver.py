"""The blocking client's use of its socket: waiting callers drive it, and a thread helps where no caller waits.

To drive means to send, poll and receive. A caller that waits alone drives by itself, so a call costs no change of
threads. Further callers wait until the driving thread has settled their promise or hands the driving over to them. The
background thread drives only while messages sent asynchronously are unanswered and no other thread does; for a login
anew, when it is time; and for memberships of groups, when no other thread has done so for :data:`LULL`, until one
comes.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from txbroker import errors
from txbroker.client.blocking.held_output import PACER
from txbroker.client.blocking.link import Link, open_socket
from txbroker.client.blocking.semaphore import BinarySemaphore, pause_until
from txbroker.client.consumer.delivery import Delivery, Source, look_in_turn
from txbroker.client.core.core import HELD, Core
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import Promise
from txbroker.client.core.url import Address
from txbroker.client.core.waits import Turn
from txbroker.client.loop import fork, tls
from txbroker.client.loop.apart import apart, call_under_lock
from txbroker.client.loop.channel import channel_of_socket
from txbroker.client.loop.poller import LONGEST, Poller, check_system
from txbroker.client.producer.producer import Producer

log = logging.getLogger("txbroker.client")

P = ParamSpec("P")
T = TypeVar("T")

WRITE_AT_ONCE = 32 << 10
"""With this many bytes to send, or nothing else in flight, the caller itself writes."""
LULL = 0.1
"""Seconds without a driving thread after which the background thread drives for memberships of groups."""
LOCKED = 0.1
"""Seconds for which a fork, the interpreter's end or the pacer waits at most for a thread that uses the core."""
_MAIN = threading.main_thread().ident


class Driver:
    """Moves bytes between a core and its socket. ``lock`` protects the core; hold it only briefly."""

    def __init__(self, core: Core, address: Address, producer: Producer) -> None:
        check_system(address)
        tls.check(address)
        self.core = core
        self._producer = producer
        self.lock = threading.Lock()
        self.is_forked = False
        self._address = address
        self._poller = Poller()
        self.link = Link(core, self._poller, producer.mend, address)
        self._driving = 0  # the thread that drives
        self._user = 0  # the first thread that has waited
        self._is_shared = False
        self._unharmed: set[int] = set()
        self._asleep = False
        self._turns = 0
        self._watches = False  # whether the background thread looks soon whether another thread drives
        self._sleeps_until = 0.0
        self._rests_until = math.inf  # when the background thread looks by itself whether it has to drive
        self._calling = 0  # the thread that drives, while it is in a user's callback
        self._followers: dict[int, BinarySemaphore] = {}
        self._thread: threading.Thread | None = None
        self._work = BinarySemaphore()
        self._closed = False
        core.entering.apart = apart(partial(call_under_lock, self))
        fork.register(self)

    def wait(self, promise: Promise[T], timeout: float | None = None) -> T:
        """Return a promise's result; drive if no other thread does. Raises ``TimeoutError`` after ``timeout``."""
        if not promise.done:
            self.check_process()
            deadline = None if timeout is None else time.monotonic() + timeout
            me = threading.get_ident()
            if self._calling == me:
                while not promise.done:  # a callback waits on the driving thread
                    self._turn(promise, deadline)
            else:
                try:
                    try:
                        self._wait(promise, deadline, me)
                    finally:
                        self._leave(me)
                except BaseException:
                    self._leave(me)  # an interrupt may have come in there: it is done again
                    raise
            if not promise.done:
                raise TimeoutError
        return promise.result()

    def _wait(self, promise: Promise[T], deadline: float | None, me: int) -> None:
        self._used_by(me)
        woken: BinarySemaphore | None = None
        while not promise.done:
            with self.lock:
                if not self._driving and self._may_drive(me):
                    self._driving = me
                elif woken is None:
                    woken = BinarySemaphore()
                    promise.then(woken.release)
                    self._followers[me] = woken
                    self._offer()
            while self._driving == me and not promise.done:
                self._turn(promise, deadline)
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._driving != me and woken is not None and not woken.acquire(remaining):
                return

    def _leave(self, me: int) -> None:
        """End this thread's wait, however it ended: another thread may have to drive."""
        if self._driving == me or me in self._followers:
            with self.lock:
                self._followers.pop(me, None)
                if self._driving == me:
                    if self.core.phase is Phase.CONNECTING:  # an interrupt came before it connected
                        self.core.lost("interrupted before connecting")
                    self._hand_over()
                self._offer()  # the driving may have been offered to this thread

    def outlives_losses(self, thread: int) -> None:
        """Do not count a thread as a user: all that it asks for is sent again after the loss of a connection.

        So it does not matter to it that an interrupt of the main thread, while that drives, costs the connection. If
        a resolver's thread counted, each block of a program's main thread would have another thread drive, which took
        0.4 ms of processor time a block.
        """
        self._unharmed.add(thread)

    def _used_by(self, me: int) -> None:
        """Note which thread waits here. The first one has the client to itself until another one comes."""
        if self._user != me and me not in self._unharmed:
            self._is_shared = self._is_shared or self._user != 0
            self._user = self._user or me

    def _may_drive(self, me: int) -> bool:
        """Return whether a thread may drive: not the main one, which signals interrupt, while others use the client."""
        return not self._is_shared or me != _MAIN

    def delivery(self, source: Source, end: float) -> Delivery | None:
        """Return the delivery with the next messages of a consumer of this thread; None if none come until ``end``."""
        self.check_process()
        is_answer = False
        while not is_answer:
            turn = self.guarded(partial(self._join, source, end))
            try:
                found, is_answer = (
                    self.guarded(partial(look_in_turn, source)) if self.wait(turn) else (None, True)
                )
            finally:
                with self.lock:
                    turn.leave()
                    self.kick()
        return found

    def _join(self, source: Source, end: float) -> Turn:
        source.line.clear()
        turn = source.join(end)
        self.kick()
        return turn

    def guarded(self, work: Callable[P, T], *args: P.args, **choices: P.kwargs) -> T:
        """Do something with the core under the lock. After an interrupt, repair what may be half done."""
        with self.lock:
            try:
                return work(*args, **choices)
            except errors.TxBrokerError:
                raise
            except BaseException:
                self._producer.mend()
                raise

    def _hand_over(self) -> None:
        """Stop driving. Call it under the lock."""
        self._driving = 0
        if self._closed:
            self._poller.close()

    def _offer(self) -> None:
        """Have a waiting thread or the background thread drive, if none does. Call it under the lock."""
        if self._driving:
            if self._thread is not None and self._driving == self._thread.ident and not self._drives_on():
                self.wake()  # it stands in for the threads that wait, and one of these can drive itself
            return
        for thread, woken in self._followers.items():
            if self._may_drive(thread):
                woken.release()
                return
        if self._followers or self._producer.unattended:
            self.attend()
        else:
            self.look_after()

    def attend(self) -> None:
        """Have the background thread drive, for work that no caller waits for. Call it under the lock."""
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._background, name="txbroker-client", daemon=True)
            thread.start()
            self._thread = thread
        self._work.release()

    def kick(self) -> None:
        """Have output sent, unattended work driven, and new alarms rung in time. Call it under the lock."""
        core = self.core
        if core.output_bytes and self.link.is_up and not self.link.unsent:
            if core.output_bytes >= WRITE_AT_ONCE or core.busy <= 1 or core.is_urgent:
                self._put_out()
            elif self._asleep:
                self.wake()
        if self.link.unsent and not self.link.wants_write:
            self.wake()
        if not self._driving and self._producer.unattended:
            self.attend()
        self.look_after()

    def look_after(self) -> None:
        """Have new alarms rung in time, and what attends looked after. Call it under the lock."""
        if self._asleep and self.core.wakeup() < self._sleeps_until:
            self.wake()  # it would ring the alarm that was set just now too late
        if self.core.attending and not self._driving and not self._watches:
            self._watches = True
            self.attend()
        if self.core.entering.looks_at < self._rests_until and not self._driving:
            self.attend()

    def push(self) -> None:
        """Have output sent although no caller will wait for its answers. Call it under the lock."""
        if self._driving:
            self.wake()
        else:
            self._put_out()

    def push_in_time(self) -> None:
        """Have output sent: what may wait with the next request, or by the pacer. Call it under the lock."""
        if self._driving or not self.core.only_holds:
            self.push()
        else:
            PACER.expect(self)  # again: it sleeps if this thread had no processor since it was told

    @property
    def held_until(self) -> float:
        """When held output must go out; infinity if none is held."""
        return self.core.held_until

    def send_held(self) -> None:
        """Send held output, from any thread, whoever drives: at its time, before a fork, at the interpreter's end."""
        if self.core.held_until < math.inf:
            self.soon(self.link.write)

    def soon(self, work: Callable[[], object]) -> bool:
        """Do something under the lock, unless that is not free for :data:`LOCKED` seconds; return whether it was done.

        For threads that must not wait without end: one that looks after other connections, too, and one that forks,
        perhaps in a partitioner, where it has the lock itself.
        """
        end = time.monotonic() + LOCKED
        while self.lock.locked():
            if time.monotonic() >= end:
                return False
            time.sleep(HELD)
        with self.lock:
            work()
        return True

    def _put_out(self) -> None:
        if self._may_drive(threading.get_ident()):
            self.link.write()
        elif self._driving:
            self.wake()
        else:
            self.attend()

    def wake(self) -> None:
        """Wake the thread that drives, if it sleeps."""
        if self._asleep:
            self._asleep = False
            self._poller.wake()

    def look(self) -> None:
        """Notice now whether the connection died while no thread watched it."""
        self.check_process()
        if self._may_drive(threading.get_ident()):
            self._whole(self._look)
        if self.core.later:
            self.call_back()

    def _look(self) -> None:
        if not self._driving:
            self.link.read()

    @property
    def is_driven(self) -> bool:
        """Return whether a thread drives."""
        return self._driving != 0

    def _turn(self, promise: Promise[T] | None, deadline: float | None) -> None:
        """Send the output, wait for something to happen, and receive it."""
        core = self.core
        self._turns += 1
        if self.is_forked:
            raise fork.refusal()
        if self._closed and core.fatal is not None:
            raise core.fatal
        connect, pause = self._whole(self._before_sleep, promise, deadline)
        if connect:
            self._connect(deadline)
        else:
            if pause > 0:
                self._poller.wait(pause)
            elif deadline is not None and (self._calling or not core.later) and time.monotonic() >= deadline:
                raise TimeoutError
            self._whole(self._after_sleep)
        if core.later and not self._calling:
            self._calling = threading.get_ident()
            try:
                self.call_back()
            finally:
                self._calling = 0

    def _before_sleep(self, promise: Promise[T] | None, deadline: float | None) -> tuple[bool, float]:
        """Do what is due and send. Return whether to connect now, and otherwise for how long to sleep."""
        core = self.core
        if core.wakeup() <= time.monotonic():
            self._do_what_is_due()  # seldom: what makes sure of it is 12 calls
        if core.abort and self.link.is_up:
            self.link.drop(core.abort)
        if core.phase is Phase.DOWN and core.connection_due():
            core.connecting()
            self._asleep = False
            return True, 0.0
        if core.output_bytes or self.link.unsent:
            self.link.write()
        pause = 0.0 if core.later and not self._calling else self._pause(promise, deadline)
        self._asleep, self._sleeps_until = pause > 0, time.monotonic() + pause
        return False, pause

    def _do_what_is_due(self) -> None:
        while self.core.expiring and self.link.read():
            pass  # no missing answer has arrived, however late this thread looks at it
        self.core.tick()

    def _after_sleep(self) -> None:
        self._asleep = False
        self.link.read()

    def _whole(self, work: Callable[P, T], *args: P.args, **choices: P.kwargs) -> T:
        """Under the lock, move bytes off or onto the socket with all that follows from them, as a whole.

        An exception at any moment (raised by a signal's handler) leaves this half done. Then the connection is dropped,
        and its requests are treated as after any loss of a connection.
        """
        with self.lock:
            try:
                return work(*args, **choices)
            except BaseException as error:
                self.link.torn(error)
                raise

    def _pause(self, promise: Promise[T] | None, deadline: float | None) -> float:
        if promise is not None and promise.done:
            return 0.0
        now = time.monotonic()
        until = min(self.core.wakeup(), now + LONGEST)
        return (until if deadline is None else min(until, deadline)) - now

    def call_back(self) -> None:
        """Run the due callbacks of users. Call it outside of the lock."""
        later = self.core.later
        while later:
            call = later.popleft()
            try:
                call()
            except Exception:
                log.exception("a callback for an answer failed")

    def check_process(self) -> None:
        """Raise ProcessForked in a child of the process that opened the connection, and Misuse inside its
        partitioner.
        """
        if self.is_forked:
            raise fork.refusal()
        if self.core.asking:
            check_asking(self.core.asking, self.core.thread())

    def _connect(self, deadline: float | None) -> None:
        timeout = self.core.options.timeout
        if deadline is not None:
            timeout = max(0.001, min(timeout, deadline - time.monotonic()))
        connection = None
        try:
            connection = open_socket(self._address, timeout)
            self._whole(self._take, connection)
        except BaseException as error:
            if connection is not None and self.link.socket is not connection:
                connection.close()
            with self.lock:
                tls.end_if_untrusted(self.core, self._address, error)
                if not self.link.is_up:
                    self.core.lost(f"cannot connect to {self._address.place}: {error}")
            if not isinstance(error, OSError):
                raise

    def _take(self, connection: socket.socket) -> None:
        if self._closed:
            connection.close()
        else:
            self.core.entering.channel = partial(channel_of_socket, self._address, connection)
            self.link.take(connection)

    # -- the background thread ---------------------------------------------------------------------

    def _background(self) -> None:
        with self.lock:
            self._thread = self._thread or threading.current_thread()  # none: its starter was interrupted
            if self._thread is not threading.current_thread():
                return
        while self._comes_to_drive():
            try:
                while self._drives_on() and not self._closed:
                    self._turn(None, None)
            except Exception:
                log.exception("the client's background thread failed; calls that wait go on without it")
            finally:
                with self.lock:
                    self._hand_over()
                    self._offer()

    def _comes_to_drive(self) -> bool:
        """Sleep until the background thread has to drive; return False at the end.

        It drives for memberships of groups when no other thread has done so for :data:`LULL`. So a thread that comes
        again and again to read does that without a change of threads.
        """
        pause, seen, watches = None, 0, False
        while True:
            self._work.acquire(pause)
            with self.lock:
                if self._closed:
                    return False
                is_quiet = watches and seen == self._turns
                if not self._driving and (self._has_work() or (is_quiet and self._drives_on())):
                    self._driving = threading.get_ident()
                    self._watches, self._rests_until = False, math.inf
                    return True
                watches = self._watches = bool(self.core.attending) and not self._driving
                self._rests_until = math.inf if self._driving else self.core.entering.looks_at
                pause, seen = pause_until(self._rests_until, LULL if watches else math.inf), self._turns

    def _drives_on(self) -> bool:
        """Return whether the background thread has to drive, or to stand in while no other thread waits."""
        return self._has_work() or (bool(self.core.attending) and not self._followers)

    def _has_work(self) -> bool:
        """Return whether the background thread has to drive: for others, or for a login anew."""
        followers = list(self._followers)  # in one step: others come and go while this thread has no lock
        waits = bool(followers) and not any(map(self._may_drive, followers))
        waits = waits or self.core.entering.looks_at <= time.monotonic()
        return waits or self._producer.unattended or (self._is_shared and not self.core.only_holds)

    def close(self, error: errors.TxBrokerError, patience: float = 5.0) -> None:
        """Close the socket; everything unanswered fails. Waits ``patience`` seconds for the thread; may be repeated."""
        self._whole(self._stop, error)
        PACER.forget(self)
        self.call_back()
        if patience and self._thread not in (None, threading.current_thread()):
            self._thread.join(patience)
        with self.lock:
            if not self._driving:
                self._poller.close()

    def _stop(self, error: errors.TxBrokerError) -> None:
        self._closed = True
        if self.core.held_until < math.inf:
            self.link.write()
        self.link.close()
        self.core.stop(error)
        self._work.release()
        for follower in self._followers.values():
            follower.release()
        self._poller.wake()

    def forked(self) -> None:
        """In a child process, release the parent's socket without sending anything to the broker."""
        self.is_forked = True
        self.lock = threading.Lock()
        self.link.forked()
