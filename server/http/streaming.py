"""Answers that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import trio
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Message, Send


class StreamedResponse(StreamingResponse):
    """It owns the generator that it sends, and closes it when it ends: also if the client goes or the node stops."""

    def __init__(self, content: AsyncGenerator[Any, None], **options: Any) -> None:
        super().__init__(content, **options)
        self._content = content

    async def stream_response(self, send: Send) -> None:
        """Send all of it."""

        async def send_to_the_end(message: Message) -> None:
            # After the last part Hypercorn reports a disconnect, at which Starlette cancels this task, and closes the
            # connection if it is not kept. The shield's wait ends with that close, which depends on nobody.
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            with trio.CancelScope(shield=is_last):
                await send(message)

        async with aclosing(self._content):
            await super().stream_response(send_to_the_end)
