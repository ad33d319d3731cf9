"""Where a partition gets the part of its log that is in the object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.replica.tiered.rules import RemoteRules


class RemoteLogs(Protocol):
    """The object store of a node; `ottla.replica.remote.remote_storage.RemoteStorage`."""

    def open(self, cluster_id: str, topic: str, topic_id: UUID, partition: int, rules: RemoteRules) -> RemoteLog:
        """The part of a partition that is in the object store. Nobody is asked anything yet."""

    def look_at(self, key: tuple[UUID, int], remote: RemoteLog, leader_epoch: int) -> None:
        """Find out what is in the object store, and then tell the partition's state again."""
