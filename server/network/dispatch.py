"""From a frame to its handler and back to the bytes of the response.

Whatever a handler raises that it did not mean to is logged in full and answered as UNKNOWN_SERVER_ERROR in the API's
own shape, as Kafka's `getErrorResponse` does; the connection stays usable.

What Kafka answers by closing the connection closes it here: an unknown API key, a version that is not served (but for
ApiVersions, which answers UNSUPPORTED_VERSION so that a newer client can step down), a body that does not decode.
"""

from __future__ import annotations

import logging
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
from ottla.server.apis.errors import error_response
from ottla.server.apis.pending import InStages, Pending
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

logger = logging.getLogger(__name__)


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
                context = RequestContext(
                    self._produce, parsed[0], recurring.body_start, frame, connection, self._broker
                )
                if context.access is None:  # else what the client may not do is taken out of what is parsed
                    context.request = parsed[1]  # type: ignore[assignment] # the light twin of a request
                return context
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
                self._parse(context)
            else:
                context.request = api.parse_lone(version, context.frame, context.body_start)
                if context.request is None:
                    return False
            if api.key is _PRODUCE:
                self._note_recurring(context)
        self._call_handler(context)
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
        context.connection.recurring_end = end

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
        answer = context.response
        if isinstance(answer, Pending) and not answer.is_dispatched:
            try:
                context.response = await answer.dispatch()
            except Exception as error:  # noqa: BLE001 - it is logged
                context.response = _failed(context, error)
        context.measurement.handled()
        context.measurement.waited_meanwhile(remote_time.waited_seconds())

    async def _begin_in_task(self, context: RequestContext, refusal: ErrorCode) -> None:
        """`begin` for the first request of a version, for a large one, and for one that is refused."""
        api, version = context.api, context.header.api_version
        if version not in api.prepared_versions:
            if not api.min_version <= version <= api.max_version:
                context.is_begun = True
                return
            await api.prepare(version)
        if context.measurement.request_bytes <= PARSED_AT_ONCE_BYTES:
            self._parse(context)
            context.response = _refused(context, refusal) if refusal else None
        else:
            await large_requests.parse(context, self._broker.budget)
            context.response = await large_requests.refusal(context, refusal)
        self._call_handler(context)

    def _parse(self, context: RequestContext) -> None:
        api, version = context.api, context.header.api_version
        try:
            context.request = api.parse(version, context.frame, context.body_start)
        except DecodeError as error:
            raise CloseConnectionError(f"a {api.key.name} v{version} request cannot be decoded: {error}") from None

    def _call_handler(self, context: RequestContext) -> None:
        """Leaves the answer in the context."""
        context.is_begun = True
        if context.api.lets_frame_go:
            context.let_go_of_frame()
        if context.response is not None:
            return
        try:
            context.response = self._handle(context)
        except Exception as error:  # noqa: BLE001 - it is logged
            context.response = _failed(context, error)

    def _handle(self, context: RequestContext) -> Answer:
        if context.access is None:
            answer: Answer = context.api.handler(context.request, context)
            return answer
        return authorization.handle(context, context.access)

    async def wait(self, context: RequestContext) -> None:
        """Wait until a request that is dispatched has its response. Raises CloseConnectionError."""
        if context.is_ready:
            return
        assert isinstance(context.response, Pending)
        try:
            await context.response.wait()
        except Exception as error:  # noqa: BLE001 - it is logged
            context.response = _failed(context, error)

    def is_finished(self, context: RequestContext) -> bool:
        """Whether a request was begun and has its response, which `answer` may encode; goes on with it if it has waited
        in no task, and that is over. Raises CloseConnectionError.
        """
        answer = context.response
        if isinstance(answer, Pending):
            if answer.is_dispatched:
                if not answer.is_ready:
                    return False
            elif not isinstance(answer, InStages) or not answer.is_over or not self._step(context, answer):
                return False
        elif not context.is_begun:
            return False
        return context.counted is None or not context.is_large

    def _step(self, context: RequestContext, waited: InStages) -> bool:
        """Go on after a wait; whether that was the last one."""
        context.measurement.waited()
        try:
            context.response = waited.step()
        except Exception as error:  # noqa: BLE001 - it is logged
            context.response = _failed(context, error)
        context.measurement.handled()
        return context.response is not waited

    def answer(self, context: RequestContext) -> list[Part] | None:
        """The response's bytes as views to send, None for no response. Raises CloseConnectionError."""
        version = context.header.api_version
        if context.request is None:
            return _framed(codec.build_parts(self._unsupported_api_versions(), 0), context, 0)
        try:
            response: Any = context.response
            if isinstance(response, Pending):
                response = context.response = response.response()
                context.measurement.waited()
            parts = None
            if response is not None:
                parts = _framed(context.api.build_parts(response, version), context, version)
            if self._quotas.is_active or context.when_kept is not None:
                response, parts = self._kept_or_throttled(context, response, parts)
        except Exception as error:  # noqa: BLE001 - it is logged
            response = _failed(context, error)
            parts = _encode(response, context, version)
        context.measurement.answered()
        if response is not None and context.api.metrics is not None:
            context.api.metrics.count_errors(response)
        return parts if context.measurement.response_bytes <= UNCOUNTED_BYTES else self._charged(context, parts)

    async def answer_in_steps(self, context: RequestContext) -> list[Part] | None:
        """`answer` of many elements. The response is left to the context alone, to be freed in steps too."""
        version = context.header.api_version
        parts = None
        try:
            response = context.response
            if isinstance(response, Pending):
                response = context.response = response.response()
                context.measurement.waited()
            if response is not None:
                parts = _framed(await large_requests.build(response, context), context, version)
            _, parts = self._kept_or_throttled(context, response, parts)
        except Exception as error:  # noqa: BLE001 - it is logged
            context.response = response = _failed(context, error)
            parts = _encode(response, context, version)
        context.measurement.answered()
        await large_requests.forget(context)
        context.work.leave_queue()
        return self._charged(context, parts)

    def _kept_or_throttled(
        self, context: RequestContext, response: Response | None, parts: list[Part] | None
    ) -> tuple[Response | None, list[Part] | None]:
        if self._quotas.is_active:
            throttled = self._quotas.charge(context, response, context.measurement.response_bytes)
            if throttled is not None:
                return response, _encode(throttled, context, context.header.api_version)
        if context.when_kept is not None:
            context.when_kept()
        return response, parts

    def _charged(self, context: RequestContext, parts: list[Part] | None) -> list[Part] | None:
        size_bytes = context.measurement.response_bytes
        if size_bytes > UNCOUNTED_BYTES and context.api.key is not ApiKey.FETCH:
            context.release_after_send(Charge(self._broker.replica_manager.response_budget, size_bytes))
        return parts

    def _unsupported_api_versions(self) -> ApiVersionsResponse:
        """KIP-511: version 0 of the answer, from which a newer client learns the version to ask with."""
        api = self._apis.find(ApiKey.API_VERSIONS, 0)
        own = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _keys(context: RequestContext) -> dict[str, object]:
    """The keys of log lines about this request."""
    return {
        "api": context.api.key.name.lower(),
        "client": repr(context.connection),
        "client_id": context.header.client_id,
        "listener": context.listener,
    }


