"""The check before every page: who is asking, and whether they may see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ottla.console.parameters import text
from ottla.console.rendering import url
from ottla.console.visitors import DeniedError
from ottla.metadata.acls import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.console import Console

Page = Callable[["Console", "Request"], Awaitable[Response]]


class Need(NamedTuple):
    """The right that a page needs on the topic or group in its address."""

    operation: AclOperation
    resource: AclResource

    def name(self, request: Request) -> str:
        if self.resource is AclResource.TOPIC:
            return str(request.path_params["topic"])
        return text(request, "id") if self.resource is AclResource.GROUP else CLUSTER_NAME


DESCRIBE_TOPIC: Final = Need(AclOperation.DESCRIBE, AclResource.TOPIC)
READ_TOPIC: Final = Need(AclOperation.READ, AclResource.TOPIC)
WRITE_TOPIC: Final = Need(AclOperation.WRITE, AclResource.TOPIC)
DESCRIBE_GROUP: Final = Need(AclOperation.DESCRIBE, AclResource.GROUP)
DESCRIBE_CLUSTER: Final = Need(AclOperation.DESCRIBE, AclResource.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Need(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)


async def admitted(console: Console, show: Page, needs: Need | None, request: Request) -> Response:
    """A page for visitors who have logged in, if that is required, and may see it.

    What a visitor may not even describe is answered as if it did not exist.
    """
    visitor = console.visitors.of(request)
    request.state.visitor = visitor
    if visitor is None:
        return _to_login(request)
    try:
        if needs is not None:
            name = needs.name(request)
            is_named = needs.resource is not AclResource.CLUSTER
            if is_named and not visitor.may(AclOperation.DESCRIBE, needs.resource, name):
                return await console.not_found(request, f"{needs.resource.name.lower()} {name}")
            visitor.require(needs.operation, needs.resource, name)
        return await show(console, request)
    except DeniedError as error:
        return await console.renderer.page(request, "denied.html", status=403, section="", why=str(error))


async def for_all(console: Console, show: Page, request: Request) -> Response:
    """A page for everybody."""
    request.state.visitor = console.visitors.of(request)
    return await show(console, request)


def _to_login(request: Request) -> Response:
    if request.method != "GET" or "text/event-stream" in request.headers.get("accept", ""):
        return PlainTextResponse("Log in first: the session has ended.\n", 401)
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(url("login", back=back if back != url("") else None), 303)
