"""Version 3 of the API: clusters, brokers, topics and partitions, and records to append one after the other."""

from __future__ import annotations

from typing import Any, Final

from starlette.routing import Route

from ottla.kproto.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.rest.access import Right
from ottla.rest.errors import RestError
from ottla.rest.http.call import JSON, Call, Proxy, route
from ottla.rest.http.stream import produce
from ottla.rest.http.v3_answers import (
    CLUSTER,
    TOPIC,
    cluster_path,
    described,
    known,
    listed,
    not_found,
    number_of,
    related,
    resource,
    topic_path,
)

_PRODUCED: Final = (JSON,)


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table = {
        "/v3/clusters": {"GET": clusters},
        CLUSTER: {"GET": cluster},
        f"{CLUSTER}/brokers": {"GET": brokers},
        f"{CLUSTER}/brokers/{{broker}}": {"GET": broker},
        f"{CLUSTER}/topics": {"GET": topics},
        TOPIC: {"GET": topic},
        f"{TOPIC}/partitions": {"GET": partitions},
        f"{TOPIC}/partitions/{{partition}}": {"GET": partition},
        f"{TOPIC}/records": {"POST": records},
    }
    return [route(proxy, path, methods, _PRODUCED) for path, methods in table.items()]


async def clusters(call: Call) -> Any:
    """The one cluster."""
    found = await call.proxy.cluster.metadata([])
    return listed(call, "KafkaClusterList", "/v3/clusters", [_cluster(call, found)])


async def cluster(call: Call) -> Any:
    return _cluster(call, await known(call, []))


async def brokers(call: Call) -> Any:
    found = await known(call, [])
    shown = [_broker(call, found, it) for it in sorted(found.brokers, key=lambda it: it.node_id)]
    return listed(call, "KafkaBrokerList", f"{cluster_path(found)}/brokers", shown)


async def broker(call: Call) -> Any:
    found = await known(call, [])
    number = number_of(call.part("broker"))
    for it in found.brokers:
        if it.node_id == number:
            return _broker(call, found, it)
    raise not_found()


async def topics(call: Call) -> Any:
    """The topics that the caller may describe."""
    found = await known(call, None)
    seen = [it for it in found.topics if it.name and call.caller.may(Right.DESCRIBE, it.name)]
    shown = [_topic(call, found, it) for it in sorted(seen, key=lambda it: it.name or "")]
    return listed(call, "KafkaTopicList", f"{cluster_path(found)}/topics", shown)


async def topic(call: Call) -> Any:
    return _topic(call, *await described(call))


async def partitions(call: Call) -> Any:
    found, state = await described(call)
    shown = [_partition(call, found, state, it) for it in sorted(state.partitions, key=lambda it: it.partition_index)]
    return listed(call, "KafkaPartitionList", f"{topic_path(found, state)}/partitions", shown)


async def partition(call: Call) -> Any:
    found, state = await described(call)
    number = number_of(call.part("partition"))
    for it in state.partitions:
        if it.partition_index == number:
            return _partition(call, found, state, it)
    raise not_found()


async def records(call: Call) -> Any:
    """Append records, each answered in its turn."""
    name = call.part("topic")
    if call.content_type() != JSON:
        raise RestError(415, "HTTP 415 Unsupported Media Type")
    call.caller.require(Right.WRITE, name)
    found = await known(call, [])
    await call.proxy.cluster.topic(name, create=call.caller.may_create(name))
    return produce(call, found.cluster_id or "", name)


def _cluster(call: Call, found: MetadataResponse) -> dict[str, Any]:
    path = cluster_path(found)
    return {
        "kind": "KafkaCluster",
        "metadata": resource(call, path, ("kafka", found.cluster_id)),
        "cluster_id": found.cluster_id,
        "controller": related(call, f"{path}/brokers/{found.controller_id}"),
        "brokers": related(call, f"{path}/brokers"),
        "topics": related(call, f"{path}/topics"),
        "consumer_groups": related(call, f"{path}/consumer-groups"),
    }


def _broker(call: Call, found: MetadataResponse, state: MetadataResponseBroker) -> dict[str, Any]:
    path = f"{cluster_path(found)}/brokers/{state.node_id}"
    return {
        "kind": "KafkaBroker",
        "metadata": resource(call, path, ("kafka", found.cluster_id), ("broker", state.node_id)),
        "cluster_id": found.cluster_id,
        "broker_id": state.node_id,
        "host": state.host,
        "port": state.port,
        "rack": state.rack,
    }


def _topic(call: Call, found: MetadataResponse, state: MetadataResponseTopic) -> dict[str, Any]:
    path = topic_path(found, state)
    return {
        "kind": "KafkaTopic",
        "metadata": resource(call, path, ("kafka", found.cluster_id), ("topic", state.name)),
        "cluster_id": found.cluster_id,
        "topic_name": state.name,
        "is_internal": state.is_internal,
        "replication_factor": len(state.partitions[0].replica_nodes) if state.partitions else 0,
        "partitions_count": len(state.partitions),
        "partitions": related(call, f"{path}/partitions"),
        "configs": related(call, f"{path}/configs"),
    }


def _partition(
    call: Call, found: MetadataResponse, topic_state: MetadataResponseTopic, state: MetadataResponsePartition
) -> dict[str, Any]:
    path = f"{topic_path(found, topic_state)}/partitions/{state.partition_index}"
    parts = ("kafka", found.cluster_id), ("topic", topic_state.name), ("partition", state.partition_index)
    return {
        "kind": "KafkaPartition",
        "metadata": resource(call, path, *parts),
        "cluster_id": found.cluster_id,
        "topic_name": topic_state.name,
        "partition_id": state.partition_index,
        "leader": related(call, f"{cluster_path(found)}/brokers/{state.leader_id}"),
    }
