"""One client's connection, and the one upstream that is made for it.

Each client has a connection of its own to the broker, so that order, pipelining, sessions, authentication and
back-pressure are what they are without a proxy. Two flows live in `serve`; what they share is the queue of requests
that wait for their answers. When one side ends, the other one does.

An answer that the proxy gives itself takes its place in that queue: it leaves when those before it have. The client's
filters are made when it is known who it is, which is when it asks for something else than to be let in.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ProtocolError, UnsupportedApiError
from ottla.kproto.messages.api_versions import ApiVersionsResponse
from ottla.kproto.schema import Response
from ottla.proxy import rewriting, versions
from ottla.proxy.admission import Admission
from ottla.proxy.errors import EndOfStreamError, NotLetInError, ProxyError, RefusedError
from ottla.proxy.filters.chain import NO_FILTERS, Chain
from ottla.proxy.filters.filter import Call, Client
from ottla.proxy.flow import PREFIX_BYTES, Flow, Next
from ottla.proxy.heads import (
    MIN_REQUEST_BYTES,
    MIN_RESPONSE_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    framed,
    has_answer,
)
from ottla.proxy.login import SASL_KEYS, UNKNOWN
from ottla.proxy.long_answers import LongFetch
from ottla.proxy.rewriting import WALKED_AT_ONCE_BYTES
from ottla.proxy.transport import send_all

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer
    from ottla.proxy.rewriting import Localize
    from ottla.proxy.shared import Shared
    from ottla.proxy.transport import Accepted, Transport

logger = logging.getLogger(__name__)

REQUEST_HEAD_BYTES: Final = REQUEST_HEAD.size - PREFIX_BYTES
MAX_IN_FLIGHT: Final = 1000
"""So many requests of a connection may wait for their answers; the next is received when one has come."""


class Pending:
    """A request that waits for its answer. `answer` is there if the proxy gives it."""

    __slots__ = ("answer", "call", "claim", "correlation_id", "key", "version")

    def __init__(self, key: ApiKey, version: int, correlation_id: int) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.answer: Sequence[Buffer] | None = None
        self.call: Call | None = None  # where a filter wants request or answer
        self.claim = UNKNOWN  # who the client is, if this SaslAuthenticate is answered well

    def __repr__(self) -> str:
        return f"{self.key.name} v{self.version} #{self.correlation_id}"


class Connection:
    """Serves one client. `serve` is its whole life and closes both sides."""

    def __init__(self, accepted: Accepted, shared: Shared, localize: Localize, *, peer: str, listener: str) -> None:
        self.client = accepted.transport
        self.admission = Admission(accepted.login, accepted.principal)
        self.shared = shared
        self.localize = localize
        self.peer = peer
        self.listener = listener
        self.client_id: str | None = None
        self.chain = Chain(NO_FILTERS, Client(peer, listener, accepted.principal), shared.metrics)
        self.is_in = False
        self.in_flight: deque[Pending] = deque()
        self.has_room = trio.lowlevel.ParkingLot()
        self.moved_at = trio.current_time()
        self._requests: Requests | None = None
        self._responses: Responses | None = None
        self._life = trio.CancelScope()

    def __repr__(self) -> str:
        return self.peer

    async def serve(self, upstream: Transport) -> None:
        """Forward until one side ends, or `stop`; raises only Cancelled."""
        self._requests = Requests(self, upstream)
        self._responses = Responses(self, upstream)
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._run, self._requests)
                    nursery.start_soon(self._run, self._responses)
                    if (login := self.admission.login) is not None:
                        nursery.start_soon(self._end_if_unknown, login.seconds)
        finally:
            upstream.close()

    def enter(self) -> None:
        """It is known who the client is: from now on its filters see what it asks for."""
        assert not self.is_in
        assert self._requests is not None
        assert self._responses is not None
        client = Client(self.peer, self.listener, self.admission.principal)
        self.chain = Chain(self.shared.filters, client, self.shared.metrics)
        self._requests.wanted = self.chain.requests | self.chain.responses
        self._responses.wanted = self.chain.responses
        self.is_in = True

    def refuse(self, reason: str) -> None:
        """Do not let the client in: the connection ends when what it has asked is answered."""
        self.shared.metrics.refused["login"] += 1
        logger.warning("closed the connection from %r: %s", self, reason, extra=self.keys(reason))
        self.stop()

    def stop(self) -> None:
        """Take no further request; the connection ends when those under way are answered."""
        if self._requests is None:
            self._life.cancel()
        else:
            self._requests.stop()

    def end_if_idle(self, idle_seconds: float) -> bool:
        """End the connection if nothing has moved on it for so long."""
        if trio.current_time() - self.moved_at < idle_seconds:
            return False
        self._life.cancel()
        return True

    def end_if_done(self) -> None:
        """End it, if it takes no requests any more and all are answered."""
        assert self._requests is not None
        if self._requests.is_stopped and not self.in_flight:
            self._life.cancel()

    async def answer(self, pending: Pending, response: Response, version: int) -> None:
        """Answer a request in the place of upstream, when those before it are answered."""
        assert self._responses is not None
        head = headers.build_response_header(pending.key, version, pending.correlation_id)
        parts = framed(head, *codec.build_parts(response, version))
        if self.in_flight or self._responses.is_busy:
            pending.answer = parts
            self.in_flight.append(pending)
        else:
            await send_all(self.client, parts)

    async def _end_if_unknown(self, seconds: float) -> None:
        """End the connection of a client that does not say in time who it is."""
        await trio.sleep(seconds)
        if not self.is_in and not self.admission.is_open:
            self.refuse(f"it has not authenticated within {seconds:g} s")
            self._life.cancel()

    async def _run(self, flow: Requests | Responses) -> None:
        try:
            await flow.run()
        except (RefusedError, ProtocolError) as error:
            self.shared.metrics.refused["frame"] += 1
            what = f"{flow.sender} sent {error}" if isinstance(error, RefusedError) else f"{flow.sender}: {error}"
            logger.warning("closed the connection from %r: %s", self, what, extra=self.keys(what))
        except NotLetInError as error:
            self.refuse(str(error))
            self._life.cancel()
        except ProxyError as error:
            logger.warning("closed the connection from %r: %s", self, error, extra=self.keys(str(error)))
        except (OSError, EndOfStreamError) as error:
            logger.debug("the connection from %r was lost: %s", self, error, extra=self.keys(str(error)))
        except Exception as error:
            # What a filter has made of a message, for one: it is nobody else's fault.
            logger.exception("closed the connection from %r, which failed", self, extra=self.keys(repr(error)))
        if flow is self._requests and flow.is_stopped:
            self.end_if_done()
        else:
            self._life.cancel()

    def keys(self, error: str = "") -> dict[str, object]:
        """What a log line about this connection can be found by."""
        return {"client": self.peer, "client_id": self.client_id, "listener": self.listener, "error": error}

    def flow_options(self) -> dict[str, Any]:
        """What both flows have in common."""
        shared = self.shared
        return {"chunks": shared.chunks, "max_frame_bytes": shared.max_frame_bytes}


class Requests(Flow):
    """From the client to upstream."""

    sender = "the client"

    def __init__(self, connection: Connection, upstream: Transport) -> None:
        budget = connection.shared.requests
        super().__init__(connection.client, upstream, budget=budget, moved=self._has_moved, **connection.flow_options())
        self._connection = connection
        self._metrics = connection.shared.metrics
        self._offer = connection.shared.offer
        self._admission = connection.admission
        self.wanted = frozenset[ApiKey]()

    def begin(self, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        if end - pos < REQUEST_HEAD.size:
            if size_bytes < MIN_REQUEST_BYTES:
                raise RefusedError(f"a request of {size_bytes} bytes, which has no room for its header")
            return Next.MORE
        _, key, version, correlation_id = REQUEST_HEAD.unpack_from(view, pos)
        in_flight = self._connection.in_flight
        if len(in_flight) >= MAX_IN_FLIGHT:
            return Next.SETTLE
        if key != ApiKey.API_VERSIONS and not self._offer.includes(key, version):
            raise RefusedError(f"a request of API {key} version {version}, which is not forwarded")
        if self._is_wanted(key, size_bytes):
            self._count(key, size_bytes)
            return Next.WHOLE
        if key == ApiKey.PRODUCE:
            answered = has_answer(view, pos + REQUEST_HEAD.size, end, version)
            if answered is None:
                if end - pos >= PREFIX_BYTES + size_bytes:
                    raise RefusedError("a Produce request that is cut off")
                return Next.MORE
            if not answered:
                self._count(key, size_bytes)
                return Next.THROUGH
        self._count(key, size_bytes)
        in_flight.append(Pending(ApiKey(key), version, correlation_id))
        return Next.THROUGH

    def _is_wanted(self, key: int, size_bytes: int) -> bool:
        """Whether a request has to be held whole. NotLetInError if it must not come now."""
        if self._admission.wants(key, size_bytes):
            return True
        if not self._connection.is_in:
            self._connection.enter()
        return key in self.wanted

    async def handle(self, frame: Buffer) -> None:
        """ApiVersions, by which a request of the proxy itself is known; who is there; and what filters want."""
        connection = self._connection
        try:
            header, body_start = headers.parse_request_header(frame)
        except UnsupportedApiError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            asked = Pending(ApiKey.API_VERSIONS, 0, error.correlation_id)
            await connection.answer(asked, versions.unsupported(), 0)
            return
        connection.client_id = header.client_id
        if header.client_id == connection.shared.own_client_id:
            raise connection.shared.found_loop()
        pending = Pending(ApiKey(header.api_key), header.api_version, header.correlation_id)
        if (pending.key in SASL_KEYS or not self._admission.is_open) and await self._is_about_login(
            pending, frame, body_start
        ):
            return
        parts: list[Buffer] | None = [frame]
        if pending.key in self.wanted:
            pending.call = Call(pending.key, pending.version, header.client_id, connection.chain.client)
            if pending.key in connection.chain.requests:
                parts = await self._filter(pending, pending.call, frame, body_start)
        if parts is not None:
            if pending.key is not ApiKey.PRODUCE or has_answer(frame, REQUEST_HEAD_BYTES, len(frame), pending.version):
                connection.in_flight.append(pending)
            await self.send(framed(*parts))

    async def _is_about_login(self, pending: Pending, frame: Buffer, body_start: int) -> bool:
        """Look at what a client says of who it is, or before that is known; True if it is dealt with."""
        admission = self._admission
        response = await admission.take(pending.key, pending.version, frame, body_start)
        if response is not None:
            await self._connection.answer(pending, response, pending.version)
        pending.claim = admission.claim
        if admission.login is not None and admission.login.failure:
            self._connection.refuse(admission.login.failure)
            return True
        return response is not None

    async def _filter(self, pending: Pending, call: Call, frame: Buffer, body_start: int) -> list[Buffer] | None:
        """What is forwarded of a request that filters want; None if they have answered it."""
        request = codec.parse_request(pending.key, pending.version, frame, body_start)
        outcome = await self._connection.chain.request(request, call)
        if isinstance(outcome, Response):
            await self._connection.answer(pending, outcome, pending.version)
            return None
        if outcome is None:
            return [frame]
        return [memoryview(frame)[:body_start], *codec.build_parts(outcome, pending.version)]

    async def settle(self) -> None:
        """Wait until there is room for another request that waits for its answer."""
        while len(self._connection.in_flight) >= MAX_IN_FLIGHT:
            await self._connection.has_room.park()

    def _count(self, key: int, size_bytes: int) -> None:
        self._metrics.requests[key] += 1
        self._metrics.request_bytes[key] += size_bytes

    def _has_moved(self, count: int) -> None:
        self._connection.moved_at = trio.current_time()


class Responses(Flow):
    """From upstream to the client."""

    sender = "upstream"

    def __init__(self, connection: Connection, upstream: Transport) -> None:
        budget = connection.shared.responses
        super().__init__(upstream, connection.client, budget=budget, moved=self._has_moved, **connection.flow_options())
        self._connection = connection
        self._metrics = connection.shared.metrics
        self._in_flight = connection.in_flight
        self._answered: Pending | None = None
        self.wanted = frozenset[ApiKey]()
        self.is_busy = False

    def begin(self, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        self.is_busy = True
        if end - pos < RESPONSE_HEAD.size:
            if size_bytes < MIN_RESPONSE_BYTES:
                raise RefusedError(f"an answer of {size_bytes} bytes, which has no room for its header")
            return Next.MORE
        if not self._in_flight:
            raise RefusedError("an answer that nobody asked for")
        pending = self._in_flight[0]
        if pending.answer is not None:
            return Next.SETTLE
        _, correlation_id = RESPONSE_HEAD.unpack_from(view, pos)
        if correlation_id != pending.correlation_id:
            raise RefusedError(f"an answer to request {correlation_id}, not {pending.correlation_id}")
        what = self._what(pending, view, pos, end, size_bytes)
        if what is not Next.MORE:
            self._in_flight.popleft()
            self._connection.has_room.unpark()
            self._metrics.response_bytes[pending.key] += size_bytes
            self._answered = pending
        return what

    def _what(self, pending: Pending, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        key, version = pending.key, pending.version
        if key in self.wanted or key in SASL_KEYS:
            return Next.WHOLE
        if key is not ApiKey.API_VERSIONS and not rewriting.names_brokers(key, version):
            return Next.THROUGH
        if key is ApiKey.FETCH and size_bytes > WALKED_AT_ONCE_BYTES:
            self.long = LongFetch()
            return Next.THROUGH
        start, stop = pos + PREFIX_BYTES, pos + PREFIX_BYTES + size_bytes
        if stop <= end:
            frame = view[start:stop]
            _, body_start = headers.parse_response_header(key, version, frame)
            if rewriting.may_pass(key, version, frame, body_start):
                return Next.THROUGH
        return Next.WHOLE

    async def handle(self, frame: Buffer) -> None:
        pending = self._answered
        assert pending is not None
        key, version = pending.key, pending.version
        _, body_start = headers.parse_response_header(key, version, frame)
        parts: list[Buffer] | None = None
        if key is ApiKey.API_VERSIONS:
            parts = self._versions(version, frame, body_start)
        elif key is ApiKey.SASL_AUTHENTICATE:
            answer = codec.parse_response(key, version, frame, body_start)
            self._connection.admission.let_in(pending.claim, answer)
        elif key in self.wanted:
            parts = await self._filter(pending, frame, body_start)
        elif rewriting.names_brokers(key, version):
            parts = await rewriting.rewrite(key, version, frame, body_start, self._connection.localize)
        await self.send(framed(*([frame] if parts is None else parts)))

    async def _filter(self, pending: Pending, frame: Buffer, body_start: int) -> list[Buffer] | None:
        """What becomes of an answer that filters want; None if it stays as it is."""
        assert pending.call is not None
        response = codec.parse_response(pending.key, pending.version, frame, body_start)
        outcome = await self._connection.chain.response(response, pending.call)
        if outcome is None and not rewriting.names_brokers(pending.key, pending.version):
            return None
        outcome = response if outcome is None else outcome
        rewriting.rewrite_message(outcome, self._connection.localize)
        return [memoryview(frame)[:body_start], *codec.build_parts(outcome, pending.version)]

    async def settle(self) -> None:
        """Send the answers of the proxy whose turn it is, and note when nothing is under way any more."""
        while self._in_flight and (ready := self._in_flight[0].answer) is not None and self.is_between_frames:
            self._in_flight.popleft()
            self._connection.has_room.unpark()
            await self.send(ready)
        self.is_busy = not self.is_between_frames
        if not self.is_busy:
            self._connection.end_if_done()

    def _versions(self, version: int, frame: Buffer, body_start: int) -> list[Buffer]:
        if version and versions.is_refusal(frame, body_start):
            version = 0
        response, _ = codec.parse_prefix(ApiVersionsResponse, version, frame, body_start)
        self._connection.shared.offer.limit(response)
        return [memoryview(frame)[:body_start], *codec.build_parts(response, version)]

    def _has_moved(self, count: int) -> None:
        self._connection.moved_at = trio.current_time()
