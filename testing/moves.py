"""Moves a partition's leadership to a node of a cluster under test, by what administrators use for it."""

from __future__ import annotations

import time
from typing import Any, Final

from ottla.client.client import Client
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.testing.errors import BrokerError, WaitTimeoutError

_TIMEOUT_MS: Final = 15_000
_POLL_SECONDS: Final = 0.02
_PREFERRED: Final = 0


def move_leader(client: Client, topic: str, partition: int, node_id: int, timeout_s: float) -> None:
    """Make a node the leader of a partition; it becomes its first replica, in the place of the last one if it had none.

    Returns when it leads. Raises BrokerError if the cluster refuses, WaitTimeoutError if the node is not in sync in
    time.
    """
    state = _state(client, topic, partition)
    others = [replica for replica in state.replica_nodes if replica != node_id]
    wanted = [node_id, *others][: len(state.replica_nodes)]
    if wanted != state.replica_nodes:
        answer = client.call_controller(
            AlterPartitionReassignmentsRequest(
                timeout_ms=_TIMEOUT_MS,
                topics=[
                    ReassignableTopic(
                        name=topic, partitions=[ReassignablePartition(partition_index=partition, replicas=wanted)]
                    )
                ],
            )
        )
        for result in (answer, *(each for found in answer.responses for each in found.partitions)):
            if result.error_code:
                raise BrokerError(f"{topic}-{partition}: {result.error_message}", result.error_code)
    deadline = time.monotonic() + timeout_s
    while True:
        state = _state(client, topic, partition)
        if state.leader_id == node_id and state.replica_nodes == wanted:
            return
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{topic}-{partition} is led by {state.leader_id} after {timeout_s:g} s")
        if node_id in state.isr_nodes:
            client.call_controller(
                ElectLeadersRequest(
                    election_type=_PREFERRED,
                    topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
                    timeout_ms=_TIMEOUT_MS,
                )
            )
        time.sleep(_POLL_SECONDS)


def _state(client: Client, topic: str, partition: int) -> Any:
    (found,) = client.metadata([topic]).topics
    if found.error_code:
        raise BrokerError(f"{topic}: {ErrorCode(found.error_code).name}", found.error_code)
    states = [each for each in found.partitions if each.partition_index == partition]
    if not states:
        raise BrokerError(f"{topic} has no partition {partition}")
    return states[0]
