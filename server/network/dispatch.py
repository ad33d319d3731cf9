"""From a frame to its handler and back to the bytes of the response.

Whatever a handler raises that it did not mean to is logged in full and answered as UNKNOWN_SERVER_ERROR in the API's
own shape, as Kafka's `getErrorResponse` does; the connection stays usable.

What Kafka answers by closing the connection closes it here: an unknown API key, a version that is not served (but for
ApiVersions, which answers UNSUPPORTED_VERSION so that a newer client can step down), a body that does not decode.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, ErrorCode, UnsupportedApiError
from ottla.kproto.hot.recurring import RECURRING_FROM, RecurringProduce, recurring_of
from ottla.kproto.messages.cluster.api_versions import ApiVersion, ApiVersionsResponse
from ottla.runtime import remote_time
from ottla.runtime.errors import CloseConnectionError
from ottla.server.apis import authorization
from ottla.server.apis.context import RequestConnection, RequestContext
from ottla.server.apis.pending import Pending
from ottla.server.network import large_requests
from ottla.server.network.large_requests import (
    LONE_BYTES,
    PARSED_AT_ONCE_BYTES,
    UNCOUNTED_BYTES,
    Charge,
)
from ottla.server.quotas.clients import ClientQuotas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.codec import Part
    from ottla.kproto.schema import Response
    from ottla.server.apis.context import RequestFrame
    from ottla.server.apis.pending import Answer
    from ottla.server.apis.served_api import ServedApi
    from ottla.server.apis.table import ApiTable
    from ottla.server.broker import Broker

# A frame's length, then the response header: the correlation id, and in version 1 an empty set of tagged fields.
_pack_prefix_v0 = Struct(">ii").pack
_pack_prefix_v1 = Struct(">iiB").pack
_PRODUCE: Final = ApiKey.PRODUCE
# A body up to this size is copied after its header: sending two pieces costs more.
_MAX_JOINED_BYTES: Final = 16 * 1024
# So many requests that recur are remembered, of all connections together; each takes about a kilobyte.
_MAX_RECURRING: Final = 1024


class Dispatcher:
    """Serves every connection's requests from one table."""

    __slots__ = ("_apis", "_broker", "_produce", "_quotas", "_recurring")

    def __init__(self, apis: ApiTable, broker: Broker, quotas: ClientQuotas | None = None) -> None:
        self._apis = apis
        self._broker = broker
        self._quotas = quotas or ClientQuotas()
        #: By what recurs of them; and their API.
        self._recurring: dict[bytes, RecurringProduce] = {}
        self._produce: ServedApi

    def find_api(self, api_key: int, api_version: int) -> ServedApi:
        return self._apis.find(api_key, api_version)

    def accept(self, frame: RequestFrame, connection: RequestConnection) -> RequestContext:
        """Read a frame's header, and all of a request that recurs. Raises CloseConnectionError, and then has taken
        nothing.
        """
        if connection.recurring_end:
            recurring = self._recurring.get(bytes(frame.body[RECURRING_FROM : connection.recurring_end]))
            parsed = None if recurring is None else recurring.parse(frame.body)
            if recurring is not None and parsed is not None:
                header, request = parsed
                return RequestContext(
                    self._produce,
                    header,
                    recurring.body_start,
                    frame,
                    connection,
                    self._broker,
                    request,  # type: ignore[arg-type] # the light twin of a request
                )
        try:
            header, body_start = headers.parse_request_header(frame.body)
        except UnsupportedApiError as error:
            self._apis.find(error.api_key, error.api_version)  # raises unless it is ApiVersions
            header = headers.RequestHeader(
                api_key=error.api_key, api_version=error.api_version, correlation_id=error.correlation_id
            )
            body_start = len(frame.body)
        except DecodeError as error:
            raise CloseConnectionError(f"the header of a request cannot be decoded: {error}") from None
        api = self._apis.find(header.api_key, header.api_version)
        return RequestContext(api, header, body_start, frame, connection, self._broker)

    def begin(self, context: RequestContext) -> bool:
        """Parse a request and call its handler; False if a task has to go on with `dispatch`. Touches no task."""
        api, version = context.api, context.header.api_version
        size_bytes = context.measurement.request_bytes
        if size_bytes > LONE_BYTES:
            return False
        if context.request is None:
            if version not in api.prepared_versions:
                return False
            if size_bytes <= PARSED_AT_ONCE_BYTES:
                context.parse()
            elif not context.parse_lone():
                return False
            if api.key is _PRODUCE:
                self._note_recurring(context)
        context.begin(self._handle)
        answer = context.response
        if not isinstance(answer, Pending):
            return True
        context.measurement.handled()
        return answer.is_dispatched

    def _note_recurring(self, context: RequestContext) -> None:
        """The next requests may differ from this one in their records alone."""
        assert context.request is not None
        found = recurring_of(context.frame, context.header, context.body_start, context.request)
        if found is None:
            return
        recurring, end = found
        if len(self._recurring) >= _MAX_RECURRING:
            self._recurring.clear()
        self._recurring[bytes(context.frame[RECURRING_FROM:end])] = recurring
        self._produce = context.api
        context.connection.recurs(end)

    async def dispatch(self, context: RequestContext, refusal: ErrorCode = ErrorCode.NONE) -> None:
        """Do all that must keep its place among the connection's requests: begin it, unless it was begun, and go on
        while its handler needs a task. With a `refusal` the handler is not called. Raises CloseConnectionError.
        """
        if context.is_dispatched:
            return
        if not context.is_begun:
            context.measurement.begun()
            if not refusal and self.begin(context):
                return
        remote_time.begin_request()
        if context.is_begun:
            context.measurement.waited()  # it may have, in no task
        else:
            await self._begin_in_task(context, refusal)
        await context.dispatch()
        context.measurement.handled()
        context.measurement.waited_meanwhile(remote_time.waited_seconds())

    async def _begin_in_task(self, context: RequestContext, refusal: ErrorCode) -> None:
        """`begin` for the first request of a version, for a large one, and for one that is refused."""
        api, version = context.api, context.header.api_version
        if version not in api.prepared_versions:
            if not api.min_version <= version <= api.max_version:
                context.respond(None)  # `answer` says which versions there are
                return
            await api.prepare(version)
        if context.measurement.request_bytes <= PARSED_AT_ONCE_BYTES:
            context.parse()
            if refusal:
                context.refuse(refusal)
        else:
            await large_requests.parse(context, self._broker.budget)
            refused = await large_requests.refusal(context, refusal)
            if refused is not None:
                context.respond(refused)
        context.begin(self._handle)

    def _handle(self, context: RequestContext) -> Answer:
        if context.access is None:
            answer: Answer = context.api.handler(context.request, context)
            return answer
        return authorization.handle(context, context.access)

    def answer(self, context: RequestContext) -> list[Part] | None:
        """The response's bytes as views to send, None for no response. Raises CloseConnectionError."""
        version = context.header.api_version
        if context.request is None:
            return _framed(codec.build_parts(self._unsupported_api_versions(), 0), context, 0)[0]
        parts, size_bytes = None, 0
        try:
            response: Any = context.finish()
            if response is not None:
                parts, size_bytes = _framed(context.api.build_parts(response, version), context, version)
            if self._quotas.is_active or context.when_kept is not None:
                response, parts, size_bytes = self._kept_or_throttled(context, response, parts, size_bytes)
        except Exception as error:  # noqa: BLE001 - it is logged
            response = context.fail(error)
            parts, size_bytes = _encode(response, context)
        context.measurement.answered(size_bytes)
        if response is not None and context.api.metrics is not None:
            context.api.metrics.count_errors(response)
        return parts if size_bytes <= UNCOUNTED_BYTES else self._charged(context, parts, size_bytes)

    async def answer_in_steps(self, context: RequestContext) -> list[Part] | None:
        """`answer` of many elements. The response is left to the context alone, to be freed in steps too."""
        version = context.header.api_version
        parts, size_bytes = None, 0
        try:
            response = context.finish()
            if response is not None:
                parts, size_bytes = _framed(await large_requests.build(response, context), context, version)
            parts, size_bytes = self._kept_or_throttled(context, response, parts, size_bytes)[1:]
        except Exception as error:  # noqa: BLE001 - it is logged
            response = context.fail(error)
            parts, size_bytes = _encode(response, context)
        context.measurement.answered(size_bytes)
        del response  # else all of it would be freed at once, at the end
        await large_requests.forget(context)
        context.work.leave_queue()
        return self._charged(context, parts, size_bytes)

    def _kept_or_throttled(
        self, context: RequestContext, response: Response | None, parts: list[Part] | None, size_bytes: int
    ) -> tuple[Response | None, list[Part] | None, int]:
        if self._quotas.is_active:
            throttled = self._quotas.charge(context, response, size_bytes)
            if throttled is not None:
                return response, *_encode(throttled, context)
        if context.when_kept is not None:
            context.when_kept()
        return response, parts, size_bytes

    def _charged(self, context: RequestContext, parts: list[Part] | None, size_bytes: int) -> list[Part] | None:
        if size_bytes > UNCOUNTED_BYTES and context.api.key is not ApiKey.FETCH:
            context.release_after_send(Charge(self._broker.replica_manager.response_budget, size_bytes))
        return parts

    def _unsupported_api_versions(self) -> ApiVersionsResponse:
        """KIP-511: version 0 of the answer, from which a newer client learns the version to ask with."""
        api = self._apis.find(ApiKey.API_VERSIONS, 0)
        own = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _encode(response: Response, context: RequestContext) -> tuple[list[Part], int]:
    version = context.header.api_version
    return _framed(context.api.build_parts(response, version), context, version)


def _framed(parts: Sequence[Part], context: RequestContext, version: int) -> tuple[list[Part], int]:
    """Put the frame's length and the response header in front of a body's pieces; also the body's size."""
    is_whole = len(parts) == 1
    size_bytes = len(parts[0]) if is_whole else sum(map(len, parts))
    if version < context.api.tagged_from_version:
        prefix = _pack_prefix_v0(4 + size_bytes, context.header.correlation_id)
    else:
        prefix = _pack_prefix_v1(5 + size_bytes, context.header.correlation_id, 0)
    if is_whole and size_bytes <= _MAX_JOINED_BYTES:
        return [prefix + parts[0]], size_bytes  # type: ignore[operator] # nothing as short is in a file
    return [prefix, *parts], size_bytes
