"""What may become of a partition's state: elections and reassignments. Pure functions on states.

Every change raises `partition_epoch`, and `leader_epoch` when leadership changes, as Kafka's
org.apache.kafka.controller.PartitionChangeBuilder does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.server.metadata.errors import (
    ElectionNotNeededError,
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
)
from ottla.server.metadata.image import NO_LEADER, PartitionState
from ottla.server.metadata.placement import check_assignment

PartitionUpdate = Callable[[PartitionState], PartitionState]


def with_leader(state: PartitionState, leader: int) -> PartitionState:
    """The state under a new leader, in its next leader epoch."""
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)


def with_isr(state: PartitionState, isr: Sequence[int]) -> PartitionState:
    """The state with other in-sync replicas; a reassignment whose replicas are all in sync ends with it."""
    return complete_reassignment(state._replace(isr=tuple(isr), partition_epoch=state.partition_epoch + 1))


def elect_preferred(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Give leadership to the first replica, which must be alive and in sync."""
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    if preferred not in live or preferred not in state.isr:
        raise PreferredLeaderNotAvailableError("The preferred leader was not available.")
    return with_leader(state, preferred)


def elect_unclean(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Give leadership to any living replica if there is no leader; records that it lacks are lost."""
    if state.leader != NO_LEADER and state.leader in live:
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    for candidate in (*(it for it in state.replicas if it in state.isr), *state.replicas):
        if candidate in live:
            isr = state.isr if candidate in state.isr else (candidate,)
            return with_leader(state._replace(isr=isr), candidate)
    raise PreferredLeaderNotAvailableError("No replica of the partition is alive.")


def is_reassigning(state: PartitionState) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def reassign(state: PartitionState, target: Sequence[int], brokers: Sequence[int]) -> PartitionState:
    """Begin to move the partition to `target`; replicas that are already there stay where they are."""
    wanted = check_assignment(target, brokers, None)
    kept = tuple(broker for broker in state.replicas if broker not in state.adding_replicas)
    adding = tuple(broker for broker in wanted if broker not in kept)
    removing = tuple(broker for broker in kept if broker not in wanted)
    leaving = tuple(broker for broker in state.adding_replicas if broker not in wanted)
    if not set(state.isr) - set(leaving):
        raise InvalidReplicaAssignmentError("No in-sync replica would be left.")
    begun = state._replace(
        replicas=(*wanted, *removing),
        isr=tuple(broker for broker in state.isr if broker not in leaving),
        adding_replicas=adding,
        removing_replicas=removing,
        partition_epoch=state.partition_epoch + 1,
    )
    return complete_reassignment(begun)


def cancel_reassignment(state: PartitionState) -> PartitionState:
    """Go back to the replicas from before; raises NoReassignmentInProgressError if none is under way."""
    if not is_reassigning(state):
        raise NoReassignmentInProgressError
    kept = tuple(broker for broker in state.replicas if broker not in state.adding_replicas)
    isr = tuple(broker for broker in state.isr if broker in kept)
    if not isr:
        raise InvalidReplicaAssignmentError("None of the original replicas is in sync.")
    reverted = state._replace(
        replicas=kept,
        isr=isr,
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=state.partition_epoch + 1,
    )
    return reverted if state.leader in isr else with_leader(reverted, isr[0])


def complete_reassignment(state: PartitionState) -> PartitionState:
    """Drop the leaving replicas once every replica that joins is in sync."""
    target = tuple(broker for broker in state.replicas if broker not in state.removing_replicas)
    if not is_reassigning(state) or not set(state.adding_replicas) <= set(state.isr):
        return state
    isr = tuple(broker for broker in state.isr if broker in target)
    if not isr:
        return state
    done = state._replace(replicas=target, isr=isr, adding_replicas=(), removing_replicas=())
    return done if state.leader in isr else with_leader(done, isr[0])
