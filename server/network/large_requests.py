"""Requests of more than a few bytes or elements: parsed, answered and forgotten in steps, within budgets.

For ordinary requests nothing in here is called.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.kproto.schema import Struct, StructType
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.time_slice import TimeSlice
from ottla.runtime.work import LIGHT_ELEMENTS
from ottla.server.apis.errors import error_response_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ottla.kproto import codec
    from ottla.kproto.codec import Part
    from ottla.kproto.schema import Request, Response
    from ottla.runtime.memory_budget import MemoryBudget
    from ottla.runtime.request_budget import RequestBudget
    from ottla.runtime.work import Container
    from ottla.server.apis.context import RequestContext

#: What is shorter is parsed at once: names of no bytes take 0.2 µs each.
PARSED_AT_ONCE_BYTES: Final = 2_048
#: Up to this size the records of one partition are parsed and appended at once: summing them takes a few microseconds.
LONE_BYTES: Final = 64 * 1024
#: Responses up to this size are not counted: a connection has one at a time.
UNCOUNTED_BYTES: Final = 16 * 1024

# What an element of a request takes as an object, with the list that it is in.
_ELEMENT_BYTES: Final = 160
# A partition of a Fetch is three objects as long as it waits.
_FETCHED_BYTES: Final = 600
_STEP: Final = 128


#: As many records has a change of Kafka's metadata at most (QuorumController.MAX_RECORDS_PER_USER_OP).
_MAX_CHANGES: Final = 10_000
_MOST_OF_ENTITY: Final = 1_000


class Charge:
    """A charge to a budget that is given back with a response."""

    __slots__ = ("_budget", "_size_bytes")

    def __init__(self, budget: MemoryBudget, size_bytes: int) -> None:
        budget.charge(size_bytes)
        self._budget = budget
        self._size_bytes = size_bytes

    def release(self) -> None:
        """Give it back."""
        self._budget.refund(self._size_bytes)


async def parse(context: RequestContext, budget: RequestBudget) -> None:
    """Parse a large request. What many elements take stays charged as long as the request is under way.

    Raises CloseConnectionError.
    """
    api, version = context.api, context.header.api_version
    if version not in api.versions_in_steps:
        await api.prepare_steps(version)
    work = context.work
    begun: codec.Begun = []
    try:
        await context.parse_in_steps(begun)
    except CloseConnectionError:
        await _empty(begun)
        raise
    if work.elements > LIGHT_ELEMENTS:
        size_bytes = _FETCHED_BYTES if api.key is ApiKey.FETCH else _ELEMENT_BYTES
        context.release_after_send(Charge(budget.parsed, work.elements * size_bytes))
    if api.may_wait and api.key is not ApiKey.FETCH:
        work.stay_out()


async def refusal(context: RequestContext, code: ErrorCode) -> Response | None:
    """The answer to a request that is refused with `code`, or that asks for too many changes of the metadata."""
    request = context.request
    if request is None:
        return None
    code = code or (_refusal(request) if context.api.changes_metadata else ErrorCode.NONE)
    if not code:
        return None
    steps = error_response_in_steps(request, context.header.api_version, code)
    return await context.work.run(steps, counts=False)


def _refusal(request: Request) -> ErrorCode:
    if _named(request) > _MAX_CHANGES:
        return ErrorCode.POLICY_VIOLATION
    if isinstance(request, AlterClientQuotasRequest) and _has_endless_entity(request):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _named(request: Request) -> int:
    """How many things a request names."""
    lists = (getattr(request, field.name) for field in request.FIELDS if field.kind == "array")
    return sum(len(items) for items in lists if items is not None)


async def build(response: Response, context: RequestContext) -> Sequence[Part]:
    """The encoded response in pieces."""
    api, version = context.api, context.header.api_version
    if version not in api.versions_in_steps:
        await api.prepare_steps(version)
    return await context.work.run(api.build_in_steps(response, version), counts=False)


async def forget(context: RequestContext) -> None:
    """Count the errors of the answer, then let go of both messages and free their objects a few at a time.

    Freeing all of them at once would hold up everybody. Lists that others keep are not touched.
    """
    run = context.work.run
    messages: list[Struct] = [*context.forget_messages()]  # no name may refer to one of them
    if len(messages) > 1 and context.api.metrics is not None:
        await run(context.api.metrics.count_errors_in_steps(messages[-1]), counts=False)
    kept: deque[list[object]] = deque()
    while messages:
        await run(_keep_elements(messages.pop(), kept), counts=False)
    await run(_drop(kept), counts=False)
    while context.work.left:
        await run(_emptied(context.work.left.pop()), counts=False)


def _has_endless_entity(request: AlterClientQuotasRequest) -> bool:
    """An entity has three components at most, and a handful of quotas."""
    return any(len(it.entity) > _MOST_OF_ENTITY or len(it.ops) > _MOST_OF_ENTITY for it in request.entries)


def _keep_elements(struct: Struct, kept: deque[list[object]]) -> Generator[None, None, None]:
    """Refer to the elements of all lists, those of the outer ones first."""
    for field in struct.FIELDS:
        items = getattr(struct, field.name)
        if isinstance(items, Struct):
            yield from _keep_elements(items, kept)
        if not isinstance(items, list):
            continue
        has_lists = isinstance(field.element, StructType) and any(
            it.kind in ("array", "struct") for it in field.element.FIELDS
        )
        for first in range(0, len(items), _STEP):
            some = items[first : first + _STEP]
            kept.append(some)
            if has_lists:
                for item in some:
                    if isinstance(item, Struct):
                        yield from _keep_elements(item, kept)
            yield


async def _empty(begun: codec.Begun) -> None:
    """Free the elements of a request that is given up; what it may cost is spent, so they are not counted as work."""
    time_slice = TimeSlice()
    while begun:
        for _ in _emptied(begun.pop()):
            await time_slice.maybe_yield()


def _emptied(container: Container) -> Generator[None, None, None]:
    while container:
        if isinstance(container, list):
            del container[-_STEP:]
        else:
            for key in list(islice(container, _STEP)):
                del container[key]
        yield


def _drop(kept: deque[list[object]]) -> Generator[None, None, None]:
    while kept:
        kept.popleft()
        yield
