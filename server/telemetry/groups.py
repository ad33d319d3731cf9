"""Consumer groups and their lag, by the names that kafka_exporter has made known.

As there, a topic that a group has committed an offset of is shown with all its partitions: those without a commit have
the offset and the lag -1. At most `ottla.metrics.max.partitions` groups are listed, and as many offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.metric import Family, gauge
from ottla.runtime.time_slice import TimeSlice
from ottla.server.telemetry.cluster import local_partition
from ottla.server.telemetry.first_by_name import FirstByName

if TYPE_CHECKING:
    from ottla.coordinator.group.shard.shard import GroupShard
    from ottla.server.broker import Broker

MEMBERS: Final = gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
OFFSET: Final = gauge(
    "kafka_consumergroup_current_offset", "Offset that the group has committed.", "consumergroup", "topic", "partition"
)
OFFSET_SUM: Final = gauge(
    "kafka_consumergroup_current_offset_sum", "The same over the topic's partitions.", "consumergroup", "topic"
)
LAG: Final = gauge(
    "kafka_consumergroup_lag",
    "Records between the group's offset and the high watermark, -1 without a commit.",
    *("consumergroup", "topic", "partition"),
)
LAG_SUM: Final = gauge("kafka_consumergroup_lag_sum", "The same over the topic's partitions.", "consumergroup", "topic")
GROUPS: Final = gauge("ottla_groups", "Groups that this broker coordinates, by state.", "state")
COORDINATOR_LOADING: Final = gauge(
    "ottla_coordinator_loading_partitions", "Partitions whose state is still being read.", "coordinator"
)
COORDINATOR_FAILED: Final = gauge(
    "ottla_coordinator_failed_partitions", "Partitions whose state could not be read.", "coordinator"
)
TRANSACTIONS: Final = gauge("ottla_transactions", "Transactional ids that this broker coordinates, by state.", "state")

METRICS: Final = (
    *(MEMBERS, OFFSET, OFFSET_SUM, LAG, LAG_SUM, GROUPS, TRANSACTIONS, COORDINATOR_LOADING, COORDINATOR_FAILED),
)


class _Row(NamedTuple):
    """A group's position in one partition: the committed offset, -1 for none, and the high watermark."""

    group: str
    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        return -1 if self.offset < 0 else max(self.end - self.offset, 0)

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.group, self.topic, str(self.partition)


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    runtimes = (
        ("group", broker.group_coordinator.runtime),
        ("transaction", broker.transaction_coordinator.runtime),
    )
    yield Family(COORDINATOR_LOADING, [((name,), runtime.loading()) for name, runtime in runtimes])
    yield Family(COORDINATOR_FAILED, [((name,), len(runtime.failed)) for name, runtime in runtimes])
    time_slice = TimeSlice()
    yield Family(TRANSACTIONS, await _transactions(broker, time_slice))
    room = broker.config.ottla_metrics_max_partitions
    first: FirstByName[tuple[GroupShard, int]] = FirstByName(room)
    states: Counter[str] = Counter()
    for shard in broker.group_coordinator.runtime.loaded_shards():
        for group_id, group in list(shard.groups.items()):
            states[group.state.value] += 1
            first.add(group_id, (shard, len(group.members)))
            await time_slice.maybe_yield()
    yield Family(GROUPS, [((state,), count) for state, count in sorted(states.items())])
    rows: list[_Row] = []
    for group_id, (shard, _) in first.items():
        if len(rows) + shard.offsets.count(group_id) <= room:
            rows += await _rows(broker, shard, group_id, time_slice)
    yield Family(MEMBERS, [((group_id,), members) for group_id, (_, members) in first.items()])
    yield Family(OFFSET, ((row.labels, row.offset) for row in rows))
    yield Family(LAG, ((row.labels, row.lag) for row in rows))
    for metric, values in ((OFFSET_SUM, [row.offset for row in rows]), (LAG_SUM, [row.lag for row in rows])):
        sums: Counter[tuple[str, str]] = Counter()
        for row, value in zip(rows, values, strict=True):
            sums[row.group, row.topic] += max(value, 0)
        yield Family(metric, list(sums.items()))


async def _rows(broker: Broker, shard: GroupShard, group_id: str, time_slice: TimeSlice) -> list[_Row]:
    committed: dict[str, dict[int, int]] = {}
    for partition, offset in shard.offsets.offsets(group_id):
        committed.setdefault(partition.topic, {})[partition.partition] = offset
        await time_slice.maybe_yield()
    rows = []
    for name, offsets in sorted(committed.items()):
        topic = broker.metadata.topic(name)
        if topic is None:
            continue
        for index in range(len(topic.partitions)):
            local = local_partition(broker, topic, index)
            if local is not None:
                rows.append(_Row(group_id, name, index, offsets.get(index, -1), local.log.high_watermark))
            await time_slice.maybe_yield()
    return rows


async def _transactions(broker: Broker, time_slice: TimeSlice) -> list[tuple[tuple[str], int]]:
    states: Counter[str] = Counter()
    for shard in broker.transaction_coordinator.runtime.loaded_shards():
        for transaction in list(shard.transactions()):
            states[transaction.status.name.lower()] += 1
            await time_slice.maybe_yield()
    return [((state,), count) for state, count in sorted(states.items())]
