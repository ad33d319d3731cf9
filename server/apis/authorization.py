"""How the rules that the APIs declare (`ottla.server.apis.rules`) are applied.

A request is checked before its handler runs: what its sender may not do is taken out of it and answered with the error
code, in the shape of `getErrorResponse`; the handler sees the rest. Some handlers check for themselves, through
`context.access`, if more must be known (`BY_HANDLER`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kproto.error_responses import error_response_in_steps, item_errors_in_steps
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import Response, Struct
from ottla.metadata.acls import AclOperation
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.stages import Stages
from ottla.server.apis.pending import Answer, Changed, InTask, Pending, begin, finish
from ottla.server.apis.rules import DENIED, All, Each, Left

if TYPE_CHECKING:
    from ottla.security.access import Access
    from ottla.server.apis.context import RequestContext


def handle(context: RequestContext, access: Access) -> Answer:
    """Let the API's handler answer what the sender may do, and refuse the rest."""
    return begin(_handle(context, access))


def _handle(context: RequestContext, access: Access) -> Stages[Answer]:
    request: Any = context.request
    rule = context.api.rule
    for whole in rule.whole:
        if isinstance(whole, All):
            code = yield from _refusal_of_all(whole, context, access)
        else:
            code = whole.refusal(request, context.header.api_version, access)
        if code:
            response = yield from _failed(context, code)
            yield from _set_fields(response, {} if rule.each is None else rule.each.denied_fields, context)
            return response
    refused = None
    if rule.each is not None:
        refused = yield from _take_out(rule.each, context, access)
    answer: Answer = context.api.handler(request, context)
    if rule.left is not None:
        answer = InTask(_left(rule.left, answer, context, access))
    if refused is None:
        return answer
    merge = partial(_merge, refused=refused)
    return Changed(answer, merge) if isinstance(answer, Pending) else merge(answer)


def _refusal_of_all(rule: All, context: RequestContext, access: Access) -> Stages[ErrorCode]:
    work = context.counted
    for name in getattr(context.request, rule.field) or ():
        if work is not None:
            yield partial(work.charge, 0)
        if not access.allows(rule.operation, rule.resource, name):
            return DENIED[rule.resource]
    return ErrorCode.NONE


def _failed(
    context: RequestContext, code: ErrorCode, steps_of: Callable[..., Any] = error_response_in_steps
) -> Stages[Response]:
    steps = steps_of(context.request, context.header.api_version, code)
    response: Response | None = yield partial(context.work.run, steps, elements=1)
    if response is None:
        raise CloseConnectionError(f"{context.api.key.name} is refused with {code.name} and has no answer to say so")
    return response


def _take_out(rule: Each, context: RequestContext, access: Access) -> Stages[Response | None]:
    """Take what is refused out of the request; the answer to it, None if nothing is."""
    request: Any = context.request
    items = getattr(request, rule.field, None)
    if not items or (rule.unless is not None and access.allows_on_cluster(rule.unless, is_asked=False)):
        return None
    image = context.broker.metadata
    allowed: list[Any] = []
    denied: dict[ErrorCode, list[Any]] = {}
    work = context.counted
    for item in items:
        if work is not None:
            yield partial(work.charge, 0)
        meant = rule.meant(item, request, image)
        if meant is None or access.allows(rule.operation, *meant):
            allowed.append(item)
        else:
            denied.setdefault(DENIED[meant[0]], []).append(item)
    if not denied:
        return None
    whole: Response | None = None
    for code, some in denied.items():
        setattr(request, rule.field, some)
        failed = yield from _failed(context, code, item_errors_in_steps)
        yield from _set_fields(failed, rule.denied_fields, context)
        whole = failed if whole is None else _merge(whole, failed)
    setattr(request, rule.field, allowed)
    return whole


def _set_fields(answer: Struct, fields: Mapping[str, Any], context: RequestContext) -> Stages[None]:
    """Set fields of these names in an answer and in all its elements."""
    if not fields:
        return
    yield partial(context.work.charge, 0)
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name in fields:
            setattr(answer, field.name, fields[field.name])
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from _set_fields(item, fields, context)


async def _left(rule: Left, answer: Answer, context: RequestContext, access: Access) -> Answer:
    """The answer without what the sender may not know of."""
    response: Any = await finish(answer)
    if response is None or (rule.unless is not None and access.allows_on_cluster(rule.unless, is_asked=False)):
        return response  # type: ignore[no-any-return]
    left = [
        item
        async for item in context.work.over(getattr(response, rule.field))
        if access.allows(AclOperation.DESCRIBE, rule.resource, getattr(item, rule.name), is_asked=False)
    ]
    setattr(response, rule.field, left)
    return response  # type: ignore[no-any-return]


def _merge(response: Response | None, refused: Response) -> Response:
    """The answer to the rest, followed by the refusals."""
    if response is None:
        raise CloseConnectionError(f"{refused.API_KEY.name} is refused in part and has no answer to say so")
    if getattr(response, "error_code", ErrorCode.NONE):
        return response  # it failed as a whole
    for field in response.FIELDS:
        more = getattr(refused, field.name)
        if isinstance(more, list) and more:
            setattr(response, field.name, [*getattr(response, field.name), *more])
    return response
