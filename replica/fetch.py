"""Fetching through the replica manager: what is asked, what is answered, and the delayed operation between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.hot.fetched_partition import FetchedPartition
from ottla.replica.errors import ReplicaError
from ottla.replica.partition import NO_EPOCH, EpochEndOffset, Isolation, Partition, Role
from ottla.runtime.errors import kept
from ottla.runtime.stages import CalledWait
from ottla.runtime.time_slice import CHUNK_ELEMENTS, TimeSlice, chunks
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.replica.hosted_partitions import HostedPartitions
    from ottla.replica.throttles import ReplicaQuota
    from ottla.replica.tiered.remote_plan import RemotePlan
    from ottla.runtime.memory_budget import MemoryBudget
    from ottla.runtime.purgatory import Purgatory, Watch
    from ottla.runtime.stages import Stages
    from ottla.storage.memory.iobuf import IOBuf
    from ottla.storage.reading.plan import ReadPlan

CONSUMER_REPLICA_ID: Final = -1
NO_REPLICA: Final = -1
NOBODY: Final[frozenset[int]] = frozenset()
#: Of a follower that does not say which high watermark it knows (before Fetch v18): it is never answered early.
NO_KNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1

# Members of enumerations cost as much to look up as two calls, and these are asked for with every partition.
_LEADER: Final = Role.LEADER
_LOG_END: Final = Isolation.LOG_END
_TXN_COMMITTED: Final = Isolation.TXN_COMMITTED


class FetchParams:
    """What holds for a whole fetch. Sizes in bytes, `max_wait_ms` in milliseconds.

    `replica_id` is a follower's node id, or negative for a consumer; `replica_epoch` its broker's epoch (KIP-903).
    `may_read_from_follower` is KIP-392's: the consumer understands being sent to a follower, so that one may serve it;
    `near` are the brokers in its rack, if it is to be sent to one of them and this node is none. With `names_files`
    records may be ranges of files, for callers that send them without reading them.
    """

    __slots__ = (
        "isolation",
        "max_bytes",
        "max_wait_ms",
        "may_read_from_follower",
        "min_bytes",
        "names_files",
        "near",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 0x7FFFFFFF,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        replica_id: int = CONSUMER_REPLICA_ID,
        replica_epoch: int = NO_EPOCH,
        may_read_from_follower: bool = False,
        near: frozenset[int] = NOBODY,
        names_files: bool = False,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.may_read_from_follower = may_read_from_follower
        self.near = near
        self.names_files = names_files

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


class FetchPartition:
    """What is asked of one partition, -1 where the client says nothing; and in a session, what was told of it last.

    `name` is what the request calls the topic by: its name, or its id.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "idle_result",
        "known_high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "partition",
        "resolved",
        "told_high_watermark",
        "told_log_start_offset",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: UUID,
        partition: int,
        fetch_offset: int,
        max_bytes: int = 0x7FFFFFFF,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = -1,
        known_high_watermark: int = NO_KNOWN_HIGH_WATERMARK,
        name: str | UUID = "",
    ) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.known_high_watermark = known_high_watermark
        self.name = name
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        #: For the fetch operation: what the names meant the last time, as long as they still mean it.
        self.resolved: Partition | None = None
        #: For the fetch operation: what a follower was answered that had everything; it stands while nothing changes.
        self.idle_result: FetchResult | None = None

    def told(self, result: FetchResult) -> None:
        """The client is told this. After an error, whose watermark is -1, the partition is named again in any case."""
        self.told_high_watermark = result.high_watermark
        self.told_log_start_offset = result.log_start_offset

    def go_on_from(self, known: FetchPartition, *, is_follower: bool) -> None:
        """What is asked now takes the place of what was `known` of the partition in the session."""
        self.told_high_watermark = known.told_high_watermark
        self.told_log_start_offset = known.told_log_start_offset
        if is_follower:
            # It says what it knows: it may have dropped an answer that was for another leader epoch.
            self.told_high_watermark = min(known.told_high_watermark, self.known_high_watermark)
            self.told_log_start_offset = min(known.told_log_start_offset, self.log_start_offset)
        if self.topic_id is known.topic_id:
            self.resolved = known.resolved

    def means(self, topic_id: UUID) -> None:
        """The name stands for this topic now."""
        self.topic_id = topic_id


