"""Messages as they arrive: server-sent events, each with the rows since the one before."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from starlette.responses import PlainTextResponse

from ottla.console.messages.decoding import Format
from ottla.console.messages.paging import readable_partitions
from ottla.console.messages.readable import LocalPartition, Readable, RemotePartition, refresh
from ottla.console.messages.reading import Budget, Message, scan
from ottla.console.messages.search import MAX_POSITIONS, MAX_POSITIONS_TEXT, every, read_positions, write_positions
from ottla.console.nodes import NodeError
from ottla.console.pages.messages import row_of
from ottla.console.parameters import integer, text
from ottla.replica.errors import ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.server.http.streaming import StreamedResponse
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.metadata.image import TopicImage

MAX_STREAMS: Final = 16
MAX_NEW_ROWS: Final = 50
_PAUSE_SECONDS: Final = 0.25
_WAIT_MS: Final = 5_000
_ASK_AGAIN_SECONDS: Final = 1.0
"""How often other nodes are asked whether there is more."""
_LIFE_SECONDS: Final = 600.0


class LiveTails:
    """The streams that are open. Browsers come back by themselves when one ends, with the last event's id."""

    def __init__(self) -> None:
        self.open = 0

    async def show(self, console: Console, request: Request) -> Response:
        topic = console.broker.metadata.topic(request.path_params["topic"])
        if topic is None:
            return PlainTextResponse("There is no such topic.\n", 404)
        if self.open >= MAX_STREAMS:
            return PlainTextResponse("Too many pages are being updated already.\n", 503)
        only = integer(request, "partition", -1)
        chosen = only if 0 <= only < len(topic.partitions) else None
        partitions = (await readable_partitions(console.broker, topic, chosen, 0, MAX_POSITIONS)).partitions
        positions = read_positions(request.headers.get("last-event-id", "") or text(request, "at", MAX_POSITIONS_TEXT))
        format_ = Format.named(text(request, "format"))
        events = self._events(
            console, topic, partitions, positions, format_, partial(may_look, console, request, topic)
        )
        return StreamedResponse(events, media_type="text/event-stream")

    async def _events(
        self,
        console: Console,
        topic: TopicImage,
        partitions: list[Readable],
        positions: dict[int, int],
        format_: Format,
        is_allowed: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[str, None]:
        at = {partition.index: positions.get(partition.index, partition.high_watermark) for partition in partitions}
        ends_at = trio.current_time() + _LIFE_SECONDS
        self.open += 1
        try:
            yield ": live\n\n"
            while partitions and console.broker.is_serving and trio.current_time() < ends_at:
                if not is_allowed():
                    return
                try:
                    await _wait(console, partitions, at)
                    messages = await _read(partitions, at)
                except (ReplicaError, StorageError, NodeError):
                    return  # the topic is gone, or led elsewhere: the browser asks again and is told
                if not messages:
                    yield ": nothing new\n\n"
                    continue
                rows = [await row_of(console, topic, message, format_) for message in messages]
                html = await console.renderer.text("parts/rows.html", topic=topic, rows=rows, format=format_)
                yield f"id: {write_positions(at)}\ndata: {json.dumps({'html': html, 'count': len(rows)})}\n\n"
                await trio.sleep(_PAUSE_SECONDS)
        finally:
            self.open -= 1


def may_look(console: Console, request: Request, topic: TopicImage) -> bool:
    """Whether the visitor may still look: rights can be taken away, and sessions end."""
    visitor = console.visitors.of(request)
    return visitor is not None and visitor.may_on_topic("READ", topic.name)


async def _wait(console: Console, partitions: list[Readable], at: dict[int, int]) -> None:
    """Wait until any of the partitions may have more. For those led here, the purgatory of fetches wakes this; for
    others, it waits until it is time to ask their leaders again.
    """
    elsewhere = [partition for partition in partitions if isinstance(partition, RemotePartition)]
    here = [partition for partition in partitions if isinstance(partition, LocalPartition)]
    if not here:
        await trio.sleep(_ASK_AGAIN_SECONDS)
    else:
        wait_ms = int(_ASK_AGAIN_SECONDS * 1000) if elsewhere else _WAIT_MS
        await _wait_here(console, here, at, wait_ms)
    if elsewhere:
        _, problems = await refresh(console.broker, elsewhere)
        if problems:
            raise NodeError(problems[0])


async def _wait_here(console: Console, partitions: list[LocalPartition], at: dict[int, int], wait_ms: int) -> None:
    wanted = [
        FetchPartition(partition.topic_id, partition.index, at[partition.index], max_bytes=1)
        for partition in partitions
    ]
    results = await console.broker.replica_manager.fetch(
        FetchParams(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1), wanted
    )
    for result in results:
        result.release()
    for result in results:
        if result.error is not None:
            raise result.error


async def _read(partitions: list[Readable], at: dict[int, int]) -> list[Message]:
    """The messages since `at`, which is advanced; if there are too many, only the last ones."""
    found: list[Message] = []
    for partition in partitions:
        end = partition.high_watermark
        begin = max(at[partition.index], end - MAX_NEW_ROWS, partition.log_start_offset)
        if begin >= end:
            continue
        part = await scan(partition, begin, end, budget=Budget(seconds=0.5), keep=every, limit=MAX_NEW_ROWS)
        found += part.messages
        at[partition.index] = max(part.next_offset, begin)
    found.sort(key=lambda message: message.order, reverse=True)
    return found[:MAX_NEW_ROWS]
