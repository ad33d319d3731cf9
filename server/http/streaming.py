"""Answers that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Send


class StreamedResponse(StreamingResponse):
    """It owns the generator that it sends, and closes it when it ends: also if the client goes or the node stops."""

    def __init__(self, content: AsyncGenerator[Any, None], **options: Any) -> None:
        super().__init__(content, **options)
        self._content = content

    async def stream_response(self, send: Send) -> None:
        """Send all of it."""
        async with aclosing(self._content):
            await super().stream_response(send)
