"""Requests that a broker of Kafka forwards to the controller (`KafkaApis.handle`, `forwardToController`): `FORWARDED`.

Here every node answers them, but as the controller would: on everything that was committed before the request came.
Without this, a topic that was created at one node could be unknown at another for a moment, or, at a node that does not
reach the metadata store, for as long as that lasts.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ottla.kproto.error_responses import error_response_in_steps
from ottla.server.apis.errors import error_code
from ottla.server.metadata.errors import StoreUnavailableError

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext
    from ottla.server.served.api import Handler


def answered_up_to_date(handler: Handler) -> Handler:
    """The handler, called once this node knows what is committed; REQUEST_TIMED_OUT if it cannot find out."""

    async def handle(request: Any, context: RequestContext) -> Any:
        try:
            await context.broker.controller.catch_up()
        except StoreUnavailableError as error:
            steps = error_response_in_steps(request, context.header.api_version, error_code(error))
            return await context.work.run(steps)
        answer = handler(request, context)
        return await answer if isinstance(answer, Coroutine) else answer

    return handle
