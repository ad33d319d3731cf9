"""The groups and offsets of one partition of `__consumer_offsets`: what the log says, held in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from ottla.kproto.internal_records.consumer_offsets import GroupMetadataValue
from ottla.kproto.records import BatchHeader, EndTxnMarker
from ottla.kproto.records.reader import batch_payload
from ottla.server.coordinator.errors import CoordinatorNotAvailableError, GroupIdNotFoundError, NotCoordinatorError
from ottla.server.coordinator.group import consumer_records, records, share_records, streams_records
from ottla.server.coordinator.group.classic import ClassicProtocol
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicMember, ClassicState, Protocol
from ottla.server.coordinator.group.consumer import ConsumerProtocol
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.modern import ModernProtocol
from ottla.server.coordinator.group.offset_cache import OffsetCache
from ottla.server.coordinator.group.offset_check import check_offset
from ottla.server.coordinator.group.offset_runs import MIN_RECORDS, cut_run
from ottla.server.coordinator.group.share import ShareProtocol
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.streams import StreamsProtocol
from ottla.server.coordinator.group.streams_group import StreamsGroup
from ottla.server.coordinator.replay import CoordinatorRecord, Producer, Steps, replay_records

AnyModernGroup = ConsumerGroup | ShareGroup | StreamsGroup
Group = ClassicGroup | AnyModernGroup


class _Kind(NamedTuple):
    """How the records of one protocol become groups."""

    group: type[AnyModernGroup]
    keys: tuple[type, ...]
    replay: Callable[[Any, Any, Any], None]


_KINDS: Final = (
    _Kind(ConsumerGroup, consumer_records.KEYS, consumer_records.replay),
    _Kind(ShareGroup, share_records.KEYS, share_records.replay),
    _Kind(StreamsGroup, streams_records.KEYS, streams_records.replay),
)
_KIND_OF_KEY: Final = {key: kind for kind in _KINDS for key in kind.keys}


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
        classic: ClassicProtocol,
        consumer: ConsumerProtocol,
        share: ShareProtocol,
        streams: StreamsProtocol,
        now_ms: Callable[[], int],
        on_loaded: Callable[[int], None] = lambda partition: None,
    ) -> None:
        """`on_loaded` is called when the partition has been replayed."""
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetCache()
        self._classic = classic
        self._protocols: dict[type, ModernProtocol[Any, Any]] = {
            ConsumerGroup: consumer,
            ShareGroup: share,
            StreamsGroup: streams,
        }
        self._now_ms = now_ms
        self._on_loaded = on_loaded
        self._loading = True
        self._expected: dict[str, Group] = {}

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def share_group(self, group_id: str) -> ShareGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def share_groups(self) -> list[ShareGroup]:
        return [group for group in self.groups.values() if isinstance(group, ShareGroup)]

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        if records.is_offset(record.key):
            self._replay_offset(offset, producer, record)
            return
        match records.decode(record):
            case records.GroupRecord(group_id, None):
                self._remove_classic(group_id)
            case records.GroupRecord(group_id, value) if self._loading and value is not None:
                self._replay_group(group_id, value)
            case records.GroupRecord(group_id, _) if group_id in self._expected:
                self.groups[group_id] = self._expected[group_id]
            case records.OtherRecord(key, value) if type(key) in _KIND_OF_KEY:
                self._replay_modern_group(_KIND_OF_KEY[type(key)], key, value)
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
        if key[1] != records.OFFSET_KEY_TYPE:
            key = records.current_offset_key(key)
        group_id = records.offset_group(key)
        if value is None:
            self.offsets.remove(group_id, key)
            return
        self._know_group(group_id)
        if producer is None:
            self.offsets.put(group_id, key, (offset, value))
        else:
            self.offsets.put_pending(producer.producer_id, group_id, key, (offset, value))

    @contextmanager
    def expecting(self, group: Group) -> Iterator[None]:
        """While this group's records are on their way: once they are committed, it is the group under its id.

        The caller holds its lock.
        """
        self._expected[group.group_id] = group
        try:
            yield
        finally:
            del self._expected[group.group_id]

    def restore(self, record: CoordinatorRecord) -> None:
        """Bring back a classic group as its record describes it."""
        restored = records.decode(record)
        assert isinstance(restored, records.GroupRecord)
        assert restored.value is not None
        self._classic.resume(self._replay_group(restored.group_id, restored.value))

    def _know_group(self, group_id: str) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, now_ms=self._now_ms())

    def _forget_group(self, group_id: str) -> None:
        del self.groups[group_id]
        if self.offsets.has(group_id):
            self._know_group(group_id)

    def replay_marker(self, marker: EndTxnMarker) -> None:
        self.offsets.complete_transaction(marker.producer_id, commit=marker.is_commit)

    def loaded(self) -> None:
        self._loading = False
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self._classic.resume(group)
            else:
                self._protocols[type(group)].resume(group)
        self._on_loaded(self.partition)

    def unloaded(self) -> None:
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self._classic.bury(group, NotCoordinatorError(f"group {group.group_id} moved away"))
            else:
                self._protocols[type(group)].bury(group)
        for expected in self._expected.values():
            if not isinstance(expected, ClassicGroup):
                expected.removed = True
        self.groups.clear()

    def _replay_modern_group(self, kind: _Kind, key: Any, value: Any) -> None:
        group_id: str = key.group_id
        group: Any = self.groups.get(group_id)
        if not isinstance(group, kind.group):
            if value is None:
                return
            group = self._take_place(group_id, kind.group)
        kind.replay(group, key, value)
        if value is None and type(key) is kind.keys[0]:
            self._protocols[kind.group].bury(group)
            self._forget_group(group_id)

    def _take_place(self, group_id: str, kind: type[AnyModernGroup]) -> AnyModernGroup:
        """The group whose first record has come; a classic group under its id gives way to it."""
        former = self.classic_group(group_id)
        if former is not None:
            self._classic.bury(former, CoordinatorNotAvailableError(f"group {group_id} changed its protocol"))
        expected = self._expected.get(group_id)
        group = expected if isinstance(expected, kind) else kind(group_id)
        self.groups[group_id] = group
        return group

    def _remove_classic(self, group_id: str) -> None:
        group = self.classic_group(group_id)
        if group is not None:
            self._classic.bury(group, GroupIdNotFoundError(f"group {group_id} was deleted"))
            self._forget_group(group_id)

    def _replay_group(self, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, now_ms=self._now_ms())
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        for member in value.members:
            group.add(
                ClassicMember(
                    member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout,
                    session_timeout_ms=member.session_timeout,
                    protocols=[Protocol(value.protocol or "", bytes(member.subscription))],
                    assignment=bytes(member.assignment),
                )
            )
        group.agree(value.protocol)
        group.leader_id = value.leader
        group.state = group.previous_state = ClassicState.STABLE if group.members else ClassicState.EMPTY
        if value.current_state_timestamp >= 0:
            group.current_state_since_ms = value.current_state_timestamp
        return group