class FetchResult(FetchedPartition):
    """One partition's answer. Offsets are -1 with an error.

    `records` is None when there are none, and never empty; the result's holder calls `release` once, when the bytes
    have been sent or are not wanted, and touches the records no more. `aborted_transactions`, in the order of the first
    offset, is None unless the fetch was read_committed. The handler sets the index and the error code.
    With a `preferred_read_replica` there are no records: the consumer is to ask that node (KIP-392).
    """

    __slots__ = (
        "budget",
        "charged_bytes",
        "diverging_epoch",
        "error",
        "partition",
        "plan",
        "planned_bytes",
        "preferred_read_replica",
    )

    records: IOBuf | None

    def __init__(
        self,
        error: Exception | None = None,
        partition: Partition | None = None,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.partition_index = -1
        self.error_code = 0
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted_transactions = None
        self.records = None
        self.error = error
        self.partition = partition
        self.diverging_epoch: EpochEndOffset | None = None
        self.preferred_read_replica = NO_REPLICA
        self.plan: ReadPlan | RemotePlan | None = None
        self.planned_bytes = 0
        self.charged_bytes = 0
        #: What the records are charged to.
        self.budget: MemoryBudget | None = None

    def __repr__(self) -> str:
        return f"<FetchResult {self.error!r}>" if self.error else f"<FetchResult of {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """The size of the records; before they are read, at most how much it will be."""
        return self.planned_bytes if self.records is None else self.records.size_bytes

    def charge(self, budget: MemoryBudget) -> None:
        """It will be read: until the release what is planned, and then what was read, is charged to the budget."""
        self.budget = budget
        self.charged_bytes = self.planned_bytes
        budget.charge(self.charged_bytes)

    def take_records(self, records: IOBuf) -> None:
        """Have been read."""
        self.records = records
        size_bytes = records.size_bytes
        if size_bytes != self.charged_bytes and self.budget is not None:
            self.budget.charge(size_bytes)
            self.budget.refund(self.charged_bytes)
            self.charged_bytes = size_bytes

    def name_aborted(self, transactions: Sequence[tuple[int, int]]) -> None:
        """These producers' transactions were aborted, from these offsets on."""
        self.aborted_transactions = transactions

    def release(self) -> None:
        """Give back the records' memory. A second release does nothing."""
        if self.budget is not None:
            self.budget.refund(self.charged_bytes)
            self.budget = None
        if self.plan is not None:
            self.plan.release()
        self.plan = None
        self.planned_bytes = 0
        self.records = None

    def let_go(self) -> None:
        """Hold no memory while the fetch waits, and remember how much there is to read."""
        assert self.budget is None
        if self.plan is not None:
            self.plan.release()
            self.plan = None

    def fail(self, error: Exception) -> None:
        """Turn into the answer to an error."""
        self.release()
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1


class FetchOperation:
    """The delayed fetch: complete when `min_bytes` can be read, or something has to be said at once.

    It looks at every partition once, and again only at those that were signalled. Looking reads no disk: it makes
    plans, which are read together when the operation is complete. A plan holds memory of the log's tail, so that none
    outlives the look while the operation waits: only sizes are kept, and at its end it plans again (`plan_again`).
    """

    __slots__ = (
        "_hosted",
        "_limit_bytes",
        "_now_ms",
        "_params",
        "_partitions",
        "_planned_bytes",
        "_positions",
        "_quota",
        "_readable_bytes",
        "_seen",
        "_topic",
        "_topic_id",
        "_urgent",
        "errors",
        "joining",
        "progressed",
        "reads_remotely",
        "results",
        "signalled",
    )

    def __init__(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        hosted: HostedPartitions,
        *,
        readable_bytes: Callable[[], int],
        quota: ReplicaQuota,
        now_ms: int,
    ) -> None:
        """`quota` is of what this node sends to throttled replicas."""
        self._params = params
        self._quota = quota
        self._partitions = partitions
        self._hosted = hosted
        #: The topic that was looked up last, and its partitions.
        self._topic_id: UUID | None = None
        self._topic: Mapping[int, Partition] = {}
        self._readable_bytes = readable_bytes
        self._limit_bytes = min(params.max_bytes, readable_bytes())
        self._now_ms = now_ms
        self._planned_bytes = 0
        self._urgent = not partitions
        self._positions: dict[Hashable, int] | None = None
        #: How often each partition had changed when it was looked at first.
        self._seen: list[int] = []
        #: For the purgatory: the partitions to look at again.
        self.signalled: set[Hashable] = set()
        #: For the manager: the partitions of which a follower has told that it has come further.
        self.progressed: list[Partition] = []
        #: For the manager: the partitions in whose in-sync set a follower may be from now on.
        self.joining: list[Partition] = []
        self.errors = 0
        #: For the manager: some of it is to be read from the object store.
        self.reads_remotely = False
        self.results: list[FetchResult] = []

    @property
    def keys(self) -> Iterable[Partition]:
        """What may complete it."""
        return [result.partition for result in self.results if result.partition is not None]

    def look_at_all(self) -> Stages[None]:
        """The first look, partition by partition in the order of the request.

        Others may run now and then when the partitions are many; what changes meanwhile is looked at again.
        """
        results, seen = self.results, self._seen
        time_slice = TimeSlice()
        have_run = False
        for requests in chunks(self._partitions):
            if results and time_slice.is_over:
                yield time_slice.maybe_yield
                have_run = True
            for request in requests:
                result = request.idle_result
                if result is None or not self._is_still_idle(request, result):
                    result = self._look(request, is_first=True)
                    self._planned_bytes += result.planned_bytes
                results.append(result)
                seen.append(0 if result.partition is None else result.partition.changes)
        if have_run:
            self.note_changes()

    def note_changes(self) -> None:
        """Others have run since the first look: what has changed meanwhile is looked at again."""
        for result, changes in zip(self.results, self._seen, strict=True):
            if result.partition is not None and result.partition.changes != changes:
                self.signalled.add(result.partition)

    def try_complete(self) -> bool | None:
        """Look again at what was signalled; True when the answer need not wait any longer."""
        again: Sequence[FetchResult] = ()
        if self.signalled:
            again = self._look_again()
        if self._urgent or self._planned_bytes >= self._params.min_bytes:
            return True
        if self._planned_bytes and self._limit_bytes < self._params.min_bytes:
            return True  # the budget leaves less than was asked for: waiting would not help
        for result in again:
            result.let_go()
        return None

    def begin_waiting(self) -> None:
        """It is not complete: hold no memory meanwhile."""
        if self._planned_bytes:
            for result in self.results:
                result.let_go()

    def plan_again(self) -> Stages[None]:
        """Plan what is to be read now, after a wait, where no plan is left."""
        results = self.results
        self._limit_bytes = min(self._params.max_bytes, self._readable_bytes())
        if not self._planned_bytes:
            return
        let_go = sum(result.planned_bytes for result in results if result.plan is None)
        if not let_go:
            return
        self._planned_bytes -= let_go
        time_slice = TimeSlice()
        for position, old in enumerate(results):
            if position % CHUNK_ELEMENTS == CHUNK_ELEMENTS - 1 and time_slice.is_over:
                yield time_slice.maybe_yield
            if old.planned_bytes and old.plan is None:
                old.release()
                results[position] = result = self._look(self._partitions[position], is_first=False)
                self._planned_bytes += result.planned_bytes

    def release(self) -> None:
        """Give up: nobody will see the results."""
        for result in self.results:
            result.release()

    def _look_again(self) -> list[FetchResult]:
        again = []
        self._limit_bytes = min(self._params.max_bytes, self._readable_bytes())
        positions = self._positions
        if positions is None:
            positions = self._positions = {result.partition: i for i, result in enumerate(self.results)}
        # In the order of the request, as at the first look: what comes first may take all that may be answered.
        for position in sorted([positions[key] for key in self.signalled]):
            old = self.results[position]
            self._planned_bytes -= old.planned_bytes
            old.release()
            result = self._look(self._partitions[position], is_first=False)
            again.append(result)
            self.results[position] = result
            self._planned_bytes += result.planned_bytes
        self.signalled.clear()
        return again

    def _look(self, request: FetchPartition, *, is_first: bool) -> FetchResult:
        try:
            return self._plan(request, is_first=is_first)
        except (ReplicaError, StorageError) as error:
            self._urgent = True
            self.errors += 1
            return FetchResult(kept(error))

    def _is_still_idle(self, request: FetchPartition, known: FetchResult) -> bool:
        """Whether a look would find nothing but what is known; the follower's progress is noted as by a look.

        Most of what followers ask is of this kind. It compares everything that a look goes by, so that no change can
        be missed because nobody told of it.
        """
        partition = known.partition
        assert partition is not None
        log, offset = partition.log, request.fetch_offset
        return (
            partition.role is Role.LEADER
            and partition.leader_epoch == request.current_leader_epoch
            and log.flushed_end_offset == offset == log.high_watermark
            and (log.log_start_offset if partition.remote is None else partition.log_start_offset)
            == known.log_start_offset
            and partition.record_unchanged_fetch(
                self._params.replica_id, offset, request.log_start_offset, self._now_ms, self._params.replica_epoch
            )
        )

    def _plan(self, request: FetchPartition, *, is_first: bool) -> FetchResult:
        params = self._params
        partition = self._readable(request)
        offset = request.fetch_offset
        if params.replica_id >= 0:
            # A fetcher that is no replica learns nothing about the log.
            partition.follower(params.replica_id, request.current_leader_epoch)
        if params.near and partition.role is Role.LEADER:
            replica = partition.read_replica(params.near, offset)
            if replica != NO_REPLICA:
                return self._send_to(replica, partition)
        diverging = None
        if request.last_fetched_epoch >= 0:
            diverging = partition.diverging_epoch(offset, request.last_fetched_epoch)
        log = partition.log
        if diverging is None:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                partition.require_remote(offset, from_follower=params.replica_id >= 0)
            if is_first and params.replica_id >= 0:
                self._record_progress(partition, request)
        high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
        log_start = log.log_start_offset if partition.remote is None else partition.log_start_offset
        result = FetchResult(None, partition, high_watermark, stable_offset, log_start)
        if diverging is not None:
            result.diverging_epoch = diverging
            self._urgent = True
            return result
        if params.replica_id >= 0:
            self._compare_high_watermarks(request, result)
        isolation = params.isolation
        if isolation is _LOG_END:
            end_offset = partition.visible_end(isolation)
        else:
            end_offset = stable_offset if isolation is _TXN_COMMITTED else high_watermark
        if offset < end_offset:
            self._plan_read(request, result, end_offset)
        return result

    def _compare_high_watermarks(self, request: FetchPartition, result: FetchResult) -> None:
        # It takes a high watermark in as far as its log reaches. What a throttle keeps from it must not make it ask on
        # and on.
        if request.known_high_watermark < min(result.high_watermark, request.fetch_offset):
            self._urgent = True  # KIP-1166: so that the follower's consumers see it soon
        elif request.fetch_offset == result.high_watermark:
            request.idle_result = result

    def _readable(self, request: FetchPartition) -> Partition:
        partition = request.resolved
        if partition is None or partition.role is not _LEADER:
            partition = request.resolved = self._resolve(request)
        epoch = request.current_leader_epoch
        # Any negative epoch is none, as in Kafka's FetchRequest.
        if partition.role is not _LEADER or (epoch >= 0 and epoch != partition.leader_epoch):
            partition.require_readable(max(epoch, NO_EPOCH), from_follower=self._params.may_read_from_follower)
        return partition

    def _send_to(self, replica: int, partition: Partition) -> FetchResult:
        log = partition.log
        result = FetchResult(None, partition, log.high_watermark, log.last_stable_offset, partition.log_start_offset)
        result.preferred_read_replica = replica
        self._urgent = True
        return result

    def _resolve(self, request: FetchPartition) -> Partition:
        if request.topic_id is not self._topic_id:
            self._topic_id = request.topic_id
            self._topic = self._hosted.of_topic(request.topic_id)
        partition = self._topic.get(request.partition)
        return self._hosted.get(request.topic_id, request.partition) if partition is None else partition

    def _plan_read(self, request: FetchPartition, result: FetchResult, end_offset: int) -> None:
        assert result.partition is not None
        if self._is_held_back(result.partition):
            return
        log = result.partition.log
        left_bytes = self._limit_bytes - self._planned_bytes
        is_obligatory = self._planned_bytes == 0
        if left_bytes > 0 or is_obligatory:
            if request.fetch_offset < log.log_start_offset:
                self._plan_remote_read(request, result, end_offset, max(0, min(request.max_bytes, left_bytes)))
                return
            result.plan = log.plan_read(
                request.fetch_offset,
                max_bytes=max(0, min(request.max_bytes, left_bytes)),
                end_offset=end_offset,
                min_one_batch=is_obligatory,
                names_files=self._params.names_files,
            )
            # How much a read of a file will yield is not known in advance: as much as it may, but no more than there
            # is.
            result.planned_bytes = min(result.plan.size_bytes, log.size_bytes)

    def _plan_remote_read(self, request: FetchPartition, result: FetchResult, end_offset: int, max_bytes: int) -> None:
        """What is to be read is in the object store only: nothing else is waited for then, as in Kafka."""
        from ottla.replica.tiered.remote_plan import RemotePlan

        partition = result.partition
        assert partition is not None
        assert partition.remote is not None
        result.plan = RemotePlan(
            partition.remote, partition.log, request.fetch_offset, max_bytes=max_bytes, end_offset=end_offset
        )
        result.planned_bytes = max(1, max_bytes)
        self.reads_remotely = self._urgent = True

    def _is_held_back(self, partition: Partition) -> bool:
        """Whether the throttle leaves nothing for the follower now. One in sync gets everything, or it would leave the
        set.
        """
        follower = self._params.replica_id
        return (
            follower >= 0
            and partition.is_throttled_leader
            and follower not in partition.isr
            and self._quota.throttle_seconds() > 0
        )

    def _record_progress(self, partition: Partition, request: FetchPartition) -> None:
        moved = partition.record_follower_fetch(
            self._params.replica_id,
            request.fetch_offset,
            request.log_start_offset,
            request.current_leader_epoch,
            self._now_ms,
            self._params.replica_epoch,
        )
        if moved:
            self.progressed.append(partition)
        if self._params.replica_id not in partition.isr and partition.may_join(self._params.replica_id):
            self.joining.append(partition)


class RecordsWait(CalledWait):
    """The wait for what a fetch may be answered with, for `max_wait_ms` at most."""

    __slots__ = ("_deadline", "_is_over", "_operation", "_purgatory", "_watch")

    def __init__(self, purgatory: Purgatory, operation: FetchOperation, max_wait_ms: int) -> None:
        self._purgatory = purgatory
        self._operation = operation
        self._deadline = trio.current_time() + max_wait_ms / 1000
        self._watch: Watch | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        return self._is_over

    def watch(self, over: Callable[[], None]) -> None:
        def completed() -> None:
            self._is_over = True
            over()

        operation = self._operation
        self._watch = self._purgatory.watch(
            operation.keys, operation.try_complete, self._left_ms, completed, signalled=operation.signalled
        )

    def give_up(self) -> None:
        if self._watch is not None:
            self._watch.leave()

    async def __call__(self) -> None:
        self.give_up()
        if self._is_over:
            return
        operation = self._operation
        operation.note_changes()
        await self._purgatory.wait(operation.keys, operation.try_complete, self._left_ms, signalled=operation.signalled)

    @property
    def _left_ms(self) -> float:
        return (self._deadline - trio.current_time()) * 1000
