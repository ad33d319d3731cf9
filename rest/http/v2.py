"""Version 2 of the API: topics, partitions, brokers, and records to append."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.routing import Route

from ottla.client.offsets import EARLIEST, LATEST
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.rest.access import Right
from ottla.rest.errors import RestError, partition_not_found, topic_not_found
from ottla.rest.http.call import JSON, V2, Call, Proxy, route
from ottla.rest.producing import Outcome
from ottla.rest.requests import ProduceBody, produce_body
from ottla.rest.schemas import Encoder, SchemaGiven, encoder_by_schema
from ottla.rest.values import Format, encoder

_PRODUCED: Final = (V2, "application/vnd.kafka+json", JSON)
_FORMS: Final = {
    f"application/vnd.kafka.{form.value}.v2+json": form
    for form in (Format.BINARY, Format.JSON, Format.AVRO, Format.JSON_SCHEMA, Format.PROTOBUF)
} | dict.fromkeys((V2, "application/vnd.kafka+json", JSON), Format.BINARY)
_MAX_NUMBER_LENGTH: Final = 10


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table = {
        "/topics": {"GET": topics},
        "/topics/{topic}": {"GET": topic, "POST": produce},
        "/topics/{topic}/partitions": {"GET": partitions},
        "/topics/{topic}/partitions/{partition}": {"GET": partition, "POST": produce},
        "/topics/{topic}/partitions/{partition}/offsets": {"GET": offsets},
        "/brokers": {"GET": brokers},
    }
    return [route(proxy, path, methods, _PRODUCED) for path, methods in table.items()]


async def topics(call: Call) -> Any:
    """The names of the topics that the caller may describe."""
    found = (await call.proxy.cluster.metadata(None)).topics
    return sorted(it.name for it in found if it.name and call.caller.may(Right.DESCRIBE, it.name))


async def topic(call: Call) -> Any:
    """One topic with its settings and partitions."""
    found = await _described(call)
    call.caller.require(Right.SEE_SETTINGS, call.part("topic"))
    configs = await call.proxy.cluster.topic_configs(call.part("topic"))
    return {"name": found.name, "configs": configs, "partitions": [_shown(it) for it in _in_order(found)]}


async def partitions(call: Call) -> Any:
    """The partitions of a topic."""
    return [_shown(it) for it in _in_order(await _described(call))]


async def partition(call: Call) -> Any:
    """One partition."""
    return _shown(await _partition(call))


async def offsets(call: Call) -> Any:
    """The first and the end offset of a partition."""
    index = (await _partition(call)).partition_index
    name, cluster = call.part("topic"), call.proxy.cluster
    beginning = await cluster.offset_at(name, index, EARLIEST)
    return {"beginning_offset": beginning, "end_offset": await cluster.offset_at(name, index, LATEST)}


async def brokers(call: Call) -> Any:
    """The ids of the brokers."""
    return {"brokers": sorted(it.node_id for it in (await call.proxy.cluster.metadata([])).brokers)}


async def produce(call: Call) -> Any:
    """Append records to a topic, or to one of its partitions."""
    name, proxy = call.part("topic"), call.proxy
    form = _FORMS.get(call.content_type())
    if form is None:
        raise RestError(415, "HTTP 415 Unsupported Media Type")
    index = _number(call.part("partition")) if "partition" in call.request.path_params else None
    call.caller.require(Right.WRITE, name)
    with proxy.work.holding() as held:
        data = await call.body(held)
        body = await proxy.work.do(len(data), partial(produce_body, data, form))
        keys = await _encoder(call, form, "key", body.key_schema)
        values = await _encoder(call, form, "value", body.value_schema)
        encode = partial(ProduceBody.encoded, body, keys.encode, values.encode, index, proxy.now_ms())
        records = await proxy.work.do(len(data), encode)
        found = await proxy.cluster.topic(name, create=call.caller.may_create(name))
        outcomes = await proxy.producing.append(name, len(found.partitions), records)
        await call.caller.has_produced(len(data))
    return {
        "offsets": [_outcome(it) for it in outcomes],
        "key_schema_id": keys.schema_id,
        "value_schema_id": values.schema_id,
    }


async def _encoder(call: Call, form: Format, part: str, given: SchemaGiven | None) -> Encoder:
    if form.schema_kind is None:
        return Encoder(encoder(form), None)
    if given is None:
        return Encoder(encoder(Format.JSON), None)  # of nulls alone
    return await encoder_by_schema(call.proxy.schemas, call.caller, f"{call.part('topic')}-{part}", form, given)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, RestError):
        return {"partition": None, "offset": None, "error_code": outcome.code, "error": outcome.message}
    return {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}


async def _described(call: Call) -> MetadataResponseTopic:
    call.caller.require(Right.DESCRIBE, call.part("topic"))
    return await call.proxy.cluster.topic(call.part("topic"))


async def _partition(call: Call) -> MetadataResponsePartition:
    index = _number(call.part("partition"))
    for state in (await _described(call)).partitions:
        if state.partition_index == index:
            return state
    raise partition_not_found()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_LENGTH):
        raise RestError(404, "HTTP 404 Not Found")
    return int(text)


def _in_order(found: MetadataResponseTopic) -> list[MetadataResponsePartition]:
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic_not_found()
    return sorted(found.partitions, key=lambda state: state.partition_index)


def _shown(state: MetadataResponsePartition) -> dict[str, Any]:
    replicas = [
        {"broker": it, "leader": it == state.leader_id, "in_sync": it in state.isr_nodes} for it in state.replica_nodes
    ]
    return {"partition": state.partition_index, "leader": state.leader_id, "replicas": replicas}
