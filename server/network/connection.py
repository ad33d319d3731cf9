"""One client's connection: requests in, responses out, in order.

As in Kafka one request of a connection is worked on at a time, because clients rely on it (a Fetch sees the commit that
was sent before it). Produce and OffsetCommit alone overlap: while one waits for its flush the next is received and
appended, a bounded number ahead, and a second task answers them in the order of the requests. So a client keeps the
group commit fed.

A peer's fault ends its connection with one log line; it never reaches another connection or the server.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.server.apis.pending import Pending
from ottla.server.errors import CloseConnectionError
from ottla.server.network.readiness import Served
from ottla.server.network.receiver import Frame, FrameReceiver, LoneFrame
from ottla.server.network.transport import Transport
from ottla.server.security.errors import NoRuleError
from ottla.server.security.principal import ANONYMOUS
from ottla.server.waiting import remote_time

if TYPE_CHECKING:
    from ottla.kproto.codec import Buffer
    from ottla.server.apis.context import RequestContext
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.readiness import Readiness
    from ottla.server.security.entrance import Entrance
    from ottla.server.security.sasl import Sasl
    from ottla.server.waiting.request_budget import RequestBudget
    from ottla.storage.memory.buffer_pool import BufferPool

logger = logging.getLogger(__name__)

UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""Of a client that has not named its software: ClientInformation.EMPTY."""

_MAX_SEND_VIEWS: Final = 1024
_NONE_IN_FLIGHT: Final[deque[RequestContext]] = deque(maxlen=0)
# One send copies at memory speed: this much stays well under the 500 µs for which the loop may be held.
_MAX_SEND_BYTES: Final = 512 * 1024
# This many requests of a connection are served before it is another one's turn.
_SERVED_AT_ONCE: Final = 4
# Who has sent requests that wait will send more of them: after the n-th in a row the connection's task receives the
# next 2 ** n - 1 by itself, with n at most so much.
_MAX_TIMES_WAITED: Final = 5
# An answer that takes a good part of a slice of time to send.
_LARGE_ANSWER_BYTES: Final = 32 * 1024


