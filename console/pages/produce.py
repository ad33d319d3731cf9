"""Messages written by hand: one, or one for each line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.messages.readable import led_elsewhere
from ottla.console.messages.search import as_bytes
from ottla.console.nodes import NodeError, ask
from ottla.console.parameters import as_integer
from ottla.console.rendering import url
from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import Record, build_batch
from ottla.replica.append import Records, TopicIdPartition
from ottla.storage.errors import RefusedRecordsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.metadata.image import TopicImage

MAX_LINES: Final = 1_000
"""Messages of one form: building their batch holds the loop."""

_TIMEOUT_MS: Final = 10_000


class ProduceError(Exception):
    """The message cannot be sent; the text is for the form."""


class Draft(NamedTuple):
    """The form's fields as they were written."""

    partition: str = ""
    key: str = ""
    value: str = ""
    headers: str = ""
    encoding: str = "text"
    is_null_value: bool = False
    is_by_line: bool = False


async def show(console: Console, request: Request) -> Response:
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    if request.method == "GET":
        return await _form(console, request, topic, Draft())
    try:
        fields = await read_form(request, console.renderer.tokens)
    except FormError as error:
        return await _form(console, request, topic, Draft(), str(error), error.status)
    draft = Draft(
        fields.get("partition", ""),
        fields.get("key", ""),
        fields.get("value", ""),
        fields.get("headers", ""),
        fields.get("encoding", "text"),
        fields.get("null_value") == "1",
        fields.get("by_line") == "1",
    )
    try:
        values = _values(draft)
        partition, offset = await _produce(console, topic, draft, values)
    except ProduceError as error:
        return await _form(console, request, topic, draft, str(error), 422)
    # A page that is loaded again must not write again.
    return RedirectResponse(
        url("topics", topic.name, "messages", str(partition), str(offset), sent=str(len(values))), 303
    )


async def _form(
    console: Console, request: Request, topic: TopicImage, draft: Draft, problem: str = "", status: int = 200
) -> Response:
    return await console.renderer.page(
        request, "produce.html", status=status, section="topics", topic=topic, draft=draft, problem=problem
    )


async def _produce(
    console: Console, topic: TopicImage, draft: Draft, values: Sequence[bytes | None]
) -> tuple[int, int]:
    """Write a message for each value, all of them or none; returns the partition and the first offset. Raises
    ProduceError.
    """
    if topic.is_internal:
        raise ProduceError(f"{topic.name} belongs to the broker; nobody else writes to it.")
    key = as_bytes(draft.key) if draft.key else None
    partition = _partition(topic, draft, key)
    now_ms, headers = console.broker.clock.time_ms(), _headers(draft.headers)
    records = [Record(number, now_ms, key, value, headers) for number, value in enumerate(values)]
    where = TopicIdPartition(topic.topic_id, partition)
    try:
        batch = build_batch(records)
    except ProtocolError as error:
        raise ProduceError(str(error)) from None
    leader = led_elsewhere(console.broker, topic, partition)
    if leader is not None:
        return partition, await _produce_there(console, topic, partition, leader, batch)
    rule = console.broker.schema_validation.rules.get(topic.topic_id)
    try:
        if rule is not None:
            await console.broker.schema_validation.require(rule, batch)
    except RefusedRecordsError as error:
        raise ProduceError(f"The broker refused it: {error}") from None
    results = await console.broker.replica_manager.append(
        {where: Records(memoryview(bytearray(batch)))}, required_acks=-1, timeout_ms=_TIMEOUT_MS
    )
    result = results[where]
    if result.error is not None:
        raise ProduceError(f"The broker refused it: {result.error}")
    return partition, result.base_offset


async def _produce_there(console: Console, topic: TopicImage, partition: int, leader: int, batch: bytes) -> int:
    """Send the message to its leader; returns its offset. Raises ProduceError."""
    data = TopicProduceData(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
    try:
        answer = await ask(console.broker, leader, request, seconds=_TIMEOUT_MS / 1000)
    except NodeError as error:
        raise ProduceError(str(error)) from None
    (result,) = (each for topic in answer.responses for each in topic.partition_responses)
    if result.error_code:
        why = result.error_message or ErrorCode.name_of(result.error_code)
        raise ProduceError(f"Node {leader} refused it: {why}")
    return int(result.base_offset)


def _partition(topic: TopicImage, draft: Draft, key: bytes | None) -> int:
    count = len(topic.partitions)
    if not draft.partition:
        return partition_for_key(key, count) if key is not None else 0
    chosen = as_integer(draft.partition, -1)
    if not 0 <= chosen < count:
        raise ProduceError(f"{topic.name} has partitions 0 to {count - 1}.")
    return chosen


def _values(draft: Draft) -> list[bytes | None]:
    """The value of each message. Raises ProduceError, which names the line that is wrong."""
    if draft.is_null_value:
        return [None]
    text = draft.value.replace("\r\n", "\n")
    if not draft.is_by_line:
        return [_value(text, draft.encoding, "The value")]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not 0 < len(lines) <= MAX_LINES:
        raise ProduceError(f"Write 1 to {MAX_LINES:,} lines; these are {len(lines):,}.")
    return [_value(line, draft.encoding, f"Line {number}") for number, line in lines]


def _value(text: str, encoding: str, what: str) -> bytes:
    if encoding == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ProduceError(f"{what} does not consist of hexadecimal digits.") from None
    if encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProduceError(f"{what} is not JSON: {error}.") from None
    return text.encode("utf-8", "replace")


def _headers(written: str) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for line in written.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise ProduceError(f"The header {line!r} has no colon: write name: value.")
        headers.append((name.strip(), value.strip().encode("utf-8", "replace")))
    return headers
