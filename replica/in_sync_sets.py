"""Keeps the in-sync sets of what this node leads in step with its followers (Kafka's AlterPartitionManager).

A follower that has caught up joins, one that lags for `replica.lag.time.max.ms` leaves. Changes that come up while the
metadata store is being asked are asked for together the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.changes.partition_changes import hand_over, in_epoch, leave
from ottla.metastore.errors import ConflictError, StoreUnavailableError
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey, PartitionOutcome
    from ottla.replica.delayed_operations import DelayedOperations
    from ottla.replica.isr_change import IsrChange
    from ottla.replica.partition import Partition
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
_NAMED: Final = 5

ChangePartitions = Callable[
    ["Mapping[PartitionKey, PartitionUpdate]"], Awaitable["Mapping[PartitionKey, PartitionOutcome]"]
]


class InSyncSets:
    """Reviews partitions when it is told to, and all of them twice in the time that a follower may lag.

    `expands` and `shrinks` count changes as Kafka's IsrExpands and IsrShrinks do.
    """

    def __init__(
        self,
        partitions: Iterable[Partition],
        clock: Clock,
        waiting: DelayedOperations,
        *,
        node_id: int,
        max_lag_ms: int,
    ) -> None:
        self.expands = 0
        self.shrinks = 0
        self._partitions = partitions
        self._clock = clock
        self._node_id = node_id
        self._max_lag_ms = max_lag_ms
        self._waiting = waiting
        self._due: dict[Partition, None] = {}
        self._wanted = trio.Event()
        #: Changes of which it is not known whether they were made: they are asked for until that is known.
        self._unanswered: dict[Partition, IsrChange] = {}
        #: How this node leaves sets; and those of which it may lack records, to be told.
        self._leaving: dict[PartitionKey, PartitionUpdate] = {}
        self._suspect: dict[Partition, None] = {}
        #: Leader epochs from which partitions are to be led on, as logs here have later ones than the metadata.
        self._outrun: dict[Partition, int] = {}
        self._is_cut_off = False

    def leave(self, partition: Partition) -> None:
        """Let this node leave a set: what it has of the partition may not be all."""
        update = partial(leave, broker=self._node_id, live=partition.live_brokers)
        self._leaving[partition.topic_id, partition.index] = update
        self._suspect[partition] = None
        self._wanted.set()

    def raise_epoch(self, partition: Partition, least: int) -> None:
        """Let a partition be led in no epoch below `least`: the log here has records of the one before."""
        self._outrun[partition] = least
        self._wanted.set()

    def hand_over(self, key: PartitionKey, live: Container[int]) -> None:
        """Let others go on without this node, as far as others are in sync: it cannot serve the partition.

        `live` are the brokers that are alive, kept up to date by their owner.
        """
        self._leaving.setdefault(key, partial(hand_over, broker=self._node_id, live=live))
        self._wanted.set()

    def review(self, partition: Partition) -> None:
        """Somebody may join or leave: look at it soon. Costs nothing where it is done already."""
        self._due[partition] = None
        self._wanted.set()

    async def run(self, change_partitions: ChangePartitions) -> None:
        """Until cancelled; `change_partitions` is the controller's."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, change_partitions)
            nursery.start_soon(self._watch_lag)

    async def _watch_lag(self) -> None:
        while True:
            await trio.sleep(self._max_lag_ms / 2000)
            time_slice = TimeSlice()
            for partition in self._partitions:
                if time_slice.is_over:
                    await time_slice.maybe_yield()
                if len(partition.replicas) < 2:
                    continue
                now_ms = self._clock.time_ms()
                if partition.lagging(now_ms):
                    self.review(partition)
                # A follower that was waited for, and died before it joined, will not fetch again.
                if partition.advance_high_watermark(now_ms):
                    self._waiting.signal(partition)

    async def _follow(self, change_partitions: ChangePartitions) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            due, self._due = self._due, {}
            now_ms = self._clock.time_ms()
            begun, self._unanswered = self._unanswered, {}
            for partition in due:
                change = partition.begin_isr_change(now_ms)
                if change is not None:
                    begun[partition] = change
            if begun:
                await self._carry_out(begun, change_partitions)
            if self._leaving:
                await self._leave(change_partitions)
            if self._outrun:
                await self._raise_epochs(change_partitions)

    async def _leave(self, change_partitions: ChangePartitions) -> None:
        leaving, self._leaving = self._leaving, {}
        suspect, self._suspect = self._suspect, {}
        _log_suspect(list(suspect))
        try:
            await change_partitions(leaving)
        except (StoreUnavailableError, ConflictError):
            self._leaving = leaving | self._leaving
            await trio.sleep(RETRY_SECONDS)
            self._wanted.set()

    async def _raise_epochs(self, change_partitions: ChangePartitions) -> None:
        outrun, self._outrun = self._outrun, {}
        try:
            await change_partitions({(it.topic_id, it.index): partial(in_epoch, least=outrun[it]) for it in outrun})
        except (StoreUnavailableError, ConflictError):
            self._outrun = outrun | self._outrun
            await trio.sleep(RETRY_SECONDS)
            self._wanted.set()
        else:
            _log_outrun(list(outrun))

    async def _carry_out(self, begun: dict[Partition, IsrChange], change_partitions: ChangePartitions) -> None:
        before = {partition: len(partition.isr) for partition in begun}
        asked = {(partition.topic_id, partition.index): change for partition, change in begun.items()}
        try:
            await change_partitions(asked)
        except (StoreUnavailableError, ConflictError) as error:
            # They may have been made: those who join still count until that is known.
            self._unanswered = begun
            for change in begun.values():
                change.doubt()
            if not self._is_cut_off:
                self._is_cut_off = True
                logger.warning("in-sync sets cannot be changed now: %s", error, extra={"error": str(error)})
            await trio.sleep(RETRY_SECONDS)
            self._wanted.set()
            return
        self._is_cut_off = False
        now_ms = self._clock.time_ms()
        grown: list[Partition] = []
        shrunk: list[Partition] = []
        for partition, change in begun.items():
            if partition.end_isr_change(change, now_ms):
                self._waiting.signal(partition)
            more = len(partition.isr) - before[partition]
            if partition.is_leader and more:
                (grown if more > 0 else shrunk).append(partition)
        self.expands += len(grown)
        self.shrinks += len(shrunk)
        _log_change("more", grown)
        _log_change("fewer", shrunk)


