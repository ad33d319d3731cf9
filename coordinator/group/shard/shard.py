"""The groups and offsets of one partition of `__consumer_offsets`: what the log says, held in memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.coordinator.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, NotCoordinatorError
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.shard import offset_records, records
from ottla.coordinator.group.shard.offset_cache import OffsetCache
from ottla.coordinator.group.shard.offset_check import check_offset
from ottla.coordinator.group.shard.offset_runs import MIN_RECORDS, cut_run
from ottla.coordinator.replay import CoordinatorRecord, Producer, Steps, replay_records
from ottla.kproto.records.reader import batch_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.coordinator.errors import CoordinatorError
    from ottla.coordinator.group.group import Committer
    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from ottla.coordinator.group.protocol import GroupProtocol, GroupProtocols
    from ottla.kproto.internal_records.consumer_offsets import GroupMetadataValue
    from ottla.kproto.records import BatchHeader, EndTxnMarker

K = TypeVar("K", bound=Group)


class ShardListener(Protocol):
    """Hears of what becomes of shards."""

    def loaded(self, partition: int) -> None:
        """The partition has been replayed."""


class GroupShard:
    """Implements the runtime's `Shard`. One id is one group: `groups` holds those of all protocols.

    Offsets are what replay makes of them. A classic group's durable part (generation, members, assignment) is taken
    from the log when the partition is loaded. From then on the group in memory is ahead of its records, which are only
    there for the next load; but its tombstone removes it. A group of the consumer protocol is always what its records
    say, and so are share groups and streams groups. An id with offsets, committed or in an open transaction, always has
    a group: if no record describes one, it is a classic group without members.
    """

    def __init__(
        self,
        partition: int,
        protocols: GroupProtocols,
        listener: ShardListener | None = None,
    ) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetCache()
        self._protocols = protocols
        self._listener = listener
        self._loading = True
        self._reserved: dict[str, Group] = {}

    def find(self, group_id: str, kind: type[K]) -> K | None:
        """The group of an id, if there is one and it is of this kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def groups_of(self, kind: type[K]) -> list[K]:
        """All groups of a kind."""
        return [group for group_id in self.groups if (group := self.find(group_id, kind)) is not None]

    def validate_offset_commit(
        self, group: Group, committer: Committer, offsets: Mapping[TopicPartition, OffsetToCommit]
    ) -> None:
        """Whether somebody may commit these offsets of a group that is here. Raises CoordinatorError."""
        self._protocols.of(group).validate_offset_commit(group, committer, offsets)

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        if offset_records.is_offset(record.key):
            self._replay_offset(offset, producer, record)
            return
        match records.decode(record):
            case records.GroupRecord(group_id, None):
                self._replay_tombstone(group_id)
            case records.GroupRecord(group_id, value) if self._loading and value is not None:
                self._restore(group_id, value)
            case records.GroupRecord(group_id, _) if group_id in self._reserved:
                self.groups[group_id] = self._reserved[group_id]
            case records.OtherRecord(key, value) if (protocol := self._protocols.of_key(type(key))) is not None:
                self._replay_modern_group(protocol, key, value)
            case _:
                pass

    def replay_batch(self, batches: memoryview, position: int, header: BatchHeader) -> Steps:
        """Replay a batch while the partition is being loaded, with a shortcut for commits of many offsets.

        A batch that turns out to hold something else is replayed record by record from its start; replaying an offset
        twice changes nothing.
        """
        if header.record_count >= MIN_RECORDS and not header.is_transactional:
            payload = batch_payload(batches, position, header)
            index = end = 0
            while index < header.record_count and (run := cut_run(payload, end, header, index)) is not None:
                self._know_group(run.group_id)
                offset = header.base_offset + index
                self.offsets.put_all(run.group_id, zip(run.keys, enumerate(run.values, offset), strict=True))
                index += len(run.keys)
                end = run.end
                yield None
            if index == header.record_count:
                return
        yield from replay_records(self, batches, position, header)

    def _replay_offset(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if self._loading:
            check_offset(key, value)
        if key[1] != offset_records.OFFSET_KEY_TYPE:
            key = offset_records.current_offset_key(key)
        group_id = offset_records.offset_group(key)
        if value is None:
            self.offsets.remove(group_id, key)
            return
        self._know_group(group_id)
        if producer is None:
            self.offsets.put(group_id, key, (offset, value))
        else:
            self.offsets.put_pending(producer.producer_id, group_id, key, (offset, value))

    @contextmanager
    def reserve_id(self, group: Group) -> Iterator[None]:
        """While this group's records are on their way: once they are committed, it is the group under its id.

        The caller holds its lock.
        """
        self._reserved[group.group_id] = group
        try:
            yield
        finally:
            del self._reserved[group.group_id]

    def restore(self, record: CoordinatorRecord) -> None:
        """Bring back a classic group as its record describes it."""
        restored = records.decode(record)
        assert isinstance(restored, records.GroupRecord)
        assert restored.value is not None
        self._protocols.default.resume(self._restore(restored.group_id, restored.value))

    def _know_group(self, group_id: str) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = self._protocols.default.create(group_id)

    def _forget_group(self, group_id: str) -> None:
        del self.groups[group_id]
        if self.offsets.has(group_id):
            self._know_group(group_id)

    def replay_marker(self, marker: EndTxnMarker) -> None:
        self.offsets.complete_transaction(marker.producer_id, commit=marker.is_commit)

    def loaded(self) -> None:
        self._loading = False
        for group in self.groups.values():
            self._protocols.of(group).resume(group)
        if self._listener is not None:
            self._listener.loaded(self.partition)

    def unloaded(self) -> None:
        for group in (*self.groups.values(), *self._reserved.values()):
            self._close(group, NotCoordinatorError(f"group {group.group_id} moved away"))
        self.groups.clear()

    def _close(self, group: Group, reason: CoordinatorError) -> None:
        self._protocols.of(group).close(group, reason)

    def _replay_modern_group(self, protocol: GroupProtocol[Any], key: Any, value: Any) -> None:
        group_id: str = key.group_id
        group = self.find(group_id, protocol.group_class)
        if group is None:
            if value is None:
                return
            group = self._take_place(group_id, protocol.group_class)
        group.replay(key, value)
        if value is None and type(key) is group.key_types()[0]:
            self._close(group, GroupIdNotFoundError(f"group {group_id} was deleted"))
            self._forget_group(group_id)

    def _take_place(self, group_id: str, kind: type[Any]) -> Any:
        """The group whose first record has come; a classic group under its id gives way to it."""
        former = self.find(group_id, self._protocols.default.group_class)
        if former is not None:
            self._close(former, CoordinatorNotAvailableError(f"group {group_id} changed its protocol"))
        reserved = self._reserved.get(group_id)
        group: Any = reserved if type(reserved) is kind else kind(group_id)
        self.groups[group_id] = group
        return group

    def _replay_tombstone(self, group_id: str) -> None:
        group = self.find(group_id, self._protocols.default.group_class)
        if group is not None:
            self._close(group, GroupIdNotFoundError(f"group {group_id} was deleted"))
            self._forget_group(group_id)

    def _restore(self, group_id: str, value: GroupMetadataValue) -> Any:
        group = self.groups[group_id] = self._protocols.default.restore(group_id, value)
        return group
