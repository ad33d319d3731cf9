"""Recent history for the console's curves: sampled while the console is enabled, kept in memory, limited in size."""

from __future__ import annotations

from array import array
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.console.lag import committed_in, ends_of, total_lag
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from ottla.client.offsets import TopicPartition
    from ottla.server.broker import Broker

INTERVAL_SECONDS: Final = 5.0
LENGTH: Final = 240
"""Points of a curve: 20 minutes."""

MAX_GROUPS: Final = 500
"""How many groups' lag is kept; in a cluster with more, only the first ones have curves."""

MAX_OFFSETS: Final = 5_000
"""How many committed offsets a sample reads, some 20 ms of work; groups beyond that have no curve."""


class Curve:
    """The last `LENGTH` values of something, oldest first."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float) -> None:
        if len(self._values) >= LENGTH:
            del self._values[0]
        self._values.append(value)

    @property
    def values(self) -> Sequence[float]:
        return self._values

    @property
    def last(self) -> float | None:
        return self._values[-1] if self._values else None


class Totals(NamedTuple):
    """The totals since the node's start when a sample was taken."""

    at: float
    appended_bytes: int
    fetched_bytes: int
    appends: int
    fetches: int


class History:
    """Curves of the node's rates and of groups' lag, and the rate at which each topic grows.

    `run` is the task that samples. A sample looks at every open partition and group once, in slices.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._before: Totals | None = None
        self._ends: dict[UUID, int] = {}
        self._sampled_at = 0.0
        self.bytes_in = Curve()
        self.bytes_out = Curve()
        self.requests = Curve()
        #: Records per second that each topic received between the last two samples; only topics that received any.
        self.topic_rates: dict[UUID, float] = {}
        self.lags: dict[str, Curve] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self.sample()
            await trio.sleep(INTERVAL_SECONDS)

    async def sample(self) -> None:
        """Take one sample of everything."""
        self._sample_rates()
        await self._sample_topics()
        await self._sample_lags()

    def _sample_rates(self) -> None:
        counters = self._broker.replica_manager.counters
        now = Totals(monotonic(), counters.appended_bytes, counters.fetched_bytes, counters.appends, counters.fetches)
        before, self._before = self._before, now
        if before is None or now.at <= before.at:
            return
        seconds = now.at - before.at
        self.bytes_in.add((now.appended_bytes - before.appended_bytes) / seconds)
        self.bytes_out.add((now.fetched_bytes - before.fetched_bytes) / seconds)
        self.requests.add((now.appends + now.fetches - before.appends - before.fetches) / seconds)

    async def _sample_topics(self) -> None:
        slices = TimeSlice()
        ends: dict[UUID, int] = {}
        now = monotonic()
        for partition in self._broker.replica_manager.partitions():
            ends[partition.topic_id] = ends.get(partition.topic_id, 0) + partition.log.log_end_offset
            if slices.is_over:
                await slices.maybe_yield()
        seconds = now - self._sampled_at
        if self._ends and seconds > 0:
            self.topic_rates = {
                topic_id: (end - self._ends[topic_id]) / seconds
                for topic_id, end in ends.items()
                if end > self._ends.get(topic_id, end)
            }
        self._ends, self._sampled_at = ends, now

    async def _sample_lags(self) -> None:
        """The lag of the groups that this node coordinates, whichever nodes lead the partitions that they read."""
        offsets: dict[str, list[tuple[TopicPartition, int]]] = {}
        room = MAX_OFFSETS
        for shard in self._broker.group_coordinator.runtime.loaded_shards():
            for group_id in list(shard.groups):
                count = shard.offsets.count(group_id)
                if not 0 < count <= room or len(offsets) >= MAX_GROUPS:
                    continue
                room -= count
                offsets[group_id] = await committed_in(shard, group_id, count)
        ends = await ends_of(self._broker, {where for each in offsets.values() for where, _ in each})
        lags: dict[str, Curve] = {}
        slices = TimeSlice()
        for group_id, each in offsets.items():
            lag = total_lag(each, ends)
            if lag is not None:
                curve = lags[group_id] = self.lags.get(group_id) or Curve()
                curve.add(lag)
            if slices.is_over:
                await slices.maybe_yield()
        self.lags = lags
