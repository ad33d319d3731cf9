"""The state that the pages share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.history import History
    from ottla.console.messages.schemas import Schemas
    from ottla.console.rendering import Renderer
    from ottla.console.visitors import Visitor, Visitors
    from ottla.server.broker import Broker


@dataclass(slots=True, kw_only=True)
class Console:
    """The console of one broker."""

    broker: Broker
    renderer: Renderer
    history: History
    schemas: Schemas
    visitors: Visitors

    def visitor(self, request: Request) -> Visitor:
        """The user who sent a request that was let in."""
        visitor: Visitor = request.state.visitor
        return visitor

    async def page(self, request: Request, template: str, **context: Any) -> Response:
        """Answer with a page."""
        return await self.renderer.page(request, template, **context)

    async def not_found(self, request: Request, what: str) -> Response:
        """Answer that there is no such thing."""
        return await self.renderer.page(request, "missing.html", status=404, section="", what=what)
