"""A topic's messages: found by offset, time, key, text, header or JSON; one message whole; its raw bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from ottla.client.json_condition import ConditionError
from ottla.console.export import MAX_MESSAGES
from ottla.console.messages.decoding import LAID_OUT, PAGE_BYTES, Format, Shown, decode
from ottla.console.messages.folding import Piece, folded
from ottla.console.messages.paging import Page, Read, read_page, readable_partitions
from ottla.console.messages.reading import Budget, Kind, Message, scan
from ottla.console.messages.search import MAX_POSITIONS, Search, Start, every, keep_of, write_positions
from ottla.console.messages.times import TimeError
from ottla.console.nodes import NodeError
from ottla.console.parameters import as_integer, integer, text
from ottla.kproto.errors import ProtocolError
from ottla.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.console.console import Console
    from ottla.metadata.image import TopicImage


class Row(NamedTuple):
    message: Message
    key: Shown
    value: Shown

    @property
    def kind(self) -> Kind:
        return self.message.kind


async def show_all(console: Console, request: Request) -> Response:
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    search = Search.of(request, topic)
    page, partitions, first, following, problem = await _read(console, topic, search)
    rows = [await row_of(console, topic, message, search.format) for message in page.messages]
    is_live = request.query_params.get("live") == "1"
    tails = (
        (await readable_partitions(console.broker, topic, search.partition, 0, MAX_POSITIONS)).partitions
        if is_live
        else []
    )
    return await console.page(
        request,
        "messages.html",
        section="topics",
        topic=topic,
        search=search,
        starts=list(Start),
        formats=list(Format),
        rows=rows,
        page=page,
        this_at=write_positions(search.at),
        next_at=write_positions(page.at),
        problem=problem,
        first=first,
        last=partitions[-1].index if partitions else first,
        following=following,
        is_live=is_live,
        live_at=write_positions({tail.index: tail.high_watermark for tail in tails}),
        live_limit=MAX_POSITIONS,
        max_exported=MAX_MESSAGES,
    )


async def show(console: Console, request: Request) -> Response:
    found = await _the_message(console, request)
    if found is None:
        return await console.not_found(request, "message there: it was never written, or retention has removed it")
    topic, message = found
    chosen = Format.named(text(request, "format"))
    schemas = console.schemas
    headers = [
        (name, await decode(value, Format.AUTO, console.schemas, PAGE_BYTES))
        for name, value in message.record.headers[:500]
    ]
    key = await decode(message.record.key, chosen, schemas, PAGE_BYTES, message_type=schemas.key_type(topic.name))
    value = await decode(message.record.value, chosen, schemas, PAGE_BYTES, message_type=schemas.value_type(topic.name))
    return await console.page(
        request,
        "message.html",
        section="topics",
        topic=topic,
        message=message,
        header=message.header,
        key=key,
        key_pieces=await _pieces(key),
        value=value,
        value_pieces=await _pieces(value),
        headers=headers,
        sent=integer(request, "sent", 0),
        format=chosen,
        formats=list(Format),
    )


async def _pieces(shown: Shown) -> list[Piece]:
    """The pieces that the page folds; none for values that are not laid out."""
    return await folded(shown.text) if shown.text and shown.format in LAID_OUT else []


async def download(console: Console, request: Request) -> Response:
    """The bytes of a key or value, as a file."""
    found = await _the_message(console, request)
    part = request.path_params["part"]
    data = None if found is None or part not in ("key", "value") else getattr(found[1].record, part)
    if found is None or data is None:
        return await console.not_found(request, "such part of a message")
    topic, message = found
    name = f"{topic.name}-{message.partition}-{message.offset}.{part}"
    return Response(
        data, media_type="application/octet-stream", headers={"content-disposition": f'attachment; filename="{name}"'}
    )


async def _read(console: Console, topic: TopicImage, search: Search) -> Read:
    try:
        return await read_page(console.broker, topic, search, keep_of(search, topic, console.schemas))
    except (ReplicaError, StorageError, ProtocolError, NodeError, ConditionError, TimeError) as error:
        return Read(Page([], {}, 0, is_cut_short=False), [], search.first, None, str(error))


async def row_of(console: Console, topic: TopicImage, message: Message, format_: Format) -> Row:
    """A message as a row shows it."""
    if message.kind in (Kind.COMMIT, Kind.ABORT, Kind.CONTROL):
        empty = Shown(Format.TEXT, "", 0)
        return Row(message, empty, empty)
    schemas = console.schemas
    of_key = format_ if format_ in (Format.TEXT, Format.HEX) else Format.AUTO
    return Row(
        message,
        await decode(message.record.key, of_key, schemas, message_type=schemas.key_type(topic.name)),
        await decode(message.record.value, format_, schemas, message_type=schemas.value_type(topic.name)),
    )


async def _the_message(console: Console, request: Request) -> tuple[TopicImage, Message] | None:
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return None
    index, offset = (as_integer(request.path_params[name], -1) for name in ("partition", "offset"))
    if not 0 <= index < len(topic.partitions):
        return None
    for partition in (await readable_partitions(console.broker, topic, index)).partitions:
        if not partition.log_start_offset <= offset < partition.high_watermark:
            return None
        try:
            found = await scan(partition, offset, offset + 1, budget=Budget(), keep=every, limit=1)
        except (ReplicaError, StorageError, NodeError):
            return None
        if found.messages:
            return topic, found.messages[0]
    return None
