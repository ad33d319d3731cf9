"""One client's connection: requests in, responses out, in order.

As in Kafka one request of a connection is worked on at a time, because clients rely on it (a Fetch sees the commit that
was sent before it). Produce and OffsetCommit alone overlap: while one waits for its flush the next is received and
appended, a bounded number ahead. So a client keeps the group commit fed.

All requests of a connection that were received and not answered are in one queue. A request leaves it by `_pump`, which
answers those at its head that are finished by one send, and has itself called again when the first of the others is: in
the turn that received them, at the end of a turn, or in the connection's task. That task works on what needs one, and
sends what a peer does not take at once. Whatever it waits for meanwhile is interrupted for that.

A peer's fault ends its connection with one log line; it never reaches another connection or the server.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.errors import ErrorCode
from ottla.runtime import remote_time
from ottla.runtime.errors import CloseConnectionError
from ottla.security.errors import NoRuleError
from ottla.server.apis.pending import Pending
from ottla.server.network.readiness import Served
from ottla.server.network.receiver import Frame, FrameReceiver, LoneFrame
from ottla.server.network.response_sender import LARGE_ANSWER_BYTES, ResponseSender
from ottla.server.network.task_wait import TaskWait
from ottla.server.network.transport import Transport

if TYPE_CHECKING:
    from ottla.kproto.codec import Part
    from ottla.runtime.request_budget import RequestBudget
    from ottla.security.listener_auth import ListenerAuth
    from ottla.security.sasl import Sasl
    from ottla.server.apis.connected_client import ConnectedClient
    from ottla.server.apis.context import RequestContext
    from ottla.server.network.closed_log import ClosedLog
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.readiness import Readiness
    from ottla.storage.memory.buffer_pool import BufferPool

logger = logging.getLogger(__name__)

# This many requests of a connection are served before it is another one's turn.
_SERVED_AT_ONCE: Final = 4
# A member of an enumeration costs as much to look up as two calls, and this is what is returned for most requests.
_ALL: Final = Served.ALL


class Connection:
    """Serves one transport from accept to close. `serve` is its whole life and releases everything it took."""

    __slots__ = (
        "_close_callbacks",
        "_dispatcher",
        "_fault",
        "_in_flight",
        "_is_pumped_later",
        "_max_pipelined",
        "_muted_until",
        "_readiness",
        "_receiver",
        "_sender",
        "_stopping",
        "_transport",
        "_wait",
        "_watched",
        "client",
        "recurring_end",
        "sasl",
        "was_held_up",
    )

    def __init__(
        self,
        transport: Transport,
        client: ConnectedClient,
        dispatcher: Dispatcher,
        pool: BufferPool,
        budget: RequestBudget,
        *,
        max_frame_bytes: int,
        max_pipelined: int,
        readiness: Readiness,
    ) -> None:
        self._transport = transport
        self._readiness = readiness
        self._dispatcher = dispatcher
        self._receiver = FrameReceiver(
            transport, pool, budget, max_frame_bytes=max_frame_bytes, check_api=dispatcher.find_api
        )
        self._sender = ResponseSender(transport)
        self._max_pipelined = max_pipelined
        self._muted_until = 0.0
        self.client = client
        #: None where the listener asks for no authentication.
        self.sasl: Sasl | None = None
        self.was_held_up = False
        self.recurring_end = 0
        self._close_callbacks: dict[Hashable, Callable[[], None]] | None = None
        # The requests that were received and not answered, in order. All but the last are dispatched.
        self._in_flight: deque[RequestContext] = deque()
        self._is_pumped_later = False  # at the end of the turn
        self._watched: RequestContext | None = None  # the first of them, if it calls when it is ready
        # What is left to the connection's task, beside requests and what is unsent.
        self._fault: Exception | None = None
        self._wait = TaskWait()
        self._stopping = False

    def __repr__(self) -> str:
        return repr(self.client)

    async def serve(self, listener_auth: ListenerAuth | None, closed_log: ClosedLog) -> None:
        """Answer requests until the peer or `stop` ends the connection. Raises only Cancelled.

        `listener_auth` is what the client has to do before anything else.
        """
        client = self.client
        remote_time.begin_connection()
        try:
            if listener_auth is not None:
                await self._enter(listener_auth)
            await self._serve_one_by_one()
        except CloseConnectionError as error:
            closed_log.say(client.host, client.port, client.client_id, error, client.log_keys(error))
        except BrokenPipeError:
            # It closed while it was being answered, as every consumer does that stops in the middle of a Fetch.
            logger.debug("%r closed before it was answered", self, extra=client.log_keys())
        except OSError as error:
            logger.info("lost the connection from %r: %s", self, error.strerror or error, extra=client.log_keys(error))
        finally:
            self._give_up()
            self._receiver.close()
            self._readiness.forget(self._transport)
            self._transport.close()
            callbacks, self._close_callbacks = self._close_callbacks, None
            for callback in (callbacks or {}).values():
                callback()

    def _give_up(self) -> None:
        """Release what nobody will be answered."""
        self._sender.give_up()
        while self._in_flight:
            self._in_flight.popleft().release()

    def recurs(self, end: int) -> None:
        """Its next requests may differ from the last one only from `end` on."""
        self.recurring_end = end

    def held_up(self) -> None:
        """A Produce waits for room, or has waited: those that come behind it may be given up meanwhile."""
        self.was_held_up = True

    def on_close(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection ends; it replaces the one of the same key."""
        if self._close_callbacks is None:
            self._close_callbacks = {}
        self._close_callbacks[key] = callback

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is there to receive an answer. Once this node stops it cannot tell."""
        return self._stopping or not self._transport.has_lost_peer

    @property
    def sends_files(self) -> bool:
        """Whether parts of an answer may be ranges of files."""
        return self._sender.sends_files

    def stop(self) -> None:
        """Take no further request: what is under way is answered, then the connection ends."""
        self._stopping = True
        self._transport.shut_down(socket.SHUT_RD)
        self._wait.interrupt()

    def mute(self, seconds: float) -> None:
        """Take no further request for so long: the client is beyond its quota. What is under way is answered."""
        self._muted_until = max(self._muted_until, trio.current_time() + seconds)

    def abort_if_idle(self, idle_seconds: float) -> bool:
        """End the connection if nothing was seen to move on it for this long and no request waits for its answer.

        It is called now and then, which is when it sees what moved.
        """
        if not self._sender.is_idle(idle_seconds, has_requests=bool(self._in_flight)):
            return False
        self._transport.shut_down(socket.SHUT_RDWR)
        return True

    def abort_if_stalled(self, seconds: float) -> bool:
        """End the connection if its peer has taken nothing of an answer for this long."""
        if not self._sender.is_stalled(seconds):
            return False
        self._transport.shut_down(socket.SHUT_RDWR)
        return True

    async def _serve_one_by_one(self) -> None:
        while (context := await self._next_request()) is not None:
            await self._work_on(context)
        await self._wait_in_flight(0)

    async def _next_request(self) -> RequestContext | None:
        """The next request that needs this task; all before it have been served without."""
        while True:
            if self._fault is not None or self._sender.is_uncached:
                await self._settle()
            in_flight = self._in_flight
            if in_flight and not in_flight[-1].is_dispatched:
                return in_flight[-1]
            sasl = self.sasl
            if sasl is not None and not sasl.is_complete and not await self._authenticate(sasl):
                return None
            has_unsent = self._sender.unsent
            if has_unsent or self._receiver.is_settled():
                await self._readiness.serve(self._transport, self._serve_at_once, has_unsent=has_unsent)
                if self._is_left_to_task:
                    continue
            frame = await self._arrive()
            if frame is None:
                if self._is_left_to_task:
                    continue
                return None
            await self._receiver.take_turn(frame)
            if self._muted_until:
                await self._rest(frame)
            if self._stopping:
                frame.release()
                return None
            context = self._accept(frame)
            if sasl is not None:
                sasl.check_session(context.api.key)
            return context

    @property
    def _is_left_to_task(self) -> bool:
        """Whether something has to be done before more is received."""
        if self._sender.unsent or self._fault is not None:
            return True
        if self._in_flight and not self._in_flight[-1].is_dispatched:
            return True
        return self.sasl is not None and not self.sasl.is_complete

    async def _arrive(self) -> Frame | None:
        """The next frame; None at the end of the stream, or if something else has to be done before."""
        if not self._in_flight:
            return await self._receiver.arrive()  # nothing can interrupt it
        return await self._wait.interruptible(self._receiver.arrive)

    async def _settle(self) -> None:
        """Raise an error that came up in no task, or send in this task what the peer has not taken."""
        if self._fault is not None:
            self._raise_fault()
        if self._sender.unsent:
            self._sent(await self._sender.send_rest())
            if self._in_flight:
                self._pump_soon()

    def _serve_at_once(self) -> Served:
        """Serve what has come and needs no task (`Serve`)."""
        receiver = self._receiver
        try:
            if self._sender.unsent:
                return self._go_on_sending()
            count = self._room if self._in_flight else min(_SERVED_AT_ONCE, self._max_pipelined)
            if not count:
                return Served.NEEDS_TASK
            for _ in range(count):
                if self._stopping or self._muted_until:
                    return Served.NEEDS_TASK
                sasl = self.sasl
                if sasl is not None and not sasl.is_complete:
                    return Served.NEEDS_TASK
                frame = receiver.next_at_once()
                if frame is None:
                    return _ALL if receiver.is_quiet else Served.NEEDS_TASK
                context = self._accept(frame)
                if sasl is not None:
                    sasl.check_session(context.api.key)
                if not self._begin_at_once(context):
                    # To make an answer may have taken all the time that one connection should take at once.
                    return Served.HAS_MORE if self._sender.unsent else Served.NEEDS_TASK
                if frame.fragment is None:
                    return _ALL  # it came by itself
                if self._readiness.turn.is_full or not context.is_dispatched:
                    break
        except Exception as error:  # noqa: BLE001 - it belongs to this connection, whose task raises it
            self._fault = error
            return Served.NEEDS_TASK
        return self._state

    def _go_on_sending(self) -> Served:
        """Send what the peer takes now of what is unsent."""
        served = self._sender.go_on()
        if served is not _ALL:
            return served
        self._sent(self._sender.answered)
        if self._in_flight:
            self._pump_soon()
        return self._state

    @property
    def _state(self) -> Served:
        """What comes next when everything that had arrived is served, as far as may be now."""
        if self._receiver.has_more:
            return Served.HAS_MORE
        return _ALL if self._receiver.is_settled() else Served.NEEDS_TASK

    @property
    def _room(self) -> int:
        """How many requests may be taken beside those that are under way."""
        if self._sender.unsent or not self._in_flight[-1].is_dispatched:
            return 0
        return max(0, min(_SERVED_AT_ONCE, self._max_pipelined - len(self._in_flight)))

    def _raise_fault(self) -> None:
        assert self._fault is not None
        try:
            raise self._fault
        finally:
            self._fault = None

    def _begin_at_once(self, context: RequestContext) -> bool:
        """Begin a request, and answer it if nothing has to be waited for; False if the task has to go on with it.

        What is pipelined and not finished, or has others before it, is answered when it is its turn.
        """
        is_first = self._in_flight[0] is context
        is_pipelined = context.api.is_pipelined
        if not is_first and not is_pipelined:
            return False
        try:
            is_dispatched = self._dispatcher.begin(context)
        except BaseException:
            self._in_flight.pop().release()
            raise
        if not is_dispatched:
            if is_first and context.is_left_to_pump:
                self._watch_first()
                return True
            return False
        if is_pipelined and (not is_first or isinstance(context.response, Pending)):
            if is_first:
                self._pump_soon()
            return True
        self._pump()
        return not self._in_flight

    def _pump_soon(self) -> None:
        """Answer at the end of the turn. May be called amid any change of state."""
        if not self._is_pumped_later:
            self._is_pumped_later = True
            self._readiness.turn.answer(self._pump_at_end)

    def _pump_at_end(self) -> None:
        self._is_pumped_later = False
        in_flight = self._in_flight
        if not in_flight:
            return  # it has ended meanwhile
        try:
            self._pump()
        except Exception as error:  # noqa: BLE001 - it belongs to this connection, whose task raises it
            self._fault = error
        else:
            if not self._wait.is_ended_by(len(in_flight)) and (not in_flight or not self._is_stuck):
                return
            if self._sender.unsent and self._readiness.left_unsent(self._transport):
                return
        if not self._wait.interrupt():
            self._readiness.wake(self._transport)

    @property
    def _is_stuck(self) -> bool:
        """Whether only the task can answer the first request."""
        return self._sender.unsent or (self._watched is None and not self._in_flight[0].is_dispatched)

    def _pump(self) -> None:
        """Answer, by one send, the first requests as far as they are finished, and be called again when the next one
        is. What the peer does not take now is left to the task.
        """
        if self._sender.unsent:
            return
        dispatcher = self._dispatcher
        views: list[Part] = []
        count = size_bytes = 0
        for context in self._in_flight:
            if not context.is_finished():
                break
            views += dispatcher.answer(context) or ()
            size_bytes += context.measurement.response_bytes
            count += 1
        if self._sender.send_at_once(count, views, size_bytes):
            self._sent(count)
            if self._in_flight:
                self._watch_first()

    def _watch_first(self) -> None:
        """Be called when the first request is ready. Those that the task answers are not waited for here."""
        first = self._in_flight[0]
        if first is self._watched or not first.is_left_to_pump:
            return
        self._watched = first
        assert isinstance(first.response, Pending)
        first.response.watch(partial(self._first_is_ready, first))

    def _first_is_ready(self, first: RequestContext) -> None:
        if first is self._watched:  # else it was answered without this call
            self._watched = None
            self._pump_soon()

    def _sent(self, count: int) -> None:
        """The answers of the first `count` requests have left."""
        for _ in range(count):
            context = self._in_flight.popleft()
            self._watched = None
            if context.measurement.response_bytes > LARGE_ANSWER_BYTES:
                self._receiver.rest()
            context.measurement.record(context.api.metrics)
            context.release()

    async def _enter(self, listener_auth: ListenerAuth) -> None:
        """Begin what the listener asks for: SASL, and the TLS handshake with the client's certificate."""
        if listener_auth.sasl is not None:
            self.sasl = listener_auth.sasl.begin()
        if listener_auth.tls is None:
            return
        with trio.move_on_after(listener_auth.handshake_seconds) as scope:
            await self._transport.handshake()
        if scope.cancelled_caught:
            raise CloseConnectionError(f"its TLS handshake has not ended within {listener_auth.handshake_seconds:g} s")
        try:
            principal = listener_auth.principal_of(self._transport.peer_subject)
        except NoRuleError as error:
            raise CloseConnectionError(str(error)) from None
        if principal:
            self.client.authenticated(principal)

    async def _authenticate(self, sasl: Sasl) -> bool:
        """Let the client say who it is, or say so once more; False if it leaves before."""
        await self._wait_in_flight(0)
        max_frame_bytes = self._receiver.limit_frames(sasl.max_frame_bytes)
        with trio.move_on_after(sasl.seconds) as scope:
            while not sasl.is_complete:
                if sasl.has_failed:
                    raise CloseConnectionError(sasl.failure)
                frame = await self._receiver.next()
                if frame is None or self._stopping:
                    if frame is not None:
                        frame.release()
                    return False
                if sasl.takes_raw_messages:
                    await self._take_raw_message(frame, sasl)
                else:
                    context = self._accept(frame)
                    await self._work_on(context, sasl.admit(context.api.key))
                    await self._wait_in_flight(0)
        if scope.cancelled_caught:
            raise CloseConnectionError(f"it has not authenticated within {sasl.seconds:g} s")
        self.client.authenticated(sasl.principal)
        self._receiver.limit_frames(max_frame_bytes)
        return True

    async def _take_raw_message(self, frame: Frame, sasl: Sasl) -> None:
        """A client that negotiated SaslHandshake v0 sends and gets bare messages; a refusal has no answer."""
        try:
            message = bytes(frame.body)
        finally:
            frame.release()
        answer = await sasl.authenticate(message, 0)
        if not sasl.has_failed:
            self._sender.leave(0, [len(answer.token).to_bytes(4, "big") + answer.token])
            await self._sender.send_rest()

    async def _rest(self, frame: Frame) -> None:
        """Wait until the connection is no longer muted, or is stopped, with the frame that came meanwhile."""
        try:
            while not self._stopping and trio.current_time() < self._muted_until:
                await self._wait.interruptible(trio.sleep_forever, deadline=self._muted_until)
                await self._settle()
        except BaseException:
            frame.release()
            raise
        self._muted_until = 0.0

    def _accept(self, frame: Frame | LoneFrame) -> RequestContext:
        try:
            context = self._dispatcher.accept(frame, self)
        except BaseException:
            frame.release()
            raise
        if context.header.client_id != self.client.client_id:
            self.client.named(context.header.client_id)
        self._in_flight.append(context)
        return context

    async def _work_on(self, context: RequestContext, refusal: ErrorCode = ErrorCode.NONE) -> None:
        """Do in its place what must be done for a request, which is the last of those under way; then answer it, unless
        that is left to `_pump`. With a `refusal` it is only answered with that error.
        """
        await self._wait_in_flight(self._max_pipelined if context.api.is_pipelined else 1)
        await self._dispatcher.dispatch(context, refusal)
        if context.is_left_to_pump:
            self._pump_soon()
            return
        # What needs this task to be answered is answered before the next one is begun.
        await self._wait_in_flight(1)
        await context.wait()
        if context.is_finished():
            self._pump()
        else:
            self._sender.leave(1, await self._dispatcher.answer_in_steps(context) or ())

    async def _wait_in_flight(self, allowed: int) -> None:
        """Wait until no more than `allowed` requests are under way."""
        while len(self._in_flight) > allowed:
            await self._settle()
            if len(self._in_flight) > allowed:
                await self._wait.until_in_flight(allowed)
