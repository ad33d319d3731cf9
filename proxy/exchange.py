"""The state that both flows of a client's connection share: its principal, filters, and unanswered requests.

An answer that the proxy gives itself takes its place in the queue of requests: it leaves after those before it. The
client's filters are made when it is known who the client is: when it first asks for anything other than to log in, and
everything that it has sent to log in is answered (`admission.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.kproto import codec, headers
from ottla.kproto.schema import Response
from ottla.proxy.admission import Admission
from ottla.proxy.filters.chain import NO_FILTERS, Chain
from ottla.proxy.filters.filter import Call, Client
from ottla.proxy.heads import framed
from ottla.proxy.transport import send_all

if TYPE_CHECKING:
    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.schema import Request
    from ottla.kproto.types import Buffer
    from ottla.proxy.memory import Held
    from ottla.proxy.rewriting import Addresses
    from ottla.proxy.shared import Shared
    from ottla.proxy.transport import Accepted, Transport

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 1000
"""How many requests of a connection may wait for their answers; the next one is received when one has come."""


class Pending:
    """A request that waits for its answer. `answer` is set if the proxy gives it, `reply` if the proxy has asked."""

    __slots__ = ("answer", "call", "correlation_id", "key", "reply", "version")

    def __init__(self, key: ApiKey, version: int, correlation_id: int) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.answer: Sequence[Buffer] | None = None
        self.reply: Reply | None = None
        self.call: Call | None = None  # if a filter wants the request or its answer

    def __repr__(self) -> str:
        return f"{self.key.name} v{self.version} #{self.correlation_id}"

    def begin_call(self, client_id: str | None, client: Client) -> Call:
        """Make the `Call` with which filters get this request or its answer."""
        self.call = Call(self.key, self.version, client_id, client)
        return self.call


class Reply:
    """Hands an answer to the part of the proxy that has asked: one side gives the frame, and waits until it has been
    used.
    """

    def __init__(self) -> None:
        self._frame: Buffer = b""
        self._is_here = trio.Event()
        self._is_used = trio.Event()

    async def give(self, frame: Buffer) -> None:
        """Hand the frame over. Its memory may be reused afterwards."""
        self._frame = frame
        self._is_here.set()
        await self._is_used.wait()

    async def take(self) -> Buffer:
        """Wait for the frame; `used` must be called afterwards."""
        await self._is_here.wait()
        return self._frame

    def used(self) -> None:
        """The frame is not needed any more."""
        self._frame = b""
        self._is_used.set()


class Exchange:
    """The state of one connection, between its flow of requests and its flow of answers."""

    def __init__(
        self, accepted: Accepted, upstream: Transport, shared: Shared, addresses: Addresses, *, peer: str, listener: str
    ) -> None:
        self.client = accepted.transport
        self.upstream = upstream
        self.admission = Admission(accepted.login, accepted.principal)
        self.shared = shared
        self.localize = addresses.localize
        self.peer = peer
        self.listener = listener
        self._client_id: str | None = None
        self.chain = Chain(NO_FILTERS, Client(peer, listener, accepted.principal), shared.metrics)
        self.is_in = False
        self.in_flight: deque[Pending] = deque()
        self.has_room = trio.lowlevel.ParkingLot()
        #: The highest versions that upstream serves, as it has answered on this connection, by API key.
        self.served: dict[int, int] = {}
        self._takes_requests = True
        self.life = trio.CancelScope()
        #: The answer that has been given to `ask`, as far as it takes memory.
        self.held: Held | None = None
        self._is_answering = False
        self._quiet = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return self.peer

    def enter(self) -> None:
        """The client's principal is known; from now on its filters see its requests."""
        assert not self.is_in
        client = Client(self.peer, self.listener, self.admission.enter())
        self.chain = Chain(self.shared.filters, client, self.shared.metrics)
        self.is_in = True

    def name_client(self, client_id: str | None) -> None:
        """Remember the client id of the newest request."""
        self._client_id = client_id

    def learn_served(self, versions: dict[int, int]) -> None:
        """Remember the highest versions that upstream serves, by API key."""
        self.served = versions

    def end_requests(self) -> None:
        """Accept no more requests: the connection ends once everything under way has been answered."""
        self._takes_requests = False
        self.end_if_done()

    @contextmanager
    def holding(self, held: Held | None) -> Iterator[None]:
        """`held` is the answer that is given to `ask` for the length of a block."""
        self.held = held
        try:
            yield
        finally:
            self.held = None

    def refuse(self, reason: str) -> None:
        """Log that the client is refused; the caller ends the connection."""
        self.shared.metrics.refused["login"] += 1
        logger.warning("closed the connection from %r: %s", self, reason, extra=self.keys(reason))

    def keys(self, error: str = "") -> dict[str, object]:
        """The keys of log lines about this connection."""
        return {"client": self.peer, "client_id": self._client_id, "listener": self.listener, "error": error}

    def flow_options(self) -> dict[str, Any]:
        """The options that both flows have in common."""
        shared = self.shared
        return {"chunks": shared.chunks, "max_frame_bytes": shared.max_frame_bytes}

    # Answers

    def answering(self) -> None:
        """The first bytes of an answer of upstream have arrived."""
        self._is_answering = True

    def taken(self) -> Pending:
        """Take the next request out of the queue."""
        pending = self.in_flight.popleft()
        if self.has_room:
            self.has_room.unpark()
        return pending

    def answered(self) -> None:
        """All that has arrived of upstream's answers has been sent on."""
        self._is_answering = False
        if not self.in_flight:
            if self._quiet:
                self._quiet.unpark_all()
            self.end_if_done()

    def end_if_done(self) -> None:
        """End the connection if it accepts no more requests and all are answered."""
        if not self._takes_requests and not self.in_flight:
            self.life.cancel()

    async def quiet(self) -> None:
        """Wait until all of the client's requests are answered."""
        while self.in_flight or self._is_answering:
            await self._quiet.park()

    async def answer(self, pending: Pending, response: Response, version: int) -> None:
        """Answer a request in place of upstream, once those before it are answered."""
        head = headers.build_response_header(pending.key, version, pending.correlation_id)
        parts = framed(head, *codec.build_parts(response, version))
        if self.in_flight or self._is_answering:
            pending.answer = parts
            self.in_flight.append(pending)
        else:
            await send_all(self.client, parts)

    @asynccontextmanager
    async def ask(self, request: Request, version: int) -> AsyncIterator[Any]:
        """Ask upstream on this connection, as its client; the answer is there for the length of the block.

        Only when it is `quiet`, and from the flow of requests. Until the end of the block nothing of upstream goes on
        to the client, so that the block may write to it; it says of `held` when something has moved. Raises
        DecodeError for what is no answer.
        """
        pending = Pending(request.API_KEY, version, 0)
        reply = pending.reply = Reply()
        self.in_flight.append(pending)
        head = headers.build_request_header(request.API_KEY, version, 0, self._client_id)
        await send_all(self.upstream, framed(head, *codec.build_parts(request, version)))
        try:
            frame = await reply.take()
            _, body_start = headers.parse_response_header(request.API_KEY, version, frame)
            yield codec.parse_response(request.API_KEY, version, frame, body_start)
        finally:
            reply.used()
