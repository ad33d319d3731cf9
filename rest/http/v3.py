"""Version 3 of the API: clusters, brokers, topics and partitions, and records to append one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.routing import Route

from ottla.kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.rest.access import Right
from ottla.rest.errors import RestError
from ottla.rest.http.call import JSON, Call, Proxy, route
from ottla.rest.http.stream import produce

_PRODUCED: Final = (JSON,)
_MAX_NUMBER_LENGTH: Final = 10
_CLUSTER: Final = "/v3/clusters/{cluster}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table = {
        "/v3/clusters": {"GET": clusters},
        _CLUSTER: {"GET": cluster},
        f"{_CLUSTER}/brokers": {"GET": brokers},
        f"{_CLUSTER}/brokers/{{broker}}": {"GET": broker},
        f"{_CLUSTER}/topics": {"GET": topics},
        _TOPIC: {"GET": topic},
        f"{_TOPIC}/partitions": {"GET": partitions},
        f"{_TOPIC}/partitions/{{partition}}": {"GET": partition},
        f"{_TOPIC}/records": {"POST": records},
    }
    return [route(proxy, path, methods, _PRODUCED) for path, methods in table.items()]


async def clusters(call: Call) -> Any:
    """The one cluster."""
    found = await call.proxy.cluster.metadata([])
    return _list(call, "KafkaClusterList", "/v3/clusters", [_cluster(call, found)])


async def cluster(call: Call) -> Any:
    return _cluster(call, await _known(call, []))


async def brokers(call: Call) -> Any:
    found = await _known(call, [])
    shown = [_broker(call, found, it) for it in sorted(found.brokers, key=lambda it: it.node_id)]
    return _list(call, "KafkaBrokerList", f"{_path(found)}/brokers", shown)


async def broker(call: Call) -> Any:
    found = await _known(call, [])
    number = _number(call.part("broker"))
    for it in found.brokers:
        if it.node_id == number:
            return _broker(call, found, it)
    raise RestError(404, "HTTP 404 Not Found")


async def topics(call: Call) -> Any:
    """The topics that the caller may describe."""
    found = await _known(call, None)
    seen = [it for it in found.topics if it.name and call.caller.may(Right.DESCRIBE, it.name)]
    shown = [_topic(call, found, it) for it in sorted(seen, key=lambda it: it.name or "")]
    return _list(call, "KafkaTopicList", f"{_path(found)}/topics", shown)


async def topic(call: Call) -> Any:
    return _topic(call, *await _described(call))


async def partitions(call: Call) -> Any:
    found, state = await _described(call)
    shown = [_partition(call, found, state, it) for it in sorted(state.partitions, key=lambda it: it.partition_index)]
    return _list(call, "KafkaPartitionList", f"{_topic_path(found, state)}/partitions", shown)


async def partition(call: Call) -> Any:
    found, state = await _described(call)
    number = _number(call.part("partition"))
    for it in state.partitions:
        if it.partition_index == number:
            return _partition(call, found, state, it)
    raise RestError(404, "HTTP 404 Not Found")


async def records(call: Call) -> Any:
    """Append records, each answered in its turn."""
    name = call.part("topic")
    if call.content_type() != JSON:
        raise RestError(415, "HTTP 415 Unsupported Media Type")
    call.caller.require(Right.WRITE, name)
    found = await _known(call, [])
    await call.proxy.cluster.topic(name, create=call.caller.may_create(name))
    return produce(call, found.cluster_id or "", name)


async def _known(call: Call, names: list[str] | None) -> MetadataResponse:
    """The cluster in the address. Raises RestError 404."""
    found = await call.proxy.cluster.metadata(names)
    if call.part("cluster") != found.cluster_id:
        raise RestError(404, "HTTP 404 Not Found")
    return found


async def _described(call: Call) -> tuple[MetadataResponse, MetadataResponseTopic]:
    found = await _known(call, [])
    call.caller.require(Right.DESCRIBE, call.part("topic"))
    return found, await call.proxy.cluster.topic(call.part("topic"))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_LENGTH):
        raise RestError(404, "HTTP 404 Not Found")
    return int(text)


# How things are shown.


def _url(call: Call, path: str) -> str:
    return str(call.request.base_url).rstrip("/") + path


def _path(found: MetadataResponse) -> str:
    return f"/v3/clusters/{found.cluster_id}"


def _topic_path(found: MetadataResponse, state: MetadataResponseTopic) -> str:
    return f"{_path(found)}/topics/{state.name}"


def _related(call: Call, path: str) -> dict[str, str]:
    return {"related": _url(call, path)}


def _metadata(call: Call, path: str, *resource: tuple[str, object]) -> dict[str, str]:
    name = "/".join(f"{kind}={it}" for kind, it in resource)
    return {"self": _url(call, path), "resource_name": f"crn:///{name}"}


def _list(call: Call, kind: str, path: str, data: Iterable[Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"self": _url(call, path), "next": None}, "data": list(data)}


def _cluster(call: Call, found: MetadataResponse) -> dict[str, Any]:
    path = _path(found)
    return {
        "kind": "KafkaCluster",
        "metadata": _metadata(call, path, ("kafka", found.cluster_id)),
        "cluster_id": found.cluster_id,
        "controller": _related(call, f"{path}/brokers/{found.controller_id}"),
        "brokers": _related(call, f"{path}/brokers"),
        "topics": _related(call, f"{path}/topics"),
    }


def _broker(call: Call, found: MetadataResponse, state: MetadataResponseBroker) -> dict[str, Any]:
    path = f"{_path(found)}/brokers/{state.node_id}"
    return {
        "kind": "KafkaBroker",
        "metadata": _metadata(call, path, ("kafka", found.cluster_id), ("broker", state.node_id)),
        "cluster_id": found.cluster_id,
        "broker_id": state.node_id,
        "host": state.host,
        "port": state.port,
        "rack": state.rack,
    }


def _topic(call: Call, found: MetadataResponse, state: MetadataResponseTopic) -> dict[str, Any]:
    path = _topic_path(found, state)
    return {
        "kind": "KafkaTopic",
        "metadata": _metadata(call, path, ("kafka", found.cluster_id), ("topic", state.name)),
        "cluster_id": found.cluster_id,
        "topic_name": state.name,
        "is_internal": state.is_internal,
        "replication_factor": len(state.partitions[0].replica_nodes) if state.partitions else 0,
        "partitions_count": len(state.partitions),
        "partitions": _related(call, f"{path}/partitions"),
    }


def _partition(
    call: Call, found: MetadataResponse, topic_state: MetadataResponseTopic, state: MetadataResponsePartition
) -> dict[str, Any]:
    path = f"{_topic_path(found, topic_state)}/partitions/{state.partition_index}"
    resource = ("kafka", found.cluster_id), ("topic", topic_state.name), ("partition", state.partition_index)
    return {
        "kind": "KafkaPartition",
        "metadata": _metadata(call, path, *resource),
        "cluster_id": found.cluster_id,
        "topic_name": topic_state.name,
        "partition_id": state.partition_index,
        "leader": _related(call, f"{_path(found)}/brokers/{state.leader_id}"),
    }
