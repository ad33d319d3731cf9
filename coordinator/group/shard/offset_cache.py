"""Committed offsets of one partition of `__consumer_offsets`: the cache that OffsetFetch answers from.

Everything here has been committed to the log: the runtime calls these methods in log order, at replay and after each
append. Offsets of an open transaction are kept apart until its marker decides (KIP-98, KIP-447).

An offset is kept as the bytes of its record and decoded when it is asked for: of a million that a load brings, few are
asked for soon, and decoding them all would take much longer than a client waits for its coordinator.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.coordinator.group.shard import offset_records

RawOffset = tuple[int, bytes]
"""A record's offset in the log, and its value. A plain tuple, which is made five times as fast as a NamedTuple."""


_NONE: dict[bytes, RawOffset] = {}


class OffsetCache:
    """Committed and pending offsets by group, and in it by the key of their records.

    An idle group costs one dictionary; nothing here is proportional to topics that no group reads.
    """

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[bytes, RawOffset]] = {}
        self._pending: dict[int, dict[str, dict[bytes, RawOffset]]] = {}

    def put(self, group_id: str, key: bytes, raw: RawOffset) -> None:
        """Record a commit that is in the log outside any transaction."""
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = {}
        offsets[key] = raw

    def put_all(self, group_id: str, offsets: Iterable[tuple[bytes, RawOffset]]) -> None:
        """Record several commits of a group, in the order of the log."""
        self._committed.setdefault(group_id, {}).update(offsets)

    def put_pending(self, producer_id: int, group_id: str, key: bytes, raw: RawOffset) -> None:
        """Record a commit inside the open transaction of `producer_id`."""
        self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[key] = raw

    def remove(self, group_id: str, key: bytes) -> None:
        """Apply a tombstone: the committed offset and what transactions would still commit for it are gone."""
        for groups in (self._committed, *self._pending.values()):
            offsets = groups.get(group_id)
            if offsets is not None:
                offsets.pop(key, None)
                if not offsets:
                    del groups[group_id]

    def complete_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker: pending offsets become committed unless a later plain commit overtook them."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            if not commit:
                continue
            for key, candidate in pending.items():
                current = self._committed.get(group_id, _NONE).get(key)
                if current is None or current[0] < candidate[0]:
                    self.put(group_id, key, candidate)

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        offsets = self._committed.get(group_id)
        if offsets is None:
            return None
        raw = offsets.get(offset_records.offset_key(group_id, partition))
        return None if raw is None else offset_records.decode_offset(*raw)

    def offsets(self, group_id: str) -> Iterator[tuple[TopicPartition, int]]:
        """Every partition and offset that a group has committed now, decoded one by one as they are taken."""
        for key, raw in list(self._committed.get(group_id, _NONE).items()):
            yield offset_records.offset_partition(key), offset_records.decode_offset(*raw).offset

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """The partitions for which a group has committed offsets, in order."""
        return sorted(offset_records.offset_partition(key) for key in self._committed.get(group_id, _NONE))

    def count(self, group_id: str) -> int:
        """How many offsets a group has committed."""
        return len(self._committed.get(group_id, _NONE))

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset (KIP-447: UNSTABLE_OFFSET_COMMIT)."""
        if not self._pending:
            return False
        key = offset_records.offset_key(group_id, partition)
        return any(key in groups.get(group_id, _NONE) for groups in self._pending.values())

    def has_pending_group(self, group_id: str) -> bool:
        """Whether an open transaction has an offset of the group."""
        return any(group_id in groups for groups in self._pending.values())

    def has(self, group_id: str) -> bool:
        """Whether a group has an offset, committed or in an open transaction."""
        return group_id in self._committed or self.has_pending_group(group_id)

    def groups(self) -> list[str]:
        """The groups that have an offset, committed or in an open transaction; in the same order in every process."""
        return list(dict.fromkeys(chain(self._committed, *self._pending.values())))

    def keys(self, group_id: str) -> list[bytes]:
        """The keys under which a group has an offset, committed or in an open transaction, in the same order always."""
        pending = (groups.get(group_id, _NONE) for groups in self._pending.values())
        return list(dict.fromkeys(chain(self._committed.get(group_id, _NONE), *pending)))

    def values(self, group_id: str, key: bytes) -> list[bytes]:
        """The values under a key: the committed offset's, and those of open transactions."""
        everywhere = (self._committed, *self._pending.values())
        return [groups[group_id][key][1] for groups in everywhere if key in groups.get(group_id, _NONE)]

    def committed_keys(self, group_id: str) -> list[bytes]:
        """The keys under which a group has committed offsets."""
        return list(self._committed.get(group_id, _NONE))

    def committed(self, group_id: str) -> list[tuple[bytes, RawOffset]]:
        """What a group has committed, as it is in its records."""
        return list(self._committed.get(group_id, _NONE).items())

    def expired(
        self,
        group_id: str,
        keys: Iterable[bytes],
        *,
        now_ms: int,
        retention_ms: int,
        since_ms: int | None,
        subscribed: frozenset[str],
    ) -> list[bytes]:
        """The keys whose offsets retention would remove now (KIP-211).

        `since_ms` is when the group became empty (None: count from each commit, as for a group that never had members);
        offsets of the topics in `subscribed` do not expire, nor do those that an open transaction may still change.
        """
        committed = self._committed.get(group_id, _NONE)
        return [
            key
            for key in keys
            if (raw := committed.get(key)) is not None
            and _is_expired(raw, now_ms, retention_ms, since_ms)
            and offset_records.offset_partition(key).topic not in subscribed
            and not any(key in groups.get(group_id, _NONE) for groups in self._pending.values())
        ]


def _is_expired(raw: RawOffset, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    # Only version 1 of the value, which OffsetCommit v2 to v4 is stored in, may have an expiry of its own.
    if since_ms is not None and now_ms < since_ms + retention_ms and raw[1][1] > 1:
        return False
    return now_ms >= _expiry_ms(offset_records.decode_offset(*raw), retention_ms, since_ms)


def _expiry_ms(committed: CommittedOffset, retention_ms: int, since_ms: int | None) -> int:
    if committed.expire_timestamp_ms >= 0:
        return committed.expire_timestamp_ms
    start_ms = committed.commit_timestamp_ms if since_ms is None else max(since_ms, committed.commit_timestamp_ms)
    return start_ms + retention_ms
