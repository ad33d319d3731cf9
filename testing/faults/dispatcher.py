"""Notes all requests except those of the test itself, and carries out its plan of faults on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.hot.recurring import LoneProduce
from ottla.runtime.errors import CloseConnectionError
from ottla.server.apis.errors import error_response
from ottla.server.apis.pending import Changed, InTask
from ottla.server.network.dispatch import Dispatcher
from ottla.testing.faults import answers
from ottla.testing.faults.plan import Fault, FaultKind

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.server.apis.context import RequestContext
    from ottla.server.apis.pending import Answer
    from ottla.server.apis.table import ApiTable
    from ottla.server.broker import Broker
    from ottla.server.quotas.clients import ClientQuotas
    from ottla.testing.faults.plan import FaultPlan
    from ottla.testing.requests import Requests

EXEMPT_CLIENT_ID: Final = "ottla-testing"
"""Requests with this client id are served as usual, so that a test can look at a failing broker."""


class FaultyDispatcher(Dispatcher):
    """A dispatcher that first does to each request what the plan says, and then serves it if there is still something
    to serve.
    """

    __slots__ = ("_plan", "_requests")

    def __init__(
        self, apis: ApiTable, broker: Broker, quotas: ClientQuotas, plan: FaultPlan, requests: Requests
    ) -> None:
        super().__init__(apis, broker, quotas)
        self._plan = plan
        self._requests = requests

    def _handle(self, context: RequestContext) -> Answer:
        if context.header.client_id == EXEMPT_CLIENT_ID:
            return super()._handle(context)
        if isinstance(context.request, LoneProduce):
            context.replace(context.request.whole())
        return InTask(self._befall(context))

    async def _befall(self, context: RequestContext) -> Answer:
        self._requests.note(context)
        await self._plan.wait_resumed()
        befalling = self._plan.strike(context.api.key, lambda fault: answers.fits(fault, context))
        if FaultKind.DELAY in befalling:
            await trio.sleep(self._plan.delay_seconds(befalling[FaultKind.DELAY]))
        if FaultKind.DROP in befalling:
            raise CloseConnectionError(f"a fault drops {context!r}")
        scripted = befalling[FaultKind.ANSWER].answer if FaultKind.ANSWER in befalling else None
        answer: Answer = None if scripted is None else scripted(context.request)
        if FaultKind.ERROR in befalling:
            answer = self._fail(befalling[FaultKind.ERROR], context)
        elif answer is None:
            answer = super()._handle(context)
        if FaultKind.THROTTLE in befalling:
            seconds = self._plan.delay_seconds(befalling[FaultKind.THROTTLE])
            answer = Changed(answer, lambda response: _throttled(response, context, seconds))
        if FaultKind.LOSE_ANSWER in befalling:
            answer = Changed(answer, lambda _: _lost(context))
        return answer

    def _fail(self, fault: Fault, context: RequestContext) -> Answer:
        """Answer with the fault's error for what it names, and serve the rest of the request."""
        request = context.request
        assert request is not None
        version = context.header.api_version
        code = fault.error_code
        if context.api.key is ApiKey.METADATA and code is not ErrorCode.REBOOTSTRAP_REQUIRED:
            # A client needs the brokers of the answer to go on: only the topics in it fail.
            answer = super()._handle(context)
            return Changed(answer, lambda response: answers.fail_topics(response, fault, version))
        if context.api.key is ApiKey.FETCH and code not in answers.SESSION_ERRORS:
            if answers.is_incremental(request):
                # It does not name its partitions; the client will name all of them when it has to begin a new session.
                fault.take_back()
                return error_response(request, version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            request = answers.without_session(request)
            context.replace(request)
        failing, rest = answers.split(request, version, fault, context.broker.metadata)
        failed = answers.failed(failing, version, code)
        if rest is None:
            return failed
        context.replace(rest)
        return Changed(super()._handle(context), lambda response: answers.merge(response, failed, version))


def _lost(context: RequestContext) -> Response | None:
    """The request is carried out, but the connection is closed instead of answering it."""
    raise CloseConnectionError(f"a fault loses the answer to {context!r}")


def _throttled(response: Response | None, context: RequestContext, seconds: float) -> Response | None:
    """Tell the client to wait; meanwhile nothing more is read from it, as in Kafka (KIP-219)."""
    context.connection.mute(seconds)
    if response is not None and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = int(seconds * 1000)
    return response
