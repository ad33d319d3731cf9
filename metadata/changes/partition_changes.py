"""How a partition's state may change: elections, in-sync sets and reassignments. Pure functions on states.

Every change raises `partition_epoch`, and `leader_epoch` when leadership changes or a replica is taken away, as Kafka's
org.apache.kafka.controller.PartitionChangeBuilder does. Only a member of the in-sync set is elected, or else one of the
eligible leaders, unless a function says otherwise; and the in-sync set never becomes empty, because its last members
are those that have every committed record. A replica that leaves it joins `elr`; eligible_leaders.py decides whether it
stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence

from ottla.metadata.changes.placement import check_assignment
from ottla.metadata.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
)
from ottla.metadata.image import NO_LEADER, PartitionState

PartitionUpdate = Callable[[PartitionState], PartitionState]


def with_leader(state: PartitionState, leader: int) -> PartitionState:
    """The state under a new leader, in its next leader epoch."""
    return state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)


def in_epoch(state: PartitionState, least: int) -> PartitionState:
    """The state under the same leader, in a leader epoch that is not below `least`."""
    if state.leader_epoch >= least:
        return state
    return state._replace(leader_epoch=least, partition_epoch=state.partition_epoch + 1)


def in_next_epoch(state: PartitionState) -> PartitionState:
    """The state under the same leader, in its next leader epoch."""
    return in_epoch(state, state.leader_epoch + 1)


def with_isr(state: PartitionState, isr: Sequence[int]) -> PartitionState:
    """The state with other in-sync replicas; a reassignment whose replicas are all in sync ends with it."""
    return complete_reassignment(
        state._replace(isr=tuple(isr), elr=_eligible(state, isr), partition_epoch=state.partition_epoch + 1)
    )


def _eligible(state: PartitionState, isr: Collection[int]) -> tuple[int, ...]:
    """The replicas outside a new in-sync set that have every committed record: its former members and the eligible."""
    known = (*state.isr, *state.elr)
    return tuple(broker for broker in state.replicas if broker in known and broker not in isr)


def _changed(
    state: PartitionState, leader: int, isr: tuple[int, ...], elr: tuple[int, ...] | None = None
) -> PartitionState:
    if elr is None:
        elr = state.elr if isr == state.isr else _eligible(state, isr)
    if leader == state.leader and isr == state.isr and elr == state.elr:
        return state
    return state._replace(
        leader=leader,
        isr=isr,
        elr=elr,
        leader_epoch=state.leader_epoch + (leader != state.leader),
        partition_epoch=state.partition_epoch + 1,
    )


def follow_live(state: PartitionState, live: Container[int], *, unclean: bool = False) -> PartitionState:
    """The state after brokers were fenced or came back: dead ones leave the in-sync set, and one of the rest leads.

    If nobody in the set is alive, an eligible leader leads; if there is none either, the set stays as it is, without a
    leader, until one of them returns. With `unclean`, any living replica leads then (`unclean.leader.election.enable`),
    and what it lacks is lost.
    """
    isr = tuple(broker for broker in state.isr if broker in live)
    if not isr:
        isr = tuple(broker for broker in state.elr if broker in live)[:1]
    if not isr and unclean:
        for broker in state.replicas:
            if broker in live:
                return _changed(state, broker, (broker,), ())
    if not isr:
        return _changed(state, NO_LEADER, state.isr)
    return _changed(state, state.leader if state.leader in isr else _first_of(state, isr), isr)


def _first_of(state: PartitionState, isr: Container[int]) -> int:
    return next((broker for broker in state.replicas if broker in isr), NO_LEADER)


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Whether the new leader need not have all that the old in-sync set had."""
    return after.leader != NO_LEADER and after.leader not in (*before.isr, *before.elr)


def hand_over(state: PartitionState, broker: int, live: Container[int]) -> PartitionState:
    """The state before a broker stops in order: the rest of the in-sync set goes on without it, if one is alive."""
    left = tuple(it for it in state.isr if it != broker)
    living = tuple(it for it in left if it in live)
    if not living or broker not in state.isr:
        return state
    return _changed(state, _first_of(state, living) if state.leader == broker else state.leader, left)


def leave(state: PartitionState, broker: int, live: Container[int]) -> PartitionState:
    """The state without a broker that may have lost what it had: it does not lead, is not in sync, and may not lead.

    If it was the last of the in-sync set, the eligible leaders take its place; if there are none it stays, because
    nobody else has more.
    """
    elr = tuple(it for it in state.elr if it != broker)
    left = tuple(it for it in state.isr if it != broker)
    if not left and elr:
        living = tuple(it for it in elr if it in live)[:1]
        isr = living or elr
        return _changed(state, living[0] if living else NO_LEADER, isr, tuple(it for it in elr if it not in isr))
    if not left or broker not in state.isr:
        return _changed(state, state.leader, state.isr, elr)
    living = tuple(it for it in left if it in live)
    leader = _first_of(state, living) if state.leader == broker else state.leader
    return _changed(state, leader, left, tuple(it for it in _eligible(state, left) if it != broker))


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
    in_sync = (it for it in state.replicas if it in state.isr)
    for candidate in (*in_sync, *state.elr, *state.replicas):
        if candidate in live:
            isr = state.isr if candidate in state.isr else (candidate,)
            elr = _eligible(state, isr) if candidate in (*state.isr, *state.elr) else ()
            return with_leader(state._replace(isr=isr, elr=elr), candidate)
    raise EligibleLeadersNotAvailableError("No replica of the partition is alive.")


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
    return complete_reassignment(_without_replicas(state, begun))


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
    return _without_replicas(state, reverted)


def complete_reassignment(state: PartitionState) -> PartitionState:
    """Drop the leaving replicas once every replica that joins is in sync."""
    target = tuple(broker for broker in state.replicas if broker not in state.removing_replicas)
    if not is_reassigning(state) or not set(state.adding_replicas) <= set(state.isr):
        return state
    isr = tuple(broker for broker in state.isr if broker in target)
    if not isr:
        return state
    return _without_replicas(state, state._replace(replicas=target, isr=isr, adding_replicas=(), removing_replicas=()))


def _without_replicas(before: PartitionState, after: PartitionState) -> PartitionState:
    """In a new leader epoch if a replica was taken away, so that what it still asks for is refused."""
    leader = before.leader if before.leader in after.isr or before.leader == NO_LEADER else _first_of(after, after.isr)
    lost = not set(before.replicas) <= set(after.replicas)
    return after._replace(leader=leader, leader_epoch=before.leader_epoch + (lost or leader != before.leader))
