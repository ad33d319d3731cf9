"""A change of a partition's in-sync set, as its leader asks the cluster for it (Kafka's AlterPartition)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.metadata.changes.partition_changes import with_isr
from ottla.metadata.errors import NotPartitionLeaderError

if TYPE_CHECKING:
    from ottla.metadata.image import PartitionState


class IsrChange:
    """Who joins, each with the epoch of the broker that was seen to be in sync, and who leaves."""

    __slots__ = ("_brokers", "_leader_epoch", "_leaving", "_node_id", "is_in_doubt", "joining")

    def __init__(
        self,
        node_id: int,
        leader_epoch: int,
        joining: Mapping[int, int],
        leaving: tuple[int, ...],
        brokers: Mapping[int, int],
    ) -> None:
        """`brokers` are the epochs of the living, kept up to date by their owner."""
        self.joining = joining
        #: It may have been made before, without this node knowing of it yet.
        self.is_in_doubt = False
        self._node_id = node_id
        self._leader_epoch = leader_epoch
        self._leaving = leaving
        self._brokers = brokers

    def doubt(self) -> None:
        """The store did not answer: the change may have been made."""
        self.is_in_doubt = True

    def __call__(self, state: PartitionState) -> PartitionState:
        """The state with the change; raises NotPartitionLeaderError if another term has begun.

        Of the state only what this leader knows is changed: somebody else may have taken a broker out, or moved the
        partition on.
        """
        if state.leader != self._node_id or state.leader_epoch != self._leader_epoch:
            raise NotPartitionLeaderError(f"node {self._node_id} does not lead in epoch {self._leader_epoch}")
        isr = tuple(
            replica
            for replica in state.replicas
            if (replica in state.isr and replica not in self._leaving)
            or self.joining.get(replica, -1) == self._brokers.get(replica, -2)
        )
        # In doubt it is written also where nothing changes: by that it is found out whether `state` is the latest.
        return state if set(isr) == set(state.isr) and not self.is_in_doubt else with_isr(state, isr)
