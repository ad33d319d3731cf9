"""The protocol that runs the groups of one kind, and the table of all kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.coordinator.group.group import Committer, Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.coordinator.errors import CoordinatorError
    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.kproto.internal_records.consumer_offsets import GroupMetadataValue

G = TypeVar("G", bound=Group)


class GroupProtocol(ABC, Generic[G]):
    """Runs the groups of one kind on one broker: what needs time, or tells somebody, of what happens to a group."""

    group_class: type[G]

    @abstractmethod
    def resume(self, group: G) -> None:
        """Start the sessions of a group that was replayed from the log."""

    @abstractmethod
    def close(self, group: G, reason: CoordinatorError) -> None:
        """The group leaves this broker, or is deleted: end its sessions, and answer those who wait with the reason."""

    @abstractmethod
    def validate_offset_commit(
        self, group: G, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """Whether somebody may commit these offsets. Raises CoordinatorError."""


class DefaultProtocol(GroupProtocol[G]):
    """The kind of a group of which only offsets are known. Such a group is ahead of its records in memory: they count
    only when a partition is loaded.
    """

    @abstractmethod
    def create(self, group_id: str) -> G:
        """An empty group."""

    @abstractmethod
    def restore(self, group_id: str, value: GroupMetadataValue) -> G:
        """The group that a record describes. Its sessions do not run yet."""


class GroupProtocols:
    """The protocols of one broker, by the class of the group and by the key of the record."""

    def __init__(self, default: DefaultProtocol[Any], others: Sequence[GroupProtocol[Any]]) -> None:
        self.default = default
        self._by_class: dict[type, GroupProtocol[Any]] = {each.group_class: each for each in (default, *others)}
        self._by_key = {key: each for each in others for key in each.group_class.key_types()}

    def of(self, group: Group) -> GroupProtocol[Any]:
        """The protocol of a group."""
        return self._by_class[type(group)]

    def of_key(self, key_type: type) -> GroupProtocol[Any] | None:
        """The protocol of groups with such records; None for those of the default protocol, and for unknown types."""
        return self._by_key.get(key_type)