class Connection:
    """Serves one transport from accept to close. `serve` is its whole life and releases everything it took."""

    __slots__ = (
        "_answered",
        "_begun",
        "_begun_at_once",
        "_by_itself",
        "_close_callbacks",
        "_dispatcher",
        "_ended",
        "_entrance",
        "_failure",
        "_fault",
        "_handed_over",
        "_has_moved",
        "_in_flight",
        "_last_progress",
        "_max_frame_bytes",
        "_max_pipelined",
        "_muted_until",
        "_pipeline",
        "_readiness",
        "_receiver",
        "_resting",
        "_stalled_since",
        "_stopping",
        "_times_waited",
        "_transport",
        "_unsent",
        "_working",
        "client_id",
        "listener",
        "peer_host",
        "peer_port",
        "principal",
        "sasl",
        "software",
        "state",
        "was_held_up",
    )

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        pool: BufferPool,
        budget: RequestBudget,
        *,
        max_frame_bytes: int,
        max_pipelined: int,
        listener: str,
        peer: tuple[str, int],
        readiness: Readiness,
        entrance: Entrance | None = None,
    ) -> None:
        """`entrance` is what the client has to do before anything else."""
        self._transport = transport
        self._readiness = readiness
        self._dispatcher = dispatcher
        self._receiver = FrameReceiver(
            transport, pool, budget, max_frame_bytes=max_frame_bytes, check_api=dispatcher.find_api
        )
        self._max_frame_bytes = max_frame_bytes
        self._max_pipelined = max_pipelined
        self._muted_until = 0.0
        self._resting: trio.CancelScope | None = None
        self.listener = listener
        #: The client's name for itself, as its last request gave it.
        self.client_id: str | None = None
        self.peer_host, self.peer_port = peer
        self.principal = ANONYMOUS
        self.software = UNKNOWN_SOFTWARE
        #: None where the listener asks for no authentication.
        self.sasl = None if entrance is None or entrance.sasl is None else entrance.sasl.begin()
        self._entrance = entrance
        self.state: dict[str, object] | None = None
        self.was_held_up = False
        self._close_callbacks: dict[Hashable, Callable[[], None]] | None = None
        self._in_flight = _NONE_IN_FLIGHT
        self._begun: trio.lowlevel.ParkingLot
        self._answered: trio.lowlevel.ParkingLot
        self._ended = False
        self._pipeline: trio.Nursery | None = None
        self._failure: CloseConnectionError | OSError | None = None
        # What was begun without the connection's task, in order: the turn's end answers it, or leaves it to the task.
        self._begun_at_once: deque[RequestContext] = deque()
        # What else is left to the task: an error, a request after those, the rest of answers with their requests.
        self._fault: Exception | None = None
        self._handed_over: RequestContext | None = None
        self._unsent: tuple[Sequence[RequestContext], Sequence[Buffer]] | None = None
        self._by_itself = self._times_waited = 0
        self._working = 0
        self._stopping = False
        self._stalled_since: float | None = None  # the peer takes nothing of an answer
        self._has_moved = False  # since `abort_if_idle` looked last, which then was at
        self._last_progress = trio.current_time()

    def __repr__(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"

    def _keys(self, error: Exception | None = None) -> dict[str, object]:
        """What a log line about this connection can be found by."""
        keys: dict[str, object] = {"client": repr(self), "client_id": self.client_id, "listener": self.listener}
        return keys if error is None else {**keys, "error": str(error)}

    async def serve(self) -> None:
        """Answer requests until the peer or `stop` ends the connection. Raises only Cancelled."""
        remote_time.begin_connection()
        try:
            if self._entrance is not None:
                await self._enter(self._entrance)
            await self._serve_one_by_one()
        except CloseConnectionError as error:
            logger.warning("closed the connection from %r: %s", self, error, extra=self._keys(error))
        except BrokenPipeError:
            # It closed while it was being answered, as every consumer does that stops in the middle of a Fetch.
            logger.debug("%r closed before it was answered", self, extra=self._keys())
        except OSError as error:
            logger.info("lost the connection from %r: %s", self, error.strerror or error, extra=self._keys(error))
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
        left = [*self._begun_at_once]
        self._begun_at_once.clear()
        if self._handed_over is not None:
            left.append(self._handed_over)
        if self._unsent is not None:
            left += self._unsent[0]
        self._handed_over = self._unsent = None
        for context in left:
            context.release()

    def on_close(self, key: Hashable, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection ends; it replaces the one of the same key."""
        if self._close_callbacks is None:
            self._close_callbacks = {}
        self._close_callbacks[key] = callback

    @property
    def has_more(self) -> bool:
        """Whether the next request is on its way already."""
        return self._receiver.has_more

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is there to receive an answer. Once this node stops it cannot tell."""
        return self._stopping or not self._transport.has_lost_peer

    def stop(self) -> None:
        """Take no further request: what is under way is answered, then the connection ends."""
        self._stopping = True
        self._transport.shut_down(socket.SHUT_RD)
        if self._resting is not None:
            self._resting.cancel()

    def mute(self, seconds: float) -> None:
        """Take no further request for so long: the client is beyond its quota. What is under way is answered."""
        self._muted_until = max(self._muted_until, trio.current_time() + seconds)

    def abort_if_idle(self, idle_seconds: float) -> bool:
        """End the connection if nothing was seen to move on it for this long and no handler is at work for it.

        It is called now and then, which is when it sees what moved.
        """
        now = trio.current_time()
        if self._has_moved or self._working:
            self._has_moved = False
            self._last_progress = now
        if now - self._last_progress < idle_seconds:
            return False
        self._transport.shut_down(socket.SHUT_RDWR)
        return True

    def abort_if_stalled(self, seconds: float) -> bool:
        """End the connection if its peer has taken nothing of an answer for this long."""
        if self._stalled_since is None or trio.current_time() - self._stalled_since < seconds:
            return False
        self._transport.shut_down(socket.SHUT_RDWR)
        return True

    async def _serve_one_by_one(self) -> None:
        while (context := await self._next_request()) is not None:
            if context.api.is_pipelined and self._is_pipelining(context):
                await self._serve_pipelined(context)
                return
            await self._answer(context)

    def _is_pipelining(self, context: RequestContext) -> bool:
        """A producer will send on meanwhile; with commits only some clients do, and have when this one is taken."""
        return context.api.key is ApiKey.PRODUCE or self.has_more

    async def _serve_pipelined(self, first: RequestContext) -> None:
        # From here on the connection owns these; all others are spared their cost.
        self._in_flight = deque()
        self._begun = trio.lowlevel.ParkingLot()
        self._answered = trio.lowlevel.ParkingLot()
        try:
            async with trio.open_nursery() as nursery:
                self._pipeline = nursery
                nursery.start_soon(self._answer_begun)
                try:
                    await self._take_pipelined(first)
                except (CloseConnectionError, OSError) as error:
                    self._abandon(error)
        finally:
            self._pipeline = None
            for context in self._in_flight:
                context.release()
        if self._failure is not None:
            raise self._failure

    async def _take_pipelined(self, context: RequestContext | None) -> None:
        while context is not None:
            if context.api.is_pipelined:
                await self._begin(context)
            else:
                await self._wait_in_flight(0, context)
                await self._answer(context)
            context = await self._next_request()
        self._ended = True
        self._begun.unpark()

    async def _next_request(self) -> RequestContext | None:
        """The next request that needs this task; all before it have been served without."""
        if self._has_left_something:
            return self._left_to_task()
        sasl = self.sasl
        if sasl is not None and not sasl.is_complete and not await self._authenticate(sasl):
            return None
        if self._receiver.is_settled():
            context = await self._served_at_once()
            if context is not None:
                return context
            if sasl is not None and not sasl.is_complete and not await self._authenticate(sasl):
                return None
        frame = await self._receiver.next()
        if frame is not None and self._muted_until:
            await self._rest(frame)
        if frame is None or self._stopping:
            if frame is not None:
                frame.release()
            return None
        self._has_moved = True
        context = self._accept(frame)
        if sasl is not None:
            self._check_session(sasl, context)
        return context

    @property
    def _has_left_something(self) -> bool:
        return bool(self._begun_at_once) or self._handed_over is not None or self._fault is not None

    def _left_to_task(self) -> RequestContext | None:
        """What was begun without this task and has to be waited for, then what it has to begin."""
        if self._begun_at_once:
            return self._begun_at_once.popleft()
        if self._fault is not None:
            self._raise_fault()
        context, self._handed_over = self._handed_over, None
        return context

    async def _served_at_once(self) -> RequestContext | None:
        """Sleep while requests need no waiting. The one that does, or None where the receiver has to be asked."""
        while True:
            await self._readiness.serve(self._transport, self._serve_at_once, first_by_itself=self._by_itself > 0)
            if self._unsent is None:
                return self._left_to_task()
            await self._send_rest(*self._unsent)
            if self._has_left_something or not self._receiver.is_settled():
                return self._left_to_task()

    async def _send_rest(self, contexts: Sequence[RequestContext], views: Sequence[Buffer]) -> None:
        await self._send(views)
        self._unsent = None
        for context in contexts:
            if context.response_bytes > _LARGE_ANSWER_BYTES:
                self._receiver.rest()
            context.sent()
            context.release()

    def _serve_at_once(self, is_asleep: bool) -> Served:
        """Serve what has come and needs no waiting, but for the end of the turn if the task `is_asleep` (`Serve`)."""
        receiver = self._receiver
        try:
            for _ in range(min(_SERVED_AT_ONCE, self._max_pipelined)):
                if self._stopping or self._muted_until or self._in_flight:
                    return Served.NEEDS_TASK
                sasl = self.sasl
                if sasl is not None and not sasl.is_complete:
                    return Served.NEEDS_TASK
                frame = receiver.next_at_once()
                if frame is None:
                    return Served.ALL if receiver.is_quiet else Served.NEEDS_TASK
                self._has_moved = True
                context = self._accept(frame)
                if sasl is not None:
                    self._check_session(sasl, context)
                if not self._answer_at_once(context, may_wait=is_asleep):
                    return Served.NEEDS_TASK
                if receiver.is_idle:
                    return Served.ALL  # it came by itself
        except Exception as error:  # noqa: BLE001 - it belongs to this connection, whose task raises it
            self._fault = error
            return Served.NEEDS_TASK
        if receiver.has_more:
            return Served.HAS_MORE
        return Served.ALL if receiver.is_settled() else Served.NEEDS_TASK

    def _raise_fault(self) -> None:
        assert self._fault is not None
        try:
            raise self._fault
        finally:
            self._fault = None

    def _answer_at_once(self, context: RequestContext, *, may_wait: bool) -> bool:
        """Answer a request as far as nothing has to be waited for; False if the task has to go on with it.

        What is pipelined is answered at the end of the turn if it `may_wait` for that, or if others before it do.
        """
        is_done = False
        dispatcher, begun = self._dispatcher, self._begun_at_once
        try:
            if begun and not context.api.is_pipelined:
                self._handed_over = context
                is_done = True
                return False
            if not dispatcher.begin(context):
                self._hand_over(context)
                is_done = True
                return False
            if context.api.is_pipelined and may_wait and (begun or isinstance(context.response, Pending)):
                is_done = True
                if not begun:
                    self._readiness.turn.answer(self._answer_begun_at_once)
                begun.append(context)
                return True
            if not dispatcher.is_finished(context):
                self._hand_over(context)
                is_done = True
                return False
            self._by_itself = self._times_waited = 0
            views = dispatcher.answer(context)
            if views is not None:
                rest = views if context.response_bytes > _LARGE_ANSWER_BYTES else self._send_now(views)
                if rest:
                    self._unsent = (context,), rest
                    is_done = True
                    return False
            context.sent()
            return True
        finally:
            if not is_done:
                context.release()

    def _hand_over(self, context: RequestContext) -> None:
        """Leave a request to the task."""
        self._handed_over = context
        self._has_waited()

    def _has_waited(self) -> None:
        if self._by_itself:
            self._by_itself -= 1
        else:
            self._times_waited = min(self._times_waited + 1, _MAX_TIMES_WAITED)
            self._by_itself = (1 << self._times_waited) - 1

    def _answer_begun_at_once(self) -> None:
        """The turn has ended: answer what waited for that, by one send. What waits for more is left to the task."""
        dispatcher, begun = self._dispatcher, self._begun_at_once
        answered: list[RequestContext] = []
        views: list[Buffer] = []
        size_bytes = 0
        try:
            while begun and dispatcher.is_finished(begun[0]):
                context = begun.popleft()
                answered.append(context)
                views += dispatcher.answer(context) or ()
                size_bytes += context.response_bytes
            rest = views if size_bytes > _LARGE_ANSWER_BYTES else self._send_now(views) if views else ()
        except Exception as error:  # noqa: BLE001 - it belongs to this connection, whose task raises it
            self._fault = error
            for context in answered:
                context.release()
        else:
            if rest:
                self._unsent = answered, rest
            else:
                for context in answered:
                    context.sent()
                    context.release()
        if begun:
            self._has_waited()
        elif self._unsent is None and self._fault is None:
            self._by_itself = self._times_waited = 0
            return
        self._readiness.wake(self._transport)

    def _send_now(self, views: list[Buffer]) -> Sequence[Buffer]:
        """Send what the peer takes now; the rest."""
        try:
            sent = self._transport.send(views)
        except BlockingIOError:
            return views
        if len(views) == 1 and sent == len(views[0]):
            return ()
        rest = []
        for view in views:
            if sent < len(view):
                rest.append(memoryview(view)[sent:])
            sent = max(0, sent - len(view))
        return rest

    async def _enter(self, entrance: Entrance) -> None:
        """Agree on how to encrypt, where the listener asks for it, and see whose certificate is shown."""
        if entrance.tls is None:
            return
        with trio.move_on_after(entrance.handshake_seconds) as scope:
            await self._transport.handshake()
        if scope.cancelled_caught:
            raise CloseConnectionError(f"its TLS handshake has not ended within {entrance.handshake_seconds:g} s")
        try:
            self.principal = entrance.principal_of(self._transport.peer_subject) or self.principal
        except NoRuleError as error:
            raise CloseConnectionError(str(error)) from None

    async def _authenticate(self, sasl: Sasl) -> bool:
        """Let the client say who it is, or say so once more; False if it leaves before. Nothing is in flight."""
        self._receiver.max_frame_bytes = sasl.max_frame_bytes
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
                    await self._answer(self._admit(frame, sasl))
        if scope.cancelled_caught:
            raise CloseConnectionError(f"it has not authenticated within {sasl.seconds:g} s")
        self.principal = sasl.principal
        self._receiver.max_frame_bytes = self._max_frame_bytes
        return True

    def _admit(self, frame: Frame, sasl: Sasl) -> RequestContext:
        context = self._accept(frame)
        try:
            context.refusal = sasl.admit(context.api.key)
        except BaseException:
            context.release()
            raise
        return context

    async def _take_raw_message(self, frame: Frame, sasl: Sasl) -> None:
        """A client that negotiated SaslHandshake v0 sends and gets bare messages; a refusal has no answer."""
        try:
            message = bytes(frame.body)
        finally:
            frame.release()
        answer = await sasl.authenticate(message, 0)
        if not sasl.has_failed:
            await self._send([len(answer.token).to_bytes(4, "big") + answer.token])

    def _check_session(self, sasl: Sasl, context: RequestContext) -> None:
        try:
            sasl.check_session(context.api.key)
        except BaseException:
            context.release()
            raise

    async def _rest(self, frame: Frame) -> None:
        """Wait until the connection is no longer muted, or is stopped, with the frame that came meanwhile."""
        try:
            with trio.CancelScope(deadline=self._muted_until) as self._resting:
                if not self._stopping:
                    await trio.sleep_forever()
        except BaseException:
            frame.release()
            raise
        finally:
            self._resting = None
        self._muted_until = 0.0

    def _accept(self, frame: Frame | LoneFrame) -> RequestContext:
        try:
            context = self._dispatcher.accept(frame, self)
        except BaseException:
            frame.release()
            raise
        self.client_id = context.header.client_id
        return context

    async def _begin(self, context: RequestContext) -> None:
        """Do what must be done in the order of the requests, and leave the rest to `_answer_begun`."""
        await self._wait_in_flight(self._max_pipelined - 1, context)
        self._working += 1
        try:
            await self._dispatcher.dispatch(context)
        except BaseException:
            self._working -= 1
            context.release()
            raise
        if context.is_ready and not self._in_flight and not self.has_more:
            await self._answer_now(context)
        else:
            self._in_flight.append(context)
            self._begun.unpark()

    async def _answer_now(self, context: RequestContext) -> None:
        """Answer a request that was begun, with none before it."""
        try:
            try:
                response = await self._dispatcher.finish(context)
            finally:
                self._working -= 1
            if response is not None:
                await self._send_answer(context, response)
            else:
                context.sent()
        finally:
            context.release()

    async def _send_answer(self, context: RequestContext, views: Sequence[Buffer]) -> None:
        await self._send(views)
        if context.response_bytes > _LARGE_ANSWER_BYTES:
            self._receiver.rest()
        context.sent()

    async def _wait_in_flight(self, allowed: int, context: RequestContext) -> None:
        """Wait until no more than `allowed` pipelined requests are under way."""
        try:
            while len(self._in_flight) > allowed:
                await self._answered.park()
        except BaseException:
            context.release()
            raise

    async def _answer_begun(self) -> None:
        """Answer what was begun, in order, until the last request of the connection."""
        try:
            while self._in_flight or not self._ended:
                if self._in_flight:
                    await self._answer_first()
                    self._answered.unpark()
                else:
                    await self._begun.park()
        except (CloseConnectionError, OSError) as error:
            self._abandon(error)

    async def _answer_first(self) -> None:
        """Answer the first request under way, and by the same send those after it that need no wait."""
        in_flight = self._in_flight
        response = await self._dispatcher.finish(in_flight[0]) or []
        count = 1
        while count < len(in_flight) and in_flight[count].is_ready:
            response += await self._dispatcher.finish(in_flight[count]) or []
            count += 1
        self._working -= count
        await self._send(response)
        for _ in range(count):
            context = in_flight.popleft()
            context.sent()
            context.release()

    def _abandon(self, error: CloseConnectionError | OSError) -> None:
        """End the pipeline at the first failure: what is still under way on this connection has nobody to answer."""
        assert self._pipeline is not None
        if self._failure is None:
            self._failure = error
            self._pipeline.cancel_scope.cancel()

    async def _answer(self, context: RequestContext) -> None:
        self._working += 1
        try:
            await self._dispatcher.dispatch(context)
        except BaseException:
            self._working -= 1
            context.release()
            raise
        await self._answer_now(context)

    async def _send(self, views: Sequence[Buffer]) -> None:
        """Send everything, waiting as long as the peer does not read: that holds up nobody but this connection."""
        first = 0
        offset = 0
        count = len(views)
        while first < count:
            group, wanted = _next_group(views, first, offset)
            try:
                sent = self._transport.send(group)
            except BlockingIOError:
                if self._stalled_since is None:
                    self._stalled_since = trio.current_time()
                await self._transport.wait_writable()
                continue
            self._has_moved = True
            self._stalled_since = None
            if sent < wanted:
                self._stalled_since = trio.current_time()
                await self._transport.wait_writable()
            elif first + len(group) < count or offset + sent < len(views[first]):
                await trio.lowlevel.checkpoint()
            sent += offset
            while first < count and sent >= len(views[first]):
                sent -= len(views[first])
                first += 1
            offset = sent


def _next_group(views: Sequence[Buffer], first: int, offset: int) -> tuple[Sequence[Buffer], int]:
    """The views that one send takes from `offset` bytes into view `first` on, and their size in bytes."""
    if len(views) == 1 and not offset and len(views[0]) <= _MAX_SEND_BYTES:
        return views, len(views[0])
    group: list[Buffer] = []
    size_bytes = 0
    for view in views[first : first + _MAX_SEND_VIEWS]:
        piece = memoryview(view)[offset : offset + _MAX_SEND_BYTES - size_bytes]
        offset = 0
        group.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _MAX_SEND_BYTES:
            break
    return group, size_bytes
