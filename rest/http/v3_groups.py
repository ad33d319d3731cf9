"""Consumer groups, their members and their lag, by version 3 of the API."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.routing import Route

from ottla.client.admin.group_state import Group, Member
from ottla.client.offsets import TopicPartition
from ottla.rest.access import Right
from ottla.rest.errors import NOT_AUTHORIZED, RestError
from ottla.rest.groups import Lag
from ottla.rest.http.call import JSON, Call, Proxy, quoted, route
from ottla.rest.http.v3_answers import CLUSTER, known, listed, not_found, number_of, related, resource

_GROUP: Final = f"{CLUSTER}/consumer-groups/{{group}}"
_CONSUMER: Final = f"{_GROUP}/consumers/{{consumer}}"
_INNER_CAPITAL: Final = re.compile("(?<=[a-z])(?=[A-Z])")


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table = {
        f"{CLUSTER}/consumer-groups": {"GET": groups},
        _GROUP: {"GET": group},
        f"{_GROUP}/consumers": {"GET": consumers},
        _CONSUMER: {"GET": consumer},
        f"{_CONSUMER}/assignments": {"GET": assignments},
        f"{_GROUP}/lags": {"GET": lags},
        f"{_GROUP}/lags/{{topic}}/{{partition}}": {"GET": lag},
        f"{_GROUP}/lag-summary": {"GET": lag_summary},
    }
    return [route(proxy, path, methods, (JSON,)) for path, methods in table.items()]


async def groups(call: Call) -> Any:
    """The groups that the caller may describe."""
    await known(call, [])
    found = await call.proxy.groups.all(call.caller.may_see_group)
    path = f"/v3/clusters/{call.part('cluster')}/consumer-groups"
    return listed(call, "KafkaConsumerGroupList", path, [_group(call, it) for it in found])


async def group(call: Call) -> Any:
    return _group(call, await _found(call))


async def consumers(call: Call) -> Any:
    found = await _found(call)
    shown = [_consumer(call, it) for it in sorted(found.members, key=lambda it: it.member_id)]
    return listed(call, "KafkaConsumerList", f"{_path(call)}/consumers", shown)


async def consumer(call: Call) -> Any:
    return _consumer(call, await _member(call))


async def assignments(call: Call) -> Any:
    """The partitions that a member has, of topics that the caller may describe."""
    member = await _member(call)
    seen = [part for part in member.assignment if call.caller.may(Right.DESCRIBE, part.topic)]
    path = f"{_path(call)}/consumers/{quoted(member.member_id)}/assignments"
    return listed(call, "KafkaConsumerAssignmentList", path, [_assignment(call, path, part) for part in seen])


async def lags(call: Call) -> Any:
    """The group's lag in each partition of topics that the caller may describe."""
    found = await _lags(call)
    return listed(call, "KafkaConsumerLagList", f"{_path(call)}/lags", [_lag(call, it) for it in found])


async def lag(call: Call) -> Any:
    wanted = TopicPartition(call.part("topic"), number_of(call.part("partition")))
    for it in await _lags(call):
        if it.partition == wanted:
            return _lag(call, it)
    raise not_found()


async def lag_summary(call: Call) -> Any:
    """The group's total lag, and the partition with the largest."""
    found = await _lags(call)
    if not found:
        raise not_found()
    most = max(found, key=lambda it: it.lag)
    cluster, path = call.part("cluster"), _path(call)
    return {
        "kind": "KafkaConsumerGroupLagSummary",
        "metadata": resource(
            call, f"{path}/lag-summary", ("kafka", cluster), ("consumer-group", call.part("group")), ("lag-summary", "")
        ),
        "cluster_id": cluster,
        "consumer_group_id": call.part("group"),
        "max_lag_consumer_id": "" if most.member is None else most.member.member_id,
        "max_lag_instance_id": None if most.member is None else most.member.instance_id,
        "max_lag_client_id": "" if most.member is None else most.member.client_id,
        "max_lag_topic_name": most.partition.topic,
        "max_lag_partition_id": most.partition.partition,
        "max_lag": most.lag,
        "total_lag": sum(it.lag for it in found),
        "max_lag_consumer": related(
            call, f"{path}/consumers/{'' if most.member is None else quoted(most.member.member_id)}"
        ),
        "max_lag_partition": related(call, _partition_path(call, most.partition)),
    }


