"""Requests that a broker of Kafka forwards to the controller (`KafkaApis.handle`, `forwardToController`).

Here every node answers them, but as the controller would: on everything that was committed before the request came.
Without this, a topic that was created at one node could be unknown at another for a moment, or, at a node that does not
reach the metadata store, for as long as that lasts.

As in Kafka, those that `ControllerApis` gives a deadline are answered by the end of their `timeout_ms`; zero is over at
once. REQUEST_TIMED_OUT means that it is not known what was changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from ottla.kproto.error_responses import error_response_in_steps
from ottla.kproto.errors import ErrorCode

# The controller imports these when it first needs them, which would be on the event loop.
from ottla.metadata.changes import (  # noqa: F401
    access_transactions,
    broker_transactions,
    config_transactions,
    partition_transactions,
    topic_transactions,
)
from ottla.metastore.errors import StoreUnavailableError
from ottla.server.apis.errors import error_code
from ottla.server.apis.pending import finish, handler_of

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

Handle = Callable[[Any, "RequestContext"], Any]
"""A module's `handle`: a function, or a coroutine function."""


def answered_up_to_date(handle: Handle, *, is_timed: bool) -> Callable[[Any, RequestContext], Awaitable[Any]]:
    """The handler, called once this node knows what is committed; REQUEST_TIMED_OUT if it cannot find out, or if the
    time of the request is over.
    """
    handler = handler_of(handle)

    async def answer(request: Any, context: RequestContext) -> Any:
        code = ErrorCode.REQUEST_TIMED_OUT
        with trio.move_on_after(max(request.timeout_ms, 0) / 1000 if is_timed else inf):
            try:
                await context.broker.controller.catch_up()
            except StoreUnavailableError as error:
                code = error_code(error)
            else:
                return await finish(handler(request, context))
        steps = error_response_in_steps(request, context.header.api_version, code)
        return await context.work.run(steps, elements=1)

    return answer
