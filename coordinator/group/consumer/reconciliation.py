"""A member's next step towards its target: revoke first, then take what others have released (KIP-848).

Kafka's counterpart is CurrentAssignmentBuilder. No partition is ever assigned to a member while another one holds it.
"""

from collections.abc import Callable, Iterable, Set
from uuid import UUID

from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.consumer.member import Current, MemberState


def next_assignment(
    current: Current,
    *,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
    subscribed: Callable[[Iterable[UUID]], Set[UUID]],
    resubscribed: bool = False,
) -> Current:
    """The member's current assignment after a heartbeat that reported `owned` (None: not reported this time).

    `is_free` tells whether nobody else holds a partition; `subscribed` which of some topics the member subscribes to.
    The target may be older than a subscription that has changed (`resubscribed`): nothing of another topic is left to
    the member.
    """
    is_settled = current.state is MemberState.STABLE and current.epoch == target_epoch
    if is_settled or (
        current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, current.pending_revocation)
    ):
        return _without_other_topics(current, owned, subscribed(current.assigned)) if resubscribed else current
    topic_ids = {*current.assigned, *target}
    read = subscribed(topic_ids)
    kept: dict[UUID, frozenset[int]] = {}
    revoked: dict[UUID, frozenset[int]] = {}
    taken: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in topic_ids:
        mine = current.assigned.get(topic_id, frozenset())
        wanted = target.get(topic_id, frozenset()) if topic_id in read else frozenset()
        free = frozenset(index for index in wanted - mine if is_free(topic_id, index))
        unreleased |= len(free) < len(wanted - mine)
        for found, into in ((mine & wanted, kept), (mine - wanted, revoked), (mine & wanted | free, taken)):
            if found:
                into[topic_id] = found
    if revoked and _owns_any(owned, revoked):
        return current._replace(
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=revoked,
        )
    return Current(
        epoch=target_epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=taken,
        epochs={
            (topic_id, index): current.epochs.get((topic_id, index), target_epoch)
            for topic_id, indexes in taken.items()
            for index in indexes
        },
    )


def _without_other_topics(current: Current, owned: Assignment | None, read: Set[UUID]) -> Current:
    """At the member's epoch still, it has nothing of topics that it no longer subscribes to."""
    if not current.assigned.keys() - read:
        return current
    left = dict(current.pending_revocation)
    for topic_id in current.assigned.keys() - read:
        left[topic_id] = left.get(topic_id, frozenset()) | current.assigned[topic_id]
    kept = {topic_id: indexes for topic_id, indexes in current.assigned.items() if topic_id in read}
    if _owns_any(owned, left):
        unrevoked = MemberState.UNREVOKED_PARTITIONS
        return current._replace(previous_epoch=current.epoch, state=unrevoked, assigned=kept, pending_revocation=left)
    epochs = {partition: epoch for partition, epoch in current.epochs.items() if partition[0] in kept}
    return current._replace(previous_epoch=current.epoch, assigned=kept, epochs=epochs)


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member may still own one of these: for all we know it does unless it reported otherwise."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & indexes for topic_id, indexes in partitions.items())
