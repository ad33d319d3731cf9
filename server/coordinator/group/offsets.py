"""Committed offsets of one partition of `__consumer_offsets`: the cache that OffsetFetch answers from.

Everything here has been committed to the log: the runtime calls these methods in log order, at replay and after each
append. Offsets of an open transaction stand apart until its marker decides (KIP-98, KIP-447).

What is loaded from the log stays as the bytes of its records, group by group, until the group is asked for: decoding a
million offsets takes much longer than a client waits for its coordinator, and most groups are not asked for soon.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID


class CommittedOffset(NamedTuple):
    """One committed position. `record_offset` is where it lies in the log: the later one wins."""

    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID = UUID(int=0)


class TopicPartition(NamedTuple):
    topic: str
    partition: int


RawOffset = tuple[int, bytes]
"""Where a record of a committed offset lies in the log, and its value."""

Decode = Callable[[bytes, RawOffset], tuple[TopicPartition, CommittedOffset]]
"""Reads the key and the value of such a record."""


class OffsetCache:
    """Committed and pending offsets by group.

    An idle group costs one dictionary; nothing here is proportional to topics that no group reads.
    """

    __slots__ = ("_committed", "_decode", "_pending", "_raw")

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._raw: dict[str, dict[bytes, RawOffset]] = {}
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    def load(self, group_id: str, key: bytes, raw: RawOffset | None) -> bool:
        """Take a record of the log as it is: a commit outside any transaction, or a tombstone (None).

        False if it has to be decoded and applied: a transaction is open, or the group has been asked for.
        """
        if self._pending or group_id in self._committed:
            return False
        offsets = self._raw.get(group_id)
        if raw is not None:
            if offsets is None:
                offsets = self._raw[group_id] = {}
            offsets[key] = raw
        elif offsets is not None:
            offsets.pop(key, None)
            if not offsets:
                del self._raw[group_id]
        return True

    def _of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """A group's committed offsets, decoded now if they were not."""
        raw = self._raw.pop(group_id, None) if self._raw else None
        if raw is not None:
            self._committed[group_id] = dict(self._decode(key, value) for key, value in raw.items())
        return self._committed.get(group_id, {})

    def put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Record a commit that is in the log outside any transaction."""
        self._of(group_id)
        self._committed.setdefault(group_id, {})[partition] = committed

    def put_pending(
        self, producer_id: int, group_id: str, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        """Record a commit inside the open transaction of `producer_id`."""
        self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[partition] = committed

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Apply a tombstone: the committed offset and what transactions would still commit for it are gone."""
        offsets = self._of(group_id)
        if offsets:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        for groups in self._pending.values():
            groups.get(group_id, {}).pop(partition, None)

    def complete_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker: pending offsets become committed unless a later plain commit overtook them."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            if not commit:
                continue
            self._of(group_id)
            offsets = self._committed.setdefault(group_id, {})
            for partition, candidate in pending.items():
                current = offsets.get(partition)
                if current is None or current.record_offset < candidate.record_offset:
                    offsets[partition] = candidate
            if not offsets:
                del self._committed[group_id]

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        return self._of(group_id).get(partition)

    def group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All committed offsets of a group; the caller must not change the dictionary."""
        return self._of(group_id)

    def groups(self) -> Iterator[str]:
        return iter([*self._committed, *self._raw])

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset (KIP-447: UNSTABLE_OFFSET_COMMIT)."""
        return any(partition in groups.get(group_id, {}) for groups in self._pending.values())

    def has_pending_group(self, group_id: str) -> bool:
        return any(groups.get(group_id) for groups in self._pending.values())

    def partitions_of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        """Every (group, partition) with an offset of this topic: what a topic's deletion has to clear."""
        name = topic.encode()
        for group_id in [each for each, raw in self._raw.items() if any(name in key for key in raw)]:
            self._of(group_id)
        found = {
            (group_id, partition)
            for group_id, offsets in self._committed.items()
            for partition in offsets
            if partition.topic == topic
        }
        found.update(
            (group_id, partition)
            for groups in self._pending.values()
            for group_id, offsets in groups.items()
            for partition in offsets
            if partition.topic == topic
        )
        return sorted(found)

    def expired(
        self, group_id: str, *, now_ms: int, retention_ms: int, since_ms: int | None, subscribed: frozenset[str]
    ) -> list[TopicPartition]:
        """The offsets that retention would remove now (KIP-211).

        `since_ms` is when the group became empty (None: count from each commit, as for groups without members ever);
        topics in `subscribed` never expire.
        """
        return [
            partition
            for partition, committed in self._of(group_id).items()
            if partition.topic not in subscribed
            and not self.has_pending(group_id, partition)
            and now_ms >= _expiry_ms(committed, retention_ms, since_ms)
        ]


def _expiry_ms(committed: CommittedOffset, retention_ms: int, since_ms: int | None) -> int:
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms
    start_ms = committed.commit_timestamp_ms if since_ms is None else max(since_ms, committed.commit_timestamp_ms)
    return start_ms + retention_ms
