"""One connection to a broker on Trio, shared by tasks: many requests in flight, each task waits for its own answer.

The task that runs `run` owns the connection and ends it; calling tasks own nothing of it. `run` has three tasks:
one sends what calls have queued, one receives and hands out answers, one watches the deadlines.

A call may be cancelled at any point:

| it waits for | what a cancellation does |
|---|---|
| a place (at most `max_in_flight` calls have one) | nothing was sent |
| the sender, in the queue | it leaves the queue, and nothing was sent |
| the answer | the answer is dropped when it comes; until then the call keeps its place |

So a frame is never sent in part, an answer never reaches another call, and a peer that does not answer holds up those
who call instead of filling memory. A request that is not answered by its deadline ends the connection, as in Kafka's
NetworkClient, even if its caller has gone: answers come in order, so none after it would come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.errors import ClientError, ConnectionLostError, RequestTimedOutError, UnreachableError, system_reason
from ottla.client.protocol import MAX_ANSWER_BYTES, Answer, ClientProtocol, State, has_answer
from ottla.client.security import NO_SECURITY, Security
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.versions import OPEN_END

if TYPE_CHECKING:
    import ssl

    from ottla.kproto.schema import Request
    from ottla.kproto.types import Buffer

MAX_IN_FLIGHT: Final = 64
_RECEIVE_BYTES: Final = 64 * 1024
_JOINED_BYTES: Final = 256 * 1024
_PARSED_AT_ONCE_BYTES: Final = 16 * 1024
_CARRY_RECORDS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.FETCH_SNAPSHOT})

OpenStream = Callable[[], Awaitable[trio.abc.Stream]]

#: After this part of a session's life a new one is begun, as Kafka's clients do.
_SESSION_SHARE: Final = 0.85


class _Call:
    """A request, from the queue until its answer is here or will never come."""

    __slots__ = ("answer", "body", "deadline", "done", "failure", "has_answer", "key", "version")

    def __init__(self, key: ApiKey, version: int, body: list[Buffer], deadline: float, *, has_answer: bool) -> None:
        self.key = key
        self.version = version
        self.body = body
        self.deadline = deadline
        self.has_answer = has_answer
        self.answer: Answer | None = None
        self.failure: ClientError | None = None
        self.done = trio.Event()


async def _open_stream(host: str, port: int, security: Security) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream(host, port)
    if security.tls is None:
        return stream
    from ottla.client.tls import context_of

    return await encrypt(stream, context_of(security.tls), host)


async def encrypt(stream: trio.abc.Stream, context: ssl.SSLContext, host: str) -> trio.abc.Stream:
    """A stream over this one, whose handshake is done; it is closed if that fails, with an OSError."""
    encrypted = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await encrypted.do_handshake()
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise OSError(f"no TLS connection: {error.__cause__}") from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return encrypted


class TrioConnection:
    """One connection, made by `run` and usable from when that says that it has started until it returns.

    `open_stream` connects; by default to host and port over TCP. Each call, and the connecting, ends after
    `timeout_seconds`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_seconds: float = 30,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        open_stream: OpenStream | None = None,
        security: Security = NO_SECURITY,
    ) -> None:
        self.address = f"{host}:{port}"
        self._timeout_seconds = timeout_seconds
        self._open_stream = open_stream or partial(_open_stream, host, port, security)
        self._protocol = ClientProtocol(
            self.address,
            client_id,
            max_answer_bytes=max_answer_bytes,
            max_in_flight=max_in_flight,
            login=security.login,
        )
        self._free_places = max_in_flight
        self._without_place = trio.lowlevel.ParkingLot()
        self._queue: deque[_Call] = deque()
        self._queued = trio.Event()
        self._in_flight: dict[int, _Call] = {}
        self._was_open = False
        self._login_ends_at = inf
        #: Set when nothing waits for an answer, and when something was received: for the task that begins a new
        #: session.
        self._idle = trio.Event()
        self._heard = trio.Event()
        self._patience = trio.CancelScope()
        self._closed = trio.Event()
        self._life = trio.CancelScope()

    @property
    def is_open(self) -> bool:
        """Whether calls may be made. It may be over at any moment: a call says so by ConnectionLostError."""
        return self._was_open and self._protocol.state is not State.LOST

    async def run(self, task_status: trio.TaskStatus[TrioConnection] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, and carry calls until the peer hangs up, a deadline passes, or `close`; then return.

        Raises a ClientError if there never was a connection. To be run once, by the owner: `nursery.start(it.run)`.
        """
        try:
            with self._life:
                stream = await self._connect()
                try:
                    await self._negotiate(stream)
                    self._was_open = True
                    task_status.started(self)
                    await self._carry(stream)
                finally:
                    # It is over at once. Were it cancelled, that would take the place of an error on its way out.
                    with trio.CancelScope(shield=True):
                        await trio.aclose_forcefully(stream)
        finally:
            self._end()
        if not self._was_open:
            raise ConnectionLostError(f"the connection to {self.address} was closed before it was made")

    async def wait_closed(self) -> None:
        """Return when `run` has ended, or is about to: the peer hung up, or somebody closed."""
        await self._closed.wait()

    def close(self) -> None:
        """End `run`. Calls that still wait raise ConnectionLostError."""
        self._life.cancel()

    async def call(self, request: Request, *, at_most: int = OPEN_END, timeout_seconds: float | None = None) -> Any:
        """The answer to a request in the highest common version; None for a Produce with acks=0, when it is sent.

        ConnectionLostError if it may or may not have been carried out; RequestTimedOutError, which is one, after
        `timeout_seconds` (by default the connection's); UnsupportedVersionError if it cannot be sent to this broker.
        """
        deadline = trio.current_time() + (self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        version = self._protocol.version(request.API_KEY, at_most)
        body = self._protocol.build(request, version)
        call = _Call(request.API_KEY, version, body, deadline, has_answer=has_answer(request))
        with trio.CancelScope(deadline=deadline):
            await self._take_place()
            self._enqueue(call)
            try:
                await call.done.wait()
            finally:
                self._withdraw(call)
        if not call.done.is_set():
            late = self._too_late(call)
            self._lose(late)
            raise late
        if call.failure is not None:
            raise call.failure
        try:
            return None if call.answer is None else await self._parse(call.answer)
        except ConnectionLostError as error:
            self._lose(error)
            raise

    async def _parse(self, answer: Answer) -> Any:
        """The message. One with much in it, such as the metadata of many topics, is parsed while others run."""
        if len(answer.frame) <= _PARSED_AT_ONCE_BYTES or answer.request.key in _CARRY_RECORDS:
            return self._protocol.parse(answer)
        steps = self._protocol.parse_in_steps(answer)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            await trio.lowlevel.checkpoint()

    # What happens to a call

    async def _take_place(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._free_places:
            self._free_places -= 1
        else:
            await self._without_place.park()  # a place that becomes free is handed over
            self._protocol.check_open()

    def _give_place(self) -> None:
        if self._without_place:
            self._without_place.unpark()
        else:
            self._free_places += 1

    def _enqueue(self, call: _Call) -> None:
        self._queue.append(call)
        self._queued.set()

    def _withdraw(self, call: _Call) -> None:
        """The caller no longer waits: what has not been sent never will be."""
        if call in self._queue:
            self._queue.remove(call)
            self._give_place()

    def _begin(self) -> int:
        """Give the first call of the queue its correlation id: from now on it cannot be withdrawn.

        ConnectionLostError leaves it in the queue, so that `_end` tells it.
        """
        call = self._queue[0]
        sent = self._protocol.send_body(call.key, call.version, call.body, has_answer=call.has_answer)
        self._queue.popleft()
        call.body.clear()
        self._in_flight[sent.correlation_id] = call
        self._patience.deadline = min(self._patience.deadline, call.deadline)
        return sent.correlation_id

    def _finish(self, correlation_id: int, answer: Answer | None) -> None:
        call = self._in_flight.pop(correlation_id)
        call.answer = answer
        call.done.set()
        self._give_place()
        if not self._in_flight:
            self._idle.set()

    # The life of the connection

    async def _connect(self) -> trio.abc.Stream:
        try:
            with trio.fail_after(self._timeout_seconds):
                return await self._open_stream()
        except trio.TooSlowError:
            raise UnreachableError(self.address, f"not within {self._timeout_seconds:g} s") from None
        except OSError as error:
            raise UnreachableError(self.address, system_reason(error)) from None

    async def _negotiate(self, stream: trio.abc.Stream) -> None:
        self._protocol.start()
        try:
            with trio.fail_after(self._timeout_seconds):
                while self._protocol.state is not State.OPEN:
                    await self._flush(stream)
                    received = await stream.receive_some(_RECEIVE_BYTES)
                    if self._protocol.state is State.AUTHENTICATING:
                        # To prove a password takes thousands of hashes, as many as the peer says. Nobody else uses the
                        # protocol before it is open.
                        await trio.to_thread.run_sync(self._protocol.feed, received)
                    else:
                        self._protocol.feed(received)
        except trio.TooSlowError:
            raise RequestTimedOutError(f"the broker at {self.address} did not answer ApiVersions in time") from None
        except trio.BrokenResourceError as error:
            raise self._broken(error) from None
        self._note_session()

    def _note_session(self) -> None:
        if self._protocol.session_lifetime_ms:
            self._login_ends_at = trio.current_time() + _SESSION_SHARE * self._protocol.session_lifetime_ms / 1000

    async def _log_in_again(self, stream: trio.abc.Stream) -> None:
        """Begin a new session before the present one ends (KIP-368): what is under way is answered before."""
        while self._in_flight:
            self._idle = trio.Event()
            await self._idle.wait()
        self._protocol.authenticate_again()
        with trio.CancelScope(deadline=trio.current_time() + self._timeout_seconds) as patience:
            while self._protocol.state is not State.OPEN:
                self._heard = trio.Event()
                await self._flush(stream)
                await self._heard.wait()
        if patience.cancelled_caught:
            self._lose(RequestTimedOutError(f"the broker at {self.address} did not begin a new session in time"))
        self._note_session()

    async def _carry(self, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            nursery.start_soon(self._receive, stream)
            nursery.start_soon(self._watch)

    async def _send(self, stream: trio.abc.Stream) -> None:
        try:
            while True:
                await self._queued.wait()
                if trio.current_time() >= self._login_ends_at:
                    await self._log_in_again(stream)
                self._queued = trio.Event()
                sent = [self._begin() for _ in range(len(self._queue))]
                await self._flush(stream)
                for correlation_id in sent:
                    if (call := self._in_flight.get(correlation_id)) is not None and not call.has_answer:
                        self._finish(correlation_id, None)
        except trio.BrokenResourceError as error:
            self._lose(self._broken(error))
        except ConnectionLostError as error:
            # Another task lost it as this one was about to run, or no new session was begun.
            self._lose(error)

    async def _receive(self, stream: trio.abc.Stream) -> None:
        try:
            while True:
                for answer in self._protocol.feed(await stream.receive_some(_RECEIVE_BYTES)):
                    self._finish(answer.request.correlation_id, answer)
                self._heard.set()
        except trio.BrokenResourceError as error:
            self._lose(self._broken(error))
        except ConnectionLostError as error:
            self._lose(error)

    async def _watch(self) -> None:
        while True:
            deadline = min((call.deadline for call in self._in_flight.values()), default=inf)
            with trio.CancelScope(deadline=deadline) as self._patience:
                await trio.sleep_forever()
            now = trio.current_time()
            for call in self._in_flight.values():
                if call.deadline <= now:
                    self._lose(self._too_late(call))
                    return

    async def _flush(self, stream: trio.abc.Stream) -> None:
        data = self._protocol.data_to_send()
        if sum(map(len, data)) <= _JOINED_BYTES:
            data = [b"".join(data)]
        for part in data:
            await stream.send_all(part)

    def _broken(self, error: trio.BrokenResourceError) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.address} ended: {system_reason(error)}")

    def _too_late(self, call: _Call) -> RequestTimedOutError:
        return RequestTimedOutError(f"the broker at {self.address} did not answer {call.key.kafka_name} in time")

    def _lose(self, error: ClientError) -> None:
        """End `run`; everyone who waits gets this error, unless another came first."""
        self._protocol.lose(error)
        self._life.cancel()

    def _end(self) -> None:
        """No more answers will come: tell all who wait for one, or for a place."""
        failure = self._protocol.lose(ConnectionLostError(f"the connection to {self.address} is closed"))
        for call in (*self._queue, *self._in_flight.values()):
            call.failure = ConnectionLostError(str(failure))
            call.done.set()
        self._queue.clear()
        self._in_flight.clear()
        self._without_place.unpark_all()
        self._closed.set()