async def _found(call: Call) -> Group:
    await known(call, [])
    name = call.part("group")
    if not call.caller.may_see_group(name):
        raise RestError(NOT_AUTHORIZED, f"{call.caller.principal} may not describe group {name}")
    found = await call.proxy.groups.find(name)
    if found is None:
        raise not_found()
    return found


async def _member(call: Call) -> Member:
    for member in (await _found(call)).members:
        if member.member_id == call.part("consumer"):
            return member
    raise not_found()


async def _lags(call: Call) -> list[Lag]:
    found = await _found(call)
    return await call.proxy.groups.lags(found, lambda topic: call.caller.may(Right.DESCRIBE, topic))


# How things are shown.


def _path(call: Call) -> str:
    return f"/v3/clusters/{call.part('cluster')}/consumer-groups/{quoted(call.part('group'))}"


def _partition_path(call: Call, part: TopicPartition) -> str:
    return f"/v3/clusters/{call.part('cluster')}/topics/{part.topic}/partitions/{part.partition}"


def _group(call: Call, state: Group) -> dict[str, Any]:
    cluster = call.part("cluster")
    path = f"/v3/clusters/{cluster}/consumer-groups/{quoted(state.group_id)}"
    return {
        "kind": "KafkaConsumerGroup",
        "metadata": resource(call, path, ("kafka", cluster), ("consumer-group", state.group_id)),
        "cluster_id": cluster,
        "consumer_group_id": state.group_id,
        # It has no members: clients only commit offsets for it.
        "is_simple": state.group_type == "classic" and not state.members and not state.assignor,
        "partition_assignor": state.assignor,
        "state": _INNER_CAPITAL.sub("_", state.state).upper(),
        "coordinator": related(call, f"/v3/clusters/{cluster}/brokers/{state.coordinator}"),
        "consumers": related(call, f"{path}/consumers"),
        "lag_summary": related(call, f"{path}/lag-summary"),
    }


def _consumer(call: Call, state: Member) -> dict[str, Any]:
    cluster, group_id = call.part("cluster"), call.part("group")
    path = f"{_path(call)}/consumers/{quoted(state.member_id)}"
    return {
        "kind": "KafkaConsumer",
        "metadata": resource(
            call, path, ("kafka", cluster), ("consumer-group", group_id), ("consumer", state.member_id)
        ),
        "cluster_id": cluster,
        "consumer_group_id": group_id,
        "consumer_id": state.member_id,
        "instance_id": state.instance_id,
        "client_id": state.client_id,
        "assignments": related(call, f"{path}/assignments"),
    }


def _assignment(call: Call, path: str, part: TopicPartition) -> dict[str, Any]:
    cluster, group_id, consumer_id = call.part("cluster"), call.part("group"), call.part("consumer")
    place = f"{part.topic}/{part.partition}"
    parts = ("kafka", cluster), ("consumer-group", group_id), ("consumer", consumer_id), ("assignment", place)
    return {
        "kind": "KafkaConsumerAssignment",
        "metadata": resource(call, f"{path}/{place}", *parts),
        "cluster_id": cluster,
        "consumer_group_id": group_id,
        "consumer_id": consumer_id,
        "topic_name": part.topic,
        "partition_id": part.partition,
        "partition": related(call, _partition_path(call, part)),
        "lag": related(call, f"{_path(call)}/lags/{place}"),
    }


def _lag(call: Call, state: Lag) -> dict[str, Any]:
    cluster, group_id, part = call.part("cluster"), call.part("group"), state.partition
    place = f"{part.topic}/{part.partition}"
    return {
        "kind": "KafkaConsumerLag",
        "metadata": resource(
            call, f"{_path(call)}/lags/{place}", ("kafka", cluster), ("consumer-group", group_id), ("lag", place)
        ),
        "cluster_id": cluster,
        "consumer_group_id": group_id,
        "topic_name": part.topic,
        "partition_id": part.partition,
        "current_offset": state.current_offset,
        "log_end_offset": state.log_end_offset,
        "lag": state.lag,
        "consumer_id": "" if state.member is None else state.member.member_id,
        "instance_id": None if state.member is None else state.member.instance_id,
        "client_id": "" if state.member is None else state.member.client_id,
    }
