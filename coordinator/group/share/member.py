"""A member of a share group (KIP-932): what it said, and where it stands. Plain state.

Kafka's counterpart is ShareGroupMember.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.errors import FencedMemberEpochError
from ottla.coordinator.group.assignment import EMPTY_ASSIGNMENT, Assignment
from ottla.coordinator.group.modern.group import JOIN_EPOCH, ModernMember


class ShareSubscription(NamedTuple):
    """A member's subscription: the content of its metadata record."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()


class ShareCurrent(NamedTuple):
    """A member's current assignment: the content of its record."""

    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = EMPTY_ASSIGNMENT


class ShareMember(ModernMember[ShareSubscription, ShareCurrent]):
    """One member."""

    __slots__ = ()

    def check_epoch(self, epoch: int) -> None:
        """A heartbeat must carry the current epoch, the previous one if its answer was lost, or that of a join."""
        current = self.current
        if epoch == JOIN_EPOCH or epoch in (current.epoch, current.previous_epoch):
            return
        known = f"known by the group coordinator ({current.epoch})"
        if epoch > current.epoch:
            raise FencedMemberEpochError(
                f"The share group member has a greater member epoch ({epoch}) than the one {known}. "
                "The member must abandon all its partitions and rejoin."
            )
        raise FencedMemberEpochError(
            f"The share group member has a smaller member epoch ({epoch}) than the one {known}. "
            "The member must abandon all its partitions and rejoin."
        )
