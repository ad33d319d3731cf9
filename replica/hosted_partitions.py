"""The partitions that this node holds, as the cluster's metadata says."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionChange, ResourceType
from ottla.metadata.keys import encode_described_topic
from ottla.replica.errors import (
    NotLeaderError,
    NotOpenYetError,
    ReplicaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ottla.replica.in_sync_sets import InSyncSets
from ottla.replica.partition import Partition
from ottla.replica.traffic import TopicTraffic
from ottla.replica.unopened import Unopened, may_be_left
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.mirrored import Mirroring
from ottla.storage.disk.passing import passes
from ottla.storage.errors import DiskFullError, StorageError, StoreOfflineError
from ottla.storage.kept_logs import KEPT_CONFIG

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import MetadataDelta, PartitionState, TopicImage
    from ottla.replica.config import ReplicaConfig
    from ottla.replica.delayed_operations import DelayedOperations
    from ottla.replica.high_watermarks import HighWatermarks
    from ottla.replica.kept_logs import KeptLogs
    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.replica.tiered.remote_logs import RemoteLogs
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.storage.clock import Clock
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_manager import LogManager
    from ottla.storage.store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: The logs of so many partitions are deleted by one call of a worker thread.
_DELETED_BY_ONE_CALL: Final = 50
#: The stores of so many partitions are opened by one call of a worker thread.
_OPENED_AHEAD: Final = 256
#: The same while clients may wait for others.
_OPENED_LATER: Final = 64
_NOTHING: Final[Mapping[int, Partition]] = {}


class HostedPartitions:
    """Opens, configures and gives up partitions. What waits for one is signalled after every change of it.

    One whose files were damaged does not lead while others in sync have what it may lack: it leaves the in-sync set.
    The doubt is over when its log was cut where it is damaged, as what follows comes from its leader
    (`Partition.first_bad_offset`). Where a log cannot be opened this node leaves the set, too.
    """

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        config: ReplicaConfig,
        waiting: DelayedOperations,
        *,
        high_watermarks: HighWatermarks | None = None,
        kept_logs: KeptLogs | None = None,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        """Where a start finds more partitions than `opened_at_start`, it leaves to `open_rest` what it can."""
        self._remote_logs = remote_logs
        self._config = config
        #: Those that are left, which `get` refuses: who needs one waits for it before.
        self.unopened = Unopened()
        # Held by who opens and changes partitions: one at a time.
        self._changing = trio.Lock()
        self._log_manager = log_manager
        self._node_id = config.node_id
        self._high_watermarks = high_watermarks
        self._waiting = waiting
        #: The in-sync sets of partitions that this node leads, and those that it leaves by itself.
        self.in_sync_sets = InSyncSets(self, clock, waiting, node_id=config.node_id, max_lag_ms=config.max_lag_ms)
        # What this node had written may be gone (a loss of power, an older copy of its folder).
        self._has_lost = False
        self._suspect: set[Partition] = set()
        # Of which that was found while they were served.
        self._found_damaged: dict[Partition, None] = {}
        # Their folders say that they may lack records, for a start that comes before their replicas are sound.
        self._unsettled: dict[MessageStore, None] = {}
        self._now_ms = clock.time_ms
        self._kept_logs = kept_logs
        #: The epochs of the brokers that are alive, for all partitions.
        self._brokers: dict[int, int] = {}
        self._image = MetadataImage()
        #: Those whose logs could not be opened, and whether that may pass by itself.
        self._offline: dict[tuple[UUID, int], bool] = {}
        self._postponed = trio.Event()
        self._topics: dict[UUID, dict[int, Partition]] = {}
        self._by_log: dict[PartitionLog, Partition] = {}
        #: What went through each topic of which there are partitions here.
        self.traffic: dict[UUID, TopicTraffic] = {}

    def __iter__(self) -> Iterator[Partition]:
        """All, while others may run: what has come to a topic or has gone since it was its turn is not seen."""
        for partitions in list(self._topics.values()):
            yield from list(partitions.values())

    @property
    def offline(self) -> Collection[tuple[UUID, int]]:
        """The partitions that should be here and are not, because their logs could not be opened."""
        return self._offline.keys()

    async def postponed(self) -> Collection[tuple[UUID, int]]:
        """Wait until there is something to do about partitions when they are named again."""
        while not any(self._offline.values()) and not self._found_damaged:
            self._postponed = trio.Event()
            await self._postponed.wait()
        damaged = [(partition.topic_id, partition.index) for partition in self._found_damaged]
        return [*damaged, *(key for key, may_pass in self._offline.items() if may_pass)]

    def damaged(self, logs: Iterable[PartitionLog]) -> None:
        """Some of these logs may have lost records: they are in doubt when their partitions are named again."""
        for log in logs:
            partition = self._by_log.get(log)
            if partition is not None and len(partition.replicas) > 1:
                self._found_damaged[partition] = None
                self._postponed.set()

    def get(self, topic_id: UUID, partition: int) -> Partition:
        """The partition, whatever its role; raises what `ReplicaManager.get_partition` does."""
        try:
            return self._topics[topic_id][partition]
        except KeyError:
            raise self._why_missing(topic_id, partition) from None

    def of_topic(self, topic_id: UUID) -> Mapping[int, Partition]:
        """The topic's partitions that are held now, by number."""
        return self._topics.get(topic_id, _NOTHING)

    def of_log(self, log: PartitionLog) -> Partition | None:
        """The partition whose log this is, None if it is no longer held."""
        return self._by_log.get(log)

    def _why_missing(self, topic_id: UUID, partition: int) -> ReplicaError | StorageError:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return UnknownTopicIdError(f"no topic has the id {topic_id}")
        if not 0 <= partition < len(topic.partitions):
            return UnknownTopicOrPartitionError(f"topic {topic.name} has no partition {partition}")
        if (topic_id, partition) in self._offline:
            return StoreOfflineError(f"the log of {topic.name}-{partition} could not be opened")
        if (topic_id, partition) in self.unopened.left:
            return NotOpenYetError(f"the log of {topic.name}-{partition} is not open yet")
        return NotLeaderError(f"node {self._node_id} holds no replica of {topic.name}-{partition}")

    def expect_losses(self) -> None:
        """What this node had written may be gone. Called before the first metadata is applied."""
        self._has_lost = True

    async def apply(self, delta: MetadataDelta) -> None:
        """Make this node lead, follow and give up partitions as the metadata says. Called by one task, in order."""
        try:
            self._changing.acquire_nowait()
        except trio.WouldBlock:
            await self._changing.acquire()
        try:
            await self._open_what_changes(delta)
            await self._apply(delta)
        finally:
            self._changing.release()

    async def open_rest(self) -> None:
        """Open what the start has left; returns when nothing is left. Called once the node serves."""
        while self.unopened.left:
            async with self._changing:
                await self._open_left(self.unopened.next(_OPENED_LATER))
                await self.settle_losses()

    async def _open_what_changes(self, delta: MetadataDelta) -> None:
        """What is left and changes now is first opened as it was: only what is open can be changed, or deleted."""
        if not self.unopened.left:
            return
        keys = [(change.topic.topic_id, change.partition) for change in delta.changed_partitions]
        keys += [(topic.topic_id, index) for topic in delta.deleted_topics for index in range(len(topic.partitions))]
        await self._open_left(keys)

    async def _open_left(self, keys: Iterable[tuple[UUID, int]]) -> None:
        changes = []
        for topic_id, index in keys:
            topic = self._image.topic_by_id(topic_id)
            if (topic_id, index) in self.unopened.left:
                assert topic is not None, "a topic that is deleted is opened first"
                changes.append(PartitionChange(topic, index, None, topic.partitions[index]))
        await self._follow_all(changes)

    async def _leave_for_later(self, delta: MetadataDelta) -> Sequence[PartitionChange]:
        """Of the first changes after a start those that must be followed at once; the rest is noted as unopened."""
        changes = delta.changed_partitions
        if delta.before.revision or len(changes) <= self._config.opened_at_start or self._remote_logs is not None:
            return changes
        at_once = []
        time_slice = TimeSlice()
        for change in changes:
            if time_slice.is_over:
                await time_slice.maybe_yield()
            topic, index, _, state = change
            if may_be_left(topic, state, self._node_id):
                self.unopened.leave((topic.topic_id, index))
            else:
                at_once.append(change)
        return at_once

    async def _apply(self, delta: MetadataDelta) -> None:
        self._image = delta.after
        if delta.changed_brokers:
            self._brokers.clear()
            self._brokers.update((broker.node_id, broker.epoch) for broker in delta.after.live_brokers())
        for topic in delta.deleted_topics:
            if self._offline:
                self._offline = {key: it for key, it in self._offline.items() if key[0] != topic.topic_id}
            held = list(self._topics.get(topic.topic_id, {}).values())
            for first in range(0, len(held), _DELETED_BY_ONE_CALL):
                some = held[first : first + _DELETED_BY_ONE_CALL]
                for partition in some:
                    partition.delete()
                await self._remove(topic, some)
        await self._follow_all(await self._leave_for_later(delta), delta)
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            time_slice = TimeSlice()
            for topic_id in list(self._topics):
                self._reconfigure(delta.after.topic_by_id(topic_id))
                await time_slice.maybe_yield()
        for topic in delta.reconfigured_topics:
            await self._change_mirroring(topic)
            self._reconfigure(topic)
            for store in {partition.log.store for partition in self.of_topic(topic.topic_id).values()}:
                store.describe(partial(_description, topic), soon=True)
        await self.settle_losses()

    async def _follow_all(self, changes: Sequence[PartitionChange], delta: MetadataDelta | None = None) -> None:
        """`delta` is what they are part of, None for those that the start has left."""
        time_slice = TimeSlice()
        for first in range(0, len(changes), _OPENED_AHEAD):
            some = changes[first : first + _OPENED_AHEAD]
            missing = list(self._missing(some))
            await self._log_manager.open_ahead(missing)
            for change in some:
                is_new = delta is not None and _is_new(delta, change.topic, change.partition)
                await self._follow_state(change.topic, change.partition, change.after, is_new=is_new)
                if self.unopened.left:
                    self.unopened.take((change.topic.topic_id, change.partition))
                await time_slice.maybe_yield()

    def _missing(self, changes: Iterable[PartitionChange]) -> Iterator[tuple[UUID, str, int]]:
        """Those that this node gets."""
        for topic, index, _, state in changes:
            if self._node_id in state.replicas and index not in self.of_topic(topic.topic_id):
                yield topic.topic_id, topic.name, index

    async def _follow_state(self, topic: TopicImage, index: int, state: PartitionState, *, is_new: bool) -> None:
        held = self._topics.get(topic.topic_id, {}).get(index)
        is_known = bool(self._offline) and self._offline.pop((topic.topic_id, index), None) is not None
        if self._node_id not in state.replicas:
            if held is not None:
                await held.settled()
                held.give_up()
                await self._remove(topic, [held], keeps_logs=held.is_kept)
            return
        try:
            partition = held or await self._open(topic, index, state)
        except (StorageError, OSError) as error:
            if not is_known:
                keys = {"topic": topic.name, "partition": index}
                logger.exception("%s-%d is offline: its log could not be opened", topic.name, index, extra=keys)
            self._offline[topic.topic_id, index] = passes(error) or isinstance(error, DiskFullError)
            self._postponed.set()
            if len(state.replicas) > 1:
                self.in_sync_sets.hand_over((topic.topic_id, index), self._brokers.keys())
            return
        # Soon after a move: then another node's description is older, and must not be believed.
        is_moved = held is not None and held.replicas != state.replicas
        partition.log.store.describe(partial(_description, topic), soon=is_moved)
        await partition.settled()
        if partition in self._found_damaged:
            del self._found_damaged[partition]
            self._suspect_log(partition)
        state = self._in_a_later_epoch(partition, self._as_far_as_sure(partition, state))
        if partition.remote is not None and not is_new:
            state = await self._after_remote(partition, partition.remote, state)
        partition.apply(state, self._now_ms())
        self._topics.setdefault(topic.topic_id, {})[index] = partition
        self._waiting.signal(partition)

    def _as_far_as_sure(self, partition: Partition, state: PartitionState) -> PartitionState:
        if partition.first_bad_offset is None:
            return state
        if state.isr == (self._node_id,) and not state.elr:
            partition.take_as_whole()  # no other replica has more
            return state
        if self._node_id not in (*state.isr, *state.elr):
            return state
        self.in_sync_sets.leave(partition)
        return state._replace(leader=NO_LEADER) if state.leader == self._node_id else state

    def _in_a_later_epoch(self, partition: Partition, state: PartitionState) -> PartitionState:
        """The state to take. Where the log has records of later leader epochs than the metadata knows, which is older
        then, a later one is asked for, and until it comes this node does not lead: see docs/decisions/0032.
        """
        latest = partition.log.latest_epoch
        # Of one replica alone no other can have led in the same epoch.
        begins = state.leader == self._node_id and len(state.replicas) > 1 and not partition.leads_on(state)
        if latest < state.leader_epoch + (not begins) or partition.mirroring is not Mirroring.NO:
            return state
        self.in_sync_sets.raise_epoch(partition, latest + 1)
        return state._replace(leader=NO_LEADER) if state.leader == self._node_id else state

    async def _after_remote(self, partition: Partition, remote: RemoteLog, state: PartitionState) -> PartitionState:
        """The state to take of a tiered partition. What is in the object store may go further than a log that has lost
        its end: until that is known this node does not lead, and then it goes on from there.
        """
        log = partition.log
        if state.leader != self._node_id or partition.leads_on(state):
            return state
        if not remote.is_known(state.leader_epoch):
            if not self._may_be_short(partition, remote):
                return state
            assert self._remote_logs is not None
            self._remote_logs.look_at((partition.topic_id, partition.index), remote, state.leader_epoch)
            return state._replace(leader=NO_LEADER)
        end_offset = remote.end_beyond(log)
        if end_offset is not None:
            keys = {"topic": partition.topic, "partition": partition.index, "offset": end_offset}
            text = "%s ends at offset %d here, and goes on at offset %d, where the object store ends"
            logger.warning(text, remote.name, log.log_end_offset, end_offset, extra=keys)
            await log.truncate_fully_and_start_at(end_offset)
        return state

    def _may_be_short(self, partition: Partition, remote: RemoteLog) -> bool:
        """Whether a log that is about to lead may lack records that were acknowledged, and are in the object store."""
        log = partition.log
        is_empty = log.log_start_offset == log.log_end_offset
        # Elected without having been in sync (unclean.leader.election.enable).
        is_late = bool(partition.isr) and not partition.is_counted_on
        return is_empty or is_late or log.may_lack_records or (self._has_lost and not remote.has_looked)

    def _follow_rules(self, partition: Partition, rules: RemoteRules | None) -> None:
        """Whether the topic is tiered, and how, may have changed."""
        if rules is None or self._remote_logs is None:
            partition.tier(None)
        elif partition.remote is None:
            cluster_id = self._image.cluster_id
            partition.tier(
                self._remote_logs.open(cluster_id, partition.topic, partition.topic_id, partition.index, rules)
            )
        else:
            partition.remote.follow(rules)

    async def _open(self, topic: TopicImage, index: int, state: PartitionState) -> Partition:
        rules = self._config.topic_rules(topic)
        log = await self._log_manager.open_log(topic.topic_id, topic.name, index, rules.log)
        if len(state.replicas) > 1:
            # What this log holds need not be on the other replicas: it counts as committed when they are heard of,
            # except what was known to be committed before.
            last = 0 if self._high_watermarks is None else self._high_watermarks.of(topic.topic_id, index)
            known = min(last, log.log_end_offset)
            log.set_high_watermark(max(known, log.log_start_offset))
        partition = Partition(
            topic.name,
            topic.topic_id,
            index,
            log,
            node_id=self._node_id,
            min_insync_replicas=rules.min_insync_replicas,
            is_internal=topic.is_internal,
            mirroring=topic.mirrored.mirroring,
            traffic=self.traffic.setdefault(topic.topic_id, TopicTraffic()),
            brokers=self._brokers,
            max_lag_ms=self._config.max_lag_ms,
            kept_logs=self._kept_logs,
        )
        partition.throttle(rules.throttled)
        self._follow_rules(partition, rules.remote)
        self._by_log[log] = partition
        if log.may_lack_records:
            self._suspect_log(partition)
        return partition

    def _suspect_log(self, partition: Partition) -> None:
        partition.suspect()
        self._suspect.add(partition)
        self._unsettled[partition.log.store] = None

    async def settle_losses(self) -> None:
        """Let go of what was noted of lost records, where no replica of a store is in doubt any more."""
        if self._offline or not self._unsettled:
            return
        self._suspect = {partition for partition in self._suspect if partition.first_bad_offset is not None}
        suspect = {partition.log.store for partition in self._suspect}
        for store in [each for each in self._unsettled if each not in suspect]:
            if store not in self._unsettled:
                continue  # somebody else has come to it meanwhile
            del self._unsettled[store]
            try:
                await store.settle_loss()
            except (StorageError, OSError) as error:
                # Its replicas leave the in-sync sets once more than they have to.
                keys = {"path": store.files.directory, "error": str(error)}
                logger.warning("the note of lost records in %s stays: %s", store.files.directory, error, extra=keys)

    async def _remove(self, topic: TopicImage, removed: Sequence[Partition], *, keeps_logs: bool = False) -> None:
        """Forget partitions of a topic in their final roles, and delete their logs, or keep them as stray ones."""
        partitions = self._topics[topic.topic_id]
        for partition in removed:
            del partitions[partition.index]
            self._by_log.pop(partition.log, None)
            self._suspect.discard(partition)
            self._found_damaged.pop(partition, None)
        if not partitions:
            del self._topics[topic.topic_id]
            self.traffic.pop(topic.topic_id, None)
        for partition in removed:
            self._waiting.signal(partition)
        if keeps_logs:
            for partition in removed:
                partition.log.set_config(KEPT_CONFIG)
            return
        indexes = [partition.index for partition in removed]
        try:
            await self._log_manager.delete_logs(topic.topic_id, indexes)
        except (StorageError, OSError):
            # What follows the metadata must go on; what is left on the disk belongs to no topic and is never read.
            keys = {"topic": topic.name, "partitions": indexes}
            logger.exception("logs of %s could not be deleted: partitions %s", topic.name, indexes, extra=keys)

    async def _change_mirroring(self, topic: TopicImage) -> None:
        mirroring = topic.mirrored.mirroring
        for partition in self.of_topic(topic.topic_id).values():
            if partition.mirroring is not mirroring:
                await partition.settled()
                partition.change_mirroring(mirroring)

    def _reconfigure(self, topic: TopicImage | None) -> None:
        if topic is None:
            return
        log_config, min_insync_replicas, throttled, remote = self._config.topic_rules(topic)
        for partition in self._topics.get(topic.topic_id, {}).values():
            partition.throttle(throttled)
            self._follow_rules(partition, remote)
            if partition.log.config == log_config and partition.min_insync_replicas == min_insync_replicas:
                continue
            partition.log.set_config(log_config)
            partition.require_in_sync(min_insync_replicas)
            partition.advance_high_watermark(self._now_ms())
            self._waiting.signal(partition)


def _is_new(delta: MetadataDelta, topic: TopicImage, index: int) -> bool:
    """Whether a partition was created just now, while this node looked on: nobody can have written anything of it."""
    if not delta.before.cluster_id:
        return False
    before = delta.before.topic_by_id(topic.topic_id)
    return before is None or index >= len(before.partitions)


def _description(topic: TopicImage) -> bytes:
    """What is kept beside a topic's records, for when the metadata is lost: see `ottla restore`."""
    return encode_described_topic(topic)
