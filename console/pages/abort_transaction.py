"""Aborting a transaction by hand: its producer is fenced, as by `ottla transaction abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from starlette.responses import RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.messages.readable import led_elsewhere
from ottla.console.nodes import NodeError, ask
from ottla.console.parameters import text
from ottla.console.rendering import url
from ottla.coordinator.errors import ConcurrentTransactionsError, CoordinatorError, TransactionalIdNotFoundError
from ottla.coordinator.transaction.coordinator import TRANSACTIONS_TOPIC
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.metadata.acls import AclOperation, AclResource

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.server.broker import Broker

_FENCING_TIMEOUT_MS: Final = 60_000
_END_SECONDS: Final = 10.0
"""How long the form waits until the abort is written to every partition."""
_RETRY_SECONDS: Final = 0.05


class AbortError(Exception):
    """The transaction stays as it is; the text is for the form."""


async def show(console: Console, request: Request) -> Response:
    """The question, and with a POST the deed."""
    transactional_id = text(request, "id")
    visitor = console.visitor(request)
    if not visitor.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id):
        return await console.not_found(request, f"transactional id {transactional_id}")
    problem, status = "", 200
    try:
        state = await _state(console.broker, transactional_id)
        if state is None:  # taking over an id that is unknown would make it
            return await console.not_found(request, f"transactional id {transactional_id}")
        if request.method == "POST":
            await read_form(request, console.renderer.tokens)
            visitor.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
            await _abort(console.broker, transactional_id)
            return RedirectResponse(url("transactions", q=transactional_id), 303)
    except FormError as error:
        problem, status = str(error), error.status
    except (AbortError, NodeError, CoordinatorError) as error:
        state, problem, status = "", str(error), 422
    return await console.renderer.page(
        request,
        "abort_transaction.html",
        status=status,
        section="transactions",
        transactional_id=transactional_id,
        state=state,
        problem=problem,
    )


def _elsewhere(broker: Broker, transactional_id: str) -> int | None:
    """The other node that coordinates it; None if this one does, or nobody."""
    topic = broker.metadata.topic(TRANSACTIONS_TOPIC)
    partition = broker.transaction_coordinator.partition_for(transactional_id)
    return None if topic is None else led_elsewhere(broker, topic, partition)


async def _state(broker: Broker, transactional_id: str) -> str | None:
    """Kafka's name of its state; None if the id is unknown. Raises NodeError or CoordinatorError."""
    node_id = _elsewhere(broker, transactional_id)
    if node_id is None:
        try:
            return str(broker.transaction_coordinator.describe(transactional_id).status.title)
        except TransactionalIdNotFoundError:
            return None
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = (await ask(broker, node_id, request)).transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code:
        raise NodeError(f"Node {node_id} refused it: {ErrorCode.name_of(state.error_code)}.")
    return str(state.transaction_state)


async def _abort(broker: Broker, transactional_id: str) -> None:
    """Take the id over, as a producer that starts does: what is open is aborted before that succeeds. Raises
    AbortError, NodeError or CoordinatorError.
    """
    with trio.move_on_after(_END_SECONDS):
        while not await _take_over(broker, transactional_id):  # noqa: ASYNC110 - only the coordinator can tell
            await trio.sleep(_RETRY_SECONDS)
        return
    raise AbortError("The transaction is being aborted, and this takes longer than 10 s: look at it again.")


async def _take_over(broker: Broker, transactional_id: str) -> bool:
    """Whether it is done; False while the abort is being written."""
    node_id = _elsewhere(broker, transactional_id)
    if node_id is None:
        try:
            await broker.transaction_coordinator.init_producer_id(transactional_id, _FENCING_TIMEOUT_MS, None)
        except ConcurrentTransactionsError:
            return False
        return True
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS)
    code = (await ask(broker, node_id, request, seconds=_END_SECONDS)).error_code
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return False
    if code:
        raise AbortError(f"Node {node_id} refused it: {ErrorCode.name_of(code)}.")
    return True
