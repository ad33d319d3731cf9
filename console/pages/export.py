"""Downloads of what a search finds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse

from ottla.client.json_condition import ConditionError
from ottla.console.export import FileFormat, exported
from ottla.console.messages.search import Search, keep_of
from ottla.console.pages.live import may_look
from ottla.console.parameters import text
from ottla.server.http.streaming import StreamedResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console

MAX_EXPORTS: Final = 4


class Exports:
    """The downloads under way; their number is limited."""

    def __init__(self) -> None:
        self.open = 0

    async def show(self, console: Console, request: Request) -> Response:
        topic = console.broker.metadata.topic(request.path_params["topic"])
        if topic is None:
            return await console.not_found(request, f"topic {request.path_params['topic']}")
        search = Search.of(request, topic)
        format_ = FileFormat.CSV if text(request, "file") == FileFormat.CSV.value else FileFormat.JSON_LINES
        try:
            keep = keep_of(search, topic, console.schemas)
        except ConditionError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if self.open >= MAX_EXPORTS:
            return PlainTextResponse("Too many exports are under way: try again when one of them has finished.\n", 503)
        lines = exported(console, topic, search, keep, format_, partial(may_look, console, request, topic))
        name = f'attachment; filename="{topic.name}.{format_.value}"'
        return StreamedResponse(
            self._counted(lines), media_type=format_.media_type, headers={"content-disposition": name}
        )

    async def _counted(self, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        self.open += 1
        try:
            async with aclosing(lines):
                async for line in lines:
                    yield line
        finally:
            self.open -= 1
