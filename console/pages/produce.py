"""One message written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.nodes import NodeError, ask
from ottla.console.parameters import as_integer
from ottla.console.readable import led_elsewhere
from ottla.console.rendering import url
from ottla.console.search import as_bytes
from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import Record, build_batch
from ottla.server.replica.append import Records, TopicIdPartition

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.server.metadata.image import TopicImage

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
    )
    try:
        partition, offset = await _produce(console, topic, draft)
    except ProduceError as error:
        return await _form(console, request, topic, draft, str(error), 422)
    # A page that is loaded again must not write again.
    return RedirectResponse(url("topics", topic.name, "messages", str(partition), str(offset), sent="1"), 303)


async def _form(
    console: Console, request: Request, topic: TopicImage, draft: Draft, problem: str = "", status: int = 200
) -> Response:
    return await console.renderer.page(
        request, "produce.html", status=status, section="topics", topic=topic, draft=draft, problem=problem
    )


async def _produce(console: Console, topic: TopicImage, draft: Draft) -> tuple[int, int]:
    """Write the message and return its partition and offset. Raises ProduceError."""
    if topic.is_internal:
        raise ProduceError(f"{topic.name} belongs to the broker; nobody else writes to it.")
    key = as_bytes(draft.key) if draft.key else None
    partition = _partition(topic, draft, key)
    record = Record(0, console.broker.clock.time_ms(), key, _value(draft), _headers(draft.headers))
    where = TopicIdPartition(topic.topic_id, partition)
    try:
        batch = build_batch([record])
    except ProtocolError as error:
        raise ProduceError(str(error)) from None
    leader = led_elsewhere(console.broker, topic, partition)
    if leader is not None:
        return partition, await _produce_there(console, topic, partition, leader, batch)
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


def _value(draft: Draft) -> bytes | None:
    if draft.is_null_value:
        return None
    text = draft.value.replace("\r\n", "\n")
    if draft.encoding == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ProduceError("The value does not consist of hexadecimal digits.") from None
    if draft.encoding == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProduceError(f"The value is not JSON: {error}.") from None
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
