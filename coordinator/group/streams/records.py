"""Streams groups as records of `__consumer_offsets` (record types 17 to 23)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.coordinator.group.modern.records import ModernRecords, record
from ottla.coordinator.group.streams.assignor import Tasks, TaskSet
from ottla.coordinator.group.streams.description import find_description, tagged
from ottla.coordinator.group.streams.member import (
    Endpoint,
    HeldTasks,
    StreamsCurrent,
    StreamsMemberState,
    StreamsSubscription,
)
from ottla.coordinator.group.streams.topology import Topology
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records import streams_group as schema


class GroupMetadata(NamedTuple):
    """The content of a group's metadata record."""

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    assignment_configs: Mapping[str, str]
    failed_description_epoch: int = -1


def group_metadata(group_id: str, metadata: GroupMetadata) -> CoordinatorRecord:
    configs = metadata.assignment_configs
    value = schema.StreamsGroupMetadataValue(
        epoch=metadata.epoch,
        metadata_hash=metadata.metadata_hash,
        validated_topology_epoch=metadata.validated_topology_epoch,
        last_assignment_configs=[schema.LastAssignmentConfig(key=key, value=configs[key]) for key in sorted(configs)],
        failed_description_topology_epoch=metadata.failed_description_epoch,
    )
    return record(schema.StreamsGroupMetadataKey(group_id=group_id), value)


def topology(group_id: str, given: Topology, description: bytes | None = None) -> CoordinatorRecord:
    value = schema.StreamsGroupTopologyValue(epoch=given.epoch, subtopologies=list(given.subtopologies.values()))
    value.unknown_tagged_fields = tagged(description)
    return record(schema.StreamsGroupTopologyKey(group_id=group_id), value)


def member_subscription(group_id: str, member_id: str, subscription: StreamsSubscription) -> CoordinatorRecord:
    endpoint, tags = subscription.user_endpoint, subscription.client_tags
    value = schema.StreamsGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        topology_epoch=subscription.topology_epoch,
        process_id=subscription.process_id,
        user_endpoint=None if endpoint is None else schema.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[schema.KeyValue(key=key, value=tags[key]) for key in sorted(tags)],
    )
    return record(schema.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = schema.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return record(schema.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: TaskSet) -> CoordinatorRecord:
    value = schema.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_task_ids(target.active),
        standby_tasks=_task_ids(target.standby),
        warmup_tasks=_task_ids(target.warmup),
    )
    return record(schema.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_assignment(group_id: str, member_id: str, current: StreamsCurrent) -> CoordinatorRecord:
    assigned, revoked = current.assigned, current.pending_revocation
    value = schema.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=_without_epochs(assigned.standby),
        warmup_tasks=_without_epochs(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(revoked.active),
        standby_tasks_pending_revocation=_without_epochs(revoked.standby),
        warmup_tasks_pending_revocation=_without_epochs(revoked.warmup),
    )
    return record(schema.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _task_ids(tasks: Tasks) -> list[schema.TaskIds]:
    return [schema.TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _without_epochs(tasks: Tasks) -> list[schema.CurrentTaskIds]:
    return [
        schema.CurrentTaskIds(subtopology_id=name, partitions=sorted(tasks[name]), assignment_epochs=None)
        for name in sorted(tasks)
    ]


def _with_epochs(tasks: Mapping[str, Mapping[int, int]]) -> list[schema.CurrentTaskIds]:
    return [
        schema.CurrentTaskIds(
            subtopology_id=name,
            partitions=(indexes := sorted(tasks[name])),
            assignment_epochs=[tasks[name][index] for index in indexes],
        )
        for name in sorted(tasks)
    ]


def read_group_metadata(value: schema.StreamsGroupMetadataValue) -> GroupMetadata:
    """The content of a group's metadata record."""
    return GroupMetadata(
        value.epoch,
        value.metadata_hash,
        value.validated_topology_epoch,
        {config.key: config.value for config in value.last_assignment_configs or ()},
        value.failed_description_topology_epoch,
    )


def read_topology(value: schema.StreamsGroupTopologyValue) -> tuple[Topology, bytes | None]:
    """The topology in a record, and its description if it has one."""
    return Topology(value.epoch, value.subtopologies), find_description(value.unknown_tagged_fields)


def _subscription(value: schema.StreamsGroupMemberMetadataValue) -> StreamsSubscription:
    endpoint = value.user_endpoint
    return StreamsSubscription(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags={tag.key: tag.value for tag in value.client_tags},
        instance_id=value.instance_id,
    )


def _target(value: schema.StreamsGroupTargetAssignmentMemberValue) -> TaskSet:
    return TaskSet(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks))


def _current(value: schema.StreamsGroupCurrentMemberAssignmentValue) -> StreamsCurrent:
    known = value.state in StreamsMemberState.__members__.values()
    epoch = value.member_epoch
    return StreamsCurrent(
        epoch=epoch,
        previous_epoch=value.previous_member_epoch,
        state=StreamsMemberState(value.state) if known else StreamsMemberState.STABLE,
        assigned=HeldTasks(_epochs(value.active_tasks, epoch), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),
        pending_revocation=HeldTasks(
            _epochs(value.active_tasks_pending_revocation, epoch),
            _tasks(value.standby_tasks_pending_revocation),
            _tasks(value.warmup_tasks_pending_revocation),
        ),
    )


def _tasks(task_ids: Iterable[schema.TaskIds | schema.CurrentTaskIds]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in task_ids}


def _epochs(task_ids: Iterable[schema.CurrentTaskIds], epoch: int) -> dict[str, dict[int, int]]:
    """The epoch of each task; that of the member where the record has none, or not as many as tasks."""
    found = {}
    for each in task_ids:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [epoch] * len(each.partitions)
        found[each.subtopology_id] = dict(zip(each.partitions, epochs, strict=True))
    return found


RECORDS: Final = ModernRecords(
    schema.StreamsGroupMetadataKey,
    schema.StreamsGroupMemberMetadataKey,
    schema.StreamsGroupTargetAssignmentMetadataKey,
    schema.StreamsGroupTargetAssignmentMemberKey,
    schema.StreamsGroupCurrentMemberAssignmentKey,
    schema.StreamsGroupTopologyKey,
    read_member=_subscription,
    read_target=_target,
    read_current=_current,
)
