"""Version 2 of the API: consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from ottla.client.offsets import EARLIEST, LATEST, TopicPartition
from ottla.kproto.records import Record
from ottla.rest import consumer_requests as requests
from ottla.rest.access import Right
from ottla.rest.consumers.consumer import Consumer, Delivered
from ottla.rest.errors import KAFKA_ERROR, RestError, format_mismatch, unprocessable
from ottla.rest.http.call import JSON, V2, Call, Handler, Proxy, json_answer, quoted, route
from ottla.rest.limits import MAX_ANSWER_BYTES, MAX_WAIT_MS
from ottla.rest.values import Decode, Format, decoder, schema_decoder
from ottla.schemas import framing
from ottla.schemas.codec import Codec
from ottla.schemas.errors import SchemaError, ValueMismatchError

_EMBEDDED: Final = {f"application/vnd.kafka.{name}.v2+json": form for name, form in requests.FORMS.items()}
_PRODUCED: Final = (V2, *_EMBEDDED, JSON)
_SENT: Final = frozenset({*_PRODUCED, "application/vnd.kafka+json"})
_CONSUMER: Final = "/consumers/{group}/instances/{instance}"
_MAX_DIGITS: Final = 18


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table: dict[str, dict[str, Handler]] = {
        "/consumers/{group}": {"POST": create},
        _CONSUMER: {"DELETE": delete},
        f"{_CONSUMER}/subscription": {"GET": subscription, "POST": subscribe, "DELETE": unsubscribe},
        f"{_CONSUMER}/assignments": {"GET": assignments, "POST": assign},
        f"{_CONSUMER}/offsets": {"GET": committed, "POST": commit},
        f"{_CONSUMER}/positions": {"POST": seek},
        f"{_CONSUMER}/positions/beginning": {"POST": partial(seek_to, timestamp_ms=EARLIEST)},
        f"{_CONSUMER}/positions/end": {"POST": partial(seek_to, timestamp_ms=LATEST)},
    }
    made = [route(proxy, path, methods, _PRODUCED) for path, methods in table.items()]
    # The type that the client accepts decides the format of the records.
    return [*made, route(proxy, f"{_CONSUMER}/records", {"GET": records}, (*_EMBEDDED, V2, JSON))]


async def create(call: Call) -> Any:
    """Make a consumer."""
    group_id = call.part("group")
    call.caller.require_group(group_id)
    name, settings = requests.new_consumer(await _body(call))
    instance = await call.proxy.consumers.create(group_id, name, call.caller.principal, settings)
    base = str(call.request.url.replace(query="")).rstrip("/")
    return {"instance_id": instance, "base_uri": f"{base}/instances/{quoted(instance)}"}


async def delete(call: Call) -> Any:
    """End a consumer, which leaves its group."""
    await call.proxy.consumers.delete(call.part("group"), call.part("instance"), call.caller.principal)
    return _done()


async def subscription(call: Call) -> Any:
    return {"topics": list(_found(call).subscription)}


async def subscribe(call: Call) -> Any:
    """Take part in the group for some topics."""
    topics = requests.topics(await _body(call))
    _require_read(call, topics)
    async with _turn(call) as consumer:
        await consumer.subscribe(topics)
    return _done()


async def unsubscribe(call: Call) -> Any:
    async with _turn(call) as consumer:
        await consumer.subscribe([])
    return _done()


async def assignments(call: Call) -> Any:
    return {"partitions": [it._asdict() for it in _found(call).assignment]}


async def assign(call: Call) -> Any:
    """Read some partitions, independently of the group."""
    parts = requests.partitions(await _body(call))
    _require_read(call, {part.topic for part in parts})
    async with _turn(call) as consumer:
        await consumer.assign(parts)
    return _done()


async def committed(call: Call) -> Any:
    """The committed offsets of some partitions; those without are left out."""
    parts = requests.partitions(await _body(call))
    _require_read(call, {part.topic for part in parts})
    async with _turn(call) as consumer:
        found = await consumer.committed(parts)
    return {"offsets": [{**part._asdict(), **it._asdict()} for part, it in sorted(found.items())]}


async def commit(call: Call) -> Any:
    """Commit some offsets, or without a body where the consumer is. As in Confluent's, an offset is that of the record
    that was read last, and the group goes on behind it.
    """
    data = await _body(call)
    offsets = None
    if data.strip():
        offsets = {part: it._replace(offset=it.offset + 1) for part, it in requests.offsets(data).items()}
        _require_read(call, {part.topic for part in offsets})
    async with _turn(call) as consumer:
        await consumer.commit(offsets)
    return []


async def seek(call: Call) -> Any:
    """Go on at some offsets."""
    offsets = requests.offsets(await _body(call))
    async with _turn(call) as consumer:
        consumer.seek({part: it.offset for part, it in offsets.items()})
    return _done()


async def seek_to(call: Call, timestamp_ms: int) -> Any:
    parts = requests.partitions(await _body(call))
    async with _turn(call) as consumer:
        await consumer.seek_to(parts, timestamp_ms)
    return _done()


async def records(call: Call) -> Any:
    """The next records of the consumer's partitions; the next call goes on behind them."""
    async with _turn(call) as consumer:
        form = _EMBEDDED.get(call.media_type, Format.BINARY)
        if call.media_type in _EMBEDDED and form is not consumer.settings.form:
            accepted = call.request.headers.get("accept", "")
            if "*/*" not in accepted and accepted.strip():
                raise format_mismatch()
        form = consumer.settings.form
        _require_read(call, {part.topic for part in consumer.assignment})
        max_bytes = _number(call, "max_bytes", MAX_ANSWER_BYTES, MAX_ANSWER_BYTES)
        timeout_ms = _number(call, "timeout", consumer.settings.timeout_ms, MAX_WAIT_MS)
        found = await consumer.records(max_bytes, timeout_ms)
        size_bytes = sum(_size(record) for it in found for record in it.records)
        with call.proxy.work.holding() as held:
            held.change(size_bytes)
            codecs = await _codecs(call, found) if form.schema_kind else {}
            shown = await call.proxy.work.do(size_bytes, partial(_shown, found, form, codecs))
            consumer.deliver(found)
            await call.caller.has_consumed(size_bytes)
    media_type = call.media_type if call.media_type not in _EMBEDDED else f"application/vnd.kafka.{form.value}.v2+json"
    return json_answer(shown, 200, media_type)


