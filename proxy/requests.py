"""The flow from a client: which requests are parsed, and which are sent on to upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import UnsupportedApiError
from ottla.kproto.messages.data.fetch import FetchRequest
from ottla.kproto.schema import Request, Response
from ottla.proxy import versions
from ottla.proxy.cached_fetch import CachedFetch
from ottla.proxy.errors import RefusedError
from ottla.proxy.exchange import MAX_IN_FLIGHT, Pending
from ottla.proxy.flow import PREFIX_BYTES, Flow, Next
from ottla.proxy.heads import MIN_REQUEST_BYTES, REQUEST_HEAD, framed, has_answer
from ottla.proxy.login import SASL_KEYS

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer
    from ottla.proxy.exchange import Exchange

REQUEST_HEAD_BYTES: Final = REQUEST_HEAD.size - PREFIX_BYTES


class Requests(Flow):
    """From the client to upstream."""

    sender = "the client"

    def __init__(self, exchange: Exchange) -> None:
        budget = exchange.shared.requests
        super().__init__(exchange.client, exchange.upstream, budget=budget, **exchange.flow_options())
        self._exchange = exchange
        self._metrics = exchange.shared.metrics
        self._offer = exchange.shared.offer
        self._admission = exchange.admission
        self._cached = CachedFetch.of(exchange)

    def begin(self, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        if end - pos < REQUEST_HEAD.size:
            if size_bytes < MIN_REQUEST_BYTES:
                raise RefusedError(f"a request of {size_bytes} bytes, which has no room for its header")
            return Next.MORE
        _, key, version, correlation_id = REQUEST_HEAD.unpack_from(view, pos)
        in_flight = self._exchange.in_flight
        if len(in_flight) >= MAX_IN_FLIGHT or self._admission.is_asked:
            return Next.SETTLE
        if key != ApiKey.API_VERSIONS and not self._offer.includes(key, version):
            raise RefusedError(f"a request of API {key} version {version}, which is not forwarded")
        if self._is_wanted(key, version, size_bytes):
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

    def _is_wanted(self, key: int, version: int, size_bytes: int) -> bool:
        """Whether a request must be held whole. Raises NotLetInError if it must not come now."""
        if self._admission.wants(key, size_bytes):
            return True
        if not self._exchange.is_in:
            self._exchange.enter()
        return self._is_of_filters(key) or (key == ApiKey.FETCH and self._is_of_cache(version))

    def _is_of_filters(self, key: int) -> bool:
        chain = self._exchange.chain
        return key in chain.requests or key in chain.responses

    def _is_of_cache(self, version: int) -> bool:
        return self._cached is not None and self._cached.takes(version) and self._admission.has_session

    async def handle(self, frame: Buffer) -> None:
        """Handle a whole request: of authentication, for a filter or the cache, or ApiVersions, which shows a loop."""
        exchange = self._exchange
        try:
            header, body_start = headers.parse_request_header(frame)
        except UnsupportedApiError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            asked = Pending(ApiKey.API_VERSIONS, 0, error.correlation_id)
            await exchange.answer(asked, versions.unsupported(), 0)
            return
        exchange.name_client(header.client_id)
        if header.client_id == exchange.shared.own_client_id:
            raise exchange.shared.found_loop()
        pending = Pending(ApiKey(header.api_key), header.api_version, header.correlation_id)
        if (pending.key in SASL_KEYS or not self._admission.is_open) and await self._is_about_login(
            pending, frame, body_start
        ):
            return
        # Before the client has authenticated, requests are held that no filter may want.
        request: Request | None = None
        if self._is_of_filters(pending.key):
            call = pending.begin_call(header.client_id, exchange.chain.client)
            if pending.key in exchange.chain.requests:
                request = codec.parse_request(pending.key, pending.version, frame, body_start)
                outcome = await exchange.chain.request(request, call)
                if isinstance(outcome, Response):
                    await exchange.answer(pending, outcome, pending.version)
                    return
                request = outcome
        if self._cached is not None and pending.key is ApiKey.FETCH and self._is_of_cache(pending.version):
            fetch = request or codec.parse_request(pending.key, pending.version, frame, body_start)
            assert isinstance(fetch, FetchRequest)
            request = await self._cached.serve(fetch, pending)
            if request is None:
                return
        if pending.key is not ApiKey.PRODUCE or has_answer(frame, REQUEST_HEAD_BYTES, len(frame), pending.version):
            exchange.in_flight.append(pending)
        if request is None:
            await self.send(framed(frame))
        else:
            body = codec.build_parts(request, pending.version)
            await self.send(framed(memoryview(frame)[:body_start], *body))

    async def _is_about_login(self, pending: Pending, frame: Buffer, body_start: int) -> bool:
        """Handle a request of the authentication, or one that precedes it; True if nothing is left to do."""
        admission = self._admission
        if admission.comes_alone(pending.key):
            await self._exchange.quiet()
        response = await admission.take(pending.key, pending.version, frame, body_start)
        if response is not None:
            await self._exchange.answer(pending, response, pending.version)
        if admission.failure:
            self._exchange.refuse(admission.failure)
            self.stop()
            return True
        return response is not None

    async def settle(self) -> None:
        """Wait until there is room for another unanswered request, and until the client's principal is known."""
        while len(self._exchange.in_flight) >= MAX_IN_FLIGHT:
            await self._exchange.has_room.park()
        if self._admission.is_asked:
            await self._exchange.quiet()

    def _count(self, key: int, size_bytes: int) -> None:
        self._metrics.requests[key] += 1
        self._metrics.request_bytes[key] += size_bytes