def _log_suspect(partitions: Sequence[Partition]) -> None:
    if not partitions:
        return
    named = ", ".join(f"{it.topic}-{it.index}" for it in partitions[:_NAMED])
    others = f" and {len(partitions) - _NAMED} others" if len(partitions) > _NAMED else ""
    text = "%s%s may lack records here, because files are damaged: they leave the in-sync sets and are filled again"
    logger.error(text, named, others, extra={"partitions": len(partitions)})


def _log_outrun(partitions: Sequence[Partition]) -> None:
    named = ", ".join(f"{it.topic}-{it.index}" for it in partitions[:_NAMED])
    others = f" and {len(partitions) - _NAMED} others" if len(partitions) > _NAMED else ""
    text = "the metadata is older than the logs of %s%s: they have records of later leader epochs, so later ones begin"
    logger.warning(text, named, others, extra={"partitions": len(partitions)})


def _log_change(how: str, partitions: Sequence[Partition]) -> None:
    """One line, however many they are; the metrics have the rest."""
    if not partitions:
        return
    named = ", ".join(
        f"{it.topic}-{it.index} (of {len(it.replicas)}: {', '.join(map(str, it.isr))})" for it in partitions[:_NAMED]
    )
    others = f", and {len(partitions) - _NAMED} others" if len(partitions) > _NAMED else ""
    keys = {"partitions": len(partitions)}
    logger.info("%s replicas are in sync for %s%s", how, named, others, extra=keys)
