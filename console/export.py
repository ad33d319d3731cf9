"""The results of a search as a file: JSON lines or CSV, produced while it is sent, and limited in size."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.recording import readable
from ottla.console.formatting import iso
from ottla.console.messages.decoding import Tree, tree_of
from ottla.console.messages.paging import find, readable_partitions
from ottla.console.messages.reading import Kind
from ottla.console.messages.times import TimeError
from ottla.console.nodes import NodeError
from ottla.kproto.errors import ProtocolError
from ottla.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.messages.reading import Keep, Message
    from ottla.console.messages.search import Search
    from ottla.metadata.image import TopicImage

MAX_MESSAGES: Final = 10_000
MAX_BYTES: Final = 256 * 1_048_576
MAX_SECONDS: Final = 120.0
_INLINE_BYTES: Final = 16_384
"""Messages up to this size are written on the loop."""

COLUMNS: Final = ("partition", "offset", "time", "key", "value", "headers", "kind")


class FileFormat(Enum):
    """The format of the file, by the ending of its name."""

    JSON_LINES = "jsonl"
    CSV = "csv"

    @property
    def media_type(self) -> str:
        return "text/csv; charset=utf-8" if self is FileFormat.CSV else "application/jsonl"


async def exported(
    console: Console,
    topic: TopicImage,
    search: Search,
    keep: Keep,
    format_: FileFormat,
    may_look: Callable[[], bool] = lambda: True,
) -> AsyncGenerator[bytes, None]:
    """Everything that a search finds, starting where its page begins, in the order of its pages.

    If a file ends before the search does, its last line says so, and why: MAX_MESSAGES, MAX_BYTES or MAX_SECONDS was
    reached, a partition cannot be read, or the visitor may no longer look.
    """
    line_of = _csv_line if format_ is FileFormat.CSV else _json_line
    if format_ is FileFormat.CSV:
        yield _csv(COLUMNS)
    ends_at = trio.current_time() + MAX_SECONDS
    left, room = MAX_MESSAGES, MAX_BYTES
    first: int | None = 0 if search.partition is not None else search.first
    why = ""
    while first is not None and not why:
        try:
            partitions, following, problems = await readable_partitions(console.broker, topic, search.partition, first)
            page = await find(console.broker, partitions, search, keep)
        except (ReplicaError, StorageError, ProtocolError, NodeError, TimeError) as error:
            why = str(error)
            break
        if problems:
            why = " ".join(problems)
        for message in page.messages[:left]:
            line = await line_of(console, topic, message)
            room -= len(line)
            yield line
        left -= len(page.messages)
        is_over = not page.at and following is None and left >= 0
        if not is_over and left <= 0:
            why = f"{MAX_MESSAGES:,} messages are the most that a file has"
        elif not is_over and room <= 0:
            why = f"{MAX_BYTES:,} bytes are the most that a file has"
        elif not is_over and trio.current_time() >= ends_at:
            why = f"it was not at its end after {MAX_SECONDS:.0f} seconds"
        elif not may_look():
            why = "the right to read the topic was taken away, or the session has ended"
        first = first if page.at else following
        search = search._replace(at=page.at)
    if why:
        yield _end_line(format_, f"cut: {why}")


async def _json_line(console: Console, topic: TopicImage, message: Message) -> bytes:
    """An object with the names of `ottla record`; what a schema decodes is also in `decoded`."""
    record = message.record
    line: dict[str, Any] = {
        "topic": topic.name,
        "partition": message.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    if message.kind is not Kind.RECORD:
        line["kind"] = message.kind.value
    tree = await _value_tree(console, topic, message)

    def write() -> bytes:
        line["key"], line["value"] = readable(record.key), readable(record.value)
        if tree is not None and tree.note:
            line["decoded"] = tree.value
        if record.headers:
            line["headers"] = [[name, readable(value)] for name, value in record.headers]
        return json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"

    return await _written(write, message)


async def _csv_line(console: Console, topic: TopicImage, message: Message) -> bytes:
    """Text as it is, what a schema decodes as JSON, other bytes as digits after `0x`."""
    record = message.record
    tree = await _value_tree(console, topic, message)

    def write() -> bytes:
        decoded = tree is not None and tree.note
        value = json.dumps(tree.value, ensure_ascii=False) if tree is not None and decoded else _cell(record.value)
        headers = json.dumps([[name, readable(value)] for name, value in record.headers], ensure_ascii=False)
        time = iso(record.timestamp_ms) or str(record.timestamp_ms)
        kind = message.kind.value
        return _csv((message.partition, record.offset, time, _cell(record.key), value, headers, kind))

    return await _written(write, message)


async def _value_tree(console: Console, topic: TopicImage, message: Message) -> Tree | None:
    if message.kind not in (Kind.RECORD, Kind.ABORTED, Kind.OPEN) or message.record.value is None:
        return None
    schemas = console.schemas
    return await tree_of(message.record.value, schemas, schemas.value_type(topic.name))


async def _written(write: Callable[[], bytes], message: Message) -> bytes:
    record = message.record
    size_bytes = (
        len(record.key or b"") + len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
    )
    if size_bytes <= _INLINE_BYTES:
        return write()
    return await trio.to_thread.run_sync(write, abandon_on_cancel=True)


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _csv(cells: tuple[Any, ...]) -> bytes:
    line = StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode("utf-8", "replace")


def _end_line(format_: FileFormat, text: str) -> bytes:
    if format_ is FileFormat.CSV:
        return _csv((f"# {text}",))
    return json.dumps({"export": text}).encode() + b"\n"
