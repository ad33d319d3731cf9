"""The groups and offsets of one partition of `__consumer_offsets`: what the log says, held in memory."""

from collections.abc import Callable

from ottla.kproto.internal_records.consumer_offsets import GroupMetadataValue
from ottla.kproto.records import EndTxnMarker
from ottla.server.coordinator.errors import NotCoordinatorError
from ottla.server.coordinator.group import records
from ottla.server.coordinator.group.classic import ClassicProtocol
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicMember, ClassicState, Protocol
from ottla.server.coordinator.group.offsets import OffsetCache
from ottla.server.coordinator.runtime import CoordinatorRecord, Producer


class GroupShard:
    """Implements the runtime's `Shard`.

    Offsets are what replay makes of them. A classic group's durable part (generation, members, assignment) is taken
    from the log when the partition is loaded; from then on the living group is ahead of its records, and those records
    are only there for the next load.
    """

    def __init__(self, partition: int, classic: ClassicProtocol, now_ms: Callable[[], int]) -> None:
        self.partition = partition
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetCache()
        self._classic = classic
        self._now_ms = now_ms
        self._loading = True

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        decoded = records.decode(record)
        match decoded:
            case records.OffsetRecord(group_id, partition, None):
                self.offsets.remove(group_id, partition)
            case records.OffsetRecord(group_id, partition, committed) if committed is not None:
                located = committed._replace(record_offset=offset)
                if group_id not in self.groups:
                    self.groups[group_id] = ClassicGroup(group_id, now_ms=self._now_ms())
                if producer is None:
                    self.offsets.put(group_id, partition, located)
                else:
                    self.offsets.put_pending(producer.producer_id, group_id, partition, located)
            case records.GroupRecord(group_id, value) if self._loading:
                self._replay_group(group_id, value)
            case _:
                pass

    def replay_marker(self, marker: EndTxnMarker) -> None:
        self.offsets.complete_transaction(marker.producer_id, commit=marker.is_commit)

    def loaded(self) -> None:
        self._loading = False
        for group in self.groups.values():
            self._classic.resume(group)

    def unloaded(self) -> None:
        for group in self.groups.values():
            self._classic.bury(group, NotCoordinatorError(f"group {group.group_id} moved away"))
        self.groups.clear()

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self.groups.pop(group_id, None)
            return
        group = self.groups[group_id] = ClassicGroup(group_id, now_ms=self._now_ms())
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
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
        group.leader_id = value.leader
        group.state = group.previous_state = ClassicState.STABLE if group.members else ClassicState.EMPTY
        if value.current_state_timestamp >= 0:
            group.current_state_since_ms = value.current_state_timestamp
