"""The replica manager: it owns the partitions of this node, appends to them and fetches from them.

The seed's `ReplicaManager`: request handlers and coordinators call `append` and `fetch` and get an answer that holds;
logs, roles, watermarks and waiting are known here and below only.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import trio

from ottla.kproto.records import RecordError
from ottla.replica.append import AppendOperation, AppendResult, Records, TopicIdPartition
from ottla.replica.delayed_operations import DelayedOperations
from ottla.replica.delete_records import DeleteRecordsOperation, DeleteRecordsResult
from ottla.replica.errors import (
    InternalTopicError,
    NotLeaderError,
    ReplicaError,
    RequestTimedOutError,
)
from ottla.replica.fetch import FetchOperation, FetchParams, FetchPartition, FetchResult, RecordsWait
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.hosted_partitions import HostedPartitions
from ottla.replica.partition import Isolation, Partition, Role
from ottla.replica.throttles import UNTHROTTLED
from ottla.replica.traffic import TopicTraffic
from ottla.replica.visible_records import aborted_transactions
from ottla.runtime import remote_time
from ottla.runtime.stages import Stages, finish
from ottla.runtime.time_slice import CHUNK_ELEMENTS, TimeSlice
from ottla.storage.errors import ChecksTakeLongError, StorageError
from ottla.storage.log.partition_log import AppendOrigin
from ottla.storage.reading.plan import begin_read

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import MetadataDelta
    from ottla.replica.config import ReplicaConfig
    from ottla.replica.confirmation import BrokerSession
    from ottla.replica.high_watermarks import HighWatermarks
    from ottla.replica.kept_logs import KeptLogs
    from ottla.replica.throttles import ReplicaQuotas
    from ottla.replica.tiered.remote_logs import RemoteLogs
    from ottla.replica.tiered.remote_plan import RemotePlan
    from ottla.runtime.memory_budget import MemoryBudget
    from ottla.runtime.purgatory import Watch
    from ottla.storage.clock import Clock
    from ottla.storage.log.append_types import CheckedBatch
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_manager import LogManager
    from ottla.storage.reading.plan import ReadPlan

logger = logging.getLogger(__name__)

_COORDINATOR: Final = AppendOrigin.COORDINATOR
#: How many threads look at records: this limits the memory that it takes.
_CHECKING_THREADS: Final = 2
MIN_FETCH_BYTES: Final = 65_536
"""What a fetch may always read, however much memory the responses under way hold already."""


class ReplicaManagerCounters:
    """What the manager has done since the start."""

    __slots__ = (
        "append_errors",
        "appended_bytes",
        "appends",
        "fetch_errors",
        "fetched_bytes",
        "fetches",
        "file_reads",
        "memory_reads",
        "replicated_bytes",
    )

    def __init__(self) -> None:
        self.appends = 0
        self.appended_bytes = 0
        self.append_errors = 0
        self.fetches = 0
        self.fetched_bytes = 0
        self.fetch_errors = 0
        self.memory_reads = 0
        self.replicated_bytes = 0
        self.file_reads = 0

    def replicated(self, size_bytes: int) -> None:
        """Count records that this node has as a follower."""
        self.replicated_bytes += size_bytes


class ReplicaManager:
    """The partitions of one node, and the operations on them that may have to wait.

    `apply` follows the cluster's metadata and is called by one task. The store reports what it has flushed, and its own
    failure, by `on_flushed` and `on_offline` (`StorageListener`). Every event signals the purgatories' waiters of the
    partitions concerned, as the table in `purgatory.py` lists.
    """

    def __init__(
        self,
        log_manager: LogManager,
        clock: Clock,
        config: ReplicaConfig,
        *,
        response_budget: MemoryBudget,
        quotas: ReplicaQuotas = UNTHROTTLED,
        session: BrokerSession | None = None,
        high_watermarks: HighWatermarks | None = None,
        kept_logs: KeptLogs | None = None,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        """`high_watermarks` are those from before the start. `remote_logs` has the older parts of tiered topics'
        logs."""
        self.node_id = config.node_id
        #: The event loop's turn, at whose end appends are written.
        self.turn = log_manager.context.turn
        self._waiting = waiting = DelayedOperations(self.turn)
        self.append_purgatory = waiting.append
        self.fetch_purgatory = waiting.fetch
        self.delete_records_purgatory = waiting.delete_records
        self.share_fetch_purgatory = waiting.share_fetch
        self._signal = waiting.signal
        self.fetch_sessions = FetchSessionCache(config.fetch_session_slots, clock)
        self.counters = ReplicaManagerCounters()
        self.leader_quota = quotas.leader
        self.follower_quota = quotas.follower
        self._clock = clock
        self._config = config
        self._response_budget = response_budget
        self._session = session
        self._checkers = trio.CapacityLimiter(_CHECKING_THREADS)
        self._partitions = HostedPartitions(
            log_manager,
            clock,
            config,
            waiting,
            high_watermarks=high_watermarks,
            kept_logs=kept_logs,
            remote_logs=remote_logs,
        )
        #: What `open_rest` has not come to: `get_partition` refuses it, appends and fetches wait for it.
        self.unopened = self._partitions.unopened
        self.in_sync_sets = self._partitions.in_sync_sets
        self._closed = False

    # Partitions -----------------------------------------------------------------------------------------------------

    def get_partition(self, topic_id: UUID, partition: int) -> Partition:
        """The partition that this node holds, whatever its role.

        Raises UnknownTopicIdError, UnknownTopicOrPartitionError, NotLeaderError if it is another node's or among
        the `unopened`, or StoreOfflineError if its log could not be opened.
        """
        return self._partitions.get(topic_id, partition)

    def may_be_replaced(self) -> bool:
        """Whether this node's session may have expired, so that other brokers may already lead its partitions."""
        return self._session is not None and self._session.may_have_ended

    async def confirm_leadership(self, keys: Iterable[TopicIdPartition]) -> None:
        """Return when nobody else had led any of these when this was called. Raises what `get_partition` does, and
        NotLeaderError if that cannot be known. Only needed while this node `may_be_replaced`.
        """
        from ottla.replica.confirmation import confirm_leadership  # seldom needed

        await confirm_leadership([self.get_partition(*key) for key in keys])

    def partitions(self) -> Iterator[Partition]:
        """All partitions that this node holds. Others may run between them, and partitions come and go."""
        return iter(self._partitions)

    @property
    def offline_partitions(self) -> int:
        """How many partitions should be here and are not, because their logs could not be opened."""
        return len(self._partitions.offline)

    def offline(self) -> Collection[tuple[UUID, int]]:
        """Those partitions."""
        return self._partitions.offline

    async def postponed_partitions(self) -> Collection[tuple[UUID, int]]:
        """Wait until there are partitions whose logs could not be opened for want of room or of descriptors, or were
        found to be damaged.

        They are retried when `apply` is next called for them.
        """
        return await self._partitions.postponed()

    @property
    def traffic(self) -> Mapping[UUID, TopicTraffic]:
        """What went through each topic that this node holds partitions of."""
        return self._partitions.traffic

    @property
    def response_budget(self) -> MemoryBudget:
        """What the responses under way hold in memory."""
        return self._response_budget

    async def apply(self, delta: MetadataDelta) -> None:
        """Make this node lead, follow and give up partitions as the metadata says. Called by one task, in order."""
        await self._partitions.apply(delta)

    async def open_rest(self) -> None:
        """Open what the first `apply` has left for when the node serves; returns when all is open."""
        await self._partitions.open_rest()

    # Appending ------------------------------------------------------------------------------------------------------

    async def append(
        self,
        entries: Mapping[TopicIdPartition, Records],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        internal_topics_allowed: bool = False,
        require_verification: bool = False,
        transaction_version: int = 0,
    ) -> dict[TopicIdPartition, AppendResult]:
        """Append to each partition as its leader; return when `required_acks` holds for all, or at the deadline.

        acks=0 asks for nothing, 1 for the leader's flush, -1 for all in-sync replicas. A partition's failure is its own
        result's `error`, the others go on. Coordinators (by `origin`) and `internal_topics_allowed` write to internal
        topics. The last two arguments are those of `ProducerStateManager.check`.
        """
        results = await self.finish_append(
            await finish(
                self.begin_append(
                    entries.items(),
                    required_acks=required_acks,
                    timeout_ms=timeout_ms,
                    origin=origin,
                    internal_topics_allowed=internal_topics_allowed,
                    require_verification=require_verification,
                    transaction_version=transaction_version,
                )
            )
        )
        return dict(zip(entries, results, strict=True))

    def begin_append(
        self,
        entries: Collection[tuple[TopicIdPartition, Records]],
        *,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        internal_topics_allowed: bool = False,
        require_verification: bool = False,
        transaction_version: int = 0,
        is_awaited: Callable[[], bool] | None = None,
    ) -> Stages[AppendOperation]:
        """The first half of `append`: every partition has taken or refused its records, in the order of `entries`.

        Waits only where a store has no room, a large batch is checked or a log is not open yet. Until it returns the
        caller keeps back what must be appended later. What is appended is written at the end of the turn, or later.

        What has waited for room, and all after it, is refused with RequestTimedOutError once the deadline has passed,
        or if nobody waits for it any more: `is_awaited` is asked after each such wait.
        """
        now_ms = self._clock.time_ms()
        is_coordinator = origin is _COORDINATOR
        # A coordinator waits until the log has decided, as its state follows the log.
        operation = AppendOperation(required_acks, timeout_ms, waits_for_room=is_coordinator)
        may_write_internal = internal_topics_allowed or is_coordinator
        find = self._partitions.get
        time_slice = TimeSlice() if len(entries) > CHUNK_ELEMENTS else None
        left = len(entries)
        has_waited = bool(self.unopened.left)
        if has_waited:
            yield from self.unopened.until_open(key for key, _ in entries)
        for (topic_id, index), (view, fragment, guard, checked) in entries:
            if time_slice is not None:
                left -= 1
                if left % CHUNK_ELEMENTS == 0 and time_slice.is_over:
                    yield time_slice.maybe_yield
            partition = None
            try:
                partition = find(topic_id, index)
                if partition.is_internal and not may_write_internal:
                    raise InternalTopicError(f"clients may not write to {partition.topic}")
                log = partition.log
                while True:
                    if not log.has_room:
                        has_waited = True
                        yield partial(_wait_for_room, partition, operation.deadline)
                    if has_waited:
                        _require_awaited(partition, operation.deadline, is_awaited)
                    try:
                        info = partition.append(
                            view,
                            fragment,
                            required_acks=required_acks,
                            origin=origin,
                            now_ms=now_ms,
                            transaction_version=transaction_version,
                            require_verification=require_verification,
                            guard=guard,
                            checked=checked,
                        )
                        break
                    except ChecksTakeLongError:
                        checked = yield partial(self.check_ahead, log, view, now_ms)
            except (ReplicaError, StorageError, RecordError) as error:
                self._note_refused(operation, error, partition)
            else:
                self.counters.appends += 1
                self.counters.appended_bytes += len(view)
                messages = 0 if info.duplicate else info.last_offset - info.base_offset + 1
                partition.traffic.appended(len(view), messages)
                operation.appended(partition, info)
        return operation

    async def check_ahead(self, log: PartitionLog, view: memoryview, now_ms: int) -> CheckedBatch:
        """See `PartitionLog.check_ahead`; few run at the same time."""
        async with self._checkers:
            return await log.check_ahead(view, now_ms=now_ms)

    def _note_refused(self, operation: AppendOperation, error: Exception, partition: Partition | None) -> None:
        self.counters.append_errors += 1
        if partition is not None:
            partition.traffic.append_failed()
        operation.refused(error, partition)

    async def finish_append(self, operation: AppendOperation) -> list[AppendResult]:
        """The second half of `append`: wait for the leader's own write, and for other replicas until the deadline.

        The results are in the order of the entries.
        """
        if operation.is_pending:
            acknowledged = trio.Event()
            watch = self.watch_append(operation, acknowledged.set)
            try:
                with remote_time.Waiting():
                    await acknowledged.wait()
            finally:
                watch.leave()
        return operation.results

    def watch_append(self, operation: AppendOperation, completed: Callable[[], None]) -> Watch:
        """`finish_append` without a task: `completed` is called, in none, when the operation is no longer pending."""

        def end() -> None:
            operation.expire(shutting_down=self._closed)
            completed()

        return self.append_purgatory.watch(
            operation.keys, operation.try_complete, operation.left_ms, end, may_expire=operation.may_expire
        )

    async def wait_committed(self, partition: Partition, end_offset: int) -> None:
        """Return when everything below an offset is committed. Raises when this node leads no longer, or stops."""

        def is_committed() -> bool | None:
            partition.require_leader()
            return True if partition.log.high_watermark >= end_offset else None

        if await self.append_purgatory.wait([partition], is_committed, math.inf) is None:
            raise NotLeaderError(
                f"{partition.topic}-{partition.index} stopped before offset {end_offset} was committed"
            )

    # Following ------------------------------------------------------------------------------------------------------

    async def wait_flushed(self, partitions: Sequence[Partition]) -> None:
        """Return when all that was appended to followers is written, or never will be."""

        def is_flushed() -> bool | None:
            waiting = any(
                it.role is Role.FOLLOWER and it.log.flushed_end_offset < it.log.log_end_offset for it in partitions
            )
            return None if waiting else True

        await self.append_purgatory.wait(partitions, is_flushed, math.inf)

    async def settle_losses(self) -> None:
        """A log that lacked records is sound again: forget what was noted of it, if it was the last of its store."""
        await self._partitions.settle_losses()

    def expect_losses(self) -> None:
        """What this node had written may be gone. Called before the first metadata is applied."""
        self._partitions.expect_losses()

    def follower_moved(self, partition: Partition) -> None:
        """What a follower shows has changed, by what its leader said."""
        self._signal(partition)

    # Fetching -------------------------------------------------------------------------------------------------------

    async def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        *,
        before_wait: Callable[[], None] | None = None,
    ) -> list[FetchResult]:
        """Read each partition up to its visible end; the results are in the order of `partitions`, all distinct.

        Waits until `min_bytes` are there, an error or a divergence has to be told, or `max_wait_ms` have passed. The
        first partition that has data yields at least one batch, whatever the limits. The caller owns the results and
        releases every one. `before_wait` is called if it has to wait.
        """
        return await finish(self.begin_fetch(params, partitions, before_wait=before_wait))

    def begin_fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        *,
        before_wait: Callable[[], None] | None = None,
    ) -> Stages[list[FetchResult]]:
        """`fetch`, which waits for nothing where few partitions have what was asked for in memory."""
        if self.unopened.left:
            yield from self.unopened.until_open((each.topic_id, each.partition) for each in partitions)
        operation = FetchOperation(
            params,
            partitions,
            self._partitions,
            readable_bytes=self._readable_bytes,
            quota=self.leader_quota,
            now_ms=self._clock.time_ms(),
        )
        self.counters.fetches += 1
        try:
            yield from operation.look_at_all()
            for partition in operation.progressed:
                self._signal(partition)
            for partition in operation.joining:
                self.in_sync_sets.review(partition)
            if operation.try_complete() is None and params.max_wait_ms > 0:
                operation.begin_waiting()
                if before_wait is not None:
                    before_wait()
                yield RecordsWait(self.fetch_purgatory, operation, params.max_wait_ms)
                yield from operation.plan_again()
            self.counters.fetch_errors += operation.errors
            yield from self._read(params, operation.results, reads_remotely=operation.reads_remotely)
        except BaseException:
            operation.release()
            raise
        return operation.results

    def _readable_bytes(self) -> int:
        """What memory the responses under way leave for another one.

        A client that does not read its responses makes the others' smaller, down to a floor, but never makes them wait.
        """
        budget = self._response_budget
        return max(MIN_FETCH_BYTES, budget.limit_bytes - budget.used_bytes)

    def _read(
        self, params: FetchParams, results: Sequence[FetchResult], *, reads_remotely: bool = False
    ) -> Stages[None]:
        planned = [result for result in results if result.plan is not None]
        for result in planned:
            result.charge(self._response_budget)
        unread = [result.plan for result in planned if result.plan is not None and not result.plan.is_complete]
        counters = self.counters
        counters.memory_reads += len(planned) - len(unread)
        if reads_remotely:
            yield from self._read_both(unread)
        elif unread:
            counters.file_reads += len(unread)
            yield from begin_read(cast("list[ReadPlan]", unread))
        for result in planned:
            size_bytes = self._take_records(result)
            assert result.partition is not None
            if not params.is_from_follower:
                result.partition.traffic.fetched(size_bytes)
            elif result.partition.is_throttled_leader:
                self.leader_quota.record(size_bytes)
        if params.isolation is Isolation.TXN_COMMITTED:
            for result in results:
                if result.records is not None:
                    result.name_aborted(aborted_transactions(result))
                elif result.error is None:
                    result.name_aborted(())

    def _read_both(self, unread: Sequence[ReadPlan | RemotePlan]) -> Stages[None]:
        """Read what is on the disk, and then from the object store what is only there."""
        from ottla.replica.tiered.remote_plan import RemotePlan, read_remotely

        local = [plan for plan in unread if not isinstance(plan, RemotePlan)]
        if local:
            self.counters.file_reads += len(local)
            yield from begin_read(local)
        remote = [plan for plan in unread if isinstance(plan, RemotePlan)]
        yield partial(read_remotely, remote, self._config.remote_wait_ms / 1000)

    def _take_records(self, result: FetchResult) -> int:
        """Take over what was read; returns its size in bytes."""
        plan = result.plan
        assert plan is not None
        if plan.error is not None:
            self.counters.fetch_errors += 1
            result.fail(plan.error)
            return 0
        records = plan.records
        size_bytes = 0 if records is None else records.size_bytes
        if records is None or not size_bytes:
            result.release()
            return 0
        result.take_records(records)
        self.counters.fetched_bytes += size_bytes
        return size_bytes

    # Deleting records -----------------------------------------------------------------------------------------------

    async def delete_records(
        self, offsets: Mapping[TopicIdPartition, int], *, timeout_ms: int, internal_topics_allowed: bool = False
    ) -> dict[TopicIdPartition, DeleteRecordsResult]:
        """Move each log start forward to the given offset, -1 for the high watermark (KIP-107).

        Returns when no live replica serves anything below it any more, or at the deadline with RequestTimedOutError.
        """
        operation = DeleteRecordsOperation()
        deadline = trio.current_time() + timeout_ms / 1000
        time_slice = TimeSlice()
        await self.unopened.wait(offsets)
        for key, offset in offsets.items():
            await time_slice.maybe_yield()
            try:
                partition = self.get_partition(key.topic_id, key.partition)
                with trio.fail_after(max(0.0, deadline - trio.current_time())) if partition.remote else nullcontext():
                    await operation.delete(key, partition, offset, internal_topics_allowed=internal_topics_allowed)
            except trio.TooSlowError:
                operation.refused(key, RequestTimedOutError("the object store did not answer in time"))
            except (ReplicaError, StorageError) as error:
                operation.refused(key, error)
            else:
                self._signal(partition)
        await self.delete_records_purgatory.wait(
            operation.keys, operation.try_complete, (deadline - trio.current_time()) * 1000
        )
        operation.expire()
        return operation.results

    # Events ---------------------------------------------------------------------------------------------------------

    def on_flushed(self, logs: Iterable[PartitionLog]) -> None:
        """The store has written these logs further: their flushed end, or their log start, has moved."""
        now_ms = 0
        for log in logs:
            partition = self._partitions.of_log(log)
            if partition is not None:
                if not now_ms and partition.has_followers:
                    now_ms = self._clock.time_ms()
                partition.advance_high_watermark(now_ms)
                self._signal(partition)

    def on_stalled(self, logs: Iterable[PartitionLog]) -> None:
        """The disk is full: requests that wait for records of these logs are answered."""
        for log in logs:
            partition = self._partitions.of_log(log)
            if partition is not None:
                self._signal(partition)

    def on_offline(self, logs: Iterable[PartitionLog], error: Exception) -> None:
        """The store of these logs has stopped for good: nothing that waits for it is acknowledged."""
        count = 0
        for log in logs:
            partition = self._partitions.of_log(log)
            if partition is not None:
                count += 1
                partition.go_offline()
                if len(partition.replicas) > 1:
                    self.in_sync_sets.hand_over((partition.topic_id, partition.index), partition.live_brokers)
                self._signal(partition)
        keys = {"partitions": count, "error": str(error)}
        logger.critical("%d partitions are offline until the broker is restarted: %s", count, error, extra=keys)

    def on_damaged(self, logs: Iterable[PartitionLog]) -> None:
        """Some of these logs may have lost records: where others have them, they are filled again."""
        self._partitions.damaged(logs)

    def lose_followers(self) -> None:
        """This node stops, and nobody fetches from it any more: end every wait for other replicas, none for a flush."""
        for partition in self._partitions:
            partition.lose_followers()
            self._signal(partition)
        self.delete_records_purgatory.close()

    def close(self) -> None:
        """End every wait now: nothing more will be acknowledged by this manager."""
        self._closed = True
        self._waiting.close()


async def _wait_for_room(partition: Partition, deadline: float) -> None:
    """Return when there is room, or at the deadline."""
    with trio.move_on_at(deadline):
        while not partition.log.has_room:
            partition.require_leader()
            await partition.log.wait_for_room()


def _require_awaited(partition: Partition, deadline: float, is_awaited: Callable[[], bool] | None) -> None:
    """Refuse what would be written for nobody, as its producer has given it up and may have sent it again."""
    name = f"{partition.topic}-{partition.index}"
    if is_awaited is not None and not is_awaited():
        raise RequestTimedOutError(f"nobody waits any more for what was to be appended to {name}")
    if trio.current_time() >= deadline:
        raise RequestTimedOutError(f"the store of {name} had no room in time")