# What they have in common.


async def _body(call: Call) -> bytes:
    kind = call.content_type()
    if kind and kind not in _SENT:
        raise RestError(415, "HTTP 415 Unsupported Media Type")
    with call.proxy.work.holding() as held:
        return await call.body(held)


def _found(call: Call) -> Consumer:
    return call.proxy.consumers.find(call.part("group"), call.part("instance"), call.caller.principal)


@asynccontextmanager
async def _turn(call: Call) -> AsyncIterator[Consumer]:
    consumer = _found(call)
    call.caller.require_group(call.part("group"))
    async with consumer.turn():
        yield consumer


def _require_read(call: Call, topics: Iterable[str]) -> None:
    for topic in sorted(topics):
        call.caller.require(Right.READ, topic)


def _done() -> Response:
    return Response(status_code=204)


def _number(call: Call, name: str, default: int, most: int) -> int:
    """A parameter of the address; what is not more than 0 is the default."""
    text = call.request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise unprocessable(f"{name} is no number")
    return min(int(text), most) if int(text) > 0 else default


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


async def _codecs(call: Call, found: Sequence[Delivered]) -> Mapping[int, Codec]:
    """The schemas that the records' keys and values name."""
    named = {
        schema_id
        for it in found
        for record in it.records
        for data in (record.key, record.value)
        if data is not None and (schema_id := framing.schema_id(data)) is not None
    }
    codecs = {}
    for schema_id in named:
        try:
            codec = await call.proxy.schemas.codec(schema_id)
        except SchemaError:
            continue  # decoding a record with it reports the error
        if codec is not None:
            codecs[schema_id] = codec
    return codecs


def _shown(found: Sequence[Delivered], form: Format, codecs: Mapping[int, Codec]) -> list[dict[str, Any]]:
    decode: Decode = schema_decoder(codecs, form) if form.schema_kind else decoder(form)
    return [
        {
            "topic": part.topic,
            "key": _part(part, record, record.key, decode),
            "value": _part(part, record, record.value, decode),
            "partition": part.partition,
            "offset": record.offset,
        }
        for part, records in found
        for record in records
    ]


def _part(part: TopicPartition, record: Record, data: bytes | None, decode: Decode) -> Any:
    if data is None:
        return None
    try:
        return decode(data)
    except ValueMismatchError as error:
        what = f"Kafka error: {part} at offset {record.offset} cannot be shown: {error}. Go on behind it by positions"
        raise RestError(KAFKA_ERROR, what) from None
