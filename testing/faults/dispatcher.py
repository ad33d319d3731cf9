"""Carries out a plan of faults, on all requests except those of the test that made the plan."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.server.apis.context import Deferred
from ottla.server.apis.errors import error_response
from ottla.server.errors import CloseConnectionError
from ottla.server.network.dispatch import Dispatcher
from ottla.testing.faults import answers
from ottla.testing.faults.plan import Fault, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.kproto.schema import Response
    from ottla.server.apis.context import RequestContext
    from ottla.server.broker import Broker
    from ottla.server.quotas.clients import ClientQuotas
    from ottla.server.served.api import ApiTable
    from ottla.testing.faults.plan import FaultPlan

EXEMPT_CLIENT_ID: Final = "ottla-testing"
"""Requests with this client id are served as usual, so that a test can look at a failing broker."""


class FaultyDispatcher(Dispatcher):
    """A dispatcher that first does to each request what the plan says, and then serves it if there is still something
    to serve.
    """

    __slots__ = ("_plan",)

    def __init__(self, apis: ApiTable, broker: Broker, quotas: ClientQuotas, plan: FaultPlan) -> None:
        super().__init__(apis, broker, quotas)
        self._plan = plan

    def _handle(self, context: RequestContext) -> Any:
        if context.header.client_id == EXEMPT_CLIENT_ID:
            return super()._handle(context)
        return self._befall(context)

    async def _befall(self, context: RequestContext) -> Response | Deferred | None:
        await self._plan.wait_resumed()
        befalling = self._plan.strike(context.api.key, lambda fault: answers.fits(fault, context))
        if FaultKind.DELAY in befalling:
            await trio.sleep(self._plan.delay_seconds(befalling[FaultKind.DELAY]))
        if FaultKind.DROP in befalling:
            raise CloseConnectionError(f"a fault drops {context!r}")
        if FaultKind.ERROR in befalling:
            await self._fail(befalling[FaultKind.ERROR], context)
        else:
            await self._serve(context)
        if FaultKind.THROTTLE in befalling:
            context.response = _Throttled(context, self._plan.delay_seconds(befalling[FaultKind.THROTTLE]))
        if FaultKind.LOSE_ANSWER in befalling:
            context.response = _LostAnswer(context)
        return context.response

    async def _serve(self, context: RequestContext) -> None:
        answer = super()._handle(context)
        context.response = await answer if isinstance(answer, Coroutine) else answer

    async def _fail(self, fault: Fault, context: RequestContext) -> None:
        """Answer with the fault's error for what it names, and serve the rest of the request."""
        request = context.request
        assert request is not None
        version = context.header.api_version
        code = fault.error_code
        if context.api.key is ApiKey.METADATA and code is not ErrorCode.REBOOTSTRAP_REQUIRED:
            # A client needs the brokers of the answer to go on: only the topics in it fail.
            await self._serve(context)
            context.response = _Changed(context, lambda response: answers.fail_topics(response, fault, version))
            return
        if context.api.key is ApiKey.FETCH and code not in answers.SESSION_ERRORS:
            if answers.is_incremental(request):
                # It does not name its partitions; the client will name all of them when it has to begin a new session.
                fault.struck -= 1
                context.response = error_response(request, version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                return
            request = context.request = answers.without_session(request)
        failing, rest = answers.split(request, version, fault, context.broker.metadata)
        failed = answers.failed(failing, version, code)
        if rest is None:
            context.response = failed
            return
        context.request = rest
        await self._serve(context)
        context.response = _Changed(context, lambda response: answers.merge(response, failed, version))


class _Faulty(Deferred):
    """An answer under way, to which something will happen when it is ready."""

    __slots__ = ("_context", "_inner")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._inner = context.response

    @property
    def is_ready(self) -> bool:
        return not isinstance(self._inner, Deferred) or self._inner.is_ready

    async def wait(self) -> None:
        assert isinstance(self._inner, Deferred)
        await self._inner.wait()

    def response(self) -> Response | None:
        inner = self._inner
        return self._done(inner.response() if isinstance(inner, Deferred) else inner)

    def _done(self, response: Response | None) -> Response | None:
        return response


class _Changed(_Faulty):
    """An answer that is changed before it leaves."""

    __slots__ = ("_change",)

    def __init__(self, context: RequestContext, change: Callable[[Response | None], Response | None]) -> None:
        super().__init__(context)
        self._change = change

    def _done(self, response: Response | None) -> Response | None:
        return self._change(response)


class _LostAnswer(_Faulty):
    """The request is carried out, but the connection is closed instead of answering it."""

    __slots__ = ()

    def _done(self, response: Response | None) -> Response | None:
        raise CloseConnectionError(f"a fault loses the answer to {self._context!r}")


class _Throttled(_Faulty):
    """An answer that tells the client to wait; meanwhile nothing more is read from it, as in Kafka (KIP-219)."""

    __slots__ = ("_seconds",)

    def __init__(self, context: RequestContext, seconds: float) -> None:
        super().__init__(context)
        self._seconds = seconds

    def _done(self, response: Response | None) -> Response | None:
        self._context.connection.mute(self._seconds)
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = int(self._seconds * 1000)
        return response
