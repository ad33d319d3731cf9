"""A topic's messages: found by offset, time, key or text, shown a page at a time; one message whole; its raw bytes.

A page goes on where the last one ended (`at` names an offset for each partition): no page costs more for being a late
one, and none shows a message twice because others came meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.responses import Response

from ottla.console.decoding import PAGE_BYTES, Format, Shown, decode
from ottla.console.nodes import NodeError
from ottla.console.parameters import as_integer, integer, text
from ottla.console.readable import Found, Readable, find_readable
from ottla.console.reading import Budget, Kind, Message, scan, scan_back
from ottla.kproto.errors import ProtocolError
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from ottla.console.console import Console
    from ottla.server.metadata.image import TopicImage

MESSAGES_A_PAGE: Final = 50
MAX_PARTITIONS: Final = 32
"""Partitions that one page reads together; of a topic with more, the pages go from one such group to the next."""
_SEARCH_SECONDS: Final = 4.0
"""A search that finds nothing in a group of partitions goes on with the next group for so long."""


class Start(Enum):
    """Where a page begins."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


class Search(NamedTuple):
    """What the form says. `at` are the positions of a page that follows another one, `first` is its first partition."""

    start: Start
    partition: int | None
    offset: int
    time: str
    key: str
    contains: str
    format: Format
    at: Mapping[int, int]
    first: int = 0

    @property
    def is_backward(self) -> bool:
        return self.start is Start.NEWEST

    @property
    def has_filter(self) -> bool:
        return bool(self.key or self.contains)


class Row(NamedTuple):
    message: Message
    key: Shown
    value: Shown

    @property
    def kind(self) -> Kind:
        return self.message.kind


class Read(NamedTuple):
    """What one answer shows: a page of a group of partitions, and where the group after it begins, if there is one."""

    page: Page
    partitions: list[Readable]
    first: int
    following: int | None
    problem: str


class Page(NamedTuple):
    """The messages of a page, where the next one goes on (empty: nothing is left), and what it cost."""

    messages: list[Message]
    at: dict[int, int]
    scanned: int
    is_cut_short: bool


async def show_all(console: Console, request: Request) -> Response:
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    search = _search(request, topic)
    page, partitions, first, following, problem = await _read(console, topic, search)
    rows = [await row_of(console, message, search.format) for message in page.messages]
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
        next_at=write_positions(page.at),
        problem=problem,
        first=first,
        last=partitions[-1].index if partitions else first,
        following=following,
        is_live=request.query_params.get("live") == "1",
        live_at=write_positions({partition.index: partition.high_watermark for partition in partitions}),
    )


async def show(console: Console, request: Request) -> Response:
    found = await _the_message(console, request)
    if found is None:
        return await console.not_found(request, "message there: it was never written, or retention took it")
    topic, message = found
    chosen = Format.named(text(request, "format"))
    headers = [
        (name, await show_value(console, value, Format.AUTO, PAGE_BYTES))
        for name, value in message.record.headers[:500]
    ]
    return await console.page(
        request,
        "message.html",
        section="topics",
        topic=topic,
        message=message,
        header=message.header,
        key=await show_value(console, message.record.key, chosen, PAGE_BYTES),
        value=await show_value(console, message.record.value, chosen, PAGE_BYTES),
        headers=headers,
        is_sent=request.query_params.get("sent") == "1",
        format=chosen,
        formats=list(Format),
    )


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
    """The page of the first group of partitions in which something is found, or what there is of the last one."""
    first = 0 if search.partition is not None else search.first
    ends_at = monotonic() + _SEARCH_SECONDS
    scanned = 0
    while True:
        partitions, following, problems = await readable_partitions(console, topic, search.partition, first)
        try:
            page = await find(console, partitions, search)
        except (ReplicaError, StorageError, ProtocolError, NodeError) as error:
            return Read(Page([], {}, scanned, is_cut_short=False), partitions, first, following, str(error))
        scanned += page.scanned
        is_over = following is None or not search.has_filter or monotonic() >= ends_at
        if is_over or page.messages or page.at or search.at:
            return Read(page._replace(scanned=scanned), partitions, first, following, " ".join(problems))
        assert following is not None
        first = following


