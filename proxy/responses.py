"""The flow from upstream: which answers are parsed, changed, and sent on to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.api_versions import ApiVersionsResponse
from ottla.proxy import rewriting, versions
from ottla.proxy.errors import RefusedError
from ottla.proxy.flow import PREFIX_BYTES, Flow, Next
from ottla.proxy.heads import MIN_RESPONSE_BYTES, RESPONSE_HEAD, framed
from ottla.proxy.login import SASL_KEYS
from ottla.proxy.long_answers import LongFetch
from ottla.proxy.rewriting import MAX_WALKED_BYTES

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer
    from ottla.proxy.exchange import Exchange, Pending


class Responses(Flow):
    """From upstream to the client."""

    sender = "upstream"

    def __init__(self, exchange: Exchange) -> None:
        budget = exchange.shared.responses
        super().__init__(exchange.upstream, exchange.client, budget=budget, **exchange.flow_options())
        self._exchange = exchange
        self._metrics = exchange.shared.metrics
        self._in_flight = exchange.in_flight
        self._answered: Pending | None = None

    def begin(self, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        self._exchange.answering()
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
            self._answered = self._exchange.taken()
            self._metrics.response_bytes[pending.key] += size_bytes
        return what

    def _what(self, pending: Pending, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        key, version = pending.key, pending.version
        if pending.reply is not None or key in self._exchange.chain.responses or key in SASL_KEYS:
            return Next.WHOLE
        if key is not ApiKey.API_VERSIONS and not rewriting.names_brokers(key, version):
            return Next.THROUGH
        if key is ApiKey.FETCH and size_bytes > MAX_WALKED_BYTES:
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
        if pending.reply is not None:
            with self._exchange.holding(self._held):
                await pending.reply.give(frame)
            return
        key, version = pending.key, pending.version
        _, body_start = headers.parse_response_header(key, version, frame)
        parts: list[Buffer] | None = None
        if key is ApiKey.API_VERSIONS:
            parts = self._versions(version, frame, body_start)
        elif key in SASL_KEYS:
            self._exchange.admission.answered(codec.parse_response(key, version, frame, body_start))
        elif key in self._exchange.chain.responses:
            parts = await self._filter(pending, frame, body_start)
        elif rewriting.names_brokers(key, version):
            parts = await rewriting.rewrite(key, version, frame, body_start, self._exchange.localize)
        await self.send(framed(*([frame] if parts is None else parts)))

    async def _filter(self, pending: Pending, frame: Buffer, body_start: int) -> list[Buffer] | None:
        """An answer after the filters that want it; None if it is unchanged."""
        assert pending.call is not None
        response = codec.parse_response(pending.key, pending.version, frame, body_start)
        outcome = await self._exchange.chain.response(response, pending.call)
        if outcome is None and not rewriting.names_brokers(pending.key, pending.version):
            return None
        outcome = response if outcome is None else outcome
        rewriting.rewrite_message(outcome, self._exchange.localize)
        return [memoryview(frame)[:body_start], *codec.build_parts(outcome, pending.version)]

    async def settle(self) -> None:
        """Send the proxy's own answers that are next in the queue, and note when nothing is under way any more."""
        while self._in_flight and (ready := self._in_flight[0].answer) is not None and self.is_between_frames:
            self._exchange.taken()
            await self.send(ready)
        if self.is_between_frames:
            self._exchange.answered()

    def _versions(self, version: int, frame: Buffer, body_start: int) -> list[Buffer]:
        if version and versions.is_refusal(frame, body_start):
            version = 0
        response, _ = codec.parse_prefix(ApiVersionsResponse, version, frame, body_start)
        self._exchange.learn_served({it.api_key: it.max_version for it in response.api_keys})
        self._exchange.shared.offer.limit(response)
        return [memoryview(frame)[:body_start], *codec.build_parts(response, version)]