def _failed(context: RequestContext, error: Exception) -> Response:
    """The answer after a fault of this broker, which is logged. Raises an error that closes the connection."""
    if isinstance(error, CloseConnectionError):
        raise error
    logger.exception("could not answer %r", context, extra=_keys(context))
    return _refused(context, ErrorCode.UNKNOWN_SERVER_ERROR)


def _refused(context: RequestContext, code: ErrorCode) -> Response:
    """The whole request failed: for a fault of this broker, or because it may not be handled now."""
    assert context.request is not None
    response = error_response(context.request, context.header.api_version, code)
    if response is None:
        raise CloseConnectionError(
            f"{context.api.key.name} failed with {code.name} and has no answer that could say so"
        )
    return response


def _encode(response: Response, context: RequestContext, version: int) -> list[Part]:
    return _framed(context.api.build_parts(response, version), context, version)


def _framed(parts: Sequence[Part], context: RequestContext, version: int) -> list[Part]:
    """Put the frame's length and the response header in front of a body's pieces."""
    is_whole = len(parts) == 1
    size_bytes = len(parts[0]) if is_whole else sum(map(len, parts))
    context.measurement.response_bytes = size_bytes
    if version < context.api.tagged_from_version:
        prefix = _pack_prefix_v0(4 + size_bytes, context.header.correlation_id)
    else:
        prefix = _pack_prefix_v1(5 + size_bytes, context.header.correlation_id, 0)
    if is_whole and size_bytes <= _MAX_JOINED_BYTES:
        return [prefix + parts[0]]  # type: ignore[operator] # nothing as short is in a file
    return [prefix, *parts]