async def find(console: Console, partitions: list[Readable], search: Search) -> Page:
    """The page that a search asks for. Raises ReplicaError, StorageError or NodeError."""
    keep = _filter(search)
    scans: dict[int, Any] = {}
    positions: dict[int, int] = {}
    budget = Budget()
    scanned = 0
    for number, partition in enumerate(partitions):
        # What is left is shared by the partitions that are left.
        share = Budget(
            records=max(1, (budget.records - scanned) // (len(partitions) - number)),
            size_bytes=budget.size_bytes // len(partitions),
            seconds=2.0 / len(partitions) + 0.05,
        )
        position = search.at.get(partition.index)
        if position is None:
            position = await _first_position(partition, search)
        positions[partition.index] = position
        if search.is_backward:
            scans[partition.index] = await scan_back(
                partition, position, budget=share, keep=keep, limit=MESSAGES_A_PAGE
            )
        else:
            end = partition.high_watermark
            position = max(position, partition.log_start_offset)
            scans[partition.index] = await scan(
                partition, position, end, budget=share, keep=keep, limit=MESSAGES_A_PAGE
            )
        scanned += share.scanned
    return _merge(partitions, scans, scanned, is_backward=search.is_backward)


def _merge(partitions: list[Readable], scans: Mapping[int, Any], scanned: int, *, is_backward: bool) -> Page:
    """The first messages of all partitions together in the order of time, which offsets go before."""
    queues = {index: list(reversed(found.messages)) for index, found in scans.items()}
    taken: list[Message] = []
    at = {index: found.next_offset for index, found in scans.items()}
    while len(taken) < MESSAGES_A_PAGE and any(queues.values()):
        heads = [queue[-1] for queue in queues.values() if queue]
        chosen = max(heads, key=_order) if is_backward else min(heads, key=_order)
        taken.append(queues[chosen.partition].pop())
    for index, queue in queues.items():
        if queue:
            # What was read but has no room begins the next page.
            at[index] = queue[-1].offset + 1 if is_backward else queue[-1].offset
    remaining = {
        partition.index: at[partition.index]
        for partition in partitions
        if (
            at[partition.index] > partition.log_start_offset
            if is_backward
            else at[partition.index] < partition.high_watermark
        )
    }
    if remaining:
        remaining = at
    return Page(taken, remaining, scanned, is_cut_short=bool(remaining) and len(taken) < MESSAGES_A_PAGE)


def _order(message: Message) -> tuple[int, int, int]:
    return message.order


async def _first_position(partition: Readable, search: Search) -> int:
    if search.start is Start.NEWEST:
        return partition.high_watermark
    if search.start is Start.OLDEST:
        return partition.log_start_offset
    if search.start is Start.OFFSET:
        return min(max(search.offset, partition.log_start_offset), partition.high_watermark)
    timestamp_ms = parse_time(search.time)
    if timestamp_ms is None:
        return partition.log_start_offset
    found = await partition.offset_at(timestamp_ms)
    return partition.high_watermark if found is None else found


def parse_time(written: str) -> int | None:
    """Milliseconds since 1970 of a date and time (UTC unless it says otherwise), or as they are; None for neither."""
    number = as_integer(written, -1)
    if number >= 0:
        return number
    try:
        moment = datetime.fromisoformat(written.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def _filter(search: Search) -> Callable[[Message], bool]:
    if not search.has_filter:
        return lambda _: True
    key, contained = as_bytes(search.key), as_bytes(search.contains)

    def keep(message: Message) -> bool:
        record = message.record
        if message.header.is_control:
            return False
        if search.key and record.key != key:
            return False
        return not search.contains or contained in (record.value or b"") or contained in (record.key or b"")

    return keep


def as_bytes(written: str) -> bytes:
    """What a person writes for bytes: text, or digits after `0x`."""
    if written.startswith("0x"):
        try:
            return bytes.fromhex(written[2:])
        except ValueError:
            pass
    return written.encode("utf-8", "replace")


def _search(request: Request, topic: TopicImage) -> Search:
    start = next((each for each in Start if each.value == request.query_params.get("start")), Start.NEWEST)
    partition = integer(request, "partition", -1)
    return Search(
        start,
        partition if 0 <= partition < len(topic.partitions) else None,
        max(0, integer(request, "offset", 0)),
        text(request, "time"),
        text(request, "key"),
        text(request, "contains"),
        Format.named(text(request, "format")),
        read_positions(text(request, "at")),
        max(0, integer(request, "first", 0)),
    )


def read_positions(written: str) -> dict[int, int]:
    """`0-17_3-4`: offset 17 of partition 0, offset 4 of partition 3."""
    positions = {}
    for part in written.split("_")[:MAX_PARTITIONS]:
        partition, dash, offset = part.partition("-")
        if dash and as_integer(partition, -1) >= 0 and as_integer(offset, -1) >= 0:
            positions[int(partition)] = int(offset)
    return positions


def write_positions(positions: Mapping[int, int]) -> str:
    """The inverse of `read_positions`."""
    return "_".join(f"{partition}-{offset}" for partition, offset in positions.items())


async def readable_partitions(console: Console, topic: TopicImage, only: int | None, first: int = 0) -> Found:
    """The partitions that can be read, of those that are asked for: one, or 32 of all from the first on."""
    wanted = range(first, len(topic.partitions)) if only is None else (only,)
    return await find_readable(console.broker, topic, wanted, MAX_PARTITIONS)


async def row_of(console: Console, message: Message, format_: Format) -> Row:
    """A message as a row shows it."""
    if message.kind in (Kind.COMMIT, Kind.ABORT, Kind.CONTROL):
        empty = Shown(Format.TEXT, "", 0)
        return Row(message, empty, empty)
    return Row(
        message,
        await decode(message.record.key, Format.AUTO if format_ is Format.JSON else format_, console.schemas),
        await decode(message.record.value, format_, console.schemas),
    )


async def show_value(console: Console, data: bytes | None, format_: Format, limit_bytes: int) -> Shown:
    """Bytes as a message's own page shows them."""
    return await decode(data, format_, console.schemas, limit_bytes)


async def _the_message(console: Console, request: Request) -> tuple[TopicImage, Message] | None:
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return None
    index, offset = (as_integer(request.path_params[name], -1) for name in ("partition", "offset"))
    if not 0 <= index < len(topic.partitions):
        return None
    for partition in (await readable_partitions(console, topic, index)).partitions:
        if not partition.log_start_offset <= offset < partition.high_watermark:
            return None
        try:
            found = await scan(partition, offset, offset + 1, budget=Budget(), keep=lambda _: True, limit=1)
        except (ReplicaError, StorageError, NodeError):
            return None
        if found.messages:
            return topic, found.messages[0]
    return None
